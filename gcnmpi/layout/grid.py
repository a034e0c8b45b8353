"""Process grids: how many ranks along each axis, and who shares a line with whom.

Ranks are numbered with the last axis fastest: on a 2 × 3 grid, rank 4 is at (1, 1).
"""

from __future__ import annotations

import functools
import math

import numpy as np

from gcnmpi.layout.runtime import Runtime
from gcnmpi.mpi.collectives import Group
from partition.errors import UserError


def parse_grid(text: str, size: int, dimensions: int) -> tuple[int, ...]:
    """``scheme.grid`` as numbers: "4x2" is (4, 2); "auto" is the most cubic grid.

    Raises
    ------
    UserError
        If it is not that many numbers, or their product is not the number of ranks.
    """
    if text == "auto":
        return factorizations(size, dimensions)[0]
    example = "x".join(map(str, factorizations(size, dimensions)[0]))
    words = text.lower().split("x")
    if len(words) != dimensions or not all(word.isdecimal() and int(word) for word in words):
        raise UserError(
            f"scheme.grid = {text!r} is not {dimensions} numbers",
            f"such as {example!r} on {size} ranks",
        )
    grid = tuple(map(int, words))
    if math.prod(grid) != size:
        raise UserError(
            f"scheme.grid = {text!r} has {math.prod(grid)} places, and this run has {size} ranks",
            f"such as {example!r}",
        )
    return grid


def factorizations(size: int, dimensions: int) -> list[tuple[int, ...]]:
    """All grids of so many ranks, the most cubic one first.

    >>> factorizations(4, 2)
    [(2, 2), (1, 4), (4, 1)]
    """
    if dimensions == 1:
        return [(size,)]
    grids = [
        (first, *rest)
        for first in range(1, size + 1)
        if size % first == 0
        for rest in factorizations(size // first, dimensions - 1)
    ]
    return sorted(grids, key=lambda grid: (max(grid) / min(grid), grid))


@functools.cache
def coordinates(grid: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """A rank's place in the grid."""
    return tuple(int(place) for place in np.unravel_index(rank, grid))


def line(runtime: Runtime, grid: tuple[int, ...], axis: int) -> Group:
    """The ranks that differ from this one along one axis only, numbered by their place on it."""
    place = coordinates(grid, runtime.comm.rank)
    others = (*place[:axis], 0, *place[axis + 1 :])
    colour = int(np.ravel_multi_index(others, grid))
    comm = runtime.comm.Split(colour, place[axis])
    return Group(comm, runtime.kernel, runtime.traffic, runtime.phases)  # type: ignore[arg-type]
