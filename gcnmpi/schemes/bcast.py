"""The 1D scheme of broadcasts: every block row of H goes to everybody.

Tripathy, Yelick and Buluç 2020 (CAGNET), section IV-A and algorithm 1. Rank r holds block row r of
M, of Mᵀ where M is not symmetric, and of every dense matrix; weights are replicated. A product has
P stages: in stage j rank j broadcasts its block H_j, and every rank r adds M[r, j]·H_j to its
result, in the order of stages. ``aggregate_t`` is the same with Mᵀ. Stages of empty blocks are left
out.

A rank receives (n − own rows)·d numbers in each product: the paper's (P − 1)/P·n·d for equal
blocks, the same for every P. In our count a rank sends its block to P − 1 others, in as many
messages, whatever tree or ring the library uses; the paper's α·(P − 1) is the number of stages.

With ``scheme.overlap`` two stages are under way at any time, as in Balın, Sancak and Çatalyürek
2021 (MG-GCN), section 4.3: block j + 1 travels into a second buffer while block j is multiplied.
An owner broadcasts from the matrix itself. Both ways give the same bits. A library that works on
broadcasts only inside MPI calls moves both blocks while the first one is waited for.

Blocks are those of a partition whose number of parts is a multiple of P (neighbouring parts are
grouped), or without one P ranges of vertices of equal size. A random partition into P parts is
MG-GCN's permutation, which balances the entries of the tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.volume import Volume, broadcast, reduction
from gcnmpi.halo.matrix import Matrix
from gcnmpi.kernels.epilogues import Epilogue
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.kernels.interface.kernel import Sparse as Tile
from gcnmpi.kernels.rows import STEP, Grouped, entry_rows, group_counts
from gcnmpi.layout.grid import line
from gcnmpi.layout.place import Place
from gcnmpi.layout.runtime import Demand, Runtime, Source
from gcnmpi.mpi.collectives import Group, Pending
from gcnmpi.mpi.comm import agreed
from gcnmpi.options.config import Config
from gcnmpi.options.scheme import OverlapOptions
from gcnmpi.schemes.block_rows import (
    BlockRowsForecast,
    block_rows,
    check_blocks,
    load_halo,
    load_tiles,
    share,
)
from gcnmpi.schemes.forecast import Facts, Sparse, make_facts
from gcnmpi.schemes.interface import Entry
from gcnmpi.schemes.operations import ROWS, SUMS, Operation
from gcnmpi.schemes.row_scheme import RowScheme


def load(
    runtime: Runtime,
    source: Source,
    config: Config,
    demand: Demand,
) -> RowScheme:
    """Bring every block row of M to its rank; the parts are grouped into a block for each rank."""
    comm = runtime.comm
    with agreed(comm):
        check_blocks(source.partition, comm.size)
        facts = make_facts(source, config, demand)
    assert isinstance(config.scheme, OverlapOptions)
    overlap = config.scheme.overlap
    forecast = BroadcastForecast(comm.size, 1, facts, overlap)
    options = {"name": "bcast", "overlap": overlap}
    return load_broadcast(runtime, source, config, demand, forecast, options)


def load_broadcast(
    runtime: Runtime,
    source: Source,
    config: Config,
    demand: Demand,
    forecast: BroadcastForecast,
    options: dict[str, object],
) -> RowScheme:
    """The scheme of a forecast, also one with copies."""
    comm = runtime.comm
    tiling = block_rows(comm, source, forecast.copies, config, demand)
    transposed = not forecast.facts.one_tile
    grid = forecast.count, forecast.copies
    column, row = (line(runtime, grid, axis) for axis in (0, 1))
    stages = share(forecast.count, forecast.copies, tiling.copy)
    products = Broadcasts(runtime, column, tiling.cuts, stages, forecast.overlap)
    made = [products.tiles(one) for one in load_tiles(comm, source, tiling, config, transposed)]
    operands = [made[0], made[-1]]  # M, which may be Mᵀ too
    max_bytes = config.loading.max_bytes
    halo, entries = load_halo(runtime, source, config, demand, tiling, column, sparse=False)
    return RowScheme(
        runtime, options, tiling, products, operands, forecast, max_bytes,
        halo=halo, entries=entries,
        replicas=row if forecast.copies > 1 else None,
    )  # fmt: skip


@dataclass(frozen=True)
class BroadcastForecast(BlockRowsForecast):
    """Whole blocks on paper: those of ``bcast``, and with copies those of ``replicated``.

    A rank receives (rows of the blocks of its share, less its own)·d numbers in the stages.
    """

    overlap: bool

    def buffers(self, rank: int, product: Operation, k: int, *sizes: int) -> int:
        """A block of another rank, the largest of the share; with overlap of every other one."""
        if product in ROWS:
            return self._rows_buffers(rank, self.facts.row_bytes(sizes[0]))
        if product not in SUMS:
            return 0
        block, copy = divmod(rank, self.copies)
        stages = [s for s in share(self.count, self.copies, copy) if self.rows(s)]
        turns = [stages[::2], stages[1::2]] if self.overlap else [stages]
        largest = [max((self.rows(s) for s in turn if s != block), default=0) for turn in turns]
        return sum(largest) * sizes[0] * self.facts.itemsize

    def _rows(self, rank: int, product: Operation, width: int) -> Volume:
        """A broadcast of every block, or a reduction to it."""
        moved, block, row_bytes = Volume(), rank // self.copies, self.facts.row_bytes(width)
        collective = broadcast if product == Operation.EXPAND else reduction
        for other in range(self.count):
            moved += collective(self.rows(other) * row_bytes, self.count, other == block)
        return moved

    def _rows_buffers(self, rank: int, row_bytes: int) -> int:
        """The halo, its gradient, and the largest block of another rank."""
        block = rank // self.copies
        others = [self.rows(other) for other in range(self.count) if other != block]
        return (self._halo_rows(block) + max(others, default=0)) * row_bytes

    def _stages(self, rank: int, product: Operation, width: int) -> Volume:
        (block, copy), row_bytes = divmod(rank, self.copies), self.facts.row_bytes(width)
        received, volume = self._share_rows(copy), Volume()
        if block in share(self.count, self.copies, copy) and self.rows(block):
            received -= self.rows(block)
            volume = broadcast(self.rows(block) * row_bytes, self.count, root=True)
        return volume + Volume(received=received * row_bytes)

    def _multiplied(self, rank: int, width: int) -> Sequence[Sparse]:
        """A product a stage; the entries of tiles are averages."""
        block, copy = divmod(rank, self.copies)
        rows, entries = self.rows(block), self._tile_entries(rank)
        inner = max(1, self._share_rows(copy))
        blocks = [self.rows(stage) for stage in share(self.count, self.copies, copy)]
        return [Sparse(rows, one, entries * one // inner, width) for one in blocks if one]


def make_forecast(config: OverlapOptions, size: int, facts: Facts) -> BroadcastForecast:
    """Blocks on paper, one on each rank."""
    return BroadcastForecast(size, 1, facts, config.overlap)


# Without a partition, blocks are ranges of vertices.
ENTRY = Entry(load, make_forecast, gives_rows=True)


class Broadcasts:
    """The stages of one rank.

    Parameters
    ----------
    group : Group
        The ranks of a process column: rank q of it holds block q.
    cuts : (k + 1,) integers
        Where blocks begin.
    stages : range
        Which of the k blocks are multiplied here.
    overlap : bool
        Whether the next block travels while one is multiplied.
    """

    def __init__(
        self,
        runtime: Runtime,
        group: Group,
        cuts: np.ndarray,
        stages: range,
        overlap: bool,
    ) -> None:
        self._kernel, self._phases = runtime.kernel, runtime.phases
        self._group, self._overlap = group, overlap
        self._rows = np.diff(cuts).tolist()
        self._stages = [stage for stage in stages if self._rows[stage]]
        self._turns = 2 if overlap else 1
        self._largest = [
            max((self._rows[s] for s in self._stages[turn :: self._turns] if s != group.rank),
                default=0)
            for turn in range(self._turns)
        ]  # fmt: skip
        self._cuts = cuts[stages.start : stages.stop + 1] - cuts[stages.start]
        # As in MG-GCN, one buffer (or two) serves all layers; it grows to the widest product.
        self._buffers: dict[int, Array] = {}

    def tiles(self, matrix: sp.csr_array) -> list[Tile]:
        """The rank's rows of a matrix in the columns of these stages, cut where stages are."""
        tiles = (tile for tile in column_tiles(matrix, self._cuts) if tile.shape[1])
        return [self._kernel.sparse(tile) for tile in tiles]

    def empty(self, place: Place, width: int) -> Matrix:
        """Own rows, which are broadcast from where they are."""
        return Matrix(place, self._kernel.empty(self._rows[self._group.rank], width))

    def release(self) -> None:
        """Free the buffers of blocks that are received."""
        self._buffers.clear()

    def multiply(
        self, matrix: list[Tile], x: Matrix, out: Array, epilogue: Epilogue | None = None
    ) -> None:
        """out = epilogue(Σ over stages of this rank's tile times the block)."""
        out.fill(0)
        for tile, block in zip(matrix, self._arriving(x.array), strict=True):
            with self._phases("spmm"):
                self._kernel.spmm(tile, block, out, accumulate=True)
        self._kernel.follow(out, epilogue)

    def _arriving(self, x: Array) -> Iterator[Array]:
        """The blocks in the order of stages; with overlap the next one is under way meanwhile."""
        blocks = [self._buffer(turn, stage, x) for turn, stage in enumerate(self._stages)]
        if not self._overlap:
            for stage, block in zip(self._stages, blocks, strict=True):
                self._group.broadcast(block, stage)
                yield block
            return
        begin = self._group.start_broadcast
        broadcasts = (
            begin(block, stage) for stage, block in zip(self._stages, blocks, strict=True)
        )
        nothing = Pending([], self._phases)
        following = next(broadcasts, nothing)
        for block in blocks:
            # The next block goes where the one before this was, which is multiplied by now.
            arriving, following = following, next(broadcasts, nothing)
            arriving.wait()
            yield block

    def _buffer(self, turn: int, stage: int, x: Array) -> Array:
        """Where the block of a stage is, or will be."""
        if stage == self._group.rank:
            return x
        width, number = x.shape[1], turn % self._turns
        size = self._largest[number] * width
        if number not in self._buffers or len(self._buffers[number]) < size:
            self._buffers[number] = self._kernel.empty(size)
        rows = self._rows[stage]
        return self._buffers[number][: rows * width].reshape(rows, width)


def column_tiles(matrix: sp.csr_array, cuts: np.ndarray) -> Iterator[sp.csr_array]:
    """A matrix cut into column blocks, (rows, cuts[i + 1] − cuts[i]) each.

    One at a time: as CSR each takes memory for all rows, and those of P stages for n rows together.

    >>> matrix = sp.csr_array([[1, 2, 3], [0, 0, 4]])
    >>> [tile.toarray().tolist() for tile in column_tiles(matrix, np.array([0, 2, 2, 3]))]
    [[[1, 2], [0, 0]], [[], []], [[3], [4]]]
    """
    height = matrix.shape[0]
    block = np.empty(matrix.nnz, np.int32)
    for first in range(0, matrix.nnz, STEP):
        some = slice(first, first + STEP)
        block[some] = np.searchsorted(cuts, matrix.indices[some], side="right") - 1
    of = Grouped(block, len(cuts) - 1)
    row = of.take(entry_rows(matrix.indptr))
    columns, values = of.take(matrix.indices), of.take(matrix.data)
    del block
    ends = np.cumsum([0, *of.counts])
    for (start, stop), (first, last) in zip(pairwise(cuts), pairwise(ends), strict=True):
        # Within a block, entries are in the order of rows, and of columns in each.
        starts = np.append(0, np.cumsum(group_counts(row[first:last], height)))
        place = columns[first:last] - start, starts
        yield sp.csr_array((values[first:last], *place), shape=(height, int(stop - start)))
