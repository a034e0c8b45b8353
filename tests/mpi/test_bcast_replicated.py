"""``bcast`` and ``replicated``: mistakes are told by all ranks, and runs repeat bit for bit."""

import json

import numpy as np
import pytest

from partition.graph.graph import Graph
from partition.graph.store import write_graph
from partition.pipeline.adding import add_partition

N = 40


def make_graph(weight=1.0):
    rng = np.random.default_rng(0)
    targets = np.concatenate([np.sort(rng.choice(N, 4, replace=False)) for _ in range(N)])
    weights = np.ones(4 * N)
    weights[-3:] = weight
    return Graph(
        np.arange(0, 4 * N + 1, 4, dtype=np.int64),
        targets.astype(np.int32),
        weights,
        rng.standard_normal((N, 5)).astype(np.float32),
        (np.arange(N) % 3).astype(np.int32),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("block-rows")
    write_graph(folder / "good.graph", make_graph(), source={})
    write_graph(folder / "negative.graph", make_graph(-50.0), source={})
    for k in (2, 3, 4):
        add_partition(folder / "good.graph", "rp", k)
    return folder


REPLICATED = "scheme.name=replicated"
# Graph, partition and settings of a run on four ranks; what must be said of it.
MISTAKES = [
    ("good", "rp-4", [REPLICATED, "scheme.replication=3"], ["does not divide", "1, 2, 4"]),
    ("good", "rp-4", [REPLICATED], ["has 4 parts", "on 4 ranks takes 2", "-k 2"]),
    ("good", None, [REPLICATED], ["into 2 parts", "-k 2"]),
    ("good", "rp-2", [REPLICATED, "scheme.backward=expand"], ["directed", "'fold'"]),
    ("good", "rp-3", ["scheme.name=bcast"], ["has 3 parts", "4 blocks", "-k 4"]),
    ("negative", None, ["scheme.name=bcast"], ["row sums", "'row'"]),
]
# Runs of which the first two, and any after them twice, must agree to the bit.
BCAST = ("rp-4", ["scheme.name=bcast"])
NEEDED = ("rp-2", [REPLICATED, "scheme.replication=2"])
WHOLE = ("rp-2", [REPLICATED, "scheme.sparse=false"])
RUNS = [
    [BCAST, (BCAST[0], [*BCAST[1], "scheme.overlap=false"])],
    [NEEDED, NEEDED],
    [WHOLE, (WHOLE[0], [*WHOLE[1], "scheme.overlap=false"])],
]


def test_mistakes_and_the_same_bits(gcnmpi_lines, folder):
    def line(graph, partition, settings, out):
        words = ["train", folder / f"{graph}.graph", "--quiet", "--out", folder / out]
        words += [] if partition is None else ["--partition", partition]
        for setting in ("train.epochs=4", "model.dropout=0.4", *settings):
            words += ["--set", setting]
        return words

    lines = [line(*mistake[:3], "run") for mistake in MISTAKES]
    names = [(number, turn) for number in range(len(RUNS)) for turn in (0, 1)]
    lines += [line("good", *RUNS[number][turn], f"{number}{turn}") for number, turn in names]
    # Who reads no M asks for none; who was refused may do as he was told.
    fine = ("model.name=mlp", "graph.normalize=row")
    bcast = MISTAKES[-1][2]
    lines += [line("negative", None, [*bcast, setting], setting) for setting in fine]
    names += fine
    heard = gcnmpi_lines(4, lines, timeout=120)
    for (*_, says), (first, *others) in zip(MISTAKES, heard, strict=False):
        assert first is not None, says
        assert others == [first] * 3
        assert all(words in first for words in says), first
    assert heard[len(MISTAKES) :] == [[None] * 4] * len(names)
    for number in range(len(RUNS)):
        assert losses(folder / f"{number}0") == losses(folder / f"{number}1")


def losses(folder):
    records = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    found = [record["loss"] for record in records if record["event"] == "epoch"]
    assert len(found) == 4
    return found
