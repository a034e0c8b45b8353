"""CompGCN by its definition, arc by arc; directions of relations, and files of weights."""

from dataclasses import replace

import numpy as np
import pytest
from typed_graphs import CITES, ENDS, source_of

from gcnmpi.nn.state import to_state
from gcnmpi.options.config import from_table
from gcnmpi.proof.oracle import Problem
from partition.graph.graph import arcs
from partition.graph.relations import Relation, Schema
from partition.importing.typed import build_typed

FEATURES = 5
CITED = [(1, 0), (2, 1), (3, 1)]  # by relation rev_cites
OPTIONS = {
    "sub": {"composition": "sub"},
    "mult": {},
    "corr": {"composition": "corr", "bias": False},
    "bases": {"composition": "corr", "bases": 2},
}


def graph_of():
    """Of three types, four relations, one of which is the reverse of another by its name."""
    graph = build_typed(source_of(ENDS | {CITES.reverse(): CITED}))[0]
    features = np.random.default_rng(1).standard_normal((graph.n, FEATURES)).astype(np.float32)
    return replace(graph, features=features, type_features={})


def config_of(**model):
    table = {"dtype": "float64", "train": {"epochs": 1}}
    return from_table(table | {"model": {"name": "compgcn", "hidden": [4]} | model})


def composed(x, z, composition):
    if composition == "sub":
        return x - z
    if composition == "mult":
        return x * z
    return np.array([x @ np.roll(z, -k) for k in range(len(x))])


def by_arc(graph, x, z, state, name, composition, direction):
    """One layer, by equations 2 and 3 of Vashishth et al. 2020, with means."""
    ends = arcs(graph), np.asarray(graph.indices)
    j, i = ends if direction == "in" else ends[::-1]
    back = np.array([one.name == "rev_cites" for one in graph.relations])[graph.arc_type]
    types = graph.vertex_types.of(np.arange(graph.n))
    y = np.zeros((graph.n, state[f"{name}.w_loop"].shape[1]))
    for v in range(graph.n):
        loop = state[f"{name}.loop_rel"][types[v]]
        y[v] = composed(x[v], loop, composition) @ state[f"{name}.w_loop"]
        for turned, weight in ((False, "w_out"), (True, "w_in")):
            into = np.flatnonzero((i == v) & (back == turned))
            for e in into:
                message = composed(x[j[e]], z[graph.arc_type[e]], composition)
                y[v] += message @ state[f"{name}.{weight}"] / len(into)
    return y + state.get(f"{name}.bias", 0)


@pytest.mark.parametrize("direction", ["in", "out"])
@pytest.mark.parametrize("options", OPTIONS)
def test_the_oracle_is_the_definition(options, direction):
    graph, config = graph_of(), config_of(**OPTIONS[options])
    problem = Problem(graph, direction, config)
    weights = problem.initial()
    state, kind = to_state(problem.network, weights), config.model.composition
    z = state["rel_wt"] @ state["rel_basis"] if options == "bases" else state["init_rel"]
    x = np.asarray(graph.features, float)
    x = np.maximum(by_arc(graph, x, z, state, "convs.0", kind, direction), 0)
    z = z @ state["convs.0.w_rel"]
    expected = by_arc(graph, x, z, state, "convs.1", kind, direction)
    np.testing.assert_allclose(problem.logits(weights), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", OPTIONS)
def test_the_gradient_is_the_slope_of_the_loss(options):
    """Also of what is read in both layers."""
    problem = Problem(graph_of(), "in", config_of(**OPTIONS[options]))
    weights, random, h = problem.initial(), np.random.default_rng(2), 1e-6
    gradient = problem.gradient(weights, 1)[1]
    step = {name: random.standard_normal(array.shape) for name, array in weights.items()}
    ends = [
        problem.gradient({name: weights[name] + s * h * step[name] for name in weights}, 1)[0]
        for s in (1, -1)
    ]
    slope = sum(np.sum(gradient[name] * step[name]) for name in gradient)
    assert (ends[0] - ends[1]) / (2 * h) == pytest.approx(slope, rel=1e-6)


def test_a_reverse_is_one_of_a_relation_that_there_is():
    names = "cites", "rev_cites", "rev_likes", "revives"
    schema = Schema(("a",), tuple(Relation("a", name, "a") for name in names))
    assert schema.turned == (False, True, False, False)
