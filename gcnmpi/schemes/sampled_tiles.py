"""Mini-batches of grids: the rows and columns that a batch has of the tiles of M.

ScaleGNN (2026), the successor of Plexus: a batch of uniformly drawn vertices, and the subgraph that
they induce, goes through the same algorithm as the whole graph, on smaller tiles. Who is in a batch
is decided by hashes of global ids, so that a rank cuts its tiles without a message, and weights
stay where they are. Blocks have other sizes in every batch. A rank counts the rows of its own, and
a sum over ranks, which a batch needs for its loss anyway, tells all of them the others'.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.layout.place import Place
from gcnmpi.layout.runtime import Runtime
from gcnmpi.mpi.ahead import Start
from gcnmpi.schemes.interface import Scheme
from gcnmpi.schemes.sampled import Memory
from gcnmpi.schemes.sampling import RowsByBatch
from partition.graph.sampling import VertexSampler, pointers, segments

Chosen = Mapping[Hashable, np.ndarray]
"""Side → which of its vertices are in a batch, by number, increasing."""
Take = Callable[[int, int], Array]
"""``take(rows, columns)``: an uninitialised matrix."""


@dataclass(frozen=True)
class HeldTile:
    """A tile of M on the host, of numbers of the kernel's dtype; its sides by their keys."""

    matrix: sp.csr_array
    rows: Hashable
    columns: Hashable


class TileScheme(Scheme, Protocol):
    """A scheme of tiles out of which batches are cut."""

    def sides(self, layers: int) -> Mapping[Hashable, np.ndarray]:
        """The sides of this rank's tiles, and of its pieces of H⁰ to Hᵏ for k = ``layers``.

        Global ids of their vertices, int64, by keys.
        """

    @property
    def tiles(self) -> Sequence[HeldTile]:
        """The tiles that products need, each once."""

    def own(self, chosen: Chosen, place: Place) -> np.ndarray:
        """Which rows of this rank's piece at a place are chosen, by number."""

    def counts(self, chosen: Chosen) -> np.ndarray:
        """How many rows of each block are chosen, float64; 0 for blocks that others count.

        Each block is counted by one rank.
        """

    def total(self, counts: np.ndarray) -> int:
        """How many rows are chosen on all ranks, by the sums of their counts."""

    def of_batch(
        self, chosen: Chosen, tiles: Sequence[sp.csr_array], counts: np.ndarray, take: Take
    ) -> Scheme:
        """The scheme of a batch; all ranks call it together.

        ``tiles`` are the parts of :attr:`tiles` that the batch has, ``counts`` the sums over ranks.
        Its matrices are made by ``take``.
        """


@dataclass(frozen=True)
class TileBatch:
    """This rank's part of a batch: rows of each side, and what its tiles keep of M."""

    chosen: Chosen
    tiles: Sequence[sp.csr_array]


class TileCutter:
    """Cuts batches out of tiles, of whose sides the global ids are given."""

    def __init__(self, sides: Mapping[Hashable, np.ndarray], sampler: VertexSampler) -> None:
        self._sides, self._sampler = sides, sampler
        self._rows = {side: RowsByBatch(sampler, ids) for side, ids in sides.items()}
        # Of each vertex of a side, the place in the batch that is being cut; −1: it is in none.
        self._number = {side: np.full(len(ids), -1, np.int32) for side, ids in sides.items()}

    def cut(self, tiles: Sequence[HeldTile], epoch: int, batch: int) -> TileBatch:
        """The part that a batch of an epoch has of some tiles, and of all sides."""
        chosen = {side: rows.of(epoch, batch) for side, rows in self._rows.items()}
        return TileBatch(chosen, [self._cut(tile, chosen, batch) for tile in tiles])

    def _cut(self, tile: HeldTile, chosen: Chosen, batch: int) -> sp.csr_array:
        """The entries of a tile, both of whose ends are in a batch, with factors."""
        matrix, rows, columns = tile.matrix, chosen[tile.rows], chosen[tile.columns]
        number = self._number[tile.columns]
        number[columns] = np.arange(len(columns))
        entry, sizes = segments(matrix.indptr, rows)
        column = number[matrix.indices[entry]]
        number[columns] = -1
        row = np.repeat(np.arange(len(rows)), sizes)
        kept = np.flatnonzero(column >= 0)
        entry, row, column = entry[kept], row[kept], column[kept]
        ends = self._sides[tile.rows][rows[row]], self._sides[tile.columns][columns[column]]
        factors = self._sampler.factors(batch, *ends)
        values = (matrix.data[entry] * factors).astype(matrix.dtype, copy=False)
        starts = pointers(np.bincount(row, minlength=len(rows)))
        return sp.csr_array((values, column, starts), shape=(len(rows), len(columns)))


class TileBatches:
    """The batches of a scheme of tiles: see :class:`~gcnmpi.run.minibatch.Batches`.

    ``layers`` is the number of the last layer that has a matrix.
    """

    def __init__(
        self, runtime: Runtime, scheme: TileScheme, sampler: VertexSampler, layers: int
    ) -> None:
        # Operations that are begun ahead are not to be taken for those of comm.
        self.comm, self._phases = runtime.comm.Dup(), runtime.phases
        self._grid, self._cutter = scheme, TileCutter(scheme.sides(layers), sampler)
        self._memory = Memory(runtime.kernel)

    def of(self, epoch: int, batch: int) -> Generator[Start, None, TileBatch]:
        """Cut a batch of an epoch: work without messages."""
        yield from ()
        return self._cutter.cut(self._grid.tiles, epoch, batch)

    def counts(self, part: TileBatch) -> np.ndarray:
        """Rows of each block."""
        return self._grid.counts(part.chosen)

    def rows(self, part: TileBatch, place: Place) -> np.ndarray:
        """Rows of the rank's piece at a place."""
        return self._grid.own(part.chosen, place)

    def rows_of_all(self, part: TileBatch, sums: np.ndarray, place: Place) -> int:
        """The same at all places."""
        return self.total(sums)

    def total(self, sums: np.ndarray) -> int:
        """Rows of a batch, by the sums of its counts."""
        return self._grid.total(sums)

    def scheme(self, part: TileBatch, sums: np.ndarray) -> Scheme:
        """The same scheme on what was cut."""
        self._memory.rewind()
        with self._phases("sample"):
            return self._grid.of_batch(part.chosen, part.tiles, sums, self._memory.take)

    def counted(self, part: TileBatch) -> dict[str, int]:
        """Nothing: blocks travel, and not rows that are asked for."""
        return {}

    def entries(self, part: TileBatch) -> tuple[int, int]:
        """Entries of M that the first tile keeps, and all that it has."""
        return part.tiles[0].nnz, self._grid.tiles[0].matrix.nnz
