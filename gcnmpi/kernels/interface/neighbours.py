"""Operations on the neighbours of a vertex beside products: maximum and attention.

The operators are those of Hamilton et al. 2017 (max), Veličković et al. 2018 (attention) and Brody,
Alon and Yahav 2022 (attention of the second version).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import scipy.sparse as sp

A = TypeVar("A")
P = TypeVar("P")


FACTS = 4  # numbers for each row and head that compiled backward passes make


NARROW = 16  # columns of a single head: rows of so many are gathered about as fast as one number


MANY = 1 << 26  # entries: of so many, numbers that were kept are found no sooner than made again


def computes_again(heads: int, width: int, entries: int) -> bool:
    """Whether a compiled backward pass computes what it needs of an entry by columns and by rows.

    Elsewhere it keeps a number for each entry and head in between, and looks it up. The results
    have the same bits.
    """
    return heads == 1 and width <= NARROW and entries >= MANY


def scratch_rows(rows: int, entries: int, again: bool = False) -> int:
    """Rows of the scratch of attention, with a number for each head, for a kernel to need no more.

    They are the numbers that a backward pass finds out about each row and, unless it computes them
    again, one for each entry.
    """
    return FACTS * rows + (0 if again else entries)


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
    def rows(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def entries(self) -> int: ...

    @property
    def scratch_rows(self) -> int: ...


@dataclass(frozen=True)
class AttentionDropout(Generic[A]):
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

    rows: A
    columns: np.ndarray
    p: float


@dataclass(frozen=True)
class _Attention(Generic[A, P]):
    """Arguments of both versions.

    Attributes
    ----------
    x : (columns, heads · c) array
    slope : float
        Of leaky_relu below 0; not negative.
    drop : AttentionDropout, optional
    out : (rows, heads · c) array
        The result.
    shift, total : (rows, heads) arrays
        The largest e of a row, and Σ exp(e − shift): what the backward pass needs. 0 in rows
        without entries.
    """

    pattern: P
    x: A
    slope: float
    drop: AttentionDropout[A] | None
    out: A
    shift: A
    total: A


@dataclass(frozen=True)
class Attention(_Attention[A, P]):
    """out[i]ʰ = Σ α′ · x[j]ʰ, with e = leaky_relu(s[i, h] + t[j, h]).

    t is a (columns, heads) array, s a (rows, heads) one.
    """

    t: A
    s: A


@dataclass(frozen=True)
class AttentionV2(_Attention[A, P]):
    """out[i]ʰ = Σ α′ · x[j]ʰ, with e = vector[h] · leaky_relu(x[j]ʰ + target[i]ʰ).

    Attributes
    ----------
    target : (rows, heads · c) array
    vector : (heads · c,) array
    scratch : (pattern.scratch_rows, heads) array
        Overwritten. Forward, ``entries`` rows will do; backward, with these only, a kernel may keep
        memory of its own.
    """

    target: A
    vector: A
    scratch: A


@dataclass(frozen=True)
class AttentionBackward(Generic[A, P]):
    """Gradients of x, t and s from ``grad``, that of the result.

    ``scratch`` has :func:`scratch_rows` for a compiled kernel to need no more, with a number for
    each head.
    """

    forward: Attention[A, P]
    grad: A
    dx: A
    dt: A
    ds: A
    scratch: A


@dataclass(frozen=True)
class AttentionV2Backward(Generic[A, P]):
    """Gradients of x and target, both overwritten, and of the vector, which is added to."""

    forward: AttentionV2[A, P]
    grad: A
    dx: A
    dtarget: A
    dvector: A


class NeighbourOperations(Protocol[A, P]):
    """Maximum and attention over the neighbours of a row.

    ``pattern`` has (rows, columns); x (columns, heads · c) holds the heads next to each other.
    Attention weights are α = softmax over the entries of a row of e, for each head; scores are
    shifted by the maximum of their row. Rows without entries give 0.
    """

    def pattern(self, matrix: sp.csr_array, order: np.ndarray | None) -> P:
        """The kernel's own form of the pattern of a matrix; its values are not looked at.

        Parameters
        ----------
        order : (columns,) int64, or None
            Global numbers of the columns, all different, by which entries of a row are put in
            order; the maximum takes the lowest of equals. None: entries stay in their order.

        Raises
        ------
        ValueError
            If an index is out of range, or there are more than 2³¹ − 1 rows or columns.
        """

    # Maximum.

    def max_aggregate(self, pattern: P, x: A, out: A, arg: A) -> None:
        """out[i] = entry-wise maximum of x[j] over the entries j of row i; 0 without entries.

        Parameters
        ----------
        x : (columns, width) array
        out : (rows, width) array
        arg : (rows, width) int32
            The column that attains it, the first in the global order of equals; −1 without entries.
        """

    def max_aggregate_backward(self, pattern: P, grad: A, arg: A, out: A) -> None:
        """out[j, c] = sum of grad[i, c] over the rows i with arg[i, c] = j."""

    # Scores of vertices.

    def head_dots(self, x: A, vector: A, out: A) -> None:
        """out[j, h] = x[j]ʰ · vector[h].

        Parameters
        ----------
        x : (m, heads · c) array
        vector : (heads · c,) array
        out : (m, heads) array
        """

    def head_dots_backward(self, x: A, vector: A, dout: A, dx: A, dvector: A) -> None:
        """dx += dout[:, h] · vector[h], and dvector[h] += sum of dout[j, h] · x[j]ʰ."""

    # Attention.

    def attend(self, of: Attention[A, P]) -> None:
        """Attention of the first version."""

    def attend_backward(self, of: AttentionBackward[A, P]) -> None:
        """Gradients of the first version."""

    def attend_v2(self, of: AttentionV2[A, P]) -> None:
        """Attention of the second version."""

    def attend_v2_backward(self, of: AttentionV2Backward[A, P]) -> None:
        """Gradients of the second version."""
