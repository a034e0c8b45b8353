"""Targets and several splits in a graph folder: how they are read, checked and shown."""

from dataclasses import replace

import numpy as np
from refusals import refuses
from small_graphs import from_arcs

from partition.graph.content import data_id
from partition.graph.examples import known_rows, training_rows
from partition.graph.graph import of_split
from partition.graph.store import open_graph, write_graph
from partition.importing.vertex_data import VertexFiles, attach

NAN = np.nan
N = 6
GRAPH = from_arcs(N, [(0, 1), (1, 2), (4, 5)])
TARGETS = np.array([[1, 0], [0, NAN], [NAN, NAN], [1, 1], [0, 0], [NAN, 1]])


def saved(path, array):
    np.save(path, array)
    return path


def test_targets_are_kept_as_float32_where_that_loses_nothing(tmp_path):
    for dtype in (np.float64, np.float32, bool, np.int64):
        values = np.nan_to_num(TARGETS).astype(dtype)
        graph = attach(GRAPH, VertexFiles(targets=saved(tmp_path / "t.npy", values)))
        assert graph.targets.dtype == np.float32
        np.testing.assert_array_equal(graph.targets, values)
    values = np.array([0.1, NAN, 3, 4, 5, 1e300])  # all digits, and a vector is a column
    graph = attach(GRAPH, VertexFiles(targets=saved(tmp_path / "t.npy", values)))
    assert graph.targets.dtype == np.float64
    np.testing.assert_array_equal(graph.targets[:, 0], values)
    (tmp_path / "t.csv").write_text("id,a,b\n5,nan,1\n4,0,0\n3,1,1\n2,nan,nan\n1,0,nan\n0,1,0\n")
    np.savez(tmp_path / "t.npz", y=TARGETS, other=np.zeros(3))
    for name in ("t.csv", "t.npz"):
        graph = attach(GRAPH, VertexFiles(targets=tmp_path / name))
        np.testing.assert_array_equal(graph.targets, TARGETS)


def test_other_targets_are_refused(tmp_path):
    for values, says in (
        (np.zeros(5), "has 5 rows, the graph has 6 vertices"),
        (np.full((6, 2), np.inf), "target 0 of vertex 0 is infinite"),
        (np.array(["a"] * 6), "targets are rows of numbers"),
        (np.zeros((6, 0)), "targets are rows of numbers"),
        (np.zeros((6, 2, 2)), "targets are rows of numbers"),
    ):
        refuses(says, attach, GRAPH, VertexFiles(targets=saved(tmp_path / "t.npy", values)))
    for values in (TARGETS, np.array([0.5, 1, 1, 1, 1, 1])):
        caught = refuses(".", attach, GRAPH, VertexFiles(labels=saved(tmp_path / "l.npy", values)))
        assert "--targets" in caught.hint


def test_a_folder_keeps_targets_and_splits(tmp_path):
    train = np.zeros((N, 3), bool)
    train[[0, 1, 3], [0, 1, 2]] = True
    test = np.arange(N) == 5
    masks = {"train": saved(tmp_path / "train.npy", train.astype(int))}
    masks["test"] = saved(tmp_path / "test.npy", test)
    files = VertexFiles(targets=saved(tmp_path / "t.npy", TARGETS), masks=masks)
    graph = attach(GRAPH, files)
    manifest = write_graph(tmp_path / "g.graph", graph, source={})
    assert (manifest.targets, manifest.splits, manifest.classes) == (2, 3, 0)
    stored = open_graph(tmp_path / "g.graph").graph
    np.testing.assert_array_equal(stored.targets, TARGETS)
    np.testing.assert_array_equal(stored.masks["train"], train)
    for split in range(3):
        masks = of_split(stored, split).masks
        np.testing.assert_array_equal(masks["train"], train[:, split])
        np.testing.assert_array_equal(masks["test"], test)
    for split in (3, -1):
        refuses(rf"no split {split}: the masks have 3", of_split, stored, split)
    assert known_rows(stored).tolist() == [True, True, False, True, True, True]
    assert np.flatnonzero(training_rows(stored)).tolist() == [0]
    # All of it is in the hash.
    for change in ({"targets": TARGETS + 1}, {"masks": {**graph.masks, "train": ~train}}):
        assert data_id(replace(graph, **change)) != manifest.data_id
    for damaged, says in ((TARGETS + np.inf, "that is infinite"), (TARGETS[:, :1], "asks for")):
        np.save(tmp_path / "g.graph" / "targets.npy", damaged)
        refuses(says, open_graph, tmp_path / "g.graph")


def test_a_mask_of_each_split_in_a_file_of_its_own(tmp_path):
    masks = [np.arange(N) == k for k in range(3)]
    for k, mask in enumerate(masks):
        np.save(tmp_path / f"m-{k}.npy", mask)
    np.save(tmp_path / "m-5.npy", masks[0])  # there is no 3 and no 4
    labels = saved(tmp_path / "l.npy", np.arange(N) % 2)
    graph = attach(GRAPH, VertexFiles(labels=labels, masks={"train": tmp_path / "m-*.npy"}))
    np.testing.assert_array_equal(graph.masks["train"], np.stack(masks, axis=1))
    np.save(tmp_path / "m-1.npy", np.zeros((N, 2), bool))
    for name, says in (("x", r"there is no .*x-0.npy"), ("m", "is one of several files")):
        files = VertexFiles(labels=labels, masks={"train": tmp_path / f"{name}-*.npy"})
        refuses(says, attach, GRAPH, files)


def test_masks_of_splits_are_checked(tmp_path):
    targets, eye = saved(tmp_path / "t.npy", TARGETS), np.eye(N, 2, dtype=bool)
    for train, val, says in (
        (np.full((N, 2), 2), None, "several splits holds bool, or 0 and 1"),
        (np.zeros((N, 2), bool), np.zeros((N, 3), bool), "numbers of splits: train 2, val 3"),
        (eye, eye, "of split 0 have 1 vertices in"),
        (np.tile(np.arange(N) == 2, (2, 1)).T, None, "has vertex 2, which has no label"),
    ):
        files = {"train": saved(tmp_path / "train.npy", train)}
        if val is not None:
            files["val"] = saved(tmp_path / "val.npy", val)
        refuses(says, attach, GRAPH, VertexFiles(targets=targets, masks=files))
