"""Predicted costs of all schemes for a graph and a number of ranks, the fastest first.

Nothing here needs MPI, a kernel, or the arcs of the graph, but for one pass over them where the
volume of random rows is estimated. Nothing is of size P².
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from gcnmpi.layout.runtime import Demand, Source, resolved_direction
from gcnmpi.nn.compile.on_scheme import of_steps, program_on
from gcnmpi.nn.program import Program
from gcnmpi.nn.tasks.interface import task_of
from gcnmpi.options.config import Config
from gcnmpi.options.scheme import SCHEMES, ExchangeOptions, GridOptions, SchemeConfig
from gcnmpi.options.settings import chosen
from gcnmpi.options.train import KEPT, Residences, batches_of
from gcnmpi.planner.batch_memory import batch_memory
from gcnmpi.planner.batches import (
    DrawnBatches,
    batch_cases,
    draw_batches,
    predict_batches,
    tile_cases,
)
from gcnmpi.planner.case import Case, Workload, workload
from gcnmpi.planner.costmodel import Cost, predict
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.memory import matrix_memory, memory
from gcnmpi.planner.random_rows import random_partition, random_parts
from gcnmpi.planner.residences import allowed_by, fitting
from gcnmpi.schemes.forecast import make_facts, mixed_metrics, why_not_mixed
from gcnmpi.schemes.stacked_forecast import StackedForecast
from partition.errors import UserError
from partition.graph.graph import row_sizes
from partition.graph.store import Partition, StoredGraph, list_partitions, members, read_partition
from partition.registry import resolved

MOST_DOUBLINGS = 6  # of the number of ranks that advice looks at


@dataclass(frozen=True)
class Candidate:
    """A scheme with its options, and the partition that it would use, without its part vector.

    ``options`` are those by which it differs from the other variants, or from the defaults;
    ``parts`` how many it needs, 0: none. An estimated partition is not there: it has the expected
    figures of random rows.
    """

    scheme: SchemeConfig
    options: dict[str, object]
    parts: int
    partition: Partition | None
    estimated: bool = False
    groups: int = 1  # of ranks, each of which trains on other samples


Fits = Callable[[Candidate, int], bool]  # whether so many ranks have the memory


@dataclass(frozen=True)
class Ranked:
    """A candidate and what it costs; ``advice`` is empty where its memory suffices."""

    candidate: Candidate
    cost: Cost
    advice: str = ""


@dataclass(frozen=True)
class Skipped:
    """A variant that cannot run on so many ranks, and why."""

    scheme: str
    options: dict[str, object]
    reason: str


class Setting:
    """A graph, a configuration and a machine; what is found of them once for all candidates.

    Parameters
    ----------
    features, classes : int, optional
        Widths to assume instead of the graph's.
    given : mapping
        Keys that the user gave, by full names: variants with other values are left out.
    locality : bool
        Whether arcs all over the graph are read, to see how near its neighbours are.
    limit : float
        Bytes that a rank has. For ``train.memory = "auto"``, as much is kept as it allows.
    """

    def __init__(
        self,
        stored: StoredGraph,
        config: Config,
        machine: Machine,
        ranks_per_node: int,
        features: int | None = None,
        classes: int | None = None,
        given: Mapping[str, object] | None = None,
        locality: bool = True,
        limit: float = math.inf,
    ) -> None:
        config = of_steps(config)
        self._task = task_of(config.task)
        stored = self._task.planned(stored, config.task)
        self.stored, self.config, self.given = stored, config, given or {}
        self.machine, self.ranks_per_node, self.limit = machine, ranks_per_node, limit
        self.direction = resolved_direction(stored, config)
        self.work: Workload = workload(stored, config, features, classes, locality)
        self._programs: dict[tuple[object, ...], tuple[Program, Demand]] = {}

    def on(
        self, config: Config, machine: Machine, ranks_per_node: int, limit: float = math.inf
    ) -> Setting:
        """The same graph and network elsewhere: programs that were compiled are not again.

        ``config`` differs from that of this setting in the options of the scheme, in
        ``train.memory`` and in what programs do not depend on.
        """
        found = copy.copy(self)
        for drawn in ("batches", "epochs"):
            vars(found).pop(drawn, None)
        found.config, found.work = config, replace(self.work, config=config)
        found.machine, found.ranks_per_node, found.limit = machine, ranks_per_node, limit
        return found

    def program(
        self, candidate: Candidate, size: int, kept: str, trains: bool = True
    ) -> tuple[Program, Demand]:
        """The program of a candidate, and what it asks of the scheme: see ``program_on``.

        ``kept`` stands for ``train.memory``; ``size`` is that of a group of ranks.
        """
        scheme, partition = candidate.scheme, candidate.partition
        if isinstance(scheme, ExchangeOptions):  # what carries messages is resolved later
            scheme = replace(scheme, transport="auto")
        part_of = None if partition is None else (partition.name, partition.id)
        key = scheme, part_of, candidate.groups, size, kept, trains
        if key not in self._programs:
            train = replace(self.work.config.train, memory=kept, groups=candidate.groups)
            config = replace(self.work.config, scheme=candidate.scheme, train=train)
            source = Source(self.stored, partition, self.direction)
            self._programs[key] = program_on(self.work.network, source, config, size, trains)
        return self._programs[key]

    def case(self, candidate: Candidate, size: int, trains: bool = True) -> Case:
        """A candidate on so many ranks, for the cost model; ``trains`` as for ``program_on``.

        With residences by :func:`gcnmpi.planner.residences.fitting`.
        """
        wanted = self.config.train.memory
        if not trains or Residences.told(wanted) is not None:
            return self._case(candidate, size, wanted, trains)
        allowed = allowed_by(self.config, self.limit)  # pairs are drawn for a given size only
        needs: Callable[[Case], int] = memory
        if allowed.given:
            needs = partial(self.epochs.memory, candidate)
        return fitting(lambda left: self._case(candidate, size, str(left)), needs, allowed)

    def _case(self, candidate: Candidate, size: int, kept: str, trains: bool = True) -> Case:
        groups = candidate.groups
        train = replace(self.work.config.train, memory=kept, groups=groups)
        work = replace(self.work, config=replace(self.work.config, train=train))
        config = replace(work.config, scheme=candidate.scheme)
        source = Source(self.stored, candidate.partition, self.direction)
        size //= groups
        program, demand = self.program(candidate, size, kept, trains)
        facts = make_facts(source, config, demand)
        forecast = SCHEMES.get(candidate.scheme.name).forecast(candidate.scheme, size, facts)
        if samples := self._task.steps(config.task).samples:
            forecast = StackedForecast(forecast, samples // groups)
        return Case(forecast, size, work, self.machine, self.ranks_per_node, program, groups)

    def groups(self, size: int) -> list[int]:
        """The numbers of groups that so many ranks may be divided into."""
        samples, wanted = self._task.steps(self.config.task).samples, self.config.train.groups
        if not samples:
            return [1]
        possible = [wanted] if "train.groups" in self.given else range(1, size + 1)
        return [g for g in possible if size % g == 0 and samples % g == 0]

    @cached_property
    def batches(self) -> DrawnBatches | None:
        """Mini-batches that stand for those of an epoch; None where all vertices train at once."""
        if batches_of(self.config.train) is None:
            return None
        return draw_batches(self.stored, self.work.config, self.work.network, self.direction)

    @cached_property
    def epochs(self) -> Epochs:
        """The epochs of the task; a UserError if the folder has not its examples."""
        found: Epochs = resolved(self._task.forecast)(self)
        return found

    def cost(self, candidate: Candidate, size: int) -> Cost:
        """The cost of an epoch."""
        return self.epochs.cost(candidate, self.case(candidate, size))

    def memory(self, candidate: Candidate, size: int) -> int:
        """Peak bytes of the rank that needs most."""
        return self.epochs.memory(candidate, self.case(candidate, size))

    def fits(self, candidate: Candidate, size: int) -> bool:
        """Whether the limit suffices that rank; residences are not tried if M alone exceeds it."""
        case = self._case(candidate, size, KEPT)
        alone = partial(matrix_memory, case) if self.batches is None else lambda rank: 0
        return case.peak(alone) <= self.limit and self.memory(candidate, size) <= self.limit

    def parts(self, candidate: Candidate, case: Case) -> np.ndarray:
        """The rank of each vertex, (n,)."""
        partition = candidate.partition
        if partition is None or candidate.estimated:
            return random_parts(self.stored.manifest.n, case.size)
        return read_partition(self.stored.path, partition.name).parts

    def exchanges(self, candidate: Candidate, size: int) -> list[Candidate]:
        """A candidate with rows and with the mixed exchange, where it has the choice; or none."""
        scheme, partition = candidate.scheme, candidate.partition
        if not isinstance(scheme, ExchangeOptions) or scheme.exchange != "auto" or not partition:
            return []
        if batches_of(self.config.train) is not None:  # each has an exchange of rows
            return []
        rows = replace(candidate, scheme=replace(scheme, exchange="rows"))
        try:
            demand = self.program(rows, size, KEPT)[1]
        except UserError:  # which the candidate raises too
            return []
        if why_not_mixed(partition, scheme, demand) is not None:
            return []
        if not any(mixed_metrics(partition, demand)[self.direction].send_sums or ()):  # the same
            return []
        return [
            replace(
                candidate,
                scheme=replace(scheme, exchange=exchange),
                options=candidate.options | {"exchange": exchange},
            )
            for exchange in ("rows", "mixed")
        ]

    def random_partition(self, k: int) -> Partition:
        """A partition that is not there, with the metrics that random rows are expected to have."""
        return random_partition(self.stored, self.direction, k, self._needs)

    @cached_property
    def _needs(self) -> tuple[np.ndarray, np.ndarray]:
        # Entries of each column of M outside its diagonal: rows of M transposed.
        other = "out" if self.direction == "in" else "in"
        return np.unique(row_sizes(self.stored.merged, other) - 1, return_counts=True)


class Epochs:
    """Epochs of a setting on paper: of all vertices at once, or of mini-batches."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def cost(self, candidate: Candidate, case: Case) -> Cost:
        """The cost of an epoch."""
        batches = self._setting.batches
        if batches is None:
            return predict(case)
        return predict_batches(case, self._batches(candidate, case, batches), batches)

    def memory(self, candidate: Candidate, case: Case) -> int:
        """Peak bytes of the rank that needs most."""
        batches = self._setting.batches
        if batches is None:
            return memory(case)
        return batch_memory(case, self._batches(candidate, case, batches), batches.sampler)

    def _batches(self, candidate: Candidate, case: Case, drawn: DrawnBatches) -> list[Case]:
        setting = self._setting
        if not SCHEMES.get(candidate.scheme.name).asks_for_rows:
            return tile_cases(case, candidate.scheme, drawn.tile_sizes())
        sizes = drawn.sizes(setting.parts(candidate, case), case.size)
        source = Source(setting.stored, candidate.partition, setting.direction)
        return batch_cases(case, source, sizes)


def rank_schemes(
    setting: Setting,
    size: int,
    *,
    schemes: Iterable[str] | None = None,
    partitions: Sequence[str] = (),
    estimate: str = "missing",
) -> tuple[list[Ranked], list[Skipped]]:
    """All schemes, grids and replication factors on ``size`` ranks, the fastest first.

    Schemes that need more than the limit of the setting come last, with advice.

    Parameters
    ----------
    schemes : iterable of str, optional
        Only these.
    partitions : sequence of str
        Only these partitions of the folder; empty: all that have the number of parts needed.
    estimate
        As for :func:`candidates`.

    Raises
    ------
    UserError
        If the graph has fewer vertices than ranks, or a partition is not there.
    """
    n = setting.stored.manifest.n
    if size // max(setting.groups(size), default=1) > n:
        raise UserError(f"{size} ranks for {n} vertices: use no more ranks than those")
    ranked, epochs = [], setting.epochs  # without examples, a UserError: of no scheme
    found, skipped = candidates(
        setting, size, schemes=schemes, partitions=partitions, estimate=estimate
    )
    for candidate in found:
        try:
            cost = epochs.cost(candidate, setting.case(candidate, size))
        except UserError as error:
            skip(skipped, candidate, error)
            continue
        ranked.append(Ranked(candidate, cost))
    ranked = _with_advice(setting, ranked, size)
    return sorted(ranked, key=lambda line: (bool(line.advice), line.cost.seconds)), skipped


def skip(skipped: list[Skipped], candidate: Candidate, error: UserError) -> None:
    """Add a scheme that cannot run the network, once for all of its variants."""
    whole = Skipped(candidate.scheme.name, {}, error.message)
    if whole not in skipped:
        skipped.append(whole)


def candidates(
    setting: Setting,
    size: int,
    *,
    schemes: Iterable[str] | None = None,
    partitions: Sequence[str] = (),
    estimate: str = "missing",
) -> tuple[list[Candidate], list[Skipped]]:
    """All variants of all schemes on ``size`` ranks, each with every partition that fits it.

    ``schemes`` and ``partitions`` are as for :func:`rank_schemes`; ``estimate`` says when a scheme
    that needs a partition gets random rows too: where there is none ("missing"), always or never,
    so that it is skipped. A UserError says that a partition is not there, or has a number of parts
    that no scheme needs.
    """
    path = setting.stored.path
    wanted = [each for name in partitions for each in members(path, name)]
    names = wanted or list_partitions(path)
    stored = [read_partition(path, name, parts=False) for name in names]
    found: list[Candidate] = []
    skipped: list[Skipped] = []
    every = setting.groups(size)
    if not every:
        raise UserError(
            f"train.groups = {setting.config.train.groups} does not divide both {size} ranks and "
            "the samples of a step",
            "set task.batch to a multiple of it",
        )
    for groups in every:
        found += _of_group(setting, size // groups, groups, stored, schemes, estimate, skipped)
    used = {candidate.partition.name for candidate in found if candidate.partition}
    for partition in stored if wanted else []:
        if partition.name not in used:
            raise UserError(
                f"partition {partition.name!r} has {partition.k} parts: no scheme takes that "
                f"on {size} ranks",
                f"give one with -k {size}, or none",
            )
    return found, skipped


def _of_group(
    setting: Setting,
    size: int,
    groups: int,
    stored: Sequence[Partition],
    schemes: Iterable[str] | None,
    estimate: str,
    skipped: list[Skipped],
) -> list[Candidate]:
    """The candidates on each of so many groups of ``size`` ranks; partitions that are stored."""
    found: list[Candidate] = []
    several = {"groups": groups} if groups > 1 else {}
    for name in _usable(schemes, skipped):
        for scheme, own, parts in _variants(setting, name, size, skipped):
            options = own | several
            if parts <= 1:
                found.append(Candidate(scheme, options, parts, None, groups=groups))
                continue
            fitting = [partition for partition in stored if partition.k == parts]
            for partition in fitting:
                plain = Candidate(scheme, options, parts, partition, groups=groups)
                found += setting.exchanges(plain, size) or [plain]
            if estimate == "always" or (not fitting and estimate == "missing"):
                random = setting.random_partition(parts)
                facts = scheme, options, parts, random
                found.append(Candidate(*facts, estimated=True, groups=groups))
            elif not fitting:
                reason = f"needs a partition into {parts} parts: gcn-partition add … -k {parts}"
                skipped.append(Skipped(name, options, reason))
    return found


def _usable(schemes: Iterable[str] | None, skipped: list[Skipped]) -> list[str]:
    reasons = SCHEMES.available()
    names = list(reasons) if schemes is None else list(schemes)
    for name in names:
        if name not in reasons:
            SCHEMES.get(name)  # says what there is
        if reasons[name] is not None:
            skipped.append(Skipped(name, {}, str(reasons[name])))
    return [name for name in names if reasons[name] is None]


def _variants(
    setting: Setting, name: str, size: int, skipped: list[Skipped]
) -> list[tuple[SchemeConfig, dict[str, object], int]]:
    """The variants of a scheme that run on so many ranks: options, what tells them apart, parts."""
    given = {k.removeprefix("scheme."): v for k, v in setting.given.items()}
    values = vars(setting.config.scheme) | given | {"name": name}
    entry, wanted = SCHEMES.get(name), chosen(SchemeConfig, SCHEMES, values)
    try:
        variants: list[SchemeConfig] = entry.variants(wanted, size)
    except UserError as error:
        skipped.append(Skipped(name, {}, error.message))
        return []
    own = [key[7:] for key in SCHEMES.keys(name) if key.startswith("scheme.")]
    for option in own:
        if f"scheme.{option}" in setting.given and getattr(wanted, option) != "auto":
            variants = [v for v in variants if getattr(v, option) == getattr(wanted, option)]
    if not variants:
        skipped.append(Skipped(name, {}, f"has no variant on {size} ranks"))
    telling = [f for f in own if len({getattr(v, f) for v in variants}) > 1]
    found = []
    for variant in variants:
        options = {f: getattr(variant, f) for f in telling}
        if isinstance(variant, GridOptions) and variant.grid != "auto":
            options["grid"] = variant.grid
        try:
            found.append((variant, options, entry.parts(variant, size)))
        except UserError as error:
            skipped.append(Skipped(name, options, error.message))
    return found


def _with_advice(setting: Setting, ranked: list[Ranked], size: int) -> list[Ranked]:
    """Add to each that needs more memory than there is how many ranks its scheme takes."""
    enough: dict[str, int | None] = {}
    found = []
    for line in ranked:
        name, needed = line.candidate.scheme.name, line.cost.memory
        if needed > setting.limit:
            if name not in enough:
                enough[name] = ranks_that_suffice(setting, name, size, setting.fits)
            hint = f"use -P {enough[name]}" if enough[name] else "more ranks do not help"
            line = replace(line, advice=f"needs {needed / 1e9:.3g} GB per rank; {hint}")
        found.append(line)
    return found


def ranks_that_suffice(
    setting: Setting, scheme: str, size: int, fits: Fits, estimate: str = "missing"
) -> int | None:
    """``size`` doubled until a variant of a scheme fits the memory of a rank; None: never."""
    for more in (size << times for times in range(1, MOST_DOUBLINGS + 1)):
        if more > setting.stored.manifest.n:
            return None
        found, _ = candidates(setting, more, schemes=[scheme], estimate=estimate)
        for other in found:
            with suppress(UserError):  # of a size that does not suffice
                if fits(other, more):
                    return more
    return None
