"""The portfolio: several cheap candidates, refined; the best of them for each exchange is kept."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from partition.backends import TOOLS
from partition.backends.catalogue import AUTO, MODELS, all_options
from partition.backends.process import TimeIsUp
from partition.deadline import Deadline, deadline_for
from partition.errors import UserError, check_name
from partition.graph import store
from partition.graph.graph import Graph
from partition.graph.manifest import EXCHANGES
from partition.graph.metrics import Metrics, measure
from partition.graph.mixed_metrics import measure_mixed
from partition.graph.pairs import pair_names
from partition.graph.store import Partition
from partition.pipeline import estimates
from partition.pipeline.adding import new_partition, step, tool_version, warn_of_imbalance
from partition.pipeline.balance import constraint_weights
from partition.pipeline.estimates import CANDIDATES, Candidate, Network, affordable
from partition.pipeline.measuring import figures_of, measuring_share
from partition.pipeline.recipe import Recipe, recipe_of
from partition.pipeline.solving import make_parts, mapped, refined
from partition.refinement.objective import Objective
from partition.signals import at_once

TIME_LIMIT = 120.0
AIMS = (AUTO, *EXCHANGES)  # the exchanges that partitions may be for; auto: both
MARGIN = 0.9  # of the time limit is planned with
GAINS = 0.95  # of the rows of the first candidate: mixed, it takes less, or no tool tries to
# Seconds of an exchange: where rows travel for less, mixed ones would gain nothing that is noticed.
SHORT = 5e-6
TOOLS_SHARE = 0.3  # of that; the rest is for refinement
TOOLS_END = 0.5  # of the time limit, after which no tool but the first one runs
MEANINGLESS = 0.02  # effort that is not spent on a slow machine either
LEAST_EFFORT = 0.1  # of a refinement; less is not worth it
ROUNDS = 3  # of refinement, of the best candidate, where there is time
AS_FAST = 1.05  # times the shortest predicted exchange: predictions are no better than that
SLOW = 2.0  # times the estimates: another machine, not another graph


def add_best(
    path: str | os.PathLike[str],
    k: int,
    *,
    time_limit: float | None = None,
    network: Network | None = None,
    exchange: str = "auto",
    objective: Objective | None = None,
    name: str | None = None,
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
    **asked: Any,
) -> list[Partition]:
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
        Seconds, about; default: ``TIME_LIMIT``.
    network : Network, optional
        What messages and bytes cost.
    exchange : {"auto", "rows", "mixed"}
        The exchange that a partition is for; "auto": one for each, ``NAME-rows`` and ``NAME-mixed``
        (:mod:`partition.graph.pairs`), but the first alone where the mixed exchange gains nothing.
    objective : Objective, optional
        Objective of the refinement, whatever the exchange.
    name : str, optional
        Default: ``auto-K``, with the exchange behind it.
    report : callable
        Told what is being done.
    asked
        Fields of :class:`~partition.pipeline.recipe.Recipe`.

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
    limit = TIME_LIMIT if time_limit is None else time_limit
    deadline = deadline_for(limit, paced=False)
    stored = store.open_graph(path)
    graph = stored.merged
    recipe = recipe_of(stored, asked)
    if asked:
        raise TypeError(f"add_best() has no {', '.join(asked)}")
    network, objective = network or Network(), objective or Objective()
    constraints = recipe.constraints
    recipe.check(stored, k)
    estimates.check_network(network)
    check_name("exchange", exchange, AIMS)
    constraint_weights(graph, recipe.direction, constraints)
    usual = f"{AUTO}-{k}{recipe.ending}"
    names = pair_names(name or usual)
    if exchange != AUTO:
        names = {exchange: name or names[exchange]}
    # A partition of the pair's own name would hide it.
    hiding = [usual if name is None else name] if exchange == AUTO else []
    reserved = [each for each in hiding if store.has_partition(stored.path, each)]
    reserved += names.values()
    with new_partition(stored.path, reserved, "gcn-partition add", overwrite):
        run = _Run(
            graph, k, time.perf_counter(), limit,
            deadline.part(1 - measuring_share(stored.manifest, limit)), objective, network,
            tuple(names), report, recipe,
        )  # fmt: skip
        trials = run.all()
        if not any(trial.figures for trial in trials):
            raise trials[0].error or UserError("no candidate could be tried")
        chosen = run.best(trials)
        made: list[Partition] = []
        for aim, best in chosen.items():
            assert best.parts is not None
            parts = mapped(graph, best.parts, k, recipe)
            candidate = best.candidate
            tool = MODELS[candidate.model].tools[0]
            refine = asdict(run.aim(candidate)) | {"effort": best.effort} if best.effort else None
            record = {
                "candidate": candidate.name,
                **all_options(graph, candidate.model, tool, TOOLS.get(tool), candidate.options),
                "refine": refine,
                "network": asdict(network),
                "exchange": aim,
                "time_limit": limit,
            }
            found = figures_of(stored, parts, k, recipe.ranks_per_node)
            partition = Partition(
                name=names[aim],
                parts=parts,
                k=k,
                graph_id=stored.manifest.id,
                model=AUTO,
                tool=tool,
                tool_version=tool_version(TOOLS.get(tool)),
                direction=recipe.direction,
                seed=recipe.seed,
                imbalance=recipe.imbalance,
                options=record | recipe.record(),
                history=[
                    trial.told(aim, trial is best)
                    for trial in trials
                    if run.competes(trial, aim) or not trial.figures
                ],
                seconds=time.perf_counter() - run.begun,
                deterministic=all(t.deterministic for t in trials) and not deadline.decided,
                **vars(found),
            )
            warn_of_imbalance(graph, found.of(aim, recipe.direction), recipe)
            made.append(store.write_partition(stored.path, partition, overwrite=overwrite))
        for each in set(reserved) - {partition.name for partition in made}:
            store.discard_partition(stored.path, each)
        return made


@dataclass
class _Trial:
    """A candidate's result: ``figures`` has, by exchange, the metrics and predicted seconds."""

    candidate: Candidate
    note: str = ""
    seconds: float = 0.0
    figures: dict[str, tuple[Metrics, float]] = field(default_factory=dict)
    parts: np.ndarray | None = None
    error: UserError | None = None
    effort: float = 0.0  # of its refinement
    deterministic: bool = True

    def told(self, aim: str, chosen: bool) -> dict[str, object]:
        """Its row in the history of a partition for that exchange."""
        facts: dict[str, object] = {"step": self.candidate.name, "seconds": self.seconds}
        if aim in self.figures:
            metrics, predicted = self.figures[aim]
            facts |= step(self.candidate.name, self.seconds, metrics) | {"predicted": predicted}
        return facts | {"chosen": chosen, "note": self.note}

    def promise(self, aim: str) -> float:
        """The order of refinement, which evens out what parts send: so the volume counts too."""
        metrics, _ = self.figures[aim]
        return metrics.volume * max(metrics.send_rows)


@dataclass
class _Run:
    """One search: every candidate that fits is made, then the most promising are refined."""

    graph: Graph
    k: int
    begun: float
    time_limit: float
    deadline: Deadline
    objective: Objective
    network: Network
    aims: tuple[str, ...]  # the exchanges that a partition is wanted for
    report: Callable[[str], None]
    recipe: Recipe

    def all(self) -> list[_Trial]:
        """The candidates in order."""
        pins, k = float(self.graph.nnz + self.graph.n), max(self.k, 2)
        planned = MARGIN * self.time_limit
        trials = [self._make(CANDIDATES[0], self.deadline)]
        # By estimates: what is tried, and how hard, does not depend on the clock.
        cut = 1.0
        for metrics, _ in trials[0].figures.values():
            cut = metrics.volume / self.graph.n
        first = CANDIDATES[0].seconds(pins, k)
        useful = [c for c in CANDIDATES[1:] if not self._why_not(c, trials[0])]
        others = affordable(pins, k, TOOLS_SHARE * planned - first, cut, useful)
        tools = self.deadline.part(TOOLS_END)
        trials += [self._make(candidate, tools, trials[0]) for candidate in others]
        expected = first + sum(c.seconds(pins, k) * estimates.locality(cut) for c in others)
        self._refine_all(trials, planned - expected, pins, k, cut, expected)
        for candidate in CANDIDATES:
            if candidate not in (CANDIDATES[0], *others):
                seconds = candidate.seconds(pins, k) * estimates.locality(cut)
                why = self._why_not(candidate, trials[0]) or f"about {seconds:.0f} s"
                trials.append(_Trial(candidate, f"not tried: {why}"))
        return trials

    def best(self, trials: list[_Trial]) -> dict[str, _Trial]:
        """The best one for each exchange; for rows alone where mixing gains nothing."""
        found = {}
        for aim in self.aims:
            able = [t for t in trials if t.figures and self.competes(t, aim)]
            if not able:
                continue
            # Of those that are predicted to be as fast, the one that burdens the network least.
            limit = AS_FAST * min(trial.figures[aim][1] for trial in able)
            fast = [trial for trial in able if trial.figures[aim][1] <= limit]
            found[aim] = min(fast, key=lambda t: (t.figures[aim][0].volume, t.figures[aim][1]))
        if len(found) > 1:
            rows, mixed = found["rows"], found["mixed"]
            if mixed is rows or mixed.figures["mixed"][1] >= rows.figures["rows"][1]:
                del found["mixed"]
        return found

    def _refine_all(
        self, trials: list[_Trial], budget: float, pins: float, k: int, cut: float, expected: float
    ) -> None:
        """The most promising of each exchange first, then the others, and the best ones again."""
        made = [trial for trial in trials if trial.figures]
        pace = sum(trial.seconds for trial in trials) / (1 + expected)
        heads: list[_Trial] = []
        for aim in self.aims:
            mine = [trial for trial in made if self.aim(trial.candidate).exchange == aim]
            # Of equals, the one that is refined for the fewest rows first.
            mine.sort(key=lambda t: (t.promise(aim), t.candidate.exchange == "rows"))
            heads += mine[:1]
        rest = [trial for trial in made if all(trial is not head for head in heads)]
        rest.sort(key=lambda t: (t.promise(self._aim(t)), t.candidate.exchange == "rows"))
        # Each head gets its share of the budget, and of the time where the machine is slow.
        shares = [1 / (len(heads) - i) for i in range(len(heads))] + [1.0] * len(rest)
        queue = list(zip([*heads, *rest], shares, strict=True))
        while queue:
            trial, share = queue.pop(0)
            mixed = self._aim(trial) == "mixed"
            cost = (estimates.mixed_seconds if mixed else estimates.refine_seconds)(pins, k, cut)
            effort = min(1.0, share * budget / cost)
            if effort < LEAST_EFFORT:
                trial.note = trial.note or ("" if trial.effort else "not refined")
                continue
            budget -= effort * cost
            part = self.deadline.part(share)
            self._refine(trial, effort, cost * (pace if pace > SLOW else 1.0), part)
            if not queue:  # all have had their turn: once more for the best
                best = [
                    min(mine, key=lambda t: t.promise(aim))
                    for aim in self.aims
                    if (mine := [trial for trial in made if self._aim(trial) == aim])
                ]
                queue = [(each, 1.0) for each in best if each.effort < ROUNDS - 0.5]

    def competes(self, trial: _Trial, aim: str) -> bool:
        """Whether it may be the best for an exchange: what is balanced for mixed ones is not."""
        return aim == "mixed" or self._aim(trial) == aim

    def aim(self, candidate: Candidate) -> Objective:
        """The objective of a candidate's refinement."""
        exchange = candidate.exchange if len(self.aims) > 1 else self.aims[0]
        return replace(self.objective, exchange=exchange)

    def _aim(self, trial: _Trial) -> str:
        return self.aim(trial.candidate).exchange

    def _why_not(self, candidate: Candidate, first: _Trial) -> str:
        """Why a candidate for the mixed exchange is not tried, where that is so.

        It gains about as much on the parts of another candidate as on its own.
        """
        if candidate.exchange == "rows":
            return ""
        if self.aims == ("mixed",):  # all are refined for it
            again = (candidate.model, candidate.options) == (first.candidate.model, {})
            return f"the same as {first.candidate.name}" if again else ""
        if self.aims == ("rows",):
            return "it is for the mixed exchange"
        if not first.figures:
            return ""
        rows, mixed = first.figures["rows"][0], first.figures["mixed"][0]
        if mixed.volume > GAINS * rows.volume:
            return "it is for the mixed exchange, which gains nothing"
        if self.network.bytes_seconds(max(rows.send_rows)) < SHORT:
            return "it is for the mixed exchange, and rows take next to no time"
        return ""

    def _make(
        self, candidate: Candidate, deadline: Deadline, first: _Trial | None = None
    ) -> _Trial:
        """Run the tool, until the time is over; what the first one has made is not made again."""
        self.report(candidate.name)
        trial, begun = _Trial(candidate), time.perf_counter()
        if first is not None and _tool(candidate) == _tool(first.candidate):
            return replace(first, candidate=candidate, seconds=0.0, figures=dict(first.figures))
        try:
            if deadline.over():
                raise TimeIsUp("no time was left")
            trial.parts = make_parts(
                self.graph, candidate.model, self.k, self._seeded(candidate.seed),
                deadline=deadline, options=candidate.options,
            )  # fmt: skip
        except UserError as error:
            trial.error, trial.deterministic = error, False
            trial.note = error.message
        self._measure(trial, begun)
        return trial

    def _refine(self, trial: _Trial, effort: float, cost: float, part: Deadline) -> None:
        """Refine, with less effort where the machine has turned out too slow for it."""
        begun, left = time.perf_counter(), part.left()
        if effort * cost > left:
            trial.deterministic, effort = False, left / cost
            trial.note = "a slow machine: refined with less effort"
        if effort < MEANINGLESS:
            trial.note = "no time to refine"
            return
        self.report(f"{trial.candidate.name}, refined")
        assert trial.parts is not None
        rounds = round(trial.effort + 0.5)
        # The deadline stops it, but does not hurry it, which would let the clock decide on moves.
        trial.parts = refined(
            self.graph, trial.parts, self.k, self.aim(trial.candidate), self._seeded(rounds),
            effort=effort, deadline=part,
        )  # fmt: skip
        trial.effort += effort
        self._measure(trial, begun)

    def _seeded(self, further: int) -> Recipe:
        return replace(self.recipe, seed=self.recipe.seed + further)

    @at_once()
    def _measure(self, trial: _Trial, begun: float) -> None:
        if trial.parts is not None:
            what = self.graph, trial.parts, self.k, self.recipe.direction
            rows = measure(*what)
            if "rows" in self.aims:
                trial.figures["rows"] = rows, self.network.seconds(rows)
            if "mixed" in self.aims:
                mixed = measure_mixed(*what)
                trial.figures["mixed"] = mixed, self.network.mixed_seconds(rows, mixed)
        trial.seconds += time.perf_counter() - begun


def _tool(candidate: Candidate) -> tuple[object, ...]:
    """The key that candidates share which differ in the refinement alone."""
    return candidate.model, candidate.options, candidate.seed
