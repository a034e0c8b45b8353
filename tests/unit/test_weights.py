"""The file of weights: which network it is of, and what contradicts it."""

import dataclasses
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refuses

from gcnmpi.nn.describe import network_of
from gcnmpi.options.config import from_table, read_config
from gcnmpi.run.weights import Weights, as_trained, check_parameters, of_relations, read_weights
from gcnmpi.run.weights_file import read_facts, task_of, write_weights
from partition.graph.relations import NO_SCHEMA, Relation

STATE = {
    "convs.0.lin.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "convs.0.bias": np.ones(2, np.float32),
    "convs.1.lin.weight": np.ones((4, 2), np.float32),
    "convs.1.bias": np.ones(4, np.float32),
}
FACTS = {
    "format": "gcnmpi-weights",
    "version": 1,
    "model": {"name": "gcn", "hidden": [2], "bias": True, "train_features": False},
    "activation": "relu",
    "widths": [3, 2, 4],
    "graph": {"normalize": "row", "direction": "out", "self_loops": False, "feature_norm": "row"},
}
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
    assert weights.described
    assert weights.widths == (3, 2, 4)
    config = as_trained(weights, CONFIG, (), "in")
    assert dataclasses.asdict(config.graph) == FACTS["graph"]
    assert config.model.hidden == (2,)


def test_a_decoder_finds_its_rows_of_relations_by_their_names(path):
    task = from_table(
        {"task": {"name": "links", "decoder": "distmult", "decoder_relations": 3}}
    ).task
    rows = {"decoder.relation": np.arange(6.0).reshape(3, 2)}
    made = Weights(path, rows, (2, 2), 0, NO_SCHEMA, {}, True, relations=("a", "b", "c"))

    def found(*names):
        graph = SimpleNamespace(relations=tuple(Relation("v", name, "v") for name in names))
        stored = SimpleNamespace(graph=graph, pairs=SimpleNamespace(), path=path)
        return of_relations(made, stored, task).parameters["decoder.relation"][:, 0].tolist()

    assert (found("a", "b", "c"), found("c", "a")) == ([0, 2, 4], [4, 0, 2])
    refuses("relations that .* does not know: d", found, "a", "d")


def test_a_file_of_another_program_gives_what_its_arrays_show(path):
    np.savez(path, **{name: array for name, array in STATE.items() if "bias" not in name})
    config, given = read_config(None, ["graph.normalize=none"])
    weights = read_weights(path, config)
    assert not weights.described
    taken = as_trained(weights, config, given, "in")
    assert (taken.model.hidden, taken.model.bias) == ((2,), False)
    assert taken.graph == config.graph


def test_what_contradicts_the_weights_is_refused(path):
    for setting, says in (
        ("graph.normalize=sym", 'graph.normalize = "sym" here, .* with "row"'),
        ("graph.direction=auto", 'graph.direction = "in" here, .* with "out"'),
        ("graph.self_loops=true", "graph.self_loops = true here"),
        ("model.hidden=[16]", r"model.hidden = \[16\] here, .* with \[2\]"),
        ("model.bias=false", "model.bias = false here"),
    ):
        write_weights(path, STATE, FACTS)
        config, given = read_config(None, [setting])
        refuses(says, as_trained, read_weights(path, config), config, given, "in")


def test_the_task_is_that_of_the_weights(path):
    links, classes = {"name": "links", "objective": "softmax", "width": 4}, {"name": "classes"}
    for task, settings, found in (
        ({"name": "labels"}, [], {"name": "labels"}),
        ({"name": "labels"}, ["task.name=labels"], {"name": "labels"}),
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
        (changed(widths=None), "does not name the widths"),
        (changed(arc_features=-1), "does not say which features of arcs"),
        (changed(relations=[["a", "b"]]), "does not say which relations"),
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


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_weights_that_are_no_finite_numbers_are_refused(path, value):
    bias = np.array([0, value])
    write_weights(path, STATE | {"convs.0.bias": bias}, FACTS)
    refuses(r"convs\.0\.bias is not all finite numbers of float32", read_weights, path, CONFIG)
    if np.isfinite(value):
        read_weights(path, from_table({"dtype": "float64"}))


def test_parameters_are_those_of_the_network_and_no_others(path):
    write_weights(path, STATE, FACTS)
    weights = read_weights(path, CONFIG)
    arrays = dict(weights.parameters)
    network = network_of(as_trained(weights, CONFIG, (), "in").model, 3, 4)
    check_parameters(weights, network)
    for name, array in (("convs.2.lin.weight", np.ones((4, 4))), ("convs.0.bias", np.ones(3))):
        other = dataclasses.replace(weights, parameters=arrays | {name: array})
        refuses(name, check_parameters, other, network)
