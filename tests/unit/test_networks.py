"""Networks: their operators, parameters and what they refuse."""

import pytest
from refusals import refuses

from gcnmpi.nn.describe import graph_of, matrix_of, network_of
from gcnmpi.nn.network import Builder
from gcnmpi.nn.operator import Finish, Operator
from gcnmpi.nn.operators import RULES
from gcnmpi.nn.operators.dense import Features
from gcnmpi.nn.operators.elementwise import Drop
from gcnmpi.nn.operators.inserted import Move, ToColumns, ToRows
from gcnmpi.nn.operators.neighbours import Multiply
from gcnmpi.options.config import from_table, load_config
from gcnmpi.options.model import NETWORKS
from gcnmpi.proof import rules


def network(**model):
    if model.get("name") not in ("sgc",):
        model.setdefault("hidden", [8, 8])
    return network_of(from_table({"model": model}).model, 10, 3, 2, relations=4)


def kinds(found):
    return [type(operator).__name__ for operator in found.operators]


def shapes(found):
    return {name: p.stored or p.shape for name, p in found.parameters.items()}


def test_a_gcn_is_what_it_always_was():
    found = network(name="gcn", dropout=0.5, input_dropout=0.4)
    assert kinds(found) == [
        "Features", "Drop",
        "Aggregate", "Linear", "Bias", "Activate", "Drop",
        "Aggregate", "Linear", "Bias", "Activate", "Drop",
        "Aggregate", "Linear", "Bias",
    ]  # fmt: skip
    drops = [o for o in found.operators if isinstance(o, Drop)]
    assert [(o.p, o.stream) for o in drops] == [(0.4, 0), (0.5, 1), (0.5, 2)]
    weights = [p for p in found.parameters.values() if p.is_weight]
    assert [(p.name, p.stream, p.layer, p.init) for p in weights] == [
        (f"convs.{k - 1}.lin.weight", k, k, "glorot") for k in (1, 2, 3)
    ]
    assert (found.widths, found.depth) == ((10, 8, 8, 3), 3)


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


def test_the_stack():
    found = network(name="sage", norm="batch", residual="identity", activation="elu", jk="sum")
    assert kinds(found)[:7] == [
        "Features", "Aggregate", "Linear", "Bias", "Linear", "Add", "BatchNorm"
    ]  # fmt: skip
    assert len(found.outputs) == 3
    assert found.parameters["norms.1.module.running_var"].init == "1"
    assert not found.parameters["norms.1.module.running_var"].trained
    assert "residuals.0.weight" in network(name="sage", residual="linear").parameters
    # The bare last layer, and none that is bare.
    assert kinds(network(name="gcn", norm="layer"))[-1] == "Bias"
    after = network(name="gcn", linear_after=True, linear_before=True)
    assert "convs.2.lin.weight" not in after.parameters
    assert {"lin_in.weight", "lin.weight"} <= set(after.parameters)


def test_a_number_of_layers():
    assert load_config(None, ["model.layers=4", "model.hidden=6,5"]).model.hidden == (6, 5, 5, 5)
    refuses("gives 2 widths", load_config, None, ["model.layers=1", "model.hidden=6,5"])
    found = network(name="gcnii", hidden=[8], layers=3)
    assert found.depth == 3
    assert found.parameters["convs.2.weight1"].stored is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "gcn", "residual": "identity", "hidden": [4]}, "no layer is as wide"),
        ({"name": "gat", "heads": 3}, "not a multiple of model.heads = 3"),
        ({"name": "gcn", "jk": "sum", "hidden": [4, 5]}, "of one width"),
        ({"name": "gcn", "jk": "cat", "hidden": []}, "needs hidden layers"),
        ({"name": "gcn", "linear_before": True, "hidden": []}, "there is no hidden layer"),
        ({"name": "gcnii", "hidden": [4, 5]}, "all of one width"),
        ({"name": "sign"}, "one hidden layer"),
    ],
)
def test_what_cannot_be_built_is_refused(options, message):
    refuses(message, network, **options)


def test_functions_that_there_are_not():
    b = Builder(4)
    refuses("unknown activation 'tan'", b.activate, b.input, "tan")
    refuses("unknown function of arcs 'sun'", b.reduce, b.source(b.input), "sun")


@pytest.mark.parametrize(
    ("name", "key"),
    [("gat", "graph.normalize=sym"), ("sgc", "model.hidden=4"), ("gcn", "model.heads=2")],
)
def test_options_of_other_networks_are_refused(name, key):
    refuses("is an option of model", load_config, None, [f"model.name={name}", key])


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


def every_kind(of):
    """The classes of operators that have no others below them."""
    below = of.__subclasses__()
    return [kind for one in below for kind in every_kind(one)] if below else [of]


def test_every_operator_has_a_rule_and_one_of_the_oracle():
    for kind in every_kind(Operator):
        described = kind((0,), 4, 1)
        assert type(described.as_finish()) in RULES, kind
        inserted = Finish, Move, Multiply, ToColumns, ToRows  # by the compiler
        made = kind in (*inserted, Features)
        assert made or kind in rules.RULES, kind
