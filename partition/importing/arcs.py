"""Arcs as keys that order them as CSR does: duplicates, self-loops and reverses."""

from __future__ import annotations

from typing import Any

import numpy as np

from partition.errors import UserError, check_name
from partition.importing.readers import Source

DUPLICATES = ("merge", "sum", "error")
SELF_LOOPS = ("keep", "drop")
# Beyond, source · n + target does not fit an int64.
MAX_VERTICES = 3_037_000_499


def check_rules(duplicates: str, self_loops: str) -> None:
    """A UserError for a rule that is not known."""
    check_name("rule for duplicates", duplicates, DUPLICATES)
    check_name("rule for self-loops", self_loops, SELF_LOOPS)


def keys_of(source: Source, drop_loops: bool) -> tuple[np.ndarray, np.ndarray | None, int]:
    """source · n + target of each arc, which orders arcs as CSR does; and how many are loops."""
    row, column = source.source, source.target
    if source.symmetric:  # edges in the lower triangle, so that i–j and j–i are duplicates
        row, column = np.maximum(row, column), np.minimum(row, column)
    key = np.multiply(row, source.n, dtype=np.int64)
    key += column
    loop = row == column
    nloops = int(np.count_nonzero(loop))
    weights = source.weights
    if drop_loops and nloops:
        key = key[~loop]
        weights = None if weights is None else weights[~loop]
    return key, weights, nloops


def facts_of(
    nread: int, symmetric: bool, undirected: bool, nloops: int, self_loops: str,
    ncopies: int, duplicates: str, differ: int,
) -> dict[str, Any]:  # fmt: skip
    """What the manifest says of the arcs that were read."""
    return {
        "arcs_read": nread,
        "symmetric_file": symmetric,
        "self_loops": {"found": nloops, "rule": self_loops},
        "duplicates": {"found": ncopies, "rule": duplicates}
        | ({"differ": differ} if differ else {}),
        "undirected": undirected,
    }


def settle_duplicates(
    key: np.ndarray, weights: np.ndarray | None, rule: str
) -> tuple[np.ndarray, np.ndarray | None, int, int, int | None]:
    """Sorted keys, each once, their weights, how many copies there were, and with other weights.

    Where copies are an error, the first key that has one comes last.
    """
    key, weights = _sorted(key, weights)
    first = _first_of_each(key)
    ncopies = len(key) - int(np.count_nonzero(first))
    if ncopies == 0:
        return key, weights, 0, 0, None
    if rule == "error":
        return key, weights, ncopies, 0, int(key[np.argmin(first)])
    start = np.flatnonzero(first)
    differ = 0
    if weights is not None:
        of_first = np.repeat(weights[start], np.diff(start, append=len(key)) - 1)
        differ = int(np.count_nonzero(weights[~first] != of_first))
    if rule == "sum" and weights is None:
        weights = np.diff(start, append=len(key)).astype(np.float64)
    elif weights is not None and rule == "sum":
        with np.errstate(over="ignore"):
            weights = np.add.reduceat(weights, start)
        if not np.isfinite(weights).all():
            raise UserError("the weights of duplicate arcs add up to more than a float64 holds")
    elif weights is not None:
        weights = weights[start]
    return key[start], weights, ncopies, differ, None


def listed_twice(copied: int, ncopies: int, n: int, ids: np.ndarray | None) -> UserError:
    """The refusal of a graph with duplicates, of which ``copied`` is the key of the first."""
    arc = np.array(divmod(copied, n))
    i, j = arc if ids is None else ids[arc]
    return UserError(
        f"the arc {i} -> {j} is listed more than once; there are {ncopies} such copies",
        "the rules merge and sum accept duplicates",
    )


def with_reverse(
    key: np.ndarray, weights: np.ndarray | None, n: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Keys and weights of arcs, followed by those of their reverses."""
    row, column = np.divmod(key, n)
    column *= n
    column += row
    del row
    return np.concatenate([key, column]), None if weights is None else np.tile(weights, 2)


def merge_reverse(
    both: np.ndarray, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Sorted keys out of arcs and their reverses; where both are there, the mean of the weights."""
    both, weights = _sorted(both, weights)
    first = _first_of_each(both)
    if weights is not None:
        # A key occurs at most twice (and a self-loop twice with one weight).
        start = np.flatnonzero(first)
        one, other = weights[start], weights[start + np.diff(start, append=len(both)) - 1]
        weights = np.where(one == other, one, one / 2 + other / 2)
    return both[first], weights


def _sorted(key: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
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
