"""Networks compiled: the order of products, the steps of an epoch, constants, memory."""

from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest
from axes import ALL
from one_process import ORDERS, OneProcess, model_of, program_of
from refusals import refuses

from gcnmpi.halo.matrix import Matrix
from gcnmpi.kernels.host.scipy_ import SciPyKernel
from gcnmpi.layout.place import Place
from gcnmpi.nn.compile import LOSS, Target, compile_network
from gcnmpi.nn.describe import graph_of, matrix_of, network_of
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


def test_the_order_that_moves_fewer_columns():
    for k, d_in, d_out, wanted, constant, keep, order in (
        # The features never change: M·H once, whatever the widths.
        (1, 1433, 16, "auto", True, True, "given"),
        (1, 1433, 16, "aggregate", True, True, "given"),
        # … unless it may not be kept, or the other order is asked for.
        (1, 1433, 16, "auto", True, False, "combine"),
        (1, 1433, 16, "combine", True, True, "combine"),
        # First layer with input dropout: d_in columns forward, or d_out forward and back.
        (1, 1433, 16, "auto", False, True, "combine"),
        (1, 31, 16, "auto", False, True, "aggregate"),
        (1, 32, 16, "auto", False, True, "combine"),
        # Hidden layers: the narrow side; combine on a tie, which needs less memory.
        (2, 16, 16, "auto", False, True, "combine"),
        (2, 16, 17, "auto", False, True, "aggregate"),
        (3, 64, 8, "aggregate", False, True, "aggregate"),
        (3, 8, 64, "combine", False, True, "combine"),
    ):
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


# Constants.


CONSTANTS = [
    # Aggregations that are made once, and how many matrices stay of them and of the features.
    ({"name": "gcn", "hidden": [4]}, 1, 1),
    ({"name": "gcn", "hidden": [4], "cache_input": False}, 0, 1),
    ({"name": "gcn", "hidden": [4], "input_dropout": 0.5}, 0, 1),
    ({"name": "gcn", "hidden": [4], "train_features": True}, 0, 0),
    ({"name": "sgc", "hops": 3}, 3, 1),
    ({"name": "sign", "hops": 3}, 3, 4),
    ({"name": "sage", "hidden": [4]}, 1, 2),
    ({"name": "appnp", "hidden": [4]}, 0, 1),
]


def test_what_never_changes_is_computed_once_and_only_what_is_read_is_kept():
    for settings, made, kept in CONSTANTS:
        program = program_of(settings)
        names = [step.name for step in program.constants]
        assert (names.count("aggregate"), len(program.kept)) == (made, kept), settings
        steps = (*program.forward, *program.backward, *program.evaluation)
        assert set(program.kept) <= {value for step in steps for value in step.values}
        assert not {s.writes for s in program.constants} & {step.writes for step in steps}


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

LAYOUTS = {"one": lambda place: None, "three": lambda place: (place.layer + place.aggregated) % 3}


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


def test_a_gcn_of_equal_widths_needs_no_more_than_l_plus_3_matrices():
    for depth, order in product((1, 2, 3, 8), ("auto", "combine")):
        settings = {"hidden": [4] * (depth - 1), "order": order, "dropout": 0.5}
        # Input, L outputs and two temporary ones.
        assert len(matrices(program_of(settings, 4, 4))) <= depth + 3


def test_the_matrices_are_those_that_a_model_makes():
    for settings in (
        {"hidden": [4, 7, 4], "dropout": 0.5, "input_dropout": 0.5},
        {"hidden": [4, 7, 4], "order": "aggregate", "train_features": True},
        {"name": "gcnii", "hidden": [4], "layers": 4, "dropout": 0.5},
        {"name": "sign", "hidden": [4], "hops": 2, "dropout": 0.5},
    ):
        kernel = SciPyKernel(np.float64)
        scheme = OneProcess(np.eye(N), kernel)
        model = model_of(scheme, kernel, settings, np.ones((N, 6)))
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


# Biases in front of a batch norm.

MEANS = (Aggregate, MaxAggregate)
# Settings, which aggregations keep a constant, and the biases that have no effect.
WITHOUT_EFFECT = [
    ({"norm": "none"}, MEANS, []),
    ({"norm": "batch"}, (), ["convs.0.bias"]),
    (
        {"norm": "batch", "hidden": [4, 4], "residual": "linear"}, (),
        ["convs.0.bias", "convs.1.bias", "residuals.0.bias", "residuals.1.bias"],
    ),
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
    (
        {"name": "sage", "norm": "batch", "aggregation": "max", "linear_before": True}, MEANS,
        ["convs.0.lin_l.bias", "lin_in.bias"],
    ),
    (
        {"name": "gin", "norm": "batch"}, (),
        ["convs.0.nn.lins.0.bias", "convs.0.nn.lins.1.bias", "convs.1.nn.lins.0.bias"],
    ),
]  # fmt: skip


def test_a_bias_that_a_batch_norm_takes_off_has_no_gradient():
    for (settings, means, names), whole_rows in product(WITHOUT_EFFECT, (True, False)):
        model = from_table({"model": {"hidden": [4], **settings}}).model
        target = Target(ORDERS, lambda place: None, whole_rows, means=means)
        program = compile_network(network_of(model, 6, 3), target, model)
        found = [step.operator.bias for step in program.backward if step.name == "no_effect"]
        assert sorted(found) == sorted(names), settings
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
OF_VERTICES = ("gcn", "sage", "gin", "gcnii", "appnp", "sgc", "sign", "mlp")
TARGETS = {
    "rows": Target(ORDERS, LAYOUTS["one"]),
    "grid": Target(ORDERS, LAYOUTS["one"], whole_rows=False),
    "rotating": Target(("aggregate",), LAYOUTS["three"], whole_rows=False),
    "batch": Target(ORDERS, lambda place: place.layer, narrows=True),
    "again": Target(ORDERS, LAYOUTS["one"], residences=Residences(2)),
}


@pytest.mark.parametrize("name", list(NETWORKS))
def test_every_configuration_can_be_compiled(name):
    own = {*COMMON, *(key.removeprefix("model.") for key in NETWORKS.keys(name))}
    options = {key: values for key, values in OPTIONS.items() if key in own}
    random, made = Random(3), 0
    for _ in range(1000 if ALL else 16):
        choice = {key: random.choice(values) for key, values in options.items()}
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
                refuses("M transposed", compile_network, network, target, given)
                continue
            for trains in (True, False):
                program = compile_network(network, target, given, trains)
                check_memory(program, target.layout)
                if trains and name in OF_VERTICES:  # an evaluation takes no memory of its own
                    trained = {*program.training_buffers.values()}
                    assert {*program.evaluation_buffers.values()} <= trained
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


# Networks as they are described: parameters and what they refuse.


def network(**model):
    if model.get("name") not in ("sgc",):
        model.setdefault("hidden", [8, 8])
    return network_of(from_table({"model": model}).model, 10, 3, 2, relations=4)


def kinds(found):
    return [type(operator).__name__ for operator in found.operators]


def shapes(found):
    return {name: p.stored or p.shape for name, p in found.parameters.items()}


def test_weights_of_several_parts_are_one_array():
    for found, columns in (
        (network(name="gcn", jk="cat", hidden=[8, 6]), [8, 6]),
        (network(name="sign", hops=1, hidden=[5]), [5, 5]),
    ):
        parts = [p for p in found.parameters.values() if p.part_of == "lin.weight"]
        assert [p.shape for p in parts] == [(c, 3) for c in columns]
        assert {p.fan_in for p in parts} == {sum(columns)}
        assert found.parameters["lin.bias"].fan_in == sum(columns)
        assert "Add" in kinds(found)


@pytest.mark.parametrize("name", list(NETWORKS))
def test_every_network_has_distinct_streams_and_layers(name):
    options = (
        {} if name == "sgc" else {"dropout": 0.5, "hidden": [8] * (1 if name == "sign" else 3)}
    )
    if "model.residual" in NETWORKS.keys(name):
        options["residual"] = "linear"
    if "model.linear_before" in NETWORKS.keys(name):
        options |= {"linear_before": True, "jk": "cat"}
    if "model.heads" in NETWORKS.keys(name):
        options |= {"heads": 2, "attention_dropout": 0.5}
    if "model.kernel_size" in NETWORKS.keys(name):
        options["kernel_size"] = 1
    found = network(name=name, input_dropout=0.5, **options)
    streams = [o.stream for o in found.operators if hasattr(o, "stream")]
    assert len(set(streams)) == len(streams)
    random = [p.stream for p in found.parameters.values() if p.init in ("glorot", "uniform")]
    assert len(set(random)) == len(random)
    assert all(p.layer >= 1 for p in found.parameters.values())
    for number, operator in enumerate(found.operators):
        assert all(i < number for i in operator.inputs)
        assert operator.layer >= max([found.operators[i].layer for i in operator.inputs] or [0])
    assert found.operators[-1].width == 3


def test_what_cannot_be_built_is_refused():
    for options, message in (
        ({"name": "gcn", "residual": "identity", "hidden": [4]}, "no layer is as wide"),
        ({"name": "gat", "heads": 3}, "not a multiple of model.heads = 3"),
        ({"name": "gcn", "jk": "sum", "hidden": [4, 5]}, "of one width"),
        ({"name": "gcn", "jk": "cat", "hidden": []}, "needs hidden layers"),
        ({"name": "gcn", "linear_before": True, "hidden": []}, "there is no hidden layer"),
        ({"name": "gcnii", "hidden": [4, 5]}, "all of one width"),
        ({"name": "sign"}, "one hidden layer"),
    ):
        refuses(message, network, **options)


def test_the_matrix_that_a_network_is_defined_with():
    for options, fixed in (
        ({"name": "sage"}, ("row", False)),
        ({"name": "sage", "aggregation": "max"}, ("none", False)),
        ({"name": "gin"}, ("none", False)),
        ({"name": "gatv2"}, ("none", True)),
        ({"name": "gcn"}, None),
    ):
        config = from_table({"model": options})
        assert matrix_of(config.model) == fixed
        graph = graph_of(config)
        assert (graph.normalize, graph.self_loops) == (fixed or ("sym", True))
