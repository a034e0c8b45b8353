"""The files that a command is asked to write, and its words about them at its end."""

from pathlib import Path

import pytest
from refusals import refuses

from gcnmpi.options.config import from_table
from gcnmpi.options.outputs import WEIGHTS, Training, check_distinct, check_suffix
from gcnmpi.report.outcome import print_run
from gcnmpi.run.record import Epoch, make_folder
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


def test_the_end_of_a_run_in_a_few_lines(capsys):
    epochs = []
    for k in (1, 2, 3):
        values = {"train": 0.5, "val": 0.25 * (3 - abs(k - 2)), "test": 0.1 * k}
        metrics = {f"{mask}_accuracy": value for mask, value in values.items()}
        epochs.append(Epoch(k, 1 / k, metrics, 40.0))
    end = {"best_epoch": 2, "seconds_per_epoch": 40.0}
    asked = Training(
        Path("g.graph"), None, from_table({}), None, Path("w.npz"), Path("b.npz"), "auto"
    )
    print_run(asked, Path("runs/r"), epochs, end, 3725.4)
    assert capsys.readouterr().out.splitlines() == [
        "trained 3 epochs in 0:02:00, 40 s per epoch; the command took 1:02:05",
        "last    epoch 3: loss 0.3333  train 0.500  val 0.500  test 0.300",
        "best    epoch 2: loss 0.5000  train 0.500  val 0.750  test 0.200 (highest validation "
        "accuracy)",
        "record  runs/r/run.jsonl",
        "weights w.npz (last), b.npz (best)",
    ]
