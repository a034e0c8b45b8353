"""Folders of checkpoints, records that are continued, signals and the watch over hangs."""

import contextlib
import json
import os
import re
import resource
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from refusals import raising, refuses

from gcnmpi.mpi import watch
from gcnmpi.mpi.launch import check_together
from gcnmpi.mpi.watch import NOTICES, STOP_SIGNALS, stop_requests, watchdog
from gcnmpi.run import checkpoint_files as files
from gcnmpi.run.record import Epoch, Resume, Start, read_run
from gcnmpi.run.writer import Writer, continued_record, new_folder, new_record

WEIGHT = np.arange(6.0).reshape(2, 3)
FACTS = {
    "format": files.FORMAT, "version": files.VERSION, "epoch": 0, "steps": 3, "graph_id": "1" * 32,
    "data_id": "", "direction": "in", "widths": [2, 3], "config": {},
    "best": {"epoch": 0, "value": None},
}  # fmt: skip


def epochs(count, loss=1.0):
    values = [{"val_accuracy": 0.1 * k, "test_accuracy": None} for k in range(1, count + 1)]
    return [Epoch(k, loss / k, value, 0.5) for k, value in enumerate(values, 1)]


def write(out, count):
    temporary = out / files.FOLDER / f".{files.name_of(count)}.tmp"
    files.make_folder(temporary)
    state = {"weights/convs.0.lin.weight": WEIGHT * count}
    return files.finish(temporary, state, FACTS | {"epoch": count}, epochs=epochs(count))


def changed(path, **facts):
    """Put other facts into the manifest of a checkpoint, with their checksum."""
    facts = json.loads((path / "manifest.json").read_text()) | facts
    del facts["checksum"]
    (path / "manifest.json").write_text(json.dumps(facts | {"checksum": files._checksum(facts)}))


def read(path):
    facts = files.read_manifest(path)
    files.check(path, facts["files"])
    return files.read_state(path, facts)


def names_in(out):
    return [path.name for path in files.stored(out / files.FOLDER)]


def test_checkpoints_in_the_middle_of_an_epoch_are_in_order(tmp_path):
    names = [files.name_of(*place) for place in ((2, 0), (1, 900), (1, 30), (1, 0), (0, 7))]
    for name in (*reversed(names), "epoch-1+2"):
        (tmp_path / files.FOLDER / name).mkdir(parents=True)
    files.discard_after(tmp_path, Path(names[1]))
    assert names_in(tmp_path) == names[1:]


def test_the_newest_two_are_kept_and_nothing_else(tmp_path):
    files.set_aside(tmp_path)  # of none
    for count in (1, 2, 10, 9):
        write(tmp_path, count)
    (tmp_path / files.FOLDER / ".epoch-000011.tmp").mkdir()  # of a run that was killed
    (write(tmp_path, 11) / "state.npz").write_bytes(b"")
    path = write(tmp_path, 11)  # of the same epoch
    found, state = read(path)
    assert found == epochs(11)
    np.testing.assert_array_equal(state["weights/convs.0.lin.weight"], 11 * WEIGHT)
    names = ["epoch-000011", "epoch-000010"]
    assert (names_in(tmp_path), {*os.listdir(tmp_path / files.FOLDER)}) == (names, {*names})
    for epoch in (2, 12, 10**30, -1):
        facts = files.read_manifest(path) | {"epoch": epoch}
        refuses("lacks epochs", files.read_state, path, facts)
    files.discard_after(tmp_path, Path(files.name_of(10)))
    assert os.listdir(tmp_path / files.FOLDER) == ["epoch-000010"]
    files.set_aside(tmp_path)  # of an earlier run, of which the last stay
    write(tmp_path, 7)
    files.set_aside(tmp_path)
    assert names_in(tmp_path) == []
    assert files.stored(tmp_path / files.PREVIOUS)[0].name == "epoch-000007"


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """A full disk leaves the one before."""
    first, done, replace = write(tmp_path, 2), [], Path.replace
    for call in ("os.fsync", "pathlib.Path.replace"):
        with monkeypatch.context() as patch:
            patch.setattr(call, raising(OSError(28, "No space left on device")))
            refuses("No space left on device", write, tmp_path, 3)
        read(first)
        assert names_in(tmp_path) == [first.name]
    monkeypatch.setattr("os.fsync", lambda f: done.append(os.readlink(f"/proc/self/fd/{f}")))
    monkeypatch.setattr("pathlib.Path.replace", lambda a, b: done.append("named") or replace(a, b))
    write(tmp_path, 3)
    before = [Path(name).name for name in done[: done.index("named")]]
    assert {files.MANIFEST, files.STATE, files.EPOCHS} <= {*before}
    assert Path(done[-1]).name == files.FOLDER


@pytest.mark.parametrize("name", ["manifest.json", "state.npz", "epochs.jsonl"])
def test_every_byte_counts(tmp_path, name):
    path = write(tmp_path, 2)
    good, says = (path / name).read_bytes(), r"damaged|no readable manifest"
    rng = np.random.default_rng(0)
    for place in rng.choice(len(good), min(len(good), 60), replace=False):
        other = good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :]
        for bad in (other, good[:place]):
            (path / name).write_bytes(bad)
            refuses(says if bad is other else ".", read, path, error=files.DamagedError)
    (path / name).unlink()
    refuses(".", read, path, error=files.DamagedError)


def test_a_manifest_with_malformed_fields_is_damaged(tmp_path):
    path = write(tmp_path, 2)
    changed(path, version=99)
    assert not isinstance(refuses("version 99", files.read_manifest, path), files.DamagedError)
    for change in (
        {"best": None}, {"best": {"epoch": "1", "value": 0.5}}, {"widths": []},
        {"files": [["state.npz", 0, "9", 1]]}, {"files": [7]}, {"files": []}, {"data_id": 7},
        {"files": [[[], 0, 1, 1], ["state.npz", 0, 1, 1], ["epochs.jsonl", 0, None, 1]]},
        {"config": []}, {"steps": True},
    ):  # fmt: skip
        changed(write(tmp_path, 2), **change)
        says = r"manifest of the checkpoint .* is damaged"
        refuses(says, files.read_manifest, path, error=files.DamagedError)


def test_a_file_of_epochs_to_which_later_checkpoints_have_appended_is_read(tmp_path):
    """As the first versions did, by a link from the checkpoint after the next."""
    path = write(tmp_path, 2)
    with open(path / "epochs.jsonl", "ab") as file:
        file.write(b'{"epoch": 3')
    assert read(path)[0] == epochs(2)


def test_checkpoints_that_cannot_be_read_are_not_taken_for_none(tmp_path, monkeypatch):
    assert names_in(tmp_path) == []
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to(tmp_path / "a disk that is not mounted")
    (tmp_path / "file").touch()
    for name in ("loop", "gone", "file"):
        refuses(f"cannot read .*{name}: ", files.stored, tmp_path / name)
    path, broken = write(tmp_path, 2), raising(OSError(5, "Input/output error"))
    opened = files.open_regular
    for name in (files.MANIFEST, files.STATE, files.EPOCHS, "the folder"):
        with monkeypatch.context() as patch:
            if name == "the folder":
                patch.setattr("os.listdir", broken)
            one = lambda p, n=name: (broken if p.name == n else opened)(p)  # noqa: E731
            patch.setattr(files, "open_regular", one)
            refused = refuses("Input/output error", lambda: read(files.stored(path.parent)[0]))
        assert not isinstance(refused, files.DamagedError), name
    monkeypatch.setattr("shutil.rmtree", broken)
    refuses("cannot rename the old", files.discard_after, tmp_path, Path(files.name_of(1)))


# Records.


def record(path, *lines):
    add = Writer(path)
    for line in lines:
        add(line)
    add.close()
    add.check()


def test_records_of_all_earlier_runs_are_kept_and_told_of(tmp_path, capsys):
    for number in range(1, 5):
        record(new_record(tmp_path), Start(ranks=number))
    names = ["run.previous-2.jsonl", "run.previous-3.jsonl", "run.previous.jsonl", "run.jsonl"]
    assert [read_run(tmp_path / name).start.ranks for name in names] == [1, 2, 3, 4]
    assert capsys.readouterr().err.count("is now run.previous.jsonl") == 3


@pytest.mark.parametrize("there", [None, "", "garbage\nmore\n", "another run"])
def test_epochs_that_a_record_lacks_come_from_the_checkpoint(tmp_path, there):
    path = tmp_path / "run.jsonl"
    if there == "another run":
        record(path, Start(ranks=4), *epochs(9, loss=9.0))
    elif there is not None:
        path.write_text(there)
    sizes = []
    for _ in range(2):
        continued_record(tmp_path, Start(ranks=2), epochs(4))
        sizes.append(path.stat().st_size)
    assert len({*sizes}) == 1
    record(path, Resume(ranks=2, epoch=4))
    assert read_run(tmp_path).epochs == epochs(4)


MALFORMED = [
    '7', '{"event": "epoch"}', '{"event": "end", "bytes_sent": 3}',
    '{"event": "epoch", "epoch": true, "loss": 1.0, "seconds": 1.0}',
    '{"event": "epoch", "epoch": 1, "loss": "\\u001b[2J", "seconds": 1.0}',
    '{"event": "epoch", "epoch": 1, "loss": 1.0, "seconds": 1.0, "val_accuracy": {}}',
    '{"event": "epoch", "epoch": 1, "loss": 1.0, "seconds": 1.0, "time": "noon"}',
    '{"event": "start", "config": {"train": []}}', '{"event": "resume", "epoch": "x"}',
    '{"event": "stop", "signal": null}',
]  # fmt: skip


@pytest.mark.parametrize("line", MALFORMED)
def test_malformed_fields_of_a_record_are_one_line(tmp_path, line):
    (tmp_path / "run.jsonl").write_text('{"event": "start"}\n' + line + '\n{"event": "x"}\n')
    caught = str(refuses(r"run.jsonl is damaged: ", read_run, tmp_path))
    assert not {"\n", "\x1b"} & {*caught}
    continued_record(tmp_path, Start(ranks=1), epochs(2))
    assert read_run(tmp_path).epochs == epochs(2)
    assert (tmp_path / "run.previous.jsonl").exists()


EARLIER = [
    '{"event": "start", "graph": "g", "ranks": 2, "config": {"train": {"epochs": 9}}, "new": [1]}',
    '{"event": "epoch", "epoch": 1, "loss": 3, "val_hits@20": 0.5, "seconds": 1}',
    '{"event": "epoch", "epoch": 2, "loss": 2.5, "seconds": 1.0, "time": 7.5, "colour": "red"}',
    '{"event": "note", "text": "another"}', '{"event": "resume", "epoch": 1, "ranks": 3}',
    '{"event": "epoch", "epoch": 2, "loss": 2.0, "seconds": 1.0}',
    '{"event": "end", "bytes_sent": [1, 2, 3], "best_epoch": 1, "best_val_hits@20": 0.5}',
]  # fmt: skip


def test_records_of_other_versions_are_read_and_continued(tmp_path):
    (tmp_path / "run.jsonl").write_text("\n".join(EARLIER))
    for _ in range(2):
        run = read_run(tmp_path)
        assert (run.start.ranks, run.start.graph, run.start.wanted_epochs) == (3, "g", 9)
        assert (run.start.metric, run.start.of_ranks.rows, run.resumes) == ("accuracy", None, 1)
        assert [(one.loss, one.of("val", "hits@20")) for one in run.epochs] == [
            (3, 0.5),
            (2.0, None),
        ]
        assert (run.best, run.end.best) == (run.epochs[0], {"best_val_hits@20": 0.5})
        as_json = run.end["bytes_sent"], run.epochs[1]["loss"], dict(run.start)["event"]
        assert as_json == ([1, 2, 3], 2.0, "start")
        continued_record(tmp_path, Start(ranks=5), run.epochs)
    assert [json.loads(line) for line in EARLIER][:3] == [
        json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()
    ][:3]  # fmt: skip


def test_a_full_disk_leaves_whole_records_and_one_error(tmp_path):
    path = new_record(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    write = Writer(path, "make room")
    write(Start(ranks=2))
    size = path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))  # as SIGXFSZ is ignored, EFBIG
    try:
        write(Epoch(1, 0.5, {}, 0.25))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert write.failed
    write(Epoch(2, 0.25, {}, 0.25))
    write.close()
    caught = refuses(r"cannot write .*run.jsonl: File too large", write.check)
    assert caught.hint == "make room"
    assert path.stat().st_size == size
    refuses("cannot write", Writer, tmp_path)


@pytest.mark.parametrize("change", ["none", "unlinked", "replaced", "renamed", "other"])
def test_a_record_that_is_lost_is_written_again(tmp_path, capsys, change):
    (folder := tmp_path / "run").mkdir()
    write = Writer(path := new_record(folder))
    write(Start(ranks=2))
    if change in ("unlinked", "replaced"):
        path.unlink()
    if change == "replaced":
        path.write_text("{}\n")
    if change in ("renamed", "other"):
        folder.rename(tmp_path / "away")
    if change == "other":
        folder.mkdir()
        refuses(r"run was renamed or removed .* another folder", write.restore)
        assert os.listdir(folder) == []
        return
    assert write.restore() is (change == "renamed")
    write(Epoch(1, 0.5, {}, 0.25))
    write.close()
    run, kept = read_run(folder), folder / "run.previous.jsonl"
    assert (run.start.ranks, len(run.epochs)) == (2, 1)
    said = capsys.readouterr().err
    assert (f"{path} was renamed, removed or replaced" in said) is (change != "none")
    assert (kept.read_text() if kept.exists() else "") == ("{}\n" if change == "replaced" else "")


def test_a_new_folder_is_nobody_elses(tmp_path):
    names = [new_folder(tmp_path / "runs", "g-hp-4-20260314").name for _ in range(3)]
    assert names == ["g-hp-4-20260314", "g-hp-4-20260314-2", "g-hp-4-20260314-3"]
    (tmp_path / "file").touch()
    refuses(r"cannot write .*file", new_folder, tmp_path / "file", "x")


# Signals.


@contextlib.contextmanager
def handling(handler, *numbers):
    """A handler of signals, and afterwards those of before; it must still be there."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
        assert {signal.getsignal(number) for number in numbers} == {handler}
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def kill(number):
    os.kill(os.getpid(), number)


def test_a_second_ctrl_c_does_not_wait_and_an_ignored_one_stays_ignored(capfd):
    # Tests may run in the background of a shell, where SIGINT is ignored.
    with handling(signal.default_int_handler, signal.SIGINT), stop_requests() as asked:
        assert not asked()
        kill(signal.SIGINT)
        assert asked() == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            kill(signal.SIGINT)
    assert capfd.readouterr().err.count("stopping with a checkpoint") == 1
    with handling(signal.SIG_IGN, signal.SIGINT), stop_requests() as asked:
        kill(signal.SIGINT)
        assert not asked()


def test_before_anybody_asks_only_notices_wait():
    with handling(signal.SIG_DFL, *STOP_SIGNALS), stop_requests() as asked:
        for number in STOP_SIGNALS:
            assert (signal.getsignal(number) != signal.SIG_DFL) == (number in NOTICES)
        for number in (signal.SIGUSR1, signal.SIGTERM):
            kill(number)
            assert asked() == number
        assert len({signal.getsignal(number) for number in STOP_SIGNALS}) == 1


def test_a_process_that_is_woken_to_be_ended_stands_still(monkeypatch):
    monkeypatch.setattr("time.sleep", (slept := []).append)
    with handling(signal.SIG_DFL, signal.SIGCONT), watch.waking_slowly():
        kill(signal.SIGCONT)
    assert slept[0] >= 2  # Open MPI's mpirun leaves a second


def test_the_watchdog_ends_what_stands_still_and_lets_live_what_moves_or_says_so(capsys):
    ended = threading.Event()
    # A machine that is busy lets no thread wait for two seconds.
    with watchdog(2.0, rank=0, end=lambda code: ended.set()) as moved:
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            time.sleep(0.01)
            moved()
    with watchdog(0.0, rank=0, end=lambda code: ended.set()):
        time.sleep(0.05)
    assert not ended.is_set()
    with watchdog(0.3, rank=5, end=lambda code: ended.set()):
        assert ended.wait(60)
    assert re.search("rank 5 on .* has made no progress for 0.3 s", capsys.readouterr().err)


def test_processes_that_do_not_find_each_other_are_told_once():
    for environment in (
        {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"},
        {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"},
        {"PMI_SIZE": "4", "PMI_RANK": "0", "SLURM_STEP_NUM_TASKS": "4"},
    ):
        refuses(r"(?s)4 processes .* --mpi=pmix", check_together, 1, environment, "Open MPI")
        check_together(4, environment, "Open MPI")
        others = {name: "1" if value == "0" else value for name, value in environment.items()}
        refuses(".", check_together, 1, others, "Open MPI", error=SystemExit)
    # One rank of mpirun in a job of several tasks is meant.
    check_together(1, {"OMPI_COMM_WORLD_SIZE": "1", "SLURM_STEP_NUM_TASKS": "4"}, "Open MPI")
    check_together(1, {"SLURM_NTASKS": "4"}, "Open MPI")
