"""The 1.5D schemes: block rows that are copied c times, so that each copy has 1/c of the stages.

The grid is (P/c) × c, c = ``scheme.replication``, and the partition has k = P/c parts. Rank i·c + j
holds copy j of block row i of every dense matrix, and of block row i of M the columns of its
share of the k blocks; c divides P, but need not divide k. In a product it multiplies those tiles
with the blocks of H in question, which come from the ranks with the same j, and the c partial sums
of a block row are all-reduced, so that all copies hold the result.

``scheme.sparse = false``: Tripathy, Yelick and Buluç 2020 (CAGNET), section IV-B and algorithm 2.
Blocks are broadcast, as by ``bcast``. A rank receives (rows of its share of blocks, less its own)·d
numbers, about n·d/c, and 2·(c − 1)/c·r·d in the all-reduce of its r ≈ n·c/P rows: the paper's
n·f/c + n·f·c/P, which counts the all-reduce once. ``aggregate_t`` is the same with Mᵀ.

``scheme.sparse = true``: Mukhodopadhyay et al. 2024, section 4.2 and algorithm 2, where line 7
must read NnzCols(l, q). Only the rows travel that the tiles have columns for, point to point: rank
(q, j) with q in the share of j sends to (l, j) the rows NnzCols(l, q), all that part q sends in an
exchange of 1D; the other copies of part q send nothing. A rank receives Σ |NnzCols(i, q)| rows over
the q ≠ i of its share; over the c copies they add up to what part i receives in 1D. The paper
bounds it by P/c²·cut, the largest such number times the stages. ``aggregate_t`` expands in the same
way with the values of Mᵀ where the pattern is symmetric (``scheme.backward``). Else it folds:
partial sums of Mᵀ·G go back to (q, j), whose copy is then complete and is broadcast to the other
c − 1: (c − 1)·r·d numbers in all, where the all-reduce moves 2·(c − 1)·r·d. The rows
that copies send each other are not rounded (``comm.precision``).

A pair of parts meets on one copy only, with all of its entries: so these exchanges can be mixed
(``scheme.exchange``), and send what those of 1D send.

Sums over rows (loss, gradients of weights and biases) count each row once; the products for the
gradients are divided over the copies. Memory: c times the dense matrices of 1D, and M once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import scipy.sparse as sp

from gcnmpi.core.volume import Kept, Volume, broadcast
from gcnmpi.halo.mixed import mixed
from gcnmpi.halo.product import HaloProduct
from gcnmpi.layout.grid import line
from gcnmpi.layout.runtime import Demand, Runtime, Source
from gcnmpi.mpi.comm import agreed
from gcnmpi.options.config import Config
from gcnmpi.options.scheme import ReplicatedOptions
from gcnmpi.schemes.bcast import BroadcastForecast, load_broadcast
from gcnmpi.schemes.block_rows import (
    BlockRowsForecast,
    block_of,
    block_rows,
    copy_of,
    load_halo,
    load_tiles,
    localise,
    needed_rows,
    plan_of,
    share,
)
from gcnmpi.schemes.forecast import (
    Facts,
    Sparse,
    exchange_volume,
    make_facts,
    mixed_ones,
)
from gcnmpi.schemes.interface import Entry
from gcnmpi.schemes.operations import ROWS, SUMS, Operation
from gcnmpi.schemes.row_scheme import RowScheme
from partition.errors import UserError


def load(
    runtime: Runtime,
    source: Source,
    config: Config,
    demand: Demand,
) -> RowScheme:
    """Bring block rows of M to their ranks and plan the exchange.

    Without a partition where k is 1.
    """
    assert isinstance(config.scheme, ReplicatedOptions)
    comm, copies = runtime.comm, config.scheme.replication
    with agreed(comm):
        facts = make_facts(source, config, demand)
    forecast = make_forecast(config.scheme, comm.size, facts)
    options = {
        "name": "replicated",
        "replication": copies,
        "parts": forecast.count,
        "sparse": config.scheme.sparse,
    }
    if isinstance(forecast, BroadcastForecast):
        options |= {"overlap": forecast.overlap}
        return load_broadcast(runtime, source, config, demand, forecast, options)
    options |= {
        "exchange": "mixed" if facts.mixed else "rows",
        "backward": "fold" if facts.folds else "expand",
    }
    max_bytes = config.loading.max_bytes
    tiling = block_rows(comm, source, copies, config, demand)
    # A transpose that is expanded has the pattern of M, and so its plan.
    other = not facts.folds and not facts.one_tile
    forward, *turned = load_tiles(comm, source, tiling, config, transposed=other)
    grid = forecast.count, copies
    column, row = (line(runtime, grid, axis) for axis in (0, 1))
    first = int(tiling.cuts[share(forecast.count, copies, tiling.copy).start])
    plan = plan_of(column.comm, tiling, needed_rows(forward, first, tiling), max_bytes)
    local = localise(forward, first, tiling, plan)
    transposed = None if facts.folds else local
    for backward in turned:
        transposed = localise(backward, first, tiling, plan)
    packings: Sequence[sp.csr_array | None] = (None, None)
    if facts.mixed:
        both = [local] if transposed is None or transposed is local else [local, transposed]
        owners = block_of(plan.halo, tiling)
        plan, both, packings = mixed(column.comm, plan, owners, plan.own, both, max_bytes)
        local, transposed = both[0], None if facts.folds else both[-1]
    products = HaloProduct(runtime.of_group(column.comm), plan, config)
    operands = products.both(local, transposed, packings)
    received = {comm.rank: (plan.nhalo, len(plan.recv_peers))}
    kept = {comm.rank: products.kept}
    halo, entries = load_halo(runtime, source, config, demand, tiling, column, sparse=True)
    halo_kept = {} if halo is None else {comm.rank: halo.kept}
    forecast = dataclasses.replace(forecast, received=received, kept=kept, halo_kept=halo_kept)
    return RowScheme(
        runtime, options, tiling, products, operands, forecast, max_bytes,
        halo=halo, entries=entries,
        replicas=row if copies > 1 else None,
        complete_on=copy_of(forecast.count, copies, tiling.row) if facts.folds else None,
    )  # fmt: skip


def parts_needed(config: ReplicatedOptions, size: int) -> int:
    """P/c parts; a UserError if c does not divide P."""
    copies = config.replication
    if size % copies:
        factors = [str(c) for c in range(1, size + 1) if size % c == 0]
        raise UserError(
            f"scheme.replication = {copies} does not divide the {size} ranks",
            f"use one of {', '.join(factors)}",
        )
    return size // copies


def variants(config: ReplicatedOptions, size: int) -> list[ReplicatedOptions]:
    """Every c > 1 that divides P, with whole blocks and with needed rows only."""
    return [
        dataclasses.replace(config, replication=copies, sparse=sparse)
        for copies in range(2, size + 1)
        if size % copies == 0
        for sparse in (False, True)
    ]


@dataclass(frozen=True)
class NeededForecast(BlockRowsForecast):
    """Needed rows on paper.

    The rows that a rank sends follow exactly from the partition's metrics: all that its part sends
    in 1D, or none. The rows that it receives depend on pairs of parts, which metrics do not have;
    they are taken in proportion to the blocks of its share that are not its own.

    Attributes
    ----------
    received : mapping of int to (int, int)
        Ranks for which it is known: rows that an expand brings, and from how many others.
    kept : mapping of int to Kept
        Ranks for which it is known that some of these need no message.
    halo_kept : mapping of int to Kept
        The same of whole rows of neighbours.
    """

    received: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    kept: Mapping[int, Kept] = field(default_factory=dict)
    halo_kept: Mapping[int, Kept] = field(default_factory=dict)
    own_buffers = pairwise = True

    def buffers(self, rank: int, product: Operation, k: int, *sizes: int) -> int:
        """Halo and packed rows."""
        if product in ROWS:
            block = rank // self.copies
            rows = self.facts.figures["send_rows"][block] + self.facts.figures["recv_rows"][block]
            return self.facts.buffer_bytes(rows, sizes[0])
        if product not in SUMS:
            return 0
        rows = self._received(rank)[0] + self._sent(rank)[0]
        return self.facts.buffer_bytes(rows, sizes[0])

    def _stages(self, rank: int, product: Operation, width: int) -> Volume:
        sent, received = self._sent(rank), self._received(rank)
        back = product == Operation.AGGREGATE_T and self.facts.folds
        if back:
            sent, received = received, sent
        message, row = self.facts.message_bytes(width), self.facts.row_bytes(width)
        volume = Volume(sent[0] * message, received[0] * message, sent[1])
        return self.kept.get(rank, Kept()).off(volume, message, row, back)

    def _rows(self, rank: int, product: Operation, width: int) -> Volume:
        """All that a part sends and receives in 1D, on each copy of it."""
        block, back = rank // self.copies, product == Operation.FOLD
        message, row = self.facts.message_bytes(width), self.facts.row_bytes(width)
        volume = exchange_volume(self.facts.figures, block, message, back)
        return self.halo_kept.get(rank, Kept()).off(volume, message, row, back)

    def _sum(self, rank: int, product: Operation, width: int) -> Volume:
        """An all-reduce; after a fold the broadcast of the copy that is complete."""
        block, copy = divmod(rank, self.copies)
        if product == Operation.AGGREGATE or not self.facts.folds or self.copies == 1:
            return super()._sum(rank, product, width)
        root = copy == copy_of(self.count, self.copies, block)
        return broadcast(self.rows(block) * self.facts.row_bytes(width), self.copies, root)

    def _multiplied(self, rank: int, width: int) -> Sequence[Sparse]:
        """One product with the rows of the share that are there."""
        block, copy = divmod(rank, self.copies)
        own = self.rows(block) if block in share(self.count, self.copies, copy) else 0
        inner = own + self._received(rank)[0]
        entries = self._tile_entries(rank) + mixed_ones(self.facts, block) // self.copies
        return [Sparse(self.rows(block), inner, entries, width)]

    @property
    def _keeps_transpose(self) -> bool:
        return self.facts.folds or not self.facts.one_tile

    def _sent(self, rank: int) -> tuple[int, int]:
        """Rows and messages that an expand takes from a rank."""
        block, copy = divmod(rank, self.copies)
        if block not in share(self.count, self.copies, copy):
            return 0, 0
        return self.facts.figures["send_rows"][block], self.facts.figures["send_messages"][block]

    def _received(self, rank: int) -> tuple[int, int]:
        """Rows that an expand brings, and from how many others."""
        if rank in self.received:
            return self.received[rank]
        block, copy = divmod(rank, self.copies)
        stages = share(self.count, self.copies, copy)
        others, of = len(stages) - (block in stages), max(1, self.count - 1)
        figures = self.facts.figures["recv_rows"][block], self.facts.figures["recv_messages"][block]
        rows, peers = (-(-figure * others // of) for figure in figures)
        return rows, peers


def make_forecast(
    config: ReplicatedOptions, size: int, facts: Facts
) -> BroadcastForecast | NeededForecast:
    """The scheme on paper."""
    if config.sparse:
        return NeededForecast(size, config.replication, facts)
    return BroadcastForecast(size, config.replication, facts, config.overlap)


ENTRY = Entry(load, make_forecast, parts_needed, variants, gives_rows=True)
