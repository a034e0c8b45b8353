"""R-GCN by its definition, relation by relation; its files of weights, and how it is refused."""

from dataclasses import replace

import numpy as np
import pytest
from refusals import refuses
from typed_graphs import typed_graph

import gcnmpi
from gcnmpi.nn.describe import network_of
from gcnmpi.nn.initial import initial
from gcnmpi.nn.state import to_state
from gcnmpi.options.config import from_table
from gcnmpi.proof.oracle import Problem
from gcnmpi.run.weights import read_weights
from partition.graph.graph import arcs
from partition.graph.store import write_graph

FEATURES = 6
OPTIONS = {
    "own": {},
    "bases": {"bases": 2},
    "blocks": {"blocks": 2},
    "rootless": {"root_weight": False, "bias": False},
}


def graph_of():
    """Of three types, two of whose relations join the same vertices, with features of all."""
    graph, random = typed_graph(), np.random.default_rng(1)
    features = random.standard_normal((graph.n, FEATURES)).astype(np.float32)
    return replace(graph, features=features, type_features={})


def config_of(**model):
    table = {"dtype": "float64", "train": {"epochs": 1}}
    return from_table(table | {"model": {"name": "rgcn", "hidden": [4]} | model})


def by_relation(graph, x, state, name, direction="in"):
    """One layer, by equation 2 of Schlichtkrull et al. 2018."""
    source, target = arcs(graph), np.asarray(graph.indices)
    i, j = (target, source) if direction == "in" else (source, target)
    weight = state[f"{name}.weight"].astype(float)
    if f"{name}.comp" in state:
        weight = np.einsum("rb,bio->rio", state[f"{name}.comp"], weight)
    elif weight.ndim == 4:
        whole = np.zeros((len(weight), x.shape[1], weight.shape[1] * weight.shape[3]))
        for b in range(weight.shape[1]):
            rows, columns = (slice(b * n, (b + 1) * n) for n in (weight.shape[2], weight.shape[3]))
            whole[:, rows, columns] = weight[:, b]
        weight = whole
    y = np.zeros((graph.n, weight.shape[2]))
    for number in range(len(graph.relations)):
        for vertex in range(graph.n):
            near = j[(i == vertex) & (graph.arc_type == number)]
            if len(near):
                y[vertex] += x[near].mean(axis=0) @ weight[number]
    if f"{name}.root" in state:
        y += x @ state[f"{name}.root"]
    return y + state.get(f"{name}.bias", 0)


@pytest.mark.parametrize("direction", ["in", "out"])
@pytest.mark.parametrize("options", OPTIONS)
def test_the_oracle_is_the_definition(options, direction):
    graph, config = graph_of(), config_of(**OPTIONS[options])
    problem = Problem(graph, direction, config)
    weights = problem.initial()
    state = to_state(problem.network, weights)
    x = np.asarray(graph.features, float)
    x = np.maximum(by_relation(graph, x, state, "convs.0", direction), 0)
    expected = by_relation(graph, x, state, "convs.1", direction)
    np.testing.assert_allclose(problem.logits(weights), expected, rtol=1e-12, atol=1e-12)


SHAPES = {
    "own": {"weight": (3, 6, 4), "root": (6, 4), "bias": (4,)},
    "bases": {"weight": (2, 6, 4), "comp": (3, 2), "root": (6, 4), "bias": (4,)},
    "blocks": {"weight": (3, 2, 3, 2), "root": (6, 4), "bias": (4,)},
    "rootless": {"weight": (3, 6, 4)},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_files_of_weights_have_the_arrays_of_pytorch_geometric(name, tmp_path):
    """Whose relations are those of the graph."""
    config = config_of(**OPTIONS[name])
    network = network_of(config.model, 6, 2, relations=3)
    arrays = {key: initial(p, 3) for key, p in network.parameters.items()}
    state = to_state(network, arrays)
    first = {key[8:]: array.shape for key, array in state.items() if key.startswith("convs.0")}
    assert first == SHAPES[name]
    np.savez(tmp_path / "w.npz", **state)
    given = {"model.name", *(f"model.{key}" for key in OPTIONS[name])}
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
    for name, changes in {
        "g": {}, "other": {"relations": turned, "arc_type": numbers[order]},
        "wide": {"type_features": widths},
    }.items():  # fmt: skip
        write_graph(tmp_path / f"{name}.graph", replace(graph, **changes), source={})
    options = {"model_name": "rgcn", "model_hidden": [4], "train_epochs": 2}
    weights = gcnmpi.train(tmp_path / "g.graph", out=tmp_path / "run", **options)
    for name, says in (
        ("other", "other relations than the weights are of"),
        ("wide", r"the weights take \{'paper': 2, 'author': 3\}"),
    ):
        refuses(says, gcnmpi.infer, tmp_path / f"{name}.graph", weights)


def test_options_that_do_not_fit_are_refused():
    for options, message in (
        ({"bases": 2, "blocks": 2}, "exclude each other"),
        ({"blocks": 4}, "4 blocks do not divide weights of 6 × 4"),
        ({"blocks": 3, "hidden": [4]}, "3 blocks do not divide weights of 6 × 4"),
    ):
        refuses(message, network_of, config_of(**options).model, 6, 2, relations=3)
