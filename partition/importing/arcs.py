"""Arcs as keys that order them as CSR does: duplicates, self-loops and reverses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from partition.errors import UserError, check_name
from partition.graph.graph import index_dtype
from partition.importing.readers.source import Source

DUPLICATES = ("merge", "sum", "keep", "error")
SELF_LOOPS = ("keep", "drop")
# Of arcs that become one, and of both directions of an edge, the one listed first gives its data.
DATA_RULE = "first"
# Beyond, source · n + target does not fit an int64.
MAX_VERTICES = 3_037_000_499


class Keys(NamedTuple):
    """Some arcs, as numbers that order them by source, then by target.

    Attributes
    ----------
    key : (m,) int64
        source · n + target.
    weights : (m,) float64, optional
    numbers : (m,) int64, optional
        Of each arc its number in the source, whose data it has.
    """

    key: np.ndarray
    weights: np.ndarray | None
    numbers: np.ndarray | None = None

    def of(self, chosen: np.ndarray) -> Keys:
        """Some of them, by their places or by a mask."""
        return Keys._make(column if column is None else column[chosen] for column in self)

    def weighted(self) -> Keys:
        """The same with weights: 1 where there are none."""
        return self if self.weights is not None else self._replace(weights=np.ones(len(self.key)))

    def equal(self, other: Keys) -> bool:
        """Whether the arcs are those of others with the same columns, in the same order."""
        pairs = zip(self, other, strict=True)
        return all(a is b or np.array_equal(a, b) for a, b in pairs)  # type: ignore[arg-type]

    def csr(self, n: int) -> dict[str, Any]:
        """Of sorted keys the arrays of a graph of n vertices: indptr, indices and weights."""
        return {
            "indptr": np.searchsorted(self.key, np.arange(n + 1) * n),
            "indices": (self.key % n).astype(index_dtype(n)),
            "weights": self.weights,
        }


@dataclass
class ArcRules:
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

    @property
    def parallel(self) -> bool:
        """Whether arcs that are listed more than once stay as many."""
        return self.duplicates == "keep"

    def valued(self, weighted: bool) -> bool:
        """Whether settled arcs have weights, if the source has: ones that stay so are none."""
        return weighted or (self.duplicates == "sum" and self.copies > 0)

    def set_sums_of(self, others: Sequence[ArcRules]) -> None:
        """Replace the counters by the sums over all ranks, each of which had other arcs."""
        self.loops, self.copies, self.differ = (
            sum(getattr(other, name) for other in others) for name in ("loops", "copies", "differ")
        )
        copied = [other._copied for other in others if other._copied is not None]
        self._copied = min(copied, default=None)

    def keys_of(self, source: Source, numbers: np.ndarray | None = None) -> Keys:
        """The keys of arcs, in their order, without the self-loops that are dropped.

        ``numbers`` are those that they have in the source, where they are needed.
        """
        row, column = source.source, source.target
        if source.symmetric:  # edges in the lower triangle, so that i–j and j–i are duplicates
            row, column = np.maximum(row, column), np.minimum(row, column)
        key = np.multiply(row, source.n, dtype=np.int64)
        key += column
        loop = row == column
        nloops = int(np.count_nonzero(loop))
        self.loops += nloops
        keys = Keys(key, source.weights, numbers)
        return keys.of(~loop) if self.self_loops == "drop" and nloops else keys

    def settle(self, keys: Keys) -> Keys:
        """The keys sorted, each once unless they are kept; the array of keys is overwritten.

        All copies of an arc are among them.
        """
        keys = _sorted(keys)
        first = _first_of_each(keys.key)
        ncopies = len(first) - int(np.count_nonzero(first))
        self.copies += ncopies
        if ncopies == 0:
            return keys
        if self.duplicates == "error":
            copied = int(keys.key[np.argmin(first)])
            self._copied = copied if self._copied is None else self._copied
            return keys
        start, weights = np.flatnonzero(first), keys.weights
        if weights is not None:
            of_first = np.repeat(weights[start], np.diff(start, append=len(first)) - 1)
            self.differ += int(np.count_nonzero(weights[~first] != of_first))
        if self.duplicates == "keep":
            return keys
        if self.duplicates == "merge":
            return keys.of(start)
        if weights is None:
            weights = np.diff(start, append=len(first)).astype(np.float64)
        else:
            with np.errstate(over="ignore"):
                weights = np.add.reduceat(weights, start)
            if not np.isfinite(weights).all():
                raise UserError("the weights of duplicate arcs add up to more than a float64 holds")
        return keys._replace(weights=None).of(start)._replace(weights=weights)

    def with_reverse(self, keys: Keys, n: int) -> Keys:
        """Settled arcs and after them their reverses."""
        return joined([keys, self.reverses(keys, n)])

    def reverses(self, keys: Keys, n: int) -> Keys:
        """The reverses of settled arcs, but of loops that are kept as many."""
        row, column = np.divmod(keys.key, n)
        back = keys._replace(key=column * n + row)
        return back.of(row != column) if self.parallel else back

    def merge_reverse(self, both: Keys) -> Keys:
        """Sorted keys out of arcs and their reverses, each once: with the mean of both weights.

        The data are of the one that is listed first. Arcs that are kept as many all stay, in the
        order of their numbers.
        """
        keys = _sorted(both)
        if self.parallel:
            return keys
        first = _first_of_each(keys.key)
        # A key occurs at most twice (and a self-loop twice with one weight).
        start = np.flatnonzero(first)
        end = start + np.diff(start, append=len(first)) - 1
        one, other = keys.of(start), keys.of(end)
        weights, numbers = one.weights, one.numbers
        if weights is not None:
            assert other.weights is not None
            weights = np.where(weights == other.weights, weights, weights / 2 + other.weights / 2)
        if numbers is not None:
            assert other.numbers is not None
            numbers = np.minimum(numbers, other.numbers)
        return Keys(one.key, weights, numbers)

    def check_copies(self, n: int, ids: np.ndarray | None) -> None:
        """Refuse a graph of n vertices with duplicates, where they are an error."""
        if self._copied is not None:
            arc = np.array(divmod(self._copied, n))
            i, j = arc if ids is None else ids[arc]
            raise UserError(
                f"the arc {i} -> {j} is listed more than once; there are {self.copies} such copies",
                "the rules merge, sum and keep accept duplicates",
            )

    def facts(self, nread: int, symmetric: bool, data: bool) -> dict[str, object]:
        """The account of the arcs that were read, for the manifest; ``data``: they have data."""
        differ = {"differ": self.differ} if self.differ else {}
        return {
            "arcs_read": nread,
            "symmetric_file": symmetric,
            "self_loops": {"found": self.loops, "rule": self.self_loops},
            "duplicates": {"found": self.copies, "rule": self.duplicates} | differ,
            "undirected": self.undirected,
        } | ({"arc_data": {"rule": DATA_RULE}} if data else {})


def check_number(n: int) -> None:
    """A UserError if keys of so many vertices do not fit an int64."""
    if n > MAX_VERTICES:
        raise UserError(f"{n} vertices are more than the {MAX_VERTICES} that are supported")


def joined(pieces: Sequence[Keys]) -> Keys:
    """All keys, in their order; weights are 1 where others have some."""
    if any(piece.weights is not None for piece in pieces):
        pieces = [piece.weighted() for piece in pieces]
    columns = zip(*pieces, strict=True)
    return Keys._make(None if each[0] is None else np.concatenate(each) for each in columns)


def _sorted(keys: Keys) -> Keys:
    """Sorted by key, copies of a key by their numbers, or as they come; may overwrite the keys."""
    if keys.weights is None and keys.numbers is None:
        keys.key.sort()
        return keys
    if keys.numbers is None or (keys.numbers[1:] > keys.numbers[:-1]).all():
        return keys.of(np.argsort(keys.key, kind="stable"))
    return keys.of(np.lexsort((keys.numbers, keys.key)))


def _first_of_each(key: np.ndarray) -> np.ndarray:
    first = np.ones(len(key), bool)
    np.not_equal(key[1:], key[:-1], out=first[1:])
    return first
