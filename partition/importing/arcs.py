"""Arcs as keys that order them as CSR does: duplicates, self-loops and reverses."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from partition.errors import UserError, check_name
from partition.importing.readers import Source

DUPLICATES = ("merge", "sum", "error")
SELF_LOOPS = ("keep", "drop")
# Beyond, source · n + target does not fit an int64.
MAX_VERTICES = 3_037_000_499
# source · n + target of some arcs, and their weights.
Keys = tuple[np.ndarray, np.ndarray | None]


@dataclass
class Settling:
    """The rules by which arcs become those of a graph, and counts of the cases met so far.

    Self-loops are settled first, then duplicates, then the graph is made undirected. See
    :func:`partition.importing.assemble.build_graph`.

    Attributes
    ----------
    undirected : bool
    duplicates, self_loops : str
        Of ``DUPLICATES`` and ``SELF_LOOPS``; a UserError for another rule.
    loops, copies, differ : int
        Self-loops; copies of arcs beyond the first; those with another weight than the first.
    """

    undirected: bool = False
    duplicates: str = "merge"
    self_loops: str = "keep"
    loops: int = field(default=0, init=False)
    copies: int = field(default=0, init=False)
    differ: int = field(default=0, init=False)
    _copied: int | None = field(default=None, init=False)  # the first key that is an error

    def __post_init__(self) -> None:
        check_name("rule for duplicates", self.duplicates, DUPLICATES)
        check_name("rule for self-loops", self.self_loops, SELF_LOOPS)

    def keys_of(self, source: Source) -> Keys:
        """The keys of arcs, in their order, without the self-loops that are dropped."""
        row, column = source.source, source.target
        if source.symmetric:  # edges in the lower triangle, so that i–j and j–i are duplicates
            row, column = np.maximum(row, column), np.minimum(row, column)
        key = np.multiply(row, source.n, dtype=np.int64)
        key += column
        loop = row == column
        nloops = int(np.count_nonzero(loop))
        self.loops += nloops
        weights = source.weights
        if self.self_loops == "drop" and nloops:
            key = key[~loop]
            weights = None if weights is None else weights[~loop]
        return key, weights

    def settle(self, key: np.ndarray, weights: np.ndarray | None) -> Keys:
        """The keys sorted, each once; ``key`` is overwritten. All copies of an arc are in it."""
        key, weights = _sorted(key, weights)
        first = _first_of_each(key)
        ncopies = len(key) - int(np.count_nonzero(first))
        self.copies += ncopies
        if ncopies == 0:
            return key, weights
        if self.duplicates == "error":
            self._copied = int(key[np.argmin(first)]) if self._copied is None else self._copied
            return key, weights
        start = np.flatnonzero(first)
        if weights is not None:
            of_first = np.repeat(weights[start], np.diff(start, append=len(key)) - 1)
            self.differ += int(np.count_nonzero(weights[~first] != of_first))
        if self.duplicates == "merge":
            weights = None if weights is None else weights[start]
        elif weights is None:
            weights = np.diff(start, append=len(key)).astype(np.float64)
        else:
            with np.errstate(over="ignore"):
                weights = np.add.reduceat(weights, start)
            if not np.isfinite(weights).all():
                raise UserError("the weights of duplicate arcs add up to more than a float64 holds")
        return key[start], weights

    def check_copies(self, n: int, ids: np.ndarray | None) -> None:
        """Refuse a graph of n vertices with duplicates, where they are an error."""
        if self._copied is not None:
            arc = np.array(divmod(self._copied, n))
            i, j = arc if ids is None else ids[arc]
            raise UserError(
                f"the arc {i} -> {j} is listed more than once; there are {self.copies} such copies",
                "the rules merge and sum accept duplicates",
            )

    def facts(self, nread: int, symmetric: bool) -> dict[str, object]:
        """The account of the arcs that were read, for the manifest."""
        differ = {"differ": self.differ} if self.differ else {}
        return {
            "arcs_read": nread,
            "symmetric_file": symmetric,
            "self_loops": {"found": self.loops, "rule": self.self_loops},
            "duplicates": {"found": self.copies, "rule": self.duplicates} | differ,
            "undirected": self.undirected,
        }


def check_number(n: int) -> None:
    """A UserError if keys of so many vertices do not fit an int64."""
    if n > MAX_VERTICES:
        raise UserError(f"{n} vertices are more than the {MAX_VERTICES} that are supported")


def with_reverse(key: np.ndarray, weights: np.ndarray | None, n: int) -> Keys:
    """Keys and weights of arcs, followed by those of their reverses."""
    row, column = np.divmod(key, n)
    column *= n
    column += row
    del row
    return np.concatenate([key, column]), None if weights is None else np.tile(weights, 2)


def merge_reverse(both: np.ndarray, weights: np.ndarray | None) -> Keys:
    """Sorted keys out of arcs and their reverses; where both are there, the mean of the weights."""
    both, weights = _sorted(both, weights)
    first = _first_of_each(both)
    if weights is not None:
        # A key occurs at most twice (and a self-loop twice with one weight).
        start = np.flatnonzero(first)
        one, other = weights[start], weights[start + np.diff(start, append=len(both)) - 1]
        weights = np.where(one == other, one, one / 2 + other / 2)
    return both[first], weights


def _sorted(key: np.ndarray, weights: np.ndarray | None) -> Keys:
    """Sorted by key, copies of a key in their old order; ``key`` itself is overwritten."""
    if weights is None:
        key.sort()
        return key, None
    order = np.argsort(key, kind="stable")
    return key[order], weights[order]


def _first_of_each(key: np.ndarray) -> np.ndarray:
    first = np.ones(len(key), bool)
    np.not_equal(key[1:], key[:-1], out=first[1:])
    return first
