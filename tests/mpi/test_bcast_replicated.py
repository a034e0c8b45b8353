"""``bcast`` and ``replicated``: mistakes are told by all ranks, and runs repeat bit for bit."""

import numpy as np
import pytest
from stored_graphs import graph_of, store
from words import sets

from gcnmpi.run.record import read_run

N = 40


def make_graph(weight=1.0):
    rng, dense = np.random.default_rng(0), np.zeros((N, N))
    for row in dense:
        row[rng.choice(N, 4, replace=False)] = 1
    dense[-1] *= weight
    features = rng.standard_normal((N, 5)).astype(np.float32)
    return graph_of(dense, features=features, labels=(np.arange(N) % 3).astype(np.int32))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("block-rows")
    store(folder / "good.graph", make_graph(), 2, 3, 4)
    store(folder / "negative.graph", make_graph(-50.0))
    return folder


REPLICATED = "scheme.name=replicated"
# Graph, partition and settings of a run on four ranks; texts in the complaint of it.
MISTAKES = [
    ("good", "rp-4", [REPLICATED, "scheme.replication=3"], ("does not divide", "1, 2, 4")),
    ("good", "rp-4", [REPLICATED], ("has 4 parts", "on 4 ranks takes 2", "-k 2")),
    ("good", None, [REPLICATED], ("into 2 parts", "-k 2")),
    ("good", "rp-2", [REPLICATED, "scheme.backward=expand"], ("directed", "'fold'")),
    ("good", "rp-3", ["scheme.name=bcast"], ("has 3 parts", "4 blocks", "-k 4")),
    ("negative", None, ["scheme.name=bcast"], ("row sums", "'row'")),
]
# Two runs each, which must agree to the bit.
OVERLAP = "scheme.overlap=false"
RUNS = {
    "bcast": ("rp-4", ["scheme.name=bcast"], [OVERLAP]),
    "needed": ("rp-2", [REPLICATED, "scheme.replication=2"], []),
    "whole": ("rp-2", [REPLICATED, "scheme.sparse=false"], [OVERLAP]),
}


@pytest.fixture(scope="module")
def line(folder):
    """``line(graph, partition, settings, out)`` → the words of a run."""

    def words(graph, partition, settings, out):
        placed = [] if partition is None else ["--partition", partition]
        own = sets("train.epochs=4", "model.dropout=0.4", *settings)
        path = folder / f"{graph}.graph"
        return ["train", path, "--quiet", "--out", folder / out, *placed, *own]

    return words


def test_mistakes(hear_mistakes, gcnmpi_lines, line):
    hear_mistakes(4, [(line(*run, "run"), says) for *run, says in MISTAKES])
    # A scheme that reads no M asks for none; after a refusal, its hint helps.
    *run, bcast, _ = MISTAKES[-1]
    fine = ("model.name=mlp", "graph.normalize=row")
    lines = [line(*run, [*bcast, setting], "run") for setting in fine]
    assert gcnmpi_lines(4, lines) == [[None] * 4] * 2


def test_the_same_bits(gcnmpi_lines, line, folder):
    lines = []
    for name, (partition, settings, more) in RUNS.items():
        lines.append(line("good", partition, settings, name))
        lines.append(line("good", partition, [*settings, *more], f"{name} again"))
    assert gcnmpi_lines(4, lines) == [[None] * 4] * len(lines)
    for name in RUNS:
        one, again = (read_run(folder / out).epochs for out in (name, f"{name} again"))
        assert len(one) == 4
        assert [epoch["loss"] for epoch in one] == [epoch["loss"] for epoch in again]
