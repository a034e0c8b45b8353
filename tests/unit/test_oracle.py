"""The oracle against numbers worked out by hand, finite differences and plain Python."""

import math

import numpy as np
import pytest
from stored_graphs import graph_of, small_graph
from test_rng import scalar_hash

from gcnmpi.nn.state import to_state
from gcnmpi.options.config import from_table, load_config
from gcnmpi.proof import checks, oracle, rules
from partition.graph.aggregation import aggregation_matrix


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
            step, losses = random.standard_normal(share.shape), []
            for way in (h, -h):
                losses.append(problem.gradient(weights | {name: weights[name] + way * step}, 2)[0])
            slope = (losses[0] - losses[1]) / (2 * h)
            assert slope == pytest.approx(np.sum(share * step), rel=1e-5, abs=1e-8), name


def test_dropout_decides_by_the_hash_and_only_in_training():
    run, shape = rules.Pass(None, None, seed=0, epoch=7, moments={}), (14, 5)
    numbers = [np.arange(n) for n in shape]
    factors = rules.keeps(run, 3, 0.4, *numbers)
    for i, j in np.ndindex(shape):
        kept = scalar_hash(seed=0, epoch=7, layer=3, vertex=i, column=j) >= round(0.4 * 2**32)
        assert factors[i, j] == (1 / 0.6 if kept else 0.0)
    assert rules.keeps(rules.Pass(None, None, 0, None, {}), 3, 0.4, *numbers) == 1.0


def test_arrays_are_as_far_apart_as_their_largest_numbers_say():
    assert checks.distance([2e6, 1.0], [1e6, 1.0]) == checks.distance([2e-6], [1e-6]) == 1
    assert checks.distance([0.5], [0.0]) == checks.distance([2.0], [1.0], 2.0) == 0.5
    assert checks.distance([1.0], [1.0, 1.0]) == math.inf


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
