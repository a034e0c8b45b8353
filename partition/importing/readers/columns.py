"""Which columns of a file are data of its arcs: features, labels and masks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partition.errors import UserError
from partition.importing.readers import guess_format
from partition.importing.readers.arc_columns import (
    chosen,
    piece_of,
)
from partition.importing.readers.files import finite_weights, quoted, read_errors
from partition.importing.readers.names import (
    WEIGHTS,
    has_digits,
    is_missing,
    is_name,
    is_type,
    named_roles,
    plain_name,
    resembles_number,
)
from partition.importing.readers.parquet_tables import column_names
from partition.importing.readers.source import Layout, Piece, Reading, Stream
from partition.importing.readers.text import (
    LONGEST_LINE,
    SIGNS,
    Comments,
    Opening,
    Table,
    before_and_all,
    is_integer,
    is_number,
    open_table,
    separator_of,
    text_blocks,
    words_of,
)

ROLES = ("source", "target", "weight")


class UnclearColumns(UserError):
    """It is not clear what the columns of a list of arcs are."""


@dataclass(frozen=True)
class ArcPlaces:
    """Positions of columns with data of arcs, and the type of a single one with labels."""

    features: tuple[int, ...] = ()
    labels: tuple[int, ...] = ()
    label: pa.DataType | None = None

    @property
    def places(self) -> tuple[int, ...]:
        """Positions of features, then of labels."""
        return (*self.features, *self.labels)

    def with_kind(self, rows: Sequence[Sequence[str]]) -> ArcPlaces:
        """The same, with the type of labels by those of the first arcs."""
        if not self.labels:
            return self
        given = [row[i] for row in rows for i in self.labels if i < len(row)]
        given = [word for word in given if not is_missing(word)] or given
        numbers = len(self.labels) > 1 or all(map(is_number, given))
        whole = len(self.labels) == 1 and all(map(is_integer, given))
        kind = pa.int64() if whole else pa.float64() if numbers else pa.string()
        return replace(self, label=kind)

    def kinds(self) -> dict[int, pa.DataType]:
        """The type of each column, by its position."""
        found = dict.fromkeys(self.features, pa.float64())
        return found | dict.fromkeys(self.labels, self.label)

    def columns(self, found: Sequence[pa.Array], where: str, before: int) -> dict[str, object]:
        """Arrow columns, in the order of ``kinds``, as data of arcs, of which ``before`` came."""
        count = len(self.features)
        if self.labels and self.label == pa.string():
            labels = found[count:]
        else:
            labels = [column.to_numpy(zero_copy_only=False) for column in found[count:]]
        features = [column.to_numpy(zero_copy_only=False) for column in found[:count]]
        return piece_of(features, labels, where, before)


NO_PLACES = ArcPlaces()


@dataclass(frozen=True)
class Columns:
    """How a line is cut, and which columns are sources, targets and weights.

    Attributes
    ----------
    separator : str or None
        None: white space.
    width : int
        Number of columns.
    places : tuple of int
        Positions of the columns with the source, the target and, if there is one, the weight.
    text : bool
        Ids are texts.
    header : int
        Number of the line with the names, 0 where there is none.
    known : bool
        A name or the user calls the third column a weight.
    comments : Comments
    names : tuple of str
        The names of all columns, none without a header.
    doubtful : tuple of str
        The ends in the first line, which may be a header as well as a row; none where it is clear.
    begins : int
        Number of the line with the names, or of the first row.
    note : str
        The columns that were read, for the user, where there are others.
    unread : tuple of str
        Those that were not, where they have names.
    data : ArcPlaces
        Columns with data of the arcs.
    samples : sequence of sequences of str
        The words of the first rows.
    """

    separator: str | None
    width: int
    places: tuple[int, ...]
    text: bool
    header: int
    known: bool
    comments: Comments
    names: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    begins: int = 0
    note: str = ""
    unread: tuple[str, ...] = ()
    data: ArcPlaces = NO_PLACES
    samples: Sequence[Sequence[str]] = ()

    def kind_of_labels(self, place: int) -> ArcPlaces:
        """A column of labels in place of other data, with its type by the first rows."""
        return ArcPlaces(labels=(place,)).with_kind(self.samples)


def find_columns(path: Path, layout: Layout) -> Columns:
    """Judge the columns of a list of arcs by its first two lines and by the words of the user.

    A UserError if there is no arc, or it is not clear what a column is.
    """
    _, start = next(text_blocks(path), (1, b""))
    if start[:14].lower() == b"%%matrixmarket":
        raise UserError(f"{path} is a Matrix Market file", "give --format mtx")
    opening = open_table(path, comments=layout.comments)
    if not opening.lines:
        raise UserError(f"{path} holds no arcs", _hint_of_empty(opening))
    number, first = opening.lines[0]
    separator = _separator(first)
    words = words_of(_bare(first), separator)
    roles = None if layout.columns is None else given_roles(layout.columns)
    ends = (roles or (0, 1))[:2]
    if len(words) < 2:
        raise UserError(
            f"{path}, line {number}: {quoted(first.strip())} is one column",
            "one arc 'source target [weight]' a line",
        )
    if max(roles or (0,)) >= len(words):
        raise UserError(
            f"{path}, line {number}: {quoted(first.strip())} has {len(words)} columns, "
            f"--columns {layout.columns} names more"
        )

    def cut(line: str) -> list[str]:
        whole = words_of(line.strip(), separator)
        return whole if len(whole) == len(words) else words_of(_bare(line), separator)

    def above_numbers(below: list[str]) -> bool:
        return not layout.string_ids and _of_integers(below, ends) is True

    def known(names: list[str]) -> bool:
        found = named_roles(names)
        if found is None or not any(has_digits(names[place]) for place in found[:2]):
            return found is not None
        # Vertices may be called v1 and v2, too.
        below = cut(opening.second if names == words else opening.first)
        others = [word for place, word in enumerate(below) if place not in found[:2]]
        return above_numbers(below) or any(map(is_number, others))

    header, names = (number, words) if layout.header else (0, list[str]())
    if layout.header is None:
        header, names = opening.header(cut, known, above_numbers, texts=True)
    rows = opening.rows(header)
    if not rows:
        raise UserError(f"{path} holds no arcs, only the header {quoted(first.strip())}")
    places = roles or (named_roles(names) if header else None)
    if places is None and (len(words) == 2 or (len(words) == 3 and not header)):
        places = tuple(range(len(words)))
    if places is None:
        raise UnclearColumns(
            f"{path}, line {number}: {quoted(first.strip())} has {len(words)} columns, and it is "
            "not clear what they are",
            "say it in their order, such as --columns source,target,weight or source,target,-,-",
        )
    samples = [cut(line) for _, line in rows]
    of_integers = [found for row in samples if (found := _of_integers(row, places[:2])) is not None]
    # Without a header, a text in the first line is rather a mistake than the begin of mixed ids.
    text = layout.string_ids or not any(of_integers[: 1 if header else None])
    if text and not layout.string_ids:
        _refuse_fractions(path, rows[0], samples[0], places)
    if text and not header and len(words) == 3 and roles is None and not is_number(words[2]):
        raise UnclearColumns(
            f"{path}, line {number}: the third column of {quoted(first.strip())} is not a weight",
            "give --columns source,relation,target for triples, --columns source,target,- to leave "
            "it out, or --header if the line names the columns",
        )
    doubtful = tuple(words[place] for place in places[:2])
    alone = header == 0 and len(rows) == 1
    if not text or layout.header is not None or header not in (0, number) or alone:
        doubtful = ()
    if not all(map(is_name, doubtful)):
        doubtful = ()
    called = names if header else [str(i + 1) for i in range(len(words))]
    data, places = arc_places(called, places, layout, path)
    note = ""
    if header or data.places or sorted(places) != list(range(len(words))):
        note = columns_note(names if header else [f"column {i}" for i in called], places, data)
    return Columns(
        separator=separator,
        width=len(words),
        places=places,
        text=text,
        header=header,
        names=tuple(names),
        known=roles is not None or bool(header),
        doubtful=doubtful,
        begins=number,
        comments=opening.comments,
        note=note,
        unread=unread_columns(names, places, data),
        data=data.with_kind(samples),
        samples=samples,
    )


def _separator(first: str) -> str | None:
    """The separator of a list that begins with a line; numbers may have tabs and blanks."""
    separator = separator_of(_bare(first))
    if separator == "\t" and all(map(is_integer, words_of(_bare(first), separator)[:2])):
        return None
    return separator


def _hint_of_empty(opening: Opening) -> str:
    if opening.heading is not None:
        return "all its lines are comments; if they are arcs, --comments none"
    return "one arc 'source target [weight]' a line"


def columns_of_types(
    path: Path, layout: Layout, types: Sequence[str]
) -> tuple[Layout, tuple[str, str]] | None:
    """The layout of a table whose columns of ends are called as types of vertices, and these types.

    So ``user,item,weight,date``, or ``user_id,item_id``, need no other names. They are the first
    two columns, or those of ``layout.columns``. None where they are called otherwise, or there is
    no header.
    """
    if len(types) < 2 or layout.header is False:
        return None
    names = header_words(path, layout.comments)
    roles = (0, 1) if layout.columns is None else given_roles(layout.columns)[:2]
    if max(roles) >= len(names):
        return None
    source, target = (
        next((type for type in types if is_type(names[place], type)), None) for place in roles
    )
    if source is None or target is None:
        return None
    columns = layout.columns
    if columns is None:
        weights = [place for place, name in enumerate(names) if plain_name(name) in WEIGHTS]
        called = dict.fromkeys(weights if len(weights) == 1 else (), "weight")
        called |= {0: "source", 1: "target"}
        columns = ",".join(called.get(place, "-") for place in range(len(names)))
    text = guess_format(path) == "edges"
    return replace(layout, columns=columns, header=True if text else None), (source, target)


def header_words(path: Path, comments: str | None = None) -> list[str]:
    """The words in the first line of a list of arcs in text, or the names of columns in Parquet."""
    format = guess_format(path)
    if format == "parquet":
        return column_names(path)
    if format != "edges":
        return []
    with read_errors(path):
        opening = open_table(path, comments=comments)
    return words_of(first, separator_of(first)) if (first := opening.first) else []


def columns_note(names: Sequence[str], places: Sequence[int], data: ArcPlaces) -> str:
    """The columns that are read, and those that are not, for the user."""
    said = [f"{role} {quoted(names[i])}" for role, i in zip(ROLES, places, strict=False)]
    for role, found in (("feature", data.features), ("label", data.labels)):
        said += [f"{role} {quoted(names[i])}" for i in found]
    unread = ", ".join(map(quoted, unread_columns(names, places, data)))
    return ", ".join(said) + (f"; not read: {unread}" if unread else "")


def unread_columns(names: Sequence[str], places: Sequence[int], data: ArcPlaces) -> tuple[str, ...]:
    """The names of the columns that are nothing of a list of arcs."""
    return tuple(name for i, name in enumerate(names) if i not in (*places, *data.places))


def arc_places(
    names: Sequence[str], places: tuple[int, ...], layout: Layout, path: Path
) -> tuple[ArcPlaces, tuple[int, ...]]:
    """The columns with data of arcs, and ``places`` without weights that are features."""
    labels = chosen(names, layout.arc_label, "--arc-label", path)
    others = (*(names[i] for i in places), *labels)
    features = chosen(names, layout.arc_features, "--arc-features", path, others)
    for name in (*features, *labels):
        if name in (names[i] for i in places[:2]) or (name in features and name in labels):
            raise UserError(f"{path}: the column {quoted(name)} cannot be two things at once")
    data = ArcPlaces(*(tuple(names.index(name) for name in each) for each in (features, labels)))
    return data, tuple(place for place in places if place not in data.places)


def _bare(line: str) -> str:
    """A line of numbers without the comment behind it; other lines may hold the sign in a text."""
    bare = re.split(f"[{SIGNS}]", line)[0].strip()
    numbers = bare != "" and all(map(is_number, words_of(bare, separator_of(bare))))
    return bare if numbers else line.strip()


def _of_integers(words: list[str], places: tuple[int, ...]) -> bool | None:
    """Whether the ids in a line are integers, but for those that are missing or no whole numbers.

    None where there are no others.
    """
    given = [words[place] for place in places if place < len(words)]
    given = [
        word for word in given
        if is_integer(word) or not (is_missing(word) or resembles_number(word))
    ]  # fmt: skip
    return all(map(is_integer, given)) if given else None


def given_roles(columns: str) -> tuple[int, ...]:
    """Places of source, target and weight in ``--columns``."""
    names = [name.strip() for name in columns.split(",")]
    hint = "in their order: source,target,-,weight; of triples: source,relation,target"
    for name in names:
        if name not in (*ROLES, "-"):
            raise UserError(f"--columns {columns}: {quoted(name)} is not a known column", hint)
    counts = {role: names.count(role) for role in ROLES}
    if counts["source"] != 1 or counts["target"] != 1 or counts["weight"] > 1:
        raise UserError(f"--columns {columns} must name source and target, each once", hint)
    return tuple(names.index(role) for role in ROLES if role in names)


def _refuse_fractions(
    path: Path, line: tuple[int, str], words: list[str], places: tuple[int, ...]
) -> None:
    """Numbers that are no integers of 64 bits are hardly meant to be texts."""
    for place in places[:2]:
        if place < len(words) and is_number(words[place]) and not is_integer(words[place]):
            raise UserError(
                f"{path}, line {line[0]}: {quoted(line[1].strip())} is not 'source target': "
                f"{quoted(words[place])} is not an integer of 64 bits",
                "if ids are texts, give --string-ids",
            )


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
    table = table_of_arcs(path, columns)
    ends, readers = len(columns.places), reading.readers
    notes: dict[str, object] = {"columns": columns.note} if columns.note else {}

    def pieces() -> Iterator[Piece]:
        third, size, rows = _ThirdColumn(path, columns), path.stat().st_size, 0
        again = not columns.doubtful

        def tell(at: int) -> None:
            reading.tell("reading", at, size)

        with read_errors(path):
            for found in table.pieces(tell, readers, reading.look):
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
        rest={"format": "edges", "notes": notes, "unread": columns.unread},
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
            raise UnclearColumns(
                f"{self._path}: the third column holds whole numbers from {self._low:.15g} to "
                f"{self._high:.15g}, weights or something else, such as times",
                "give --columns source,target,weight or, to leave it out, --columns source,target",
            )
        # Targets are whole, not negative and not all the same.
        numbered = self._numbered and self._rows >= FEWEST_NUMBERED and self._first[0] in (0, 1)
        if numbered and 0 <= self._low < self._high:
            shown = ", ".join(map(str, self._first))
            raise UnclearColumns(
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


def table_of_arcs(path: Path, columns: Columns) -> Table:
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
