"""The common parts of layouts that keep weights on every rank, cut rows or keep them whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from gcnmpi.halo.matrix import Matrix
from gcnmpi.halo.plan import Plan
from gcnmpi.halo.rows import Halo
from gcnmpi.kernels.epilogues import Product
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.layout.loading import Readable
from gcnmpi.layout.place import Block, Place, Space
from gcnmpi.layout.runtime import Runtime
from gcnmpi.mpi.collectives import MAX, MIN, Group
from gcnmpi.mpi.reduction import sum_array_over_ranks


class Common(ABC):
    """State of a rank in a scheme, and what hardly any scheme does in another way.

    A scheme adds what is missing of the interface, ``block`` among it.
    """

    name: str
    orders: tuple[str, ...] = ("combine", "aggregate")
    sharded = False
    whole_rows = False
    turns = False
    halo: Halo | None = None
    plan: Plan | None = None

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._comm, self._kernel = runtime, runtime.comm, runtime.kernel
        self._phases, self._traffic = runtime.phases, runtime.traffic

    @abstractmethod
    def block(self, place: Place, width: int) -> Block:
        """This rank's piece of a matrix."""

    def halo_of(self, k: int) -> Halo | None:
        """One for all layers."""
        return self.halo

    def all_rows(self, space: Space) -> int:
        """Not here: there are no matrices of entries."""
        raise AssertionError("no entries were asked for")

    def load_arcs(self, array: Readable, loops: str) -> np.ndarray:
        """Not here: there are no matrices of entries."""
        raise AssertionError("no entries were asked for")

    def summed(self, rows: int) -> slice:
        """All: nobody else has them."""
        return slice(None)

    def release(self) -> None:  # noqa: B027 (what most schemes need)
        """Nothing: no buffers are kept."""

    def reduce(self, contributions: Array) -> None:
        """One all-reduce over all ranks, those of other groups too."""
        tools = self._runtime.summation, contributions, self._phases, self._traffic
        sum_array_over_ranks(self._runtime.everyone, self._kernel, *tools)


class WholeWeights(Common):
    """Where every rank has all weights, and matrices of all layers are cut alike."""

    def layout(self, place: Place) -> Hashable:
        """One for all places."""
        return None

    def move(self, x: Matrix, out: Matrix, width: int) -> None:
        """There is one layout only."""
        self._kernel.copy(x.array, out.array)

    def weight_shape(self, k: int, d_in: int, d_out: int) -> tuple[int, ...]:
        """Weights are whole on every rank."""
        return d_in, d_out

    def shard(self, k: int, weight: np.ndarray) -> np.ndarray:
        """The weight itself, whole on every rank."""
        return weight

    def unshard(self, k: int, piece: np.ndarray, d_in: int, d_out: int) -> np.ndarray:
        """The weight itself, whole on every rank."""
        return piece.reshape(d_in, d_out)

    def input_block(self, width: int) -> Block:
        """A rank's share of H⁰ is its piece."""
        return self.block(Place(0), width)

    def expand_input(self, share: Array, out: Array) -> None:
        """A rank's share of H⁰ is its piece."""
        self._kernel.copy(share, out)

    def share_input(self, piece: Array, out: Array) -> None:
        """A rank's share of H⁰ is its piece."""
        self._kernel.copy(piece, out)


class CutRows(Common):
    """Operations on rows whose columns are cut over a group of ranks, which have the same rows.

    Each is one all-reduce of a number a row; ``row_argmax`` one more, of 8 bytes a row.
    """

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._memory: dict[str, Any] = {}
        # ``_take(rows, columns)`` makes a matrix that is not in this memory.
        self._take: Callable[[int, int], Array] = self._kernel.empty

    @abstractmethod
    def _sharing_rows(self, k: int) -> Group:
        """The ranks that share the rows of Hᵏ."""

    @abstractmethod
    def _columns(self, k: int, width: int) -> slice:
        """Global columns of this rank in Hᵏ."""

    def row_max(self, k: int, x: Array) -> Array:
        """The largest of all ranks."""
        largest = self._kernel.row_max(x)
        self._sharing_rows(k).all_reduce(largest, MAX)
        return largest

    def row_sum(self, k: int, sums: Array) -> Array:
        """The sum of all ranks, in place."""
        self._sharing_rows(k).all_reduce(sums)
        return sums

    def row_pick(self, k: int, x: Array, columns: np.ndarray, width: int) -> Array:
        """From the rank that has the column; the others add 0."""
        picked = self._kernel.pick(x, columns, self._columns(k, width).start)
        self._sharing_rows(k).all_reduce(picked)
        return picked

    def row_argmax(self, k: int, x: Array, width: int) -> np.ndarray:
        """The lowest column among those that have the largest of all ranks, int64."""
        kernel, group, mine = self._kernel, self._sharing_rows(k), self._columns(k, width)
        own = kernel.to_host(kernel.row_max(x))
        largest = own.copy()
        group.all_reduce(largest, MAX)
        column = kernel.to_host(kernel.row_argmax(x)).astype(np.int64) + mine.start
        has_columns = mine.stop > mine.start  # without any, a rank's maximum is −∞ and nowhere
        column[(own < largest)[:, 0] | (not has_columns)] = width
        group.all_reduce(column, MIN)
        return column

    def _scratch(self, role: str, rows: int, columns: int) -> Array:
        """An uninitialised matrix in memory that is used again, as large as the largest."""
        size = rows * columns
        if role not in self._memory or len(self._memory[role]) < size:
            self._memory[role] = self._kernel.empty(size)
        return self._memory[role][:size].reshape(rows, columns)


class WholeRows(WholeWeights):
    """The products and row operations that are local when rows are whole.

    A scheme adds ``block``, ``empty``, ``aggregate``, ``aggregate_t``, ``load``, ``original``
    and ``volume``.
    """

    whole_rows = True

    def combine(self, k: int, product: Product[Array]) -> None:
        """A local product of whole rows."""
        with self._phases("gemm"):
            self._kernel.gemm_then(product)

    def weight_grad(
        self, k: int, x: Array, grad: Array, out: Array, sums: Array | None = None
    ) -> None:
        """Local, over the rows that this rank sums up."""
        mine = self.summed(len(x))
        x, grad = x[mine], grad[mine]
        with self._phases("gemm"):
            if sums is None:
                self._kernel.gemm(x, grad, out, ta=True)
            else:
                self._kernel.gemm_and_sums(x, grad, out, sums)

    def column_sum(self, k: int, grad: Array, out: Array) -> None:
        """Local, over the rows that this rank sums up."""
        self._kernel.column_sum(grad[self.summed(len(grad))], out)

    def row_max(self, k: int, x: Array) -> Array:
        """Local: all columns are here."""
        return self._kernel.row_max(x)

    def row_sum(self, k: int, sums: Array) -> Array:
        """Nothing to add: the sums are whole."""
        return sums

    def row_pick(self, k: int, x: Array, columns: np.ndarray, width: int) -> Array:
        """Local: all columns are here."""
        return self._kernel.pick(x, columns)

    def row_argmax(self, k: int, x: Array, width: int) -> np.ndarray:
        """Local: all columns are here."""
        return self._kernel.to_host(self._kernel.row_argmax(x))
