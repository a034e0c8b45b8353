"""Networks: their operators, parameters and what they refuse."""

import pytest
from refusals import refuses

from gcnmpi.nn.describe import graph_of, matrix_of, network_of
from gcnmpi.options.config import from_table
from gcnmpi.options.model import NETWORKS


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
