"""Files that are made to exhaust memory, time or patience; and imports that are stopped."""

from __future__ import annotations

import gzip
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from command_line import refused, run
from refusals import refuses

from partition import records
from partition.errors import UserError
from partition.importing.readers import read_source, unpacking
from partition.importing.readers.vertex_files import read_features, read_labels

pytestmark = pytest.mark.slow

MTX = b"%%MatrixMarket matrix coordinate pattern general\n"
MANY = 18 << 20


def put(folder, name, raw):
    """A file of ``raw``, through gzip where the name ends in .gz."""
    path = folder / name
    path.write_bytes(gzip.compress(raw, 1) if name.endswith(".gz") else raw)
    return path


BOMBS = {
    "spaces": (b" " * MANY, "longer than 65,536 bytes"),
    "newlines": (b"\n" * MANY, "16 MiB of blanks and empty lines"),
    "late newlines": (b"1 2\n" + b"\n" * MANY, "16 MiB of blanks and empty lines"),
    "comments": (b"#" + b" " * 4000 + b"\n", "MiB of comments"),
    "digits": (b"1" * MANY, "longer than 65,536 bytes"),
    "zeros": (bytes(MANY), "there is a NUL"),
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("form", ["e.txt", "e.txt.gz"])
def test_lists_without_end_are_refused(tmp_path, name, form):
    raw, message = BOMBS[name]
    path = put(tmp_path, form, raw * (MANY // 4000 if name == "comments" else 1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refuses(message, read_source, path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (MTX + b"\n" * MANY, "lines are comments or empty"),
        (MTX + b" " * MANY, "expected 'ROWS COLUMNS ENTRIES'"),
        (MTX + b"3 3 1\n" + b"\n" * MANY + b"1 2\n", "no entries but blanks"),
        (MTX + b"3 3 1\n" + b" " * MANY + b"1 2\n", "no entries but blanks"),
    ],
)
def test_matrix_market_files_without_end_are_refused(tmp_path, raw, message):
    refuses(message, read_source, put(tmp_path, "a.mtx", raw))


def test_gzip_files_out_of_proportion_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "FREE_CONTENT", 1 << 20)
    with pytest.raises(UserError, match="unpacks to more than 100 times its size"):
        read_source(put(tmp_path, "e.txt.gz", (b"1 2" + b" " * 4000 + b"\n") * (1 << 9)))


@pytest.mark.parametrize("kind", ["features", "labels"])
def test_tables_without_end_are_refused(tmp_path, kind):
    read = read_features if kind == "features" else read_labels
    for raw, message in (
        (b"\n" * MANY, "16 MiB of blanks and empty lines"),
        (bytes(MANY), "there is a NUL"),
        (b"1\n" + b" " * MANY, "16 MiB of blanks|line 2 is longer"),
    ):
        refuses(message, read, put(tmp_path, "t.csv", raw))


def test_arrays_that_announce_more_than_there_is(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", features=np.ones((4, 2), np.float32))
    with zipfile.ZipFile(tmp_path / "x.npz") as archive:
        raw = archive.read("features.npy")
    huge = raw.replace(b"(4, 2), }" + b" " * 10, b"(4000000000, 2), }" + b" ")
    assert huge != raw
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive:
        archive.writestr("features.npy", huge)
    (tmp_path / "huge.npy").write_bytes(huge)
    (tmp_path / "huge.npy.gz").write_bytes(gzip.compress(huge))
    for name in ("huge.npz", "huge.npy", "huge.npy.gz"):
        refuses("truncated: its header announces", read_features, tmp_path / name)
    with zipfile.ZipFile(tmp_path / "twice.npz", "w") as archive:
        archive.writestr("features.npy", raw)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("features.npy", raw)
    refuses("'features' twice", read_features, tmp_path / "twice.npz")


def test_an_archive_of_zeros_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "FREE_ARCHIVE", 1 << 20)
    np.savez_compressed(tmp_path / "x.npz", features=np.zeros((1 << 18, 2)))
    with pytest.raises(UserError, match="unpacks to more than 200 times its size, 4,194,432 bytes"):
        read_features(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", features=np.zeros((1 << 18, 2)))
    assert read_features(tmp_path / "x.npz").values.shape == (1 << 18, 2)


@pytest.mark.parametrize("name", ["f.txt", "f.mtx", "f.npz", "f.npy", "f.gz"])
def test_pipes_and_devices_are_refused(tmp_path, name):
    os.mkfifo(tmp_path / name)
    refuses("is a pipe, not a file", read_source, tmp_path / name)
    for read in (read_features, read_labels):
        refuses("is a pipe, not a file", read, tmp_path / name)
    refuses("is a device, not a file", read_source, "/dev/zero")


def test_pickles_are_not_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    (tmp_path / "x.npy").write_bytes(pickle.dumps(Trap(), 4))
    np.save(tmp_path / "o.npy", np.array([Trap()], object), allow_pickle=True)
    np.savez(tmp_path / "o.npz", labels=np.array([Trap()], object))
    for name, message in (("x.npy", "pickle"), ("o.npy", "Object arrays"), ("o.npz", "Object")):
        for read in (read_features, read_labels):
            refuses(message, read, tmp_path / name)
    assert not (tmp_path / "sprung").exists()


def test_control_characters_of_files_are_not_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nasty = "\x1b]0owned\x07\x9b2J"
    (tmp_path / "e.csv").write_text(f"{nasty},b\nb,{nasty}\n")
    (tmp_path / "l.csv").write_text(f"{nasty}\nb\n")
    (tmp_path / "x.csv").write_text(f"1,{nasty}\n2,3\n")
    shown = run("import", "e.csv", "g.graph", "--labels", "l.csv", "--ids", "sorted").output
    shown += run("info", "g.graph").output
    shown += refused("attach", "g.graph", "--features", "x.csv")
    shown += refused("import", "l.csv", "h.graph")
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert "\\x1b]0owned" in shown


def test_an_import_that_is_ended_leaves_nothing(tmp_path):
    program = (
        "import numpy, signal, time\n"
        "from partition.cli.main import main\n"
        "save = numpy.save\n"
        "def slow(*args, **more):\n"
        "    save(*args, **more)\n"
        "    print('saved', flush=True)\n"
        "    time.sleep(60)\n"
        "numpy.save = slow\n"
        "main()\n"
    )
    (tmp_path / "e.txt").write_text("0 1\n1 2\n")
    process = subprocess.Popen(
        [sys.executable, "-c", program, "import", "e.txt", "g.graph"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL),
    )
    assert process.stdout.readline() == "saved\n"
    assert len(list(tmp_path.iterdir())) == 2
    process.send_signal(signal.SIGTERM)
    _, message = process.communicate(timeout=60)
    assert (process.returncode, message) == (128 + signal.SIGTERM, "")
    assert [path.name for path in tmp_path.iterdir()] == ["e.txt"]


def test_a_full_disk_is_noticed_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.txt").write_text("0 1\n1 2\n")
    run("import", "e.txt", "g.graph")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    message = refused("import", "e.txt", "h.graph")
    assert "cannot write h.graph: it takes 0 MiB, 0 are free" in message
    message = refused("add", "g.graph", "--model", "hp", "-k", 2)
    assert "cannot write the model to" in message
    assert "TMPDIR" in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.txt", "g.graph"]
