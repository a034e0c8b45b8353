"""What a scheme gives to layers, loss and optimizer, which never communicate themselves.

Dense matrices are arrays of the kernel. ``k`` is the number of the layer that a product belongs
to, from 1: schemes whose layout rotates with the layer need it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Volume:
    """What one rank hands to MPI for one product."""

    bytes: int
    messages: int


@dataclass(frozen=True)
class Block:
    """Global rows and columns of a rank's piece of a dense matrix; ``columns`` None: all."""

    rows: np.ndarray
    columns: slice | None = None


class Scheme(Protocol):
    """A layout of the dense matrices and the products on it (see the module's docstring)."""

    name: str

    def describe(self) -> dict[str, Any]:
        """What the run's record says of the scheme: its options as they were resolved."""

    def block(self, k: int) -> Block:
        """Global rows and columns of this rank's piece of the output of layer k (0: input)."""

    def empty(self, k: int, width: int, exchanged: bool = False) -> Any:
        """Room for this rank's piece of a dense matrix with ``width`` columns in all.

        ``exchanged=True`` promises that it will be the input of ``aggregate`` or
        ``aggregate_t``, so that the scheme can lay it out for its exchange and copy nothing.
        """

    def release(self) -> None:
        """Free what was kept for products of matrices that were not made with ``exchanged=True``.

        For a product that is made once, such as M·H⁰, whose buffers are as large as H⁰.
        """

    def aggregate(self, k: int, x: Any, out: Any) -> None:
        """out = M·x."""

    def aggregate_t(self, k: int, x: Any, out: Any) -> None:
        """out = Mᵀ·x."""

    def combine(self, k: int, x: Any, weight: Any, out: Any) -> None:
        """out = x·W."""

    def combine_t(self, k: int, x: Any, weight: Any, out: Any) -> None:
        """out = x·Wᵀ."""

    def weight_grad(self, k: int, x: Any, grad: Any, out: Any) -> None:
        """out = this rank's contribution to xᵀ·grad, in the layout of W."""

    def column_sum(self, k: int, grad: Any, out: Any) -> None:
        """out = this rank's contribution to the column sums of grad, in the layout of b."""

    def reduce(self, contributions: np.ndarray) -> None:
        """Sum a flat float64 array over ranks, in place, each global row counted once."""

    def row_max(self, x: Any) -> Any:
        """Largest entry of each row, (rows, 1)."""

    def row_sum(self, x: Any) -> Any:
        """Sum of this rank's row sums (rows, 1) over the ranks that share a row."""

    def row_pick(self, x: Any, columns: np.ndarray) -> Any:
        """The entry of each row in the given global column, (rows, 1)."""

    def row_argmax(self, x: Any) -> np.ndarray:
        """Global column of the largest entry of each row, the lowest on a tie."""

    def shard(self, k: int, parameter: np.ndarray) -> np.ndarray:
        """This rank's piece of a whole weight (or moment of it) of layer k."""

    def unshard(self, k: int, piece: np.ndarray) -> np.ndarray:
        """The whole weight again, on every rank."""

    def load_rows(self, array: np.ndarray) -> np.ndarray:
        """This rank's piece, by rows, of an (n, …) array on disk."""

    def original_rows(self, rows: np.ndarray) -> np.ndarray:
        """The inverse: this rank's contiguous 1/P of all rows, in the original order."""

    def volume(self, product: str, k: int, width: int) -> Volume:
        """What this rank will hand to MPI for a product ("aggregate", …) of that width."""
