"""Files of whole numbers that begin with sizes: those of METIS, hMETIS, PaToH and the like.

To a reader of edges, the sizes are an edge and lines of neighbours are others. So a list of edges
is held against what its first line would announce.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.importing.readers.files import open_unpacked, quoted, read_errors

BLOCK = 1 << 20
LONGEST_LINE = 1 << 26  # a vertex may have many neighbours; but not where it is doubtful
LONGEST_DOUBTFUL = 1 << 22
MOST_DIGITS = 18
DIGITS, FRACTIONS = b"0123456789", b"+-.eE"
FEWEST = 3  # lines from which on sizes are no accident
# The first line of a Matrix Market file; some write one percent sign, or a blank behind it.
BANNER = re.compile(rb"(?:\xef\xbb\xbf)?\s*%+\s*matrixmarket\b", re.IGNORECASE)
HYPERGRAPH = (
    "nets join any number of vertices: import the graph that it was made of; its parts are read by "
    "import-parts"
)
EDGES = "if each line is an edge, give --columns source,target"


@dataclass(frozen=True)
class Lines:
    """Lines of whole numbers, without comments.

    Attributes
    ----------
    numbers : (m,) int64
        Those of the lines in the file, from 1.
    counts : (m,) int64
        How many values each has.
    values : int64, or float64
    """

    numbers: np.ndarray
    counts: np.ndarray
    values: np.ndarray


def number_lines(
    path: Path, longest_line: int = LONGEST_LINE, *, fractions: bool = False
) -> Iterator[Lines]:
    """The lines of a file of whole numbers, empty ones too; those that begin with % are comments.

    With ``fractions``, values are float64. A UserError names a line with anything else.
    """
    signs = DIGITS + FRACTIONS * fractions
    number, rest = 1, b""
    with open_unpacked(path) as file:
        while chunk := file.read(BLOCK):
            text = rest + (chunk if number > 1 or rest else chunk.removeprefix(b"\xef\xbb\xbf"))
            end = text.rfind(b"\n") + 1
            if len(text) - end > longest_line:
                line = number + text.count(b"\n")
                raise UserError(f"{path}, line {line} is longer than {longest_line:,} bytes")
            if end:
                yield _lines(path, number, text[:end], signs)
            number, rest = number + text[:end].count(b"\n"), text[end:]
        if rest:
            yield _lines(path, number, rest + b"\n", signs)


def _lines(path: Path, first: int, block: bytes, signs: bytes) -> Lines:
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    starts = np.concatenate(([0], ends[:-1] + 1))
    comments = np.flatnonzero(data[starts] == ord("%"))
    if len(comments):
        data = data.copy()
        for at in comments.tolist():
            data[starts[at] : ends[at]] = ord(" ")
    blank = (data == 32) | ((data >= 9) & (data <= 13))
    known = np.zeros(256, bool)
    known[list(signs)] = True
    begins = np.flatnonzero(~blank & np.concatenate(([True], blank[:-1])))
    ends_of = np.flatnonzero(blank & np.concatenate(([False], ~blank[:-1])))
    long = begins[ends_of - begins > (MOST_DIGITS if signs == DIGITS else 2 * MOST_DIGITS)]
    wrong = np.concatenate((np.flatnonzero(~blank & ~known[data]), long))
    if len(wrong):
        at = int(np.searchsorted(ends, wrong.min()))
        line = block[starts[at] : ends[at]].decode("utf-8", "replace")
        raise UserError(f"{path}, line {first + at}: {quoted(line.strip())} is not whole numbers")
    counts = np.diff(np.searchsorted(begins, np.append(starts, len(data))))
    values = np.zeros(0, np.int64 if signs == DIGITS else np.float64)
    if len(begins):
        values = np.array(data.tobytes().split(), values.dtype)
    kept = np.ones(len(starts), bool)
    kept[comments] = False
    return Lines(first + np.flatnonzero(kept), counts[kept], values)


def refuse_sizes(path: Path) -> None:
    """A UserError for a list of edges whose first line may be the sizes of what follows."""
    with read_errors(path):
        with open_unpacked(path) as file:
            if BANNER.match(file.read(1 << 10)):
                raise UserError(f"{path} is a Matrix Market file", "give --format mtx")
        found = _announced(path)
    if found is not None:
        line, (what, hint) = found
        raise UserError(f"{path}: its first line, {quoted(line)}, may be the sizes of {what}", hint)


def _announced(path: Path) -> tuple[str, tuple[str, str]] | None:
    """The first line, what it announces and a hint, where the others are as it says."""
    head: list[int] | None = None
    open_: list[_Announced] = []
    seen = _Seen()
    try:
        for lines in number_lines(path, LONGEST_DOUBTFUL, fractions=True):
            if head is None:
                there = np.flatnonzero(lines.counts)
                if not len(there):
                    continue
                at, count = int(there[0]), int(lines.counts[there[0]])
                first = lines.values[:count].tolist()
                if not all(number.is_integer() for number in first):
                    return None
                head = list(map(int, first))
                open_ = [one for one in _KINDS if one.fits(head)]
                lines = Lines(lines.numbers[at + 1 :], lines.counts[at + 1 :], lines.values[count:])
            seen.add(lines)
            open_ = [one for one in open_ if one.may_be(head, seen)]
            if not open_:
                return None
    except (UserError, ValueError):  # something else than numbers
        return None
    if head is None or seen.last < FEWEST:
        return None
    found = next((one for one in open_ if one.is_so(head, seen)), None)
    return None if found is None else (" ".join(map(str, head)), found.said)


class _Seen:
    """Facts on the lines behind the first one: how many, the last with a value, the range."""

    def __init__(self) -> None:
        self.lines, self.last, self.values = 0, 0, 0
        # The range of all values, the largest of the first two of lines, and how many lines have.
        self.low, self.high, self.end, self.widths = np.iinfo(np.int64).max, -1, -1, set[int]()

    def add(self, lines: Lines) -> None:
        """Take some more lines."""
        there = np.flatnonzero(lines.counts)
        if len(there):
            self.last = self.lines + int(there[-1]) + 1
            self.widths |= set(np.unique(lines.counts[there])[:4].tolist())
            self.low = min(self.low, int(lines.values.min()))
            self.high = max(self.high, int(lines.values.max()))
            begins = (np.cumsum(lines.counts) - lines.counts)[there]
            second = begins + (lines.counts[there] > 1)
            self.end = max(self.end, *(int(lines.values[of].max()) for of in (begins, second)))
        self.lines += len(lines.counts)
        self.values += len(lines.values)


Sizes = Sequence[int]


@dataclass(frozen=True)
class _Announced:
    """Something whose file begins with sizes.

    ``fits`` the first line; ``may_be``, ``is_so``: with what has been seen so far, and to the end.
    """

    said: tuple[str, str]
    fits: Callable[[Sizes], bool]
    may_be: Callable[[Sizes, _Seen], bool]
    is_so: Callable[[Sizes, _Seen], bool]


def metis_width(head: Sizes) -> tuple[int, int] | None:
    """Numbers of a vertex before its neighbours, and those of each neighbour; None: no METIS."""
    code = f"{head[2]:03d}" if len(head) > 2 else "000"
    if not 2 <= len(head) <= 4 or len(code) > 3 or set(code) - {"0", "1"}:
        return None
    if len(head) == 4 and (code[1] == "0" or head[3] < 1):
        return None
    weights = (head[3] if len(head) == 4 else 1) if code[1] == "1" else 0
    return int(code[0]) + weights, 1 + int(code[2])


def _metis_values(head: Sizes) -> int:
    before, each = metis_width(head) or (0, 0)
    return head[0] * before + 2 * head[1] * each


def _hyper_lines(head: Sizes) -> int:
    return head[0] + (head[1] if len(head) > 2 and head[2] >= 10 else 0)


def _patoh_values(head: Sizes) -> int:
    scheme = head[4] if len(head) > 4 else 0
    cells = head[1] * (head[5] if len(head) > 5 else 1) if scheme in (1, 3) else 0
    return head[3] + cells + (head[2] if scheme in (2, 3) else 0)


_KINDS = (
    _Announced(
        ("a graph of METIS", f"give --format metis; {EDGES}"),
        lambda head: head[0] > 0 and metis_width(head) is not None,
        lambda head, seen: seen.last <= head[0] and seen.values <= _metis_values(head),
        lambda head, seen: seen.last <= head[0] <= seen.lines + 1
        and seen.values == _metis_values(head)
        and (metis_width(head) != (0, 1) or 0 < seen.low <= seen.high <= head[0]),
    ),
    _Announced(
        ("a hypergraph of hMETIS", f"{HYPERGRAPH}; {EDGES}"),
        lambda head: min(head[:2]) > 0 and (len(head) == 2 or head[2:] in ([1], [10], [11])),
        lambda head, seen: seen.last <= _hyper_lines(head) and seen.low > 0,
        lambda head, seen: seen.last == _hyper_lines(head)
        and (len(head) > 2 or seen.high <= head[1]),
    ),
    _Announced(
        ("a hypergraph of PaToH", f"{HYPERGRAPH}; {EDGES}"),
        lambda head: 4 <= len(head) <= 6 and head[0] in (0, 1) and min(head[1:4]) > 0,
        lambda head, seen: seen.values <= _patoh_values(head),
        lambda head, seen: seen.values == _patoh_values(head) and seen.last >= head[2],
    ),
    _Announced(
        ("a matrix", f"write '%%MatrixMarket matrix coordinate real general' before it; {EDGES}"),
        lambda head: len(head) == 3 and head[0] == head[1],
        lambda head, seen: seen.last <= head[2] and seen.end <= head[0],
        lambda head, seen: seen.last == head[2] and seen.widths in ({2}, {3}),
    ),
    _Announced(
        ("the list, its vertices and edges", f"--header leaves it out; {EDGES}"),
        lambda head: len(head) == 2,
        lambda head, seen: seen.last <= head[1] and seen.end <= head[0],
        lambda head, seen: seen.last == head[1] and seen.widths in ({2}, {3}),
    ),
)  # fmt: skip
