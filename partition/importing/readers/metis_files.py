"""Files of METIS and of other partitioners: graphs, part vectors, and what begins with sizes.

METIS, also of ParMETIS, KaHIP, KaMinPar, Chaco and the DIMACS challenge (.graph): the first line is
``n m [fmt [ncon]]``; line i after it has the size of vertex i, its weights and its neighbours from
1 on, each with a weight, as the three digits of fmt say. Each edge stands in the lines of both its
ends. Lines that begin with % are comments, an empty line is a vertex without neighbours.

To a reader of edges, the sizes are an edge and lines of neighbours are others. So a list of edges
is held against what its first line would announce.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from partition.errors import UserError, require, system_errors
from partition.graph.graph import index_dtype
from partition.importing.readers.files import content_limit, open_unpacked, quoted, read_errors
from partition.importing.readers.source import Layout, Source
from partition.resident import check_memory

BLOCK = 1 << 20
_LONGEST_LINE = 1 << 26  # a vertex may have many neighbours; but not where it is doubtful
_LONGEST_DOUBTFUL = 1 << 22
# Of whole numbers, and of numbers with fractions: what they are made of, and their digits.
_SIGNS = (b"0123456789 \t\n\v\f\r", 18), (b"0123456789+-.eE \t\n\v\f\r", 36)
_FEWEST = 3  # lines from which on sizes are no accident
# The first line of a Matrix Market file; some write one percent sign, or a blank behind it.
BANNER = re.compile(rb"(?:\xef\xbb\xbf)?\s*%+\s*matrixmarket\b", re.IGNORECASE)
HYPERGRAPH = (
    "nets join any number of vertices: import the graph that it was made of; its parts are read by "
    "import-parts"
)
_EDGES = "if each line is an edge, give --columns source,target"


_PART = re.compile(rb"[+-]?[0-9]{1,18}")
_FROM_ONE = "--first 1 if the file counts parts from 1"


def read(path: Path, layout: Layout) -> Source:
    """Read a graph of METIS: two arcs an edge, with weights where it has some.

    Sizes and weights of vertices are left out, which the notes say. A UserError names the line that
    is wrong: of a vertex that is not there or that is its own neighbour, or of an edge that stands
    in the line of one end only, or with two weights.
    """
    check_memory(12 * content_limit(path), f"{path}: a graph of METIS")
    blocks = list(_number_lines(path)) or [_Lines(*np.zeros((3, 0), np.int64))]
    begun = _Lines(*map(np.concatenate, zip(*blocks, strict=True))).after_first()
    if begun is None:
        raise UserError(f"{path} holds no graph")
    head, lines = begun
    width = _metis_width(head)
    if width is None:
        raise UserError(
            f"{path}: the first line is not 'n m [fmt [ncon]]', but {' '.join(map(str, head))}",
            "fmt is of three digits 0 or 1: sizes, weights of vertices, weights of edges",
        )
    (before, each), (n, edges), found = width, head[:2], len(lines.counts)
    require(found >= n, f"{path} announces {n} vertices and has lines of {found}")
    counts, numbers = lines.counts[:n], lines.numbers[:n]

    def at(place: np.integer, what: str) -> str:
        return f"{path}, line {lines.numbers[place]}: {what}"

    for more in n + np.flatnonzero(lines.counts[n:]):
        raise UserError(at(more, f"there are more lines than the {n} of vertices"))
    for wrong in np.flatnonzero((counts < before) | ((counts - before) % each > 0)):
        what = f"vertex {wrong + 1} has {counts[wrong]} numbers, not {before} and {each}"
        raise UserError(at(wrong, f"{what} for each neighbour"))
    # The place of each value in its line.
    place = np.arange(len(lines.values)) - np.repeat(np.cumsum(counts) - counts, counts)
    vertex = np.repeat(np.arange(n, dtype=index_dtype(n)), counts)
    ends = (place >= before) & ((place - before) % each == 0)
    source, target = vertex[ends], lines.values[ends] - 1
    for wrong in np.flatnonzero((target < 0) | (target >= n) | (target == source)):
        named, i = target[wrong] + 1, source[wrong]
        what = f"the vertex {named}, of 1..{n}" if named != i + 1 else "itself as a neighbour"
        raise UserError(at(i, f"vertex {i + 1} names {what}"))
    weights = None
    if each == 2:
        weights = lines.values[np.flatnonzero(ends) + 1].astype(np.float64)
        for light in np.flatnonzero(weights < 1):
            raise UserError(at(source[light], "a weight of an edge is at least 1"))
    notes = {"columns": "not read: sizes or weights of vertices"} if before else {}
    target = target.astype(index_dtype(n))
    arcs = Source(n, source, target, weights, format="metis", notes=notes)
    _check_symmetric(path, arcs, numbers)
    if len(source) != 2 * edges:
        raise UserError(
            f"{path} announces {edges} edges and lists {len(source) / 2:g}",
            "the first line counts each edge once, lines of vertices have it twice",
        )
    return arcs


def _check_symmetric(path: Path, arcs: Source, numbers: np.ndarray) -> None:
    """A UserError unless each edge stands in the lines of both its ends, with one weight."""
    source, target = arcs.source, arcs.target
    weight = np.zeros(len(source)) if arcs.weights is None else arcs.weights
    there = np.lexsort((weight, target, source))
    back = np.lexsort((weight, source, target))
    same = (source[there] == target[back]) & (target[there] == source[back])
    for fault, equal in (("", same), (" with this weight", weight[there] == weight[back])):
        wrong = np.flatnonzero(~equal)
        if not len(wrong):
            continue
        at = wrong[0]
        ahead = int(source[there[at]]), int(target[there[at]])
        behind = int(target[back[at]]), int(source[back[at]])
        u, v = ahead if ahead <= behind else behind[::-1]  # the smaller one has no counterpart
        raise UserError(
            f"{path}, line {numbers[u]}: vertex {u + 1} has the neighbour {v + 1}{fault}, and line "
            f"{numbers[v]}, of vertex {v + 1}, does not have {u + 1} so",
            "an edge stands in the lines of both its ends",
        )


def _metis_width(head: Sequence[int]) -> tuple[int, int] | None:
    """Numbers of a vertex before its neighbours, and those of each neighbour; None: no METIS."""
    code = f"{head[2]:03d}" if len(head) > 2 else "000"
    if not 2 <= len(head) <= 4 or len(code) > 3 or set(code) - {"0", "1"}:
        return None
    if len(head) == 4 and (code[1] == "0" or head[3] < 1):
        return None
    weights = (head[3] if len(head) == 4 else 1) if code[1] == "1" else 0
    return int(code[0]) + weights, 1 + int(code[2])


class _Lines(NamedTuple):
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

    def after_first(self) -> tuple[list[int], _Lines] | None:
        """The values of the first line that has some, and the lines after it; None without one."""
        there = np.flatnonzero(self.counts)
        if not len(there):
            return None
        rest, count = slice(int(there[0]) + 1, None), int(self.counts[there[0]])
        lines = _Lines(self.numbers[rest], self.counts[rest], self.values[count:])
        return self.values[:count].tolist(), lines


def _number_lines(
    path: Path, longest_line: int = _LONGEST_LINE, *, fractions: bool = False
) -> Iterator[_Lines]:
    """The lines of a file of whole numbers, empty ones too; those that begin with % are comments.

    With ``fractions``, values are float64. A UserError names a line with anything else.
    """
    number, rest = 1, b""
    with open_unpacked(path) as file:
        while chunk := file.read(BLOCK):
            text = rest + (chunk if number > 1 or rest else chunk.removeprefix(b"\xef\xbb\xbf"))
            end = text.rfind(b"\n") + 1
            if len(text) - end > longest_line:
                line = number + text.count(b"\n")
                raise UserError(f"{path}, line {line} is longer than {longest_line:,} bytes")
            if end:
                yield _lines_of(path, number, text[:end], fractions)
            number, rest = number + text[:end].count(b"\n"), text[end:]
        if rest:
            yield _lines_of(path, number, rest + b"\n", fractions)


def _lines_of(path: Path, first: int, block: bytes, fractions: bool) -> _Lines:
    lines = block.split(b"\n")[:-1]
    numbers = np.arange(first, first + len(lines))
    if b"%" in block:
        kept = [not line.startswith(b"%") for line in lines]
        lines, numbers = [*itertools.compress(lines, kept)], numbers[kept]
        block = b"\n".join(lines)
    words, (signs, most) = block.split(), _SIGNS[fractions]
    if block.translate(None, signs) or max(map(len, words), default=0) > most:
        for number, line in zip(numbers, lines, strict=True):
            if any(len(word) > most or word.translate(None, signs) for word in line.split()):
                shown = quoted(line.decode("utf-8", "replace").strip())
                raise UserError(f"{path}, line {number}: {shown} is not whole numbers")
    counts = np.fromiter((len(line.split()) for line in lines), np.int64, len(lines))
    return _Lines(numbers, counts, np.array(words, float if fractions else int))


def refuse_sizes(path: Path) -> None:
    """A UserError for a list of edges whose first line may be the sizes of what follows."""
    with read_errors(path):
        with open_unpacked(path) as file:
            if BANNER.match(file.read(1 << 10)):
                raise UserError(f"{path} is a Matrix Market file", "give --format mtx")
        try:
            found = _announced(path)
        except (UserError, ValueError):  # something else than numbers
            return
    if found is not None:
        line, what, hint = found
        raise UserError(f"{path}: its first line, {quoted(line)}, may be the sizes of {what}", hint)


def _announced(path: Path) -> tuple[str, str, str] | None:
    """The first line, what it announces and a hint, where the others are as it says."""
    head: list[int] = []
    kinds, seen = dict.fromkeys(_KINDS, False), _Seen()
    for lines in _number_lines(path, _LONGEST_DOUBTFUL, fractions=True):
        if not head:
            begun = lines.after_first()
            if begun is None:
                continue
            first, lines = begun
            if not all(float(number).is_integer() for number in first):
                return None
            head = list(map(int, first))
        seen.add(lines)
        found = _sizes(head, seen)
        kinds = {kind: found[kind][1] for kind in kinds if found.get(kind, (False,))[0]}
        if not kinds:
            return None
    meant = next((kind for kind, ended in kinds.items() if ended), None)
    if meant is None or seen.last < _FEWEST:
        return None
    return " ".join(map(str, head)), *_KINDS[meant]


@dataclass
class _Seen:
    """Facts on the lines behind the first one.

    How many there are, the last one with a value, how many values; their range, the largest of the
    first two of lines, and how many lines have.
    """

    lines: int = 0
    last: int = 0
    values: int = 0
    low: int = np.iinfo(np.int64).max
    high: int = -1
    end: int = -1
    widths: set[int] = field(default_factory=set)

    def add(self, lines: _Lines) -> None:
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


def _sizes(head: list[int], seen: _Seen) -> dict[str, tuple[bool, bool]]:
    """Formats that a first line may be of: whether lines may go on so, and whether they end so."""
    found, count, width = dict[str, tuple[bool, bool]](), len(head), _metis_width(head)
    if width is not None and head[0] >= 1:
        n, values = head[0], head[0] * width[0] + 2 * head[1] * width[1]
        inside = width != (0, 1) or 0 < seen.low <= seen.high <= n
        ended = inside and n <= seen.lines + 1 and seen.values == values
        found["metis"] = seen.last <= n and seen.values <= values, ended
    if count >= 2 and min(head[:2]) >= 1 and head[2:] in ([], [1], [10], [11]):
        lines = head[0] + (head[1] if head[2:] in ([10], [11]) else 0)
        ended = seen.last == lines and (count > 2 or seen.high <= head[1])
        found["hmetis"] = seen.last <= lines and seen.low > 0, ended
    if 4 <= count <= 6 and head[0] in (0, 1) and min(head[1:4]) >= 1:
        cells, nets, pins, scheme, constraints = (*head[1:], *[0, 1][count - 4 :])
        values = pins + (cells * constraints if scheme in (1, 3) else 0)
        values += nets if scheme in (2, 3) else 0
        found["patoh"] = seen.values <= values, seen.values == values and seen.last >= nets
    if count == 2 or (count == 3 and head[0] == head[1]):
        ended = seen.last == head[-1] and seen.widths in ({2}, {3})
        may = seen.last <= head[-1] and seen.end <= head[0]
        found["list" if count == 2 else "matrix"] = may, ended
    return found


_KINDS = {
    "metis": ("a graph of METIS", f"give --format metis; {_EDGES}"),
    "hmetis": ("a hypergraph of hMETIS", f"{HYPERGRAPH}; {_EDGES}"),
    "patoh": ("a hypergraph of PaToH", f"{HYPERGRAPH}; {_EDGES}"),
    "matrix": (
        "a matrix",
        f"write '%%MatrixMarket matrix coordinate real general' before it; {_EDGES}",
    ),
    "list": ("the list, its vertices and edges", f"--header leaves it out; {_EDGES}"),
}


def read_parts(
    file: str | os.PathLike[str], n: int, k: int | None = None, first: int = 0
) -> np.ndarray:
    """Read n part numbers, (n,) int32, from 0; below ``k`` if it is given.

    One number per line, as METIS, hMETIS, KaHyPar, KaHIP and Zoltan write them, or several per
    line, separated by white space, as PaToH does; or a mapping of Scotch: how many vertices, then
    the number of each and its part. ``first`` is the number of the first part in the file.

    A UserError with the number of the line that is wrong; or if a part has no vertex and k is not
    given: the file may count from 1, or hold other numbers than those of parts.
    """
    with system_errors(f"cannot read {file}"):
        lines = Path(file).read_bytes().rstrip().split(b"\n")
    rows = [line.split() or [line] for line in lines if lines != [b""]]
    line_of = np.repeat(np.arange(1, len(rows) + 1), [len(row) for row in rows])
    words, order = [word for row in rows for word in row], None
    if [len(row) for row in rows] == [1, *[2] * n] and words[0] == str(n).encode():
        vertices = _numbers(file, words[1::2], line_of[1::2])
        order = np.argsort(vertices, kind="stable")
        if (np.diff(vertices[order]) != 1).any():
            what = "is not a mapping of Scotch: its vertices are not each there once"
            raise UserError(f"{file} {what}")
        words, line_of = words[2::2], line_of[2::2]
    parts = _numbers(file, words, line_of)
    from_one = first == 0 and len(parts) > 0 and parts.min() == 1
    last = first + (k or np.iinfo(np.int32).max)
    for i in np.flatnonzero((parts < first) | (parts >= last)):
        limit = f"{first}..{last - 1}" if k else f"{first}, {first + 1}, {first + 2}, …"
        wrong_part = f"{file}, line {line_of[i]}: part {parts[i]} is not one of {limit}"
        raise UserError(wrong_part, _FROM_ONE if from_one and parts.max() == k else None)
    if len(parts) != n:
        count = f"{file} has {len(parts)} part numbers, the graph has {n} vertices"
        raise UserError(count, "one number for each vertex, in their order")
    used = np.unique(parts)
    empty = np.flatnonzero(used != first + np.arange(len(used)))
    if k is None and len(empty):
        part, parted = first + empty[0], used[-1] - first + 1
        hint = f"-k {parted} if part {part} is meant to be empty"
        gap = f"{file} has parts {used[0]} to {used[-1]} and no vertex in part {part}"
        raise UserError(gap, f"{_FROM_ONE}; {hint}" if from_one else hint)
    return ((parts if order is None else parts[order]) - first).astype(np.int32)


def _numbers(
    file: str | os.PathLike[str], words: Sequence[bytes], line_of: np.ndarray
) -> np.ndarray:
    """Words as (m,) int64; a UserError for one that is no such number."""
    for word, line in zip(words, line_of, strict=True):
        if not _PART.fullmatch(word):
            shown = word[:40].decode(errors="replace").strip()
            raise UserError(f"{file}, line {line}: {shown!r} is not a part number")
    return np.array(words, np.int64)
