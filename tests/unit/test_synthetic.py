"""Generators: determinism, and the properties they are made for."""

import inspect

import numpy as np
import pytest
from refusals import refuses

from partition.graph.content import content_id
from partition.graph.graph import arcs, symmetry
from partition.importing.bter import bter, power_law, profile_of, resized
from partition.importing.synthetic import rmat, sbm


def test_sbm_has_the_properties_asked_for():
    graph = sbm(6000, 5, degree=12, intra=0.7, features=9, seed=3, train=0.2, val=0.3)
    assert symmetry(graph) == (True, True)
    source, target = arcs(graph), graph.indices
    assert (source != target).all()
    assert graph.nnz / graph.n == pytest.approx(12, rel=0.01)
    assert (graph.labels[source] == graph.labels[target]).mean() == pytest.approx(0.7, abs=0.01)
    assert np.bincount(graph.labels).tolist() == [1200] * 5
    assert (graph.features.shape, graph.features.dtype) == ((6000, 9), np.float32)
    masks = [graph.masks[name] for name in ("train", "val", "test")]
    assert [int(mask.sum()) for mask in masks] == [1200, 1800, 3000]
    assert (np.sum(masks, axis=0) == 1).all()
    # Each class has its neighbours in every other class, not only in the next.
    pairs = np.zeros((5, 5))
    np.add.at(pairs, (graph.labels[source], graph.labels[target]), 1)
    off = pairs[~np.eye(5, dtype=bool)]
    assert off.min() > 0.8 * off.mean()


def test_generators_are_functions_of_their_seed():
    for make in (
        lambda seed: sbm(500, 3, seed=seed),
        lambda seed: rmat(9, 3000, seed=seed, features=4, classes=3),
        lambda seed: bter(power_law(400), seed=seed, features=4, classes=3),
    ):
        first, again, other = make(1), make(1), make(2)
        assert content_id(first) == content_id(again) != content_id(other)
        assert (first.features == again.features).all()
        assert (first.labels == again.labels).all()
        assert (first.features != other.features).any()


def test_rmat_follows_its_probabilities():
    graph = rmat(12, 100_000, a=0.5, b=0.25, c=0.15, shuffle=False, seed=2)
    upper, left = arcs(graph) < 2048, graph.indices < 2048
    # Merged copies and dropped loops shift the shares a little.
    for quadrant, share in ((upper & left, 0.5), (upper & ~left, 0.25), (~upper & left, 0.15)):
        assert quadrant.mean() == pytest.approx(share, abs=0.05)
    assert rmat(4, 500, a=0, b=1, c=0, shuffle=False).indices.tolist() == [15]
    shuffled = np.diff(rmat(14, 200_000).indptr)
    assert shuffled.max() > 30 * shuffled.mean()
    assert shuffled[: 1 << 13].sum() / shuffled.sum() == pytest.approx(0.5, abs=0.1)
    assert [symmetry(rmat(9, 3000, undirected=both))[0] for both in (False, True)] == [False, True]


NAN = float("nan")
BAD = [
    (sbm, (9, 2), {"degree": [-1, NAN], "intra": [1.5, -0.1], "noise": [-1], "features": [0]}),
    (sbm, (9, 2), {"seed": [-1], "n": [10**12, 0], "train": [1.1, -0.1], "val": [1.0, -0.1]}),
    (sbm, (9,), {"classes": [0, 10, 10**12, [[1, 2]], [1, -1], [1, 1e-9]]}),
    (rmat, (3, 5), {"scale": [-1, 40], "arcs": [-5, 10**13], "a": [1.1, -0.1], "features": [0]}),
    (rmat, (3, 5), {"classes": [-1], "seed": [2**64]}),
    (power_law, (9,), {"n": [-1], "exponent": [-1], "min_degree": [9], "max_degree": [9, 0]}),
    (power_law, (9,), {"clustering": [1.1], "decay": [-1]}),
    (resized, (power_law(9),), {"factor": [0, 1e12], "vertices": [-1]}),
    (resized, (power_law(0, min_degree=0),), {"vertices": [5]}),
    (bter, (power_law(9),), {"features": [0], "classes": [0], "seed": [-1]}),
    (bter, (), {"profile": [resized(power_law(9), factor=5)]}),
]


def test_arguments_out_of_range():
    for make, usual, wrong in BAD:
        names = [*inspect.signature(make).parameters]
        for name, values in wrong.items():
            for value in values:
                given = dict(zip(names, usual, strict=False)) | {name: value}
                refuses(".", make, **given)


def clustering(graph):
    """The clustering coefficient of each vertex of a simple undirected graph, 0 below degree 2."""
    matrix = graph.adjacency()
    degree = matrix.sum(axis=1)
    triangles = (matrix @ matrix).multiply(matrix).sum(axis=1)
    return degree, triangles / np.maximum(degree * (degree - 1), 1)


def by_degree(graph, ranges):
    degree, found = clustering(graph)
    return [found[(degree >= low) & (degree < high)].mean() for low, high in ranges]


RANGES = ((2, 3), (3, 5), (5, 8), (8, 12), (12, 20))


def test_bter_has_the_degrees_and_the_clustering_of_a_power_law():
    profile = power_law(3000, exponent=2.0, clustering=0.6, decay=0.05)
    graph = bter(profile, seed=1)
    assert symmetry(graph) == (True, True)
    assert (arcs(graph) != graph.indices).all()
    degree = np.sort(np.diff(graph.indptr))
    assert (degree == profile.degrees).mean() > 0.99
    assert graph.nnz > 0.998 * profile.degrees.sum()
    # A power law: as many vertices of degree 2 as of degree 4, times 2 to the exponent.
    assert (degree == 2).sum() == pytest.approx(4 * (degree == 4).sum(), rel=0.05)
    for (low, high), found in zip(RANGES, by_degree(graph, RANGES), strict=True):
        of_degree = profile.degrees[(profile.degrees >= low) & (profile.degrees < high)]
        assert found == pytest.approx(profile.clustering[of_degree].mean(), abs=0.06)
    # Numbered at random: neighbours are no nearer than others.
    assert np.abs(arcs(graph) - graph.indices).mean() == pytest.approx(1000, rel=0.1)
    ordered = bter(profile, seed=1, shuffle=False)
    assert np.abs(arcs(ordered) - ordered.indices).mean() < 700


def test_bter_like_a_graph_and_denser_ones():
    first = bter(power_law(2000, exponent=1.8, clustering=0.4), seed=2)
    profile = profile_of(first)
    again = bter(profile, seed=3)
    assert content_id(first) != content_id(again)
    assert (np.sort(np.diff(again.indptr)) == profile.degrees).mean() > 0.99
    assert by_degree(again, RANGES) == pytest.approx(by_degree(first, RANGES), abs=0.05)
    half = resized(profile, vertices=1000)
    assert half.degrees.mean() == pytest.approx(profile.degrees.mean(), rel=0.02)
    dense = resized(profile, factor=4)
    assert dense.clustering[4 * 5] == profile.clustering[5]
    graph = bter(dense, features=3, classes=5)
    assert graph.nnz == pytest.approx(4 * first.nnz, rel=0.03)
    assert (graph.features.shape, graph.classes, graph.masks) == ((2000, 3), 5, {})
