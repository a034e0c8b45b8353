"""Several samples on one graph at once: their rows lie side by side.

A matrix of some space has for each row of that space a row for each sample, one after the other::

    vertex 7, sample 0    d numbers  ┐
    vertex 7, sample 1    d numbers  │ the same memory: one row of vertex 7,
    vertex 7, sample 2    d numbers  ┘ 3·d numbers

Operations on single rows take the first form, products with M and exchanges of rows the second
one: a message has the rows of all samples, and an entry of M is read once for all of them. Only
operations that go over single entries are told of a pattern that has them once for each sample.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from gcnmpi.halo.matrix import Matrix
from gcnmpi.halo.patterns import Patterns
from gcnmpi.halo.rows import Halo
from gcnmpi.kernels.interface.kernel import Array, Kernel, Pattern
from gcnmpi.layout.entries import Groups
from gcnmpi.layout.place import Incidence, Place


@dataclass(frozen=True)
class Stack:
    """The samples that a group of ranks computes at once, among those of a step.

    Attributes
    ----------
    first, count : int
        They are ``count`` ones from the one of number ``first`` on.
    every : int
        Samples of a step, on all groups.
    n : int
        Vertices of the graph.
    """

    first: int
    count: int
    every: int
    n: int

    @property
    def numbers(self) -> np.ndarray:
        """Their numbers among those of a step, (count,) int64."""
        return np.arange(self.first, self.first + self.count)

    def vertices(self, ids: np.ndarray) -> np.ndarray:
        """A key for each row of vertices: n · number + id, so that none occurs twice in a step."""
        keys = ids.astype(np.int64)[:, np.newaxis] + self.n * self.numbers
        return keys.reshape(-1)

    def wide(self, array: Array) -> Array:
        """Rows of all samples as one."""
        rows, width = array.shape
        return array.reshape(rows // self.count, self.count * width)

    def narrow(self, array: Array) -> Array:
        """A row for each sample."""
        rows, width = array.shape
        return array.reshape(rows * self.count, width // self.count)

    def widened(self, x: Matrix) -> Matrix:
        """A matrix with rows of all samples as one, in the same memory."""
        buffer = None if x.buffer is None else self.wide(x.buffer)
        return replace(x, array=self.wide(x.array), buffer=buffer)

    def narrowed(self, x: Matrix) -> Matrix:
        """A matrix with a row for each sample, in the same memory."""
        buffer = None if x.buffer is None else self.narrow(x.buffer)
        return replace(x, array=self.narrow(x.array), buffer=buffer)

    def entries(self, starts: np.ndarray) -> np.ndarray:
        """Which entry each one of the pattern for all samples is, by where those of rows begin."""
        sizes = np.repeat(np.diff(starts), self.count)
        first = np.append(0, np.cumsum(sizes))[:-1]
        return np.arange(sizes.sum()) + np.repeat(np.repeat(starts[:-1], self.count) - first, sizes)

    def samples(self, starts: np.ndarray) -> np.ndarray:
        """The place among the samples of each of these entries."""
        sizes = np.repeat(np.diff(starts), self.count)
        return np.repeat(np.tile(np.arange(self.count), len(starts) - 1), sizes)


class StackedHalo:
    """The halo of a scheme, for several samples at once: see :class:`~gcnmpi.halo.rows.Halo`."""

    def __init__(self, halo: Halo, stack: Stack, kernel: Kernel) -> None:
        self._halo, self._stack, self._kernel = halo, stack, kernel
        self.phases, self.kept, self.alone = halo.phases, halo.kept, halo.alone
        self.ids = stack.vertices(halo.ids)
        self.release = halo.release

    @functools.cached_property
    def patterns(self) -> Patterns:
        """Entries and groups, once for each sample."""
        matrix, groups = self._halo.given
        if self._stack.count == 1:
            return Patterns(self._kernel, matrix, self.ids, groups)
        return Patterns(self._kernel, *stacked_entries(self._stack, matrix, self.ids, groups))

    @property
    def given(self) -> tuple[sp.csr_array, Groups | None]:
        """Not offered: they are those of one sample."""
        raise TypeError("samples are stacked once")

    @property
    def pattern(self) -> Pattern:
        """Own rows over local columns, one entry for each arc and sample."""
        return self.patterns.of(Incidence.ARCS)

    def empty(self, place: Place, width: int) -> Matrix:
        """A matrix that can be expanded."""
        stack = self._stack
        return stack.narrowed(self._halo.empty(place, stack.count * width))

    def expand(self, x: Matrix) -> Array:
        """Own and halo rows of all samples: one message for them."""
        return self._stack.narrow(self._halo.expand(self._stack.widened(x)))

    def gradient(self, place: Place, width: int) -> Matrix:
        """Room for gradients of own and halo rows."""
        stack = self._stack
        return stack.narrowed(self._halo.gradient(place, stack.count * width))

    def fold(self, gradient: Matrix, out: Array) -> None:
        """Gradients of all samples back to the owners of the vertices."""
        self._halo.fold(self._stack.widened(gradient), self._stack.wide(out))


def stacked_entries(
    stack: Stack, matrix: sp.csr_array, ids: np.ndarray, groups: Groups | None
) -> tuple[sp.csr_array, np.ndarray, Groups | None]:
    """The pattern of all samples, whose rows and columns are those of single samples.

    ``ids`` are those of its columns, already. Entries of a row keep their order.
    """
    count, starts = stack.count, matrix.indptr.astype(np.int64)
    order = stack.entries(starts)
    rows, columns = (count * size for size in matrix.shape)
    dtype = np.int32 if columns < 2**31 else np.int64
    indices = (matrix.indices[order].astype(np.int64) * count + stack.samples(starts)).astype(dtype)
    sizes = np.repeat(np.diff(starts), count)
    every = np.append(0, np.cumsum(sizes))
    ones = np.ones(len(indices), np.int8)
    found = sp.csr_array((ones, indices, every), shape=(rows, columns))
    if groups is None:
        return found, ids, None
    first = np.searchsorted(groups.starts, starts)  # of each row among groups
    which = stack.entries(first)
    of_groups = np.append(0, np.cumsum(np.diff(groups.starts)[which]))
    facts = groups.rows[which], groups.relations[which], of_groups
    return found, ids, Groups(*facts, groups.total * stack.every, groups.parts[which])
