"""The stochastic hypergraph against the batches it is made of, and against expectations."""

import math

import numpy as np
import pytest
from command_line import as_json, refused, run
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from small_graphs import make_folder, partitioned_graphs, random_graph

from partition.graph.graph import row_sizes
from partition.graph.metrics import pattern_exchange
from partition.graph.sampling import MODEL, make_sampler, sides, stream_seed
from partition.models import descriptions
from partition.models.descriptions import nets_needed, settle, stochastic_model
from partition.pipeline.adding import add_partition
from partition.reporting.comparison import simulate

VERTEX = {"sampler": "vertex", "batch": "50%", "fanouts": "", "owners": "batch"}
NEIGHBOR = VERTEX | {"sampler": "neighbor", "batch": 3, "fanouts": "2,1"}
ALL = VERTEX | {"owners": "all"}
OPEN = {"theta": 0.1, "delta": 0.5, "batches": 0}


def nets_of(model):
    """(owner, sorted pins) → cost."""
    nets = [model.pins[a:b] for a, b in zip(model.indptr, model.indptr[1:], strict=False)]
    table = [(int(j), tuple(net.tolist())) for j, net in zip(model.owners, nets, strict=True)]
    assert len(set(table)) == len(table)
    return dict(zip(table, model.costs.tolist(), strict=True))


@settings(max_examples=60)
@given(
    partitioned_graphs(), st.sampled_from(["in", "out"]), st.sampled_from([VERTEX, NEIGHBOR]),
    st.integers(1, 6), st.sampled_from([1, 10, 1 << 23]),
)  # fmt: skip
def test_connectivity_is_the_volume_of_the_batches(case, direction, options, batches, pending):
    graph, parts, k = case
    options = options | {"batch": min(3, graph.n)}
    with pytest.MonkeyPatch.context() as patch:  # merging often or once makes no difference
        patch.setattr(descriptions, "PENDING_PINS", pending)
        model = stochastic_model(graph, direction, seed=7, batches=batches, **options)
    lambdas = {net: len(set(parts[list(net[1])].tolist())) for net in nets_of(model)}
    connectivity = sum(cost * (lambdas[net] - 1) for net, cost in nets_of(model).items())
    name, size, fanouts = (options[key] for key in ("sampler", "batch", "fanouts"))
    sampler = make_sampler(name, graph.n, size, stream_seed(7, MODEL), fanouts)
    side, volume, nets = sides(graph, direction, sampler.side), 0, 0
    for epoch in range(batches):
        for pattern in sampler.patterns(side, epoch, 0):
            owners = parts[pattern.columns]
            volume += pattern_exchange(pattern.indptr, pattern.rows, owners, parts, k).sum()
            column = np.repeat(pattern.columns, np.diff(pattern.indptr))
            nets += len(np.unique(column[column != pattern.rows]))
    assert connectivity == volume
    assert model.costs.sum() == nets
    assert all(j in pins and len(pins) > 1 for j, pins in nets_of(model))
    np.testing.assert_array_equal(model.weights, row_sizes(graph, direction))


@pytest.mark.parametrize("direction", ["in", "out"])
def test_with_nets_of_all_vertices_an_epoch_sees_every_arc_once(direction):
    graph = random_graph(30, 200)
    model = stochastic_model(graph, direction, seed=3, batches=4, **ALL | {"batch": 8})
    seen = np.zeros((30, 30), int)
    for (j, pins), cost in nets_of(model).items():
        seen[[i for i in pins if i != j], j] += cost
    truth = (graph.adjacency().toarray() != 0) & ~np.eye(30, dtype=bool)
    np.testing.assert_array_equal(seen, truth.T if direction == "in" else truth)


def test_the_number_of_nets_and_batches():
    # Equation 14 of the paper with its own settings, 27 processors: 26² / 0.02 · ln 4.
    assert nets_needed(27, 0.1, 0.5) == math.ceil(26**2 / 0.02 * math.log(4)) == 46857
    graph = random_graph(200, 3000)
    settled = settle(graph, "in", 4, 0, OPEN | VERTEX)
    assert settled["batch"] == "100"
    nets = stochastic_model(graph, "in", seed=0, **settled).costs.sum()
    assert 0.9 * nets_needed(4, 0.1, 0.5) < nets < 1.1 * nets_needed(4, 0.1, 0.5) + 100
    assert settle(graph, "in", 4, 0, settled) == settled
    assert settle(graph, "in", 4, 0, OPEN | VERTEX | {"batches": 3})["batches"] == 3
    whole = settle(graph, "in", 4, 0, OPEN | ALL | {"batch": 60, "theta": 0.02})
    assert (whole["batches"] % 4, whole["owners"]) == (0, "all")
    assert settle(graph, "in", 4, 0, OPEN | ALL | {"sampler": "neighbor"})["owners"] == "batch"


MISTAKES = [
    ({"theta": -0.1}, "theta = -0.1"), ({"delta": 1.0}, "delta = 1"), ({"delta": 0.0}, "delta = 0"),
    ({"batches": -1}, "batches = -1"), ({"batch": 201}, "a batch of 201 vertices"),
    ({"theta": 1e-7}, "choose a larger theta"),
]  # fmt: skip


def test_mistakes():
    graph = random_graph(200, 3000)
    for options, message in MISTAKES:
        refuses(message, settle, graph, "in", 4, 0, OPEN | VERTEX | options)


def test_simulate_whole_batches_is_the_full_volume(tmp_path):
    path = make_folder(tmp_path / "small.graph", random_graph(60, 400), direction="out")
    hp = add_partition(path, "block", 3).metrics["out"]
    add_partition(path, "rp", 5)
    facts = simulate(path, ["block-3", "rp-5"], batch="100%", batches=3)
    assert (facts["batch"], facts["direction"], facts["batches"]) == (60, "out", 3)
    first, second = facts["partitions"]
    for figure, of, whole in (
        ("volume", "mean", sum(hp.send_rows)),
        ("max_send", "median", max(hp.send_rows)),
        ("max_recv", "max", max(hp.recv_rows)),
        ("max_send_messages", "q95", max(hp.send_messages)),
    ):
        assert first[figure][of] == whole
    assert (first["relative_volume"], first["relative_error"], second["k"]) == (1.0, None, 5)
    assert second["relative_volume"] == second["volume"]["mean"] / first["volume"]["mean"]


def test_simulate_neighbours_and_mistakes(tmp_path):
    path = make_folder(tmp_path / "small.graph", random_graph(60, 400))
    add_partition(path, "rp", 2)
    made = add_partition(path, "shp", 2, batch="20%", theta="0.3", imbalance=0.1)
    assert (made.name, made.options["batch"]) == ("shp-2-e0.1", "12")
    assert made.options["batches"] > 1
    arguments = {"sampler": "neighbor", "batch": 5, "fanouts": "3,2", "batches": 20}
    facts = simulate(path, ["rp-2"], **arguments)
    two = simulate(path, ["rp-2"], **arguments | {"batches": 2})["partitions"][0]["volume"]
    assert 0 < two["sd"] == pytest.approx((two["max"] - two["min"]) / math.sqrt(2))
    assert facts == simulate(path, ["rp-2"], **arguments)
    assert facts != simulate(path, ["rp-2"], **arguments, seed=1)
    for name, value in (("batches", 0), ("batch", 61), ("fanouts", "x"), ("direction", "up")):
        refuses(f"{value}", simulate, path, ["rp-2"], **arguments | {name: value})
    for names, says in ((["rp-3"], "unknown partition of"), ([], "no partition is named")):
        refuses(says, simulate, path, names)
    words = ["simulate", path, "rp-2", made.name, "--batch", 20, "--batches", 5]
    assert "median" in run(*words).output
    assert [row["name"] for row in as_json(*words)["partitions"]] == ["rp-2", made.name]
    assert "has no fan-outs" in refused(*words, "--fanouts", 3)
