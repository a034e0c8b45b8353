"""The objective of refinement, and how much of it a hypergraph gets: all that commands need.

The search itself imports Numba, which takes longer than most commands.
"""

from dataclasses import dataclass

import numpy as np

_SWEEPS = 40  # on a level, while cooling
_WORK = 120_000_000  # pins visited on a level: fewer sweeps over larger hypergraphs,
_LARGE = 5_000_000  # and fewer pins in all where there are more than these
_FEWEST = 2
TABLE_SHARE = 4  # a net of at least k / TABLE_SHARE pins has a table of its pins by part
WEIGHTS = ("total", "max_send", "max_recv", "messages")


@dataclass(frozen=True)
class Objective:
    """A sum that is to be small: of logarithms, each times one of the weights here.

    So the weights are relative: by default one per cent of the volume is worth two per cent of
    what the busiest part sends; in a mixed exchange five, as ``OBJECTIVES`` has it.

    Attributes
    ----------
    total : float
        Weight of the volume: Σ cost·(λ−1) over the nets.
    max_send, max_recv : float
        Weights of the largest volume that a part sends, and receives.
    messages : float
        Weight of the number of messages: pairs of parts of which one sends to the other.
    exchange : {"rows", "mixed"}
        What is sent: rows of H alone, or partial sums too, where that makes fewer rows.
    """

    total: float = 1.0
    max_send: float = 0.5
    max_recv: float = 0.0
    messages: float = 0.0
    exchange: str = "rows"

    def weights(self) -> tuple[float, ...]:
        """The weights in the order of ``WEIGHTS``."""
        return tuple(getattr(self, name) for name in WEIGHTS)

    def sum(self) -> float:
        """The sum of the weights."""
        return sum(self.weights())


# The objectives unless another one is asked for. The two ends of a pair share the rows of a
# mixed exchange, so that it is more even by itself.
OBJECTIVES = {"rows": Objective(), "mixed": Objective(max_send=0.2, exchange="mixed")}


def sweeps_for(pins: int) -> int:
    """How many there is time for on a level."""
    pins = max(1, pins)
    return min(_SWEEPS, max(_FEWEST, int(_WORK / pins * min(1.0, _LARGE / pins))))


def cells(sizes: np.ndarray, k: int) -> np.ndarray:
    """The counts of 4 bytes that are kept for nets of so many pins: (nets,) int64.

    A table with one number for each part, or as many pairs (part, pins) as there are pins.
    """
    return np.where(sizes * TABLE_SHARE >= k, k, 2 * sizes)
