"""Edge lists: one arc ``source target [weight]`` a line, as SNAP publishes them (.txt, .gz)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partition.errors import UserError
from partition.importing.readers import Layout, Piece, Reading, Stream
from partition.importing.readers.blocks import LONGEST_LINE
from partition.importing.readers.columns import ROLES, Columns, find_columns
from partition.importing.readers.files import finite_weights, quoted, read_errors
from partition.importing.readers.sharing import before_and_all
from partition.importing.readers.text import Table

# Whole numbers of this size in a third column are rather times or ids than weights.
LARGE_WEIGHT = 1000
# Lines of three whole numbers from which on 0, 1, 2, … are rather numbers of lines than sources.
FEWEST_NUMBERED = 3


def stream(path: Path, layout: Layout, reading: Reading) -> Stream:
    """Read an edge list: columns separated by white space, commas, semicolons or tabs.

    Ids are 64-bit integers, or texts. For comments see :meth:`Table.is_comment`; their count is a
    note. A UserError if there is no arc in the file, a line is not two ids and, where the others
    have one, a finite weight, or it is not clear what a column or the first line is.
    """
    columns = find_columns(path, layout)
    table = arc_table(path, columns)
    ends, readers = len(columns.places), reading.readers
    notes: dict[str, object] = {"columns": columns.note} if columns.note else {}

    def pieces() -> Iterator[Piece]:
        third, size, rows = _ThirdColumn(path, columns), path.stat().st_size, 0
        again = not columns.doubtful

        def tell(at: int) -> None:
            reading.tell("reading", at, size)

        with read_errors(path):
            for found in table.pieces(tell, readers):
                source, target, *rest = found
                before, all_rows = before_and_all(readers, len(source))
                before += rows
                if not again:
                    skipped = int(before == 0 and not columns.header)
                    again = any(_has(e[skipped:], columns.doubtful) for e in (source, target))
                if not columns.text:
                    source, target = source.to_numpy(), target.to_numpy()
                weights = None
                with readers.agreed():
                    if ends == 3:
                        weights = finite_weights(rest[0].to_numpy(), str(path), before)
                    data = columns.data.columns(found[ends:], str(path), before)
                if weights is not None and not columns.known:
                    for seen in readers.gathered(_Seen.of(source, weights, columns.text)):
                        third.add(seen)
                yield Piece(source, target, weights, data, before)
                rows += all_rows
        with readers.agreed():
            third.check()
        refuse_doubt(path, columns, any(readers.gathered(again)))
        if count := sum(readers.gathered(table.comments.lines)):
            notes["comments"] = count

    return Stream(
        pieces(),
        str(path),
        weighted=len(columns.places) == 3,
        text=columns.text,
        rest={"format": "edges", "notes": notes},
    )


@dataclass(frozen=True)
class _Seen:
    """Facts on some arcs with a third column.

    Attributes
    ----------
    rows : int
    low, high : float
        The smallest and the largest number in that column.
    whole : bool
        Its numbers have no fractions.
    first, last : tuple of int
        The first sources and the last one.
    numbered : bool
        Each source is the one before and 1.
    """

    rows: int
    low: float
    high: float
    whole: bool
    first: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    numbered: bool = False

    @classmethod
    def of(cls, source: np.ndarray, weights: np.ndarray, text: bool) -> _Seen:
        """The facts on these arcs, in the order of the file."""
        whole = bool((weights == np.floor(weights)).all())
        found = len(weights), weights.min(initial=np.inf), weights.max(initial=-np.inf), whole
        if text:
            return cls(*found)
        ends = tuple(source[:FEWEST_NUMBERED].tolist()), tuple(source[-1:].tolist())
        return cls(*found, *ends, bool((np.diff(source) == 1).all()))


class _ThirdColumn:
    """Whether a third column, which nobody calls a weight, is something else: seen in pieces."""

    def __init__(self, path: Path, columns: Columns) -> None:
        self._path = path
        self._low, self._high, self._rows = np.inf, -np.inf, 0
        self._whole, self._numbered = True, not columns.text
        self._first: list[int] = []
        self._last: tuple[int, ...] = ()

    def add(self, seen: _Seen) -> None:
        """Take the facts on some more arcs, in the order of the file."""
        if not seen.rows:
            return
        self._low, self._high = min(self._low, seen.low), max(self._high, seen.high)
        self._whole = self._whole and seen.whole
        if self._numbered:
            follows = not self._rows or seen.first[0] == self._last[0] + 1
            self._numbered = follows and seen.numbered
            self._first += seen.first[: FEWEST_NUMBERED - len(self._first)]
            self._last = seen.last
        self._rows += seen.rows

    def check(self) -> None:
        """Refuse to take times and ids for weights, or numbers of lines for sources."""
        if not self._rows or not self._whole:
            return
        if max(self._high, -self._low) >= LARGE_WEIGHT:
            raise UserError(
                f"{self._path}: the third column holds whole numbers from {self._low:.15g} to "
                f"{self._high:.15g}, weights or something else, such as times",
                "give --columns source,target,weight or, to leave it out, --columns source,target",
            )
        # Targets are whole, not negative and not all the same.
        numbered = self._numbered and self._rows >= FEWEST_NUMBERED and self._first[0] in (0, 1)
        if numbered and 0 <= self._low < self._high:
            shown = ", ".join(map(str, self._first))
            raise UserError(
                f"{self._path}: the first column holds {shown}, … to the end, sources or the "
                "numbers of the lines",
                "give --columns source,target,weight or, to leave it out, --columns "
                "-,source,target",
            )


def refuse_doubt(path: Path, columns: Columns, again: bool) -> None:
    """A UserError where the first line may be a header or an arc.

    The ids of an arc are mostly ``again`` in other lines, and the names of columns in none.
    """
    if columns.doubtful and again == bool(columns.header):
        shown = ", ".join(map(quoted, columns.doubtful))
        raise UserError(
            f"{path}: line {columns.begins} ({shown}) may be a header or an arc",
            "give --header or --no-header",
        )


def _has(texts: pa.Array, wanted: Sequence[str]) -> bool:
    """Whether one of the texts is among those that are wanted."""
    return bool(pc.any(pc.is_in(texts, value_set=pa.array(wanted))).as_py())


def arc_table(path: Path, columns: Columns) -> Table:
    """Sources, targets and perhaps weights: int64 or string, and float64; and data of arcs."""
    ids = pa.string() if columns.text else pa.int64()
    return Table(
        path,
        columns.separator,
        columns.width,
        dict(zip(columns.places, (ids, ids, pa.float64()), strict=False)) | columns.data.kinds(),
        header=columns.header,
        begins=columns.begins,
        names=columns.names,
        comments=columns.comments,
        shortest=1,
        longest=LONGEST_LINE,
        ragged=len(columns.places) + len(columns.data.places) < columns.width,
        meaning=" ".join(ROLES[: len(columns.places)]),
    )
