"""Which vertex a row of a file belongs to."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from partition.errors import UserError
from partition.graph.graph import Graph
from partition.importing.readers import LISTS
from partition.importing.readers.numbering import check_ids, positions, shown_id
from partition.importing.readers.vertex_files import Rows, read_ids

SORTED = "sorted"


class Places:
    """Which vertex a row of a file belongs to.

    A graph without ids is one with the ids 0..n−1.
    """

    def __init__(
        self,
        graph: Graph,
        ids: str | os.PathLike[str] | np.ndarray | None = None,
        mask_numbers: str | None = None,
        source: Mapping[str, object] | None = None,
        comments: str | None = None,
    ) -> None:
        self.source = source or {}
        self.n = graph.n
        self.ids = np.arange(graph.n) if graph.ids is None else np.asarray(graph.ids)
        self.numbers = mask_numbers
        self.consecutive = self.ids.dtype.kind == "i" and _consecutive(self.ids)
        self.given = ids is not None
        self.vertices: np.ndarray | None = None  # of each row; None: row i is of vertex i
        if ids is None:
            return
        if isinstance(ids, np.ndarray):
            check_ids(ids, "ids")
            self.vertices = self._found(ids, "ids")
        elif str(ids) == SORTED and self.consecutive:
            return
        elif str(ids) == SORTED:
            self.vertices = np.argsort(self.ids, kind="stable")
        else:
            text = self.ids.dtype.kind == "U"
            self.vertices = self._found(read_ids(ids, text=text, comments=comments), str(ids))
        if (self.vertices == np.arange(self.n)).all():
            self.vertices = None

    def of_vertices(self, rows: Rows, where: str, absent: float | None = None) -> np.ndarray:
        """The rows in the order of the vertices.

        ``absent`` is the value of vertices that a file with ids has no row for; without it, there
        are none.
        """
        vertices = self._of_rows(rows, where, partly=absent is not None)
        if vertices is None:
            return rows.values
        shape = (self.n, *rows.values.shape[1:])
        values = np.full(shape, 0 if absent is None else absent, rows.values.dtype)
        values[vertices] = rows.values
        return values

    def row_of_each(self, where: str) -> np.ndarray | None:
        """The row of each vertex in arrays that have one for each; None: row i is of vertex i.

        A UserError if nobody can say, because the ids of the graph are not consecutive numbers.
        """
        vertices = self._of_rows(Rows(np.empty(self.n, bool)), where)
        return None if vertices is None else np.argsort(vertices)

    def mask(self, rows: Rows, where: str) -> np.ndarray:
        """A mask from bool, from 0 and 1, or from the numbers of the vertices that are in.

        Of several splits, (n, splits) bool or 0 and 1.
        """
        values = rows.values
        if values.ndim == 2 and values.dtype.kind in "biu" and rows.ids is None:
            if not values.shape[1] or not ((values == 0) | (values == 1)).all():
                raise UserError(f"{where}: a mask of several splits holds bool, or 0 and 1")
            found = self.of_vertices(Rows(values.astype(bool)), where)
            return found[:, 0] if found.shape[1] == 1 else found
        if values.ndim != 1 or values.dtype.kind not in ("biuU" if rows.ids is None else "biu"):
            raise UserError(
                f"{where}: a mask is a vector of bool or of vertex numbers, "
                f"not {values.dtype} {values.shape}"
            )
        binary = values.dtype.kind in "iu" and bool(np.isin(values, (0, 1)).all())
        if values.dtype.kind == "b" or rows.ids is not None:
            if values.dtype.kind != "b" and not binary:
                raise UserError(f"{where}: a mask with ids has true or false, 0 or 1 in each row")
            return self.of_vertices(Rows(values.astype(bool), rows.ids), where)
        if binary and len(values) == self.n:
            if self.n <= 2 and len(np.unique(values)) == len(values):
                raise UserError(
                    f"{where} may be a row for each vertex, or a list of vertices",
                    "save it as bool: mask.astype(bool)",
                )
            return self.of_vertices(Rows(values.astype(bool)), where)
        listed, times = np.unique(values, return_counts=True)
        if len(listed) < len(values):
            twice = shown_id(listed[int(np.argmax(times > 1))])
            hint = f"a mask of 0 and 1 has a row for each of the {self.n} vertices"
            raise UserError(
                f"{where} lists vertex {twice} more than once, in {len(values)} rows",
                hint if binary else None,
            )
        mask = np.zeros(self.n, bool)
        mask[self._listed(listed, where)] = True
        return mask

    def _of_rows(self, rows: Rows, where: str, partly: bool = False) -> np.ndarray | None:
        """The vertex of each row, None where row i is of vertex i."""
        if rows.ids is not None:
            if self.given:
                raise UserError(f"{where} has a column of ids, so --ids is not for it")
            return self._found(rows.ids, where, partly)
        if len(rows.values) != self.n:
            raise UserError(
                f"{where} has {len(rows.values)} rows, the graph has {self.n} vertices",
                f"rows are vertices: transpose its {rows.values.shape}"
                if rows.values.shape[1:] == (self.n,)
                else self._hint(),
            )
        if not self.given and not self.consecutive:
            raise UserError(
                f"{where}: it is not clear which vertex a row is of, because the ids of the graph "
                f"are not consecutive numbers ({self._sample()})",
                "--ids FILE lists the ids of the rows; --ids sorted: rows follow increasing ids; a "
                "table may have a column 'id'",
            )
        return self.vertices

    def _listed(self, numbers: np.ndarray, where: str) -> np.ndarray:
        """Vertices from a list of their numbers or ids."""
        meaning = self.numbers
        same = bool((self.ids[:1] == 0).all()) and self.consecutive and self.vertices is None
        if numbers.dtype.kind == "U" or meaning == "ids" or (meaning is None and same):
            place, there = positions(self.ids, self._of_one_kind(numbers, where))
            if there.all():
                return place
            outside = shown_id(numbers[int(np.argmin(there))])
            span = f"outside 0..{self.n - 1}" if same else "that the graph does not have"
            raise UserError(f"{where} names a vertex {span}: {outside}")
        if meaning is None:
            raise UserError(
                f"{where}: the numbers can be ids ({self._sample()}) or rows (0..{self.n - 1})",
                "give --mask-numbers ids or rows, or a bool for each vertex",
            )
        if len(numbers) and (int(numbers[0]) < 0 or int(numbers[-1]) >= self.n):
            raise UserError(f"{where} names a row outside 0..{self.n - 1}")
        return numbers if self.vertices is None else self.vertices[numbers]

    def _found(self, ids: np.ndarray, where: str, partly: bool = False) -> np.ndarray:
        """The vertex of each id; a UserError unless every vertex is there, or ``partly`` some."""
        place, there = positions(self.ids, self._of_one_kind(ids, where))
        if not there.all():
            strange = shown_id(ids[int(np.argmin(there))])
            raise UserError(
                f"{where}: the graph has no vertex {strange}; its ids are {self._sample()}",
                self._hint(),
            )
        if len(ids) != self.n and not partly:
            absent = np.ones(self.n, bool)
            absent[place] = False
            first = shown_id(self.ids[int(np.argmax(absent))])
            raise UserError(
                f"{where} has {len(ids)} rows, the graph has {self.n} vertices; there is none for "
                f"vertex {first}"
            )
        return place

    def _of_one_kind(self, ids: np.ndarray, where: str) -> np.ndarray:
        if self.ids.dtype.kind == "U":
            return ids.astype(str)
        if ids.dtype.kind == "U":
            raise UserError(f"{where}: the ids of the graph are integers, not {shown_id(ids[0])}")
        return ids

    def _sample(self) -> str:
        shown = ", ".join(shown_id(value) for value in self.ids[:3])
        return f"{shown} …" if self.n > 3 else shown

    def _hint(self) -> str | None:
        """How a list of arcs is told its vertices, unless it was."""
        if given := self.source.get("vertices"):
            return f"--vertices {given} was given to import, which gives it {self.n:,} vertices"
        if self.source.get("format", "edges") not in LISTS:
            return None  # the file says how many there are
        if self.source.get("ids_given"):
            return None
        option = "--ids FILE" if self.ids.dtype.kind == "U" else "--vertices N or --ids FILE"
        return f"a list of arcs does not show vertices without arcs: import it with {option}"


def _consecutive(ids: np.ndarray) -> bool:
    return not len(ids) or bool((ids == np.arange(len(ids)) + ids[0]).all())
