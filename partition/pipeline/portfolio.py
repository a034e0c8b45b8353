"""The portfolio: several cheap candidates, refined; the best of them for each exchange is kept."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from partition.backends import TOOLS
from partition.backends.catalogue import AUTO, MODELS, all_options
from partition.backends.process import TimeIsUp
from partition.deadline import Deadline, at_once
from partition.errors import UserError, check_name, require
from partition.graph import store
from partition.graph.metrics import Metrics, measure, measure_mixed
from partition.graph.store import EXCHANGES, Partition, StoredGraph, pair_names
from partition.pipeline import adding, balance
from partition.pipeline.balance import Recipe
from partition.refinement.objective import Objective, sweeps_for
from partition.registry import Settings

_ENTRY, _NUMBER = 2e-9, 2e-10  # seconds of a core of an ordinary server
# Seconds by default, of small graphs and of large ones, and of an arc between them.
SHORTEST, LONGEST, _OF_AN_ARC = 24.0, 120.0, 40e-6
AIMS = (AUTO, *EXCHANGES)  # the exchanges that partitions may be for; auto: both
_MARGIN = 0.85  # of the time is planned with
_GAINS = 0.95  # of the rows of the first candidate: mixed, it takes less, or no tool tries to
# Seconds of an exchange: where rows travel for less, mixed ones would gain nothing that is noticed.
_SHORT = 5e-6
_TOOLS_END = 0.6  # of the time limit, after which no tool but the first one runs
# A refinement of this effort shows what can be made of a start; less is not worth it,
_QUICK = {"rows": 0.2, "mixed": 0.1}
_LEAST = 0.15  # of it where time is short,
_COMPARED = 0.5  # and so much of the time of an exchange goes into comparing its best starts,
_WIDTH = 3  # so many of them at most, before the best is refined further
_STALLED = 0.002  # of the objective: if a refinement gains less, another one would too
_ROUNDS = 3  # of refinement of one start, at most
_MEANINGLESS = 0.02  # effort that is not spent on a slow machine either
_UNEVEN = 1e-3  # by which parts may be heavier than what was asked for
_AS_FAST = 1.05  # times the shortest predicted exchange: predictions are no better than that
_SLOW = 2.0  # times the estimates: another machine, not another graph


def usual_limit(arcs: int) -> float:
    """The time limit of a graph for which none is given, in seconds.

    >>> usual_limit(12_000), usual_limit(1_000_000), usual_limit(10**9)
    (24.0, 40.0, 120.0)
    """
    return min(LONGEST, max(SHORTEST, _OF_AN_ARC * arcs))


def add_best(
    path: str | os.PathLike[str], k: int, *, time_limit: float | None = None,
    network: Network | None = None, exchange: str = "auto", objective: Objective | None = None,
    name: str | None = None, overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None, **asked: object,
) -> list[Partition]:  # fmt: skip
    """Try the candidates that fit ``time_limit``, refine them, and store the best of each exchange.

    The best is the one whose exchange is predicted to be shortest; of equals, the one with the
    least volume.
    What fits is decided by estimates from the size of the graph and k, so the same command gives
    the same partitions. The clock stops tools, lowers the effort of refinements on a machine that
    is too slow for the estimates, and ends those that take longer than expected; the partitions
    then are not recorded as deterministic.

    Parameters
    ----------
    time_limit : float, optional
        Seconds, about; default: :func:`usual_limit`.
    network : Network, optional
        What messages and bytes cost.
    exchange : {"auto", "rows", "mixed"}
        The exchange that a partition is for; "auto": one for each, ``NAME-rows`` and ``NAME-mixed``
        (:mod:`partition.graph.store`), but the first alone where the mixed exchange gains nothing.
    objective : Objective, optional
        Objective of the refinement, whatever the exchange.
    name : str, optional
        Default: ``auto-K``, with the exchange behind it.
    report : callable
        Told what is being done.
    asked
        Fields of :class:`~partition.pipeline.balance.Recipe`.

    Returns
    -------
    list of Partition
        One or two, that for rows first. The ``history`` has a row per candidate, with
        ``predicted`` seconds, ``chosen``, and a ``note`` for those that were not tried, failed, or
        were cut short.

    Raises
    ------
    UserError
        For a bad argument; if the graph cannot be partitioned by any candidate.

    Warns
    -----
    PartitionWarning
        If the balance asked for was not reached.
    """
    stored = store.open_graph(path)
    limit = usual_limit(stored.manifest.nnz) if time_limit is None else time_limit
    graph, recipe = stored.merged, balance.recipe_of(stored, asked)
    if asked:
        raise TypeError(f"add_best() has no {', '.join(asked)}")
    network, objective = network or Network(), objective or Objective()
    recipe.check(stored, k)
    network.check()
    check_name("exchange", exchange, AIMS)
    balance.constraint_weights(graph, recipe.direction, recipe.constraints)
    aims = EXCHANGES if exchange == AUTO else (exchange,)
    deadline = adding.deadline_with_refinement(limit, aims, paced=False)
    pair = name or f"{AUTO}-{k}{recipe.ending}"
    names = pair_names(pair) if exchange == AUTO else {exchange: name or pair_names(pair)[exchange]}
    reserved = [*names.values()]
    if exchange == AUTO and store.has_partition(stored.path, pair):  # it would hide the pair
        reserved.insert(0, pair)
    with adding.new_partition(stored.path, reserved, "gcn-partition add", overwrite):
        begun = time.perf_counter()
        searching = deadline.part(1 - adding.measuring_share(stored.manifest, limit))
        run = _Run(stored, k, recipe, searching, objective, network, tuple(names), report)
        trials = run.all()
        if not any(trial.figures for trial in trials):
            raise trials[0].error or UserError("no candidate could be tried")
        made: list[Partition] = []
        for aim, best in run.best(trials).items():
            assert best.parts is not None
            of, parts = best.candidate, adding.mapped(graph, best.parts, k, recipe)
            tool = of.tool or MODELS[of.model].tools[0]
            options = all_options(graph, of.model, tool, TOOLS.get(tool), of.options)
            refine = asdict(run.aimed(best.aim)) | {"effort": best.effort} if best.effort else None
            record = {"candidate": best.name, **options, "refine": refine}
            record |= {"network": asdict(network), "exchange": aim, "time_limit": limit}
            shown = [t for t in trials if not t.figures or aim in ("mixed", t.aim)]
            made.append(adding.store_partition(
                stored, recipe, aim, overwrite, name=names[aim], parts=parts, k=k, model=AUTO,
                tool=tool, seed=recipe.seed, imbalance=recipe.imbalance,
                options=record | recipe.record(),
                history=[trial.told(aim, trial is best) for trial in shown],
                seconds=time.perf_counter() - begun,
                deterministic=all(t.deterministic for t in trials) and not deadline.decided,
            ))  # fmt: skip
        for each in set(reserved) - {partition.name for partition in made}:
            store.discard_partition(stored.path, each)
        return made


@dataclass(frozen=True)
class Network:
    """The cost of a message: α seconds and β seconds a byte, for float32 rows of ``width``.

    The defaults are those of a good cluster network: half a microsecond, which is what it takes to
    hand over one of many messages that travel at the same time, and 10 GB/s. An entry of M takes
    ``_ENTRY`` seconds, and ``_NUMBER`` more a column.
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

    def check(self) -> None:
        """A UserError unless α, β ≥ 0 and the width ≥ 1."""
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            require(0 <= value < math.inf, f"{name} = {value}: seconds are positive")
        require(self.width >= 1, f"width = {self.width}: a row has at least one column")

    def mixed_seconds(self, rows: Metrics, mixed: Metrics) -> float:
        """The same of a mixed exchange, and of what the busiest part multiplies more for it."""
        more = max(0, max(mixed.work) - max(rows.work))
        return self.seconds(mixed) + more * (_ENTRY + self.width * _NUMBER)


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


# Facts.spread: less where a graph has locality; less on roads and meshes, where partitions differ
# from seed to seed; more where hardly any start is better than another one, once it is refined.
_LOCAL, _SCATTERED, _SHAPELESS = 0.1, 0.025, 0.5
_MANY = 64  # parts, from which on the time of KaMinPar's thorough presets grows with k
# By how much refinement is expected to gain where it gets e times as long; the effort that it
# needs at least, and the share of the time; and the effort beyond which it gains nothing.
_REFINING, _FEWEST, _KEPT, _MOST = 0.03, 0.04, 0.4, 4.0


@dataclass(frozen=True)
class _Candidate:
    """A way to partition, the seconds it takes, and what it is expected to gain.

    Attributes
    ----------
    gain : float
        By how much the best partition is expected to get better, as a fraction.
    tool : str, optional
        One of the model's tools; default: its first.
    seed : int
        Added to the seed asked for.
    """

    name: str
    model: str
    seconds: float
    gain: float
    options: Settings = field(default_factory=dict)
    tool: str | None = None
    seed: int = 0


def candidates(facts: Facts) -> list[_Candidate]:
    """The candidates for such a graph; the first one is always made, and shows the locality.

    Seconds were measured on a core, and are meant to be too long rather than too short; gains are
    those of partitions that were refined, on the graphs of ``docs/partitioning.md``. So the same
    command tries the same wherever it runs.
    """
    pins, k, spread, work = facts.pins, facts.k, facts.spread, facts.work
    # The share of that time for a graph that shrinks quickly when it is coarsened.
    local = min(1.0, max(0.17, (spread / 0.15) ** 2))
    # Arcs with a direction, and locality: web graphs, of which METIS sees too little.
    web = facts.directed and spread < _LOCAL
    cut = 0.2 if spread > _SHAPELESS or web else 1.0  # how much a better edge cut is worth
    strong = 0.3 + 0.6e-6 * work * max(0.4, local) + 0.18e-6 * pins * max(0, k - _MANY)
    # With one thread the default preset, too, makes the same parts again.
    default: Settings = {"preset": "default", "threads": 1}
    quality: Settings = {"preset": "deterministic-quality"}
    of_hp = 0.5 + 14e-6 * work * local
    found = [
        _Candidate("gp", "gp", 0.3 + 0.3e-6 * work * min(1.0, 0.3 + 1.4 * spread), 1.0),
        _Candidate("kaminpar", "gp", strong, 0.03 * cut, {"preset": "strong"}, "kaminpar"),
        _Candidate("kaminpar-largek", "gp", 0.3 + 0.15e-6 * work, 0.03 if k > _MANY else 0.0,
                  {"preset": "largek"}, "kaminpar"),
        _Candidate("gp-vol", "gp", 0.3 + 0.15e-6 * pins * k * local, 0.02 * cut,
                  {"objective": "vol"}),
        _Candidate("hp", "hp", 0.5 + 5e-6 * work * local, 0.3 if web else 0.05, default),
        _Candidate("hp-quality", "hp", of_hp, 0.02, quality),
        _Candidate("mg", "mg", 0.5 + 3e-6 * work * local, 0.3 if web else 0.01),
    ]  # fmt: skip
    # The same with other seeds, each of which is expected to gain less than the one before: on
    # roads and meshes messages and the busiest part differ by a fifth from seed to seed.
    again = 0.04 if spread < _SCATTERED else 0.006
    seeds = {"kaminpar": (1, 2, 3, 4), "gp-vol": (2, 3), "hp": (1, 2, 3, 4)}  # METIS: 1 for 0
    named = {candidate.name: candidate for candidate in found}
    return found + [
        replace(named[name], name=f"{name}+{seed}", gain=again / i, seed=seed)
        for name, some in seeds.items()
        for i, seed in enumerate(some, 1)
    ]


@dataclass(frozen=True)
class _Cost:
    """Seconds of a refinement: some whatever its effort, and those of an effort of 1."""

    fixed: float
    full: float

    def seconds(self, effort: float) -> float:
        """The time of a refinement with that effort."""
        return self.fixed + self.full * effort

    def effort(self, seconds: float) -> float:
        """The effort that there is time for, at most 1."""
        return min(1.0, (seconds - self.fixed) / self.full)


def refinement_cost(facts: Facts, exchange: str) -> _Cost:
    """The cost of a refinement for an exchange, whose rows the facts have.

    It makes fewer sweeps over large graphs, and they visit what is near the cut; for the mixed
    exchange it is slower, but only looks at so many entries.
    """
    sweeps = max(3, sweeps_for(int(facts.pins)))  # the fit is to three at least
    visits = sweeps * facts.work
    if exchange == "rows":
        return _Cost(0.2 + 1e-6 * facts.pins, 0.16e-6 * visits * min(1.0, 0.1 + 1.6 * facts.spread))
    many, most = facts.bisections / 4, 45 + 6e-6 * facts.pins
    full = 0.34e-6 * visits * max(1.0, many) * min(1.0, 0.1 + 8 * facts.spread)
    return _Cost(0.3 + 2.5e-6 * facts.pins, min(full, most * many))


def schedule(
    seconds: float, costs: Sequence[_Cost], among: Sequence[_Candidate]
) -> list[_Candidate]:
    """The candidates to try beside the first one, by expected gain per second.

    Time is as well spent on refinements, whose ``costs`` these are: a candidate is left out if it
    is expected to gain less than what refinement would lose of the ``seconds`` that are left.
    """
    full = sum(cost.full for cost in costs)
    fixed = sum(cost.fixed for cost in costs)
    left, least = seconds - fixed, max(_FEWEST * full, _KEPT * seconds - fixed)
    tried: list[_Candidate] = []
    for candidate in sorted(among, key=lambda c: -c.gain / c.seconds):
        after = left - candidate.seconds
        if after < least:
            continue
        lost = _REFINING * math.log(min(left, _MOST * full) / min(after, _MOST * full))
        if candidate.gain > lost:
            tried.append(candidate)
            left = after
    return tried


@dataclass(eq=False)
class _Trial:
    """A candidate's result: ``figures`` has, by exchange, the metrics and predicted seconds."""

    candidate: _Candidate
    name: str
    aim: str  # the exchange that it is refined for
    note: str = ""
    seconds: float = 0.0
    figures: dict[str, tuple[Metrics, float]] = field(default_factory=dict)
    parts: np.ndarray | None = None
    error: UserError | None = None
    effort: float = 0.0  # of its refinements, and how many there were
    rounds: int = 0
    deterministic: bool = True

    def told(self, aim: str, chosen: bool) -> dict[str, object]:
        """Its row in the history of a partition for that exchange."""
        facts: dict[str, object] = {"step": self.name, "seconds": self.seconds}
        if aim in self.figures:
            metrics, predicted = self.figures[aim]
            facts |= adding.step(self.name, self.seconds, metrics) | {"predicted": predicted}
        return facts | {"effort": self.effort, "chosen": chosen, "note": self.note}

    def worth(self) -> float:
        """Its predicted seconds times its volume, for its own exchange: less is better."""
        metrics, predicted = self.figures[self.aim]
        return predicted * metrics.volume


def _able(trials: Sequence[_Trial], aim: str) -> list[_Trial]:
    """Trials that were measured for an exchange; mixed ones are for any."""
    return [trial for trial in trials if trial.figures and aim in ("mixed", trial.aim)]


@dataclass
class _Run:
    """One search: candidates that fit are made, the best refined a little, the best of them more.

    Estimates and results decide on all of it, not the clock.
    """

    stored: StoredGraph
    k: int
    recipe: Recipe
    deadline: Deadline
    objective: Objective
    network: Network
    aims: tuple[str, ...]  # the exchanges that a partition is wanted for
    report: Callable[[str], None]

    def __post_init__(self) -> None:
        self.graph = self.stored.merged

    def all(self) -> list[_Trial]:
        """The candidates: those that were tried, in order, then the others."""
        planned = _MARGIN * self.deadline.seconds
        directed = not self.stored.manifest.symmetric_pattern
        known = Facts(float(self.graph.nnz + self.graph.n), self.k, directed=directed)
        first = self._make(candidates(known)[0], self.deadline)
        facts = dict.fromkeys(self.aims, known)
        for aim, (metrics, _) in first.figures.items():
            facts[aim] = replace(known, cut=metrics.volume / self.graph.n)
        head, *others = candidates(facts[self.aims[0]])
        unmixed = self._why_not_mixed(first)
        why_not = {c.name: self._why_not(c, unmixed) for c in others}
        able = [candidate for candidate in others if not why_not[candidate.name]]
        aims = [aim for aim in self.aims if aim == "rows" or not unmixed]
        costs = {aim: refinement_cost(facts[aim], aim) for aim in aims}
        left = planned - head.seconds
        chosen = schedule(left, list(costs.values()), able)
        tools = self.deadline.part(_TOOLS_END)
        made = [first, *(self._make(candidate, tools) for candidate in chosen)]

        left -= sum(candidate.seconds for candidate in chosen)
        pace = sum(trial.seconds for trial in made) / (1 + planned - left)
        lanes = {aim: self._starts(made, aim) for aim in aims}
        for aim, starts in lanes.items():
            # Each exchange gets the same effort; the last one also what others have left.
            share = costs[aim].full / sum(cost.full for cost in costs.values())
            budget = share * (left - sum(cost.fixed for cost in costs.values()))
            budget += costs[aim].fixed
            part = self.deadline.part(min(1.0, max(0.0, budget) / max(left, 1e-9)))
            left -= self._refine_best(starts, budget, costs.pop(aim), pace, part)
        made += [t for starts in lanes.values() for t in starts if t.rounds and t not in made]
        for c in others:
            if c not in chosen:
                note = why_not[c.name] or f"about {c.seconds:.0f} s"
                made.append(_Trial(c, c.name, "", f"not tried: {note}"))
        return made

    def best(self, trials: list[_Trial]) -> dict[str, _Trial]:
        """The best one for each exchange; for rows alone where mixing gains nothing."""
        every = {aim: _able(trials, aim) for aim in self.aims}
        found = {aim: self._kept(able, aim) for aim, able in every.items() if able}
        if len(found) > 1:
            rows, mixed = found["rows"], found["mixed"]
            if mixed is rows or mixed.figures["mixed"][1] >= rows.figures["rows"][1]:
                del found["mixed"]
        return found

    def aimed(self, aim: str) -> Objective:
        """The objective of refinements for an exchange."""
        return replace(self.objective, exchange=aim)

    def _kept(self, trials: list[_Trial], aim: str) -> _Trial:
        """Of those that are balanced and predicted to be as fast, the one of the least volume."""
        # Tools may miss it, if parts are small.
        if self.recipe.balance == balance.DEFAULT_BALANCE:
            bound = max(self.recipe.imbalance, min(t.figures[aim][0].imbalance for t in trials))
            trials = [t for t in trials if t.figures[aim][0].imbalance <= bound + _UNEVEN]
        limit = _AS_FAST * min(trial.figures[aim][1] for trial in trials)
        fast = [trial for trial in trials if trial.figures[aim][1] <= limit]
        return min(fast, key=lambda t: (t.figures[aim][0].volume, t.figures[aim][1]))

    def _starts(self, made: list[_Trial], aim: str) -> list[_Trial]:
        """The partitions that can be refined for an exchange, the most promising first."""

        def promise(trial: _Trial) -> float:
            """Predicted seconds if parts sent equally many rows, as they nearly do once refined."""
            metrics, _ = trial.figures[aim]
            alone = self.network.alpha * max(metrics.send_messages)
            return alone + self.network.bytes_seconds(metrics.volume) / self.k

        return [
            t if t.aim == aim else replace(t, name=f"{t.name}-{aim}", aim=aim, seconds=0.0)
            for t in sorted(_able(made, aim), key=promise)
        ]

    def _refine_best(
        self, starts: list[_Trial], budget: float, cost: _Cost, pace: float, deadline: Deadline
    ) -> float:
        """Refine the best starts a little, then the best of them, until that gains nothing.

        Then the next start may turn out to be better. Seconds are estimates; those that are spent
        are returned.
        """
        fresh, stalled, left = list(starts), set(), budget
        least = _QUICK[starts[0].aim] if starts else 0.0
        width = min(_WIDTH, max(1, int(_COMPARED * budget / cost.seconds(least))))
        # More of it where that takes next to no time; all of it where there is one start.
        quick = max(least, cost.effort(_COMPARED * budget / width)) if width > 1 else 1.0
        while True:
            tried = [trial for trial in starts if trial.rounds]
            best = self._kept(tried, tried[0].aim) if tried else None
            compared = best is not None and (len(tried) >= width or not fresh)
            if best and compared and best.rounds < _ROUNDS and best.name not in stalled:
                trial, most = best, 1.0
            elif fresh:
                trial, most = fresh.pop(0), quick
            else:
                break
            effort = min(most, cost.effort(left))
            if effort < _LEAST * least:
                break
            left -= cost.seconds(effort)
            before, slower = trial.worth(), pace if pace > _SLOW else 1
            self._refine(trial, effort, cost.seconds(effort) * slower, deadline)
            if trial.worth() > (1 - _STALLED) * before:
                stalled.add(trial.name)
        for trial in starts:
            trial.note = trial.note or ("" if trial.rounds else "not refined")
        return budget - left

    def _why_not(self, candidate: _Candidate, unmixed: str) -> str:
        """Why a candidate is not tried: what it is for is not wanted, or its tool is not there."""
        if unmixed and MODELS[candidate.model].exchange == "mixed":
            return unmixed
        try:
            adding.choose_tool(candidate.model, candidate.tool)
        except UserError as error:
            return error.message
        return ""

    def _why_not_mixed(self, first: _Trial) -> str:
        """Why nothing is refined for the mixed exchange, where that is so."""
        if "mixed" not in self.aims:
            return "it is for the mixed exchange"
        if "rows" not in self.aims:
            return ""
        if not first.figures:
            return f"it is for the mixed exchange, and {first.name} failed"
        rows, mixed = first.figures["rows"][0], first.figures["mixed"][0]
        if mixed.volume > _GAINS * rows.volume:
            return "it is for the mixed exchange, which gains nothing"
        if self.network.bytes_seconds(max(rows.send_rows)) < _SHORT:
            return "it is for the mixed exchange, and rows take next to no time"
        return ""

    def _make(self, candidate: _Candidate, deadline: Deadline) -> _Trial:
        """Run the tool, until the time is over."""
        self.report(candidate.name)
        of_model = MODELS[candidate.model].exchange
        aim = self.aims[0] if of_model == "rows" else of_model
        trial, begun = _Trial(candidate, candidate.name, aim), time.perf_counter()
        try:
            if deadline.over():
                raise TimeIsUp("no time was left")
            trial.parts = adding.make_parts(
                self.graph, candidate.model, self.k, self._seeded(candidate.seed),
                tool=candidate.tool, deadline=deadline, reassign=False, options=candidate.options,
            )  # fmt: skip
        except UserError as error:
            trial.error, trial.note, trial.deterministic = error, error.message, False
        self._measure(trial, begun)
        return trial

    def _refine(self, trial: _Trial, effort: float, cost: float, part: Deadline) -> None:
        """Refine, with less effort where the machine has turned out too slow for it."""
        begun, left = time.perf_counter(), part.left()
        if cost > left:
            trial.deterministic, effort = False, effort * left / cost
            trial.note = "a slow machine: refined with less effort"
        trial.rounds += 1
        kept = replace(trial) if trial.rounds > 1 else None
        if effort < _MEANINGLESS:
            trial.note = "no time to refine"
            return
        self.report(f"{trial.name}, refined")
        assert trial.parts is not None
        # The deadline stops it, but does not hurry it, which would let the clock decide on moves.
        what = self.graph, trial.parts, self.k, self.aimed(trial.aim), self._seeded(trial.rounds)
        trial.parts = adding.refined(*what, effort=effort, deadline=part)
        trial.effort += effort
        self._measure(trial, begun)
        if kept is not None and trial.worth() > kept.worth():  # more messages, it may be
            trial.parts, trial.figures, trial.effort = kept.parts, kept.figures, kept.effort

    def _seeded(self, further: int) -> Recipe:
        return replace(self.recipe, seed=(self.recipe.seed + further) % balance.SEED_LIMIT)

    @at_once()
    def _measure(self, trial: _Trial, begun: float) -> None:
        if trial.parts is not None:
            what = self.graph, trial.parts, self.k, self.recipe.direction
            rows = measure(*what)
            trial.figures = {"rows": (rows, self.network.seconds(rows))}
            if "mixed" in self.aims:
                mixed = measure_mixed(*what)
                trial.figures["mixed"] = mixed, self.network.mixed_seconds(rows, mixed)
            trial.figures = {aim: trial.figures[aim] for aim in self.aims}
        trial.seconds += time.perf_counter() - begun
