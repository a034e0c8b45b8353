"""Types of vertices, and relations between them: the schema of a heterogeneous graph."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from partition.errors import UserError, check_name, require, unknown_name

_MAX_RELATIONS = 1 << 16
STORED_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,199}")  # of things in a graph folder
_REVERSE = "rev_"  # begins the name of the reverse of a relation


class Relation(NamedTuple):
    """Arcs of one meaning: from vertices of one type to vertices of one type."""

    source: str
    name: str
    target: str

    def __str__(self) -> str:
        """The words that command lines and files have for it."""
        return ",".join(self)

    def reverse(self) -> Relation:
        """The relation of the same arcs the other way, by its usual name."""
        name = self.name.removeprefix(_REVERSE)
        return Relation(self.target, name if name != self.name else _REVERSE + name, self.source)


@dataclass(frozen=True)
class VertexTypes:
    """Types of vertices, each a range of one numbering.

    Attributes
    ----------
    names : tuple of str
    offsets : tuple of int
        The first vertex of each type, and n.
    """

    names: tuple[str, ...]
    offsets: tuple[int, ...]

    @staticmethod
    def of_counts(counts: Mapping[str, int]) -> VertexTypes:
        """Types by their numbers of vertices, in that order."""
        return VertexTypes(tuple(counts), (0, *accumulate(counts.values())))

    @property
    def counts(self) -> dict[str, int]:
        """How many vertices each type has."""
        return {name: len(self.range(name)) for name in self.names}

    def range(self, name: str) -> range:
        """The vertices of a type; a UserError if there is no such type."""
        place = self.names.index(check_name("vertex type", name, self.names))
        return range(self.offsets[place], self.offsets[place + 1])

    def of(self, vertices: np.ndarray) -> np.ndarray:
        """The number of the type of each vertex, (m,) int64."""
        return np.searchsorted(np.array(self.offsets[1:]), vertices, side="right")


@dataclass(frozen=True)
class Schema:
    """The names of types of vertices and of relations, in the order of their numbers.

    ``features`` are the columns of the types that have features of their own: those of H⁰ in this
    order, in which vertices of other types have zeros. Empty: all vertices have the same columns.

    >>> Schema.of(3).into
    ((0, 1, 2),)
    """

    types: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()
    features: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(found: Schema | int) -> Schema:
        """The same, or that of so many relations between vertices of one type."""
        if isinstance(found, Schema):
            return found
        relations = tuple(Relation("", str(number), "") for number in range(found))
        return Schema(("",) if found else (), relations)

    def __len__(self) -> int:
        """How many relations there are."""
        return len(self.relations)

    @property
    def ends(self) -> tuple[tuple[int, int], ...]:
        """The numbers of the types that each relation leads from and to."""
        number = {name: at for at, name in enumerate(self.types)}
        return tuple((number[one.source], number[one.target]) for one in self.relations)

    @property
    def reverses(self) -> tuple[int, ...]:
        """The number of the relation of the same arcs the other way, by its name; −1: none."""
        number = {one: at for at, one in enumerate(self.relations)}
        return tuple(number.get(one.reverse(), -1) for one in self.relations)

    @property
    def turned(self) -> tuple[bool, ...]:
        """Whether each relation is called the reverse of another one: ``rev_NAME`` of ``NAME``."""
        named = (one.name.startswith(_REVERSE) for one in self.relations)
        return tuple(is_so and back >= 0 for is_so, back in zip(named, self.reverses, strict=True))

    @property
    def forward(self) -> tuple[int, ...]:
        """The numbers of the relations but those that are called the reverse of another one."""
        return tuple(number for number, turned in enumerate(self.turned) if not turned)

    def number_of(self, name: str) -> int:
        """The number of a type; a UserError if there is no such type."""
        return self.types.index(check_name("vertex type", name, self.types))

    @property
    def into(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the relations into vertices of each type."""
        return tuple(
            tuple(number for number, one in enumerate(self.relations) if one.target == name)
            for name in self.types
        )


NO_SCHEMA = Schema()


def needs_relations(schema: Schema) -> Schema:
    """The same; a UserError if it has no relations."""
    if not len(schema):
        hint = "gcn-partition import FILE G.graph --columns source,relation,target"
        raise UserError("this network tells relations of arcs apart, and the graph has none", hint)
    return schema


def parse_relation(text: str) -> Relation:
    """The relation "author,writes,paper"; a UserError if there are not three words."""
    words = [word.strip() for word in text.split(",")]
    if len(words) != 3 or not all(words):
        hint = "SOURCE,NAME,TARGET, such as author,writes,paper"
        raise UserError(f"{text!r} is no relation", hint)
    return Relation(*words)


def relation_dtype(count: int) -> np.dtype:
    """The dtype of numbers of so many relations; a UserError if they are too many."""
    many = f"{count:,} relations are more than the {_MAX_RELATIONS:,} that there may be"
    require(count <= _MAX_RELATIONS, many)
    return np.dtype(np.uint8 if count <= 256 else np.uint16)


def schema_fault(
    n: int, types: Mapping[str, int], relations: Sequence[Relation], features: Mapping[str, int]
) -> str | None:
    """A contradiction in the schema of a graph of n vertices; None if there is none."""
    if not types:
        return "there are relations without vertex types" if relations or features else None
    for name in types:
        if not STORED_NAME.fullmatch(name):
            return f"{name[:100]!r} is no name of a vertex type"
    if sum(types.values()) != n:
        return f"the vertex types have {sum(types.values())} vertices, not {n}"
    for one in relations:
        if not {one.source, one.target} <= types.keys():
            return f"{str(one)[:100]} is no relation of its vertex types"
    if not relations or len(set(relations)) < len(relations) or len(relations) > _MAX_RELATIONS:
        return "there are no relations, too many, or one twice"
    if strange := sorted(features.keys() - types.keys()):
        return f"there are features of {strange[0][:100]!r}, which is no vertex type"
    return None


def number_relations(
    columns: Mapping[str, np.ndarray], where: str, known: Sequence[Relation] = ()
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """The relation of each arc or pair as a number, and the names of the relations.

    The one definition of how relations in a column of a file are numbered: those of the graph, if
    it has some; otherwise texts in their order, and whole numbers as they are, without names.

    Parameters
    ----------
    columns : mapping of str to (m,) integers or texts
        Columns that are numbered together.
    where : str
        Their file, for messages.
    known : sequence of Relation
        The relations of the graph. Names, of which each may be of one relation only, or
        "source,name,target".

    Returns
    -------
    numbers : dict of str to (m,) int64
    names : tuple of str
        Empty where numbers are those of the file.

    Raises
    ------
    UserError
        If numbers and texts are mixed, a number is negative, or the graph has no such relation.
    """
    kinds = {array.dtype.kind for array in columns.values() if len(array)}
    if len(kinds - {"i", "u"}) > (kinds == {"U"}):
        raise UserError(f"{where}: relations are not all whole numbers, nor all texts")
    found = [np.unique(array) for array in columns.values()]
    distinct = np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)
    if known:
        places = np.array([place_of(str(name), known, where) for name in distinct], np.int64)
        names = names_of(known)
    elif kinds == {"U"}:
        places, names = np.arange(len(distinct)), tuple(distinct.tolist())
    else:
        if len(distinct) and distinct[0] < 0:
            raise UserError(f"{where}: there is a relation {distinct[0]}")
        return {mask: array.astype(np.int64, copy=False) for mask, array in columns.items()}, ()
    numbers = {mask: places[np.searchsorted(distinct, array)] for mask, array in columns.items()}
    return numbers, names


def names_of(relations: Sequence[Relation]) -> tuple[str, ...]:
    """The names of relations; "source,name,target" where several have one name."""
    names = tuple(one.name for one in relations)
    return names if len(set(names)) == len(names) else tuple(map(str, relations))


def place_of(text: str, known: Sequence[Relation], where: str) -> int:
    """Which relation is called so, "source,name,target" or its name, if no other has it.

    A UserError with ``where`` it is called so, if there is none, or there are several.
    """
    fitting = [place for place, one in enumerate(known) if text in (one.name, str(one))]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        several = f"{where}: {len(fitting)} relations are called {text!r}"
        raise UserError(several, f"write it as {known[fitting[0]]}")
    raise unknown_name(f"relation of {where}", text, [one.name for one in known])
