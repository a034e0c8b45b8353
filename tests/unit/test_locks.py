"""Locks on folders: who is refused, what is said, and what a dead process leaves."""

import errno
import json
import os
import socket
import subprocess
import sys
from dataclasses import asdict

import pytest
from refusals import raising

from partition import locks
from partition.errors import UserError, shown
from partition.locks import Holder, folder_lock, holder_is_dead, holders

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
    with pytest.raises(UserError) as caught, folder_lock(path, "x", patience=0.1, **options):
        pass
    return str(caught.value)


def test_one_holds_it_exclusively_or_several_share_it(tmp_path, way):
    with folder_lock(tmp_path, "first"):
        assert f"{tmp_path} is in use: first (host {socket.gethostname()}" in refused(tmp_path)
        refused(tmp_path, exclusive=False)
        with folder_lock(tmp_path, "of another thing", name=".p.lock"):
            pass
    shared = folder_lock(tmp_path, "one", exclusive=False)
    with shared, folder_lock(tmp_path, "two", exclusive=False):
        assert [holder.purpose for holder in holders(tmp_path)] == ["one", "two"]
        refused(tmp_path)
    with folder_lock(tmp_path, "last"):
        pass
    if way == "flock":
        assert list(tmp_path.iterdir()) == []


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
    with folder_lock(tmp_path, "reader", exclusive=False):
        pass
    process.kill()
    process.wait()
    with folder_lock(tmp_path, "next"):
        pass
    # Of a process on another host nobody knows whether it lives.
    theirs = Holder("train", True, host="elsewhere")
    (tmp_path / ".lock" / "elsewhere").write_text(json.dumps(asdict(theirs)))
    assert f"delete {tmp_path}/.lock/elsewhere" in refused(tmp_path)


def test_folders_that_cannot_be_written_to(tmp_path, monkeypatch):
    read_only = raising(OSError(errno.EROFS, "Read-only file system"))
    monkeypatch.setattr(locks.Path, "mkdir", read_only)
    with folder_lock(tmp_path, "read", exclusive=False):
        pass
    assert "Read-only file system" in refused(tmp_path)


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
    (tmp_path / ".lock").mkdir()
    first = Holder("train", True, host="elsewhere")
    (tmp_path / ".lock" / "elsewhere").write_text(json.dumps(asdict(first)))
    refused(tmp_path)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    with folder_lock(tmp_path, "train"):
        assert [holder.restarts for holder in holders(tmp_path)] == [1]
    monkeypatch.setenv("SLURM_JOB_ID", "4712")
    refused(tmp_path)


def test_what_steers_a_terminal_is_written_out():
    assert shown("a\x1b[2J\r\n\u202eb\udcff Ü") == r"a\x1b[2J\r\n\u202eb\udcff Ü"
    assert "\x1b" not in str(UserError("\x1b]0;title\x07", "do\nthis \x9b1m"))
