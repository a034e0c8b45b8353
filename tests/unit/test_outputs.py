"""The files that a command is asked to write."""

from pathlib import Path

import pytest
from refusals import refuses

from gcnmpi.options.outputs import WEIGHTS, check_distinct, check_suffix
from gcnmpi.run.record import make_folder
from partition.errors import UserError
from partition.records import make_room_for


def test_a_name_of_another_kind_is_refused():
    for name in ("w", "w.npy", "w.npz.gz", "w.NPZ", ".npz"):
        error = refuses("the name ends in", check_suffix, "--save-weights", Path(name), WEIGHTS)
        assert ".npz" in error.hint


def test_two_options_may_not_name_one_file(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    for other in (tmp_path / "w.npz", tmp_path / "x" / ".." / "w.npz", tmp_path / "link" / "w.npz"):
        with pytest.raises(UserError, match="--a and --b name the same file"):
            check_distinct({"--a": tmp_path / "w.npz", "--none": None, "--b": other})
    check_distinct({"--a": tmp_path / "w.npz", "--b": tmp_path / "b.npz"})


def test_where_no_file_can_be_made_is_found_by_making_one(tmp_path):
    make_room_for(tmp_path / "new" / "folder" / "w.npz")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    for path in (Path("/proc/w.npz"), tmp_path / ("n" * 250) / ("n" * 300) / "w.npz"):
        refuses("cannot write", make_room_for, path)


def test_results_stay_out_of_graph_folders(tmp_path):
    graph = tmp_path / "g.graph"
    graph.mkdir()
    for name in ("manifest.json", "indptr.npy", "labels.npy"):
        (graph / name).write_bytes(b"x")
    (tmp_path / "link").symlink_to(graph)
    for path in (graph / "labels.npy", graph / "a" / "b.npz", tmp_path / "link" / "labels.npy"):
        refuses(r"g.graph is a graph folder", make_room_for, path)
    for folder in (graph, graph / "runs" / "a"):
        refuses(r"g.graph is a graph folder", make_folder, folder)
    assert (graph / "labels.npy").read_bytes() == b"x"
    assert len(list(graph.iterdir())) == 3
    make_room_for(tmp_path / "labels.npy")
