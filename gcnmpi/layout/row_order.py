"""In which order a rank keeps its rows.

A product with M gathers, for each entry of a row, a row of the other matrix: from a cache if that
row, or one beside it, was gathered shortly before. So rows are best kept near those that they are
connected to. Results depend on it only in the order of additions: dropout, weights and
files go by the ids of vertices, wherever their rows are.

An order is a function of the own block of M, ``(row, column, count)``: the local numbers of its
entries, and how many rows there are. It returns which row comes first, second …, or None: as they
are, by increasing id.

>>> path = np.array([0, 1, 3, 4]), np.array([3, 4, 1, 2])  # 0 – 3 – 1 – 4 – 2
>>> by_bandwidth(*path, 5).tolist()
[2, 4, 1, 3, 0]
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

WINDOW = 512  # rows: what they gather stays as near as it was, for the caches
FAR = 1 / 5  # of the rows; in a random order half the arcs are longer than 0.29 of them


def by_id(row: np.ndarray, column: np.ndarray, count: int) -> None:
    """Whatever order the graph has."""
    return


def by_degree(row: np.ndarray, column: np.ndarray, count: int) -> np.ndarray:
    """Rows with most entries in row and column first: what is gathered most lies together."""
    degree = np.bincount(row, minlength=count) + np.bincount(column, minlength=count)
    return np.argsort(-degree, kind="stable")


def by_bandwidth(row: np.ndarray, column: np.ndarray, count: int) -> np.ndarray | None:
    """Reverse Cuthill–McKee: breadth first, so that neighbours are near each other."""
    if not len(row):
        return None
    # Here, because it takes half a second to import on every rank, and most orders do without.
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    entries = (np.ones(len(row), bool), (row, column))
    pattern = sp.coo_array(entries, shape=(count, count)).tocsr()
    pattern = pattern + pattern.T
    # SciPy sorts the neighbours of each row by insertion: quadratic in those of a hub, unless they
    # are in the order of their degrees, which are its numbers of entries, the diagonal twice.
    degrees = np.diff(pattern.indptr) + (pattern.diagonal() != 0)
    first = np.argsort(degrees, kind="stable")
    pattern = pattern[first][:, first]
    pattern.sort_indices()
    return first[reverse_cuthill_mckee(sp.csr_matrix(pattern), symmetric_mode=True)]


def by_need(row: np.ndarray, column: np.ndarray, count: int) -> np.ndarray:
    """By bandwidth where half the entries are far from the diagonal, then by length in windows.

    Elsewhere the order of the graph means something, and is seldom improved by much; in windows of
    a few rows it is: the loop over a row's few entries ends at the same point for many rows, as the
    CPU foresees.
    """
    first = None
    # In a single window, lengths alone decide.
    if count > WINDOW and len(row) and np.median(np.abs(row - column)) >= FAR * count:
        first = by_bandwidth(row, column, count)
    if first is None:
        first = np.arange(count)
    # Of M first; where Mᵀ has other lengths, its rows cannot be in order too.
    lengths = (-np.bincount(of, minlength=count)[first] for of in (column, row))
    return first[np.lexsort((*lengths, np.arange(count) // WINDOW))]
