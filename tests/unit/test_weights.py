"""The file of weights: which network it is of, and what contradicts it."""

import dataclasses
import zipfile
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from foreign_networks import FOREIGN
from refusals import refuses

from gcnmpi.nn.describe import network_of
from gcnmpi.nn.initial import initial
from gcnmpi.nn.state import ends_of, from_gcn, to_parameters, to_state
from gcnmpi.options.config import from_table, read_config
from gcnmpi.run.weights import Weights, as_trained, check_parameters, of_relations, read_weights
from gcnmpi.run.weights_file import read_facts, task_of, write_weights
from partition.graph.relations import NO_SCHEMA, Relation
from partition.tensor_files import read_tensors

STATE = {
    "convs.0.lin.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "convs.0.bias": np.ones(2, np.float32),
    "convs.1.lin.weight": np.ones((4, 2), np.float32),
    "convs.1.bias": np.ones(4, np.float32),
}
FACTS = {
    "format": "gcnmpi-weights", "version": 1, "activation": "relu", "widths": [3, 2, 4],
    "model": {"name": "gcn", "hidden": [2], "bias": True, "train_features": False},
    "graph": {"normalize": "row", "direction": "out", "self_loops": False, "feature_norm": "row"},
}  # fmt: skip
CONFIG = from_table({})


def changed(**values):
    """The facts with others in their place; those that are None left out."""
    return {name: value for name, value in (FACTS | values).items() if value is not None}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "w.npz"


def test_a_file_is_an_npz_that_says_which_network_it_is_of(path):
    write_weights(path, STATE, FACTS)
    with np.load(path, allow_pickle=False) as arrays:
        assert sorted(arrays) == sorted(STATE)
        for name, array in STATE.items():
            np.testing.assert_array_equal(arrays[name], array)
    assert read_facts(path) == FACTS
    weights = read_weights(path, CONFIG)
    assert (weights.described, weights.widths) == (True, (3, 2, 4))
    config = as_trained(weights, CONFIG, (), "in")
    assert dataclasses.asdict(config.graph) == FACTS["graph"]
    assert config.model.hidden == (2,)
    names = tuple(letter * 20_000 for letter in "abcd")  # more than the comment of an archive takes
    write_weights(path, STATE, changed(class_names=names))
    weights = read_weights(path, CONFIG)
    assert (weights.classes, weights.parameters.keys()) == (names, STATE.keys())


def test_a_decoder_finds_its_rows_of_relations_by_their_names(path):
    links = {"name": "links", "decoder": "distmult", "decoder_relations": 3}
    task = from_table({"task": links}).task
    rows = {"decoder.relation": np.arange(6.0).reshape(3, 2)}
    made = Weights(path, rows, (2, 2), 0, NO_SCHEMA, {}, True, relations=("a", "b", "c"))

    def found(*names):
        graph = SimpleNamespace(relations=tuple(Relation("v", name, "v") for name in names))
        stored = SimpleNamespace(graph=graph, pairs=SimpleNamespace(), path=path)
        return of_relations(made, stored, task).parameters["decoder.relation"][:, 0].tolist()

    assert (found("a", "b", "c"), found("c", "a")) == ([0, 2, 4], [4, 0, 2])
    refuses("relations that .* does not know: d", found, "a", "d")


def test_what_contradicts_the_weights_is_refused(path):
    write_weights(path, STATE, FACTS)
    for setting, says in (
        ("graph.normalize=sym", 'graph.normalize = "sym" here, .* with "row"'),
        ("graph.direction=auto", 'graph.direction = "in" here, .* with "out"'),
        ("model.hidden=[16]", r"model.hidden = \[16\] here, .* with \[2\]"),
        ("model.bias=false", "model.bias = false here"),
    ):
        config, given = read_config(None, [setting])
        refuses(says, as_trained, read_weights(path, config), config, given, "in")


def test_the_task_is_that_of_the_weights(path):
    links, classes = {"name": "links", "objective": "softmax", "width": 4}, {"name": "classes"}
    for task, settings, found in (
        ({"name": "labels"}, [], {"name": "labels"}),
        (None, ["task.name=labels"], {"name": "labels"}),  # earlier versions do not say it,
        (None, [], classes),
        (links, ["task.objective=softmax"], {"objective": "softmax"}),
        ({"name": "links"}, ["task.objective=softmax"], {"objective": "softmax"}),  # nor that
        (links, ["task.objective=auc"], r'task.objective = "auc" here, .* with "softmax"'),
        ({"name": "regression"}, ["task.name=labels"],
         r'task.name = "labels" here, .* with "regression"'),
    ):  # fmt: skip
        write_weights(path, STATE, changed(task=task))
        under = task_of(path) if task and task["name"] == "links" else {}
        assert not under or under == {f"task.{key}": value for key, value in task.items()}
        config, given = read_config(None, settings, under=under)
        facts = read_weights(path, config), config, given, "in"
        if isinstance(found, str):
            refuses(found, as_trained, *facts)
        else:
            taken = vars(as_trained(*facts).task)
            assert {key: taken.get(key, "classes") for key in found} == found


def test_what_this_program_does_not_compute_is_refused(path):
    for facts, says in (
        (changed(task={"name": "guess"}), "unknown task.name 'guess'"),
        (changed(activation="elu"), "activation elu, here it is relu"),
        (changed(activation=None, model={"name": "gcn", "activation": "swish"}), "'swish'"),
        (changed(model={"name": "cheb"}), "unknown model.name 'cheb'"),
        (changed(model={"name": "gcn", "hidden": [3]}), "damaged: its arrays are not"),
        (changed(model={"name": "gcn", "hidden": [2], "bias": False}), "'convs.0.bias' is not a"),
        (changed(widths=[3, 2, 5]), r"convs.1.lin.weight is float32 \(4, 2\), .* is \(5, 2\)"),
        (changed(widths=None), r"w\.npz is damaged: .*widths"),
        (changed(arc_features=-1), r"damaged: .*arc_features"),
        (changed(relations=[["a", "b"]]), r"damaged: .*relations"),
        (changed(class_names=["a", "b"]), "its names are not those of its columns: a, b"),
        (changed(version=2), "format version 2, this program reads 1"),
    ):
        write_weights(path, STATE, facts)
        refuses(says, read_weights, path, CONFIG)


def test_a_file_that_is_cut_off_is_not_taken_for_one_that_says_nothing(path):
    write_weights(path, STATE, FACTS)
    raw = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        said = len(archive.comment)
    for missing in (1, said // 2, said, said + 1):
        path.write_bytes(raw[:-missing])
        refuses(r"w\.npz is (truncated or )?damaged", read_weights, path, CONFIG)
    path.write_bytes(raw[:-1] + b" ")
    refuses("what it says of its network", read_weights, path, CONFIG)


def test_parameters_are_those_of_the_network_and_no_others(path):
    write_weights(path, STATE, FACTS)
    weights = read_weights(path, CONFIG)
    arrays = dict(weights.parameters)
    network = network_of(as_trained(weights, CONFIG, (), "in").model, 3, 4)
    check_parameters(weights, network)
    for name, array in (("convs.2.lin.weight", np.ones((4, 4))), ("convs.0.bias", np.ones(3))):
        other = dataclasses.replace(weights, parameters=arrays | {name: array})
        refuses(name, check_parameters, other, network)
    for value in (np.nan, np.inf, 1e300):
        write_weights(path, STATE | {"convs.0.bias": np.array([0, value])}, FACTS)
        says = r"convs\.0\.bias is not all finite numbers of float32"
        refuses(says, read_weights, path, CONFIG)
    read_weights(path, from_table({"dtype": "float64"}))


# Names and shapes of PyTorch Geometric, both ways.

# Shapes that differ, so that nothing fits by chance.
MODELS = {
    "gcn": {"hidden": [4, 5], "norm": "batch", "jk": "cat"},
    "sage": {"hidden": [4], "residual": "linear", "norm": "layer", "activation": "prelu"},
    "gin": {"hidden": [4], "eps": 0.1, "norm": "batch", "bias": False},
    "gat": {"hidden": [4, 4], "heads": 2, "out_heads": 3},
    "gatv2": {"hidden": [4, 4], "heads": 4, "linear_after": True},
    "gcnii": {"hidden": [4], "layers": 3},
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
    "mgn": {"hidden": [4, 4], "bias": False},
}


def config_of(name):
    return from_table({"model": {"name": name.split()[0]} | (MODELS | OF_ARCS)[name]})


def weights_of(network):
    return {name: initial(p, 3) for name, p in network.parameters.items()}


@pytest.mark.parametrize("name", [*MODELS, *OF_ARCS])
def test_parameters_come_back(name):
    model = config_of(name).model
    network = network_of(model, 7, 3, 2)
    arrays = weights_of(network)
    state = to_state(network, arrays)
    found = to_parameters(network, state)
    assert found.keys() == arrays.keys()
    for key, array in arrays.items():
        assert found[key].flags.c_contiguous
        np.testing.assert_array_equal(found[key], array)
    assert ends_of(partial(network_of, model), state) == (7, 3, 2 * (name in OF_ARCS))


def test_a_constant_may_be_missing_and_nothing_else(tmp_path):
    network = network_of(config_of("gin").model, 7, 3)
    state = to_state(network, weights_of(network))
    assert state["convs.1.eps"].tolist() == [0.1]
    short = {name: array for name, array in state.items() if not name.endswith("eps")}
    counted = short | {"norms.0.module.num_batches_tracked": np.array(9)}
    assert to_parameters(network, counted).keys() == network.parameters.keys()
    says = r"convs.0.eps is \[0.2\], the network's is \[0.1\]"
    refuses(says, to_parameters, network, state | {"convs.0.eps": np.array([0.2])})
    network = network_of(config_of("gat").model, 7, 3)
    state = to_state(network, weights_of(network))
    for change, says in (
        ({"convs.0.att_src": None}, "convs.0.att_src is missing"),
        ({"convs.0.att_src": np.ones((1, 4, 1))}, r"is float64 \(1, 4, 1\), the network's is"),
        ({"convs.0.att_edge": np.ones((1, 2, 2))}, "'convs.0.att_edge' is not a parameter"),
    ):
        given = {name: a for name, a in (state | change).items() if a is not None}
        refuses(says, to_parameters, network, given)
    towers = read_tensors(FOREIGN / "pna-towers.pt")
    towers["convs.1.pre_nns.0.0.weight"] = np.ones((2, 6))  # of a third of the columns
    for config, given, says in (
        (config_of("mlp"), state, "not those of the configured mlp"),
        (CONFIG, state, r"is not a weight of a GCNConv layer\n.* model.name=NAME .* gat,"),
        (CONFIG, state | {"convs.0.att_src": np.ones(3)}, "GCNConv layer\n.*describe the network"),
        (config_of("pna"), towers, "train it with divide_input=False"),
    ):
        np.savez(tmp_path / "w.npz", **given)
        refuses(says, read_weights, tmp_path / "w.npz", config)


def test_other_names_are_taken_in_the_order_of_their_numbers():
    for before, first in (("conv", 1), ("convs.", 1), ("model.convs.", 0), ("gcn_", 0)):
        names = [f"{before}{k + first}.{rest}" for k in (0, 1) for rest in ("lin.weight", "bias")]
        given = dict(zip(reversed(names), reversed(STATE.values()), strict=True))
        found = from_gcn(given)
        assert all(found[name] is array for name, array in STATE.items())


def test_weights_that_are_not_a_stack_of_convolutions():
    def weights(*layers, shape=(2, 2)):
        return {f"convs.{k}.lin.weight": np.ones(shape) for k in layers}

    for state, says in (
        ({}, "no GCNConv layers"),
        ({"lin.weight": np.ones((2, 2))}, "'lin.weight' is not a weight"),
        (weights(0) | {"convs.0.bias": np.ones(3)}, "do not fit"),
        ({"conv1.lin.weight": np.ones((2, 3)), "conv1.att_src": np.ones((1, 2))}, "att_src"),
        (weights("0", "01"), "01"),
        (weights(0) | {"other.0.bias": np.ones(2)}, "two stacks of"),
        # The width of what is left out is that of its neighbours.
        (weights(0, 2), "layer 1 of the weights is"),
        (weights(2, 3), "layer 1 of the weights is"),
        (weights(0, 1, shape=(2, 3)), "shapes of layer 1"),
        (weights(0, 1) | {"convs.0.bias": np.ones(2)}, "only some have a bias"),
    ):
        refuses(says, from_gcn, state)
