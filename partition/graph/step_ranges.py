"""Ranges of the steps of samples: which of them train, validate and test."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence

import numpy as np

from partition.errors import UserError, unknown_name
from partition.graph.graph import MASKS

Ranges = Sequence[Sequence[int]]
"""The steps from start to stop, for each (start, stop) of them."""


def with_columns(array: np.ndarray) -> np.ndarray:
    """An array of steps; of two axes, the last one is that of the only column.

    >>> with_columns(np.zeros((5, 3))).shape
    (5, 3, 1)
    """
    return array[..., np.newaxis] if array.ndim == 2 else array


def shares_of_steps(steps: int, shares: Sequence[float]) -> dict[str, list[tuple[int, int]]]:
    """The first steps to train on, the next ones to validate on, the rest to test on.

    >>> shares_of_steps(10, (0.7, 0.1, 0.2))
    {'train': [(0, 7)], 'val': [(7, 8)], 'test': [(8, 10)]}
    """
    if len(shares) != len(MASKS) or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        raise UserError("--split takes three shares that add up to 1", "such as 0.7,0.1,0.2")
    borders = [round(steps * sum(shares[:i])) for i in range(len(MASKS) + 1)]
    borders[-1] = steps
    pairs = zip(MASKS, borders[:-1], borders[1:], strict=True)
    return {mask: [(a, b)] for mask, a, b in pairs if b > a}


def described_ranges(ranges: Mapping[str, Ranges]) -> dict[str, list[tuple[int, int]]]:
    """Ranges as pairs of whole numbers; a UserError if they are something else."""
    try:
        found = {
            mask: [(operator.index(a), operator.index(b)) for a, b in some]
            for mask, some in ranges.items()
        }
    except (TypeError, ValueError):
        raise UserError(
            f"ranges are lists of (start, stop), not {str(ranges)[:80]}",
            "such as train: [(0, 300)]",
        ) from None
    for mask in found:
        if mask not in MASKS:
            raise unknown_name("mask of ranges", mask, MASKS)
    return found


def check_ranges(ranges: Mapping[str, Ranges], steps: int) -> None:
    """A UserError unless ranges are within the steps, and no step is in two."""
    every = sorted((a, b, mask) for mask, some in ranges.items() for a, b in some)
    for start, stop, mask in every:
        if not 0 <= start < stop <= steps:
            raise UserError(
                f"the range {start}:{stop} of {mask} is not within the {steps} steps",
                "START:STOP are numbers of steps from 0, STOP not among them",
            )
    for (_, stop, mask), (start, _, other) in itertools.pairwise(every):
        if start < stop:
            where = f"twice in {mask}" if mask == other else f"in {mask} and in {other}"
            raise UserError(f"step {start} is {where}", "ranges of steps have none in common")
    if not ranges.get("train"):
        raise UserError("there is no step to train on", "such as --train 0:300")
