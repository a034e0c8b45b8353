"""Matrix Market files (.mtx): coordinate; pattern, real or integer; general or symmetric.

The header is read here and held against the size of the file, so that a small bad file can
neither allocate much nor name a million entries that are not there. SciPy's compiled,
multi-threaded tokenizer then reads the entries.

The matrix is square. Its entry ``i j w`` is the arc from vertex i − 1 to vertex j − 1 of weight w,
which may be 0; an edge of a symmetric file becomes two arcs. Comments stand before the size line
only.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO, NamedTuple

import scipy.io

from partition.errors import UserError
from partition.importing.readers.arc_columns import pick
from partition.importing.readers.files import content_limit, finite_weights, open_unpacked
from partition.importing.readers.metis_files import BANNER
from partition.importing.readers.source import Layout, Source
from partition.importing.readers.text import LONGEST_BLANK, LONGEST_LINE
from partition.resident import check_memory

MOST_COMMENTS = 1 << 16
KNOWN = {
    "object": ("matrix",),
    "layout": ("coordinate",),
    "field": ("pattern", "real", "integer"),
    "symmetry": ("general", "symmetric"),
}
SHORTEST_ENTRY = len(b"1 1\n")
# So many vertices may be announced without edges to show for it; beyond, most must have one.
FREE_VERTICES = 1 << 24
VERTICES_PER_ENTRY = 64


def read(path: Path, layout: Layout) -> Source:
    """Read a Matrix Market file; row = source of an arc, column = target.

    A UserError if the header is malformed or of a kind that is not supported, an index is out of
    range, a weight is not finite, or there are fewer or more entries than announced.
    """
    with open_unpacked(path) as file:
        header = _read_header(path, file)
        try:
            matrix = scipy.io.mmread(_Entries(path, header, file), spmatrix=False)
        except (ValueError, OverflowError) as error:
            raise _readable(path, header, str(error)) from error
    pattern = header.field == "pattern"
    weights = None if pattern else finite_weights(matrix.data, str(path))
    row, column = matrix.coords
    data, weights, _ = pick({}, weights, layout.arc_features, None, str(path))
    return Source(
        header.n, row, column, weights, symmetric=header.symmetric, format="mtx", arc_data=data
    )


class _Header(NamedTuple):
    """The announcements of a file, the number of lines they took, and the line after them."""

    field: str
    symmetric: bool
    n: int
    entries: int
    lines: int
    first_entry: bytes


def _read_header(path: Path, file: IO[bytes]) -> _Header:
    first_line = file.readline(LONGEST_LINE)
    if not BANNER.match(first_line):
        raise UserError(
            f"{path} is not a Matrix Market file: line 1 does not begin with %%MatrixMarket",
            "if line 1 is missing, write it: %%MatrixMarket matrix coordinate real general (or "
            "pattern, symmetric); give --format edges if it is an edge list",
        )
    words = BANNER.sub(b"", first_line).decode("latin1").lower().split()
    if len(words) != len(KNOWN):
        raise UserError(f"{path}, line 1: expected '%%MatrixMarket matrix coordinate FIELD SYMM'")
    for (what, known), word in zip(KNOWN.items(), words, strict=True):
        if word not in known:
            supported = " or ".join(known)
            raise UserError(f"{path}, line 1: {what} {word!r} is not supported, only {supported}")
    _, _, field, symmetry = words
    lines, line = 1, b"%"
    while line.startswith(b"%") or (line and not line.strip()):
        line = file.readline(LONGEST_LINE)
        lines += 1
        if lines > MOST_COMMENTS:
            raise UserError(f"{path}: the first {MOST_COMMENTS:,} lines are comments or empty")
    sizes = line.split()
    if len(sizes) != 3 or not all(re.fullmatch(rb"[0-9]{1,18}", word) for word in sizes):
        raise UserError(f"{path}, line {lines}: expected 'ROWS COLUMNS ENTRIES'")
    rows, columns, entries = map(int, sizes)
    if rows != columns:
        raise UserError(f"{path}: a graph's matrix is square, this one is {rows} x {columns}")
    if rows == 0:
        raise UserError(f"{path} holds a graph without vertices")
    # Refused before anything is allocated: announcements that the file cannot keep.
    if entries * SHORTEST_ENTRY > content_limit(path) + 1:
        raise UserError(
            f"{path} announces {entries} entries, more than a file of its size can hold",
            "the file is truncated, or its size line is wrong",
        )
    if rows > max(FREE_VERTICES, VERTICES_PER_ENTRY * entries):
        raise UserError(
            f"{path} announces {rows} vertices for only {entries} entries",
            "number the vertices that have an edge 1, 2, 3 …, or import it as an edge list",
        )
    check_memory(16 * (rows + entries), f"{path}: {rows} vertices and {entries} entries")
    first, width = file.readline(LONGEST_LINE), 2 if field == "pattern" else 3
    if first.strip() and len(first.split()) != width:
        raise UserError(
            f"{path}, line {lines + 1}: an entry of a {field} matrix has {width} columns, not "
            f"{len(first.split())}"
        )
    return _Header(field, symmetry == "symmetric", rows, entries, lines, first)


def _readable(path: Path, header: _Header, message: str) -> UserError:
    missing = re.search(r"Expected another (\d+)", message)
    if missing:
        found = header.entries - int(missing[1])
        return UserError(f"{path} announces {header.entries} entries but holds {found}")
    line = re.match(r"Line (\d+): (.*?)\.?$", message)
    if line is None:
        return UserError(f"{path}: {message}")
    number, fault = line[1], line[2].strip()
    if "Too many lines" in fault:
        return UserError(f"{path}, line {number}: more entries than the {header.entries} announced")
    if "out of bounds" in fault:
        return UserError(f"{path}, line {number}: {fault.lower()}, vertices are 1..{header.n}")
    return UserError(f"{path}, line {number}: {fault[:1].lower()}{fault[1:]}")


class _Entries:
    """The stream that the tokenizer reads: a header for it, then the entries of the file.

    In the header, "general" keeps it from mirroring edges, which is build_graph's job; "real" from
    cutting 1.5 down to 1 in an integer matrix; the empty comments make its line numbers those of
    the file.

    It passes on only what numbers are made of, and a line end at the end: the tokenizer ignores
    what stands behind a number, and runs over the end of its buffer in search of the next line if
    a NUL or the end of the file comes first.
    """

    def __init__(self, path: Path, header: _Header, file: IO[bytes]) -> None:
        self._path, self._line, self._file = path, header.lines + 1, file
        self._ended, self._blank = False, 0
        field, n = "pattern" if header.field == "pattern" else "real", header.n
        plain = f"%%MatrixMarket matrix coordinate {field} general\n" + "%\n" * (header.lines - 2)
        plain += f"{n} {n} {header.entries}\n"
        self._waiting = plain.encode() + self._checked(header.first_entry)

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return b"".join(iter(lambda: self.read(1 << 20), b""))
        if not self._waiting and not self._ended:
            self._waiting = self._checked(self._file.read(size))
            self._ended = not self._waiting
            self._waiting = self._waiting or b"\n"
        chunk, self._waiting = self._waiting[:size], self._waiting[size:]
        return chunk

    def _checked(self, chunk: bytes) -> bytes:
        strange = chunk.translate(None, delete=b"0123456789+-.eE \t\r\n")
        if strange:
            self._line += chunk[: chunk.index(strange[:1])].count(b"\n")
            sign = strange[:1].decode("latin1")
            raise UserError(f"{self._path}, line {self._line}: {sign!r} is not part of a number")
        self._line += chunk.count(b"\n")
        # The tokenizer keeps a line until its end, however far that is.
        self._blank = self._blank + len(chunk) if chunk.isspace() else 0
        if self._blank > LONGEST_BLANK:
            raise UserError(f"{self._path}, line {self._line}: there are no entries but blanks")
        return chunk
