"""Files and folders that are whole or not there."""

import os
import resource
import subprocess

import pytest
from refusals import refuses

from partition import records
from partition.errors import UserError
from partition.records import atomic_file, atomic_folder, sweep
from partition.startup import PYTHON


def test_what_is_written_under_a_temporary_name_is_told_by_its_own(tmp_path):
    path, (soft, hard) = tmp_path / "g.graph", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # as SIGXFSZ is ignored, EFBIG
    try:
        with (
            pytest.raises(UserError) as caught,
            atomic_folder(path) as folder,
            atomic_file(folder / "features.npy") as file,
        ):
            file.write(bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(caught.value) == f"cannot write {path}/features.npy: File too large"
    assert list(tmp_path.iterdir()) == []


def test_a_file_appears_when_it_is_complete_and_on_disk(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(os.fstat(file).st_ino) or fsync(file)
    )
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
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path / "b") == ["old"]


def test_a_folder_replaces_another_only_when_told(tmp_path):
    for number, overwrite in enumerate([False, True]):
        with atomic_folder(tmp_path / "x" / "b", overwrite=overwrite) as folder:
            (folder / str(number)).touch()
    assert os.listdir(tmp_path / "x") == ["b"]
    assert os.listdir(tmp_path / "x" / "b") == ["1"]
    with pytest.raises(UserError, match="cannot write"), atomic_folder(tmp_path / "x" / "b"):
        pass
    assert os.listdir(tmp_path / "x" / "b") == ["1"]


def test_the_old_folder_returns_if_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    rename, calls = os.rename, []

    def fail_once(source, target):
        calls.append(source)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        rename(source, target)

    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "old").touch()
    monkeypatch.setattr(os, "rename", fail_once)
    with (
        pytest.raises(UserError, match="Input/output"),
        atomic_folder(tmp_path / "b", overwrite=True),
    ):
        pass
    assert os.listdir(tmp_path) == ["b"]
    assert os.listdir(tmp_path / "b") == ["old"]


def test_nothing_is_written_through_links_or_onto_devices(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "a").symlink_to("precious")
    with atomic_file(tmp_path / "a", "w") as file:
        file.write("new")
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (tmp_path / "a").is_symlink()
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UserError, match="no regular file"), atomic_file(tmp_path / "fifo"):
        pass
    refuses("no regular file", records.make_room_for, tmp_path / "fifo")


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
    assert os.listdir(tmp_path / "lost.graph") == ["data"]
    assert os.listdir(tmp_path / "there.graph") == []
