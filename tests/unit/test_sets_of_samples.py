"""Sets of samples in the graph folder: what they may be made of, and mistakes in one line."""

import os

import numpy as np
import pytest
from command_line import refused, run
from refusals import refuses
from small_graphs import from_arcs

import gcnmpi
from gcnmpi.options.config import from_table
from gcnmpi.options.frames import Frames, frames_of
from gcnmpi.options.task import SAMPLES, TASKS
from gcnmpi.run.samples.reading import OwnSteps
from partition.graph.graph import Graph
from partition.graph.samples import list_samples, read_samples
from partition.graph.step_ranges import with_columns
from partition.graph.store import open_graph, write_graph

N, STEPS = 5, 20


@pytest.fixture
def graph(tmp_path):
    path = tmp_path / "g.graph"
    write_graph(path, Graph(np.zeros(N + 1, np.int64), np.zeros(0, np.int32)), source={})
    return path


@pytest.fixture
def states():
    return np.random.default_rng(0).normal(size=(STEPS, N, 2))


MISTAKES = [
    ({"ranges": {"train": (0, 9)}}, "ranges are lists of (start, stop)"),
    ({"ranges": {"train": [(0, 9.5)]}}, "ranges are lists of (start, stop)"),
    ({"ranges": {"train": [(0, 9)], "dev": [(9, 12)]}}, "unknown mask of ranges 'dev'"),
    ({"ranges": {"train": [(0, 9), (8, 12)]}}, "step 8 is twice in train"),
    ({"ranges": {"train": [(0, 9)], "val": [(8, 12)]}}, "step 8 is in train and in val"),
    ({"ranges": {"train": [(9, 9)]}}, "9:9 of train is not within the 20 steps"),
    ({"ranges": {"train": [(9, 21)]}}, "9:21 of train is not within the 20 steps"),
    ({"ranges": {"val": [(0, 9)]}}, "no step to train on"),
    ({"states": np.ones((STEPS, N), bool)}, "states are bool, no numbers"),
    ({"states": "states.npy"}, "no numbers"),
    ({"states": np.ones((2, STEPS, N, 1))}, "not (steps, 5, columns)"),
    ({"states": np.ones((0, N, 1))}, "not (steps, 5, columns)"),
    ({"targets": np.ones((STEPS - 1, N, 1))}, "not (20, 5, columns)"),
    ({"states": np.full((STEPS, N, 1), np.inf)}, "states of step 0 have an infinite number"),
    ({"name": "a/b"}, "'a/b' is not a valid name for samples"),
]


def test_mistakes_leave_nothing_behind(graph, states):
    add = gcnmpi.graph.open(graph).add_samples
    for given, says in MISTAKES:
        assert says in refuses(".", add, **{"states": states} | given).message
    assert list_samples(graph) == []


def test_every_type_and_order_of_numbers_is_kept_as_it_is(graph, states):
    made = gcnmpi.graph.open(graph)
    kinds = [states.astype(kind) for kind in (">f4", np.float16, np.longdouble)]
    kinds += [states, np.asfortranarray(states), (9 * states).astype(np.int16), states[:, :, 0]]
    for number, given in enumerate(kinds):
        found = made.add_samples(given, name=f"s{number}")
        np.testing.assert_array_equal(found.states, with_columns(given))
        read_samples(graph, f"s{number}", check=True)


def test_links_are_files_that_ranks_can_read(graph, states, tmp_path):
    """They read rows at places in the file, which are others in Fortran order."""
    for name, given in (("c", states), ("f", np.asfortranarray(states)), ("i", states.astype(int))):
        np.save(file := tmp_path / f"{name}.npy", given)
        run("samples", graph, "--states", file, "--name", name, "--link")
        found = read_samples(graph, name, check=True)
        assert (found.folder / "states.npy").samefile(file) == (name == "c")
        assert found.states.flags.c_contiguous
        np.testing.assert_array_equal(found.states, given)


def test_the_command_tells_mistakes_in_one_line(graph, states, tmp_path):
    np.save(file := tmp_path / "s.npy", states)
    for words, says in (
        (["--name", "../x"], "is not a valid name for samples"),
        (["--train", "0:9", "--split", "0.5,0.2,0.3"], "exclude each other"),
        (["--train", ":9"], "--train takes ranges of steps"),
        (["--split", "7,1,2"], "three shares that add up to 1"),
    ):
        assert says in refused("samples", graph, "--states", file, *words)
    run("samples", graph, "--states", file, "--split", "0.5,0.2,0.3")
    assert read_samples(graph, "samples").ranges["test"] == [(14, 20)]


def test_rows_of_a_graph_with_ids_are_of_vertices_that_are_said(tmp_path):
    ids = [773869, 767541, 767542]  # of the sensors, in the order of the arrays
    (tmp_path / "e.csv").write_text("".join(f"{ids[i]},{ids[i - 1]}\n" for i in range(3)))
    run("import", tmp_path / "e.csv", path := tmp_path / "g.graph")
    (tmp_path / "ids.txt").write_text("".join(f"{name}\n" for name in ids))
    values = np.arange(60.0).reshape(10, 3, 2)
    np.save(file := tmp_path / "s.npy", values)
    told = refused("samples", path, "--states", file)
    assert "767541, 767542, 773869" in told
    assert "--ids sorted" in told
    made = gcnmpi.graph.open(path)
    refuses("--ids", made.add_samples, states=values)
    for said, order in ((tmp_path / "ids.txt", [1, 2, 0]), ("sorted", [0, 1, 2])):
        wanted = values[:, order]
        words = ("--states", file, "--targets", file, "--ids", said, "--force", "--link")
        run("samples", path, *words)
        found = read_samples(path, "samples", check=True)
        np.testing.assert_array_equal(found.states, wanted)
        np.testing.assert_array_equal(found.targets, wanted)
        again = made.add_samples(values, ids=said, name="again", overwrite=True)
        np.testing.assert_array_equal(again.states, wanted)
    found = made.add_samples(values, ids=ids, name="listed")
    np.testing.assert_array_equal(found.states, values[:, [1, 2, 0]])
    refuses("no vertex 9", made.add_samples, states=values, ids=[9, 767541, 767542])


def test_samples_begin_with_their_history_and_columns_have_scales(graph):
    equal, states = np.array([0.1, 0.7, 1 / 3, 1e9 / 3, 2 / 7]), np.empty((20, N, 6))
    states[:, :, 0] = np.arange(20.0)[:, None] + np.arange(N)
    states[:, :, 1:] = equal
    made = gcnmpi.graph.open(graph).add_samples(states, ranges={"train": [(0, 5), (10, 20)]})
    assert made.anchors("train", 3, 2).tolist() == [2, 12, 13, 14, 15, 16, 17]
    assert made.anchors("train", 3, 3).tolist() == [12, 13, 14, 15, 16]
    mean, deviation = made.scales()
    train = states[[*range(5), *range(10, 20)], :, 0]
    np.testing.assert_allclose(mean, [train.mean(), *equal])
    np.testing.assert_allclose(deviation, [train.std(), *[1] * 5])  # of equal numbers it is 1


# Frames over time: their columns, and what options of them do not go together


def task_of(**options):
    return from_table({"task": {"name": "samples", **options}}).task


def test_the_columns_of_features_and_outputs():
    frames = frames_of(task_of(history=3, rollout=4, predicted=2), 6, 5)
    assert frames == Frames(6, 5, 2, history=3, rollout=4)
    assert (frames.features, frames.outputs, frames.given) == (6 + 15 + 9, 8, 3)
    assert (frames.step.features, frames.step.outputs) == (21, 2)
    several = frames_of(task_of(history=2, horizon=12), 0, 1)
    assert (several.features, several.outputs) == (2, 12)


def test_options_that_do_not_go_together_are_one_line():
    for options, told in (
        ({"horizon": 2, "rollout": 2}, "one frame at once"),
        ({"rollout_gradient": "last"}, "applied once"),
        ({"on": "arcs"}, "vertices"),
        ({"history": 0}, "task.history"),
    ):
        refuses(told, task_of, **options)
    refuses("a frame has 2 columns", frames_of, task_of(predicted=3), 0, 2)


def test_a_folder_without_samples_is_told_so(tmp_path):
    write_graph(path := tmp_path / "g.graph", from_arcs(3, []), source={})
    refuses("has no samples", TASKS.get(SAMPLES).labels, open_graph(path), task_of())


def test_a_file_of_states_that_is_cut_off_or_gone_is_said(tmp_path):
    file = tmp_path / "states.npy"
    np.save(file, np.arange(60.0).reshape(5, 4, 3))
    array, rows = np.load(file, mmap_mode="r"), np.array([3, 0])
    steps = OwnSteps(file, array, rows)
    np.testing.assert_array_equal(steps.read(4), array[4, rows])
    os.truncate(file, file.stat().st_size - 8)
    refuses("ends within step 4", steps.read, 4)
    file.unlink()
    refuses("cannot read", OwnSteps, file, array, rows)
