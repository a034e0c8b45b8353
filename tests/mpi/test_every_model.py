"""A partition of every model, refined, mapped or chosen by auto: bytes sent equal its metrics."""

import numpy as np
import pytest
from stored_graphs import store
from words import line

from gcnmpi.run.record import read_run
from partition.backends.catalogue import MODELS
from partition.graph.store import list_partitions, open_graph, read_partition
from partition.importing.synthetic import rmat
from partition.pipeline.adding import add_partition, refine_partition
from partition.pipeline.portfolio import Network, add_best

K = 4


@pytest.fixture(scope="module")
def path(tmp_path_factory):
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
def test_bytes_sent_are_what_the_metrics_say(path, succeed, tmp_path, exchange):
    names = list_partitions(path)
    assert len(names) == len(MODELS) + 5
    own = ["model.hidden=[5, 7]", "train.epochs=2", f"scheme.exchange={exchange}"]
    gat, pair = ["model.name=gat", "train.epochs=2"], f"auto-{K}"
    asked = {name: (name, own, name) for name in names}
    # Of a pair, the one is taken that the run can use; one that cannot be used well is told of.
    asked["pair"] = pair, own, f"{pair}-{exchange}"
    if exchange == "rows":
        asked["attention"] = pair, gat, f"{pair}-rows"
        asked["told"] = f"{pair}-mixed", gat, f"{pair}-mixed"
    lines = [
        line("train", path, settings=settings, partition=name, out=tmp_path / case)
        for case, (name, settings, _) in asked.items()
    ]
    succeed(K, *lines, timeout=120)
    for case in set(asked) - set(names):
        start = read_run(tmp_path / case).start
        told = [text for text in start["warnings"] if "was made for the mixed exchange" in text]
        assert (start["partition"], len(told)) == (asked[case][2], case == "told")
        assert all(f"take --partition {pair}-rows" in text for text in told)
    direction = open_graph(path).manifest.direction
    for name in names:
        end, partition = read_run(tmp_path / name).end, read_partition(path, name, parts=False)
        metrics = (partition.metrics if exchange == "rows" else partition.mixed)[direction]
        rows = np.array(metrics.send_rows) + np.array(metrics.recv_rows)
        # Of layers 6 → 5 → 7 → 3, the first sends nothing; the others travel 5 and 3 columns wide.
        expected = (2 * (5 + 3) * 4 * rows).tolist()
        assert end["bytes_sent"] == end["bytes_predicted"] == expected, name
        assert min(end["setup_bytes_sent"]) > 0
        messages = np.array(metrics.send_messages) + np.array(metrics.recv_messages)
        assert end["messages_sent"] == (2 * 2 * messages).tolist(), name
