"""Parameters under the names and in the shapes of PyTorch Geometric, both ways."""

import tomllib
from functools import partial

import numpy as np
import pytest
from foreign_networks import FOREIGN, NETWORKS
from refusals import refuses

from gcnmpi.nn.describe import network_of
from gcnmpi.nn.initial import initial
from gcnmpi.nn.spellings import guessed, spelled
from gcnmpi.nn.state import ends_of, from_gcn, to_parameters, to_state
from gcnmpi.options.config import from_table, load_config
from gcnmpi.run.weights import read_weights
from partition.errors import UserError
from partition.tensor_files import read_tensors

# Shapes that differ, so that nothing fits by chance.
MODELS = {
    "gcn": {"hidden": [4, 5], "norm": "batch", "jk": "cat"},
    "sage": {"hidden": [4], "residual": "linear", "norm": "layer", "activation": "prelu"},
    "gin": {"hidden": [4], "eps": 0.1, "norm": "batch"},
    "gat": {"hidden": [4, 4], "heads": 2, "out_heads": 3},
    "gatv2": {"hidden": [4, 4], "heads": 4, "linear_after": True},
    "gcnii": {"hidden": [4], "layers": 3},
    "appnp": {"hidden": [6, 4]},
    "sgc": {},
    "sign": {"hidden": [4], "hops": 2},
    "mlp": {"hidden": [6, 6], "residual": "identity", "norm": "layer"},
}
OF_ARCS = {
    "gine": {"hidden": [4]},
    "gat arcs": {"hidden": [4], "heads": 2, "arc_features": True},
    "gatv2 arcs": {"hidden": [4], "heads": 2, "arc_features": True},
    "transformer": {"hidden": [6], "heads": 2, "arc_features": True, "beta": True},
    "gatedgcn": {"hidden": [4], "arc_features": True},
    "pna": {"hidden": [6], "towers": 3, "arc_features": True},
    "mgn": {"hidden": [4, 4]},
}


def config_of(name):
    return from_table({"model": {"name": name} | MODELS[name]})


def weights_of(network):
    return {name: initial(p, 3) for name, p in network.parameters.items()}


@pytest.mark.parametrize("name", [*MODELS, *OF_ARCS])
def test_parameters_come_back(name):
    options = (MODELS | OF_ARCS)[name]
    model = from_table({"model": {"name": name.split()[0]} | options}).model
    network = network_of(model, 7, 3, 2)
    arrays = weights_of(network)
    state = to_state(network, arrays)
    found = to_parameters(network, state)
    assert found.keys() == arrays.keys()
    for key, array in arrays.items():
        assert found[key].flags.c_contiguous
        np.testing.assert_array_equal(found[key], array)
    assert ends_of(partial(network_of, model), state) == (7, 3, 2 * (name in OF_ARCS))


def test_a_constant_may_be_missing_but_not_another_one():
    network = network_of(config_of("gin").model, 7, 3)
    state = to_state(network, weights_of(network))
    assert state["convs.1.eps"].tolist() == [0.1]
    short = {name: array for name, array in state.items() if not name.endswith("eps")}
    counted = short | {"norms.0.module.num_batches_tracked": np.array(9)}
    assert to_parameters(network, counted).keys() == network.parameters.keys()
    with pytest.raises(UserError, match=r"convs.0.eps is \[0.2\], the network's is \[0.1\]"):
        to_parameters(network, state | {"convs.0.eps": np.array([0.2])})


def test_what_does_not_fit_is_refused():
    for change, says in (
        ({"convs.0.att_src": None}, "convs.0.att_src is missing"),
        ({"convs.0.att_src": np.ones((1, 4, 1))}, r"is float64 \(1, 4, 1\), the network's is"),
        ({"convs.0.att_edge": np.ones((1, 2, 2))}, "'convs.0.att_edge' is not a parameter"),
    ):
        network = network_of(config_of("gat").model, 7, 3)
        state = to_state(network, weights_of(network)) | change
        refuses(says, to_parameters, network, {n: a for n, a in state.items() if a is not None})


def test_a_file_of_another_network_than_is_configured_is_refused(tmp_path):
    network = network_of(config_of("gat").model, 7, 3)
    np.savez(tmp_path / "w.npz", **to_state(network, weights_of(network)))
    refuses("not those of the configured mlp", read_weights, tmp_path / "w.npz", config_of("mlp"))
    refuses("is not a weight of a GCNConv layer", read_weights, tmp_path / "w.npz", load_config())


# Stacks of GCNConv layers under names of another program.


def test_other_names_are_taken_in_the_order_of_their_numbers():
    for names in (
        ("conv1.lin.weight", "conv1.bias", "conv2.lin.weight", "conv2.bias"),
        ("convs.1.lin.weight", "convs.1.bias", "convs.2.lin.weight", "convs.2.bias"),
        ("model.convs.0.lin.weight", "model.convs.0.bias", "model.convs.1.lin.weight",
         "model.convs.1.bias"),
        ("gcn_0.lin.weight", "gcn_0.bias", "gcn_1.lin.weight", "gcn_1.bias"),
    ):  # fmt: skip
        arrays = (np.ones((3, 2)), np.ones(3), np.ones((4, 3)), np.ones(4))
        state = dict(reversed(list(zip(names, arrays, strict=True))))
        shapes = {name: array.shape for name, array in from_gcn(state).items()}
        assert shapes == {
            "convs.0.lin.weight": (3, 2), "convs.0.bias": (3,),
            "convs.1.lin.weight": (4, 3), "convs.1.bias": (4,),
        }  # fmt: skip


def test_weights_that_are_not_a_stack_of_convolutions():
    for state, says in (
        ({}, "no GCNConv layers"),
        ({"lin.weight": np.ones((2, 2))}, "'lin.weight' is not a weight"),
        ({"convs.0.bias": np.ones(2)}, "a bias but no weight"),
        ({"convs.0.lin.weight": np.ones((2, 3)), "convs.0.bias": np.ones(3)}, "do not fit"),
        ({"conv1.lin.weight": np.ones((2, 3)), "conv1.att_src": np.ones((1, 2))}, "att_src"),
        ({"convs.0.lin.weight": np.ones((2, 3)), "convs.01.lin.weight": np.ones((2, 2))}, "01"),
        ({"convs.0.lin.weight": np.ones((2, 3)), "other.0.bias": np.ones(2)}, "two stacks of"),
        # The width of what is left out is that of its neighbours.
        ({f"convs.{k}.lin.weight": np.ones((2, 2)) for k in (0, 2)}, "layer 1 of the weights is"),
        ({f"convs.{k}.lin.weight": np.ones((2, 2)) for k in (2, 3)}, "layer 1 of the weights is"),
        ({f"convs.{k}.lin.weight": np.ones((2, 3)) for k in (0, 1)}, "shapes of layer 1"),
        (
            {f"convs.{k}.lin.weight": np.ones((2, 2)) for k in (0, 1)}
            | {"convs.0.bias": np.ones(2)},
            "only some have a bias",
        ),
    ):
        refuses(says, from_gcn, state)


# TransformerConv has the weight of the vertex itself whether it reads it or not, and heads that are
# concatenated are columns as any.
UNSEEN = {"transformer-plain": ["root_weight", "heads"], "pna-towers": ["scalers"]}


@pytest.mark.parametrize("case", sorted(NETWORKS))
def test_names_and_shapes_show_the_network(case):
    """All of it but what has no array."""
    described = tomllib.loads(NETWORKS[case])["model"]
    unseen = {"hidden": tuple(described.pop("hidden"))}
    expected = {k: v for k, v in described.items() if v not in ("none", "elu", "max")} | unseen
    found = guessed(spelled(read_tensors(FOREIGN / f"{case}.pt")).arrays)
    for name in UNSEEN.get(case, ()):
        del expected[name]
    if described.get("jk") == "max":  # as a linear layer after the last one
        assert found.pop("linear_after")
    if found.get("linear_after"):
        expected.pop("out_heads", None)
    assert found == expected
