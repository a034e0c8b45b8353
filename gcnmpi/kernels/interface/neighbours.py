"""What goes through the neighbours of a vertex beside a product: maximum and attention.

The operators are those of Hamilton et al. 2017 (max), Veličković et al. 2018 (attention) and Brody,
Alon and Yahav 2022 (attention of the second version).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import scipy.sparse as sp

A_in = TypeVar("A_in", contravariant=True)
P = TypeVar("P")


FACTS = 4  # numbers for each row and head that compiled backward passes make


def scratch_rows(rows: int, entries: int) -> int:
    """Rows of the scratch of attention, with a number for each head, for a kernel to need no more.

    One for each entry, and what a backward pass finds out about each row.
    """
    return entries + FACTS * rows


class Pattern(Protocol):
    """Which columns a row has, in a kernel's own form.

    Attributes
    ----------
    rows, columns, entries : int
    scratch_rows : int
        See :func:`scratch_rows`.
    nbytes : int
        Bytes of its arrays.
    """

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def columns(self) -> int:
        """Number of columns."""

    @property
    def entries(self) -> int:
        """Number of entries."""

    @property
    def scratch_rows(self) -> int:
        """See :func:`scratch_rows`."""

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""


@dataclass(frozen=True)
class AttentionDropout:
    """Dropout of attention: α′ = α / (1 − p) where the hash keeps it, 0 elsewhere.

    Attributes
    ----------
    rows : (rows,) uint64
        Keys of the target vertices, from ``row_keys`` of the kernel.
    columns : (columns · heads,) uint32
        Keys of the numbers j · heads + h, with j the global vertex of a column.
    p : float
        Probability of being dropped.
    """

    rows: Any
    columns: np.ndarray
    p: float


class NeighbourOperations(Protocol[A_in, P]):
    """Maximum and attention over the neighbours of a row.

    ``pattern`` has (rows, columns); x (columns, heads · c) holds the heads next to each other.
    Attention weights are α = softmax over the entries of a row of e, for each head; scores are
    shifted by the maximum of their row. Rows without entries give 0.
    """

    def pattern(self, matrix: sp.csr_array, order: np.ndarray) -> P:
        """The kernel's own form of the pattern of a matrix; its values are not looked at.

        Parameters
        ----------
        order : (columns,) int64
            Global numbers of the columns, all different: the maximum takes the lowest of equals.

        Raises
        ------
        ValueError
            If an index is out of range, or there are more than 2³¹ − 1 rows or columns.
        """

    # Maximum.

    def max_aggregate(self, pattern: P, x: A_in, out: A_in, arg: A_in) -> None:
        """out[i] = entry-wise maximum of x[j] over the entries j of row i; 0 without entries.

        Parameters
        ----------
        x : (columns, width) array
        out : (rows, width) array
        arg : (rows, width) int32
            The column that attains it, the first in the global order of equals; −1 without entries.
        """

    def max_aggregate_backward(self, pattern: P, grad: A_in, arg: A_in, out: A_in) -> None:
        """out[j, c] = sum of grad[i, c] over the rows i with arg[i, c] = j."""

    # Scores of vertices.

    def head_dots(self, x: A_in, vector: A_in, out: A_in) -> None:
        """out[j, h] = x[j]ʰ · vector[h].

        Parameters
        ----------
        x : (m, heads · c) array
        vector : (heads · c,) array
        out : (m, heads) array
        """

    def head_dots_backward(
        self,
        x: A_in,
        vector: A_in,
        dout: A_in,
        dx: A_in,
        dvector: A_in,
        accumulate: bool,
    ) -> None:
        """dx = dout[:, h] · vector[h], or dx += that; dvector[h] += sum of dout[j, h] · x[j]ʰ."""

    # Attention.

    def attend(
        self,
        pattern: P,
        x: A_in,
        t: A_in,
        s: A_in,
        slope: float,
        drop: AttentionDropout | None,
        out: A_in,
        shift: A_in,
        total: A_in,
    ) -> None:
        """out[i]ʰ = Σ α′ · x[j]ʰ, with e = leaky_relu(s[i, h] + t[j, h]).

        Parameters
        ----------
        x : (columns, heads · c) array
        t : (columns, heads) array
        s : (rows, heads) array
        slope : float
            Of leaky_relu below 0; not negative.
        drop : AttentionDropout, optional
        out : (rows, heads · c) array
        shift, total : (rows, heads) arrays
            The largest e of a row, and Σ exp(e − shift): what the backward pass needs. 0 in rows
            without entries.
        """

    def attend_backward(
        self,
        pattern: P,
        x: A_in,
        t: A_in,
        s: A_in,
        slope: float,
        drop: AttentionDropout | None,
        shift: A_in,
        total: A_in,
        y: A_in,
        grad: A_in,
        dx: A_in,
        dt: A_in,
        ds: A_in,
        scratch: A_in,
    ) -> None:
        """Gradients of x, t and s from ``grad``, that of the result y of :meth:`attend`.

        Parameters
        ----------
        y, grad : (rows, heads · c) arrays
        dx, dt, ds : arrays like x, t and s
            Overwritten.
        scratch : (pattern.scratch_rows, heads) array
            Overwritten. With ``entries`` rows only, a kernel may keep memory of its own.
        """

    def attend_v2(
        self,
        pattern: P,
        x1: A_in,
        x2: A_in,
        vector: A_in,
        slope: float,
        drop: AttentionDropout | None,
        out: A_in,
        shift: A_in,
        total: A_in,
        scratch: A_in,
    ) -> None:
        """out[i]ʰ = Σ α′ · x1[j]ʰ, with e = vector[h] · leaky_relu(x1[j]ʰ + x2[i]ʰ).

        Parameters
        ----------
        x1 : (columns, heads · c) array
        x2 : (rows, heads · c) array
        vector : (heads · c,) array
        scratch : (entries, heads) array
            Overwritten; it may have more rows.
        others
            As for :meth:`attend`.
        """

    def attend_v2_backward(
        self,
        pattern: P,
        x1: A_in,
        x2: A_in,
        vector: A_in,
        slope: float,
        drop: AttentionDropout | None,
        shift: A_in,
        total: A_in,
        y: A_in,
        grad: A_in,
        dx1: A_in,
        dx2: A_in,
        dvector: A_in,
        scratch: A_in,
    ) -> None:
        """Gradients of x1, x2 (both overwritten) and vector (added to) of :meth:`attend_v2`.

        ``scratch`` is as for :meth:`attend_backward`.
        """
