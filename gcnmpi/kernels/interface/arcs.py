"""Operations between rows of vertices and rows of entries of M, of which each arc has one.

A matrix of entries has a row for each entry of a pattern: those of row 0 first, in a row by the
global order of the columns, several entries of one row and column next to each other. ``heads``
numbers of an entry belong to as many equally wide groups of columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from gcnmpi.kernels.epilogues import EpilogueOf

A = TypeVar("A")
P = TypeVar("P")

LEAST_VARIANCE = 1e-5
"""Variances up to this have a deviation of 0 and no gradient, as in PyTorch Geometric."""


@dataclass(frozen=True)
class Taken(Generic[A, P]):
    """out[e] = epilogue(source[column of e] + target[row of e]); one of the two may be None.

    Attributes
    ----------
    source : (columns, width) array, or None
    target : (rows, width) array, or None
    out : (entries, width) array
    """

    pattern: P
    source: A | None
    target: A | None
    out: A
    epilogue: EpilogueOf[A] | None = None


@dataclass(frozen=True)
class Reduction(Generic[A, P]):
    """The entries of each row reduced by one or more functions, side by side.

    Attributes
    ----------
    kinds : tuple of str
        Of ``core.functions.REDUCTIONS``.
    x : (entries, width) array
    out : (rows, kinds · width) array
        The columns of the first kind, then those of the next.
    """

    pattern: P
    kinds: tuple[str, ...]
    x: A
    out: A


class ArcOperations(Protocol[A, P]):
    """Moves between vertices and entries, sums over entries, and products with their values.

    Sums are made in the order of the entries.
    """

    def cuts(self, starts: np.ndarray, entries: int) -> Sequence[tuple[int, int]]:
        """Rows, first to last, of slices of about so many entries; or all, if that is as good.

        Parameters
        ----------
        starts : (rows + 1,) integers
            Where the entries of each row begin.
        """

    def some_rows(self, pattern: P, rows: slice) -> P:
        """The pattern of some of its rows, for operations by rows; itself, if they are all."""

    def take(self, of: Taken[A, P]) -> None:
        """The rows of both ends of every entry, added."""

    def sum_sources(self, pattern: P, x: A, out: A) -> None:
        """out[j] = the sum of x[e] over the entries e of column j, (columns, width)."""

    def reduce_targets(self, of: Reduction[A, P]) -> None:
        """Reduce the entries of each row."""

    def reduce_targets_backward(self, of: Reduction[A, P], grad: A, dx: A) -> None:
        """dx[e], from the gradient of ``of.out``; of equals, the first attains a maximum."""

    def softmax_targets(self, pattern: P, x: A, out: A) -> None:
        """out = exp(x − shift) / Σ exp(x − shift) over the entries of a row, for each column.

        The shift is the maximum of these; out may be x.
        """

    def softmax_targets_backward(self, pattern: P, y: A, grad: A, out: A) -> None:
        """out = y·(grad − Σ y·grad over the entries of a row), with y the softmax."""

    def spmm_values(self, pattern: P, values: A, x: A, out: A) -> None:
        """out[i]ʰ = Σ values[e, h] · x[column of e]ʰ over the entries e of row i.

        Parameters
        ----------
        values : (entries, heads) array
        x : (columns, heads · c) array
        out : (rows, heads · c) array
        """

    def spmm_values_t(self, pattern: P, values: A, x: A, out: A) -> None:
        """The transpose: out[j]ʰ = Σ values[e, h] · x[row of e]ʰ over the entries of column j."""

    def sddmm(self, pattern: P, target: A, source: A, out: A) -> None:
        """out[e, h] = target[row of e]ʰ · source[column of e]ʰ, (entries, heads)."""

    def row_dots(self, x: A, y: A, out: A) -> None:
        """out[i, h] = x[i]ʰ · y[i]ʰ, (rows, heads)."""

    def scale_heads(self, values: A, x: A, out: A) -> None:
        """out[i]ʰ = values[i, h] · x[i]ʰ, with values (rows, heads); out may be x."""
