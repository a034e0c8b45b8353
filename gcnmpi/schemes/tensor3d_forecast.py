"""The layout of the tensor-parallel 3D scheme and the data it moves: pure, without ranks.

Ranjan, Singh, Wei and Bhatele 2025 (Plexus), sections 3 and 5. The ranks form a grid of
Gx × Gy × Gz. Every matrix is cut by rows along one axis, by columns along another, and copied
along the third. These roles rotate with the layer, so that no matrix is ever moved to fit:

=============  ==========  ==========  ==========
matrix         rows        columns     copies
=============  ==========  ==========  ==========
H⁰, H³ …       x           y           z
H¹, H⁴ …       z           x           y
H², H⁵ …       y           z           x
M·Hᵏ⁻¹         as Hᵏ       copies Hᵏ   columns Hᵏ
M of layer k   as Hᵏ       as Hᵏ       as Hᵏ
=============  ==========  ==========  ==========

The block of Wᵏ has the columns of M·Hᵏ⁻¹ as its rows and those of Hᵏ as its columns; it is cut
once more, flat and in row order, along the axis that cuts the rows of Hᵏ.

A product is partial along the axis that its result is copied along, and summed there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from gcnmpi.core import volume
from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.layout.grid import coordinates, factorizations, parse_grid
from gcnmpi.layout.place import Place
from gcnmpi.layout.tiling import Ordering, permutation_kind
from gcnmpi.mpi.collectives import reduction_scratch
from gcnmpi.mpi.comm import slice_of
from gcnmpi.options.scheme import Tensor3DOptions
from gcnmpi.schemes.forecast import Dense, Facts, Forecast, Span, Sparse, row_volume, whole_row_work
from gcnmpi.schemes.operations import DENSE, OF_ROWS, SUMS, Operation

# Consecutive ranks differ along y, then x, then z: section 4.2 fills a node in this order.
Z, X, Y = range(3)


class Roles(NamedTuple):
    """The axes along which a matrix is cut by rows, cut by columns, and copied."""

    rows: int
    columns: int
    copies: int


class Range(NamedTuple):
    """Positions start … stop − 1 in the ordering of that number."""

    ordering: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of positions in it."""
        return self.stop - self.start


class Tile(NamedTuple):
    """Which piece of M, or of Mᵀ."""

    rows: Range
    columns: Range
    transposed: bool = False


class Piece(NamedTuple):
    """A rank's piece of a weight: the block that it is of, and where it is in that, flat."""

    rows: slice
    columns: slice
    flat: slice

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the block."""
        return _length(self.rows), _length(self.columns)


@cache
def roles(place: Place) -> Roles:
    """See the table in the module's docstring."""
    found = (Roles(X, Y, Z), Roles(Z, X, Y), Roles(Y, Z, X))[place.layer % 3]
    if place.aggregated:
        return Roles(found.rows, found.copies, found.columns)
    return found


def result_of(product: Operation, k: int) -> Place:
    """Where the result of a product of layer k lives; it is summed over ``roles(…).copies``."""
    return {
        Operation.AGGREGATE: Place(k, aggregated=True),
        Operation.COMBINE: Place(k),
        Operation.COMBINE_T: Place(k, aggregated=True),
        Operation.AGGREGATE_T: Place(k - 1),
    }[product]


def parse(options: Tensor3DOptions, size: int) -> tuple[int, int, int]:
    """``scheme.grid`` as ranks along z, x and y; the most cubic grid where it is "auto"."""
    x, y, z = parse_grid(options.grid, size, 3)
    return z, x, y


def variants(config: Tensor3DOptions, size: int) -> list[Tensor3DOptions]:
    """Every grid of three numbers."""
    return [
        dataclasses.replace(config, grid="x".join(map(str, grid)))
        for grid in factorizations(size, 3)
    ]


def make_forecast(config: Tensor3DOptions, size: int, facts: Facts) -> TensorForecast:
    """The scheme on paper; a UserError where the grid is not one of that many ranks."""
    bounds = None
    if facts.metrics is not None:
        bounds = np.concatenate(([0], np.cumsum(facts.metrics["rows"])))
    permutation = permutation_kind(config, bounds is not None, auto="double")
    grid, blocks = parse(config, size), Ordering(facts.n, bounds=bounds)
    cuts = [blocks.cuts(count) for count in grid]
    return TensorForecast(
        grid, facts, permutation, (cuts, cuts), config.chunks, config.transpose_grad
    )


@dataclass(frozen=True)
class TensorForecast(Forecast):
    """The layout, and all numbers that follow from it.

    Attributes
    ----------
    grid : (int, int, int)
        Ranks along z, x and y.
    permutation : {"partition", "none", "single", "double"}
        double: rows and columns of M have an ordering each, and Hᵏ is in that of the columns for
        even k, in that of the rows for odd k (section 5.1).
    blocks : pair of sequences of (ranks along the axis + 1,) arrays
        Positions at which blocks of rows begin, for each ordering and axis.
    row_blocks : int
        Row blocks of a tile that are summed by themselves (section 5.2).
    transpose_grad : bool
        Whether the gradient of a weight is made transposed (section 5.3).

    Notes
    -----
    Bytes that a rank sends, and receives, for each product, b bytes a number, g ranks along the
    axis in question, r × c the piece of the result on this rank and w numbers in the block of W:

    ===============  ==============================  =======================================
    product          collectives                     bytes
    ===============  ==============================  =======================================
    aggregate(_t)    all-reduce                      2(g−1)/g · r·c·b
    combine(_t)      all-gather of W, all-reduce     (g−1)/g · w·b + 2(g−1)/g · r·c·b
    weight_grad      reduce-scatter                  (g−1)/g · w·b
    expand_input     all-gather                      (g−1)/g · r·c·b
    ===============  ==============================  =======================================

    as in algorithms 1 and 2 and equation 4.5, where r, c and w are n and d divided by sides of
    the grid; here they are the rank's own, so that uneven blocks count as they are, and pieces of
    an all-gather too. An all-reduce is counted by row block, rounded down to a byte in each. The
    first layer's ``aggregate_t`` is an all-reduce like the others, and not the reduce-scatter of
    algorithm 2, line 8: dropout of the input is undone on the whole piece.
    """

    grid: tuple[int, int, int]
    facts: Facts
    permutation: str
    blocks: tuple[Sequence[np.ndarray], Sequence[np.ndarray]]
    row_blocks: int
    transpose_grad: bool
    orders = ("aggregate",)
    whole_rows = False

    # The layout.

    @property
    def period(self) -> int:
        """After how many layers everything is where it was."""
        return 6 if self.permutation == "double" else 3

    def places(self, layers: int) -> int:
        """How many different places H⁰ to Hᵏ have, for k = ``layers``; two at least."""
        return min(self.period, max(1, layers) + 1)

    def ordering(self, place: Place) -> int:
        """Number of the ordering of a matrix's rows: 0 of the rows of M in layer 1, 1 of columns.

        There is but one, 0, unless the permutation is double.
        """
        return int(self.permutation == "double" and place.layer % 2 == 0)

    def layout_of(self, place: Place) -> Hashable:
        """The axes' roles, and which ordering the rows are in."""
        return roles(place), self.ordering(place)

    def rows(self, rank: int, place: Place) -> Range:
        """Positions of the rows of a rank's piece."""
        cuts, i = self.cuts(place), coordinates(self.grid, rank)[roles(place).rows]
        return Range(self.ordering(place), int(cuts[i]), int(cuts[i + 1]))

    def columns(self, rank: int, place: Place, width: int) -> slice:
        """Columns of a rank's piece of a matrix of that width."""
        axis = roles(place).columns
        return slice_of(width, coordinates(self.grid, rank)[axis], self.grid[axis])

    def cuts(self, place: Place) -> np.ndarray:
        """Positions at which the blocks of rows begin."""
        return self.blocks[self.ordering(place)][roles(place).rows]

    def holders(self, place: Place) -> np.ndarray:
        """The rank that holds copy c of tile (i, j) of a matrix, at [i, j, c]."""
        ranks = np.arange(np.prod(self.grid)).reshape(self.grid)
        return ranks.transpose(roles(place))

    def coordinates(self, rank: int, place: Place) -> tuple[int, int, int]:
        """Where ``holders`` has a rank."""
        found = coordinates(self.grid, rank)
        return tuple(found[axis] for axis in roles(place))  # type: ignore[return-value]

    def tiles(self, rank: int) -> list[tuple[Tile, Tile]]:
        """The tiles of a rank, forward and backward, in layers 1, 2 … of a period.

        Equal tiles are equal matrices: one has to be kept. A tile of a symmetric M is its own
        transpose on the other side of the diagonal.
        """
        found = []
        for k in range(1, min(self.period, self.facts.depth) + 1):
            rows, columns = self.rows(rank, Place(k)), self.rows(rank, Place(k - 1))
            transposed = Tile(columns, rows, not self.facts.symmetric)
            found.append((Tile(rows, columns), transposed))
        return found

    def chunks(self, rows: int) -> list[slice]:
        """The row blocks of a tile; none is empty but of a tile without rows."""
        count = min(self.row_blocks, max(1, rows))
        return [slice_of(rows, i, count) for i in range(count)]

    def weight(self, rank: int, k: int, d_in: int, d_out: int) -> Piece:
        """A rank's piece of the weight of layer k."""
        axis = roles(Place(k)).rows
        piece = Piece(
            self.columns(rank, Place(k, aggregated=True), d_in),
            self.columns(rank, Place(k), d_out),
            slice(0, 0),
        )
        length = piece.shape[0] * piece.shape[1]
        mine = slice_of(length, coordinates(self.grid, rank)[axis], self.grid[axis])
        return piece._replace(flat=mine)

    def input_rows(self, rank: int) -> slice:
        """Which rows of its piece of H⁰ are a rank's share, where H⁰ is trained (section 3.1)."""
        axis = roles(Place(0)).copies
        rows = self.rows(rank, Place(0)).size
        return slice_of(rows, coordinates(self.grid, rank)[axis], self.grid[axis])

    # Volumes, work and memory: see ``schemes.forecast``.

    def ranks(self) -> Sequence[int]:
        """The ranks with the largest block of rows, or the last one, along each axis.

        The last of the blocks that :func:`slice_of` makes is never smaller than another. Of an
        all-gather it receives a row less than others may, and sends more than that.
        """
        largest = [
            {len(cuts) - 2, *(int(np.argmax(np.diff(some))) for some in (cuts, others))}
            for cuts, others in zip(*self.blocks, strict=True)
        ]
        places = np.stack(np.meshgrid(*map(sorted, largest), indexing="ij")).reshape(3, -1)
        return sorted(np.ravel_multi_index(tuple(places), self.grid).tolist())

    def volume(self, rank: int, product: Operation, k: int, *sizes: int) -> Volume:
        """See the notes of the class."""
        itemsize = self.facts.itemsize
        if product in OF_ROWS:
            size = self.grid[roles(Place(k)).columns]
            return row_volume(product, sizes[0], itemsize, size)
        if product == Operation.MOVE:
            return self._moved(rank, *sizes)
        if product == Operation.EXPAND_INPUT:
            rows, columns = self.shape(rank, Place(0), sizes[0])
            own = _length(self.input_rows(rank)) * columns
            size = self.grid[roles(Place(0)).copies]
            return volume.all_gather(own * itemsize, rows * columns * itemsize, size)
        moved = NOTHING
        if product not in SUMS:
            piece, size = self.weight(rank, k, *sizes), self.grid[roles(Place(k)).rows]
            own, whole = _length(piece.flat), piece.shape[0] * piece.shape[1]
            collective = (
                volume.reduce_scatter if product == Operation.WEIGHT_GRAD else volume.all_gather
            )
            moved = collective(own * itemsize, whole * itemsize, size)
        if product == Operation.WEIGHT_GRAD:
            return moved
        size, chunks, columns = self._result(rank, product, k, *sizes)
        for rows in chunks:
            moved += volume.all_reduce(rows * columns * itemsize, size)
        return moved

    def _result(
        self, rank: int, product: Operation, k: int, *sizes: int
    ) -> tuple[int, list[int], int]:
        """Ranks over which a product is summed; rows of its piece, by chunk; and its columns."""
        place = result_of(product, k)
        width = sizes[-1] if product == Operation.COMBINE else sizes[0]
        rows, columns = self.shape(rank, place, width)
        chunks = self.chunks(rows) if product in SUMS else [slice(0, rows)]
        return self.grid[roles(place).copies], [_length(chunk) for chunk in chunks], columns

    def _moved(self, rank: int, width: int, *places: int) -> Volume:
        """A piece to others and one from others, as if rows were in unrelated orders."""
        before, after = Place(places[0], bool(places[1])), Place(places[2], bool(places[3]))
        ranks = int(np.prod(self.grid))
        copies = self.holders(before).shape[2], self.holders(after).shape[2]
        size, others = self.facts.itemsize, (ranks - 1) / ranks
        received = int(np.prod(self.shape(rank, after, width)) * size * others)
        sent = int(np.prod(self.shape(rank, before, width)) * size * others)
        return Volume(sent * copies[1] // copies[0], received, ranks // copies[0])

    def span(self, product: Operation, k: int) -> Sequence[Span]:
        """Lines of the grid."""
        if product == Operation.MOVE:
            return [Span(int(np.prod(self.grid)), 1, all_pairs=True)]
        if product in OF_ROWS:
            return [self._span(roles(Place(k)).columns)]
        if product == Operation.EXPAND_INPUT:
            return [self._span(roles(Place(0)).copies)]
        axes = [] if product in SUMS else [roles(Place(k)).rows]
        if product != Operation.WEIGHT_GRAD:
            axes.append(roles(result_of(product, k)).copies)
        return [self._span(axis) for axis in axes]

    def work(self, rank: int, product: Operation, k: int, *sizes: int) -> Sequence[Sparse | Dense]:
        """One local product each; tiles of M have their share of the entries, on average."""
        if product in OF_ROWS or product in (Operation.EXPAND_INPUT, Operation.MOVE):
            return []
        if product in SUMS:
            forward, backward = self.tiles(rank)[(k - 1) % self.period]
            tile = forward if product == Operation.AGGREGATE else backward
            width = _length(self.columns(rank, Place(k, aggregated=True), sizes[0]))
            sizes_of = (tile.rows.size, tile.columns.size, self._entries(tile), width)
            return [Sparse(*sizes_of, shuffled=self.permutation in ("single", "double"))]
        block = self.weight(rank, k, *sizes).shape
        return whole_row_work(self.rows(rank, Place(k)).size, product, *block)

    def shape(self, rank: int, place: Place, width: int) -> tuple[int, int]:
        """Rows and columns of a rank's piece."""
        return self.rows(rank, place).size, _length(self.columns(rank, place, width))

    def entries(self, rank: int) -> int:
        """Of all different tiles (section 5.1: min(3, L) or min(6, L), and their transposes)."""
        return sum(self._entries(tile) for tile in {t for pair in self.tiles(rank) for t in pair})

    def sides(self, rank: int) -> int:
        """Own rows at each of the places that there are, if no layer follows the last product."""
        places = self.places(self.facts.depth)
        return sum(self.rows(rank, Place(k)).size for k in range(places))

    def buffers(self, rank: int, product: Operation, k: int, *sizes: int) -> int:
        """The block of W or of its gradient; twice where that is transposed afterwards."""
        if product not in (*DENSE, Operation.WEIGHT_GRAD):
            return 0
        rows, columns = self.weight(rank, k, *sizes).shape
        twice = self.transpose_grad and product == Operation.WEIGHT_GRAD
        return rows * columns * self.facts.itemsize * (2 if twice else 1)

    def reduction_scratch(self, rank: int, product: Operation, k: int, *sizes: int) -> int:
        """The all-reduce of the result, or the reduce-scatter of a gradient.

        Row blocks but the last are reduced in the background, all at once.
        """
        if product == Operation.WEIGHT_GRAD:
            rows, columns = self.weight(rank, k, *sizes).shape
            size = self.grid[roles(Place(k)).rows]
            nbytes = rows * columns * self.facts.itemsize
            return reduction_scratch(nbytes, scatter=True) if size > 1 else 0
        if product not in (*SUMS, *DENSE):
            return 0
        size, (*before, last), columns = self._result(rank, product, k, *sizes)
        row_bytes = columns * self.facts.itemsize
        if size == 1:
            return 0
        return sum(before) * row_bytes + reduction_scratch(last * row_bytes)

    def weight_numbers(self, rank: int, k: int, d_in: int, d_out: int) -> int:
        """A piece of a block: every number is on one rank only."""
        return _length(self.weight(rank, k, d_in, d_out).flat)

    def _span(self, axis: int) -> Span:
        return Span(self.grid[axis], int(np.prod(self.grid[axis + 1 :])))

    def _entries(self, tile: Tile) -> int:
        share = tile.rows.size * tile.columns.size / max(1, self.facts.n) ** 2
        return round(self.facts.entries * share)


def _length(part: slice) -> int:
    return part.stop - part.start
