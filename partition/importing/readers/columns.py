"""Which columns of a list of arcs are sources, targets and weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from partition.errors import UserError
from partition.importing.readers import Layout
from partition.importing.readers.arc_columns import chosen, piece_of
from partition.importing.readers.blocks import text_blocks
from partition.importing.readers.files import quoted
from partition.importing.readers.text import (
    first_lines,
    is_integer,
    is_number,
    plain_name,
    separator_of,
    words_of,
)

ROLES = ("source", "target", "weight")


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

    def with_kind(self, words: Sequence[str]) -> ArcPlaces:
        """The same, with the type of labels by those of the first arc."""
        if not self.labels:
            return self
        given = [words[i] for i in self.labels if i < len(words)]
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
# Names that columns have in the files of other programs.
SOURCES = {"source", "src", "from", "fromnodeid", "fromnode", "node1", "u", "head", "sourceid"}
TARGETS = {"target", "dst", "to", "tonodeid", "tonode", "node2", "v", "tail", "targetid", "dest"}
WEIGHTS = {"weight", "weights", "w", "edgeweight"}


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
    doubtful : bool
        The first line may be a header after all.
    note : str
        The columns that were read, for the user, where there are others.
    data : ArcPlaces
        Columns with data of the arcs.
    """

    separator: str | None
    width: int
    places: tuple[int, ...]
    text: bool
    header: int
    known: bool
    doubtful: bool
    note: str
    data: ArcPlaces = NO_PLACES


def find_columns(path: Path, layout: Layout) -> Columns:
    """Judge the columns of a list of arcs by its first two lines and by the words of the user.

    A UserError if there is no arc, or it is not clear what a column is.
    """
    lines = first_lines(path, 2)
    _, start = next(text_blocks(path), (1, b""))
    if start[:14].lower() == b"%%matrixmarket":
        raise UserError(f"{path} is a Matrix Market file", "give --format mtx")
    if not lines:
        raise UserError(f"{path} holds no arcs", "one arc 'source target [weight]' a line")
    number, first = lines[0]
    separator = separator_of(_bare(first))
    words = words_of(_bare(first), separator)
    if separator == "\t" and all(map(is_integer, words[:2])):
        separator, words = None, _bare(first).split()
    if len(words) < 2:
        raise UserError(
            f"{path}, line {number}: {quoted(first.strip())} is one column",
            "one arc 'source target [weight]' a line",
        )
    roles = None if layout.columns is None else given_roles(layout.columns)
    places = roles or named_roles(words)
    second = words_of(_bare(lines[1][1]), separator) if len(lines) > 1 else []
    ends = (roles or (0, 1))[:2]
    if max(roles or (0,)) >= len(words):
        raise UserError(
            f"{path}, line {number}: {quoted(first.strip())} has {len(words)} columns, "
            f"--columns {layout.columns} names more"
        )
    header, doubtful = layout.header, False
    if header is None:
        header = not _integers(words, ends) and bool(named_roles(words) or _integers(second, ends))
        doubtful = not header and not _integers(words, ends) and len(lines) > 1
    if header and len(lines) < 2:
        raise UserError(f"{path} holds no arcs, only the header {quoted(first.strip())}")
    if roles is None:
        places = named_roles(words) if header else None
        if places is None and (len(words) == 2 or (len(words) == 3 and not header)):
            places = tuple(range(len(words)))
    if places is None:
        raise UserError(
            f"{path}, line {number}: {quoted(first.strip())} has {len(words)} columns, and it is "
            "not clear what they are",
            "say it in their order, such as --columns source,target,weight or source,target,-,-",
        )
    sample = second if header else words
    text = layout.string_ids or not _integers(sample, places[:2])
    if text and not layout.string_ids:
        _refuse_fractions(path, lines[1] if header else lines[0], sample, places)
    unnamed = text and not header and len(words) == 3 and roles is None
    if unnamed and not is_number(words[2]):
        raise UserError(
            f"{path}, line {number}: the third column of {quoted(first.strip())} is not a weight",
            "give --columns source,relation,target for triples, --columns source,target,- to leave "
            "it out, or --header if the line names the columns",
        )
    names = words if header else [str(i + 1) for i in range(len(words))]
    data, places = arc_places(names, places, layout, path)
    note = ""
    if header or data.places or sorted(places) != list(range(len(words))):
        note = columns_note(names if header else [f"column {i}" for i in names], places, data)
    return Columns(
        separator=separator,
        width=len(words),
        places=places,
        text=text,
        header=number if header else 0,
        known=roles is not None or bool(header),
        doubtful=doubtful and text,
        note=note,
        data=data.with_kind(sample),
    )


def columns_note(names: Sequence[str], places: Sequence[int], data: ArcPlaces) -> str:
    """The columns that are read, and those that are not, for the user."""
    said = [f"{role} {quoted(names[i])}" for role, i in zip(ROLES, places, strict=False)]
    for role, found in (("feature", data.features), ("label", data.labels)):
        said += [f"{role} {quoted(names[i])}" for i in found]
    unread = [quoted(name) for i, name in enumerate(names) if i not in (*places, *data.places)]
    return ", ".join(said) + (f"; not read: {', '.join(unread)}" if unread else "")


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
    bare = re.split("[#%]", line)[0].strip()
    return bare if bare and is_integer(words_of(bare, separator_of(bare))[0]) else line.strip()


def _integers(words: list[str], places: tuple[int, ...]) -> bool:
    return len(words) > max(places) and all(is_integer(words[i]) for i in places)


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


def named_roles(words: list[str]) -> tuple[int, ...] | None:
    """Places of source, target and weight by the names in a header."""
    plain = list(map(plain_name, words))
    places = []
    for known in (SOURCES, TARGETS, WEIGHTS):
        fitting = [i for i, word in enumerate(plain) if word in known]
        if len(fitting) > 1:
            return None
        places += fitting
        if not fitting and known is not WEIGHTS:
            return None
    return tuple(places)


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
