"""Means and deviations of the columns of samples, which files of weights keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from partition.graph.samples import SampleSet

MEAN, DEVIATION = "samples.mean", "samples.deviation"  # in a file of weights


@dataclass(frozen=True)
class Scales:
    """Of each column of states and of targets, (columns,) float64, over the training steps."""

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, samples: SampleSet) -> Scales:
        """The scales of a set."""
        return cls(*samples.scales())

    @property
    def plain(self) -> Scales:
        """Scales that change nothing."""
        return Scales(np.zeros_like(self.mean), np.ones_like(self.deviation))


def scales_in(samples: SampleSet | None) -> dict[str, np.ndarray]:
    """The arrays of a file of weights that say them; none without samples."""
    if samples is None:
        return {}
    found = Scales.of(samples)
    return {MEAN: found.mean, DEVIATION: found.deviation}


def without_scales(
    state: Mapping[str, np.ndarray],
) -> tuple[Scales | None, Mapping[str, np.ndarray]]:
    """Scales and the other arrays of a file of weights."""
    if MEAN not in state or DEVIATION not in state:
        return None, state
    others = {name: array for name, array in state.items() if name not in (MEAN, DEVIATION)}
    return Scales(state[MEAN], state[DEVIATION]), others
