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
from typing import IO

import scipy.io

from partition.errors import UserError, require
from partition.importing.readers.arc_columns import pick
from partition.importing.readers.files import content_limit, finite_weights, open_unpacked
from partition.importing.readers.metis_files import BANNER
from partition.importing.readers.source import Layout, Source
from partition.importing.readers.text import LONGEST_BLANK, LONGEST_LINE
from partition.resident import check_memory

_MOST_COMMENTS = 1 << 16
_KNOWN = {
    "object": ("matrix",),
    "layout": ("coordinate",),
    "field": ("pattern", "real", "integer"),
    "symmetry": ("general", "symmetric"),
}
_SHORTEST_ENTRY = len(b"1 1\n")
# So many vertices may be announced without edges to show for it; beyond, most must have one.
_FREE_VERTICES = 1 << 24
_VERTICES_PER_ENTRY = 64


def read(path: Path, layout: Layout) -> Source:
    """Read a Matrix Market file; row = source of an arc, column = target.

    A UserError if the header is malformed or of a kind that is not supported, an index is out of
    range, a weight is not finite, or there are fewer or more entries than announced.
    """
    with open_unpacked(path) as file:
        entries = _Entries(path, file)
        try:
            matrix = scipy.io.mmread(entries, spmatrix=False)
        except (ValueError, OverflowError) as error:
            raise UserError(f"{path}{_fault(entries, str(error))}") from error
    weights = finite_weights(matrix.data, str(path)) if entries.weighted else None
    data, weights, _ = pick({}, weights, layout.arc_features, None, str(path))
    row, column = matrix.coords
    return Source(
        entries.n, row, column, weights, symmetric=entries.symmetric, format="mtx", arc_data=data
    )


def _fault(entries: _Entries, message: str) -> str:
    """The fault that the tokenizer found, and its line."""
    missing = re.search(r"Expected another (\d+)", message)
    line = re.match(r"Line (\d+): (.*?)\.?$", message)
    if missing:
        return f" announces {entries.count} entries but holds {entries.count - int(missing[1])}"
    if line is None:
        return f": {message}"
    number, fault = line[1], line[2].strip()
    if "Too many lines" in fault:
        return f", line {number}: more entries than the {entries.count} announced"
    if "out of bounds" in fault:
        return f", line {number}: {fault.lower()}, vertices are 1..{entries.n}"
    return f", line {number}: {fault[:1].lower()}{fault[1:]}"


class _Entries:
    """The stream that the tokenizer reads: a header for it, then the entries of the file.

    In the header, "general" keeps it from mirroring edges, which is build_graph's job; "real" from
    cutting 1.5 down to 1 in an integer matrix; the empty comments make its line numbers those of
    the file.

    It passes on only what numbers are made of, and a line end at the end: the tokenizer ignores
    what stands behind a number, and runs over the end of its buffer in search of the next line if
    a NUL or the end of the file comes first.
    """

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path, self._file, self._ended, self._blank = path, file, False, 0
        self._line = 1
        first_line = file.readline(LONGEST_LINE)
        if not BANNER.match(first_line):
            raise UserError(
                f"{path} is not a Matrix Market file: line 1 does not begin with %%MatrixMarket",
                "if line 1 is missing, write it: %%MatrixMarket matrix coordinate real general (or "
                "pattern, symmetric); give --format edges if it is an edge list",
            )
        words = BANNER.sub(b"", first_line).decode("latin1").lower().split()
        whole = len(words) == len(_KNOWN)
        require(whole, self._in_line("expected '%%MatrixMarket matrix coordinate FIELD SYMM'"))
        for (what, known), word in zip(_KNOWN.items(), words, strict=True):
            fault = f"{what} {word!r} is not supported, only {' or '.join(known)}"
            require(word in known, self._in_line(fault))
        field, self.symmetric = words[2], words[3] == "symmetric"
        self.weighted, line = field != "pattern", b"%"
        while line.startswith(b"%") or (line and not line.strip()):
            line = file.readline(LONGEST_LINE)
            self._line += 1
            most = f"{path}: the first {_MOST_COMMENTS:,} lines are comments or empty"
            require(self._line <= _MOST_COMMENTS, most)
        sizes = line.split()
        whole = len(sizes) == 3 and all(re.fullmatch(rb"[0-9]{1,18}", word) for word in sizes)
        require(whole, self._in_line("expected 'ROWS COLUMNS ENTRIES'"))
        rows, columns, self.count = map(int, sizes)
        self.n = rows
        if rows != columns:
            raise UserError(f"{path}: a graph's matrix is square, this one is {rows} x {columns}")
        require(rows > 0, f"{path} holds a graph without vertices")
        # Refused before anything is allocated: announcements that the file cannot keep.
        if self.count * _SHORTEST_ENTRY > content_limit(path) + 1:
            raise UserError(
                f"{path} announces {self.count} entries, more than a file of its size can hold",
                "the file is truncated, or its size line is wrong",
            )
        if rows > max(_FREE_VERTICES, _VERTICES_PER_ENTRY * self.count):
            raise UserError(
                f"{path} announces {rows} vertices for only {self.count} entries",
                "number the vertices that have an edge 1, 2, 3 …, or import it as an edge list",
            )
        check_memory(16 * (rows + self.count), f"{path}: {rows} vertices and {self.count} entries")
        first, width, lines = file.readline(LONGEST_LINE), 2 + self.weighted, self._line
        self._line += 1
        found = len(first.split())
        fault = f"an entry of a {field} matrix has {width} columns, not {found}"
        require(found in (0, width), self._in_line(fault))
        plain = "%%MatrixMarket matrix coordinate " + ("real" if self.weighted else "pattern")
        plain += " general\n" + "%\n" * (lines - 2) + f"{rows} {rows} {self.count}\n"
        self._waiting = plain.encode() + self._checked(first)

    def _in_line(self, fault: str) -> str:
        return f"{self._path}, line {self._line}: {fault}"

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
            raise UserError(self._in_line(f"{sign!r} is not part of a number"))
        self._line += chunk.count(b"\n")
        # The tokenizer keeps a line until its end, however far that is.
        self._blank = self._blank + len(chunk) if chunk.isspace() else 0
        require(self._blank <= LONGEST_BLANK, self._in_line("there are no entries but blanks"))
        return chunk
