"""Frames over time: their columns, and what options of them do not go together."""

import os

import numpy as np
from refusals import refuses
from small_graphs import from_arcs

from gcnmpi.options.config import from_table
from gcnmpi.options.frames import Frames, frames_of
from gcnmpi.options.task import SAMPLES, TASKS
from gcnmpi.run.samples.reading import OwnSteps
from partition.graph.store import open_graph, write_graph


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
