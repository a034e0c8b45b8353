"""The arrays of a heterogeneous graph: the relation of each arc, and features of each type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from partition.errors import UserError
from partition.graph.graph import AGAIN, Graph, arc_pieces
from partition.graph.hashing import key, mixed
from partition.graph.relations import VertexTypes, relation_dtype, schema_fault
from partition.resident import let_go

COUNTED_AT_ONCE = 1 << 22


def settled(graph: Graph) -> Graph:
    """The graph as a folder keeps it: features of all types together where they are of one width.

    A UserError if its schema contradicts itself, or an arc is of another relation than its ends.
    """
    types = graph.vertex_types
    if types is None:
        return graph
    widths = {name: int(x.shape[1]) for name, x in graph.type_features.items()}
    if fault := schema_fault(graph.n, types.counts, graph.relations, widths):
        raise UserError(fault)
    check_ends(graph)
    if graph.features is not None:
        return replace(graph, type_features={})
    filled = [name for name in types.names if types.counts[name]]
    if set(filled) <= widths.keys() and len({widths[name] for name in filled}) == 1:
        rows = np.concatenate([graph.type_features[name] for name in filled])
        return replace(graph, features=rows, type_features={})
    return graph


def by_type(graph: Graph) -> dict[str, np.ndarray]:
    """The features of each type that has some, wherever they are kept."""
    names = () if graph.vertex_types is None else graph.vertex_types.names
    found = {name: graph.features_of(name) for name in names}
    return {name: rows for name, rows in found.items() if rows is not None}


class _TypedRows:
    """A row for each vertex, of features that types have of their own: (n, columns of all types).

    Each type has columns of its own, in which the rows of others are 0; so one weight of all
    columns is one for each type. As of an array, a slice is another view: nothing is read before
    rows are picked by numbers.
    """

    def __init__(
        self, types: VertexTypes, features: Mapping[str, np.ndarray], vertices: range,
        columns: slice = slice(None),
    ) -> None:  # fmt: skip
        self._types, self._features, self._columns = types, features, columns
        self._vertices = vertices
        self._width = sum(x.shape[1] for x in features.values())
        self.dtype, self.ndim = np.dtype(np.float32), 2
        self.shape = len(self._vertices), len(range(self._width)[columns])
        self.flags = np.zeros(0).flags  # nobody else lets go of pages

    def __len__(self) -> int:
        return len(self._vertices)

    def __getitem__(self, key: Any) -> Any:
        picked, columns = key if isinstance(key, tuple) else (key, self._columns)
        if isinstance(picked, slice):
            return _TypedRows(self._types, self._features, self._vertices[picked], columns)
        vertices = np.asarray(self._vertices)[picked]
        rows, column = np.zeros((len(vertices), self._width), self.dtype), 0
        for name, features in self._features.items():
            own, width = self._types.range(name), features.shape[1]
            some = np.flatnonzero((vertices >= own.start) & (vertices < own.stop))
            rows[some, column : column + width] = features[vertices[some] - own.start]
            column += width
        let_go(*self._features.values())
        return rows[:, columns]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[np.arange(len(self))], dtype)


def inputs_of(graph: Graph) -> Any:
    """The rows that a network takes of all vertices, (n, columns); None where there are none.

    The features, or those of the types: see :class:`_TypedRows`.
    """
    if graph.features is not None or graph.vertex_types is None or not graph.type_features:
        return graph.features
    return _TypedRows(graph.vertex_types, graph.type_features, range(graph.n))


def check_one_width(path: Path, graph: Graph) -> None:
    """A UserError if a graph has features of types that are not those of all vertices together."""
    if graph.vertex_types is not None and graph.type_features:
        widths = {name: x.shape[1] for name, x in graph.type_features.items()}
        text = ", ".join(f"{name} {widths.get(name, 'none')}" for name in graph.vertex_types.names)
        raise UserError(
            f"{path} has features of its vertex types, of different widths ({text}), and this "
            "takes rows of one width",
            "gcn-partition attach --features random:16 gives all vertices some; or TYPE=FILE each",
        )


def check_ends(graph: Graph) -> None:
    """Refuse relations of arcs that they cannot have, in bounded memory.

    A UserError if a number is that of no relation, or an end is not of the type of its relation.
    Targets have been checked: :func:`partition.graph.graph.check_arcs`.
    """
    types, arc_type = graph.vertex_types, graph.arc_type
    if types is None or arc_type is None:
        return
    if arc_type.dtype != relation_dtype(len(graph.relations)):
        raise UserError(f"arc_type.npy holds {arc_type.dtype}", AGAIN)
    ends = [[types.range(one.source), types.range(one.target)] for one in graph.relations]
    low = np.array([[each.start for each in pair] for pair in ends], np.int64)
    high = np.array([[each.stop for each in pair] for pair in ends], np.int64)
    for first, last, *pairs in arc_pieces(graph):
        number = np.asarray(arc_type[graph.indptr[first] : graph.indptr[last]])
        if len(number) and number.max() >= len(ends):
            raise UserError(f"arc_type.npy has a relation outside 0..{len(ends) - 1}", AGAIN)
        for side, vertices in enumerate(pairs):
            wrong = (vertices < low[number, side]) | (vertices >= high[number, side])
            if wrong.any():
                at = int(np.argmax(wrong))
                arc = " -> ".join(str(each[at]) for each in pairs)
                of = f"{graph.relations[number[at]]}, whose {('source', 'target')[side]}"
                raise UserError(f"the arc {arc} is of the relation {of} it does not have", AGAIN)


def group_count(graph: Graph, direction: str) -> int:
    """How many groups of arcs there are, of one relation into ("out": out of) a vertex, about.

    Of a large graph, those of every so many vertices are counted, which hashes choose.
    """
    relations: Any = graph.arc_type
    every = max(1, graph.nnz // COUNTED_AT_ONCE)
    chosen = mixed(np.arange(graph.n), key(0)) % np.uint64(every) == 0
    groups = []
    for start in range(0, graph.nnz, COUNTED_AT_ONCE):
        arcs = slice(start, min(start + COUNTED_AT_ONCE, graph.nnz))
        end = np.asarray(graph.indices[arcs], np.int64)
        if direction == "out":
            end = np.searchsorted(graph.indptr, np.arange(arcs.start, arcs.stop), "right") - 1
        some = chosen[end]
        groups.append(end[some] * len(graph.relations) + relations[arcs][some])
    let_go(graph.indptr, graph.indices, relations)
    return every * len(np.unique(np.concatenate(groups))) if groups else 0
