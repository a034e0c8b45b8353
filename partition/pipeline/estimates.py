"""Seconds of partitioning and of exchanges: the estimates that ``--model auto`` goes by."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from partition.errors import UserError
from partition.graph.metrics import Metrics
from partition.refinement.objective import sweeps_for
from partition.registry import Settings

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
class Facts:
    """The features of a graph, of k and of the first partition that decide what is tried.

    Attributes
    ----------
    pins : float
        Entries and rows of M.
    cut : float
        Rows that the first partition sends for each vertex: few where the graph has locality.
    directed : bool
        Whether the pattern of M is not symmetric.
    """

    pins: float
    k: int
    cut: float = 1.0
    directed: bool = False

    @property
    def bisections(self) -> float:
        """How often a part would have to be halved for k of them."""
        return math.log2(max(self.k, 2))

    @property
    def work(self) -> float:
        """Pins times bisections: what the time of a multilevel tool is proportional to."""
        return self.pins * self.bisections

    @property
    def spread(self) -> float:
        """Rows sent for each vertex and bisection: few where the graph has locality."""
        return self.cut / self.bisections

    @property
    def locality(self) -> float:
        """The share of that time for a graph that shrinks quickly when it is coarsened."""
        return min(1.0, max(0.17, (self.spread / 0.15) ** 2))

    @property
    def is_web(self) -> bool:
        """Arcs with a direction, and locality: web graphs, of which METIS sees too little."""
        return self.directed and self.spread < LOCAL

    @property
    def guided(self) -> float:
        """How much a better edge cut is worth, from 0 to 1."""
        return 0.2 if self.spread > SHAPELESS or self.is_web else 1.0


# Facts.spread: less where a graph has locality; less on roads and meshes, where partitions differ
# from seed to seed; more where hardly any start is better than another one, once it is refined.
LOCAL, SCATTERED, SHAPELESS = 0.1, 0.025, 0.5
MANY = 64  # parts, from which on the time of KaMinPar's thorough presets grows with k
# By how much refinement is expected to gain where it gets e times as long; the effort that it
# needs at least, and the share of the time; and the effort beyond which it gains nothing.
REFINING, FEWEST, KEPT, MOST = 0.03, 0.04, 0.4, 4.0


@dataclass(frozen=True)
class Candidate:
    """A way to partition, the seconds it takes, and what it is expected to gain.

    Seconds were measured on a core, and are meant to be too long rather than too short; gains are
    those of partitions that were refined, on the graphs of ``docs/partitioning.md``. So the same
    command tries the same wherever it runs.

    Attributes
    ----------
    seconds : callable
        From facts, as ``gain``.
    gain : callable
        By how much the best partition is expected to get better, as a fraction.
    tool : str, optional
        One of the model's tools; default: its first.
    seed : int
        Added to the seed asked for.
    """

    name: str
    model: str
    seconds: Callable[[Facts], float]
    gain: Callable[[Facts], float] = lambda facts: 1.0
    tool: str | None = None
    options: Settings = field(default_factory=dict)
    seed: int = 0


def _again(candidate: Candidate, seeds: Sequence[int]) -> list[Candidate]:
    """The same with other seeds, each of which is expected to gain less than the one before.

    On roads and meshes messages and the busiest part differ by a fifth from seed to seed.
    """

    def gain(i: int) -> Callable[[Facts], float]:
        return lambda facts: (0.04 if facts.spread < SCATTERED else 0.006) / i

    return [
        replace(candidate, name=f"{candidate.name}+{seed}", gain=gain(i), seed=seed)
        for i, seed in enumerate(seeds, 1)
    ]


_GP = Candidate(
    "gp", "gp", lambda facts: 0.3 + 0.3e-6 * facts.work * min(1.0, 0.3 + 1.4 * facts.spread)
)
_GP_VOL = Candidate(
    "gp-vol", "gp", lambda facts: 0.3 + 0.15e-6 * facts.pins * facts.k * facts.locality,
    lambda facts: 0.02 * facts.guided, options={"objective": "vol"},
)  # fmt: skip
_KAMINPAR = Candidate(
    "kaminpar", "gp",
    lambda facts: 0.3 + 0.6e-6 * facts.work * max(0.4, facts.locality)
    + 0.18e-6 * facts.pins * max(0, facts.k - MANY),
    lambda facts: 0.03 * facts.guided, "kaminpar", {"preset": "strong"},
)  # fmt: skip
_KAMINPAR_LARGEK = Candidate(
    "kaminpar-largek", "gp", lambda facts: 0.3 + 0.15e-6 * facts.work,
    lambda facts: 0.03 if facts.k > MANY else 0.0, "kaminpar", {"preset": "largek"},
)  # fmt: skip
# With one thread the default preset, too, makes the same parts again.
_HP = Candidate(
    "hp", "hp", lambda facts: 0.5 + 5e-6 * facts.work * facts.locality,
    lambda facts: 0.3 if facts.is_web else 0.05, options={"preset": "default", "threads": 1},
)  # fmt: skip
_HP_QUALITY = Candidate(
    "hp-quality", "hp", lambda facts: 0.5 + 14e-6 * facts.work * facts.locality,
    lambda facts: 0.02, options={"preset": "deterministic-quality"},
)  # fmt: skip
_MG = Candidate(
    "mg", "mg", lambda facts: 0.5 + 3e-6 * facts.work * facts.locality,
    lambda facts: 0.3 if facts.is_web else 0.01,
)  # fmt: skip
# The first one is always made, and shows the locality of the graph.
CANDIDATES = (
    _GP, _KAMINPAR, _KAMINPAR_LARGEK, _GP_VOL, _HP, _HP_QUALITY, _MG,
    *_again(_KAMINPAR, (1, 2, 3, 4)),
    *_again(_GP_VOL, (2, 3)),  # METIS takes 1 for 0
    *_again(_HP, (1, 2, 3, 4)),
)  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """Seconds of a refinement: some whatever its effort, and those of an effort of 1."""

    fixed: float
    full: float

    def seconds(self, effort: float) -> float:
        """The time of a refinement with that effort."""
        return self.fixed + self.full * effort

    def effort(self, seconds: float) -> float:
        """The effort that there is time for, at most 1."""
        return min(1.0, (seconds - self.fixed) / self.full)


def refinement_cost(facts: Facts, exchange: str) -> Cost:
    """The cost of a refinement for an exchange, whose rows the facts have.

    It makes fewer sweeps over large graphs, and they visit what is near the cut; for the mixed
    exchange it is slower, but only looks at so many entries.
    """
    sweeps = max(3, sweeps_for(int(facts.pins)))  # the fit is to three at least
    visits = sweeps * facts.work
    if exchange == "rows":
        return Cost(0.2 + 1e-6 * facts.pins, 0.16e-6 * visits * min(1.0, 0.1 + 1.6 * facts.spread))
    many, most = facts.bisections / 4, 45 + 6e-6 * facts.pins
    full = 0.34e-6 * visits * max(1.0, many) * min(1.0, 0.1 + 8 * facts.spread)
    return Cost(0.3 + 2.5e-6 * facts.pins, min(full, most * many))


def schedule(
    facts: Facts, seconds: float, costs: Sequence[Cost], among: Sequence[Candidate]
) -> list[Candidate]:
    """The candidates to try beside the first one, by expected gain per second, by facts alone.

    Time is as well spent on refinements, whose ``costs`` these are: a candidate is left out if it
    is expected to gain less than what refinement would lose of the ``seconds`` that are left.
    """
    full = sum(cost.full for cost in costs)
    fixed = sum(cost.fixed for cost in costs)
    left, least = seconds - fixed, max(FEWEST * full, KEPT * seconds - fixed)
    tried: list[Candidate] = []
    for candidate in sorted(among, key=lambda c: -c.gain(facts) / c.seconds(facts)):
        after = left - candidate.seconds(facts)
        if after < least:
            continue
        lost = REFINING * math.log(min(left, MOST * full) / min(after, MOST * full))
        if candidate.gain(facts) > lost:
            tried.append(candidate)
            left = after
    return tried


def check_network(network: Network) -> None:
    """A UserError unless α, β ≥ 0 and the width ≥ 1."""
    for name in ("alpha", "beta"):
        if not 0 <= getattr(network, name) < math.inf:
            raise UserError(f"{name} = {getattr(network, name)}: seconds are positive")
    if network.width < 1:
        raise UserError(f"width = {network.width}: a row has at least one column")
