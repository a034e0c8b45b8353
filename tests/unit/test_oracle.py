"""The oracle against numbers worked out by hand, finite differences and plain Python.

And the random numbers that it is asked for: known answers, and a scalar reference.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from stored_graphs import graph_of, small_graph

from gcnmpi.core import rng
from gcnmpi.layout.entries import entry_keys
from gcnmpi.layout.place import Space
from gcnmpi.nn.operators import spaces
from gcnmpi.nn.operators.elementwise import Drop
from gcnmpi.nn.operators.relations import MeanOf, ScaleBy
from gcnmpi.nn.operators.triples import RowBy
from gcnmpi.nn.state import to_state
from gcnmpi.options.config import from_table, load_config
from gcnmpi.proof import oracle, rules, verify
from gcnmpi.proof.passes import ArcRows, Pass
from partition.graph.aggregation import aggregation_matrix
from partition.graph.graph import Graph

M32, M64 = 2**32 - 1, 2**64 - 1


def splitmix(x):
    """SplitMix64 (Steele, Lea and Flood 2014), one step from state x."""
    x = (x + 0x9E3779B97F4A7C15) & M64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M64
    return x ^ (x >> 31)


def scalar_hash(seed, epoch, layer, vertex, column):
    """The dropout hash of one entry, in Python's integers."""
    base = splitmix(splitmix(splitmix(seed) ^ epoch) ^ layer)
    row = splitmix((vertex * 0x9E3779B97F4A7C15 + base) & M64)
    x = (row & M32) ^ (splitmix(column) >> 32)
    x ^= x >> 16
    x = (x * rng.MIX1 + (row >> 32)) & M32
    x ^= x >> 15
    x = (x * rng.MIX2) & M32
    return x ^ (x >> 16)


def hashes(seed, epoch, layer, vertices, columns):
    rows, keys = rng.row_keys(seed, epoch, layer, vertices), rng.column_keys(columns)
    out = np.empty((len(rows), len(keys)), np.uint32)
    rng.hash_block(rows, keys, out, np.empty_like(out))
    return out


def test_splitmix_has_the_published_values():
    # Of the generator with state 0.
    columns = np.array([0, 0x9E3779B97F4A7C15], np.uint64)
    assert [*map(splitmix, columns.tolist())] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
    assert rng.column_keys(columns).tolist() == [0xE220A839, 0x6E789E6A]


def test_every_hash_is_that_of_the_scalar_reference():
    for seed, epoch, layer in ((0, 1, 0), (1, 1, 0), (7, 200, 2), (2**63 - 1, 10**6, 30)):
        vertices, columns = [0, 1, 1000, 2**31 - 1, 2**31, 2**40], [0, 1, 5, 63, 1432, 2**20]
        found = hashes(seed, epoch, layer, np.array(vertices), np.array(columns)).tolist()
        hashed = partial(scalar_hash, seed, epoch, layer)
        assert found == [[hashed(v, c) for c in columns] for v in vertices]


def test_hashes_never_change():
    """Known answers: a run of an older version must be repeatable, and a GPU must agree."""
    found = hashes(42, 3, 1, np.array([0, 1, 99]), np.array([0, 1])).tolist()
    assert found == [[3430199384, 3030134421], [386332588, 3240458253], [4016149809, 2463433816]]


def test_the_threshold_at_its_ends():
    assert rng.threshold(0.0) == 0  # nothing is below it: nothing is dropped
    assert rng.threshold(0.25) == 2**30
    assert rng.threshold(1 - 2**-40) == 2**32 - 1  # no overflow to 0
    assert rng.threshold(2**-32) == 1
    assert all(rng.threshold(p).dtype == np.uint32 for p in (0.0, 0.1, 0.999))


def test_glorot_depends_on_seed_and_layer_only():
    weights, bound = rng.glorot(0, 1, 300, 50), np.sqrt(6 / 350)
    assert 0.99 * bound < np.abs(weights).max() <= bound
    for seed, layer in ((1, 1), (0, 2)):
        assert (rng.glorot(seed, layer, 300, 50) != weights).all()
    # Known answers, NumPy's Philox: the same for all versions of this program.
    np.testing.assert_allclose(
        rng.glorot(0, 1, 2, 2).ravel(),
        [0.7675575582283878, 0.6156337478419487, 0.42045257189433904, -0.041337637944671046],
        rtol=1e-15,
    )


# Values and gradients.


def config(**tables):
    tables.setdefault("graph", {"normalize": "none"})
    return from_table({"dtype": "float64", **tables})


def arcs(features, *pairs, labels=(0, 1, 1)):
    dense, features = np.zeros((len(features),) * 2, bool), np.array(features, np.float32)
    for source, target in pairs:
        dense[source, target] = True
    return graph_of(dense, features=features, labels=np.array(labels[: len(features)], np.int32))


def test_loss_and_gradient_of_one_layer_by_hand():
    # With self-loops and no normalisation, M = [[1, 0], [1, 1]] for "in".
    pair, one = arcs([[1, 0], [0, 2]], (0, 1)), config(model={"hidden": []})
    weights = {"convs.0.lin.weight": np.eye(2), "convs.0.bias": np.zeros(2)}
    problem = oracle.Problem(pair, "in", one)
    # T = M·H = [[1, 0], [1, 2]] = Z; each row has its label's logit 1 above the other.
    loss, gradient, _ = problem.gradient(weights, 1)
    assert loss == pytest.approx(math.log(1 + math.exp(-1)))
    p = 1 / (1 + math.e)  # probability of the wrong class; G = [[-p, p], [p, -p]] / 2
    assert np.allclose(gradient["convs.0.lin.weight"], [[0, 0], [p, -p]])
    assert np.allclose(gradient["convs.0.bias"], [0, 0])
    assert np.allclose(problem.logits(weights), [[1, 0], [1, 2]])
    weights["convs.0.bias"] = np.array([0.0, 10.0])
    assert np.allclose(oracle.Problem(pair, "out", one).logits(weights), [[1, 12], [0, 12]])


# Every operator, with everything that passes a gradient on in some other way.
STACKED = [
    {"dropout": 0.5, "input_dropout": 0.3},
    {"norm": "layer", "activation": "elu", "residual": "linear"},
    {"hidden": [4, 4], "norm": "batch", "activation": "gelu", "residual": "identity"},
    {"hidden": [4, 4], "norm": "l2", "activation": "leaky_relu", "jk": "sum"},
    {"hidden": [4, 3], "activation": "prelu", "jk": "cat", "dropout": 0.2},
    {"hidden": [4, 4], "activation": "none", "jk": "max", "linear_before": True},
    {"name": "sage", "aggregation": "max", "root_weight": False, "dropout": 0.3},
    {"name": "gat", "heads": 2, "out_heads": 3, "train_features": True},
    {"name": "gatv2", "heads": 4, "negative_slope": 0.1, "attention_dropout": 0.5},
    {"name": "gcnii", "layers": 3, "dropout": 0.3},
    {"name": "sign", "hops": 2, "norm": "layer", "dropout": 0.5},
]


@pytest.mark.parametrize("model", STACKED, ids=str)
def test_the_gradient_is_the_slope_of_the_loss(model):
    given, direction = config(model={"hidden": [4]} | model), "in" if "name" in model else "out"
    problem = oracle.Problem(small_graph("directed"), direction, given)
    random, h = np.random.default_rng(3), 1e-6
    # Biases that are not 0: isolated vertices would sit on the kink of ReLU.
    weights = {n: a + 0.1 * random.standard_normal(a.shape) for n, a in problem.initial().items()}
    if model.get("train_features"):
        weights[oracle.FEATURES] = problem.features.astype(float)
    _, gradient, moments = problem.gradient(weights, 2)
    assert gradient.keys() | moments.keys() == weights.keys()
    assert not gradient.keys() & moments.keys()
    for name, share in gradient.items():
        for _ in range(3):
            step = random.standard_normal(share.shape)
            moved = ({name: weights[name] + way * step} for way in (h, -h))
            ahead, behind = (problem.gradient(weights | one, 2)[0] for one in moved)
            slope = (ahead - behind) / (2 * h)
            assert slope == pytest.approx(np.sum(share * step), rel=1e-5, abs=1e-8), name


def test_dropout_decides_by_the_hash_and_only_in_training():
    run, shape = Pass(None, None, seed=0, epoch=7, moments={}), (14, 5)
    numbers = [np.arange(n) for n in shape]
    factors = rules.keeps(run, 3, 0.4, *numbers)
    for i, j in np.ndindex(shape):
        kept = scalar_hash(seed=0, epoch=7, layer=3, vertex=i, column=j) >= round(0.4 * 2**32)
        assert factors[i, j] == (1 / 0.6 if kept else 0.0)
    assert rules.keeps(Pass(None, None, 0, None, {}), 3, 0.4, *numbers) == 1.0


def test_arrays_are_as_far_apart_as_their_largest_numbers_say():
    assert verify._distance([2e6, 1.0], [1e6, 1.0]) == verify._distance([2e-6], [1e-6]) == 1
    assert verify._distance([0.5], [0.0]) == verify._distance([2.0], [1.0], 2.0) == 0.5
    assert verify._distance([1.0], [1.0, 1.0]) == math.inf


# Networks by the formulas of their papers; tests/foreign has outputs of other ones.


def appnp(m, x, w):
    """Klicpera et al. 2019, equation 4, of an MLP of two layers."""
    z = np.maximum(x @ w["lins.0.weight"].T + w["lins.0.bias"], 0)
    z = first = z @ w["lins.1.weight"].T + w["lins.1.bias"]
    for _ in range(3):
        z = 0.9 * m @ z + 0.1 * first
    return z


def gcnii(m, x, w):
    """Chen et al. 2020, equation 5."""
    x = first = np.maximum(x @ w["lins.0.weight"].T + w["lins.0.bias"], 0)
    for k in (1, 2):
        y, beta = 0.8 * m @ x + 0.2 * first, np.log(0.7 / k + 1)
        x = np.maximum((1 - beta) * y + beta * y @ w[f"convs.{k - 1}.weight1"], 0)
    return x @ w["lins.1.weight"].T + w["lins.1.bias"]


def sgc(m, x, w):
    """Wu et al. 2019, equation 7."""
    return m @ m @ m @ x @ w["convs.0.lin.weight"].T + w["convs.0.lin.bias"]


FORMULAS = {
    appnp: ("model.hidden=6", "model.hops=3", "model.alpha=0.1"),
    gcnii: ("model.hidden=6,6", "model.alpha=0.2", "model.theta=0.7"),
    sgc: ("model.hops=3",),
}


@pytest.mark.parametrize("network", FORMULAS, ids=lambda network: network.__name__)
def test_the_oracle_is_the_formula_of_the_paper(network):
    settings = [f"model.name={network.__name__}", "dtype=float64", *FORMULAS[network]]
    graph, config = small_graph("directed"), load_config(None, settings)
    problem = oracle.Problem(graph, "in", config)
    weights = {name: array + 0.1 for name, array in problem.initial().items()}
    m = aggregation_matrix(graph).toarray()
    expected = network(m, graph.features.astype(float), to_state(problem.network, weights))
    np.testing.assert_allclose(problem.logits(weights), expected, rtol=1e-12, atol=1e-12)


# Rows of arcs.

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
    rule, random, h = rules.RULES[type(operator)], np.random.default_rng(6), 1e-6
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
    def reduced(kinds, x):
        operator = spaces.Reduce((0,), len(kinds), 1, kinds)
        return rules.RULES[spaces.Reduce](operator, [x], {}, a_pass())

    _, backward = reduced(("max", "min"), np.ones((M, 1)))
    (dx,), _ = backward(np.array([[5, 50], [1, 10], [2, 20], [3, 30], [4, 40.0]]))
    assert dx[:, 0].tolist() == [11, 0, 0, 22, 0, 0]
    y, backward = reduced(("std",), np.array([1, 1.004, 1, 1, 1.02, 1])[:, np.newaxis])
    assert y[1, 0] == 0 < y[2, 0]
    (dx,), _ = backward(np.ones((N, 1)))
    assert dx[:3].tolist() == [[0], [0], [0]]
    assert dx[4] > 0


def test_arcs_are_dropped_by_a_hash_of_their_ends():
    run, p = a_pass(keys=rows_of().keys), 0.4
    y, _ = rules.RULES[Drop](Drop((0,), 3, 1, p, 9), [np.ones((M, 3))], {}, run)
    for e, c in np.ndindex(y.shape):
        kept = scalar_hash(7, 2, 9, int(rows_of().keys[e]), c) >= p * 2**32
        assert y[e, c] == pytest.approx(kept / (1 - p))
