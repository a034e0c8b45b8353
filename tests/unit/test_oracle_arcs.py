"""The oracle's rows of arcs: values in plain Python, gradients against differences of values."""

from dataclasses import replace

import numpy as np
import pytest
from test_rng import scalar_hash

from gcnmpi.layout.entries import entry_keys
from gcnmpi.layout.place import Space
from gcnmpi.nn.operators import spaces
from gcnmpi.nn.operators.elementwise import Drop
from gcnmpi.nn.operators.relations import MeanOf, ScaleBy
from gcnmpi.nn.operators.spectra import Spectrum, SpectrumProduct
from gcnmpi.nn.operators.triples import RowBy
from gcnmpi.proof.passes import ArcRows, Pass
from gcnmpi.proof.rules import RULES
from partition.graph.graph import Graph

# 0 → 1 twice, 0 → 2, 1 → 2, 2 → 2, 3 → 1; nothing leads to 3, and nothing to or from 4.
SOURCES, TARGETS = [0, 0, 0, 1, 2, 3], [1, 1, 2, 2, 2, 1]
GRAPH = Graph(np.array([0, 3, 4, 5, 6, 6]), np.array(TARGETS, np.int32))
FEATURES = np.arange(12.0).reshape(6, 2)
RELATIONS, OF_ONE = [1, 1, 0, 1, 0, 1], np.array([False, True, True, False, True])
N, M, WIDTH = 5, len(SOURCES), 4


def rows_of(direction="in", self_loops=False):
    found = ArcRows.of(GRAPH, direction, self_loops, FEATURES, RELATIONS)
    return replace(found, types=OF_ONE.astype(int))


def a_pass(arcs=None, epoch=2, keys=None):
    return Pass(None, arcs or rows_of(), 7, epoch, {}, True, keys)


def test_rows_are_in_the_order_of_the_ends():
    found = rows_of()
    assert found.target.tolist() == [1, 1, 1, 2, 2, 2]
    assert found.source.tolist() == [0, 0, 3, 0, 1, 2]
    assert found.given[:, 0].tolist() == [0, 2, 10, 4, 6, 8]
    numbers = np.array([0, 1, 0, 0, 0, 0])
    assert np.array_equal(found.keys, entry_keys(found.target, found.source, numbers))
    assert len(set(found.keys.tolist())) == M
    found = rows_of("out")
    assert found.target.tolist() == [0, 0, 0, 1, 2, 3]
    assert found.source.tolist() == [1, 1, 2, 2, 2, 1]
    # A vertex may have one self-loop only.
    graph = replace(GRAPH, indices=np.array([0, 0, 2, 1, 2, 3], np.int32))  # 0 → 0 twice
    for self_loops, count in ((False, 5), (True, 6)):
        found = ArcRows.of(graph, "in", self_loops, FEATURES, RELATIONS, one_loop=True)
        assert found.target.tolist() == [0, 1, 2, 2, 3, 4][:count]
        assert found.source.tolist() == [0, 1, 0, 2, 3, 4][:count]
        assert found.given[:, 0].tolist() == [0, 6, 4, 8, 10, 0][:count]


@pytest.mark.parametrize("loops", ["zero", "mean"])
def test_features_of_self_loops(loops):
    found = rows_of(self_loops=True)
    ends = list(zip(found.target.tolist(), found.source.tolist(), strict=True))
    assert [a for a, b in ends if a == b] == [0, 1, 2, 3, 4]
    features = dict(zip(ends, found.features(loops)[:, 0].tolist(), strict=True))
    # The mean of the arcs into 1, and into 2 without its own loop.
    expected = {"zero": [0, 0, 8, 0, 0], "mean": [0, 4, 5, 0, 0]}
    assert [features[i, i] for i in range(N)] == expected[loops]
    assert features[1, 3] == 10


def transformed(x):
    """The first half of Σ x[n]·exp(−2πikn/width), real and imaginary parts in turn."""
    turns = -2 * np.pi * np.outer(np.arange(WIDTH), np.arange(3)) / WIDTH
    return np.stack((x @ np.cos(turns), x @ np.sin(turns)), axis=2).reshape(len(x), 6)


def whole(x, columns):
    """The real rows of which x is the first half of a transform."""
    half = x[:, ::2] + 1j * x[:, 1::2]
    half[:, 0] = half[:, 0].real
    rest = half[:, 1 : columns - 2].conj()[:, ::-1]
    turns = 2j * np.pi * np.outer(np.arange(columns), np.arange(columns)) / columns
    return (np.hstack((half, rest)) @ np.exp(turns)).real / columns


def spectra(x, y):
    """The products of the complex numbers of y with the conjugates of those of x."""
    (a, b), (c, d) = ((z[:, ::2], z[:, 1::2]) for z in (x, y))
    return np.stack((a * c + b * d, a * d - b * c), axis=2).reshape(x.shape)


# The operator, what it reads, and its formula, of parameters and of what it reads: those that the
# networks of test_residences.py do not have.
CASES = {
    "pick": (spaces.Pick((0,), WIDTH, 1, 1), ["n"], lambda w, x: x[OF_ONE]),
    "spread": (spaces.Spread((0,), WIDTH, 1, 1), ["k"],
               lambda w, x: np.array([0 * x[0], x[0], x[1], 0 * x[0], x[2]])),
    # By relation 1 vertex 0 twice and 3 lead to 1, and 1 to 2; by 0, vertices 0 and 2 to 2.
    "mean of": (MeanOf((0,), WIDTH, 1, (1,), 2), ["n"],
                lambda w, x: np.array([0 * x[0], (2 * x[0] + x[3]) / 3, x[1], 0 * x[0], 0 * x[0]])),
    "mean of a type": (MeanOf((0,), WIDTH, 1, (0, 1), 2, Space.OF_TYPE, 1), ["n"],
                       lambda w, x: np.array(
                           [(2 * x[0] + x[3]) / 3, x[1] + (x[0] + x[2]) / 2, 0 * x[0]])),
    "spectrum": (Spectrum((0,), 6, 1, WIDTH), ["n"], lambda w, x: transformed(x)),
    "rows of spectrum": (Spectrum((0,), WIDTH, 1, WIDTH, True), ["m of 6"],
                         lambda w, x: whole(x, 4)),
    "rows of odd spectrum": (Spectrum((0,), 5, 1, 5, True), ["m of 6"], lambda w, x: whole(x, 5)),
    "product of spectra": (SpectrumProduct((0, 1), WIDTH, 1), ["m", "m"],
                           lambda w, x, y: spectra(x, y)),
    "spectra by kind": (RowBy((0,), 6, 1, 2, "table", ("map",), WIDTH), ["kinds"],
                        lambda w, kinds: transformed(w["table"] @ w["map"])[RELATIONS]),
    "row by kind": (RowBy((0,), WIDTH, 1, 2, "table", ("map", "square")), ["kinds"],
                    lambda w, kinds: (w["table"] @ w["map"] @ w["square"])[RELATIONS]),
    "scale by kind": (ScaleBy((0, 1), WIDTH, 1, (0.5, -2.0)), ["kinds", "m"],
                      lambda w, kinds, x: np.array([[0.5], [-2]])[RELATIONS] * x),
}  # fmt: skip


def made(name):
    """The operator, inputs and parameters of a case."""
    (operator, shapes, _), random = CASES[name], np.random.default_rng(5)
    of = {"n": (N, WIDTH), "k": (3, WIDTH), "m": (M, WIDTH), "m of 6": (M, 6)}
    kinds = np.array(RELATIONS)[:, np.newaxis] + 0.5  # whole numbers, and away from the next ones
    x = [kinds if shape == "kinds" else random.standard_normal(of[shape]) for shape in shapes]
    sizes = {"table": (2, 3), "map": (3, WIDTH), "square": (WIDTH, WIDTH)}
    return operator, x, {key: random.standard_normal(size) for key, size in sizes.items()}


@pytest.mark.parametrize("name", CASES)
def test_the_value_is_that_of_the_formula_and_the_gradient_its_slope(name):
    (operator, x, weights), run = made(name), a_pass()
    rule, random, h = RULES[type(operator)], np.random.default_rng(6), 1e-6
    result, backward = rule(operator, x, weights, run)
    np.testing.assert_allclose(result, CASES[name][2](weights, *x), rtol=1e-12, atol=1e-12)
    g = random.standard_normal(result.shape)
    shares, of_parameters = backward(g)
    assert len(shares) == len(x)
    arrays = [*zip(x, shares, strict=True)]
    for array, share in arrays + [(weights[key], share) for key, share in of_parameters.items()]:
        assert share.shape == array.shape
        for _ in range(5):
            step, before, ends = random.standard_normal(array.shape), array.copy(), []
            for way in (h, -h):
                array[...] = before + way * step
                ends.append(np.sum(g * rule(operator, x, weights, run)[0]))
            array[...] = before
            slope = (ends[0] - ends[1]) / (2 * h)
            assert slope == pytest.approx(np.sum(share * step), rel=1e-5, abs=1e-6)


def test_of_equals_the_first_has_the_gradient_and_small_deviations_have_none():
    _, backward = spaces_rule(("max", "min"), np.ones((M, 1)))
    (dx,), _ = backward(np.array([[5, 50], [1, 10], [2, 20], [3, 30], [4, 40.0]]))
    assert dx[:, 0].tolist() == [11, 0, 0, 22, 0, 0]
    y, backward = spaces_rule(("std",), np.array([1, 1.004, 1, 1, 1.02, 1])[:, np.newaxis])
    assert y[1, 0] == 0 < y[2, 0]
    (dx,), _ = backward(np.ones((N, 1)))
    assert dx[:3].tolist() == [[0], [0], [0]]
    assert dx[4] > 0


def spaces_rule(kinds, x):
    return RULES[spaces.Reduce](spaces.Reduce((0,), len(kinds), 1, kinds), [x], {}, a_pass())


def test_arcs_are_dropped_by_a_hash_of_their_ends():
    run, p = a_pass(keys=rows_of().keys), 0.4
    y, _ = RULES[Drop](Drop((0,), 3, 1, p, 9), [np.ones((M, 3))], {}, run)
    for e, c in np.ndindex(y.shape):
        kept = scalar_hash(7, 2, 9, int(rows_of().keys[e]), c) >= p * 2**32
        assert y[e, c] == pytest.approx(kept / (1 - p))
