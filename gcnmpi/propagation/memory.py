"""The memory of a rank that propagates, forecast from what its method says that it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gcnmpi.layout.arcs import ENTRIES_AT_ONCE
from gcnmpi.layout.place import Place
from gcnmpi.layout.runtime import Demand, Source
from gcnmpi.mpi.comm import Comm
from gcnmpi.options.config import Config
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.planner import loading
from gcnmpi.planner import memory as planned
from gcnmpi.planner.case import sparse_work
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.ranking import Candidate, Setting
from gcnmpi.propagation.interface import Held, Holds
from gcnmpi.propagation.settings import PropagateRequest
from gcnmpi.run.memory_check import Needs, NodeMemory, check_node_memory
from gcnmpi.schemes.forecast import Forecast, make_facts
from gcnmpi.schemes.operations import Operation
from partition.graph.graph import index_dtype

DOUBLE = 8
BY_BANDWIDTH = ("auto", "rcm")  # orders of rows; auto, as there may be many products
# Bytes of an arc, beside its ends, while columns are summed, and of a vertex; more with weights.
SUMMED, SUMMED_VERTEX = (16, 56), (8, 48)
# Bytes of an own vertex: its number, its place among those that are exchanged, its degree.
VERTEX_BYTES = 32


def check_memory(
    comm: Comm,
    source: Source,
    asked: PropagateRequest,
    config: Config,
    tell: Callable[[str], None],
) -> int:
    """Say what a propagation needs, and refuse it where a node has less: see ``check_node_memory``.

    The options of the scheme are resolved; without a file, the result goes to rank 0.
    """
    written = asked.out is not None

    def setting_of(node: NodeMemory) -> tuple[Setting, Needs]:
        machine = Machine(process_bytes=node.process)
        setting = Setting(
            source.stored, config, machine, node.ranks_per_node, features=1, classes=1,
            locality=False,
        )  # fmt: skip

        def needs(candidate: Candidate, size: int) -> int:
            on_it = replace(config, scheme=candidate.scheme)
            other = replace(source, partition=candidate.partition)
            shared = min(size, node.ranks_per_node)
            return node.process + memory(asked, other, on_it, size, shared, written)

        return setting, needs

    return check_node_memory(comm, asked.name, source, config, setting_of, asked.force, tell)


def memory(
    asked: PropagateRequest, source: Source, config: Config, size: int, shared: int, written: bool
) -> int:
    """Peak bytes of the rank that needs most, beside the process itself.

    It is its share of the part vector of the node, and the largest of these: its arcs while they
    are loaded; M and what the method holds; M, the result, and what writes or gathers it. The
    source has the partition into as many parts as the scheme wants; of ``size`` ranks, ``shared``
    share a part vector.
    """
    demand = asked.method.demand
    facts = make_facts(source, config, demand)
    forecast = SCHEMES.get(config.scheme.name).forecast(config.scheme, size, facts)
    holds: Holds = asked.method.holds(source.stored, asked.options)
    n, itemsize = facts.n, np.dtype(config.dtype).itemsize
    # Each rank reads arcs to sum columns, some at a time: of each its ends, who sums it, and where.
    manifest = source.stored.manifest
    some, valued = min(manifest.nnz // size, ENTRIES_AT_ONCE), manifest.valued
    arcs = some * (2 * np.dtype(index_dtype(n)).itemsize + SUMMED[valued])
    arcs += n // size * SUMMED_VERTEX[valued]

    def peak(rank: int) -> int:
        rows = forecast.shape(rank, Place(0), 1)[0]
        held = [_held(forecast, rank, at, config, demand) + at.arcs * arcs for at in holds.moments]
        last = Held(product=holds.moments[-1].product)
        after = _held(forecast, rank, last, config, demand)
        row_bytes = holds.columns * (holds.itemsize or itemsize)
        limit = int(config.loading.max_bytes)
        if written:
            leaves = rows * row_bytes + planned.RESULT_BUFFERS * min(limit, rows * row_bytes)
        else:  # rank 0 receives all rows with their numbers, and brings them in order
            leaves = 2 * rows * row_bytes + (n * (2 * row_bytes + DOUBLE) if rank == 0 else 0)
        if asked.checkpoints is not None:  # is written in pieces, of what is there
            columns = max(DOUBLE * at.doubles for at in holds.moments)
            held.append(max(held) + planned.RESULT_BUFFERS * min(limit, rows * columns))
        matrix = _matrix(forecast, rank, config, demand) + VERTEX_BYTES * rows
        loading = _loading(forecast, rank, source, config, demand)
        return max(loading, matrix + max(*held, after + leaves))

    ranks = set(forecast.ranks()) | ({0} if not written else set())
    return 4 * n // shared + max(map(peak, ranks))


def _loading(forecast: Forecast, rank: int, source: Source, config: Config, demand: Demand) -> int:
    """The most that the rank's arcs take until they are M: on their way, in order, or as M.

    As a training's (:func:`gcnmpi.planner.loading.placed_tiles`), once for products and once for
    whole rows; or placed (:func:`gcnmpi.planner.loading.placed_arcs`), and then sorted.
    """
    manifest = source.stored.manifest
    if not SCHEMES.get(config.scheme.name).loads_by_rows:
        tiles = loading.placed_tiles(forecast.loaded(rank), config)
        if not demand.rows:
            return tiles
        whole = loading.placed_tiles(_whole_rows(forecast, rank)[1], config)
        return max(tiles, planned.tiles_memory(forecast, rank, config) + whole)
    # M beside its pattern by rows and by columns, and what sorts it.
    arcs, one = forecast.loaded(rank), 4 * loading.PATTERN_INDEX + 3 * DOUBLE
    placed = loading.placed_arcs(forecast, rank, config)
    if config.loading.order in BY_BANDWIDTH and not manifest.symmetric_pattern:
        placed += loading.PATTERN_INDEX * forecast.entries(rank)  # the transpose, which it needs
    return max(placed, arcs * one * demand.rows)


def _matrix(forecast: Forecast, rank: int, config: Config, demand: Demand) -> int:
    held = 0
    if demand.products or not SCHEMES.get(config.scheme.name).loads_by_rows:
        held += planned.tiles_memory(forecast, rank, config)
    if demand.rows:
        held += planned.pattern_memory(
            forecast.shape(rank, Place(0), 1)[0], *_whole_rows(forecast, rank)
        )
    return held


def _whole_rows(forecast: Forecast, rank: int) -> tuple[int, int]:
    """Columns and entries of the rows of M of which a rank looks at the neighbours."""
    tiles = sparse_work(forecast, rank, Operation.EXPAND)
    return max(t.inner for t in tiles), sum(t.entries for t in tiles)


def _held(forecast: Forecast, rank: int, held: Held, config: Config, demand: Demand) -> int:
    """Bytes of a moment: columns of own rows, the operand of a product, what is read."""
    rows, itemsize = forecast.shape(rank, Place(0), 1)[0], np.dtype(config.dtype).itemsize
    taken = rows * (DOUBLE * held.doubles + itemsize * held.numbers)
    if held.product:
        kind = Operation.AGGREGATE if demand.products else Operation.EXPAND
        taken += rows * held.product * itemsize + forecast.buffers(rank, kind, 1, held.product)
        taken += forecast.reduction_scratch(rank, kind, 1, held.product)
    if held.file is not None:
        width, each = held.file
        normalised = config.graph.feature_norm == "row"
        taken += loading.arriving_rows(rows, width, width, each, config, normalised)
    return taken
