"""Block rows, each on one rank or copied to several: what ``bcast`` and ``replicated`` share.

The ranks are a (P/c) × c grid. Rank i·c + j holds copy j of block row i of every dense matrix. The
k = P/c column blocks of M are **stages**; they are divided over the copies, and rank i·c + j has
those of its share of block row i of M. A product is: the blocks of the share, or the needed rows
of them, arrive from the ranks of the same copy j (a process column of the grid); are multiplied;
and the c partial sums of a block row are added up (in a process row of it).

A maximum or a softmax over neighbours is no such sum; for it every copy of a block brings all rows
that its block needs, from the ranks of its own process column, and does all of the work: c times
the traffic of one copy.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.volume import NOTHING, Volume, all_reduce
from gcnmpi.halo.exchange import agree_on_plan
from gcnmpi.halo.plan import Plan
from gcnmpi.halo.product import HaloProduct
from gcnmpi.halo.rows import BroadcastHalo, ExchangedHalo, Halo
from gcnmpi.layout.arcs import entries_of_m
from gcnmpi.layout.entries import EntryRows, load_entry_rows
from gcnmpi.layout.loading import STEP
from gcnmpi.layout.place import Place
from gcnmpi.layout.placing import Arriving
from gcnmpi.layout.runtime import Demand, Runtime, Source
from gcnmpi.layout.tiling import (
    Ordering,
    Tiling,
    ordered_blocks,
    partition_ordering,
    sparse_tile,
)
from gcnmpi.mpi.collectives import Group, reduction_scratch
from gcnmpi.mpi.comm import Comm, slice_of
from gcnmpi.options.config import Config
from gcnmpi.schemes.forecast import Dense, Facts, Forecast, Span, Sparse, whole_row_work
from gcnmpi.schemes.operations import ROWS, SUMS, Operation
from partition.errors import UserError
from partition.graph.graph import index_dtype
from partition.graph.store import Partition


def share(count: int, copies: int, copy: int) -> range:
    """The stages of a copy: all ``count`` divided as evenly as can be, each on one copy.

    >>> [list(share(5, 3, copy)) for copy in range(3)]
    [[0], [1, 2], [3, 4]]
    """
    part = slice_of(count, copy, copies)
    return range(part.start, part.stop)


def copy_of(count: int, copies: int, stage: int) -> int:
    """The copy whose share a stage is in.

    >>> [copy_of(5, 3, stage) for stage in range(5)]
    [0, 1, 1, 2, 2]
    """
    return ((stage + 1) * copies - 1) // count


def check_blocks(partition: Partition | None, count: int) -> None:
    """A UserError unless the parts make so many blocks of as many parts each."""
    if partition is not None and partition.k % count:
        raise UserError(
            f"partition {partition.name!r} has {partition.k} parts, which do not make "
            f"{count} blocks of as many parts each",
            f"use one with -k {count} or a multiple of it, or none",
        )


def block_rows(comm: Comm, source: Source, copies: int, config: Config, demand: Demand) -> Tiling:
    """The layout: blocks of parts, or of ranges of vertices, each ``copies`` times."""
    stored = source.stored
    ordering = Ordering(stored.graph.n)
    if source.partition is not None:
        ordering = partition_ordering(comm, stored, source.partition)
    count = comm.size // copies
    holders = np.arange(comm.size).reshape(count, 1, copies)
    cuts = ordering.cuts(count)
    blocks = ordering, cuts, holders[:, 0, 0]
    visits = demand.visits(config.train.epochs)
    ordering = ordered_blocks(comm, stored, *blocks, config.loading, visits)
    row, copy = divmod(comm.rank, copies)
    return Tiling(ordering, cuts, holders, row, 0, copy)


def load_tiles(
    comm: Comm, source: Source, tiling: Tiling, config: Config, transposed: bool
) -> Iterator[sp.csr_array]:
    """This rank's rows of M, and of Mᵀ if asked for, in the columns of its share of the stages.

    Columns count from the beginning of the share. One after the other: the second is made when the
    first one has been taken.
    """
    count, _, copies = tiling.holders.shape
    begins = [share(count, copies, copy).start for copy in range(copies)]
    columns = tiling.ordering, tiling.cuts[[*begins, count]]
    holders = tiling.holders.reshape(count, copies, 1)
    sides = (tiling.ordering, tiling.cuts), columns, holders, (tiling.row, tiling.copy)
    with entries_of_m(comm, source, config.graph, config.loading.max_bytes) as entries:
        yield sparse_tile(entries, *sides, config.dtype)
        if transposed:
            yield sparse_tile(entries.transposed, *sides, config.dtype)


@dataclass(frozen=True)
class BlockRowsForecast(Forecast):
    """The layout on paper, and the products that do not depend on how blocks travel.

    Attributes
    ----------
    size : int
        P.
    copies : int
        c.
    facts : Facts
        Blocks are groups of parts where k divides their number, else of equal size.
    """

    size: int
    copies: int
    facts: Facts
    pairwise = False  # whether blocks of a process column meet in messages of two ranks

    @property
    def count(self) -> int:
        """k, the number of block rows."""
        return self.size // self.copies

    @cached_property
    def bounds(self) -> np.ndarray:
        """Where blocks begin, (k + 1,) int64."""
        return block_bounds(self.facts, self.count)

    def rows(self, block: int) -> int:
        """Rows of a block."""
        return int(self.bounds[block + 1] - self.bounds[block])

    def ranks(self) -> Sequence[int]:
        """Of blocks extreme in a figure: the copy that sends, another, and the one with most."""
        figures = [np.diff(self.bounds), -np.diff(self.bounds)]
        names = ("nnz", "send_rows", "recv_rows")
        figures += [figure for name in names if (figure := self._grouped(name)) is not None]
        blocks = {int(np.argmax(figure)) for figure in figures}
        most = max(range(self.copies), key=self._share_rows)
        found = set()
        for block in blocks:
            sender = copy_of(self.count, self.copies, block)
            for copy in (sender, (sender + 1) % self.copies, most):
                found.add(block * self.copies + copy)
        return sorted(found)

    def volume(self, rank: int, product: Operation, k: int, *sizes: int) -> Volume:
        """The blocks or rows of the stages, and the sum over copies."""
        if product in ROWS:
            return self._rows(rank, product, sizes[0])
        if product not in SUMS:
            return NOTHING
        return self._stages(rank, product, sizes[0]) + self._sum(rank, product, sizes[0])

    def span(self, product: Operation, k: int) -> Sequence[Span]:
        """A process column, then a process row."""
        if product in ROWS:
            return [Span(self.count, self.copies, all_pairs=self.pairwise)]
        if product not in SUMS:
            return []
        return [Span(self.count, self.copies, all_pairs=self.pairwise), Span(self.copies, 1)]

    def work(self, rank: int, product: Operation, k: int, *sizes: int) -> Sequence[Sparse | Dense]:
        """The stages of a share; dense products of own rows; a copy's part of them in gradients.

        Whole rows are not shared: each copy has all entries.
        """
        rows = self.rows(rank // self.copies)
        if product in ROWS:
            return list(self._multiplied(rank, sizes[0])) * self.copies
        if product in SUMS:
            return self._multiplied(rank, sizes[0])
        if product == Operation.WEIGHT_GRAD:
            rows = -(-rows // self.copies)
        return whole_row_work(rows, product, *sizes)

    def shape(self, rank: int, place: Place, width: int) -> tuple[int, int]:
        """All columns of own rows, of these and the halo, of arcs into them, or of their groups."""
        block = rank // self.copies
        figures = self.rows(block), self._halo_rows(block), self._block_entries(block)
        return self.facts.rows_in(place.space, *figures), width

    def entries(self, rank: int) -> int:
        """Own rows of M in the columns of the share, and of Mᵀ; for c > 1 an average."""
        return self._tile_entries(rank) * (2 if self._keeps_transpose else 1)

    def loaded(self, rank: int) -> int:
        """The same, and those that move."""
        if self.facts.owned is None:
            return self.entries(rank)
        block, copy = divmod(rank, self.copies)
        mine = self.facts.owned[block] * self._share_rows(copy) // max(1, self.facts.n)
        return mine * (2 if self._keeps_transpose else 1)

    def reduction_scratch(self, rank: int, product: Operation, k: int, *sizes: int) -> int:
        """The sum over copies, which after a fold is none."""
        if product not in SUMS or self.copies == 1:
            return 0
        return reduction_scratch(self.rows(rank // self.copies) * sizes[0] * self.facts.itemsize)

    @abstractmethod
    def _rows(self, rank: int, product: Operation, width: int) -> Volume:
        """Volume of whole rows of neighbours ("expand"), or of their gradients back."""

    @abstractmethod
    def _stages(self, rank: int, product: Operation, width: int) -> Volume:
        """Volume of a rank's share of the stages."""

    @abstractmethod
    def _multiplied(self, rank: int, width: int) -> Sequence[Sparse | Dense]:
        """The products of its share of the stages."""

    def _sum(self, rank: int, product: Operation, width: int) -> Volume:
        """An all-reduce of the own rows over the copies."""
        if self.copies == 1:
            return NOTHING
        nbytes = self.rows(rank // self.copies) * self.facts.row_bytes(width)
        return all_reduce(nbytes, self.copies)

    @property
    def _keeps_transpose(self) -> bool:
        return not self.facts.one_tile

    def _share_rows(self, copy: int) -> int:
        """Rows of H that a copy multiplies with."""
        stages = share(self.count, self.copies, copy)
        return int(self.bounds[stages.stop] - self.bounds[stages.start])

    def _tile_entries(self, rank: int) -> int:
        block, copy = divmod(rank, self.copies)
        return self._block_entries(block) * self._share_rows(copy) // max(1, self.facts.n)

    def _block_entries(self, block: int) -> int:
        entries = self._grouped("nnz")
        if entries is None:
            return self.facts.entries * self.rows(block) // max(1, self.facts.n)
        return int(entries[block])

    def _halo_rows(self, block: int) -> int:
        """Whole rows of others that a block needs, at most; all without a partition."""
        others, needed = self.facts.n - self.rows(block), self._grouped("recv_rows")
        return others if needed is None else min(int(needed[block]), others)

    def _grouped(self, name: str) -> np.ndarray | None:
        """A figure of the partition for each block, if it can be grouped into them."""
        return _grouped(self.facts, name, self.count)


def block_bounds(facts: Facts, count: int) -> np.ndarray:
    """Where blocks begin, (count + 1,) int64: see ``BlockRowsForecast.facts``."""
    rows = _grouped(facts, "rows", count)
    if rows is None:
        return np.array([slice_of(facts.n, i, count).start for i in range(count)] + [facts.n])
    return np.concatenate(([0], np.cumsum(rows)))


def _grouped(facts: Facts, name: str, count: int) -> np.ndarray | None:
    """A figure of the partition for each of so many blocks, if it can be grouped into them."""
    metrics = facts.metrics
    if metrics is None or len(metrics[name]) % count:
        return None
    return np.array(metrics[name], np.int64).reshape(count, -1).sum(axis=1)


def load_halo(
    runtime: Runtime,
    source: Source,
    config: Config,
    demand: Demand,
    tiling: Tiling,
    column: Group,
    sparse: bool,
) -> tuple[Halo | None, EntryRows | None]:
    """The halo of this rank's block row, within the process column of its copy; and its entries.

    Both where they are asked for. Rows travel point to point to the ranks that need them
    (``sparse``), or whole blocks to all.
    """
    if not demand.rows:
        return None, None
    comm, max_bytes = runtime.comm, config.loading.max_bytes
    # The pattern alone: no degrees.
    options = dataclasses.replace(config.graph, normalize="none")
    n, cuts = tiling.ordering.n, tiling.cuts
    sides = (tiling.ordering, cuts), (tiling.ordering, np.array([0, n]))
    with entries_of_m(comm, source, options, max_bytes) as entries:
        tile = sparse_tile(entries, *sides, tiling.holders, (tiling.row, 0), config.dtype)
    needed = needed_rows(tile, 0, tiling)
    plan = plan_of(column.comm, tiling, needed, max_bytes)
    pattern = localise(tile, 0, tiling, plan)
    ends = tiling.vertices, _vertices(tiling, plan.halo)
    ids = np.concatenate(ends)
    found, groups = None, None
    if demand.entries:

        def owners(rows: np.ndarray) -> list[np.ndarray]:
            blocks = block_of(tiling.ordering.positions(rows), tiling)
            return list(tiling.holders[blocks, 0].T)

        arriving = Arriving(comm, source, owners, max_bytes)
        found = load_entry_rows(arriving, config.graph.self_loops, *ends, demand)
        pattern, groups = found.pattern(), found.groups
    if sparse:
        of_column = runtime.of_group(column.comm)
        products = HaloProduct(of_column, plan, config)
        return ExchangedHalo(runtime, products, pattern, ids, groups), found
    rows = np.diff(cuts).tolist()
    return BroadcastHalo(runtime, column, rows, cuts[:-1], plan, pattern, ids, groups), found


def needed_rows(tile: sp.csr_array, first: int, tiling: Tiling) -> np.ndarray:
    """Positions of the rows of other blocks that a tile has entries for, increasing.

    The tile has own rows; its columns count from position ``first``.
    """
    needed = np.unique(tile.indices).astype(np.int64) + first
    return np.setdiff1d(needed, np.arange(*_own(tiling)), assume_unique=True)


def plan_of(column: Comm, tiling: Tiling, needed: np.ndarray, max_bytes: float) -> Plan:
    """The exchange within a process column, whose rank q holds block q; by positions, not ids."""
    own, owners = np.arange(*_own(tiling)), block_of(needed, tiling)
    return agree_on_plan(column, own, needed, owners, max_bytes)


def localise(tile: sp.csr_array, first: int, tiling: Tiling, plan: Plan) -> sp.csr_array:
    """A tile over the plan's local columns, own ones first: (nown, nown + nhalo)."""
    shape = (plan.nown, plan.nown + plan.nhalo)
    start, stop = _own(tiling)
    column = np.empty(tile.nnz, index_dtype(shape[1]))
    for at in range(0, tile.nnz, STEP):
        place = tile.indices[at : at + STEP].astype(np.int64) + first
        own = (place >= start) & (place < stop)
        halo = plan.nown + np.searchsorted(plan.halo, place)
        column[at : at + STEP] = np.where(own, place - start, halo)
    matrix = sp.csr_array((tile.data, column, tile.indptr), shape=shape)
    matrix.sort_indices()
    return matrix


def block_of(positions: np.ndarray, tiling: Tiling) -> np.ndarray:
    """The block that each position is in."""
    return np.searchsorted(tiling.cuts, positions, side="right") - 1


def _own(tiling: Tiling) -> tuple[int, int]:
    return int(tiling.cuts[tiling.row]), int(tiling.cuts[tiling.row + 1])


def _vertices(tiling: Tiling, positions: np.ndarray) -> np.ndarray:
    """Ids of the vertices at increasing positions, block by block."""
    found = np.empty(len(positions), tiling.vertices.dtype)
    blocks = block_of(positions, tiling)
    for block in np.unique(blocks):
        some = blocks == block
        start, stop = tiling.cuts[block : block + 2].tolist()
        found[some] = tiling.ordering.vertices(start, stop)[positions[some] - start]
    return found
