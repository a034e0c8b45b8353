"""The interface of a kernel to networks, losses, optimizers and schemes.

A kernel has forms of its own for arrays, sparse matrices and patterns; mypy compares it with
:class:`KernelOf` these three, at the end of its module. Whoever computes with any kernel
takes a :data:`Kernel`, and hands back arrays and matrices that it made.

Results are written to arrays that the caller gives, where they are. Shapes with 0 and matrices
without entries occur. The same call gives the same bits. Index arrays are NumPy's, or what
``resident`` made of these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NewType, Protocol, TypeVar

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.arrays import Array, Memory
from gcnmpi.kernels.epilogues import EpilogueOf
from gcnmpi.kernels.interface.arcs import ArcOperations
from gcnmpi.kernels.interface.dense import DenseOperations, LossOperations, OptimizerSteps
from gcnmpi.kernels.interface.entries import EntryOperations
from gcnmpi.kernels.interface.kinds import KindOperations
from gcnmpi.kernels.interface.neighbours import AttentionDropout, NeighbourOperations, Pattern
from gcnmpi.kernels.interface.norms import NormOperations

A = TypeVar("A")
S = TypeVar("S")
P = TypeVar("P")


@dataclass(frozen=True)
class EntryDropout(Generic[A, S]):
    """Dropout of the values of a matrix, for another one of its pattern.

    Attributes
    ----------
    matrix, out : sparse matrices
    rows : (nnz,) int32
        The row of each entry.
    row_keys, column_keys, p
        As for ``dropout``.
    transposed : bool
        Whether both are transposed: then the keys of rows are those of their columns, and the
        others those of their rows.
    """

    matrix: S
    out: S
    rows: A
    row_keys: A
    column_keys: A
    p: float
    transposed: bool


class SparseProducts(Protocol[A, S]):
    """Products with a sparse matrix, in one pass with an epilogue if possible."""

    def sparse(self, matrix: sp.csr_array) -> S:
        """The kernel's own form of a CSR matrix, with values in its dtype.

        Raises
        ------
        ValueError
            If an index is out of range: products do not look.
        """

    def set_values(self, matrix: S, values: np.ndarray) -> None:
        """Other values for a matrix of :meth:`sparse`; nothing of the size of the matrix is made.

        Parameters
        ----------
        values : (nnz,) array of the kernel's dtype on the host
            In the order of the entries of the CSR matrix.
        """

    @property
    def drop_entries(self) -> Callable[[EntryDropout[A, S]], None] | None:
        """Dropout of the values of a matrix; None: on the host."""

    def spmm(self, matrix: S, x: A, out: A, accumulate: bool = False) -> None:
        """out = matrix · x, or out += matrix · x; rows of x and out are contiguous."""

    def spmm_then(
        self, matrix: S, x: A, out: A, accumulate: bool, epilogue: EpilogueOf[A] | None
    ) -> None:
        """out = epilogue(matrix · x), or epilogue(out + matrix · x)."""


class MessageOperations(Protocol[A]):
    """Rows in the formats of :mod:`gcnmpi.core.precision`, which are named by ``precision``.

    All kernels give the same bits for the same rows.
    """

    def empty_bytes(self, rows: int, columns: int) -> A:
        """An uninitialised (rows, columns) array of uint8, C-contiguous."""

    def encode_rows(self, x: A, precision: str, rows: A | None, columns: A | None, out: A) -> None:
        """out = the rows of x, whose numbers are contiguous, in a format.

        Parameters
        ----------
        rows, columns
            Keys for what is rounded at random, as for ``dropout``; without use else.
        out : (rows, bytes of a row) uint8
            Contiguous.
        """

    def decode_rows(self, message: A, precision: str, out: A) -> None:
        """The inverse: out = the rows that a message stands for."""


class KernelOf(
    Memory[A],
    DenseOperations[A],
    EntryOperations[A],
    NormOperations[A],
    NeighbourOperations[A, P],
    ArcOperations[A, P],
    KindOperations[A],
    MessageOperations[A],
    LossOperations[A],
    OptimizerSteps[A],
    SparseProducts[A, S],
    Protocol[A, S, P],
):
    """A kernel with arrays ``A``, sparse matrices ``S`` and patterns ``P``."""


Sparse = NewType("Sparse", object)
"""A sparse matrix in the form of some kernel."""

Kernel = KernelOf[Array, Sparse, Pattern]
"""Any kernel."""

__all__ = ["Array", "AttentionDropout", "Kernel", "KernelOf", "Pattern", "Sparse"]
