"""The 2D scheme ``summa``, on a grid of Pr × Pc ranks, and the 3D scheme ``split3d``.

Tripathy, Yelick and Buluç 2020, section IV-C and algorithm 3 (2D), section IV-D (3D). Rank (i, j)
holds rows block i and columns block j of every dense matrix, tile (i, j) of M and tile (i, j) of Mᵀ
(one object where M is symmetric); weights are on every rank. :mod:`gcnmpi.schemes.summa_forecast`
says to the byte what is sent, with the formulas of the paper.

==============  ==========================================================================
M·H, Mᵀ·G       in stages over the inner dimension: columns of M are broadcast along the process
                row, rows of H along the process column, and their product is added
T·W, G·Wᵀ       columns of T or G are broadcast along the process row and multiplied with their
                rows of W, this rank's columns of it: the partial SUMMA. Where the result is
                narrower, it travels instead: own columns of T times their rows of W, all columns
                of it, are reduce-scattered along the process row
Tᵀ·G            columns of the narrower of both are broadcast along the process row; every rank
                has a block of the product's share of its rows, zero elsewhere
row operations  an all-reduce along the process row
==============  ==========================================================================

Tiles of M are broadcast again in every product, as in the paper, and then brought into the
kernel's form, which reads and writes each entry about twice; in return a rank never holds more
of M than its own tiles, in the kernel's form and in the one that travels, and one of a stage. The
paper holds M only (table II) and transposes it; here Mᵀ costs its entries once more.

Split-3D-SpMM is the same on several such grids at once, layers, on p1 × p2 × p3 ranks: layer l
multiplies with its part of the inner dimension, n/p3 of it; then the partial sums are reduce-
scattered along the fiber (i, j, ·), of which every rank gets its row piece. So the output is laid
out as the input is: rank (i, j, l) holds the l-th of p3 parts of row block i, columns block j, of
dense matrices, and row block i, the j-th of p2 parts of layer l, of M and Mᵀ. Every row is on one
(i, l) only, so gradients count once. No input is replicated, but partial sums are: a rank holds
them for all rows of its row block, p3 times its piece of the result, for as long as a product
takes. A rank of a cubic grid receives about nnz/P^⅔ + 2nf/P^⅔ words in M·H, as the paper says, but
for its own blocks, which do not travel. ``summa`` has p3 = 1.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from gcnmpi.core.volume import Volume
from gcnmpi.halo.matrix import Matrix
from gcnmpi.kernels.epilogues import Epilogue, Product
from gcnmpi.kernels.interface.kernel import Array, Sparse
from gcnmpi.layout.arcs import entries_of_m
from gcnmpi.layout.grid import coordinates, factorizations, line, parse_grid
from gcnmpi.layout.loading import Readable
from gcnmpi.layout.place import Block, Place
from gcnmpi.layout.runtime import Demand, Runtime, Source
from gcnmpi.layout.tiling import Ordering, Tiling, choose_orderings, permutation_kind, sparse_tile
from gcnmpi.mpi.collectives import Group
from gcnmpi.mpi.comm import agreed
from gcnmpi.options.config import Config
from gcnmpi.options.scheme import SummaOptions
from gcnmpi.schemes.forecast import Facts, make_facts
from gcnmpi.schemes.interface import Entry, refuse_to_add
from gcnmpi.schemes.operations import Operation
from gcnmpi.schemes.sampled_tiles import Chosen, HeldTile, Take
from gcnmpi.schemes.summa_forecast import (
    Grid,
    LayerOrdering,
    Layout,
    Stage,
    SummaForecast,
    make_chunks,
    result_travels,
)
from gcnmpi.schemes.tiles import WORD, StagedMatrix, message_bytes, pack, unpack
from gcnmpi.schemes.whole_rows import CutRows, WholeWeights
from partition.errors import UserError

AXES = {"summa": 2, "split3d": 3}
ROWS, INNER = "rows", "inner"  # the sides of a tile


def load(runtime: Runtime, source: Source, config: Config, demand: Demand) -> Summa:
    """Bring its tiles of M and Mᵀ to every rank of the grid.

    A partition orders the vertices where there is one; else ``scheme.permutation`` does.
    """
    assert isinstance(config.scheme, SummaOptions)
    grid = _grid(config.scheme, runtime.comm.size)
    comm, partition = runtime.comm, source.partition
    with agreed(comm):
        facts = make_facts(source, config, demand)
    max_bytes = config.loading.max_bytes
    p1, p2, p3 = grid
    ordering, _ = choose_orderings(comm, source.stored, partition, config.scheme)
    layout = Layout(grid, ordering)
    i, j, layer = coordinates(grid, comm.rank)

    inner = LayerOrdering(ordering.n, ordering.position, layout=layout)
    ranks = np.arange(comm.size).reshape(grid)
    holders = ranks.transpose(0, 2, 1).reshape(p1, p3 * p2, 1)
    sides = ((ordering, layout.blocks), (inner, layout.inner), holders, (i, layer * p2 + j))
    with entries_of_m(comm, source, config.graph, max_bytes) as entries:
        forward = backward = sparse_tile(entries, *sides, config.dtype)
        if not facts.one_tile:
            backward = sparse_tile(entries.transposed, *sides, config.dtype)

    pieces = ranks.transpose(0, 2, 1).reshape(p1 * p3, p2, 1)
    tiling = Tiling(ordering, layout.pieces, pieces, i * p3 + layer, j, 0)
    forecast = SummaForecast(grid, config.scheme.block, facts)
    order = permutation_kind(config.scheme, partition is not None)
    return Summa(
        runtime, config.scheme.name, forecast, layout, tiling, (forward, backward), order,
        max_bytes, demand.batches,
    )  # fmt: skip


def parts_needed(config: SummaOptions, size: int) -> int:
    """None: blocks are whole parts where their number divides that of the parts."""
    _grid(config, size)
    return 0


def variants(config: SummaOptions, size: int) -> list[SummaOptions]:
    """Every grid; one of a single layer is the 2D scheme, which ranks for itself."""
    return [
        dataclasses.replace(config, grid="x".join(map(str, grid)))
        for grid in factorizations(size, AXES[config.name])
        if grid[2:] != (1,) or size == 1
    ]


def make_forecast(config: SummaOptions, size: int, facts: Facts) -> SummaForecast:
    """Stages, volumes and memory on paper."""
    shuffled = permutation_kind(config, facts.metrics is not None) == "single"
    return SummaForecast(_grid(config, size), config.block, facts, shuffled=shuffled)


def _grid(config: SummaOptions, size: int) -> Grid:
    """Rows and columns of M are numbered alike, so that the output is cut as the input is."""
    if config.permutation == "double":
        raise UserError(
            f"scheme {config.name!r} has one order of the vertices, for rows and columns",
            "use scheme.permutation = 'single', or scheme.name = 'tensor3d'",
        )
    rows, columns, *layers = parse_grid(config.grid, size, AXES[config.name])
    return rows, columns, layers[0] if layers else 1


ENTRY = Entry(load, make_forecast, parts_needed, variants, cuts_batches=True)


class Summa(CutRows, WholeWeights):
    """The products on a grid of p1 × p2 × p3 ranks; see the module's docstring.

    Parameters
    ----------
    forecast : SummaForecast
        Without the entries that travel: they are found here.
    tiling : Tiling
        Tiling of dense matrices.
    matrices : (csr_array, csr_array)
        This rank's tiles of M and Mᵀ, one object where they are equal.
    permutation : str
        Where the order of the vertices is from, for the record.
    batches : bool
        Whether batches will be cut out of the tiles, which are kept for that.
    """

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        forecast: SummaForecast,
        layout: Layout,
        tiling: Tiling,
        matrices: tuple[sp.csr_array, sp.csr_array],
        permutation: str,
        max_bytes: float,
        batches: bool = False,
    ) -> None:
        super().__init__(runtime)
        self.name = name
        self._tiling, self._max_bytes, self._permutation = tiling, max_bytes, permutation
        self.grid, self._block = forecast.grid, forecast.block
        axes = [line(runtime, self.grid, axis) for axis in range(3)]
        self._process_column, self._process_row, self._fiber = axes
        self._lay_out(forecast, layout, tiling.vertices, matrices)
        self._held: list[HeldTile] = []
        if batches:
            kept = matrices[:1] if matrices[0] is matrices[1] else matrices
            dtype = self._kernel.dtype
            self._held = [HeldTile(tile.astype(dtype), ROWS, INNER) for tile in kept]

    def _lay_out(
        self,
        forecast: SummaForecast,
        layout: Layout,
        vertices: np.ndarray,
        matrices: Sequence[sp.csr_array],
    ) -> None:
        """Take over what depends on which vertices there are."""
        self._layout, self._vertices = layout, vertices
        i, _, layer = coordinates(self.grid, self._comm.rank)
        p3 = self.grid[2]
        self._rows = int(layout.blocks[i + 1] - layout.blocks[i])
        self._pieces = np.diff(layout.pieces)[i * p3 : (i + 1) * p3].tolist()
        self._stages = layout.stages(layer)
        forward, backward = matrices
        self._forward = self._backward = self._staged(forward)
        if backward is not forward:
            self._backward = self._staged(backward)
        entries = {
            Operation.AGGREGATE: self._forward.entries,
            Operation.AGGREGATE_T: self._backward.entries,
        }
        self._forecast = dataclasses.replace(forecast, travelling=entries)

    def describe(self) -> dict[str, object]:
        """Grid, columns at once, order of the vertices, how often a rank holds a result's rows."""
        layers = {"partial_sums": self.grid[2]} if self.name == "split3d" else {}
        return {
            "name": self.name,
            "grid": "x".join(map(str, self.grid if layers else self.grid[:2])),
            "block": self._block,
            "permutation": self._permutation,
            **layers,
        }

    def block(self, place: Place, width: int) -> Block:
        """Row piece (i, l), columns block j, whatever the layer."""
        return self._tiling.block(width).of_rows(self._vertices)

    def empty(self, place: Place, width: int, exchanged: bool = False) -> Matrix:
        """Nothing special: what is broadcast is read where it is."""
        rows, columns = len(self._vertices), _length(self._tiling.columns(width))
        return Matrix(place, self._take(rows, columns))

    def release(self) -> None:
        """Free the buffers of what is received."""
        self._memory.clear()

    def aggregate(self, k: int, x: Matrix, out: Array, epilogue: Epilogue | None = None) -> None:
        """In stages, then summed over layers."""
        self._multiply(self._forward, x.array, out)
        self._kernel.follow(out, epilogue)

    def aggregate_t(self, k: int, x: Matrix, out: Array, epilogue: Epilogue | None = None) -> None:
        """The same with the tiles of Mᵀ."""
        self._multiply(self._backward, x.array, out)
        self._kernel.follow(out, epilogue)

    def combine(self, k: int, product: Product[Array]) -> None:
        """The partial SUMMA of this layout."""
        refuse_to_add(self.name, product)
        weight = product.b.T if product.transposed else product.b
        self._multiply_dense(product.a, weight, product.out)
        self._kernel.follow(product.out, product.epilogue)

    def weight_grad(
        self, k: int, x: Array, grad: Array, out: Array, sums: Array | None = None
    ) -> None:
        """Dense SUMMA in which the narrower matrix travels."""
        d_in, d_out = out.shape
        if sums is not None:
            self.column_sum(k, grad, sums)
        out.fill(0)
        if d_in <= d_out:
            mine = self._tiling.columns(d_out)
            for columns, chunk in self._chunks(x, d_in):
                with self._phases("gemm"):
                    self._kernel.gemm(chunk, grad, out[columns, mine], ta=True)
        else:
            mine = self._tiling.columns(d_in)
            for columns, chunk in self._chunks(grad, d_out):
                with self._phases("gemm"):
                    self._kernel.gemm(x, chunk, out[mine, columns], ta=True)

    def column_sum(self, k: int, grad: Array, out: Array) -> None:
        """Own rows and columns."""
        out.fill(0)
        self._kernel.column_sum(grad, out[self._tiling.columns(len(out))])

    def load(self, place: Place, array: Readable) -> np.ndarray:
        """This rank's tile of an array on disk."""
        return self._tiling.load(self._comm, array, self._max_bytes)

    def original(self, place: Place, piece: np.ndarray, width: int) -> np.ndarray:
        """This rank's contiguous 1/P of all rows, in the original order."""
        return self._tiling.original(self._comm, piece, width, self._max_bytes)

    def volume(self, product: Operation, k: int, *sizes: int) -> Volume:
        """From the layout, and the entries of the tiles of M."""
        return self._forecast.volume(self._comm.rank, product, k, *sizes)

    # Mini-batches: see ``schemes.sampled_tiles``.

    def sides(self, layers: int) -> Mapping[Hashable, np.ndarray]:
        """Row block i; inner block (j, l), unit by unit."""
        i, j, layer = coordinates(self.grid, self._comm.rank)
        layout, found = self._layout, self._tiling.ordering.vertices
        rows = found(*layout.blocks[i : i + 2].tolist())
        inner = [found(start, stop) for start, stop in layout.inner_ranges(j, layer)]
        sides = {ROWS: rows, INNER: np.concatenate(inner)}
        return {side: ids.astype(np.int64) for side, ids in sides.items()}

    @property
    def tiles(self) -> Sequence[HeldTile]:
        """Of M, and of Mᵀ where that is another matrix."""
        return self._held

    def own(self, chosen: Chosen, place: Place) -> np.ndarray:
        """The chosen rows of the row block that are in the piece."""
        rows, start = chosen[ROWS], sum(self._pieces[: self._fiber.rank])
        stop = start + self._pieces[self._fiber.rank]
        return rows[(rows >= start) & (rows < stop)] - start

    def counts(self, chosen: Chosen) -> np.ndarray:
        """Of each unit; those of a row piece are counted in the first process column."""
        first = self._layout.pieces[self._tiling.row]
        positions = first + self.own(chosen, Place(0))[: None if self._tiling.column == 0 else 0]
        return self._layout.counts(positions)

    def total(self, counts: np.ndarray) -> int:
        """The rows of all units."""
        return int(counts.sum())

    def of_batch(
        self, chosen: Chosen, tiles: Sequence[sp.csr_array], counts: np.ndarray, take: Take
    ) -> Summa:
        """The same units, smaller; how many entries a tile has, ranks of a process row agree on."""
        units = np.concatenate(([0], np.cumsum(counts.astype(np.int64))))
        rows, vertices = self.total(counts), self._vertices[self.own(chosen, Place(0))]
        facts = dataclasses.replace(
            self._forecast.facts, n=rows, metrics={"rows": np.diff(units).tolist()}
        )
        forecast = dataclasses.replace(self._forecast, facts=facts, travelling=None)
        batch = copy.copy(self)
        batch._take, batch._held = take, []
        layout = Layout(self.grid, Ordering(rows, None, units))
        batch._lay_out(forecast, layout, vertices, (tiles[0], tiles[-1]))
        return batch

    def _multiply(self, matrix: StagedMatrix, x: Array, out: Array) -> None:
        kernel, single = self._kernel, self._fiber.size == 1
        partial = out if single else self._scratch("partial", self._rows, x.shape[1])
        partial.fill(0)
        for number, stage in enumerate(self._stages):
            tile = self._tile(matrix, number, stage)
            rows = x[stage.rows]
            if self._process_column.rank != stage.row:
                rows = self._scratch("rows", stage.size, x.shape[1])
            self._process_column.broadcast(rows, stage.row)
            if tile is not None and matrix.entries[number] and x.shape[1]:
                with self._phases("spmm"):
                    kernel.spmm(tile, rows, partial, accumulate=True)
        if not single:
            self._fiber.reduce_scatter(partial, out, self._pieces)

    def _multiply_dense(self, x: Array, weight: Array, out: Array) -> None:
        """out = x·weight; the narrower of both matrices travels."""
        width, result = weight.shape
        mine = self._tiling.columns(result)
        if not result_travels(width, result, self.grid[1]):
            for number, (columns, chunk) in enumerate(self._chunks(x, width)):
                with self._phases("gemm"):
                    self._kernel.gemm(chunk, weight[columns, mine], out, accumulate=number > 0)
            return
        # Turned round, so that the columns of a rank follow each other in memory.
        whole = self._scratch("partial", result, len(x))
        piece = self._scratch("rows", _length(mine), len(x))
        with self._phases("gemm"):
            rows = weight[self._tiling.columns(width)]
            self._kernel.gemm(rows, x, whole, ta=True, tb=True)
        counts = [_length(self._tiling.columns(result, j)) for j in range(self.grid[1])]
        self._process_row.reduce_scatter(whole, piece, counts)
        self._kernel.copy(piece.T, out)

    def _tile(self, matrix: StagedMatrix, number: int, stage: Stage) -> Sparse | None:
        """A stage's columns of the matrix in this process row, in the kernel's form."""
        if number in matrix.own:
            if self._process_row.size > 1:
                self._process_row.broadcast(matrix.messages[number], stage.column)
            return matrix.own[number]
        sizes = (self._rows, stage.size, matrix.entries[number])
        if not matrix.entries[number]:
            return None
        nbytes = message_bytes(*sizes, self._kernel.dtype.itemsize)
        message = self._numbers("message", nbytes // WORD, np.uint64)
        self._process_row.broadcast(message, stage.column)
        with self._phases("pack"):
            return self._kernel.sparse(unpack(message, *sizes, self._kernel.dtype, self._numbers))

    def _chunks(self, x: Array, width: int) -> Iterator[tuple[slice, Array]]:
        """The columns of a matrix of ``width`` in all, a chunk at a time: global numbers, chunk."""
        first, rows = self._tiling.columns(width).start, len(x)
        for owner, columns in make_chunks(width, self._process_row.size, self._block):
            if self._process_row.rank != owner:
                chunk = self._scratch("rows", rows, _length(columns))
            elif _length(columns) == x.shape[1]:
                chunk = x
            else:
                chunk = self._scratch("rows", rows, _length(columns))
                with self._phases("pack"):
                    self._kernel.copy(x[:, columns.start - first : columns.stop - first], chunk)
            self._process_row.broadcast(chunk, owner)
            yield columns, chunk

    def _staged(self, tile: sp.csr_array) -> StagedMatrix:
        """This rank's tile cut where stages are, and the sizes of the others of the process row."""
        mine = [(n, s) for n, s in enumerate(self._stages) if s.column == self._process_row.rank]
        pieces = {number: tile[:, stage.columns] for number, stage in mine}
        counts = self._process_row.comm.allgather([piece.nnz for piece in pieces.values()])
        own = {number: self._kernel.sparse(piece) for number, piece in pieces.items()}
        messages = {}
        if self._process_row.size > 1:
            messages = {n: pack(piece, self._kernel.dtype) for n, piece in pieces.items()}
        # Stages are in the order of process columns.
        return StagedMatrix([count for some in counts for count in some], own, messages)

    def _sharing_rows(self, k: int) -> Group:
        return self._process_row

    def _columns(self, k: int, width: int) -> slice:
        return self._tiling.columns(width)

    def _numbers(self, role: str, count: int, dtype: DTypeLike) -> np.ndarray:
        """The same for the arrays of a tile that travels: on the host, whatever the kernel."""
        memory = self._memory.get(role)
        if memory is None or len(memory) < count:
            self._memory[role] = memory = np.empty(count, dtype)
        return memory[:count]


def _length(columns: slice) -> int:
    return columns.stop - columns.start
