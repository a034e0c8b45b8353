"""The serial oracle against numbers worked out by hand, finite differences and plain Python."""

import ast
import inspect
import math

import numpy as np
import pytest

from gcnmpi.core import rng
from gcnmpi.core.config import from_table
from gcnmpi.proof import oracle
from partition.graph.graph import Graph

MASK64 = 2**64 - 1
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
    network = oracle.Network(Graph(**PAIR), "in", config(model={"hidden": []}))
    weights = {"1.weight": np.eye(2), "1.bias": np.zeros(2)}
    # T = M·H = [[1, 0], [1, 2]] = Z; each row has its label's logit 1 above the other.
    loss, gradient = network.gradient(weights, 1)
    assert loss == pytest.approx(math.log(1 + math.exp(-1)))
    p = 1 / (1 + math.e)  # probability of the wrong class; G = [[-p, p], [p, -p]] / 2
    assert np.allclose(gradient["1.weight"], [[0, 0], [p, -p]])
    assert np.allclose(gradient["1.bias"], [0, 0])
    assert np.allclose(network.logits(weights), [[1, 0], [1, 2]])


def test_direction_out_is_the_transpose():
    network = oracle.Network(Graph(**PAIR), "out", config(model={"hidden": []}))
    weights = {"1.weight": np.eye(2), "1.bias": np.array([0.0, 10.0])}
    assert np.allclose(network.logits(weights), [[1, 12], [0, 12]])


def test_two_layers_with_a_dead_unit_by_hand():
    graph = Graph(
        indptr=np.array([0, 0]),
        indices=np.empty(0, np.int32),
        features=np.array([[2]], np.float32),
        labels=np.array([1], np.int32),
    )
    network = oracle.Network(graph, "in", config(model={"hidden": [2]}))
    weights = {
        "1.weight": np.array([[1.0, -1.0]]), "1.bias": np.zeros(2),
        "2.weight": np.array([[1.0, 0.0], [5.0, 7.0]]), "2.bias": np.zeros(2),
    }  # fmt: skip
    # Z = [2, -2], H = [2, 0], logits = [2, 0]; G = [p, -p] with p the probability of class 0.
    loss, gradient = network.gradient(weights, 1)
    p = 1 / (1 + math.exp(-2))
    assert loss == pytest.approx(2 + math.log(1 + math.exp(-2)))
    assert np.allclose(gradient["2.weight"], [[2 * p, -2 * p], [0, 0]])
    assert np.allclose(gradient["2.bias"], [p, -p])
    assert np.allclose(gradient["1.weight"], [[2 * p, 0]])
    assert np.allclose(gradient["1.bias"], [p, 0])


@pytest.mark.parametrize(
    ("direction", "tables"),
    [
        ("in", {"model": {"hidden": [4], "dropout": 0.5, "input_dropout": 0.3}}),
        ("out", {"model": {"hidden": [4, 3, 6]}, "graph": {"normalize": "sym"}}),
        ("in", {"model": {"hidden": [4], "bias": False}, "graph": {"normalize": "row"}}),
        ("in", {"model": {"hidden": [4]}, "graph": {"self_loops": False, "feature_norm": "row"}}),
    ],
)
def test_every_entry_of_the_gradient_is_the_slope_of_the_loss(direction, tables):
    network = oracle.Network(random_graph(), direction, config(**tables))
    generator = np.random.default_rng(3)
    # Biases that are not 0: isolated vertices would sit on the kink of ReLU.
    weights = {
        name: array + 0.1 * generator.standard_normal(array.shape)
        for name, array in oracle.initial_weights(network.widths, network.config).items()
    }
    _, gradient = network.gradient(weights, 2)
    assert set(gradient) == set(weights)
    h = 1e-6
    for name, array in weights.items():
        slopes = np.empty_like(array)
        for place in np.ndindex(array.shape):
            before = array[place]
            losses = []
            for value in (before + h, before - h):
                array[place] = value
                losses.append(network.gradient(weights, 2)[0])
            array[place] = before
            slopes[place] = (losses[0] - losses[1]) / (2 * h)
        assert np.allclose(slopes, gradient[name], rtol=1e-7, atol=1e-9), name


def test_only_labelled_training_vertices_count():
    graph = random_graph()
    network = oracle.Network(graph, "in", config())
    assert network.train.tolist() == [
        i for i in range(graph.n) if graph.masks["train"][i] and graph.labels[i] >= 0
    ]
    unmasked = Graph(graph.indptr, graph.indices, None, graph.features, graph.labels)
    everyone = oracle.Network(unmasked, "in", config())
    assert everyone.train.tolist() == [i for i in range(graph.n) if graph.labels[i] >= 0]


def test_a_softmax_of_large_logits_is_finite():
    network = oracle.Network(Graph(**PAIR), "in", config(model={"hidden": []}))
    weights = {"1.weight": np.array([[0.0, 5000.0], [0.0, 0.0]]), "1.bias": np.zeros(2)}
    loss, gradient = network.gradient(weights, 1)
    assert loss == pytest.approx(2500)
    assert np.isfinite(gradient["1.weight"]).all()


def test_dropout_decides_by_the_hash_and_only_in_training():
    network = oracle.Network(random_graph(), "in", config(model={"input_dropout": 0.4}))
    factors = network._dropout(0, epoch=7)
    limit = round(0.4 * 2**32)
    for i, j in np.ndindex(factors.shape):
        kept = hash_of(seed=0, epoch=7, layer=0, vertex=i, column=j) >= limit
        assert factors[i, j] == (1 / 0.6 if kept else 0.0)
    assert network._dropout(0, epoch=None) == 1.0
    assert network._dropout(1, epoch=7) == 1.0


@pytest.mark.parametrize(("seed", "epoch", "layer"), [(0, 1, 0), (3, 200, 2), (2**40 + 1, 5, 1)])
def test_the_hash_in_plain_python_integers(seed, epoch, layer):
    vertices, columns = np.array([0, 1, 77, 2**31 + 5, 2**40]), np.array([0, 1, 15, 1432])
    out = np.empty((5, 4), np.uint32)
    keys = rng.row_keys(seed, epoch, layer, vertices)
    rng.hash_block(keys, rng.column_keys(columns), out, np.empty_like(out))
    assert out.tolist() == [
        [hash_of(seed, epoch, layer, int(v), int(c)) for c in columns] for v in vertices
    ]


def hash_of(seed, epoch, layer, vertex, column):
    """The dropout hash written out for one entry."""
    base = splitmix(splitmix(splitmix(seed) ^ epoch) ^ layer)
    row = splitmix((vertex * 0x9E3779B97F4A7C15 + base) & MASK64)
    x = (row & 0xFFFFFFFF) ^ (splitmix(column) >> 32)
    x ^= x >> 16
    x = (x * 0x7FEB352D + (row >> 32)) & 0xFFFFFFFF
    x ^= x >> 15
    x = x * 0x846CA68B & 0xFFFFFFFF
    return x ^ x >> 16


def splitmix(x):
    """Steele, Lea and Flood's SplitMix64."""
    x = (x + 0x9E3779B97F4A7C15) & MASK64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK64
    return x ^ x >> 31


def test_sgd_by_hand():
    train = {"optimizer": "sgd", "lr": 0.5, "momentum": 0.9, "weight_decay": 0.1}
    update = oracle.UPDATES["sgd"](config(train=train).train)
    weights = update({"2.bias": np.array([1.0])}, {"2.bias": np.array([2.0])})
    assert weights["2.bias"] == pytest.approx(1 - 0.5 * 2.1)  # v = 2 + 0.1·1
    weights = update(weights, {"2.bias": np.array([2.0])})  # v = 0.9·2.1 + 2 − 0.1·0.05
    assert weights["2.bias"] == pytest.approx(-0.05 - 0.5 * (0.9 * 2.1 + 2 - 0.005))


def test_adam_by_hand_with_decay_of_the_first_layer_only():
    train = {"lr": 0.1, "weight_decay": 0.5, "weight_decay_layers": "first"}
    update = oracle.UPDATES["adam"](config(train=train).train)
    weights = {name: np.array([2.0]) for name in ("1.weight", "2.weight")}
    gradient = {"1.weight": np.array([3.0]), "2.weight": np.array([3.0])}
    weights = update(weights, gradient)
    # The first step is lr·g/(|g| + ε) whatever the gradient.
    assert weights["1.weight"] == pytest.approx(1.9)
    assert weights["2.weight"] == pytest.approx(1.9)
    weights = update(weights, {"1.weight": np.array([-1.0]), "2.weight": np.array([-1.0])})
    for name, first, second in (("1.weight", 4.0, -1 + 0.95), ("2.weight", 3.0, -1.0)):
        m = (0.9 * 0.1 * first + 0.1 * second) / (1 - 0.81)
        v = (0.999 * 0.001 * first**2 + 0.001 * second**2) / (1 - 0.999**2)
        assert weights[name] == pytest.approx(1.9 - 0.1 * m / (math.sqrt(v) + 1e-8))


def test_training_lowers_the_loss_and_returns_the_first_gradient():
    settings = config(model={"hidden": [8]}, train={"lr": 0.05})
    graph = random_graph()
    curve = oracle.train(graph, "in", settings, 60)
    assert len(curve.losses) == 60
    assert curve.losses[-1] < 0.5 * curve.losses[0]
    network = oracle.Network(graph, "in", settings)
    loss, gradient = network.gradient(oracle.initial_weights(network.widths, settings), 1)
    assert loss == curve.losses[0]
    assert all(np.array_equal(gradient[name], curve.gradient[name]) for name in gradient)
    assert np.array_equal(curve.logits, network.logits(curve.weights))


def test_the_oracle_is_independent():
    tree = ast.parse(inspect.getsource(oracle))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{name.name}" for name in node.names}
    own = {name for name in found if name.startswith(("gcnmpi", "partition"))}
    assert own == {
        "gcnmpi.core.rng", "gcnmpi.core.config.Config", "gcnmpi.core.config.TrainConfig",
        "partition.graph.graph.UNLABELLED", "partition.graph.graph.Graph",
        "partition.graph.graph.aggregation_matrix",
    }  # fmt: skip
