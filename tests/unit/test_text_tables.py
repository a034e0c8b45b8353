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
from partition.importing.readers.text import Table
from partition.importing.readers.vertex_files import read_features, read_labels

ARCS = {
    "tabs": "0\t1\n1\t2\n",
    "runs": "  0   1\n1 \t 2  \n\t\n2\t\t0",
    "signs": "+0 1\n-3 007\n",
    "comments": "# a\n0 1 # b\n% c\n1 2\n",
    "weights": "0;1;.5\n1;2;-1e-3\n2;0;+3.\n",
    "quotes": '"a","b, c"\nb,"a""b"\n',
    "blanks": 'a, "b, c"\n b ,a\n',
    "open": 'a,b\n"c,a\nb,a\n',
    "texts": "a b\n# of c\n b\ta\n",
    "hexadecimal": "0x1f,0x2\n0x2,b\n",
    "unread": "0,1,x,2\n1,2\n2,0,0x1f\n",
}
BY_ARROW = set(ARCS) - {"signs", "blanks", "open", "unread"}


def outcome(read):
    try:
        return read()
    except UserError as error:
        return str(error)


def arcs(path, **options):
    source = read_source(path, "edges", Layout(header=False, **options))
    arrays = (source.source, source.target, source.weights, source.ids)
    return source.n, *(None if array is None else array.tolist() for array in arrays)


@pytest.mark.parametrize("name", ARCS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_arcs_by_arrow_and_by_hand(tmp_path, monkeypatch, name, end):
    path = tmp_path / "e.txt"
    path.write_bytes(ARCS[name].replace("\n", end).encode())
    options = {"columns": "source,target"} if name == "unread" else {}
    read = []
    by_arrow = Table._by_arrow
    monkeypatch.setattr(Table, "_by_arrow", lambda *a: read.append(by_arrow(*a)) or read[-1])
    found = outcome(lambda: arcs(path, **options))
    assert any(columns is not None for columns in read) == (name in BY_ARROW)
    monkeypatch.setattr(Table, "_by_arrow", lambda *a: None)
    assert outcome(lambda: arcs(path, **options)) == found


def test_lines_keep_their_numbers_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 1 << 11)
    lines = [f"{i} {i + 1}" + " # c" * (i % 7 == 0) for i in range(2000)]
    path = tmp_path / "e.txt"
    path.write_text("# c\n\n" + "\n".join(lines))
    assert arcs(path)[:2] == (2001, list(range(2000)))
    for bad, said in (("5 x", "line 1803: '5 x' is not"), ("5", "line 1803: '5' has 1 columns")):
        path.write_text("# c\n\n" + "\n".join([*lines[:1800], bad, *lines[1801:]]))
        refuses(said, arcs, path)


def test_tables_by_arrow_and_by_hand(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    for raw in (
        "id,a,b\n# c\nx,1,+2\ny , 3 ,.5\n",
        'id;a\n"x;y";1e-3\n"",2\n',
        "1\n  \n2\n",
        "id\tlabel\nx\t\n\t\ny\tb c\n",
        'label\n"a, b"\nc\n ""\n',
        'label\na"b\n\xa0c\n',
    ):
        path.write_text(raw)
        by_arrow, by_hand = [], []
        for read in (read_features, read_labels):
            by_arrow.append(repr(outcome(lambda read=read: read(path))))
            with monkeypatch.context() as patch:
                patch.setattr(Table, "_by_arrow", lambda *a: None)
                by_hand.append(repr(outcome(lambda read=read: read(path))))
        assert by_arrow == by_hand


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
