"""Seconds of partitioning and of exchanges: the estimates that ``--model auto`` goes by."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from partition.errors import UserError
from partition.graph.metrics import Metrics
from partition.refinement.objective import sweeps_for
from partition.registry import Settings

MIXED_SLOWER = 3.0  # than the refinement for rows, which moves vertices in fewer rounds
ENTRY, NUMBER = 2e-9, 2e-10  # seconds of a core of an ordinary server


@dataclass(frozen=True)
class Network:
    """The cost of a message: α seconds and β seconds a byte, for float32 rows of ``width``.

    The defaults are those of a good cluster network: half a microsecond, which is what it takes to
    hand over one of many messages that travel at the same time, and 10 GB/s. An entry of M takes
    ``ENTRY`` seconds, and ``NUMBER`` more a column.
    """

    alpha: float = 5e-7
    beta: float = 1e-10
    width: int = 64

    def seconds(self, metrics: Metrics) -> float:
        """Predicted time of an expand: α·messages + β·bytes of the rank that sends longest."""
        messages = np.asarray(metrics.send_messages, np.float64)
        sent = np.asarray(metrics.send_rows, np.float64) * (4 * self.width)
        return float((self.alpha * messages + self.beta * sent).max())

    def bytes_seconds(self, rows: int) -> float:
        """The seconds of so many rows, messages aside."""
        return self.beta * 4 * self.width * rows

    def mixed_seconds(self, rows: Metrics, mixed: Metrics) -> float:
        """The same of a mixed exchange, and of what the busiest part multiplies more for it."""
        more = max(0, max(mixed.work) - max(rows.work))
        return self.seconds(mixed) + more * (ENTRY + self.width * NUMBER)


@dataclass(frozen=True)
class Candidate:
    """A way to partition, and the seconds it takes as a function of the pins and of k.

    The estimates were measured on two cores; they decide what is tried, so that the same command
    tries the same wherever it runs.
    """

    name: str
    model: str
    seconds: Callable[[float, int], float]
    options: Settings = field(default_factory=dict)
    seed: int = 0  # added to the seed asked for
    exchange: str = "rows"  # that it is refined for


def _vol_seconds(pins: float, k: int) -> float:
    return 0.5 + 0.3e-6 * pins * k


def _mg_seconds(pins: float, k: int) -> float:
    """The tool, and the short refinement after it."""
    return 0.5 + 6e-6 * pins * math.log2(k) + 0.1 * mixed_seconds(pins, k)


CANDIDATES = (
    Candidate("gp", "gp", lambda pins, k: 0.5 + 0.6e-6 * pins * math.log2(k)),
    Candidate("gp-mixed", "gp", lambda pins, k: 0.0, exchange="mixed"),  # the parts of the first
    Candidate("gp-vol", "gp", _vol_seconds, {"objective": "vol"}),
    # On roads and meshes the busiest part of METIS differs by a fifth from seed to seed. Elsewhere
    # other tools are a better use of the time: so these seem to take longer than they do.
    *(
        Candidate(f"gp-vol+{i}", "gp", lambda p, k: 3 * _vol_seconds(p, k), {"objective": "vol"}, i)
        for i in (3, 2)
    ),
    Candidate("hp", "hp", lambda pins, k: 0.5 + 3e-6 * pins * math.log2(k)),
    Candidate(
        "hp-deterministic", "hp", lambda pins, k: 0.5 + 17e-6 * pins * math.log2(k),
        {"preset": "deterministic"},
    ),
    Candidate("mg", "mg", _mg_seconds, exchange="mixed"),
)  # fmt: skip


def refine_seconds(pins: float, k: int, cut: float = 1.0) -> float:
    """Seconds that a refinement of effort 1 takes.

    It makes fewer sweeps over large graphs, and they visit what is near the cut.
    """
    sweeps = max(3, sweeps_for(int(pins)))  # the fit is to three at least
    return 0.29e-6 * sweeps * pins * math.log2(k) * min(1.0, 0.05 + 3 * cut)


def mixed_seconds(pins: float, k: int, cut: float = 1.0) -> float:
    """The same for the mixed exchange: slower, but it only looks at so many entries."""
    most = (75 + 12e-6 * pins) * math.log2(k) / 4
    return min(MIXED_SLOWER * refine_seconds(pins, k, cut), most)


def locality(cut: float) -> float:
    """The share of the time for graphs without locality, for one with ``cut`` rows a vertex."""
    return min(1.0, 0.25 + cut)


def affordable(
    pins: float, k: int, budget: float, cut: float, among: Sequence[Candidate] = CANDIDATES[1:]
) -> list[Candidate]:
    """The candidates to try beside the first one, the cheapest first, by sizes alone.

    ``budget`` is in seconds, for tools; ``cut`` is the volume of the first candidate's partition
    per vertex: on graphs with locality, all tools are faster.
    """
    seconds = {c.name: c.seconds(pins, k) * locality(cut) for c in among}
    tried: list[Candidate] = []
    budget = max(0.0, budget)  # what takes no time is always tried
    for candidate in sorted(among, key=lambda c: seconds[c.name]):
        budget -= seconds[candidate.name]
        if budget < 0:
            break
        tried.append(candidate)
    return tried


def check_network(network: Network) -> None:
    """A UserError unless α, β ≥ 0 and the width ≥ 1."""
    for name in ("alpha", "beta"):
        if not 0 <= getattr(network, name) < math.inf:
            raise UserError(f"{name} = {getattr(network, name)}: seconds are positive")
    if network.width < 1:
        raise UserError(f"width = {network.width}: a row has at least one column")
