"""Files and folders that are whole or not there, locks on them, and files of results."""

import csv
import errno
import json
import os
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from refusals import raising, refuses

from gcnmpi.options.requests import WEIGHTS, check_distinct, check_suffix
from gcnmpi.run import results
from gcnmpi.run.results import Results, write_csv, write_npz, write_parquet
from gcnmpi.run.writer import make_folder
from partition import PYTHON, locks, records
from partition.errors import UserError, shown
from partition.locks import Holder, folder_lock, holder_is_dead, holders
from partition.records import atomic_file, atomic_folder, make_room_for, sweep


def test_a_file_appears_when_it_is_complete_and_on_disk(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync
    noted = lambda file: synced.append(os.fstat(file).st_ino) or fsync(file)  # noqa: E731
    monkeypatch.setattr(os, "fsync", noted)
    with atomic_file(tmp_path / "a", "w") as file:
        file.write("ä")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == "ä".encode()
    assert os.listdir(tmp_path) == ["a"]
    records.sync_folder(tmp_path)
    assert synced == [(tmp_path / "a").stat().st_ino, tmp_path.stat().st_ino]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_what_was_there(tmp_path, error):
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "old").touch()
    kinds = (UserError, KeyboardInterrupt)
    with pytest.raises(kinds), atomic_file(tmp_path / "a") as file:  # noqa: PT012
        file.write(b"new")
        raise error
    with pytest.raises(kinds), atomic_folder(tmp_path / "b", overwrite=True) as folder:  # noqa: PT012
        (folder / "new").touch()
        raise error
    assert (sorted(os.listdir(tmp_path)), os.listdir(tmp_path / "b")) == (["a", "b"], ["old"])
    assert (tmp_path / "a").read_text() == "old"


def entered(context):
    with context:
        pass


def test_the_old_folder_returns_if_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    rename, calls = os.rename, []

    def fail_once(source, target):
        calls.append(source)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        rename(source, target)

    (tmp_path / "b" / "old").mkdir(parents=True)
    monkeypatch.setattr(os, "rename", fail_once)
    refuses("Input/output", entered, atomic_folder(tmp_path / "b", overwrite=True))
    assert (os.listdir(tmp_path), os.listdir(tmp_path / "b")) == (["b"], ["old"])


def test_nothing_is_written_through_links_or_onto_devices(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "a").symlink_to("precious")
    with atomic_file(tmp_path / "a", "w") as file:
        file.write("new")
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (tmp_path / "a").is_symlink()
    os.mkfifo(tmp_path / "fifo")
    refuses("no regular file", entered, atomic_file(tmp_path / "fifo"))
    refuses("no regular file", make_room_for, tmp_path / "fifo")


@pytest.mark.parametrize("words", ["partition --help", "gcnmpi info --json"])
def test_output_to_a_full_disk_is_one_line(words):
    with open("/dev/full", "wb") as full:
        command = [*PYTHON, *words.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    told = "error: cannot write the output: No space left on device"
    assert (done.returncode, done.stderr.count("error: "), told in done.stderr) == (2, 1, True)


def test_what_dead_processes_left_is_swept_or_returns(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    living = records.temporary_name(tmp_path / "x.graph")
    stale = living.with_name(living.name.replace(f"-{os.getpid()}-", f"-{dead.pid}-"))
    elsewhere = stale.with_name(f".elsewhere{stale.name}")
    aside = [tmp_path / f"{stale.stem}.{name}.graph.old" for name in ("lost", "there")]
    for folder in (stale / "partitions", living, elsewhere, tmp_path / "there.graph"):
        folder.mkdir(parents=True)
    for folder in aside:
        (folder / "data").mkdir(parents=True)
    (tmp_path / ".other.tmp").touch()
    sweep(tmp_path)
    kept = [".other.tmp", living.name, elsewhere.name, "lost.graph", "there.graph"]
    assert sorted(os.listdir(tmp_path)) == sorted(kept)
    found = [os.listdir(tmp_path / name) for name in ("lost.graph", "there.graph")]
    assert found == [["data"], []]


# Locks: who is refused, what is said, and what a dead process leaves

HOLD = """
import sys
from partition.locks import folder_lock
with folder_lock(sys.argv[1], "another run", exclusive=sys.argv[2] == "exclusive"):
    print("held", flush=True)
    sys.stdin.read()
"""


NO_LOCKS = raising(OSError(errno.ENOLCK, "No locks available"))


@pytest.fixture
def another():
    """Start another process that holds a lock until it is told to end, or killed."""
    started = []

    def start(path, kind="exclusive"):
        words = [sys.executable, "-P", "-c", HOLD, path, kind]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen(words, env=os.environ | {"SLURM_JOB_ID": "4711"}, **pipes)
        started.append(process)
        assert process.stdout.readline() == b"held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(params=["flock", "records"])
def way(request, monkeypatch):
    """With locks of the file system, and where it has none."""
    if request.param == "records":
        monkeypatch.setattr(locks.fcntl, "flock", NO_LOCKS)
    return request.param


def refused(path, **options):
    return str(refuses(".", entered, folder_lock(path, "x", patience=0.1, **options)))


def held_elsewhere(path):
    holder = json.dumps(asdict(Holder("train", True, host="elsewhere")))
    (path / ".lock").mkdir(exist_ok=True)
    (path / ".lock" / "elsewhere").write_text(holder)


def test_one_holds_it_exclusively_or_several_share_it(tmp_path, way):
    with folder_lock(tmp_path, "first"):
        assert f"{tmp_path} is in use: first (host {socket.gethostname()}" in refused(tmp_path)
        refused(tmp_path, exclusive=False)
        entered(folder_lock(tmp_path, "of another thing", name=".p.lock"))
    shared = folder_lock(tmp_path, "one", exclusive=False)
    with shared, folder_lock(tmp_path, "two", exclusive=False):
        assert [holder.purpose for holder in holders(tmp_path)] == ["one", "two"]
        refused(tmp_path)
    entered(folder_lock(tmp_path, "last"))
    if way == "flock":
        assert os.listdir(tmp_path) == []


def test_a_lock_ends_with_its_process(tmp_path, another):
    process = another(tmp_path)
    message = refused(tmp_path)
    assert f"another run (host {socket.gethostname()}, process {process.pid}, job 4711" in message
    assert "wait until it ends" in message
    process.kill()
    process.wait()
    with folder_lock(tmp_path, "next"):
        assert [holder.purpose for holder in holders(tmp_path)] == ["next"]


def test_records_decide_where_there_are_no_locks(tmp_path, another, monkeypatch):
    process = another(tmp_path, "shared")
    unsupported = raising(OSError(errno.EOPNOTSUPP, "Operation not supported"))
    monkeypatch.setattr(locks.fcntl, "flock", unsupported)
    refused(tmp_path)
    entered(folder_lock(tmp_path, "reader", exclusive=False))
    process.kill()
    process.wait()
    entered(folder_lock(tmp_path, "next"))
    # Of a process on another host nobody knows whether it lives.
    held_elsewhere(tmp_path)
    assert f"delete {tmp_path}/.lock/elsewhere" in refused(tmp_path)


def test_folders_that_cannot_be_written_to(tmp_path, monkeypatch):
    read_only = raising(OSError(errno.EROFS, "Read-only file system"))
    monkeypatch.setattr(locks.Path, "mkdir", read_only)
    entered(folder_lock(tmp_path, "read", exclusive=False))
    assert "Read-only file system" in refused(tmp_path)


def test_a_reader_of_another_users_folder_writes_no_record(tmp_path, monkeypatch):
    monkeypatch.setattr(locks.fcntl, "flock", NO_LOCKS)
    with folder_lock(tmp_path, "owner", exclusive=False):
        denied = raising(OSError(errno.EACCES, "Permission denied"))
        monkeypatch.setattr(locks.Path, "write_text", denied)
        entered(folder_lock(tmp_path, "reader", exclusive=False))
        assert "Permission denied" in refused(tmp_path)


def test_no_folder_and_odd_things_in_the_place_of_locks(tmp_path):
    assert "there is no folder" in refused(tmp_path / "none")
    (folder := tmp_path / "g").mkdir()
    (folder / ".link").symlink_to(tmp_path)
    assert "a symbolic link" in refused(folder, name=".link")
    refuses("is a link that leads out of", locks.folder_inside, folder, ".link")
    (folder / ".lock").mkdir()
    (folder / ".lock" / "odd").write_text('{"pid": "x"}')
    entered(folder_lock(folder, "x"))


def test_who_is_dead():
    assert not holder_is_dead(Holder("x", True))
    assert holder_is_dead(Holder("x", True, born="1"))
    assert holder_is_dead(Holder("x", True, pid=2**22 + 1))
    assert not holder_is_dead(Holder("x", True, pid=2**22 + 1, host="elsewhere"))
    assert not holder_is_dead(Holder("x", True, pid=2**22 + 1, space="9"))


def test_a_job_that_slurm_has_started_again_does_not_lock_itself_out(tmp_path, monkeypatch):
    """On another host, after a node was lost, and where the file system has no locks."""
    monkeypatch.setattr(locks.fcntl, "flock", NO_LOCKS)
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    held_elsewhere(tmp_path)
    refused(tmp_path)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    with folder_lock(tmp_path, "train"):
        assert [holder.restarts for holder in holders(tmp_path)] == [1]
    monkeypatch.setenv("SLURM_JOB_ID", "4712")
    refused(tmp_path)


def test_what_steers_a_terminal_is_written_out():
    assert shown("a\x1b[2J\r\n\u202eb\udcff Ü") == r"a\x1b[2J\r\n\u202eb\udcff Ü"
    assert "\x1b" not in str(UserError("\x1b]0;title\x07", "do\nthis \x9b1m"))


# The files that a command is asked to write


def test_a_name_of_another_kind_is_refused():
    for name in ("w", "w.npy", "w.npz.gz", "w.NPZ", ".npz"):
        refuses("the name ends in", check_suffix, "--save-weights", Path(name), WEIGHTS)


def test_two_options_may_not_name_one_file(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    for other in (tmp_path / "w.npz", tmp_path / "x" / ".." / "w.npz", tmp_path / "link" / "w.npz"):
        given = {"--a": tmp_path / "w.npz", "--none": None, "--b": other}
        refuses("--a and --b name the same file", check_distinct, given)


def test_where_no_file_can_be_made_is_found_by_making_one(tmp_path):
    make_room_for(tmp_path / "new" / "folder" / "w.npz")
    assert os.listdir(tmp_path / "new" / "folder") == []
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
    assert [file.read_bytes() for file in graph.iterdir()] == [b"x"] * 3
    make_room_for(tmp_path / "labels.npy")


# Files of results with the ids of the vertices

VALUES = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32) * 1e-3
TEXTS = np.array(["b", 'a "quoted", one', "ü", "d", "3", "#x", "% y"])
NUMBERS = np.array([5, -3, 2**40, 0, 1, 7, 9])


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(results, "ROWS_AT_ONCE", 2)


@pytest.mark.parametrize("ids", [TEXTS, NUMBERS, None])
@pytest.mark.parametrize("picked", [None, np.array([6, 0, 0, 3, 1])])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_files_come_back(tmp_path, ids, picked, dtype):
    some = slice(None) if picked is None else picked
    values = (VALUES[:, 0] * 1e6).astype(dtype) if dtype == np.int64 else VALUES.astype(dtype)
    made, values = Results(values[some], ids, picked), values[some]
    names = (np.arange(7) if ids is None else ids)[some]
    write_csv(made, tmp_path / "y.csv")
    write_npz(made, tmp_path / "y.npz")
    write_parquet(made, tmp_path / "y.parquet")
    with np.load(tmp_path / "y.npz") as arrays:
        np.testing.assert_array_equal(arrays["values"], values)
    with open(tmp_path / "y.csv", newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    header = ["class"] if values.ndim == 1 else ["0", "1", "2"]
    if ids is not None:
        assert lines.pop(0) == ["id", *header]
        assert [line.pop(0) for line in lines] == [*map(str, names)]
    np.testing.assert_array_equal(np.array(lines, dtype).reshape(values.shape), values)
    table = pq.read_table(tmp_path / "y.parquet")
    assert table.column_names == ["id", *header]
    assert table.column("id").to_pylist() == names.tolist()
    found = np.stack([table.column(name).to_numpy() for name in header], 1)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.reshape(values.shape), values)
