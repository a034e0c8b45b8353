"""Graphs of METIS, and other files of whole numbers that begin with sizes.

METIS, also of ParMETIS, KaHIP, KaMinPar, Chaco and the DIMACS challenge (.graph): the first line is
``n m [fmt [ncon]]``; line i after it has the size of vertex i, its weights and its neighbours from
1 on, each with a weight, as the three digits of fmt say. Each edge stands in the lines of both its
ends. Lines that begin with % are comments, an empty line is a vertex without neighbours.

To a reader of edges, the sizes are an edge and lines of neighbours are others. So a list of edges
is held against what its first line would announce.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from partition.errors import UserError, system_errors
from partition.graph.graph import index_dtype
from partition.importing.readers.files import content_limit, open_unpacked, quoted, read_errors
from partition.importing.readers.source import Layout, Source
from partition.resident import check_memory

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


def read(path: Path, layout: Layout) -> Source:
    """Read a graph of METIS: two arcs an edge, with weights where it has some.

    Sizes and weights of vertices are left out, which the notes say. A UserError names the line that
    is wrong: of a vertex that is not there or that is its own neighbour, or of an edge that stands
    in the line of one end only, or with two weights.
    """
    head, lines = _read_lines(path)
    width = _metis_width(head)
    if width is None:
        raise UserError(
            f"{path}: the first line is not 'n m [fmt [ncon]]', but {' '.join(map(str, head))}",
            "fmt is of three digits 0 or 1: sizes, weights of vertices, weights of edges",
        )
    (before, each), (n, edges) = width, head[:2]
    if len(lines.counts) < n:
        raise UserError(f"{path} announces {n} vertices and has lines of {len(lines.counts)}")
    if (extra := np.flatnonzero(lines.counts[n:])).size:
        line = lines.numbers[n + extra[0]]
        raise UserError(f"{path}, line {line}: there are more lines than the {n} of vertices")
    counts, numbers = lines.counts[:n], lines.numbers[:n]
    wrong = np.flatnonzero((counts < before) | ((counts - before) % each > 0))
    if len(wrong):
        raise UserError(
            f"{path}, line {numbers[wrong[0]]}: vertex {wrong[0] + 1} has {counts[wrong[0]]} "
            f"numbers, not {before} and {each} for each neighbour"
        )
    # The place of each value in its line.
    place = np.arange(len(lines.values)) - np.repeat(np.cumsum(counts) - counts, counts)
    vertex = np.repeat(np.arange(n, dtype=index_dtype(n)), counts)
    ends = (place >= before) & ((place - before) % each == 0)
    source, target = vertex[ends], lines.values[ends] - 1
    outside = np.flatnonzero((target < 0) | (target >= n) | (target == source))
    if len(outside):
        at, named = int(source[outside[0]]), int(target[outside[0]]) + 1
        what = f"the vertex {named}, of 1..{n}" if named != at + 1 else "itself as a neighbour"
        raise UserError(f"{path}, line {numbers[at]}: vertex {at + 1} names {what}")
    weights = None
    if each == 2:
        weights = lines.values[np.flatnonzero(ends) + 1].astype(np.float64)
        if len(light := np.flatnonzero(weights < 1)):
            at = int(source[light[0]])
            raise UserError(f"{path}, line {numbers[at]}: a weight of an edge is at least 1")
    left = "sizes or weights of vertices" if before else ""
    notes = {"columns": f"not read: {left}"} if left else {}
    target = target.astype(index_dtype(n))
    arcs = Source(n, source, target, weights, format="metis", notes=notes)
    _check_symmetric(path, arcs, numbers)
    if len(source) != 2 * edges:
        raise UserError(
            f"{path} announces {edges} edges and lists {len(source) / 2:g}",
            "the first line counts each edge once, lines of vertices have it twice",
        )
    return arcs


def _read_lines(path: Path) -> tuple[list[int], _Lines]:
    """The numbers of the first line, and all lines after it."""
    check_memory(12 * content_limit(path), f"{path}: a graph of METIS")
    blocks = list(_number_lines(path)) or [_Lines(*np.zeros((3, 0), np.int64))]
    every = _Lines(
        *(np.concatenate([getattr(one, name) for one in blocks]) for name in vars(blocks[0]))
    )
    found = every.after_first()
    if found is None:
        raise UserError(f"{path} holds no graph")
    return found


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


@dataclass(frozen=True)
class _Lines:
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
    path: Path, longest_line: int = LONGEST_LINE, *, fractions: bool = False
) -> Iterator[_Lines]:
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
                yield _lines_of(path, number, text[:end], signs)
            number, rest = number + text[:end].count(b"\n"), text[end:]
        if rest:
            yield _lines_of(path, number, rest + b"\n", signs)


def _lines_of(path: Path, first: int, block: bytes, signs: bytes) -> _Lines:
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
    return _Lines(first + np.flatnonzero(kept), counts[kept], values)


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
    head: list[int] | None = None
    kinds, seen = list(_KINDS), _Seen()
    for lines in _number_lines(path, LONGEST_DOUBTFUL, fractions=True):
        if head is None:
            begun = lines.after_first()
            if begun is None:
                continue
            first, lines = begun
            if not all(float(number).is_integer() for number in first):
                return None
            head = list(map(int, first))
        seen.add(lines)
        kinds = [kind for kind in kinds if kind[0](head, seen, False)]
        if not kinds:
            return None
    if head is None or seen.last < FEWEST:
        return None
    found = next((kind for kind in kinds if kind[0](head, seen, True)), None)
    return None if found is None else (" ".join(map(str, head)), *found[1:])


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


# Whether lines may go on as the first one announces; when they are ended, whether they did.


def _is_metis(head: list[int], seen: _Seen, ended: bool) -> bool:
    width = _metis_width(head)
    if width is None or head[0] < 1:
        return False
    n, values = head[0], head[0] * width[0] + 2 * head[1] * width[1]
    if not ended:
        return seen.last <= n and seen.values <= values
    inside = width != (0, 1) or 0 < seen.low <= seen.high <= n
    return inside and n <= seen.lines + 1 and seen.values == values


def _is_hmetis(head: list[int], seen: _Seen, ended: bool) -> bool:
    if len(head) < 2 or min(head[:2]) < 1 or head[2:] not in ([], [1], [10], [11]):
        return False
    lines = head[0] + (head[1] if head[2:] in ([10], [11]) else 0)
    if not ended:
        return seen.last <= lines and seen.low > 0
    return seen.last == lines and (len(head) > 2 or seen.high <= head[1])


def _is_patoh(head: list[int], seen: _Seen, ended: bool) -> bool:
    if not 4 <= len(head) <= 6 or head[0] not in (0, 1) or min(head[1:4]) < 1:
        return False
    cells, nets, pins, scheme, constraints = (*head[1:], *[0, 1][len(head) - 4 :])
    values = pins + (cells * constraints if scheme in (1, 3) else 0)
    values += nets if scheme in (2, 3) else 0
    return seen.values == values and seen.last >= nets if ended else seen.values <= values


def _is_matrix(head: list[int], seen: _Seen, ended: bool) -> bool:
    return len(head) == 3 and head[0] == head[1] and _has_rows(head, seen, ended)


def _is_list(head: list[int], seen: _Seen, ended: bool) -> bool:
    return len(head) == 2 and _has_rows(head, seen, ended)


def _has_rows(head: list[int], seen: _Seen, ended: bool) -> bool:
    if ended:
        return seen.last == head[-1] and seen.widths in ({2}, {3})
    return seen.last <= head[-1] and seen.end <= head[0]


_KINDS = (
    (_is_metis, "a graph of METIS", f"give --format metis; {EDGES}"),
    (_is_hmetis, "a hypergraph of hMETIS", f"{HYPERGRAPH}; {EDGES}"),
    (_is_patoh, "a hypergraph of PaToH", f"{HYPERGRAPH}; {EDGES}"),
    (
        _is_matrix,
        "a matrix",
        f"write '%%MatrixMarket matrix coordinate real general' before it; {EDGES}",
    ),
    (_is_list, "the list, its vertices and edges", f"--header leaves it out; {EDGES}"),
)


_FROM_ONE = "--first 1 if the file counts parts from 1"


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
    words, line_of = lines if lines != [b""] else [], None
    if any(len(line.split(None, 2)) > 1 for line in lines):
        rows = [line.split() for line in lines]
        sizes = [len(row) for row in rows]
        line_of = np.repeat(np.arange(len(rows)), sizes)
        words = [word for row in rows for word in row]
        if sizes == [1, *[2] * n] and words[0] == str(n).encode():
            line_of = 1 + _order(file, words[1::2])
            words = [words[2 * line] for line in line_of]
    parts, wrong = _numbers(words)
    if wrong is not None:
        shown = words[wrong][:40].decode(errors="replace").strip()
        raise UserError(f"{file}, line {_line(wrong, line_of)}: {shown!r} is not a part number")
    from_one = first == 0 and len(parts) > 0 and parts.min() == 1
    last = first + (k or np.iinfo(np.int32).max)
    outside = np.flatnonzero((parts < first) | (parts >= last))
    if len(outside):
        i = int(outside[0])
        limit = f"{first}..{last - 1}" if k else f"{first}, {first + 1}, {first + 2}, …"
        wrong_part = f"{file}, line {_line(i, line_of)}: part {parts[i]} is not one of {limit}"
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
    return (parts - first).astype(np.int32)


def _order(file: str | os.PathLike[str], vertices: list[bytes]) -> np.ndarray:
    """Where the parts of vertices 0, 1, … are in a mapping, whose vertices are counted from any."""
    numbers, wrong = _numbers(vertices)
    order = np.argsort(numbers, kind="stable")
    if wrong is not None or (np.diff(numbers[order]) != 1).any():
        raise UserError(f"{file} is not a mapping of Scotch: its vertices are not each there once")
    return order


def _line(i: int, line_of: np.ndarray | None) -> int:
    return (i if line_of is None else int(line_of[i])) + 1


def _numbers(words: list[bytes]) -> tuple[np.ndarray, int | None]:
    """Words as (m,) int64; or the place of one that is no such number."""
    with contextlib.suppress(ValueError, OverflowError):
        return np.array(list(map(int, words)), np.int64), None
    return np.zeros(len(words), np.int64), next(i for i, w in enumerate(words) if not _fits(w))


def _fits(word: bytes) -> bool:
    """Whether a word is an int64."""
    with contextlib.suppress(ValueError):
        return -(2**63) <= int(word) < 2**63
    return False
