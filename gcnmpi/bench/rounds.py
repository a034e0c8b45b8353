"""Timing: each round measures all variants in turn; a time is a median with its quartiles.

Disturbances of a machine come and go in seconds. Contestants that take turns in every round are
disturbed alike, so ratios within a round mean more than times do.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from gcnmpi.mpi.comm import Comm, maximum

_LEAST_SECONDS = 0.02  # a timing shorter than this repeats its call


@dataclass(frozen=True)
class Spread:
    """The median of repeated measurements, and their lower and upper quartile."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """The median and the quartiles of measured values."""
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return Spread(median, low, high)


def alternate(
    measures: Mapping[str, Callable[[], float]], rounds: int, warm_up: int = 1
) -> dict[str, list[float]]:
    """Seconds of each measure, by name, in every round; every other round goes backwards.

    A measure returns seconds. The rounds of warm-up come before, and do not count.
    """
    times: dict[str, list[float]] = {name: [] for name in measures}
    order = list(measures)
    for number in range(-warm_up, rounds):
        for name in order:
            seconds = measures[name]()
            if number >= 0:
                times[name].append(seconds)
        order.reverse()
    return times


def ratios(times: Mapping[str, Sequence[float]], reference: str) -> dict[str, Spread]:
    """Seconds over those of the reference in the same round."""
    below = times[reference]
    return {
        name: spread([value / other for value, other in zip(values, below, strict=True)])
        for name, values in times.items()
    }


def median_seconds(call: Callable[[], object], repeats: int) -> float:
    """The median, so that disturbances which are always there (such as other ranks) count."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def only(names: Sequence[str], name: str) -> dict[str, float]:
    """Constants of which one is 1 and the others are 0."""
    return {**dict.fromkeys(names, 0.0), name: 1.0}


def fitted(
    names: Sequence[str], columns: np.ndarray, seconds: np.ndarray
) -> tuple[dict[str, float], float]:
    """Constants ≥ 0 for which ``columns`` @ constants is nearest to ``seconds``, and the error.

    Least squares of the relative errors; columns are (samples, names).
    """
    relative = columns / seconds[:, np.newaxis]
    scale = np.maximum(np.abs(relative).max(axis=0), np.finfo(float).tiny)
    found, error = nnls(relative / scale, np.ones(len(seconds)))
    return dict(zip(names, (found / scale).tolist(), strict=True)), error


def clocked(
    comm: Comm, call: Callable[[], object], least: float = _LEAST_SECONDS
) -> Callable[[], float]:
    """A measure: seconds of a call on the slowest rank, the mean over as many as take ``least``.

    The first measurement, which is to be warm-up, finds out how many those are.
    """
    count = 1

    def measure() -> float:
        nonlocal count
        comm.Barrier()
        began = time.perf_counter()
        for _ in range(count):
            call()
        each = maximum(comm, time.perf_counter() - began) / count
        count = max(1, math.ceil(least / each))
        return each

    return measure
