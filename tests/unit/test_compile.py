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
from gcnmpi.nn import operators
from gcnmpi.nn.compile import LOSS, Target, compile_network
from gcnmpi.nn.compile.residency import choices, read_ahead
from gcnmpi.nn.describe import network_of
from gcnmpi.nn.model import aggregate_constant
from gcnmpi.nn.operator import Finish, Operator
from gcnmpi.nn.operators.dense import Features
from gcnmpi.nn.operators.elementwise import Bias, Drop
from gcnmpi.nn.operators.neighbours import AggregateT, Multiply
from gcnmpi.nn.program import Step
from gcnmpi.options.config import from_table
from gcnmpi.options.model import NETWORKS
from gcnmpi.options.train import Residences
from gcnmpi.planner.memory import matrices
from gcnmpi.proof import rules
from partition.errors import UserError

N = 11


def one_layout(place):
    return None


def kinds_of(operator):
    return {operator, *(kind for one in operator.__subclasses__() for kind in kinds_of(one))}


def test_every_operator_has_a_rule_of_gradients_and_one_of_the_oracle():
    """But those that the compiler puts in, and the features."""
    every = {kind for kind in kinds_of(Operator) if not kind.__subclasses__()}
    made = {kind for kind in every if kind.__module__ == operators.inserted.__name__}
    assert every - {*operators.RULES} == {Bias, Drop}  # which become a Finish
    assert every - made - {*rules.RULES} == {Multiply, Features, Finish}


# Orders of products.


def test_the_order_that_moves_fewer_columns():
    for widths, settings, orders in (
        # The features never change: M·H once, whatever the widths; hidden layers: the narrow side,
        # and combine on a tie, which needs less memory.
        ([1433, 16, 16, 17], {}, ("given", "combine", "aggregate")),
        # With input dropout: d_in columns forward, or d_out forward and back.
        ([31, 16, 7], {"input_dropout": 0.5}, ("aggregate", "combine")),
        ([32, 16, 7], {"input_dropout": 0.5}, ("combine", "combine")),
        # Trained features need a gradient: d_in columns forward and back, or d_out.
        ([15, 16], {"train_features": True}, ("aggregate",)),
        ([16, 16], {"train_features": True}, ("combine",)),
    ):
        features, *hidden, classes = widths
        assert program_of({**settings, "hidden": hidden}, features, classes).orders == orders
    settings = {"hidden": [9], "input_dropout": 0.5, "order": "combine"}
    refuses("this scheme aggregates first", program_of, settings, orders=("aggregate",))


def test_outputs_of_layers_stay_though_the_next_weight_could_move():
    program = program_of({"hidden": [9, 7], "activation": "none", "bias": False}, 5, 3)
    assert program.widths == (5, 9, 7, 3)
    steps = {step.writes: step for step in (*program.constants, *program.evaluation)}
    assert [steps[value].name for value in program.outputs[1:]] == ["aggregate", "aggregate"]


# Constants.


def test_wide_features_are_aggregated_some_columns_at_a_time_where_they_lie():
    random, kernel = np.random.default_rng(0), SciPyKernel(np.float64)
    for width, asked in ((100, [100]), (300, [75] * 4), (8000, [500] * 16)):
        matrix, features = random.random((N, N)), random.random((N, width))
        for overwrite in (False, True):
            given, scheme = features.copy(), OneProcess(matrix, kernel)
            x, place = Matrix(Place(0), given), Place(1, aggregated=True)
            found = aggregate_constant(scheme, kernel, x, place, width, False, overwrite).array
            np.testing.assert_allclose(found, matrix @ features, rtol=1e-13)
            assert [columns for _, _, columns in scheme.asked] == asked
            assert np.shares_memory(found, given) == (overwrite and width > 127)
            assert overwrite or np.array_equal(given, features)


# Memory.


def check_memory(program, layout_of):
    """No step of a pass reads what another one has overwritten; what it writes fits there."""
    values, buffers = program.values, program.buffers
    loss = Step(LOSS, program.operators[-1], 0, (program.logits,), program.logits_grad, -1)
    training = [*program.forward, loss, *program.backward] if program.forward else []
    passes = (training, program.training_buffers), (program.evaluation, program.evaluation_buffers)
    for steps, where in passes:
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
            there = {*step.values} - {*program.kept}
            shared = {i for i in there if where[i] == where[step.writes]}
            if step.onto is not None:
                assert shared == {step.onto}
            else:
                assert not shared or (step.instruction.in_place and shared == {step.reads[0]}), step
            holds[where[step.writes]] = step.writes


def test_the_matrices_are_those_that_a_model_makes():
    """Of a GCN of equal widths L + 3: input, L outputs and two temporary ones."""
    for depth, order in product((1, 2, 3, 8), ("auto", "combine")):
        settings = {"hidden": [4] * (depth - 1), "order": order, "dropout": 0.5}
        assert len(matrices(program_of(settings, 4, 4))) <= depth + 3
    for settings in (
        {"hidden": [4, 7, 4], "dropout": 0.5, "input_dropout": 0.5},
        {"hidden": [4, 7, 4], "order": "aggregate", "train_features": True},
        {"name": "gcnii", "hidden": [4], "layers": 4, "dropout": 0.5},
        {"name": "sign", "hidden": [4], "hops": 2, "dropout": 0.5},
    ):
        scheme = OneProcess(np.eye(N), kernel := SciPyKernel(np.float64))
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


def most_columns(steps, values):
    """Columns that are in memory at once, from where each value is first touched to the last."""
    touched = [{*step.values, step.writes} - {None} for step in steps]
    spans = {v: [i for i, of in enumerate(touched) if v in of] for of in touched for v in of}
    return max(
        sum(values[v].width for v, at in spans.items() if at[0] <= i <= at[-1])
        for i in range(len(steps))
    )


def test_reading_from_a_file_begins_early_where_no_more_memory_is_taken(monkeypatch):
    made = []

    def recorded(steps, first, values):
        made.append((steps, read_ahead(steps, first, values), values))
        return made[-1][1]

    monkeypatch.setattr("gcnmpi.nn.compile.read_ahead", recorded)
    for widths in ([4, 4, 4], [3, 9, 3], [2, 5, 12]):
        settings = {"hidden": widths, "dropout": 0.5}
        left = Residences(0, frozenset(), choices(program_of(settings), repeats=True).written)
        model = from_table({"model": settings}).model
        target = Target(ORDERS, one_layout, residences=left)
        compile_network(network_of(model, 6, 3), target, model)
    assert all(most_columns(a, v) == most_columns(b, v) for a, b, v in made)
    assert any(a != b for a, b, _ in made)


# All configurations.

EITHER = ("bias", "linear_before", "linear_after", "cache_input", "train_features", "root_weight",
          "train_eps", "arc_features", "beta", "concat")  # fmt: skip
OPTIONS = {
    **{key: [True, False] for key in EITHER},
    **{key: [0.0, 0.5] for key in ("dropout", "input_dropout", "attention_dropout")},
    "hidden": [[4], [4, 4], [4, 6, 4]], "norm": ["none", "layer", "batch", "l2"],
    "activation": ["relu", "elu", "gelu", "prelu", "none"], "jk": ["none", "sum", "cat", "max"],
    "residual": ["none", "identity", "linear"], "order": ["auto", "aggregate", "combine"],
    "aggregation": ["mean", "max"], "heads": [1, 2], "hops": [2, 3], "filter_size": [1, 3],
    "kernel_size": [1],
}  # fmt: skip
COMMON = ("bias", "input_dropout", "order", "cache_input", "train_features")
OF_VERTICES = ("gcn", "sage", "gin", "gcnii", "appnp", "sgc", "sign", "mlp")
TARGETS = [  # rows, grids, rotating layouts, batches, and rows that are made again
    Target(ORDERS, one_layout),
    Target(ORDERS, one_layout, whole_rows=False),
    Target(("aggregate",), lambda place: (place.layer + place.aggregated) % 3, whole_rows=False),
    Target(ORDERS, lambda place: place.layer, narrows=True),
    Target(ORDERS, one_layout, residences=Residences(2)),
]


def check_network(network):
    """Streams of random numbers are distinct, and layers are in order."""
    streams = [one.stream for one in network.operators if hasattr(one, "stream")]
    random = [p.stream for p in network.parameters.values() if p.init in ("glorot", "uniform")]
    assert len({*streams}) == len(streams)
    assert len({*random}) == len(random)
    assert all(p.layer >= 1 for p in network.parameters.values())
    for number, operator in enumerate(network.operators):
        assert all(i < number for i in operator.inputs)
        assert operator.layer >= max([network.operators[i].layer for i in operator.inputs] or [0])
    assert network.operators[-1].width == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", list(NETWORKS))
def test_every_configuration_can_be_compiled(name):
    own = {*COMMON, *(key.removeprefix("model.") for key in NETWORKS.keys(name))}
    options = {key: values for key, values in OPTIONS.items() if key in own}
    random, made = Random(3), 0
    for _ in range(1000 if ALL else 8):
        choice = {key: random.choice(values) for key, values in options.items()}
        try:
            model = from_table({"model": {"name": name, **choice}}).model
            network = network_of(model, 4, 3, 2, relations=3)
        except UserError:
            continue  # options that do not go together
        check_network(network)
        for target in TARGETS:
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
    assert made > 10


# Chains of products on columns.


def test_a_chain_takes_two_turns_forward_and_two_back():
    """Powers leave it one by one, and are made once."""
    for name, hops in (("appnp", 2), ("appnp", 10), ("sign", 3)):
        model = from_table({"model": {"name": name, "hops": hops, "hidden": [4]}}).model
        target = Target(ORDERS, one_layout, turns=True)
        program = compile_network(network_of(model, 6, 3), target, model)
        passes = program.constants, program.forward, program.backward
        once, forward, backward = ([step.name for step in steps] for steps in passes)
        if name == "sign":
            assert once.count("multiply") == once.count("to_rows") == 3
            assert once.count("to_columns") == 1
            assert not {"multiply", "to_rows"} & {*forward}
            continue
        assert forward.count("multiply") == backward.count("multiply_t") == hops
        for turn in ("to_columns", "to_rows"):
            assert forward.count(turn) == backward.count(turn) == 1
        assert not {"aggregate", "aggregate_t"} & {*forward, *backward}


# Networks as they are described: parameters and what they refuse.


def network(**model):
    options = from_table({"model": {"hidden": [8, 8]} | model}).model
    return network_of(options, 10, 3, 2, relations=4)


def test_weights_of_several_parts_are_one_array():
    for options, columns in (
        ({"name": "gcn", "jk": "cat", "hidden": [8, 6]}, [8, 6]),
        ({"name": "sign", "hops": 1, "hidden": [5]}, [5, 5]),
    ):
        found = network(**options)
        parts = [p for p in found.parameters.values() if p.part_of == "lin.weight"]
        assert [p.shape for p in parts] == [(c, 3) for c in columns]
        assert {p.fan_in for p in (*parts, found.parameters["lin.bias"])} == {sum(columns)}


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
