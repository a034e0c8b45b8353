"""``bcast`` and ``replicated``: mistakes are told by all ranks, and runs repeat bit for bit."""

import numpy as np
import pytest
from stored_graphs import small_graph, store
from words import line

from gcnmpi.run.record import read_run

REPLICATED, OVERLAP = "scheme.name=replicated", "scheme.overlap=false"
# Graph, partition and settings of a run on four ranks; texts in the complaint of it.
MISTAKES = [
    ("good", "rp-4", f"{REPLICATED} scheme.replication=3", ("does not divide", "1, 2, 4")),
    ("good", "rp-4", REPLICATED, ("has 4 parts", "on 4 ranks takes 2", "-k 2")),
    ("good", None, REPLICATED, ("into 2 parts", "-k 2")),
    ("good", "rp-2", f"{REPLICATED} scheme.backward=expand", ("directed", "'fold'")),
    ("good", "rp-3", "scheme.name=bcast", ("has 3 parts", "4 blocks", "-k 4")),
    ("negative", None, "scheme.name=bcast", ("row sums", "'row'")),
]
# Two runs each, which must agree to the bit.
RUNS = {
    "bcast": ("rp-4", "scheme.name=bcast", OVERLAP),
    "needed": ("rp-2", f"{REPLICATED} scheme.replication=2", ""),
    "whole": ("rp-2", f"{REPLICATED} scheme.sparse=false", OVERLAP),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """``run(graph, partition, settings, out)`` → the words of a run."""
    folder, graph = tmp_path_factory.mktemp("block-rows"), small_graph("directed")
    store(folder / "good.graph", graph, 2, 3, 4)
    graph.weights[np.argmax(graph.weights)] = -50.0
    store(folder / "negative.graph", graph)

    def words(graph, partition, settings, out):
        own = ("train.epochs=4", "model.dropout=0.4", *settings.split())
        options = {"settings": own, "out": out, "partition": partition}
        return line("train", folder / f"{graph}.graph", **options)

    return words


def test_mistakes_and_the_same_bits(hear_mistakes, succeed, run, tmp_path):
    hear_mistakes(4, [(run(*words, tmp_path / "run"), says) for *words, says in MISTAKES])
    # A scheme that reads no M asks for none; after a refusal, its hint helps.
    *words, bcast, _ = MISTAKES[-1]
    fine = ("model.name=mlp", "graph.normalize=row")
    lines = [run(*words, f"{bcast} {setting}", tmp_path / "run") for setting in fine]
    for name, (partition, settings, more) in RUNS.items():
        lines.append(run("good", partition, settings, tmp_path / name))
        lines.append(run("good", partition, f"{settings} {more}", tmp_path / f"{name} again"))
    succeed(4, *lines)
    for name in RUNS:
        one, again = (read_run(tmp_path / out).epochs for out in (name, f"{name} again"))
        assert len(one) == 4
        assert [epoch["loss"] for epoch in one] == [epoch["loss"] for epoch in again]
