"""The oracle against numbers worked out by hand, finite differences and plain Python."""

import math

import numpy as np
import pytest
from test_rng import scalar_hash

from gcnmpi.nn.operators.neighbours import Attend
from gcnmpi.options.config import from_table
from gcnmpi.proof import checks, oracle, rules
from partition.graph.graph import Graph

# One arc 0 → 1; with self-loops and no normalisation, M = [[1, 0], [1, 1]] for "in".
PAIR = {
    "indptr": np.array([0, 1, 1]),
    "indices": np.array([1], np.int32),
    "features": np.array([[1, 0], [0, 2]], np.float32),
    "labels": np.array([0, 1], np.int32),
}


def config(**tables):
    tables.setdefault("graph", {"normalize": "none"})
    return from_table({"dtype": "float64", **tables})


def random_graph(n=14, width=5, classes=3, seed=0):
    """Directed, weighted, with isolated vertices, unlabelled ones and a training mask."""
    generator = np.random.default_rng(seed)
    dense = generator.random((n, n)) < 0.2
    dense[-2:] = dense[:, -2:] = False
    source, target = np.nonzero(dense)
    labels = generator.integers(-1, classes, n).astype(np.int32)
    labels[:2] = 0, classes - 1
    train = generator.random(n) < 0.7
    train[:2] = True
    return Graph(
        indptr=np.searchsorted(source, np.arange(n + 1)),
        indices=target.astype(np.int32),
        weights=generator.uniform(0.5, 2, len(source)),
        features=generator.standard_normal((n, width)).astype(np.float32),
        labels=labels,
        masks={"train": train},
    )


def test_loss_and_gradient_of_one_layer_by_hand():
    problem = oracle.Problem(Graph(**PAIR), "in", config(model={"hidden": []}))
    weights = {"convs.0.lin.weight": np.eye(2), "convs.0.bias": np.zeros(2)}
    # T = M·H = [[1, 0], [1, 2]] = Z; each row has its label's logit 1 above the other.
    loss, gradient, _ = problem.gradient(weights, 1)
    assert loss == pytest.approx(math.log(1 + math.exp(-1)))
    p = 1 / (1 + math.e)  # probability of the wrong class; G = [[-p, p], [p, -p]] / 2
    assert np.allclose(gradient["convs.0.lin.weight"], [[0, 0], [p, -p]])
    assert np.allclose(gradient["convs.0.bias"], [0, 0])
    assert np.allclose(problem.logits(weights), [[1, 0], [1, 2]])


def test_direction_out_is_the_transpose():
    problem = oracle.Problem(Graph(**PAIR), "out", config(model={"hidden": []}))
    weights = {"convs.0.lin.weight": np.eye(2), "convs.0.bias": np.array([0.0, 10.0])}
    assert np.allclose(problem.logits(weights), [[1, 12], [0, 12]])


# Every operator, with everything that passes a gradient on in some other way.
STACKED = {
    "gcn": {"dropout": 0.5, "input_dropout": 0.3},
    "gcn-out": {"hidden": [4, 3, 6], "bias": False},
    "layer norm, elu, linear": {"norm": "layer", "activation": "elu", "residual": "linear"},
    "batch norm, gelu, identity": {
        "hidden": [4, 4], "norm": "batch", "activation": "gelu", "residual": "identity",
    },
    "l2, leaky, sum": {"hidden": [4, 4], "norm": "l2", "activation": "leaky_relu", "jk": "sum"},
    "prelu, cat": {"hidden": [4, 3], "activation": "prelu", "jk": "cat", "dropout": 0.2},
    "linear around": {
        "hidden": [4, 4], "activation": "none", "jk": "max", "linear_before": True, "dropout": 0.4,
    },
    "sage": {"name": "sage", "normalize_output": True, "linear_after": True},
    "sage-max": {"name": "sage", "aggregation": "max", "root_weight": False, "dropout": 0.3},
    "gin": {"name": "gin", "train_eps": True, "eps": 0.3, "norm": "batch"},
    "gin-fixed": {"name": "gin", "eps": -0.5, "activation": "prelu"},
    "gat": {"name": "gat", "heads": 2, "out_heads": 3, "train_features": True},
    "gat-drop": {"name": "gat", "heads": 2, "concat": False, "attention_dropout": 0.5},
    "gatv2": {"name": "gatv2", "heads": 4, "negative_slope": 0.1, "attention_dropout": 0.5},
    "gcnii": {"name": "gcnii", "layers": 3, "dropout": 0.3},
    "appnp": {"name": "appnp", "hops": 3, "dropout": 0.3},
    "sgc": {"name": "sgc", "input_dropout": 0.3},
    "sign": {"name": "sign", "hops": 2, "norm": "layer", "dropout": 0.5},
    "mlp": {"name": "mlp", "hidden": [4, 4], "residual": "identity"},
}  # fmt: skip


@pytest.mark.parametrize("name", list(STACKED))
def test_every_entry_of_the_gradient_is_the_slope_of_the_loss(name):
    model = dict(STACKED[name])
    if model.get("name") != "sgc":
        model.setdefault("hidden", [4])
    graph = {"normalize": "sym" if "gcn" in name else "row", "self_loops": name != "gcn-out"}
    settings = config(model=model, graph=graph)
    problem = oracle.Problem(random_graph(), "out" if "out" in name else "in", settings)
    generator = np.random.default_rng(3)
    # Biases that are not 0: isolated vertices would sit on the kink of ReLU.
    weights = {
        name: array + 0.1 * generator.standard_normal(array.shape)
        for name, array in problem.initial().items()
    }
    if model.get("train_features"):
        weights[oracle.FEATURES] = problem.features.astype(float)
    _, gradient, moments = problem.gradient(weights, 2)
    assert gradient.keys() | moments.keys() == weights.keys()
    assert not gradient.keys() & moments.keys()
    h = 1e-6
    for key in gradient:
        array = weights[key]
        slopes = np.empty_like(array)
        for place in np.ndindex(array.shape):
            before, losses = array[place], []
            for value in (before + h, before - h):
                array[place] = value
                losses.append(problem.gradient(weights, 2)[0])
            array[place] = before
            slopes[place] = (losses[0] - losses[1]) / (2 * h)
        assert np.allclose(slopes, gradient[key], rtol=1e-7, atol=1e-9), key


def test_running_moments_move_and_evaluations_take_them():
    problem = oracle.Problem(random_graph(), "in", config(model={"norm": "batch", "hidden": [4]}))
    weights = problem.initial()
    name = "norms.0.module.running"
    _, gradient, moments = problem.gradient(weights, 1)
    assert not [key for key in gradient if "running" in key]
    z = problem.matrix @ problem.features @ weights["convs.0.lin.weight"]
    assert np.allclose(moments[f"{name}_mean"], 0.1 * z.mean(axis=0))
    assert np.allclose(moments[f"{name}_var"], 0.9 + 0.1 * z.var(axis=0, ddof=1))
    moved = weights | {f"{name}_mean": np.full(4, 2.0), f"{name}_var": np.full(4, 9.0)}
    hidden = np.maximum((z - 2) / np.sqrt(9 + 1e-5), 0)
    expected = problem.matrix @ hidden @ weights["convs.1.lin.weight"]
    assert np.allclose(problem.logits(moved), expected)


def test_attention_by_hand():
    """One head, three vertices in a row; loops added."""
    graph = Graph(
        indptr=np.array([0, 1, 2, 2]),
        indices=np.array([1, 2], np.int32),
        features=np.array([[1], [2], [-1]], np.float32),
        labels=np.array([0, 1, 1], np.int32),
    )
    model = {"name": "gat", "hidden": [], "bias": False}
    problem = oracle.Problem(graph, "in", from_table({"model": model}))
    weights = {
        "convs.0.lin.weight": np.array([[1.0, 0.0]]),
        "convs.0.att_src": np.array([1.0, 0.0]),
        "convs.0.att_dst": np.array([-2.0, 0.0]),
    }

    def row(target, *sources):
        e = [x - 2 * target for x in sources]
        e = [math.exp(z if z > 0 else 0.2 * z) for z in e]
        return sum(a * x for a, x in zip(e, sources, strict=True)) / sum(e)

    expected = [[row(1, 1), 0], [row(2, 1, 2), 0], [row(-1, 2, -1), 0]]
    assert np.allclose(problem.logits(weights), expected)


def test_the_maximum_takes_the_first_of_equals_and_nothing_of_nobody():
    graph = Graph(
        indptr=np.array([0, 1, 2, 2]),
        indices=np.array([2, 2], np.int32),
        features=np.array([[-1.0], [-1.0], [5.0]], np.float32),
        labels=np.array([0, 1, 1], np.int32),
    )
    model = {"name": "sage", "aggregation": "max", "hidden": [], "root_weight": False}
    settings = from_table({"model": model | {"train_features": True}})
    problem = oracle.Problem(graph, "in", settings)
    weights = problem.initial() | {"convs.0.lin_l.weight": np.array([[1.0, 3.0]])}
    weights["convs.0.lin_l.bias"] = np.zeros(2)
    assert np.allclose(problem.logits(weights), [[0, 0], [0, 0], [-1, -3]])
    features = problem.gradient(weights, 1)[1][oracle.FEATURES]
    assert features[0] != 0
    assert features[1] == features[2] == 0


def test_dropout_decides_by_the_hash_and_only_in_training():
    run = rules.Pass(None, None, seed=0, epoch=7, moments={})
    factors = rules.keeps(run, 3, 0.4, np.arange(14), np.arange(5))
    limit = round(0.4 * 2**32)
    for i, j in np.ndindex(factors.shape):
        kept = scalar_hash(seed=0, epoch=7, layer=3, vertex=i, column=j) >= limit
        assert factors[i, j] == (1 / 0.6 if kept else 0.0)
    assert (
        rules.keeps(rules.Pass(None, None, 0, None, {}), 3, 0.4, np.arange(14), np.arange(5)) == 1.0
    )


def test_attention_is_dropped_by_target_source_and_head():
    p, heads, stream = 0.3, 2, 99
    operator = Attend((0,), 4, 1, heads, 0.2, p, stream, "a", "b")
    problem = oracle.Problem(random_graph(), "in", config(model={"name": "gat"}))
    run = rules.Pass(problem.matrix, problem.arcs, 5, 8, {})
    x = np.ones((14, 2))
    for head in range(heads):
        found = rules.Attention(head, operator, x, np.zeros(problem.matrix.nnz), run)
        for i in range(14):
            columns = problem.matrix.indices[slice(*problem.matrix.indptr[i : i + 2])]
            kept = [
                scalar_hash(5, 8, stream, i, int(j) * heads + head) >= p * 2**32 for j in columns
            ]
            assert found.value[i] == pytest.approx(np.mean(kept) / (1 - p))


def test_adam_by_hand_with_decay_of_the_first_layer_only():
    train = {"lr": 0.1, "weight_decay": 0.5, "weight_decay_layers": "first"}
    update = oracle.UPDATES["adam"](config(train=train).train, {"convs.0.lin.weight"})
    weights = {name: np.array([2.0]) for name in ("convs.0.lin.weight", "convs.1.lin.weight")}
    gradient = {"convs.0.lin.weight": np.array([3.0]), "convs.1.lin.weight": np.array([3.0])}
    weights = update(weights, gradient, 0.1)
    # The first step is lr·g/(|g| + ε) whatever the gradient.
    assert weights["convs.0.lin.weight"] == pytest.approx(1.9)
    assert weights["convs.1.lin.weight"] == pytest.approx(1.9)
    gradient = {name: np.array([-1.0]) for name in gradient}
    weights = update(weights, gradient, 0.1)
    for name, first, second in (
        ("convs.0.lin.weight", 4.0, -1 + 0.95),
        ("convs.1.lin.weight", 3.0, -1.0),
    ):
        m = (0.9 * 0.1 * first + 0.1 * second) / (1 - 0.81)
        v = (0.999 * 0.001 * first**2 + 0.001 * second**2) / (1 - 0.999**2)
        assert weights[name] == pytest.approx(1.9 - 0.1 * m / (math.sqrt(v) + 1e-8))


def test_arrays_are_as_far_apart_as_their_largest_numbers_say():
    assert checks.distance([2e6, 1.0], [1e6, 1.0]) == checks.distance([2e-6], [1e-6]) == 1
    assert checks.distance([0.5], [0.0]) == checks.distance([2.0], [1.0], 2.0) == 0.5
    assert checks.distance([1.0], [1.0, 1.0]) == math.inf
