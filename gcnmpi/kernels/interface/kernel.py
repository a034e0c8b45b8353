"""What a kernel gives to networks, losses, optimizers and schemes: the meaning of every operation.

A kernel has forms of its own for arrays, sparse matrices and patterns; mypy compares it with
:class:`KernelOf` these three, at the end of its module. Whoever computes with any kernel
takes a :data:`Kernel`, and hands back what that made.

Results are written to arrays that the caller gives, where they are. Shapes with 0 and matrices
without entries occur. The same call gives the same bits. Index arrays are NumPy's, and whoever
hands one over does not change it afterwards.
"""

from __future__ import annotations

from typing import NewType, Protocol, TypeVar

from gcnmpi.core.arrays import Array, Memory
from gcnmpi.kernels.epilogues import Epilogue
from gcnmpi.kernels.interface.dense import DenseOperations, LossOperations, OptimizerSteps
from gcnmpi.kernels.interface.entries import EntryOperations
from gcnmpi.kernels.interface.messages import MessageOperations
from gcnmpi.kernels.interface.neighbours import AttentionDropout, NeighbourOperations, Pattern
from gcnmpi.kernels.interface.norms import NormOperations
from gcnmpi.kernels.interface.sparse import SparseProducts

A = TypeVar("A")
A_in = TypeVar("A_in", contravariant=True)
S = TypeVar("S")
S_in = TypeVar("S_in", contravariant=True)
P = TypeVar("P")


class FusedOperations(Protocol[A_in, S_in]):
    """Products together with what goes along, in one pass over memory if possible."""

    def follow(self, x: A_in, epilogue: Epilogue | None) -> None:
        """What follows a product, alone: where a scheme does something in between."""

    def gemm_then(
        self,
        a: A_in,
        b: A_in,
        out: A_in,
        tb: bool,
        epilogue: Epilogue | None,
        accumulate: bool = False,
        also: tuple[A_in, A_in] | None = None,
    ) -> None:
        """out = epilogue(a · b), or epilogue(a · bᵀ); to accumulate, of the sum of out and that.

        The product of two other factors, ``also``, is added to it.
        """

    def gemm_and_sums(self, a: A_in, b: A_in, out: A_in, sums: A_in) -> None:
        """out = aᵀ · b, and sums (columns,) = the sums of the columns of b."""

    def spmm_then(
        self, matrix: S_in, x: A_in, out: A_in, accumulate: bool, epilogue: Epilogue | None
    ) -> None:
        """out = epilogue(matrix · x), or epilogue(out + matrix · x)."""


class KernelOf(
    Memory[A],
    DenseOperations[A],
    EntryOperations[A],
    NormOperations[A],
    NeighbourOperations[A, P],
    MessageOperations[A],
    LossOperations[A],
    OptimizerSteps[A],
    SparseProducts[A, S],
    FusedOperations[A, S],
    Protocol[A, S, P],
):
    """A kernel with arrays ``A``, sparse matrices ``S`` and patterns ``P``."""


Sparse = NewType("Sparse", object)
"""A sparse matrix in the form of some kernel."""

Kernel = KernelOf[Array, Sparse, Pattern]
"""Any kernel."""

__all__ = ["Array", "AttentionDropout", "Kernel", "KernelOf", "Pattern", "Sparse"]
