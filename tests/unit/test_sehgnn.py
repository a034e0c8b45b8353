"""SeHGNN: its metapaths by products of dense matrices, rows of one type, and how it is refused."""

from itertools import product

import numpy as np
import pytest
from refusals import refuses
from typed_graphs import COUNTS, ENDS, source_of, typed_graph

import gcnmpi
from gcnmpi.nn.describe import network_of
from gcnmpi.nn.operators.dense import Linear
from gcnmpi.options.config import from_table
from gcnmpi.proof.oracle import Problem
from partition.graph.graph import arcs
from partition.graph.relations import Relation
from partition.graph.store import write_graph
from partition.graph.typed import inputs_of
from partition.importing.typed import build_typed


def config_of(**model):
    model = {"name": "sehgnn", "hidden": [4], "target": "paper"} | model
    return from_table({"dtype": "float64", "train": {"epochs": 1}, "model": model})


def means_of(graph):
    """The matrix of means by the arcs of each relation, (n, n), dense."""
    found = []
    for number in range(len(graph.relations)):
        some, matrix = graph.arc_type == number, np.zeros((graph.n, graph.n))
        np.add.at(matrix, (np.asarray(graph.indices)[some], arcs(graph)[some]), 1)
        found.append(matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1))
    return found


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


def sorted_rows(found):
    return sorted(np.round(rows, 12).tolist() for rows in found)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("target", COUNTS)
def test_the_branches_are_all_metapaths(target, hops, reverse):
    graph = typed_graph(reverse=reverse)
    expected = by_metapath(graph, hops, target)
    if not expected:
        refuses("no metapath", Problem, graph, "in", config_of(hops=hops, target=target))
        return
    problem = Problem(graph, "in", config_of(hops=hops, target=target))
    values, _, _ = problem.forward(problem.initial(), None)
    branches = [
        values[operator.inputs[0]]
        for operator in problem.network.operators
        if isinstance(operator, Linear) and operator.weight.startswith("lins.")
    ]
    assert sorted_rows(branches) == sorted_rows(expected)


# Into papers, and none.
@pytest.mark.parametrize("ends", [ENDS, {Relation("paper", "by", "author"): [(0, 0), (1, 2)]}])
def test_vertices_of_other_types_have_logits_of_zero(tmp_path, ends):
    path, graph = tmp_path / "g.graph", build_typed(source_of(ends))[0]
    write_graph(path, graph, source={})
    options = {"model_name": "sehgnn", "model_target": "paper", "train_epochs": 2}
    logits = gcnmpi.infer(path, gcnmpi.train(path, out=tmp_path / "run", **options))
    papers = graph.vertex_types.range("paper")
    assert np.all(logits[papers.start : papers.stop].any(axis=1))
    assert not logits[papers.stop :].any()


def test_what_does_not_fit_is_refused(tmp_path):
    graph, path = typed_graph(reverse=True), tmp_path / "g.graph"
    write_graph(path, graph, source={})
    for options, message in (
        ({"target": ""}, "model.target is not given, and the graph has 3 types"),
        ({"target": "papr"}, "'papr'"),
        ({"hidden": []}, "a sehgnn has a hidden layer"),
        ({"hops": 12}, "more than 1,000 metapaths"),
    ):
        refuses(message, network_of, config_of(**options).model, 5, 2, relations=graph.schema)
    for target, options, message in (
        ("paper", {"graph_direction": "out"}, "follows relations from source to target"),
        ("author", {}, "no author with a label to train on\n  hint: those that do: paper"),
    ):
        given = {"model_name": "sehgnn", "model_target": target, **options}
        refuses(message, gcnmpi.train, path, **given)
