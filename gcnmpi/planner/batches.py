"""The cost of mini-batches: some are drawn, and the cost model is asked for each.

A batch is to the cost model what an epoch of full batches is: the program of the network, on the
rows, entries and halos that each layer of the batch has (:class:`BatchForecast`). To its seconds
come two terms that full batches do not have:

====== ===========================================================================================
term   seconds per batch
====== ===========================================================================================
sample drawing and cutting it: a constant a layer, and for each entry that is kept or looked at
       (``Machine.drawing_seconds``), where relations are told apart for each arc and each group of
       arcs of one relation into a row; asking for rows: for each layer two all-to-alls, of counts
       and of ids; and the sum of the rows of all ranks
bind   a constant for each step of the program, and for some beside it: matrices are made anew for
       each batch
====== ===========================================================================================

Where ``train.batches`` has few batches an epoch, all of the first epoch are drawn, and bytes and
messages are those that a run counts in it. Otherwise ``DRAWN`` stand for all. Drawing them takes
the arcs of the graph, on one process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gcnmpi.core.volume import Volume
from gcnmpi.layout.place import Place
from gcnmpi.layout.runtime import Demand, Source
from gcnmpi.nn.compile.on_scheme import batch_program, check_batches, told_apart
from gcnmpi.nn.network import Network
from gcnmpi.nn.program import INPUT
from gcnmpi.options.config import Config
from gcnmpi.options.scheme import SCHEMES, SchemeConfig
from gcnmpi.options.train import batches_of, sampler_of
from gcnmpi.planner.batch_memory import batch_memory, sizes_of
from gcnmpi.planner.case import Case
from gcnmpi.planner.costmodel import Cost, cost_of, evaluation_seconds, step_seconds
from gcnmpi.schemes.forecast import Span, make_facts
from gcnmpi.schemes.sampled_forecast import BatchForecast, BatchSizes, TileSizes, busiest
from partition.graph.graph import of_split, row_sizes, training_rows
from partition.graph.metrics import (
    Drawn,
    draw_batch,
    kept_pairs,
    measure_batch,
    observe,
    rows_within,
)
from partition.graph.sampling import Sampler, sides
from partition.graph.store import StoredGraph, member, read_partition

DRAWN = 8  # batches that stand for all of an epoch
# Share of drawing that a thread of its own hides: both threads take turns at Python.
HIDDEN = 0.6
# As many steps as a batch takes beside those of its program: features, labels, loss, update.
BESIDE = 16
ASKED_BYTES = 8  # of the number of a row that is asked for
OWN_BYTES = 9  # read of each own row, to see whether it is in a batch


@dataclass(frozen=True)
class DrawnBatches:
    """Batches of the first epoch.

    Attributes
    ----------
    weights : tuple of float
        How many batches of an epoch each stands for.
    trains : tuple of bool
        Whether there is something in it that trains; otherwise a run draws it, and no more.
    looked_at : (n,) integers
        Entries of each row of M.
    observed : tuple of Drawn
        By which the rows of others are chosen that ranks keep; empty, if they keep none.
    kept_rows : int
        How many of these a rank keeps at most.
    """

    sampler: Sampler
    weights: tuple[float, ...]
    drawn: tuple[Drawn, ...]
    trains: tuple[bool, ...]
    looked_at: np.ndarray
    direction: str
    observed: tuple[Drawn, ...] = ()
    kept_rows: int = 0

    def sizes(self, parts: np.ndarray, k: int) -> list[BatchSizes]:
        """The sizes of each batch under a partition into k parts."""
        found, kept = list[BatchSizes](), None
        if self.observed:
            kept = kept_pairs(self.observed, parts, k, self.kept_rows)
        for drawn in self.drawn:
            layers = measure_batch(drawn, parts, k, self.direction, kept)
            first = np.bincount(parts[drawn.first], minlength=k).tolist()
            looked_at = []
            for rows in drawn.computed:
                entries = np.bincount(parts[rows], weights=self.looked_at[rows], minlength=k)
                looked_at.append(entries.astype(np.int64).tolist())
            groups = [
                np.bincount(parts[pattern.groups], minlength=k).tolist()
                for pattern in drawn.patterns
                if pattern.groups is not None
            ]
            found.append(BatchSizes(first, layers, looked_at, self.sampler.layered, groups))
        return found

    def tile_sizes(self) -> list[TileSizes]:
        """The sizes of each batch where tiles are cut, with a full diagonal of M."""
        return [
            TileSizes(len(drawn.first), len(drawn.patterns[0].rows) + len(drawn.first))
            for drawn in self.drawn
        ]


def draw_batches(
    stored: StoredGraph, config: Config, network: Network, direction: str
) -> DrawnBatches:
    """Draw batches of a run's first epoch: all, or the first ones and the last.

    A UserError says that ``train.batches`` does not fit the network or the graph, or names a
    partition that is not there.
    """
    program = batch_program(network, config, False)
    graph = stored.graph if program.needs_groups else stored.merged
    if graph.splits > 1:
        graph = of_split(graph, config.train.split)
    trained = training_rows(graph)
    seeds = np.arange(graph.n) if trained is None else np.flatnonzero(trained)
    wanted, clusters = batches_of(config.train), None
    assert wanted is not None
    if wanted.clusters:
        clusters = read_partition(stored.path, member(stored.path, wanted.clusters)).parts
    relations = told_apart(network, stored)
    sampler = sampler_of(config.train, graph.n, len(seeds), clusters, relations)
    check_batches(config, sampler.fanouts, program)
    side = sides(graph, direction, sampler.side, program.needs_groups)
    some = min(DRAWN, sampler.batches)
    # The last batch may be smaller: it stands for itself, the first ones for all others.
    numbers = [*range(some - 1), sampler.batches - 1]
    weights = [*[(sampler.batches - 1) / max(1, some - 1)] * (some - 1), 1.0]
    among = seeds if sampler.layered else None
    drawn = tuple(draw_batch(sampler, side, 1, number, among) for number in numbers)
    trains = tuple(trained is None or bool(trained[one.first].any()) for one in drawn)
    looked_at, manifest = row_sizes(graph, direction), stored.manifest
    sizes = manifest.inputs, manifest.feature_entries, manifest.n
    rows = rows_within(config.train.cache_mb, *sizes, np.dtype(config.dtype).itemsize)
    seen = tuple(observe(sampler, side, among)) if rows else ()
    return DrawnBatches(sampler, tuple(weights), drawn, trains, looked_at, direction, seen, rows)


def expected_sizes(stored: StoredGraph, config: Config) -> TileSizes | None:
    """The mean sizes of a batch that is cut out of tiles, with no batch drawn.

    Clusters are taken to have no arcs between them. None where there are no such batches.
    """
    wanted, manifest = batches_of(config.train), stored.manifest
    if wanted is None or wanted.layered:
        return None
    clusters = None
    if wanted.clusters:
        finer = read_partition(stored.path, member(stored.path, wanted.clusters), parts=False)
        clusters = np.arange(finer.k)  # a vertex each: the sampler looks at their number
    sampler = sampler_of(config.train, manifest.n, manifest.n, clusters)
    share = sampler.size / sampler.n
    inside = share if clusters is not None else share * (sampler.size - 1) / max(1, sampler.n - 1)
    rows = round(share * manifest.n)
    return TileSizes(rows, rows + round(inside * manifest.nnz))


def tile_cases(case: Case, scheme: SchemeConfig, batches: Sequence[TileSizes]) -> list[Case]:
    """The case of each batch of a scheme of tiles: the same one on fewer rows and entries.

    Blocks are as large as they are on average.
    """
    facts = case.forecast.facts
    entry, found = SCHEMES.get(scheme.name), []
    for sizes in batches:
        metrics = None
        if facts.metrics is not None:
            bounds = np.cumsum([0, *facts.metrics["rows"]]) * sizes.rows // facts.n
            metrics = {"rows": np.diff(bounds).tolist()}
        smaller = replace(facts, n=sizes.rows, entries=sizes.entries, metrics=metrics)
        forecast = entry.forecast(scheme, case.size, smaller)
        work = replace(case.work, n=sizes.rows, distances=None)
        found.append(replace(case, forecast=forecast, work=work))
    return found


def batch_cases(
    case: Case, source: Source, batches: Sequence[BatchSizes] | Sequence[TileSizes]
) -> list[Case]:
    """The case of each batch for the cost model, from the case of full batches."""
    tiles = [sizes for sizes in batches if isinstance(sizes, TileSizes)]
    rows = [sizes for sizes in batches if isinstance(sizes, BatchSizes)]
    if tiles:
        return tile_cases(case, case.work.config.scheme, tiles)
    return _row_cases(case, source, rows)


def _row_cases(case: Case, source: Source, batches: Sequence[BatchSizes]) -> list[Case]:
    config, layered = case.work.config, batches[0].layered
    program, work = case.program, case.work
    if layered:  # seeds train, all of them
        program = batch_program(work.network, config, bool(program.sparse))
        work = replace(work, train_share=1.0)
    facts, ranks = make_facts(source, config, Demand()), busiest(batches, case.size)
    forecasts = (BatchForecast(case.size, facts, sizes, ranks) for sizes in batches)
    return [replace(case, forecast=one, work=work, program=program) for one in forecasts]


def predict_batches(case: Case, cases: Sequence[Case], drawn: DrawnBatches) -> Cost:
    """The cost of an epoch of mini-batches.

    The network is evaluated by the case of full batches; ``cases`` are those of the batches that
    were drawn.
    """
    phases: Counter[str] = Counter()
    moved: dict[int, Counter[str]] = {rank: Counter() for rank in cases[0].forecast.ranks()}
    for one, weight, trains in zip(cases, drawn.weights, drawn.trains, strict=True):
        seconds, volumes = step_seconds(one, list(moved)) if trains else ({}, {})
        if trains:
            seconds["bind"] = one.machine.batch_step * (len(one.steps) + BESIDE)
            seconds["passes"] += max(_features_seconds(one, rank) for rank in moved)
        seconds["sample"] = max(_sample_seconds(case, one, drawn.sampler, rank) for rank in moved)
        seconds["sample"] -= _hidden_seconds(one, seconds, drawn.sampler.batches)
        for name, value in seconds.items():
            phases[name] += weight * value  # type: ignore[assignment]
        for rank, volume in volumes.items():
            for name, figure in vars(volume).items():
                moved[rank][name] += weight * figure
    epoch = {
        rank: Volume(**{name: round(figure) for name, figure in figures.items()})
        for rank, figures in moved.items()
    }
    needed = batch_memory(case, cases, drawn.sampler)
    return cost_of(cases[0], phases, epoch, needed, evaluation_seconds(case))


def _features_seconds(one: Case, rank: int) -> float:
    """Seconds of reading the rows of H⁰ that a batch has, and writing them one after the other."""
    first = one.program.values[INPUT]
    if one.program.sparse:
        return 0.0
    numbers = one.piece_numbers(rank, first.place, first.width)
    return one.machine.copy_seconds(2 * numbers * one.work.itemsize)


def _hidden_seconds(one: Case, seconds: Mapping[str, float], batches: int) -> float:
    """Seconds of drawing a batch that are hidden behind the one before it, on the average.

    The first one of an epoch has none before it.
    """
    wanted = one.work.config.train.draw_ahead
    if wanted == "no" or (wanted == "auto" and not one.machine.free_cores):
        return 0.0
    others = sum(value for name, value in seconds.items() if name != "sample")
    return HIDDEN * min(seconds["sample"], others) * (batches - 1) / batches


def _sample_seconds(case: Case, one: Case, sampler: Sampler, rank: int) -> float:
    """Seconds of drawing a batch on a rank, of cutting it, and of asking for rows of others."""
    if not isinstance(one.forecast, BatchForecast):
        return _tile_seconds(case, one, sampler, rank)
    machine, sizes = one.machine, sizes_of(one)
    own = case.rows(rank, Place(0))
    # Each epoch numbers the batches of own rows, and each batch looks for its own.
    seconds = machine.hashed_entry * own / sampler.batches + machine.copy_seconds(OWN_BYTES * own)
    for hop, layer in enumerate(sizes.layers):
        rule = sampler.rule((1, 0, hop))
        looked_at = sizes.looked_at[hop][rank]
        groups = sizes.groups[hop][rank] if sizes.groups else None
        seconds += machine.drawing_seconds(layer.nnz[rank], looked_at, rule, groups)
        if one.size > 1:
            asked = Volume(
                ASKED_BYTES * layer.recv_rows[rank],
                ASKED_BYTES * layer.send_rows[rank],
                2 * (one.size - 1),
            )
            span = [Span(one.size, 1, all_pairs=True)]
            seconds += machine.transfer_seconds(asked, span, one.ranks_per_node)
    counts = 8 * (3 + len(sizes.layers))
    return seconds + machine.all_reduce_seconds(counts, one.size, one.ranks_per_node)


def _tile_seconds(case: Case, one: Case, sampler: Sampler, rank: int) -> float:
    """Seconds of cutting a batch out of tiles, and of the sum that says how large its blocks are.

    Each epoch hashes the vertices of the sides of the tiles; each batch reads the entries of its
    rows of the tiles.
    """
    machine, share = one.machine, one.work.n / case.work.n
    sides = case.forecast.sides(rank)
    looked_at, kept = share * case.forecast.entries(rank), one.forecast.entries(rank)
    seconds = machine.hashed_entry * sides / sampler.batches + machine.batch_hop
    seconds += machine.read_entry * looked_at + machine.drawn_entry * kept
    return seconds + machine.all_reduce_seconds(8 * (2 + one.size), one.size, one.ranks_per_node)
