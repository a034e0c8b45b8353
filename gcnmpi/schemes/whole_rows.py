"""What layouts have in common that keep weights on every rank, and those that keep rows whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable

import numpy as np

from gcnmpi.halo.matrix import Matrix
from gcnmpi.halo.plan import Plan
from gcnmpi.halo.rows import Halo
from gcnmpi.kernels.epilogues import Product
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.layout.place import Block, Place
from gcnmpi.layout.runtime import Runtime
from gcnmpi.mpi.reduction import sum_array_over_ranks


class WholeWeights(ABC):
    """What does not depend on how rows are cut, where every rank has all weights.

    A scheme adds what is missing of the interface, ``block`` among it.
    """

    name: str
    orders: tuple[str, ...] = ("combine", "aggregate")
    sharded = False
    whole_rows = False
    summed = slice(None)
    halo: Halo | None = None
    plan: Plan | None = None

    def __init__(self, runtime: Runtime) -> None:
        self._comm, self._kernel = runtime.comm, runtime.kernel
        self._summation = runtime.summation
        self._phases, self._traffic = runtime.phases, runtime.traffic

    def layout(self, place: Place) -> Hashable:
        """One for all."""
        return None

    def move(self, x: Matrix, out: Matrix, width: int) -> None:
        """There is one layout only."""
        self._kernel.copy(x.array, out.array)

    def halo_of(self, k: int) -> Halo | None:
        """One for all layers."""
        return self.halo

    def release(self) -> None:  # noqa: B027 (what most schemes need)
        """Nothing is kept."""

    def reduce(self, contributions: Array) -> None:
        """One all-reduce."""
        tools = self._phases, self._traffic
        sum_array_over_ranks(self._comm, self._kernel, self._summation, contributions, *tools)

    def weight_shape(self, k: int, d_in: int, d_out: int) -> tuple[int, ...]:
        """Weights are whole."""
        return d_in, d_out

    def shard(self, k: int, weight: np.ndarray) -> np.ndarray:
        """Weights are whole."""
        return weight

    def unshard(self, k: int, piece: np.ndarray, d_in: int, d_out: int) -> np.ndarray:
        """Weights are whole."""
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

    @abstractmethod
    def block(self, place: Place, width: int) -> Block:
        """This rank's piece of a matrix."""


class WholeRows(WholeWeights):
    """The products and row operations that are local when rows are whole.

    A scheme adds ``block``, ``empty``, ``aggregate``, ``aggregate_t``, ``load``, ``original``
    and ``volume``.
    """

    whole_rows = True

    def combine(self, k: int, product: Product[Array]) -> None:
        """Local."""
        with self._phases("gemm"):
            self._kernel.gemm_then(product)

    def weight_grad(
        self, k: int, x: Array, grad: Array, out: Array, sums: Array | None = None
    ) -> None:
        """Local, over the rows that this rank sums up."""
        x, grad = x[self.summed], grad[self.summed]
        with self._phases("gemm"):
            if sums is None:
                self._kernel.gemm(x, grad, out, ta=True)
            else:
                self._kernel.gemm_and_sums(x, grad, out, sums)

    def column_sum(self, k: int, grad: Array, out: Array) -> None:
        """Local, over the rows that this rank sums up."""
        self._kernel.column_sum(grad[self.summed], out)

    def row_max(self, k: int, x: Array) -> Array:
        """Local."""
        return self._kernel.row_max(x)

    def row_sum(self, k: int, sums: Array) -> Array:
        """Whole already."""
        return sums

    def row_pick(self, k: int, x: Array, columns: np.ndarray, width: int) -> Array:
        """Local."""
        return self._kernel.pick(x, columns)

    def row_argmax(self, k: int, x: Array, width: int) -> np.ndarray:
        """Local."""
        return self._kernel.to_host(self._kernel.row_argmax(x))
