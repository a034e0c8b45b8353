"""The patterns of a rank's rows of M in a kernel's form: which rows are cut into which.

Without groups there is one, M's own. With groups of relations there are three::

    own rows ──── ARCS ────► entries
       └── GROUPS ──► groups ── GROUPED ──► entries

Entries, and groups, have the same order in all of them, so that a matrix of entries serves both.
With groups, each is made when it is first asked for: means by relation need no ``ARCS``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gcnmpi.kernels.interface.kernel import Kernel, Pattern
from gcnmpi.layout.entries import Groups
from gcnmpi.layout.place import Incidence, Space


@dataclass(frozen=True)
class ArcSlice:
    """Some own rows, one after the other, and their groups and entries.

    Attributes
    ----------
    number : int
        Which of the slices it is.
    rows : mapping of Space to slice
        Which of the rows of a space are in it.
    patterns : mapping of Incidence to pattern
        Of these rows; for operations by rows only, if there are more slices than one.
    """

    number: int
    rows: Mapping[Space, slice]
    patterns: Mapping[Incidence, Pattern]

    def count(self, space: Space) -> int:
        """How many rows of a space are in it."""
        rows = self.rows[space]
        return int(rows.stop - rows.start)


class Patterns:
    """See the module's docstring.

    Parameters
    ----------
    matrix : (own, own + halo) csr_array
        The entries; its values are not looked at.
    ids : (own + halo,) integers, or None
        Global vertices of the local columns; None: entries of a row are in their order.
    groups : Groups or None
        Of these entries, in their order.
    """

    def __init__(
        self,
        kernel: Kernel,
        matrix: sp.csr_array,
        ids: np.ndarray | None,
        groups: Groups | None = None,
    ) -> None:
        self._kernel, self._starts, self._groups = kernel, matrix.indptr, groups
        self._made: dict[Incidence, Pattern] = {}
        # Which group is the first of each row.
        self._first = self._starts
        if groups is None:
            self._made[Incidence.ARCS] = kernel.pattern(matrix, ids)
        else:
            self._matrix = matrix
            self._first = np.searchsorted(groups.starts, self._starts)

    def of(self, incidence: Incidence) -> Pattern:
        """The pattern of an incidence, made if it is not there."""
        if incidence not in self._made:
            self._made[incidence] = self._kernel.pattern(self._of(incidence), None)
        return self._made[incidence]

    def slices(self, entries: int, wanted: Collection[Incidence]) -> Sequence[ArcSlice]:
        """Own rows cut into slices of about so many entries, with the patterns that are wanted."""
        found = []
        for number, (first, last) in enumerate(self._kernel.cuts(self._starts, entries)):
            rows = {
                Space.OWN: slice(first, last),
                Space.ENTRIES: slice(int(self._starts[first]), int(self._starts[last])),
                Space.GROUPS: slice(int(self._first[first]), int(self._first[last])),
            }
            of = {}
            for one in wanted:
                some = rows[Space.GROUPS if one is Incidence.GROUPED else Space.OWN]
                of[one] = self._kernel.some_rows(self.of(one), some)
            found.append(ArcSlice(number, rows, of))
        return found

    def means(self, relations: Sequence[int]) -> sp.csr_array:
        """For each own row and each of these relations the mean over the columns of its entries.

        These add up to a row, (own, own + halo), float64. Parallel entries stay apart.
        """
        groups, matrix = self._groups, self._matrix
        assert groups is not None, "entries are in no groups"
        some = np.flatnonzero(np.isin(groups.relations, relations))
        first, counts = groups.starts[some], np.diff(groups.starts)[some]
        starts = np.append(0, np.cumsum(counts))
        entries = np.repeat(first - starts[:-1], counts) + np.arange(starts[-1])
        rows = starts[np.searchsorted(some, self._first)]  # groups are in the order of rows
        return sp.csr_array(
            (np.repeat(1 / counts, counts), matrix.indices[entries], rows), shape=matrix.shape
        )

    def _of(self, incidence: Incidence) -> sp.csr_array:
        groups = self._groups
        assert groups is not None, "entries are in no groups"
        matrix = self._matrix
        if incidence is Incidence.ARCS:
            return matrix
        count = len(groups.relations)
        if incidence is Incidence.GROUPED:
            grouped = matrix.data, matrix.indices, groups.starts
            return sp.csr_array(grouped, shape=(count, matrix.shape[1]))
        numbers = np.arange(count, dtype=matrix.indices.dtype)
        ones = np.ones(count, np.int8)
        return sp.csr_array((ones, numbers, self._first), shape=(matrix.shape[0], count))
