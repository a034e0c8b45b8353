"""The tensor-parallel 3D scheme: every matrix is cut over two axes of a grid of ranks.

Ranjan, Singh, Wei and Bhatele 2025 (Plexus), algorithms 1 and 2: a layer is T = M·H, then
Z = T·W. Who holds what, :mod:`gcnmpi.schemes.tensor3d_forecast` says, and what it moves. A rank
multiplies its tile of M with its piece of H and the result is summed along the grid (all-reduce);
the block of W is gathered where it is needed, the product with it is summed along another axis.
Weights, their gradients and the optimizer's moments are cut P ways. The matrices of a layer are
on other planes of the grid than those of the layer before, in a cycle of three; for each plane, a
tile of M and one of Mᵀ are kept.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.volume import Volume
from gcnmpi.halo.matrix import Matrix
from gcnmpi.kernels.epilogues import Epilogue, Product
from gcnmpi.kernels.interface.kernel import Array, Kernel, Sparse
from gcnmpi.layout.arcs import entries_of_m
from gcnmpi.layout.grid import line
from gcnmpi.layout.loading import Readable
from gcnmpi.layout.place import Block, Place
from gcnmpi.layout.runtime import Demand, Runtime, Source
from gcnmpi.layout.tiling import Ordering, Tiling, choose_orderings, sparse_tile
from gcnmpi.mpi.collectives import Group
from gcnmpi.mpi.comm import agreed, slice_of
from gcnmpi.options.config import Config
from gcnmpi.options.scheme import Tensor3DOptions
from gcnmpi.schemes.forecast import make_facts
from gcnmpi.schemes.interface import Entry, refuse_to_add
from gcnmpi.schemes.operations import Operation
from gcnmpi.schemes.sampled_tiles import Chosen, HeldTile, Take
from gcnmpi.schemes.tensor3d_forecast import (
    Range,
    TensorForecast,
    Tile,
    Z,
    make_forecast,
    parse,
    result_of,
    roles,
    variants,
)
from gcnmpi.schemes.tensor3d_moves import Mover
from gcnmpi.schemes.whole_rows import CutRows

Chunks = Sequence[tuple[slice, Sparse]]  # row blocks of a tile, in the kernel's form


def load(
    runtime: Runtime,
    source: Source,
    config: Config,
    demand: Demand,
) -> Tensor3D:
    """Bring the tiles of M to their ranks.

    A partition may have any number of parts: rows are ordered by it, and blocks end where parts
    do if their numbers allow.
    """
    assert isinstance(config.scheme, Tensor3DOptions)
    comm, kernel = runtime.comm, runtime.kernel
    max_bytes = config.loading.max_bytes
    with agreed(comm):
        facts = make_facts(source, config, demand)
        forecast = make_forecast(config.scheme, comm.size, facts)
    orderings = choose_orderings(
        comm, source.stored, source.partition, config.scheme, auto="double"
    )
    operands, held = Operands(kernel, forecast), list[HeldTile]()
    with entries_of_m(comm, source, config.graph, max_bytes) as entries:
        for k, names in enumerate(forecast.tiles(comm.rank), start=1):
            after, before = Place(k), Place(k - 1)
            i, j, _ = forecast.coordinates(comm.rank, after)
            matrix = sparse_tile(
                entries,
                (orderings[forecast.ordering(after)], forecast.cuts(after)),
                (orderings[forecast.ordering(before)], forecast.cuts(before)),
                forecast.holders(after),
                (i, j),
                kernel.dtype,
            )
            operands.add(names, matrix)
            if demand.batches:
                held.append(HeldTile(matrix, k % forecast.period, k - 1))
    return Tensor3D(runtime, forecast, orderings, operands, max_bytes, held)


def parts_needed(config: Tensor3DOptions, size: int) -> int:
    """None: rows can be ordered by any partition. The grid has to be one of that many ranks."""
    parse(config, size)
    return 0


ENTRY = Entry(load, make_forecast, parts_needed, variants, cuts_batches=True)


class Operands:
    """The tiles of M and Mᵀ of layers 1, 2 … of a period, in the kernel's form, as row blocks.

    Equal tiles are one matrix: see ``TensorForecast.tiles``.
    """

    def __init__(self, kernel: Kernel, forecast: TensorForecast) -> None:
        self.forward, self.backward = list[Chunks](), list[Chunks]()
        self._kernel, self._forecast, self._found = kernel, forecast, dict[Tile, Chunks]()

    def add(self, names: tuple[Tile, Tile], matrix: sp.csr_array) -> None:
        """Add those of the next layer: a tile of M, and its transpose."""
        forward, backward = names
        self.forward.append(self._kept(forward, matrix))
        self.backward.append(self._kept(backward, sp.csr_array(matrix.T)))

    def _kept(self, tile: Tile, matrix: sp.csr_array) -> Chunks:
        if tile not in self._found:
            chunks = self._forecast.chunks(matrix.shape[0])
            pieces = [matrix] if len(chunks) == 1 else [matrix[rows] for rows in chunks]
            made = map(self._kernel.sparse, pieces)
            self._found[tile] = list(zip(chunks, made, strict=True))
        return self._found[tile]


class Tensor3D(CutRows):
    """The products of the tensor-parallel 3D scheme; see ``schemes.interface`` for their meaning.

    All copies of a piece are equal to the bit: each is what the same all-reduce gave.
    """

    name = "tensor3d"
    sharded = True

    def __init__(
        self,
        runtime: Runtime,
        forecast: TensorForecast,
        orderings: tuple[Ordering, Ordering],
        operands: Operands,
        max_bytes: float,
        held: Sequence[HeldTile] = (),
    ) -> None:
        super().__init__(runtime)
        self._forecast, self._orderings, self._max_bytes = forecast, orderings, max_bytes
        self._whole, self._operands, self._held = forecast, operands, held
        self._lines = [line(runtime, forecast.grid, axis) for axis in range(3)]
        self._vertices: dict[Range, np.ndarray] = {}
        self._movers: dict[tuple[Place, Place], Mover] = {}
        self.orders = forecast.orders

    def describe(self) -> dict[str, object]:
        """Grid and options as they were resolved."""
        z, x, y = self._forecast.grid
        return {
            "name": self.name,
            "grid": f"{x}x{y}x{z}",
            "permutation": self._forecast.permutation,
            "chunks": self._forecast.row_blocks,
            "transpose_grad": self._forecast.transpose_grad,
        }

    def layout(self, place: Place) -> Hashable:
        """As the forecast has it."""
        return self._forecast.layout_of(place)

    def block(self, place: Place, width: int) -> Block:
        """A block of rows, a block of columns, a copy."""
        _, part, copy = self._forecast.coordinates(self._comm.rank, place)
        columns = self._forecast.columns(self._comm.rank, place, width)
        return Block.of(self._ids(place), columns, part, copy)

    def empty(self, place: Place, width: int, exchanged: bool = False) -> Matrix:
        """A buffer for a piece; nothing is special about matrices that are exchanged."""
        shape = self._forecast.shape(self._comm.rank, place, width)
        return Matrix(place, self._take(*shape))

    # Products.

    def aggregate(self, k: int, x: Matrix, out: Array, epilogue: Epilogue | None = None) -> None:
        """The tile times the piece; the sum over the columns of M."""
        self._multiply(
            self._operands.forward, k, x.array, out, self._line_of(Operation.AGGREGATE, k)
        )
        self._kernel.follow(out, epilogue)

    def aggregate_t(self, k: int, x: Matrix, out: Array, epilogue: Epilogue | None = None) -> None:
        """The tile of Mᵀ times the piece; the sum over the rows of M."""
        self._multiply(
            self._operands.backward, k, x.array, out, self._line_of(Operation.AGGREGATE_T, k)
        )
        self._kernel.follow(out, epilogue)

    def combine(self, k: int, product: Product[Array]) -> None:
        """The piece times the gathered block of W, or its transpose; the sum over ranks.

        The backward product gathers W again (algorithm 2, line 4), so that no whole block is kept.
        """
        refuse_to_add(self.name, product)
        x, out, transposed = product.a, product.out, product.transposed
        shape = x.shape[1], out.shape[1]
        block = self._scratch("block", *(shape[::-1] if transposed else shape))
        group = self._lines[roles(Place(k)).rows]
        group.all_gather(product.b, block.reshape(-1), _shares(block.size, group.size))
        with self._phases("gemm"):
            self._kernel.gemm(x, block, out, tb=transposed)
        summed = Operation.COMBINE_T if transposed else Operation.COMBINE
        self._line_of(summed, k).all_reduce(out)
        self._kernel.follow(out, product.epilogue)

    def weight_grad(
        self, k: int, x: Array, grad: Array, out: Array, sums: Array | None = None
    ) -> None:
        """The block of Tᵀ·G, summed over rows; every rank keeps its piece of the sum.

        With ``scheme.transpose_grad`` it is (Gᵀ·T)ᵀ, which some libraries multiply faster
        (section 5.3).
        """
        if sums is not None:
            self.column_sum(k, grad, sums)
        shape = x.shape[1], grad.shape[1]
        block = self._scratch("block", *shape)
        with self._phases("gemm"):
            if self._forecast.transpose_grad:
                transposed = self._scratch("transposed", *shape[::-1])
                self._kernel.gemm(grad, x, transposed, ta=True)
                self._kernel.copy(transposed.T, block)
            else:
                self._kernel.gemm(x, grad, block, ta=True)
        group = self._lines[roles(Place(k)).rows]
        group.reduce_scatter(block.reshape(-1), out, _shares(block.size, group.size))

    def column_sum(self, k: int, grad: Array, out: Array) -> None:
        """Own columns of the first copy."""
        out.fill(0)
        _, _, copy = self._forecast.coordinates(self._comm.rank, Place(k))
        if copy == 0:
            self._kernel.column_sum(grad, out[self._columns(k, len(out))])

    # Weights and trained features.

    def weight_shape(self, k: int, d_in: int, d_out: int) -> tuple[int, ...]:
        """A flat piece of a block."""
        return (self._forecast.weight_numbers(self._comm.rank, k, d_in, d_out),)

    def shard(self, k: int, weight: np.ndarray) -> np.ndarray:
        """This rank's piece of its block."""
        piece = self._forecast.weight(self._comm.rank, k, *weight.shape)
        return weight[piece.rows, piece.columns].reshape(-1)[piece.flat]

    def unshard(self, k: int, piece: np.ndarray, d_in: int, d_out: int) -> np.ndarray:
        """All pieces, put together on every rank."""
        whole = np.empty((d_in, d_out), piece.dtype)
        pieces = self._comm.allgather(piece)
        # The ranks that share a block are those along the axis that cuts the rows of Hᵏ.
        holders = self._forecast.holders(Place(k))
        for ranks in holders.reshape(len(holders), -1).T:
            place = self._forecast.weight(int(ranks[0]), k, d_in, d_out)
            block = np.concatenate([pieces[rank] for rank in ranks])
            whole[place.rows, place.columns] = block.reshape(place.shape)
        return whole

    def input_block(self, width: int) -> Block:
        """Some rows of this rank's piece of H⁰, which the copies share out (section 3.1)."""
        piece = self.block(Place(0), width)
        return Block.of(
            piece.rows[self._forecast.input_rows(self._comm.rank)], piece.columns, piece.part
        )

    def expand_input(self, share: Array, out: Array) -> None:
        """Gathered along the axis of the copies."""
        group = self._lines[roles(Place(0)).copies]
        group.all_gather(share, out, _shares(len(out), group.size))

    def share_input(self, piece: Array, out: Array) -> None:
        """Some rows of the piece."""
        self._kernel.copy(piece[self._forecast.input_rows(self._comm.rank)], out)

    # Files.

    def load(self, place: Place, array: Readable) -> np.ndarray:
        """This rank's piece of an array on disk."""
        return self._tiling(place).load(self._comm, array, self._max_bytes)

    def original(self, place: Place, piece: np.ndarray, width: int) -> np.ndarray:
        """This rank's contiguous 1/P of all rows, in the original order."""
        return self._tiling(place).original(self._comm, piece, width, self._max_bytes)

    def move(self, x: Matrix, out: Matrix, width: int) -> None:
        """Straight to the ranks that need it."""
        self._mover(x.place, out.place)(x.array, width, out.array)

    def volume(self, product: Operation, k: int, *sizes: int) -> Volume:
        """From the forecast; of moves between orderings, as they are made."""
        if product == Operation.MOVE:
            width, *places = sizes
            before, after = Place(places[0], bool(places[1])), Place(places[2], bool(places[3]))
            return self._mover(before, after).volume(width)
        return self._forecast.volume(self._comm.rank, product, k, *sizes)

    def _mover(self, before: Place, after: Place) -> Mover:
        if (before, after) not in self._movers:
            arguments = self._runtime, self._forecast, self._ids, self._blocks, before, after
            self._movers[before, after] = Mover(*arguments)
        return self._movers[before, after]

    def _ids(self, place: Place) -> np.ndarray:
        """Global ids of the rows of a piece."""
        rows = self._forecast.rows(self._comm.rank, place)
        if rows not in self._vertices:
            ordering = self._orderings[rows.ordering]
            self._vertices[rows] = ordering.vertices(rows.start, rows.stop)
        return self._vertices[rows]

    def _blocks(self, ids: np.ndarray, place: Place) -> np.ndarray:
        """The block of rows of each vertex at a place."""
        positions = self._orderings[self._whole.ordering(place)].positions(ids)
        return np.searchsorted(self._whole.cuts(place), positions, side="right") - 1

    # Mini-batches: see ``schemes.sampled_tiles``.

    def sides(self, layers: int) -> Mapping[Hashable, np.ndarray]:
        """Own rows at each of the places that there are, by the first layer that has it."""
        places = range(self._forecast.places(layers))
        return {layer: self._ids(Place(layer)).astype(np.int64) for layer in places}

    @property
    def tiles(self) -> Sequence[HeldTile]:
        """Of the layers of a period."""
        return self._held

    def own(self, chosen: Chosen, place: Place) -> np.ndarray:
        """All that are chosen of the side there."""
        return chosen[place.layer % self._forecast.period]

    def counts(self, chosen: Chosen) -> np.ndarray:
        """By ordering, axis and block; of all ranks with a block the first ones count."""
        forecast = self._forecast
        counts = np.zeros((2, sum(forecast.grid)))
        starts = np.cumsum([0, *forecast.grid])
        for layer, rows in chosen.items():
            place = Place(cast(int, layer))
            i, part, copy = forecast.coordinates(self._comm.rank, place)
            if part == copy == 0:
                counts[forecast.ordering(place), starts[roles(place).rows] + i] = len(rows)
        return counts.ravel()

    def total(self, counts: np.ndarray) -> int:
        """Of the blocks of one ordering and axis."""
        return int(counts[: self._forecast.grid[Z]].sum())

    def of_batch(
        self, chosen: Chosen, tiles: Sequence[sp.csr_array], counts: np.ndarray, take: Take
    ) -> Tensor3D:
        """The same blocks, smaller."""
        forecast = self._forecast
        found = [
            [np.concatenate(([0], np.cumsum(sizes))) for sizes in np.split(some, axes)]
            for axes in [np.cumsum(forecast.grid)[:2]]
            for some in counts.astype(np.int64).reshape(2, -1)
        ]
        batch, facts = copy.copy(self), replace(forecast.facts, n=self.total(counts))
        batch._forecast = replace(forecast, facts=facts, blocks=(found[0], found[1]))
        batch._take, batch._held, batch._movers = take, (), {}
        batch._vertices = {}
        for layer, some in chosen.items():
            place = Place(cast(int, layer))
            where = batch._forecast.rows(self._comm.rank, place)
            batch._vertices[where] = self._ids(place)[some]
        batch._operands = Operands(self._kernel, batch._forecast)
        for names, tile in zip(forecast.tiles(self._comm.rank), tiles, strict=True):
            batch._operands.add(names, tile)
        return batch

    def _multiply(
        self, tiles: Sequence[Chunks], k: int, x: Array, out: Array, group: Group
    ) -> None:
        """Blocked aggregation (section 5.2): a block is summed while the next is multiplied."""
        *before, (rest, last) = tiles[(k - 1) % self._forecast.period]
        pending = []
        for rows, matrix in before:
            with self._phases("spmm"):
                self._kernel.spmm(matrix, x, out[rows])
            pending.append(group.start_all_reduce(out[rows]))
            for request in pending:
                request.progress()
        with self._phases("spmm"):
            self._kernel.spmm(last, x, out[rest])
        group.all_reduce(out[rest])
        for request in pending:
            request.wait()

    def _line_of(self, product: Operation, k: int) -> Group:
        """The ranks over which a product is summed."""
        return self._lines[roles(result_of(product, k)).copies]

    def _sharing_rows(self, k: int) -> Group:
        return self._lines[roles(Place(k)).columns]

    def _columns(self, k: int, width: int) -> slice:
        return self._forecast.columns(self._comm.rank, Place(k), width)

    def _tiling(self, place: Place) -> Tiling:
        forecast = self._forecast
        ordering = self._orderings[forecast.ordering(place)]
        mine = forecast.coordinates(self._comm.rank, place)
        return Tiling(ordering, forecast.cuts(place), forecast.holders(place), *mine)


def _shares(count: int, size: int) -> list[int]:
    """How many of so many numbers or rows each rank of a line has."""
    parts = [slice_of(count, rank, size) for rank in range(size)]
    return [part.stop - part.start for part in parts]
