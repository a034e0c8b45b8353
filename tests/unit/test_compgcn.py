"""R-GCN, CompGCN and SeHGNN by their definitions; files of weights, and how they are refused."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from refusals import refuses
from typed_graphs import CITES, COUNTS, ENDS, source_of, typed_graph

import gcnmpi
from gcnmpi.nn.describe import network_of
from gcnmpi.nn.initial import initial
from gcnmpi.nn.operators.dense import Linear
from gcnmpi.nn.state import to_state
from gcnmpi.options.config import from_table
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.ranking import Setting, rank_schemes
from gcnmpi.proof.oracle import Problem
from gcnmpi.run.weights import read_weights
from partition.graph.graph import arcs, inputs_of
from partition.graph.relations import Relation, Schema
from partition.graph.store import open_graph, write_graph
from partition.importing.arcs import build_typed

RGCN = {
    "own": {}, "bases": {"bases": 2}, "blocks": {"blocks": 2},
    "rootless": {"root_weight": False, "bias": False},
}  # fmt: skip
COMPGCN = {
    "sub": {"composition": "sub"}, "mult": {"bias": False}, "shared": {"bases": 2},
}  # fmt: skip
OPTIONS = RGCN | COMPGCN


def graph_of():
    """Of three types, four relations, one of which is the reverse of another by its name."""
    graph = build_typed(source_of(ENDS | {CITES.reverse(): [(1, 0), (2, 1), (3, 1)]}))[0]
    features = np.random.default_rng(1).standard_normal((graph.n, 6)).astype(np.float32)
    return replace(graph, features=features, type_features={})


def config_of(name, **model):
    name = {**dict.fromkeys(RGCN, "rgcn"), **dict.fromkeys(COMPGCN, "compgcn")}.get(name, name)
    model = {"name": name, "hidden": [4]} | model
    return from_table({"dtype": "float64", "train": {"epochs": 1}, "model": model})


def means_of(graph, direction="in"):
    """The matrix of means by the arcs of each relation, (n, n), dense."""
    found = []
    for number in range(len(graph.relations)):
        some, matrix = graph.arc_type == number, np.zeros((graph.n, graph.n))
        ends = np.asarray(graph.indices)[some], arcs(graph)[some]
        np.add.at(matrix, ends if direction == "in" else ends[::-1], 1)
        found.append(matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1))
    return found


def rgcn(graph, x, z, state, name, config, direction):
    """One layer, by equation 2 of Schlichtkrull et al. 2018."""
    weight = state[f"{name}.weight"].astype(float)
    if f"{name}.comp" in state:
        weight = np.einsum("rb,bio->rio", state[f"{name}.comp"], weight)
    elif weight.ndim == 4:
        count, blocks, rows, columns = weight.shape
        whole = np.zeros((count, blocks, rows, blocks, columns))
        whole[:, range(blocks), :, range(blocks)] = weight.transpose(1, 0, 2, 3)
        weight = whole.reshape(count, blocks * rows, blocks * columns)
    y = sum(m @ x @ w for m, w in zip(means_of(graph, direction), weight, strict=True))
    return y + x @ state.get(f"{name}.root", 0 * weight[0]) + state.get(f"{name}.bias", 0)


COMPOSED = {"sub": np.subtract, "mult": np.multiply}


def compgcn(graph, x, z, state, name, config, direction):
    """One layer, by equations 2 and 3 of Vashishth et al. 2020, with means."""
    ends, composed = (arcs(graph), np.asarray(graph.indices)), COMPOSED[config.model.composition]
    j, i = ends if direction == "in" else ends[::-1]
    back = np.array([one.name == "rev_cites" for one in graph.relations])[graph.arc_type]
    types = graph.vertex_types.of(np.arange(graph.n))
    y = np.zeros((graph.n, state[f"{name}.w_loop"].shape[1]))
    for v in range(graph.n):
        loop = state[f"{name}.loop_rel"][types[v]]
        y[v] = composed(x[v], loop) @ state[f"{name}.w_loop"]
        for turned, weight in ((False, "w_out"), (True, "w_in")):
            into = np.flatnonzero((i == v) & (back == turned))
            for e in into:
                message = composed(x[j[e]], z[graph.arc_type[e]])
                y[v] += message @ state[f"{name}.{weight}"] / len(into)
    return y + state.get(f"{name}.bias", 0)


@pytest.mark.parametrize("direction", ["in", "out"])
@pytest.mark.parametrize("name", OPTIONS)
def test_the_oracle_is_the_definition(name, direction):
    graph, config = graph_of(), config_of(name, **OPTIONS[name])
    problem = Problem(graph, direction, config)
    weights = problem.initial()
    state, z = to_state(problem.network, weights), 0
    if name in COMPGCN:
        z = state["rel_wt"] @ state["rel_basis"] if name == "shared" else state["init_rel"]
    layer, given = rgcn if name in RGCN else compgcn, (config, direction)
    x = np.maximum(layer(graph, np.asarray(graph.features, float), z, state, "convs.0", *given), 0)
    z = z @ state["convs.0.w_rel"] if name in COMPGCN else 0
    expected = layer(graph, x, z, state, "convs.1", *given)
    np.testing.assert_allclose(problem.logits(weights), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_gradient_is_the_slope_of_the_loss(name):
    """Also of what is read in both layers."""
    problem = Problem(graph_of(), "in", config_of(name, **OPTIONS[name]))
    weights, random, ends = problem.initial(), np.random.default_rng(2), []
    gradient = problem.gradient(weights, 1)[1]
    step = {key: random.standard_normal(array.shape) for key, array in weights.items()}
    for h in (1e-6, -1e-6):
        moved = {key: weights[key] + h * step[key] for key in weights}
        ends.append(problem.gradient(moved, 1)[0])
    slope = sum(np.sum(gradient[key] * step[key]) for key in gradient)
    assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(slope, rel=1e-6)


def test_a_reverse_is_one_of_a_relation_that_there_is():
    names = "cites", "rev_cites", "rev_likes", "revives"
    schema = Schema(("a",), tuple(Relation("a", name, "a") for name in names))
    assert schema.turned == (False, True, False, False)


SHAPES = {
    "own": {"weight": (3, 6, 4), "root": (6, 4), "bias": (4,)},
    "bases": {"weight": (2, 6, 4), "comp": (3, 2), "root": (6, 4), "bias": (4,)},
    "blocks": {"weight": (3, 2, 3, 2), "root": (6, 4), "bias": (4,)},
    "rootless": {"weight": (3, 6, 4)},
}


@pytest.mark.parametrize("name", RGCN)
def test_files_of_weights_have_the_arrays_of_pytorch_geometric(name, tmp_path):
    """Whose relations are those of the graph."""
    config = config_of(name, **RGCN[name])
    network = network_of(config.model, 6, 2, relations=3)
    arrays = {key: initial(p, 3) for key, p in network.parameters.items()}
    state = to_state(network, arrays)
    first = {key[8:]: array.shape for key, array in state.items() if key.startswith("convs.0")}
    assert first == SHAPES[name]
    np.savez(tmp_path / "w.npz", **state)
    given = {"model.name", *(f"model.{key}" for key in RGCN[name])}
    found = read_weights(tmp_path / "w.npz", config, given, 6, typed_graph().schema)
    assert (found.widths, found.schema) == ((6, 4, 2), typed_graph().schema)
    for key, array in arrays.items():
        np.testing.assert_array_equal(found.parameters[key], array)


def test_weights_are_of_their_relations_and_features_of_types(tmp_path):
    graph = typed_graph()
    turned = (graph.relations[0], *graph.relations[:0:-1])
    numbers = np.array([0, 2, 1], graph.arc_type.dtype)[graph.arc_type]
    order = np.lexsort((numbers, graph.indices, arcs(graph)))
    widths = {"paper": np.ones((4, 3), np.float32), "author": np.ones((3, 2), np.float32)}
    write_graph(tmp_path / "g.graph", graph, source={})
    options = {"model_name": "rgcn", "model_hidden": [4], "train_epochs": 2}
    weights = gcnmpi.train(tmp_path / "g.graph", out=tmp_path / "run", **options)
    for name, says, changes in (
        ("other", "other relations than", {"relations": turned, "arc_type": numbers[order]}),
        ("wide", r"the weights take \{'paper': 2, 'author': 3\}", {"type_features": widths}),
    ):
        write_graph(tmp_path / f"{name}.graph", replace(graph, **changes), source={})
        refuses(says, gcnmpi.infer, tmp_path / f"{name}.graph", weights)


# SeHGNN.


def by_metapath(graph, hops, target):
    """The features that the vertices of a type get by each metapath that leads to it."""
    x, types = np.asarray(inputs_of(graph), float), graph.vertex_types
    means, column, found = means_of(graph), {}, []
    for name, features in graph.type_features.items():
        first = sum(one.stop - one.start for one in column.values())
        column[name] = slice(first, first + features.shape[1])
    for length in range(hops + 1):
        for path in product(range(len(graph.relations)), repeat=length):
            begins = [*(graph.relations[r].source for r in path), target]
            ends = [graph.relations[r].target for r in path]
            if begins[1:] == ends and begins[0] in column:
                rows = x
                for r in path:
                    rows = means[r] @ rows
                found.append(rows[list(types.range(target)), column[begins[0]]])
    return found


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("target", COUNTS)
def test_the_branches_are_all_metapaths(target, hops, reverse):
    graph, config = typed_graph(reverse=reverse), config_of("sehgnn", hops=hops, target=target)
    expected = by_metapath(graph, hops, target)
    if not expected:
        refuses("no metapath", Problem, graph, "in", config)
        return
    problem = Problem(graph, "in", config)
    values = problem.forward(problem.initial(), None)[0].values
    linear = [one for one in problem.network.operators if isinstance(one, Linear)]
    found = [values[one.inputs[0]] for one in linear if one.weight.startswith("lins.")]
    of_both = [sorted(np.round(rows, 12).tolist() for rows in of) for of in (found, expected)]
    assert of_both[0] == of_both[1]


OF_TYPES = [
    {"name": "hetero", "convolution": "gat"}, {"name": "hetero", "relation_reduction": "mean"},
    {"name": "hgt", "heads": 2}, {"name": "rgat", "heads": 2},
    {"name": "sehgnn", "target": "paper"}, {"name": "compgcn"},
]  # fmt: skip


def test_networks_of_types_are_priced(tmp_path):
    write_graph(tmp_path / "g.graph", typed_graph(), source={})
    for model in OF_TYPES:
        config = from_table({"model": {"hidden": [4, 4]} | model})
        setting = Setting(open_graph(tmp_path / "g.graph"), config, Machine(), ranks_per_node=1)
        ranked, _ = rank_schemes(setting, 2, schemes=["p2p", "bcast"])
        assert [one.cost.seconds > 0 for one in ranked] == [True, True], model


def test_what_does_not_fit_is_refused(tmp_path):
    write_graph(path := tmp_path / "g.graph", graph := typed_graph(reverse=True), source={})
    for name, options, message in (
        ("rgcn", {"bases": 2, "blocks": 2}, "exclude each other"),
        ("rgcn", {"blocks": 4}, "4 blocks do not divide weights of 6 × 4"),
        ("sehgnn", {"target": ""}, "model.target is not given, and the graph has 3 types"),
        ("sehgnn", {"target": "papr"}, "'papr'"),
        ("sehgnn", {"target": "paper", "hidden": []}, "a sehgnn has a hidden layer"),
        ("sehgnn", {"target": "paper", "hops": 12}, "more than 1,000 metapaths"),
    ):
        model = config_of(name, **options).model
        refuses(message, network_of, model, 6, 2, relations=graph.schema)
    for target, options, message in (
        ("paper", {"graph_direction": "out"}, "follows relations from source to target"),
        ("author", {}, "no author with a label to train on\n  hint: those that do: paper"),
    ):
        given = {"model_name": "sehgnn", "model_target": target, **options}
        refuses(message, gcnmpi.train, path, **given)
