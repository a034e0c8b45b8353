"""Files that are made to exhaust memory, time or patience; and imports that are stopped."""

import gzip
import os
import pickle
import resource
import shutil

import numpy as np
import pytest
from command_line import refused
from refusals import refuses

from partition import records
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


def test_tables_without_end_are_refused(tmp_path):
    begin = MTX + b"3 3 1\n"
    for read, name, raw, message in (
        (read_source, "a.mtx", MTX + b"\n" * MANY, "lines are comments or empty"),
        (read_source, "a.mtx", MTX + b" " * MANY, "expected 'ROWS COLUMNS ENTRIES'"),
        (read_source, "a.mtx", begin + b"\n" * MANY + b"1 2\n", "no entries but blanks"),
        (read_source, "a.mtx", begin + b" " * MANY + b"1 2\n", "no entries but blanks"),
        (read_features, "t.csv", b"\n" * MANY, "16 MiB of blanks and empty lines"),
        (read_labels, "t.csv", bytes(MANY), "there is a NUL"),
        (read_features, "t.csv", b"1\n" + b" " * MANY, "16 MiB of blanks|line 2 is longer"),
    ):
        refuses(message, read, put(tmp_path, name, raw))


def test_files_out_of_proportion_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "FREE_ARCHIVE", 1 << 20)
    np.savez_compressed(tmp_path / "x.npz", features=np.zeros((1 << 18, 2)))
    refuses("more than 200 times its size, 4,194,432", read_features, tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", features=np.zeros((1 << 18, 2)))
    assert read_features(tmp_path / "x.npz").values.shape == (1 << 18, 2)
    monkeypatch.setattr(unpacking, "FREE_CONTENT", 1 << 20)
    packed = put(tmp_path, "e.txt.gz", (b"1 2" + b" " * 4000 + b"\n") * (1 << 9))
    refuses("unpacks to more than 100 times its size", read_source, packed)


def test_pipes_and_devices_are_refused(tmp_path):
    for name in ("f.txt", "f.mtx", "f.npz", "f.npy", "f.gz"):
        os.mkfifo(tmp_path / name)
        for read in (read_source, read_features, read_labels):
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


def test_a_full_disk_is_noticed_before_anything_is_written(tmp_path, monkeypatch):
    (tmp_path / "e.txt").write_text("0 1\n1 2\n")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    told = refused("import", tmp_path / "e.txt", tmp_path / "h.graph")
    assert "h.graph: it takes 0 MiB, 0 are free" in told
    assert os.listdir(tmp_path) == ["e.txt"]
