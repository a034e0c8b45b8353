"""Text files: what Arrow reads and what is read by hand are the same; the lines of a reader."""

import contextlib
import gzip
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from refusals import refuses

from partition.errors import UserError
from partition.importing.readers import Layout, blocks, read_source
from partition.importing.readers.blocks import text_blocks


def arcs(path, **options):
    source = read_source(path, "edges", Layout(header=False, **options))
    arrays = (source.source, source.target, source.weights, source.ids)
    return source.n, *(None if array is None else array.tolist() for array in arrays)


def test_lines_keep_their_numbers_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 1 << 11)
    lines = [f"{i} {i + 1}" + " # c" * (i % 7 == 0) for i in range(2000)]
    path = tmp_path / "e.txt"
    path.write_text("# c\n\n" + "\n".join(lines))
    assert arcs(path)[:2] == (2001, list(range(2000)))
    for bad, said in (("5 x", "line 1803: '5 x' is not"), ("5", "line 1803: '5' has 1 columns")):
        path.write_text("# c\n\n" + "\n".join([*lines[:1800], bad, *lines[1801:]]))
        refuses(said, arcs, path)


class Reader:
    """One of the readers in threads, which tell each other values."""

    def __init__(self, barrier, values, rank):
        self.barrier, self.values, self.rank, self.size = barrier, values, rank, len(values)

    def gathered(self, value):
        self.values[self.rank] = value
        self.barrier.wait()
        found = list(self.values)
        self.barrier.wait()
        return found

    @contextlib.contextmanager
    def agreed(self):
        error = None
        try:
            yield
        except UserError as caught:
            error = caught
        for each in filter(None, self.gathered(error)):
            raise each


def lines(blocks):
    """The lines of blocks, each with its number."""
    return [
        (number + i, line)
        for number, block in blocks
        for i, line in enumerate(block.split(b"\n"))
        if line.strip()
    ]


def by_many(path, size, at_once):
    """The lines that all readers find."""
    barrier, values = threading.Barrier(size, timeout=20), [None] * size

    def read(rank):
        reader = Reader(barrier, values, rank)
        return lines(text_blocks(path, 50, at_once=at_once, readers=reader))

    with ThreadPoolExecutor(size) as pool:
        return sorted(line for found in pool.map(read, range(size)) for line in found)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_many_readers_find_the_lines_of_one(tmp_path, size, packed):
    random = np.random.default_rng(size)
    for trial in range(6):
        ends = [b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\n"]
        words = [b"%d" % random.integers(10 ** random.integers(1, 9)) for _ in range(30)]
        text = b"".join(w + ends[random.integers(len(ends))] for w in words)
        text = [b"", b"\xef\xbb\xbf"][trial % 2] + text + [b"", b"last"][trial // 3]
        path = tmp_path / f"{trial}.txt"
        path.write_bytes(gzip.compress(text) if packed else text)
        for at_once in (7, 64, 1 << 20) if packed else (1, 3, 7, 64):
            assert by_many(path, size, at_once) == lines(text_blocks(path))


def test_a_long_line_has_its_number(tmp_path):
    path = tmp_path / "long.txt"
    path.write_bytes(b"1\n" * 40 + b"2" * 300 + b"\n" + b"3\n" * 40)
    for size, at_once in ((2, 7), (3, 64), (3, 100)):
        refuses("line 41 is longer than 50 bytes", by_many, path, size, at_once)
