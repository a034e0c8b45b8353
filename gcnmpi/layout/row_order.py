"""In which order a rank keeps its rows.

A product with M gathers, for each entry of a row, a row of the other matrix: from a cache if that
row, or one beside it, was gathered shortly before. So rows are best kept near those that they are
connected to. Results depend on it only in the order of additions: dropout, weights and
files go by the ids of vertices, wherever their rows are.

An order is a function of the own block of M. It returns which row comes first, second …, or None:
as they are, by increasing id.

>>> lengths = np.array([1, 1, 0, 1, 1]), np.array([0, 1, 1, 1, 1])
>>> entries = np.array([0, 1, 2, 2, 3, 4]), np.array([3, 4, 1, 2], np.int32)  # 0 – 3 – 1 – 4 – 2
>>> by_bandwidth(Block(*lengths, far=True, pattern=entries)).tolist()
[2, 4, 1, 3, 0]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gcnmpi.kernels.rows import bandwidth_order
from gcnmpi.mpi.comm import Comm, maximum

WINDOW = 512  # rows: what they gather stays as near as it was, for the caches
FAR = 1 / 5  # of the rows; in a random order half the arcs are longer than 0.29 of them
PAYS = 100  # products with M: in so many, an order by bandwidth saves what it takes


@dataclass(frozen=True)
class Block:
    """The entries of a rank's rows of M in its own columns.

    Attributes
    ----------
    row_lengths, column_lengths : (count,) integers
        Entries of each row, and of each column; of rows, those of the halo may be among them.
    far : bool
        Whether half the entries are far from the diagonal.
    products : float
        How many products with M, or with its transpose, there will be.
    symmetric : bool
        Whether an entry is there if its transpose is.
    pattern : pair of arrays, or None
        Where each row begins, (count + 1,) int64, and the columns of its entries, int32; those from
        ``count`` are not of the block. None: an order that looks at them is not to be found.
    """

    row_lengths: np.ndarray
    column_lengths: np.ndarray
    far: bool
    products: float = math.inf
    symmetric: bool = False
    pattern: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def count(self) -> int:
        """How many rows there are, and columns."""
        return len(self.row_lengths)


Order = Callable[[Block], np.ndarray | None]
"""Which row comes first, second …; None: as they are."""


def chosen_order(
    comm: Comm, order: Order, block: Block, entries: Callable[[], tuple[np.ndarray, np.ndarray]]
) -> np.ndarray | None:
    """The order of a rank's block, chosen by all ranks together.

    ``entries`` makes the ``pattern`` of the block, on all ranks if one of them needs it.
    """
    if maximum(comm, order is by_bandwidth or (order is by_need and _pays(block))):
        block = replace(block, pattern=entries())
    return order(block)


def _pays(block: Block) -> bool:
    """Whether to find an order by bandwidth takes less than it is expected to save."""
    # In a single window, lengths alone decide.
    return block.count > WINDOW and block.far and block.products >= PAYS


def by_id(block: Block) -> None:
    """Whatever order the graph has."""
    return


def by_degree(block: Block) -> np.ndarray:
    """Rows with most entries in row and column first: what is gathered most lies together."""
    return np.argsort(-(block.row_lengths + block.column_lengths), kind="stable")


def by_bandwidth(block: Block) -> np.ndarray | None:
    """Reverse Cuthill–McKee: breadth first, so that neighbours are near each other."""
    if not block.row_lengths.any():
        return None
    assert block.pattern is not None, "nobody said that entries are needed"
    return bandwidth_order(*block.pattern, block.count, block.symmetric)


def by_need(block: Block) -> np.ndarray:
    """By bandwidth where half the entries are far from the diagonal, then by length in windows.

    Elsewhere the order of the graph means something, and is seldom improved by much; in windows of
    a few rows it is: the loop over a row's few entries ends at the same point for many rows, as the
    CPU foresees. An order by bandwidth takes time, which a few products do not save: then it is the
    one by degree.
    """
    first, count = None, block.count
    if _pays(block):
        first = by_bandwidth(block)
    elif count > WINDOW and block.far:
        first = by_degree(block)
    if first is None:
        first = np.arange(count)
    # Of M first; where Mᵀ has other lengths, its rows cannot be in order too.
    lengths = (-of[first] for of in (block.column_lengths, block.row_lengths))
    return first[np.lexsort((*lengths, np.arange(count) // WINDOW))]
