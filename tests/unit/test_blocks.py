"""Blocks of text that several readers share: the lines of one reader, with their numbers."""

import contextlib
import gzip
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from partition.errors import UserError
from partition.importing.readers.blocks import text_blocks


class Shared:
    """The values that readers in threads tell each other."""

    def __init__(self, size):
        self.size, self.barrier = size, threading.Barrier(size, timeout=20)
        self.values, self.errors = [None] * size, [None] * size


class Reader:
    """One of the readers."""

    def __init__(self, shared, rank):
        self.shared, self.rank, self.size = shared, rank, shared.size

    def gathered(self, value):
        self.shared.values[self.rank] = value
        self.shared.barrier.wait()
        found = list(self.shared.values)
        self.shared.barrier.wait()
        return found

    @contextlib.contextmanager
    def agreed(self):
        error = None
        try:
            yield
        except UserError as caught:
            error = caught
        for each in self.gathered(error):
            if each is not None:
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
    shared = Shared(size)

    def read(rank):
        return lines(text_blocks(path, 50, at_once=at_once, readers=Reader(shared, rank)))

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
        with pytest.raises(UserError, match="line 41 is longer than 50 bytes"):
            by_many(path, size, at_once)
