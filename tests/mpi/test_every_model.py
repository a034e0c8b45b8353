"""A partition of every model, refined, mapped or chosen by auto: bytes sent equal its metrics."""

import numpy as np
import pytest
from stored_graphs import store
from words import sets

from gcnmpi.run.record import read_run
from partition.backends.catalogue import MODELS
from partition.graph.store import list_partitions, open_graph, read_partition
from partition.importing.synthetic import rmat
from partition.pipeline.adding import add_partition, refine_partition
from partition.pipeline.estimates import Network
from partition.pipeline.portfolio import add_best

K = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directed skewed graph with a partition of every kind."""
    made = rmat(9, 3000, seed=5, features=6, classes=3)
    path = store(tmp_path_factory.mktemp("models") / "g.graph", made)
    for model in MODELS:
        add_partition(path, model, K)
    add_partition(path, "gp", K, objective="vol", ranks_per_node=2)
    add_partition(path, "gp", K, balance="nnz,rows", name="balanced")
    refine_partition(path, f"rp-{K}")
    add_best(path, K, time_limit=5, network=Network(beta=1e-6))
    return path


@pytest.mark.parametrize("exchange", ["rows", "mixed"])
def test_bytes_sent_are_what_the_metrics_say(folder, gcnmpi_lines, tmp_path, exchange):
    names = list_partitions(folder)
    assert len(names) == len(MODELS) + 5
    words = sets("model.hidden=[5, 7]", "train.epochs=2", f"scheme.exchange={exchange}")
    lines = [
        ["train", folder, "--quiet", *words, "--partition", name, "--out", tmp_path / name]
        for name in names
    ]
    # Of a pair, the one is taken that the run can use; one that cannot be used well is told of.
    gat = sets("model.name=gat", "train.epochs=2")
    pair, other = f"auto-{K}", "rows" if exchange == "rows" else "mixed"
    taken = {"pair": (pair, words, f"{pair}-{other}")}
    if exchange == "rows":
        taken |= {"attention": (pair, gat, f"{pair}-rows"),
                  "told": (f"{pair}-mixed", gat, f"{pair}-mixed")}  # fmt: skip
    lines += [
        ["train", folder, "--quiet", *more, "--partition", name, "--out", tmp_path / case]
        for case, (name, more, _) in taken.items()
    ]
    assert gcnmpi_lines(K, lines, timeout=120) == [[None] * K] * len(lines)
    for case, (_, _, expected) in taken.items():
        start = read_run(tmp_path / case).start
        told = [line for line in start["warnings"] if "was made for the mixed exchange" in line]
        assert (start["partition"], len(told)) == (expected, case == "told")
        assert all(f"take --partition {pair}-rows" in line for line in told)
    direction = open_graph(folder).manifest.direction
    for name in names:
        end = read_run(tmp_path / name).end
        partition = read_partition(folder, name, parts=False)
        metrics = (partition.metrics if exchange == "rows" else partition.mixed)[direction]
        sent, received = np.array(metrics.send_rows), np.array(metrics.recv_rows)
        # Of layers 6 → 5 → 7 → 3, the first sends nothing; the others travel 5 and 3 columns wide.
        expected = (2 * (5 + 3) * 4 * (sent + received)).tolist()
        assert end["bytes_sent"] == end["bytes_predicted"] == expected, name
        assert min(end["setup_bytes_sent"]) > 0
        messages = np.array(metrics.send_messages) + np.array(metrics.recv_messages)
        assert end["messages_sent"] == (2 * 2 * messages).tolist(), name
