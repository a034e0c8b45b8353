"""Networks compiled: the order of products, the steps of an epoch, constants, memory."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from one_process import ORDERS, OneProcess, model_of, program_of

from gcnmpi.core.timing import Phases
from gcnmpi.halo.matrix import Matrix
from gcnmpi.kernels.host.scipy_ import SciPyKernel
from gcnmpi.layout.place import Place
from gcnmpi.nn.compile import LOSS, Target, compile_network
from gcnmpi.nn.describe import network_of
from gcnmpi.nn.model import aggregate_constant
from gcnmpi.nn.operators.neighbours import Aggregate, AggregateT, MaxAggregate
from gcnmpi.nn.program import Step
from gcnmpi.options.config import from_table
from gcnmpi.options.memory import Residences
from gcnmpi.options.model import NETWORKS
from gcnmpi.planner.memory import matrices
from partition.errors import UserError

N, D_IN, D_OUT = 11, 5, 3

# Orders of products.


@pytest.mark.parametrize(
    ("k", "d_in", "d_out", "wanted", "constant", "keep", "order"),
    [
        # The features never change: M·H once, whatever the widths.
        (1, 1433, 16, "auto", True, True, "given"),
        (1, 4, 16, "auto", True, True, "given"),
        (1, 1433, 16, "aggregate", True, True, "given"),
        # … unless it may not be kept, or the other order is asked for.
        (1, 1433, 16, "combine", True, True, "combine"),
        (1, 1433, 16, "auto", True, False, "combine"),
        (1, 1433, 16, "aggregate", True, False, "aggregate"),
        # First layer with input dropout: d_in columns forward, or d_out forward and back.
        (1, 1433, 16, "auto", False, True, "combine"),
        (1, 31, 16, "auto", False, True, "aggregate"),
        (1, 32, 16, "auto", False, True, "combine"),
        (1, 16, 16, "auto", False, True, "aggregate"),
        # Hidden layers: the narrow side; combine on a tie, which needs less memory.
        (2, 16, 7, "auto", False, True, "combine"),
        (2, 16, 16, "auto", False, True, "combine"),
        (2, 16, 17, "auto", False, True, "aggregate"),
        (3, 64, 8, "aggregate", False, True, "aggregate"),
        (3, 8, 64, "combine", False, True, "combine"),
    ],
)
def test_the_order_that_moves_fewer_columns(k, d_in, d_out, wanted, constant, keep, order):
    settings = {"order": wanted, "cache_input": keep, "input_dropout": 0.0 if constant else 0.5}
    widths = ([d_in] if k == 1 else [9, *[9] * (k - 2), d_in]) + [d_out]
    features, *hidden, classes = widths
    program = program_of({**settings, "hidden": hidden}, features, classes)
    assert program.orders[k - 1] == order


def test_trained_features_need_a_gradient_and_are_no_constant():
    settings = {"train_features": True, "hidden": []}
    # d_in columns forward and back, or d_out.
    assert program_of(settings, 15, 16).orders == ("aggregate",)
    assert program_of(settings, 16, 16).orders == ("combine",)


def test_an_order_that_the_scheme_cannot_do():
    settings = {"hidden": [9], "input_dropout": 0.5}
    found = program_of(settings, orders=("aggregate",))
    assert found.orders == ("aggregate", "aggregate")
    with pytest.raises(UserError, match="this scheme aggregates first"):
        program_of({**settings, "order": "combine"}, orders=("aggregate",))


# The steps of an epoch.

# Steps of layer k, with j = k − 1: H = M·H′·W; from G = dL/dZ, its share of dW and db, and dL/dH′.
FORWARD = {
    "combine": ["X{k} = combine(H{j})", "H{k} = aggregate(X{k}), then"],
    "aggregate": ["T{k} = aggregate(H{j})", "H{k} = combine(T{k}), then"],
    "given": ["H{k} = combine(T{k}), then"],
}
BACKWARD = {
    "combine": [
        "db{k} = column_sum(G{k})", "S{k} = aggregate_t(G{k})", "dW{k} = weight_grad(H{j}, S{k})",
    ],
    "aggregate": ["dW{k}, db{k} = weight_grad(T{k}, G{k})"],
    "given": ["dW{k}, db{k} = weight_grad(T{k}, G{k})"],
}  # fmt: skip
INPUT_GRADIENT = {
    "combine": ["G{j} = combine_t(S{k}), then of H{j}"],
    "aggregate": ["S{k} = combine_t(G{k})", "G{j} = aggregate_t(S{k}), then of H{j}"],
}
NAMES = {
    "combine": {"combine": "X", "aggregate": "H", "aggregate_t": "S", "combine_t": "G"},
    "aggregate": {"aggregate": "T", "combine": "H", "combine_t": "S", "aggregate_t": "G"},
}


def told(program):
    """The steps of an epoch of a GCN, with the names of the table above."""
    names = {program.logits_grad: f"G{len(program.orders)}"}
    names |= {i: "H0" if i == 0 else "T1" for i in program.kept}
    lines = []
    for step in (*program.forward, *program.backward):
        order = program.orders[step.k - 1].replace("given", "aggregate")
        if step.writes is not None:
            letter = NAMES[order][step.name]
            names[step.writes] = f"{letter}{step.k - (letter == 'G')}"
            result = names[step.writes]
        else:
            (parameter,) = step.operator.parameters
            result = f"db{step.k}" if parameter.endswith("bias") else f"dW{step.k}"
            result += f", db{step.k}" if step.sums else ""
        line = f"{result} = {step.name}({', '.join(names[i] for i in step.reads)})"
        if step.finish:
            line += ", then"
        if step.finish_gradient:
            line += f", then of {names[step.finish_gradient[1]]}"
        lines.append(line)
    return lines


def table(orders):
    """The same, of the table."""
    layers = list(enumerate(orders, start=1))
    lines = [line.format(k=k, j=k - 1) for k, order in layers for line in FORWARD[order]]
    for k, order in reversed(layers):
        back = BACKWARD[order] + (INPUT_GRADIENT[order] if k > 1 else [])
        lines += [line.format(k=k, j=k - 1) for line in back]
    return lines


@pytest.mark.parametrize(
    ("settings", "orders"),
    [
        ({}, ("given", "combine", "combine", "aggregate")),
        ({"cache_input": False}, ("aggregate", "combine", "combine", "aggregate")),
        ({"order": "combine", "dropout": 0.5}, ("combine",) * 4),
        ({"order": "aggregate", "dropout": 0.5}, ("given", *["aggregate"] * 3)),
    ],
)
def test_an_epoch_of_a_gcn_step_for_step(settings, orders):
    program = program_of({"hidden": [7, 6, 4], **settings}, 6, 5)
    assert program.orders == orders
    assert told(program) == table(orders)


def test_what_is_exchanged_in_each_order():
    def widths(order, trained):
        settings = {"order": order, "cache_input": False, "train_features": trained, "hidden": []}
        program = program_of(settings, D_IN, D_OUT)
        steps = (*program.forward, *program.backward)
        return [(s.name, s.operator.width) for s in steps if s.name.startswith("aggregate")]

    assert widths("combine", False) == [("aggregate", D_OUT), ("aggregate_t", D_OUT)]
    assert widths("combine", True) == [("aggregate", D_OUT), ("aggregate_t", D_OUT)]
    # Where the input needs no gradient, nothing flows back through M.
    assert widths("aggregate", False) == [("aggregate", D_IN)]
    assert widths("aggregate", True) == [("aggregate", D_IN), ("aggregate_t", D_IN)]


@pytest.mark.parametrize("trained", [False, True])
def test_a_weight_moves_in_front_of_a_sum_with_the_vertex_itself(trained):
    def found(order):
        settings = {"name": "gin", "train_eps": trained, "hidden": [9], "order": order}
        program = program_of(settings, D_IN, D_OUT)
        steps = (*program.forward, *program.backward)
        moved = [(s.name, s.operator.width) for s in steps if s.name.startswith("aggregate")]
        return program.orders, moved

    orders, moved = found("auto")  # (M + (1 + ε)·1)·(H¹·W) of 3 columns, instead of H¹'s 9
    assert orders == ("given", "combine")
    assert moved == [("aggregate", D_OUT), ("aggregate_t", D_OUT)]
    orders, moved = found("aggregate")
    assert orders == ("given", "aggregate")
    assert moved == [("aggregate", 9), ("aggregate_t", 9)]


def test_a_layers_output_stays_what_it_is_though_the_next_weight_could_move():
    settings = {"hidden": [9, 7], "activation": "none", "bias": False, "dropout": 0.0}
    program = program_of(settings, D_IN, D_OUT)
    assert program.widths == (D_IN, 9, 7, D_OUT)
    steps = {step.writes: step for step in (*program.constants, *program.evaluation)}
    assert [steps[value].name for value in program.outputs[1:]] == ["aggregate", "aggregate"]


def test_biases_activations_and_dropout_are_within_the_products():
    for activation in ("relu", "elu", "leaky_relu"):
        program = program_of({"hidden": [5, 4], "dropout": 0.5, "activation": activation})
        steps = (*program.forward, *program.backward, *program.evaluation)
        assert not {"finish", "finish_backward", "activate"} & {step.name for step in steps}
        assert [step.finish.kind for step in program.forward if step.finish][-1] == "none"
        drops = [step.finish.p for step in program.evaluation if step.finish]
        assert not any(drops)


# Constants.


@pytest.mark.parametrize(
    ("settings", "made", "kept"),
    [
        # Aggregations that are made once, and widths of what stays of them and of the features.
        ({"name": "gcn", "hidden": [4]}, 1, 1),
        ({"name": "gcn", "hidden": [4], "cache_input": False}, 0, 1),
        ({"name": "gcn", "hidden": [4], "order": "combine"}, 0, 1),
        ({"name": "gcn", "hidden": [4], "input_dropout": 0.5}, 0, 1),
        ({"name": "gcn", "hidden": [4], "train_features": True}, 0, 0),
        ({"name": "sgc", "hops": 3}, 3, 1),
        ({"name": "sign", "hops": 3}, 3, 4),
        ({"name": "sage", "hidden": [4]}, 1, 2),
        ({"name": "gin", "hidden": [4]}, 1, 1),
        ({"name": "mlp", "hidden": [4]}, 0, 1),
        ({"name": "appnp", "hidden": [4]}, 0, 1),
    ],
)
def test_what_never_changes_is_computed_once_and_only_what_is_read_is_kept(settings, made, kept):
    program = program_of(settings)
    assert [step.name for step in program.constants].count("aggregate") == made
    assert len(program.kept) == kept
    steps = (*program.forward, *program.backward, *program.evaluation)
    read = {value for step in steps for value in step.values}
    once = {step.writes for step in program.constants}
    assert set(program.kept) <= read
    assert not once & {step.writes for step in steps}


def test_wide_features_are_aggregated_some_columns_at_a_time_where_they_lie():
    random, kernel = np.random.default_rng(0), SciPyKernel(np.float64)
    for width, asked in ((100, [100]), (300, [75] * 4), (8000, [500] * 16)):
        matrix, features = random.random((N, N)), random.random((N, width))
        expected, scheme = matrix @ features, OneProcess(matrix, kernel)
        for overwrite in (False, True):
            given = features.copy()
            x = Matrix(Place(0), given)
            place = Place(1, aggregated=True)
            made = aggregate_constant(scheme, kernel, x, place, width, False, overwrite)
            found = made.array
            np.testing.assert_allclose(found, expected, rtol=1e-13)
            assert [columns for _, _, columns in scheme.asked] == asked
            assert np.shares_memory(found, given) == (overwrite and width > 127)
            assert overwrite or np.array_equal(given, features)
            scheme.asked.clear()


# Memory.

SETTINGS = {
    "gcn": {},
    "gcn-wide": {"hidden": [4, 7, 4], "dropout": 0.5, "input_dropout": 0.5},
    "gcn-aggregate": {"hidden": [4, 7, 4], "order": "aggregate", "train_features": True},
    "gcn-norm": {"hidden": [4, 4, 4], "norm": "layer", "activation": "gelu", "jk": "cat"},
    "residual": {"hidden": [4, 4], "residual": "linear", "norm": "batch", "activation": "prelu"},
    "identity": {"hidden": [4, 4], "residual": "identity", "norm": "l2", "jk": "max"},
    "around": {"hidden": [4, 4], "linear_before": True, "linear_after": True, "jk": "sum"},
    "sage": {"name": "sage", "hidden": [4, 4], "normalize_output": True, "dropout": 0.2},
    "sage-max": {"name": "sage", "hidden": [4, 4], "aggregation": "max", "input_dropout": 0.2},
    "gin": {"name": "gin", "hidden": [4, 4], "train_eps": True},
    "gat": {"name": "gat", "hidden": [4, 4], "heads": 2, "out_heads": 2, "dropout": 0.5},
    "gatv2": {"name": "gatv2", "hidden": [4, 4], "heads": 2, "attention_dropout": 0.5},
    "gcnii": {"name": "gcnii", "hidden": [4], "layers": 4, "dropout": 0.5},
    "appnp": {"name": "appnp", "hidden": [4], "hops": 3, "dropout": 0.5},
    "sgc": {"name": "sgc", "hops": 2},
    "sign": {"name": "sign", "hidden": [4], "hops": 2, "dropout": 0.5},
    "mlp": {"name": "mlp", "hidden": [4, 4], "dropout": 0.5},
}
LAYOUTS = {
    "one": lambda place: None,
    "two": lambda place: place.aggregated,
    "three": lambda place: (place.layer + place.aggregated) % 3,
}


@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("name", list(SETTINGS))
def test_nothing_is_overwritten_that_is_still_read(name, layout):
    program = program_of(SETTINGS[name], layout=LAYOUTS[layout], whole_rows=layout == "one")
    check_memory(program, LAYOUTS[layout])


def check_memory(program, layout_of):
    """No step of a pass reads what another one has overwritten; what it writes fits there."""
    values, buffers = program.values, program.buffers
    loss = Step(LOSS, program.operators[-1], 0, (program.logits,), program.logits_grad, -1)
    training = [*program.forward, loss, *program.backward] if program.forward else []
    for steps, where in (
        (training, program.training_buffers), (program.evaluation, program.evaluation_buffers),
    ):  # fmt: skip
        holds = {}
        for step in steps:
            for value in step.values:
                kept = value in program.kept or value in program.sparse
                assert kept or holds[where[value]] == value, (step, value)
            if step.writes is None:
                continue
            buffer, value = buffers[where[step.writes]], values[step.writes]
            assert layout_of(buffer.place) == layout_of(value.place)
            assert buffer.width == value.width
            assert buffer.exchanged >= value.exchanged
            # A step reads where it writes only values that it may change entry by entry.
            shared = {
                i for i in step.values if i not in program.kept and where[i] == where[step.writes]
            }
            if step.onto is not None:
                assert shared == {step.onto}
            else:
                assert not shared or (step.instruction.in_place and shared == {step.reads[0]}), step
            holds[where[step.writes]] = step.writes


@pytest.mark.parametrize("whole_rows", [True, False])
def test_sums_of_dense_products_are_one_matrix_where_rows_are_whole(whole_rows):
    program = program_of({"name": "sage", "hidden": [4, 4]}, whole_rows=whole_rows)
    # M·H·W₁ + H·W₂ of three layers, and the gradients of both ways into two of them. Two dense
    # products are one pass: (M·H⁰)·W₁ + H⁰·W₂, and both gradients; but not in an evaluation, where
    # one matrix more would live.
    passes = (program.forward, 3, 1), (program.backward, 2, 2), (program.evaluation, 3, 0)
    for steps, sums, pairs in passes:
        assert [step.name for step in steps].count("add") == (0 if whole_rows else sums)
        assert sum(step.also is not None for step in steps) == whole_rows * pairs
        assert sum(step.onto is not None for step in steps) == whole_rows * (sums - pairs)


@pytest.mark.parametrize("whole_rows", [True, False])
def test_what_is_added_to_a_sparse_product_goes_along(whole_rows):
    program = program_of({"name": "gin", "hidden": [4, 4]}, whole_rows=whole_rows)
    # M·H + H of the layers after the first, whose is constant, and Mᵀ·G + G.
    for steps in (program.forward, program.backward):
        assert [step.name for step in steps].count("add") == (0 if whole_rows else 2)
        assert sum(step.plus is not None for step in steps) == whole_rows * 2


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
@pytest.mark.parametrize("order", ["auto", "combine"])
def test_a_gcn_of_equal_widths_needs_no_more_than_l_plus_3_matrices(depth, order):
    settings = {"hidden": [4] * (depth - 1), "order": order, "dropout": 0.5}
    # Input, L outputs and two temporary ones.
    assert len(matrices(program_of(settings, 4, 4))) <= depth + 3


def test_an_evaluation_takes_no_memory_of_its_own():
    for settings in SETTINGS.values():
        program = program_of(settings)
        trained = set(program.training_buffers.values())
        assert set(program.evaluation_buffers.values()) <= trained, settings


@pytest.mark.parametrize("name", ["gcn", "gcn-wide", "gcn-aggregate", "appnp", "gcnii", "sign"])
def test_the_matrices_are_those_that_a_model_makes(name):
    kernel = SciPyKernel(np.float64)
    scheme = OneProcess(np.eye(N), kernel)
    model = model_of(scheme, kernel, SETTINGS[name], np.ones((N, 6)))
    made = [width for width, _ in scheme.made]
    model.forward(1)
    model.output_grad.fill(1)
    model.backward(1)
    model.forward()
    assert len(scheme.made) == len(made)  # none in an epoch
    program = model.program
    if 0 in program.kept and not program.values[0].exchanged:
        made.append(6)  # the features themselves
    assert sorted(made) == sorted(value.width for value in matrices(program))


def test_places_of_a_uniform_layout_count_the_layers():
    program = program_of({"hidden": [4, 4]})
    assert program.place == Place(3)
    assert program.depth == 3
    assert [program.values[i].place for i in program.outputs] == [Place(1), Place(2), Place(3)]


# Attention.


class Noting(SciPyKernel):
    """Notes the shapes of what it is asked for."""

    def __init__(self, dtype):
        super().__init__(dtype)
        self.made = []

    def empty(self, *shape):
        self.made.append(shape)
        return super().empty(*shape)


class OwnRows:
    """The halo of one process: there is none. It is folded all the same."""

    alone = False

    def __init__(self, pattern):
        self.pattern, self.ids, self.phases = pattern, np.arange(pattern.rows), Phases()

    def expand(self, x):
        return x.whole

    def gradient(self, place, width):
        array = np.zeros((self.pattern.rows, width))
        return Matrix(place, array, array)

    def fold(self, gradient, out):
        out[...] = gradient.whole


@pytest.mark.parametrize("name", ["gat", "gatv2"])
def test_attention_has_the_scratch_that_a_kernel_wants_and_that_is_forecast(name):
    random, kernel = np.random.default_rng(1), Noting("f8")
    matrix = sp.random_array((N, N), density=0.3, format="csr", rng=random)
    pattern = kernel.pattern(matrix, np.arange(N))
    scheme = OneProcess(matrix, kernel)
    scheme.halo = OwnRows(pattern)
    settings = {"name": name, "hidden": [], "out_heads": 2}
    model = model_of(scheme, kernel, settings, random.standard_normal((N, D_IN)), D_OUT)
    assert ((pattern.entries + 4 * N) * 2, 1) in kernel.made
    steps = (*model.program.forward, *model.program.backward)
    forecast = sum(step.kept(N, N, pattern.entries) for step in steps)
    made = sum(rows * columns for rows, columns in kernel.made)
    assert made == forecast if name == "gat" else made <= forecast
    model.forward(1)
    model.output_grad[...] = 1
    model.backward(1)  # it fits


# Biases in front of a batch norm.

MEANS = (Aggregate, MaxAggregate)
# Settings, which aggregations keep a constant, and the biases that have no effect.
WITHOUT_EFFECT = [
    ({"norm": "none"}, MEANS, []),
    ({"norm": "layer"}, MEANS, []),
    ({"norm": "batch"}, (), ["convs.0.bias"]),
    ({"norm": "batch", "activation": "none"}, (), ["convs.0.bias"]),
    (
        {"norm": "batch", "hidden": [4, 4], "residual": "linear"}, (),
        ["convs.0.bias", "convs.1.bias", "residuals.0.bias", "residuals.1.bias"],
    ),
    ({"norm": "batch", "linear_before": True}, (), ["convs.0.bias"]),
    ({"norm": "batch", "linear_before": True}, MEANS, ["convs.0.bias", "lin_in.bias"]),
    ({"norm": "batch", "linear_before": True, "dropout": 0.5}, MEANS, ["convs.0.bias"]),
    (
        {"norm": "batch", "hidden": [4, 4], "activation": "none"}, MEANS,
        ["convs.0.bias", "convs.1.bias", "norms.0.module.bias"],
    ),
    (
        {"norm": "batch", "hidden": [4, 4], "activation": "none", "jk": "sum"}, MEANS,
        ["convs.0.bias", "convs.1.bias"],
    ),
    ({"name": "gat", "norm": "batch", "linear_before": True}, MEANS, ["convs.0.bias"]),
    ({"name": "mlp", "norm": "batch"}, (), ["lins.0.bias"]),
    (
        {"name": "sage", "norm": "batch", "aggregation": "max", "linear_before": True}, MEANS,
        ["convs.0.lin_l.bias", "lin_in.bias"],
    ),
    (
        {"name": "gin", "norm": "batch"}, (),
        ["convs.0.nn.lins.0.bias", "convs.0.nn.lins.1.bias", "convs.1.nn.lins.0.bias"],
    ),
]  # fmt: skip


@pytest.mark.parametrize("whole_rows", [True, False])
@pytest.mark.parametrize(("settings", "means", "names"), WITHOUT_EFFECT)
def test_a_bias_that_a_batch_norm_takes_off_has_no_gradient(settings, means, names, whole_rows):
    model = from_table({"model": {"hidden": [4], **settings}}).model
    network = network_of(model, 6, 3)
    target = Target(ORDERS, lambda place: None, whole_rows, means=means)
    program = compile_network(network, target, model)
    found = [step.operator.bias for step in program.backward if step.name == "no_effect"]
    assert sorted(found) == sorted(names)
    summed = [step.operator.bias for step in program.backward if step.name == "column_sum"]
    summed += [step.sums for step in program.backward if step.sums]
    assert not {*found}.intersection(summed)


# All configurations.

OPTIONS = {
    "hidden": [[4], [4, 4], [4, 6, 4]],
    "norm": ["none", "layer", "batch", "l2"],
    "activation": ["relu", "elu", "gelu", "prelu", "none"],
    "residual": ["none", "identity", "linear"],
    "jk": ["none", "sum", "cat", "max"],
    "bias": [True, False],
    "dropout": [0.0, 0.5],
    "input_dropout": [0.0, 0.5],
    "linear_before": [False, True],
    "linear_after": [False, True],
    "order": ["auto", "aggregate", "combine"],
    "cache_input": [True, False],
    "train_features": [False, True],
    "aggregation": ["mean", "max"],
    "root_weight": [True, False],
    "train_eps": [False, True],
    "arc_features": [False, True],
    "beta": [False, True],
    "heads": [1, 2],
    "concat": [True, False],
    "attention_dropout": [0.0, 0.5],
    "hops": [2, 3],
    "filter_size": [1, 3],
    "kernel_size": [1],
}
COMMON = ("bias", "input_dropout", "order", "cache_input", "train_features")
TARGETS = {
    "rows": Target(ORDERS, LAYOUTS["one"]),
    "grid": Target(ORDERS, LAYOUTS["one"], whole_rows=False),
    "rotating": Target(("aggregate",), LAYOUTS["three"], whole_rows=False),
    "batch": Target(ORDERS, lambda place: place.layer, narrows=True),
    "again": Target(ORDERS, LAYOUTS["one"], residences=Residences(2)),
}


def covering(options, seed):
    """Choices in which each pair of values of two options is, found greedily among random ones."""
    random, names = np.random.default_rng(seed), list(options)
    left = {
        ((a, i), (b, j))
        for a, b in combinations(names, 2)
        for i in range(len(options[a]))
        for j in range(len(options[b]))
    }
    while left:
        first = min(left)
        drawn = [
            {name: int(random.integers(len(options[name]))) for name in names} | dict(first)
            for _ in range(10)
        ]
        pairs = [left.intersection(combinations(choice.items(), 2)) for choice in drawn]
        best = max(range(len(drawn)), key=lambda k: len(pairs[k]))
        left -= pairs[best]
        yield {name: options[name][at] for name, at in drawn[best].items()}


@pytest.mark.parametrize("name", list(NETWORKS))
def test_every_configuration_can_be_compiled(name):
    own = {*COMMON, *(key.removeprefix("model.") for key in NETWORKS.keys(name))}
    options = {key: values for key, values in OPTIONS.items() if key in own}
    made = 0
    for choice in covering(options, seed=3):
        try:
            model = from_table({"model": {"name": name, **choice}}).model
            network = network_of(model, 4, 3, 2, relations=3)
        except UserError:
            continue  # options that do not go together
        for target in TARGETS.values():
            # A batch takes rows of H⁰, which is not trained there.
            batch = replace(model, cache_input=False, train_features=False)
            given = batch if target.narrows else model
            if given.order not in ("auto", *target.orders):
                continue
            both_ways = any(isinstance(one, AggregateT) for one in network.operators)
            if both_ways and (target.narrows or target.orders != ORDERS):
                with pytest.raises(UserError, match="M transposed"):
                    compile_network(network, target, given)
                continue
            for trains in (True, False):
                check_memory(compile_network(network, target, given, trains), target.layout)
                made += 1
    assert made > 20


# Chains of products on columns.


def turned(name, **settings):
    """The program of a network on a scheme that turns."""
    model = from_table({"model": {"name": name, **settings}}).model
    target = Target(("combine", "aggregate"), lambda place: None, turns=True)
    return compile_network(network_of(model, 6, 3), target, model)


def names(steps):
    return [step.name for step in steps]


def test_a_chain_takes_two_turns_forward_and_two_back():
    for hops in (2, 10):
        program = turned("appnp", hops=hops, hidden=[4])
        forward, backward = names(program.forward), names(program.backward)
        assert forward.count("multiply") == backward.count("multiply_t") == hops
        assert forward.count("to_columns") == forward.count("to_rows") == 1
        assert backward.count("to_columns") == backward.count("to_rows") == 1
        assert not {"aggregate", "aggregate_t"} & {*forward, *backward}


def test_powers_leave_the_chain_one_by_one_and_are_made_once():
    program = turned("sign", hops=3, hidden=[4])
    once = names(program.constants)
    assert once.count("multiply") == once.count("to_rows") == 3
    assert once.count("to_columns") == 1
    assert not {"multiply", "to_rows"} & {*names(program.forward)}


def test_a_product_that_is_in_no_chain_stays_what_it_is():
    for name in ("gcn", "sage", "gin", "gcnii"):
        program = turned(name, hidden=[4, 4])
        steps = names((*program.constants, *program.forward))
        assert "aggregate" in steps
        assert not {"multiply", "to_columns", "to_rows"} & {*steps}
