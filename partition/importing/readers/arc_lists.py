"""Lists of arcs: tables in text and in Parquet, and arrays (2, E) or (E, 2) in an ``.npy``.

One row is one arc. Ids are 64-bit integers, or texts. Names in a header say which columns hold
sources, targets and weights, or the user does.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partition.errors import UserError
from partition.importing.readers import RELATION, arc_columns, guess_format, parquet
from partition.importing.readers.files import finite_weights, quoted, read_errors
from partition.importing.readers.names import (
    arc_roles,
    has_digits,
    is_missing,
    is_name,
    resembles_number,
    roles_by_types,
)
from partition.importing.readers.source import Layout, Piece, Reading, Stream, in_step
from partition.importing.readers.text import (
    SIGNS,
    TextTable,
    is_integer,
    is_number,
    open_table,
    separator_of,
    words_of,
)
from partition.records import NUMBERS, TEXTS, map_npy
from partition.resident import forget_pages

_ROLES = ("source", "target", "weight", RELATION)
# Whole numbers of this size in a third column are rather times or ids than weights.
LARGE_WEIGHT = 1000
# Lines of three whole numbers from which on 0, 1, 2, … are rather numbers of lines than sources.
_FEWEST_NUMBERED = 3
SHAPES = "(2, E) or (E, 2)"
AT_ONCE = 1 << 22  # arcs of an array


def stream(path: Path, layout: Layout, reading: Reading) -> Stream:
    """Read a list of arcs in Parquet, or in text, separated by white space, commas and so on.

    For comments see :meth:`TextTable.is_comment`; their count is a note. A UserError if there is no
    arc in the file, a row is not two ids and, where the others have one, a finite weight, or it is
    not clear what a column or the first line is.
    """
    arcs = find_arcs(path, layout)
    notes: dict[str, object] = {"columns": arcs.note} if arcs.note else {}
    format = "edges" if isinstance(arcs.table, TextTable) else "parquet"
    rest = {"format": format, "notes": notes, "unread": arcs.unread}
    pieces, weighted = arcs.pieces(reading, notes), "weight" in arcs.roles
    return Stream(pieces, str(path), weighted=weighted, text=arcs.text, rest=rest)


def stream_array(path: Path, layout: Layout, reading: Reading) -> Stream:
    """Read an array of integers: sources in its first row or column, targets in its second.

    PyTorch Geometric counts vertices without arcs: ``--vertices N``. A UserError if it is anything
    else, or 2 × 2, which can be read either way.
    """
    array = map_npy(path)
    if array.dtype.kind in "iu" and array.ndim == 2 and array.shape[1] == 2 != len(array):
        array = array.T
    if array.shape == (2, 2) and array.dtype.kind in "iu":
        raise UserError(
            f"{path} is 2 x 2: it is not clear whether a row is an arc",
            "write the two arcs as a list: 'source target', one a line",
        )
    readers, total = reading.readers, array.shape[1] if array.ndim == 2 else 0
    first, last = (total * rank // readers.size for rank in (readers.rank, readers.rank + 1))
    at_once = max(1, total if reading.whole else AT_ONCE)

    def own() -> Iterator[Piece]:
        for start in range(first, max(last, first + 1), at_once):
            end = min(start + at_once, last)
            some = array[:, start:end] if array.ndim == 2 else array
            yield Piece(*arc_columns.ends_of(some, str(path), SHAPES), None, {})
            forget_pages(array)
            reading.tell("reading", end, total)

    return Stream(in_step(own(), readers), str(path), rest={"format": "npy"})


@dataclass(frozen=True)
class ArcList:
    """A table of arcs, and what its columns are.

    Attributes
    ----------
    table : TextTable or ParquetTable
    roles : mapping of str to int
        The places of "source", "target" and, if they are there, "weight" and "relation".
    text : bool
        Ids are texts.
    layout : Layout
        The words of the user.
    named : bool
        A name or the user calls the third column a weight.
    doubtful : tuple of str
        The ends in the first line, which may be a header as well as a row; none where it is clear.
    types : (str, str), optional
        The types of vertices that the columns of the ends are called as.
    features, labels : tuple of int
        Places of columns with data of the arcs.
    note : str
        The columns that were read, for the user, where there are others.
    unread : tuple of str
        Those that were not, where they have names.
    """

    table: TextTable | parquet.ParquetTable
    roles: Mapping[str, int]
    text: bool
    layout: Layout = field(default_factory=Layout)
    named: bool = True
    doubtful: tuple[str, ...] = ()
    types: tuple[str, str] | None = None
    features: tuple[int, ...] = ()
    labels: tuple[int, ...] = ()
    note: str = ""
    unread: tuple[str, ...] = ()

    def pieces(self, reading: Reading, notes: dict[str, object]) -> Iterator[Piece]:
        """The arcs, some at a time; ``notes`` get the count of comments in the end.

        Data may also be "relation", as the table has it.
        """
        path, readers = self.table.path, reading.readers
        third, again = _ThirdColumn(), not self.doubtful

        def own() -> Iterator[Piece]:
            nonlocal again
            with read_errors(path):
                for where, before, found in self.table.pieces(reading):
                    column = dict(zip(self.table.kinds, found, strict=True))
                    ends = [column[self.roles[end]] for end in _ROLES[:2]]
                    source, target = (_ids(one, self.text, path) for one in ends)
                    weights = None
                    if "weight" in self.roles:
                        weights = _weights(column[self.roles["weight"]], where, before)
                    features, labels = (
                        [column[i] for i in some] for some in (self.features, self.labels)
                    )
                    data = arc_columns.piece_of(features, labels, where, before)
                    if RELATION in self.roles:
                        of = [column[self.roles[RELATION]]]
                        data[RELATION] = arc_columns.piece_of([], of, where, before)["labels"]
                    if not again:
                        first = before == readers.rank == 0 and not self.table.header
                        again = any(
                            _has(one[int(first) :], self.doubtful) for one in (source, target)
                        )
                    if weights is not None and not self.named:
                        third.add(source, weights)
                    yield Piece(source, target, weights, data)

        yield from in_step(own(), readers)
        seen = readers.gathered(third)
        with readers.agreed():
            _refuse_other_than_weights(path, seen, self.layout)
        self.refuse_doubt(any(readers.gathered(again)))
        if count := sum(readers.gathered(self.table.comments.lines)):
            notes["comments"] = count

    def read(
        self, look: Callable[[bytes], object] = lambda lines: None
    ) -> tuple[dict[str, np.ndarray], int]:
        """All arcs: "source", "target" and perhaps "weight" and "relation", as they are there.

        ``look``: see :class:`Reading`. With them comes the number of comments.
        """
        notes: dict[str, Any] = {}
        columns: dict[str, list[np.ndarray]] = {role: [] for role in _ROLES if role in self.roles}
        for piece in self.pieces(Reading(whole=True, look=look), notes):
            by_role = {"source": piece.source, "target": piece.target, "weight": piece.weights}
            for role, some in columns.items():
                some.append(arc_columns.ids_array(by_role.get(role, piece.data.get(role))))
        arcs = {role: np.concatenate(some) for role, some in columns.items() if some}
        return arcs or dict.fromkeys(columns, np.empty(0, np.int64)), notes.get("comments", 0)

    def refuse_doubt(self, again: bool) -> None:
        """A UserError where the first line may be a header or an arc.

        The ids of an arc are mostly ``again`` in other lines, and the names of columns in none.
        """
        if self.doubtful and again == bool(self.table.header):
            shown = ", ".join(map(quoted, self.doubtful))
            raise UserError(
                f"{self.table.path}: line {self.table.begins} ({shown}) may be a header or an arc",
                "give --header or --no-header",
            )


def read_pairs(
    path: Path, layout: Layout, look_up: bool = False
) -> tuple[dict[str, np.ndarray], ArcList | None, int]:
    """The pairs in a list, (m, 2) "positives", perhaps with their "relations" (m,).

    ``look_up``: somebody looks their ids up, so a first line that is no header may have any. With
    the arrays come the table that they are from and the number of its comments.
    """
    if guess_format(path) == "npy":
        return _pairs_of_array(path, layout.columns), None, 0
    with read_errors(path):
        listed = find_arcs(path, layout)
        if look_up and not listed.table.header:
            listed = replace(listed, doubtful=())
        arcs, comments = listed.read()
    found = {"positives": np.column_stack([arcs["source"], arcs["target"]])}
    return found | ({"relations": arcs[RELATION]} if RELATION in arcs else {}), listed, comments


def _pairs_of_array(path: Path, columns: str | None) -> dict[str, np.ndarray]:
    """An array of pairs, or of triples whose columns are said."""
    array = map_npy(path, kinds=NUMBERS + TEXTS)
    if columns is None:
        return {"positives": rows_of_pairs(array, str(path))}
    roles, width = _given_roles(columns), columns.count(",") + 1
    if array.ndim != 2 or array.shape[1] != width:
        raise UserError(f"{path} has the shape {array.shape}, --columns {columns} names others")
    ends = [roles["source"], roles["target"]]
    found = {"positives": rows_of_pairs(array[:, ends], str(path))}
    return found | ({"relations": array[:, roles[RELATION]]} if RELATION in roles else {})


def rows_of_pairs(array: np.ndarray, where: str) -> np.ndarray:
    """(m, 2) ids; (2, m) is turned round, if it can be nothing else."""
    if array.ndim == 2 and array.shape[1] != 2 == len(array):
        array = array.T
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iuU":
        form = f"{array.dtype} {array.shape}"
        raise UserError(f"{where}: pairs are ids in the shape (m, 2), not {form}")
    return array


def find_arcs(path: Path, layout: Layout) -> ArcList:
    """Judge the columns of a list of arcs by its first two lines and by the words of the user.

    A UserError if there is no arc, or it is not clear what a column is.
    """
    arcs, words = (_in_parquet if parquet.is_parquet(path) else _in_text)(path, layout)
    roles, names = dict(arcs.roles), arcs.table.names
    called = list(names) or [str(i + 1) for i in range(len(words[0]))]
    labels = arc_columns.chosen(called, layout.arc_label, "--arc-label", path)
    others = (*(called[i] for i in roles.values()), *labels)
    features = arc_columns.chosen(called, layout.arc_features, "--arc-features", path, others)
    for name in (*features, *labels):
        ends = (called[roles[end]] for end in _ROLES[:2])
        if name in ends or (name in features and name in labels):
            raise UserError(f"{path}: the column {quoted(name)} cannot be two things at once")
    places = [tuple(map(called.index, some)) for some in (features, labels)]
    roles = {role: place for role, place in roles.items() if place not in (*places[0], *places[1])}
    data = dict.fromkeys(places[0], pa.float64())
    data |= dict.fromkeys(places[1], _kind_of_labels(places[1], words))
    if RELATION in roles:
        data[roles[RELATION]] = _kind_of_labels((roles[RELATION],), words)
    id_kind = pa.string() if arcs.text else pa.int64()
    kinds = {"source": id_kind, "target": id_kind, "weight": pa.float64()}
    read = {roles[role]: kind for role, kind in kinds.items() if role in roles} | data
    said = [(role, roles[role]) for role in _ROLES if role in roles]
    said += [("feature", i) for i in places[0]] + [("label", i) for i in places[1]]
    left = [name for i, name in enumerate(called) if i not in read]
    form = "{}" if names else "column {}"
    note = ", ".join(f"{role} {quoted(form.format(called[i]))}" for role, i in said)
    if left:
        note += "; not read: " + ", ".join(quoted(form.format(name)) for name in left)
    if not (names or places[0] or places[1] or len(read) < len(called)):
        note = ""
    table: TextTable | parquet.ParquetTable = replace(arcs.table, kinds=read)
    if isinstance(table, TextTable):
        table = replace(table, meaning=" ".join(role for role in _ROLES[:3] if role in roles))
    else:
        table = replace(table, kinds=dict.fromkeys(read))
    return replace(
        arcs, table=table, roles=roles, features=places[0], labels=places[1], note=note,
        unread=tuple(left) if names else (),
    )  # fmt: skip


def _kind_of_labels(places: Sequence[int], rows: Sequence[Sequence[str]]) -> pa.DataType:
    """The type of labels by those of the first arcs."""
    given = [row[i] for row in rows for i in places if i < len(row)]
    given = [word for word in given if not is_missing(word)] or given
    if len(places) == 1 and all(map(is_integer, given)):
        return pa.int64()
    return pa.float64() if len(places) > 1 or all(map(is_number, given)) else pa.string()


def _in_parquet(path: Path, layout: Layout) -> tuple[ArcList, list[list[str]]]:
    table = parquet.open_parquet(path)
    names = list(table.names)
    shown = f"{path} has the columns {', '.join(map(quoted, names)) or 'none'}"
    roles, types = _roles_of(names, layout, shown, len(names))
    if roles is None and len(names) == 2:
        roles = {"source": 0, "target": 1}
    if roles is None:
        raise _unclear(f"{shown}, and it is not clear what they are", layout)
    if not table.rows:
        raise UserError(f"{path} holds no arcs")
    text = layout.string_ids or any(parquet.is_text(table.kind(roles[end])) for end in _ROLES[:2])
    return ArcList(table, roles, text, layout, types=types), [names]


def _in_text(path: Path, layout: Layout) -> tuple[ArcList, list[list[str]]]:
    """The list by its first lines, and the words of the first rows."""
    table = open_table(path, comments=layout.comments)
    one_a_line = "one arc 'source target [weight]' a line"
    if not table.lines:
        hint = "all its lines are comments; if they are arcs, --comments none"
        raise UserError(f"{path} holds no arcs", one_a_line if table.heading is None else hint)
    number, first = table.lines[0]
    at = f"{path}, line {number}: {quoted(first.strip())}"
    separator = separator_of(_bare(first))
    if separator == "\t" and all(map(is_integer, words_of(_bare(first), separator)[:2])):
        separator = None  # numbers may have tabs and blanks
    words = words_of(_bare(first), separator)
    width = len(words)
    if width < 2:
        raise UserError(f"{at} is one column", one_a_line)
    by_types = words if layout.header is not False else []
    given, types = _roles_of(by_types, layout, f"{at} has {width} columns", width, by_name=False)
    ends = [0, 1] if given is None else [given["source"], given["target"]]

    def cut(line: str) -> list[str]:
        whole = words_of(line.strip(), separator)
        return whole if len(whole) == width else words_of(_bare(line), separator)

    def above_numbers(below: list[str]) -> bool:
        return not layout.string_ids and _of_integers(below, ends) is True

    def known(names: list[str]) -> bool:
        found = arc_roles(names)
        if found is None:
            return False
        places = [found[end] for end in _ROLES[:2]]
        if not any(has_digits(names[place]) for place in places):
            return True
        # Vertices may be called v1 and v2, too.
        below = cut(table.line(1) if names == words else table.line(0))
        others = [word for place, word in enumerate(below) if place not in places]
        return above_numbers(below) or any(map(is_number, others))

    header, names = (number, words) if layout.header or types else (0, list[str]())
    if layout.header is None and not types:
        header, names = table.find_header(cut, known, above_numbers, texts=True)
    rows = table.rows(header)
    if not rows and len(layout.types) != 1:  # a relation may be without arcs
        raise UserError(f"{path} holds no arcs, only the header {quoted(first.strip())}")
    roles = given or (arc_roles(names) if header else None)
    if roles is None and (width == 2 or (width == 3 and not header)):
        roles = {role: place for place, role in enumerate(_ROLES[:width])}
    if roles is None:
        raise _unclear(f"{at} has {width} columns, and it is not clear what they are", layout)
    ends = [roles[end] for end in _ROLES[:2]]
    samples = [cut(line) for _, line in rows]
    of_integers = [found for row in samples if (found := _of_integers(row, ends)) is not None]
    # Without a header, a text in the first line is rather a mistake than the begin of mixed ids.
    text = layout.string_ids or not any(of_integers[: 1 if header else None])
    text = text and bool(samples)
    if text and not layout.string_ids:
        _refuse_fractions(
            f"{path}, line {rows[0][0]}: {quoted(rows[0][1].strip())}", samples[0], ends
        )
    if text and not header and width == 3 and given is None and not is_number(words[2]):
        raise _unclear(
            f"{path}, line {number}: the third column of {quoted(first.strip())} is not a weight",
            layout,
            "give --columns source,relation,target for triples, --columns source,target,- to leave "
            "it out, or --header if the line names the columns",
        )
    doubtful = tuple(words[place] for place in ends)
    alone = header == 0 and len(rows) == 1
    clear = layout.header is not None or types or header not in (0, number) or alone
    if clear or not text or not all(map(is_name, doubtful)):
        doubtful = ()
    table = replace(table, separator=separator, width=width, header=header, names=tuple(names))
    named = given is not None or bool(header)
    return ArcList(table, roles, text, layout, named, doubtful, types), samples or [words]


def _roles_of(
    names: Sequence[str], layout: Layout, shown: str, width: int, by_name: bool = True
) -> tuple[dict[str, int] | None, tuple[str, str] | None]:
    """The roles of columns by the user, by types of vertices, or by their names; and the types."""
    given = None if layout.columns is None else _given_roles(layout.columns)
    if given is not None and max(given.values()) >= width:
        raise UserError(f"{shown}, --columns {layout.columns} names more")
    ends = (0, 1) if given is None else (given["source"], given["target"])
    by_types = roles_by_types(names, ends, layout.types)
    if by_types is not None:
        return given or by_types[0], by_types[1]
    return given or (arc_roles(names) if by_name else None), None


def _given_roles(columns: str) -> dict[str, int]:
    """The places of the roles in ``--columns``."""
    names = [name.strip() for name in columns.split(",")]
    hint = "in their order: source,target,-,weight; of triples: source,relation,target"
    for name in names:
        if name not in (*_ROLES, "-"):
            raise UserError(f"--columns {columns}: {quoted(name)} is not a known column", hint)
    counts = {role: names.count(role) for role in _ROLES}
    if counts["source"] != 1 or counts["target"] != 1 or max(counts.values()) > 1:
        raise UserError(f"--columns {columns} must name source and target, each once", hint)
    return {role: names.index(role) for role in _ROLES if role in names}


def _unclear(
    what: str,
    layout: Layout,
    hint: str = "say it in their order, such as --columns source,target,weight or "
    "source,target,-,-",
) -> UserError:
    """The refusal of columns; in the table of a relation, names of columns make them clear."""
    if len(layout.types) == 1:
        source, target = layout.types[0]
        hint = (
            "call the columns in a header source, target and perhaps weight, or the first two "
            f"{source} and {target}"
        )
    return UserError(what, hint)


def _bare(line: str) -> str:
    """A line of numbers without the comment behind it; other lines may hold the sign in a text."""
    bare = re.split(f"[{SIGNS}]", line)[0].strip()
    numbers = bare != "" and all(map(is_number, words_of(bare, separator_of(bare))))
    return bare if numbers else line.strip()


def _of_integers(words: Sequence[str], places: Sequence[int]) -> bool | None:
    """Whether the ids in a line are integers, but for those that are missing or no whole numbers.

    None where there are no others.
    """
    given = [words[place] for place in places if place < len(words)]
    found = [
        is_integer(w) for w in given if is_integer(w) or not (is_missing(w) or resembles_number(w))
    ]
    return all(found) if found else None


def _refuse_fractions(at: str, words: Sequence[str], places: Sequence[int]) -> None:
    """Numbers that are no integers of 64 bits are hardly meant to be texts."""
    for word in (words[place] for place in places if place < len(words)):
        if is_number(word) and not is_integer(word):
            raise UserError(
                f"{at} is not 'source target': {quoted(word)} is not an integer of 64 bits",
                "if ids are texts, give --string-ids",
            )


def _ids(column: np.ndarray | pa.Array, text: bool, path: Path) -> np.ndarray | pa.Array:
    """Sources or targets as an Arrow array of texts, or as int64."""
    if isinstance(column, pa.Array):
        return column
    if column.dtype.kind == "f":
        raise UserError(
            f"{path}: ids are {column.dtype}, not whole numbers or texts",
            "frames have fractions where values are missing: leave these rows out, and write "
            "integers",
        )
    too_large = column.dtype == np.uint64 and len(column) and column.max() >= 2**63
    if column.ndim != 1 or column.dtype.kind not in ("biu" if text else "iu") or too_large:
        raise UserError(f"{path}: ids are {column.dtype} {column.shape}, not integers or texts")
    return (
        pa.array(column.astype(str), pa.string()) if text else column.astype(np.int64, copy=False)
    )


def _weights(column: np.ndarray | pa.Array, where: str, before: int) -> np.ndarray:
    if isinstance(column, pa.Array) or column.ndim != 1 or column.dtype.kind not in "biuf":
        texts = isinstance(column, pa.Array)
        form = "texts" if texts else f"{column.dtype} {column.shape}"
        raise UserError(f"{where}: weights are {form}, not numbers")
    return finite_weights(column, where, before)


def _has(texts: pa.Array, wanted: Sequence[str]) -> bool:
    """Whether one of the texts is among those that are wanted."""
    return bool(pc.any(pc.is_in(texts, value_set=pa.array(wanted))).as_py())


@dataclass
class _ThirdColumn:
    """Facts on a third column that nobody calls a weight: it may be something else.

    ``starts`` are the sources less the numbers of their rows; ``whole``: all numbers are.
    """

    rows: int = 0
    low: float = np.inf
    high: float = -np.inf
    whole: bool = True
    starts: set[int] = field(default_factory=set)

    def add(self, source: np.ndarray | pa.Array, weights: np.ndarray) -> None:
        """Take the facts on some more arcs."""
        if not len(weights):
            return
        self.low, self.high = min(self.low, weights.min()), max(self.high, weights.max())
        self.whole = self.whole and bool((weights == np.floor(weights)).all())
        if isinstance(source, np.ndarray) and len(self.starts) < 2:
            starts = source - np.arange(self.rows, self.rows + len(source))
            self.starts |= {int(starts.min()), int(starts.max())}
        self.rows += len(weights)


def _refuse_other_than_weights(path: Path, seen: Sequence[_ThirdColumn], layout: Layout) -> None:
    """Refuse to take times and ids for weights, or numbers of lines for sources."""
    rows, whole = sum(one.rows for one in seen), all(one.whole for one in seen)
    low, high = min(one.low for one in seen), max(one.high for one in seen)
    if not rows or not whole:
        return
    if max(high, -low) >= LARGE_WEIGHT:
        raise _unclear(
            f"{path}: the third column holds whole numbers from {low:.15g} to {high:.15g}, weights "
            "or something else, such as times",
            layout,
            "give --columns source,target,weight or, to leave it out, --columns source,target",
        )
    before = np.cumsum([0, *(one.rows for one in seen)]).tolist()
    starts = {start - at for at, one in zip(before, seen, strict=False) for start in one.starts}
    # Targets are whole, not negative and not all the same.
    if starts in ({0}, {1}) and rows >= _FEWEST_NUMBERED and 0 <= low < high:
        shown = ", ".join(str(number + min(starts)) for number in range(_FEWEST_NUMBERED))
        raise _unclear(
            f"{path}: the first column holds {shown}, … to the end, sources or the numbers of the "
            "lines",
            layout,
            "give --columns source,target,weight or, to leave it out, --columns -,source,target",
        )
