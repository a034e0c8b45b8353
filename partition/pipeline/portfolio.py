"""The portfolio: several cheap candidates, refined; the best of them is kept."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np

from partition.backends import TOOLS
from partition.backends.catalogue import AUTO, MODELS, all_options
from partition.backends.process import TimeIsUp
from partition.errors import UserError, unknown_name
from partition.graph.graph import Graph
from partition.graph.metrics import Metrics, measure, measure_mixed
from partition.graph.store import Partition, open_graph, write_partition
from partition.pipeline.adding import (
    check_direction,
    check_imbalance,
    check_nodes,
    check_parts_wanted,
    check_seed,
    name_of_nodes,
    name_of_numbers,
    new_partition,
    step,
    warn_of_imbalance,
)
from partition.pipeline.balance import DEFAULT as DEFAULT_BALANCE
from partition.pipeline.balance import constraint_weights, parse_balance
from partition.pipeline.estimates import (
    CANDIDATES,
    Candidate,
    Network,
    affordable,
    check_network,
    locality,
    mixed_seconds,
    refine_seconds,
)
from partition.pipeline.measuring import measure_both, measure_nodes
from partition.pipeline.refining import check_effort
from partition.pipeline.solving import NODES_FIRST, make_parts, mapped, refined
from partition.refinement.objective import EXCHANGES, Objective

TIME_LIMIT = 120.0
AIMS = (AUTO, *EXCHANGES)  # the exchanges that a partition may be for
MARGIN = 0.9  # of the time limit is planned with
GAINS = 0.95  # of the rows of the first candidate: mixed, it takes less, or no tool tries to
TOOLS_SHARE = 0.3  # of that; the rest is for refinement
MEANINGLESS = 0.02  # effort that is not spent on a slow machine either
LEAST_EFFORT = 0.1  # of a refinement; less is not worth it
ROUNDS = 3  # of refinement, of the best candidate, where there is time
AS_FAST = 1.05  # times the shortest predicted exchange: predictions are no better than that
SLOW = 2.0  # times the estimates: another machine, not another graph


def add_best(
    path: str | os.PathLike,
    k: int,
    *,
    time_limit: float = TIME_LIMIT,
    network: Network | None = None,
    exchange: str = "auto",
    objective: Objective | None = None,
    imbalance: float = 0.01,
    seed: int = 0,
    name: str | None = None,
    direction: str | None = None,
    balance: str = DEFAULT_BALANCE,
    ranks_per_node: int | None = None,
    mapping: str = NODES_FIRST,
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> Partition:
    """Try the candidates that fit ``time_limit``, refine them, and store the best.

    The best is the one whose exchange is predicted to be shortest, as rows or mixed; of equals, the
    one with the least volume.
    What fits is decided by estimates from the size of the graph and k, so the same command gives
    the same partition. The clock stops tools and lowers the effort of refinements on a machine
    that is too slow for the estimates; the partition then is not recorded as deterministic.

    Parameters
    ----------
    time_limit : float
        Seconds, about: the cheapest candidate, and a refinement once begun, are run to the end.
    network : Network, optional
        What messages and bytes cost.
    exchange : {"auto", "rows", "mixed"}
        The exchange that the partition is for; "auto": the shorter one of both.
    objective : Objective, optional
        Objective of the refinement, whatever the exchange.
    name : str, optional
        Default: ``auto-K``.
    report : callable
        Told what is being done.

    Other parameters are those of :func:`partition.pipeline.adding.add_partition`.

    Returns
    -------
    Partition
        Its ``history`` has a row per candidate, with ``predicted`` seconds, ``chosen``, and a
        ``note`` for those that were not tried, failed, or were cut short.

    Raises
    ------
    UserError
        For a bad argument; if the graph cannot be partitioned by any candidate.

    Warns
    -----
    PartitionWarning
        If the balance asked for was not reached.
    """
    stored = open_graph(path)
    graph = stored.graph
    direction = check_direction(direction or stored.manifest.direction)
    network, objective = network or Network(), objective or Objective()
    constraints = parse_balance(balance)
    check_parts_wanted(k, stored.manifest)
    check_imbalance(imbalance, graph, k, direction)
    check_seed(seed)
    check_nodes(ranks_per_node, mapping)
    check_effort(1.0, time_limit)
    check_network(network)
    if exchange not in AIMS:
        raise unknown_name("exchange", exchange, AIMS)
    constraint_weights(graph, direction, constraints)
    if name is None:
        name = f"{AUTO}-{k}{name_of_numbers(imbalance, seed)}{name_of_nodes(ranks_per_node)}"
    with new_partition(stored.path, name, "gcn-partition add", overwrite):
        run = _Run(
            graph, k, time.perf_counter(), time_limit, objective, network, exchange, report,
            {"imbalance": imbalance, "seed": seed, "direction": direction, "balance": balance},
            {"ranks_per_node": ranks_per_node, "mapping": mapping},
        )  # fmt: skip
        trials = run.all()
        made = [(trial, trial.parts) for trial in trials if trial.parts is not None]
        if not made:
            raise trials[0].error or UserError("no candidate could be tried")
        # Of candidates that are predicted to be as fast, the one that burdens the network least.
        limit = AS_FAST * min(trial.row["predicted"] for trial, _ in made)
        fast = [pair for pair in made if pair[0].row["predicted"] <= limit]
        best, parts = min(fast, key=lambda pair: (pair[0].row["volume"], pair[0].row["predicted"]))
        best.row["chosen"] = True
        if ranks_per_node is not None:
            parts = mapped(graph, parts, k, ranks_per_node, direction, seed)
        seconds = time.perf_counter() - run.begun

        candidate = best.candidate
        tool = MODELS[candidate.model].tools[0]
        record = {
            "candidate": candidate.name,
            **all_options(graph, candidate.model, tool, TOOLS.get(tool), candidate.options),
            "refine": asdict(run.aim(candidate)) | {"effort": best.effort} if best.effort else None,
            "network": asdict(network),
            "exchange": exchange,
            "time_limit": time_limit,
        }
        record |= {} if balance == DEFAULT_BALANCE else {"balance": balance}
        record |= {} if ranks_per_node is None else run.nodes
        metrics = measure_both(graph, stored.manifest, parts, k)
        mixed = measure_both(graph, stored.manifest, parts, k, mixed=True)
        partition = Partition(
            name=name,
            parts=parts,
            k=k,
            graph_id=stored.manifest.id,
            model=AUTO,
            tool=tool,
            tool_version=version(TOOLS.get(tool).distribution or "gcnmpi"),
            direction=direction,
            seed=seed,
            imbalance=imbalance,
            options=record,
            metrics={key: asdict(value) for key, value in metrics.items()},
            mixed={key: asdict(value) for key, value in mixed.items()},
            nodes=measure_nodes(graph, stored.manifest, parts, k, ranks_per_node),
            history=[trial.row for trial in trials],
            seconds=seconds,
            deterministic=all(trial.deterministic for trial in trials),
        )
        reached = (mixed if best.row["exchange"] == "mixed" else metrics)[direction]
        warn_of_imbalance(graph, reached, imbalance, constraints)
        return write_partition(stored.path, partition, overwrite=overwrite)


@dataclass
class _Trial:
    """What became of a candidate."""

    candidate: Candidate
    row: dict[str, Any]
    parts: np.ndarray | None = None
    error: UserError | None = None
    effort: float = 0.0  # of its refinement
    mixed_share: float = 1.0  # of the rows that it sends as rows, those that it sends mixed
    deterministic: bool = True


@dataclass
class _Run:
    """One search: every candidate that fits is made, then the most promising are refined."""

    graph: Graph
    k: int
    begun: float
    time_limit: float
    objective: Objective
    network: Network
    exchange: str
    report: Callable[[str], None]
    common: dict[str, Any]
    nodes: dict[str, Any]

    def all(self) -> list[_Trial]:
        """The candidates in order, each with a row for the history."""
        pins, k = float(self.graph.nnz + self.graph.n), max(self.k, 2)
        planned = MARGIN * self.time_limit
        tools_end = self.begun + self.time_limit / 2
        trials = [self._make(CANDIDATES[0], None)]
        # By estimates: what is tried, and how hard, does not depend on the clock.
        cut = trials[0].row.get("volume", self.graph.n) / self.graph.n
        first = CANDIDATES[0].seconds(pins, k)
        useful = [c for c in CANDIDATES[1:] if not self._why_not(c, trials[0])]
        others = affordable(pins, k, TOOLS_SHARE * planned - first, cut, useful)
        trials += [self._make(candidate, tools_end) for candidate in others]
        expected = first + sum(c.seconds(pins, k) * locality(cut) for c in others)
        budget = planned - expected
        made = [trial for trial in trials if trial.parts is not None]
        pace = sum(trial.row["seconds"] for trial in trials) / (1 + expected)

        # Of equals, the one that is refined for the fewest rows first.
        queue = sorted(made, key=lambda t: (self._promise(t), t.candidate.exchange == "rows"))
        while queue:
            trial = queue.pop(0)
            mixed = self.aim(trial.candidate).exchange == "mixed"
            cost = (mixed_seconds if mixed else refine_seconds)(pins, k, cut)
            effort = min(1.0, budget / cost)
            if effort < LEAST_EFFORT:
                trial.row["note"] = trial.row["note"] or ("" if trial.effort else "not refined")
                continue
            budget -= effort * cost
            self._refine(trial, effort, cost * (pace if pace > SLOW else 1.0))
            if not queue:  # all have had their turn: once more for the best
                best = min(made, key=self._promise)
                queue = [best] if best.effort < ROUNDS - 0.5 else []
        for candidate in CANDIDATES:
            if candidate not in (CANDIDATES[0], *others):
                seconds = candidate.seconds(pins, k) * locality(cut)
                why = self._why_not(candidate, trials[0]) or f"about {seconds:.0f} s"
                row = _row(candidate, f"not tried: {why}")
                trials.append(_Trial(candidate, row))
        return trials

    def aim(self, candidate: Candidate) -> Objective:
        """The objective of a candidate's refinement."""
        exchange = candidate.exchange if self.exchange == AUTO else self.exchange
        return replace(self.objective, exchange=exchange)

    def _why_not(self, candidate: Candidate, first: _Trial) -> str:
        """Why a candidate for the mixed exchange is not tried, where that is so.

        What it gains on the parts of another candidate is close to what it gains on its own.
        """
        if candidate.exchange == "rows":
            return ""
        if self.exchange == "mixed":  # all are refined for it
            again = (candidate.model, candidate.options) == (first.candidate.model, {})
            return f"the same as {first.candidate.name}" if again else ""
        if self.exchange == "rows":
            return "it is for the mixed exchange"
        return "it is for the mixed exchange, which gains nothing" * (first.mixed_share > GAINS)

    def _make(self, candidate: Candidate, end: float | None) -> _Trial:
        """Run the tool, until ``end`` if there is one."""
        self.report(candidate.name)
        trial, begun = _Trial(candidate, _row(candidate)), time.perf_counter()
        timeout = None if end is None else max(0.0, end - begun)
        try:
            if timeout == 0:
                raise TimeIsUp("no time was left")
            trial.parts = make_parts(
                self.graph, candidate.model, self.k, timeout=timeout, **self.nodes,
                **candidate.options, **self._seeded(candidate.seed),
            )  # fmt: skip
        except UserError as error:
            trial.error, trial.deterministic = error, False
            trial.row["note"] = error.message
        self._measure(trial, begun)
        return trial

    def _refine(self, trial: _Trial, effort: float, cost: float) -> None:
        """Refine, with less effort where the machine has turned out too slow for it."""
        begun, left = time.perf_counter(), self._left()
        if effort * cost > left:
            trial.deterministic, effort = False, max(0.0, left) / cost
            trial.row["note"] = "a slow machine: refined with less effort"
        if effort < MEANINGLESS:
            trial.row["note"] = "no time to refine"
            return
        self.report(f"{trial.candidate.name}, refined")
        assert trial.parts is not None
        # Without a time limit of its own, which would let the clock decide on moves.
        rounds = round(trial.effort + 0.5)
        trial.parts = refined(
            self.graph, trial.parts, self.k, self.aim(trial.candidate), effort=effort,
            **self._seeded(rounds),
        )  # fmt: skip
        trial.effort += effort
        self._measure(trial, begun)

    def _seeded(self, further: int) -> dict[str, Any]:
        return self.common | {"seed": self.common["seed"] + further}

    def _measure(self, trial: _Trial, begun: float) -> None:
        seconds = trial.row["seconds"] + time.perf_counter() - begun
        trial.row["seconds"] = seconds
        if trial.parts is not None:
            metrics, predicted = self._shortest(trial)
            figures = step(trial.candidate.name, seconds, metrics)
            trial.row |= figures | {"predicted": predicted}

    def _shortest(self, trial: _Trial) -> tuple[Metrics, float]:
        """The exchange that is predicted to be shortest, or the one asked for; and its seconds."""
        assert trial.parts is not None
        what = self.graph, trial.parts, self.k, self.common["direction"]
        rows = measure(*what)
        as_rows = rows, self.network.seconds(rows)
        if self.exchange == "rows":
            return as_rows
        mixed = measure_mixed(*what)
        trial.mixed_share = mixed.volume / max(1, rows.volume)
        as_mixed = mixed, self.network.mixed_seconds(rows, mixed)
        return as_mixed if self.exchange == "mixed" or as_mixed[1] < as_rows[1] else as_rows

    def _promise(self, trial: _Trial) -> float:
        """What is refined first: refinement evens out what parts send, so the volume counts too."""
        return trial.row["volume"] * trial.row["max_send"]

    def _left(self) -> float:
        return self.begun + self.time_limit - time.perf_counter()


def _row(candidate: Candidate, note: str = "") -> dict[str, Any]:
    return {"step": candidate.name, "seconds": 0.0, "chosen": False, "note": note}
