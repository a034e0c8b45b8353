"""Covering arrays: lists of cases in which every two values of two axes meet.

A grid of all combinations grows with the product of its axes, and a fault shows itself with one
value or with two of them: a covering array has each pair once. Where GCNMPI_TESTS is "all", as in
scripts/nightly.sh, the lists have every combination.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import combinations, product

ALL = os.environ.get("GCNMPI_TESTS") == "all"
TRIED = 40  # cases among which the next one is chosen


def covering(
    *axes: Sequence, allowed: Callable[..., bool] = lambda *case: True, seed: int = 1
) -> list[tuple]:
    """Allowed cases, one value of each axis, that together have every pair which is allowed."""
    places = [range(len(axis)) for axis in axes]
    valued = (
        (case, tuple(axis[i] for axis, i in zip(axes, case, strict=True)))
        for case in product(*places)
    )
    every = {case: values for case, values in valued if allowed(*values)}
    if ALL or len(axes) < 3:
        return list(every.values())
    having = defaultdict(list)  # pair → cases
    for case in every:
        for pair in combinations(enumerate(case), 2):
            having[pair].append(case)
    drawn, missing, chosen = random.Random(seed), dict.fromkeys(having), []
    while missing:
        among = having[next(iter(missing))]
        among = drawn.sample(among, min(TRIED, len(among)))
        pairs = {case: list(combinations(enumerate(case), 2)) for case in among}
        best = max(among, key=lambda case: sum(pair in missing for pair in pairs[case]))
        for pair in pairs[best]:
            missing.pop(pair, None)
        chosen.append(best)
    return [every[case] for case in sorted(chosen)]
