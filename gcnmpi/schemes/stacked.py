"""A scheme for several samples at once: see :mod:`gcnmpi.halo.stacked`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gcnmpi.core.volume import Volume
from gcnmpi.halo.matrix import Matrix
from gcnmpi.halo.rows import Halo
from gcnmpi.halo.stacked import Stack, StackedHalo
from gcnmpi.kernels.epilogues import Epilogue
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.layout.entries import OF_GROUPS, entry_keys
from gcnmpi.layout.loading import Readable
from gcnmpi.layout.place import Block, Place, Space
from gcnmpi.layout.runtime import Runtime
from gcnmpi.schemes.operations import EXCHANGES, Operation
from gcnmpi.schemes.row_scheme import RowScheme
from gcnmpi.schemes.whole_rows import WholeRows


class StackedScheme(WholeRows):
    """The products and rows of a scheme, for the samples of a stack at once.

    Parameters
    ----------
    runtime : Runtime
    inner : RowScheme
        The scheme that holds the graph.
    stack : Stack
    """

    def __init__(self, runtime: Runtime, inner: RowScheme, stack: Stack) -> None:
        super().__init__(runtime)
        self.inner, self.stack, self.name, self.plan = inner, stack, inner.name, inner.plan
        self.halo: Halo | None = None
        if inner.halo is not None:
            self.halo = StackedHalo(inner.halo, stack, runtime.kernel)

    def describe(self) -> dict[str, object]:
        """Options of the scheme as they were resolved."""
        return self.inner.describe()

    def block(self, place: Place, width: int) -> Block:
        """Rows of all samples, with keys of their own, and all columns."""
        found, stack, space = self.inner.block(place, width), self.stack, place.space
        if not space.of_arcs:
            return found.of_rows(stack.vertices(found.rows))
        starts = self._starts(space)
        which, more = stack.entries(starts), stack.n * stack.numbers[stack.samples(starts)]
        entries = self.inner.entries
        assert entries is not None
        if space is Space.GROUPS:
            assert entries.groups is not None
            rows = entries.groups.rows.astype(np.int64)[which] + more
            return found.of_rows(entry_keys(rows, rows, 1 + entries.groups.relations[which]))

        def keys() -> np.ndarray:
            rows, columns = entries.rows.astype(np.int64), entries.columns.astype(np.int64)
            return entry_keys(rows[which] + more, columns[which] + more, entries.numbers[which])

        return replace(found, count=len(which), keys=keys)

    def all_rows(self, space: Space) -> int:
        """Rows of all samples of a step."""
        return self.inner.all_rows(space) * self.stack.every

    def summed(self, rows: int) -> slice:
        """Copies of rows divide them."""
        return self.inner.summed(rows)

    def empty(self, place: Place, width: int, exchanged: bool = False) -> Matrix:
        """This rank's rows of all samples."""
        stack = self.stack
        return stack.narrowed(self.inner.empty(place, stack.count * width, exchanged))

    def release(self) -> None:
        """Free the buffers of a product that is made once."""
        self.inner.release()

    def aggregate(self, k: int, x: Matrix, out: Array, epilogue: Epilogue | None = None) -> None:
        """M times the rows of all samples, and what follows row by row."""
        self._multiply(self.inner.aggregate, k, x, out, epilogue)

    def aggregate_t(self, k: int, x: Matrix, out: Array, epilogue: Epilogue | None = None) -> None:
        """The same with Mᵀ."""
        self._multiply(self.inner.aggregate_t, k, x, out, epilogue)

    def load(self, place: Place, array: Readable) -> np.ndarray:
        """Own rows of an array on disk, the same for all samples."""
        return np.repeat(self.inner.load(place, array), self.stack.count, axis=0)

    def load_arcs(self, array: Readable, loops: str) -> np.ndarray:
        """Rows of an array on disk of the arcs into own vertices, or of their groups.

        They are the same for all samples.
        """
        space = Space.GROUPS if loops in OF_GROUPS else Space.ENTRIES
        return self.inner.load_arcs(array, loops)[self.stack.entries(self._starts(space))]

    def original(self, place: Place, piece: np.ndarray, width: int) -> np.ndarray:
        """This rank's contiguous 1/P of all rows, those of all samples beside each other."""
        wide = piece.reshape(len(piece) // self.stack.count, self.stack.count * width)
        return self.inner.original(place, wide, self.stack.count * width)

    def volume(self, product: Operation, k: int, *sizes: int) -> Volume:
        """As the scheme has it, of rows that are wider."""
        if product in EXCHANGES:
            sizes = tuple(self.stack.count * size for size in sizes)
        return self.inner.volume(product, k, *sizes)

    def _multiply(
        self,
        product: Callable[[int, Matrix, Array, Epilogue | None], None],
        k: int,
        x: Matrix,
        out: Array,
        epilogue: Epilogue | None,
    ) -> None:
        """A product of rows that are as wide as all samples, then what is of single rows."""
        stack = self.stack
        if stack.count == 1:
            product(k, x, out, epilogue)
            return
        product(k, stack.widened(x), stack.wide(out), None)
        self._kernel.follow(out, epilogue)

    def _starts(self, space: Space) -> np.ndarray:
        """Where the entries of each own row begin, or its groups."""
        assert self.inner.halo is not None
        matrix, groups = self.inner.halo.given
        starts = matrix.indptr.astype(np.int64)
        if space is Space.ENTRIES:
            return starts
        assert groups is not None
        return np.searchsorted(groups.starts, starts)
