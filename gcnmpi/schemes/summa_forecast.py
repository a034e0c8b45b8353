"""SUMMA on a grid of p1 × p2 × p3 ranks, on paper: cuts, stages, volumes, work and memory.

Tripathy, Yelick and Buluç 2020, sections IV-C (p3 = 1) and IV-D. The vertices are cut into
units, lcm(p1, p2)·p3 of them, so that row pieces, row blocks and columns of M are whole units::

    row block i       units of all ranks (i, ·, ·)                            n/p1 rows
    row piece (i, l)  the l-th of p3 contiguous parts of row block i          n/(p1·p3) rows
    layer l           row pieces (0, l) … (p1 − 1, l): its inner dimension    n/p3 columns of M
    inner block (j, l)  the j-th of p2 parts of layer l                       n/(p2·p3) columns

Rank (i, j, l) holds row piece (i, l), columns block j of dense matrices, and row block i, inner
block (j, l) of M and of Mᵀ. A stage is a range of a layer's inner dimension that lies in one row
piece and in one inner block: the common refinement of both cuts, p1 + p2 − gcd(p1, p2) stages, and
whole blocks where p1 = p2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import lcm
from typing import NamedTuple

import numpy as np

from gcnmpi.core.volume import NOTHING, Volume, broadcast, reduce_scatter
from gcnmpi.layout.grid import coordinates
from gcnmpi.layout.place import Place
from gcnmpi.layout.tiling import Ordering
from gcnmpi.mpi.collectives import reduction_scratch
from gcnmpi.mpi.comm import slice_of
from gcnmpi.schemes.forecast import Dense, Facts, Forecast, Span, Sparse, row_volume
from gcnmpi.schemes.operations import DENSE, OF_ROWS, SUMS, Operation
from gcnmpi.schemes.tiles import message_bytes

Grid = tuple[int, int, int]


class Stage(NamedTuple):
    """A piece of the inner dimension: rows of H of one rank, columns of M of another.

    Attributes
    ----------
    row, column : int
        Process row that broadcasts rows of H, process column that broadcasts columns of M.
    rows, columns : slice
        Which rows of its piece, which columns of its tile.
    """

    row: int
    column: int
    rows: slice
    columns: slice

    @property
    def size(self) -> int:
        """Rows of H, and columns of M."""
        return self.rows.stop - self.rows.start


class StageKind(NamedTuple):
    """A stage as a rank sees it: size, entries of its tile, whether the rank gives tile or rows."""

    size: int
    entries: int
    gives_tile: bool
    gives_rows: bool


class Chunk(NamedTuple):
    """Columns of a dense matrix that one process column broadcasts at once."""

    owner: int
    columns: slice

    @property
    def width(self) -> int:
        """Number of columns that travel."""
        return self.columns.stop - self.columns.start


def make_chunks(width: int, parts: int, block: int) -> list[Chunk]:
    """A matrix of ``width`` columns in all, in chunks of at most ``block`` (0: whole blocks)."""
    chunks = []
    for owner in range(parts):
        mine = slice_of(width, owner, parts)
        for start in range(mine.start, mine.stop, block or max(1, width)):
            chunks.append(Chunk(owner, slice(start, min(mine.stop, start + (block or width)))))
    return chunks


class Layout:
    """Where rows, columns of M and stages begin.

    Parameters
    ----------
    grid : (p1, p2, p3)
    ordering : Ordering
        Units are whole parts of its partition where lcm(p1, p2)·p3 divides their number.

    Attributes
    ----------
    units : (lcm(p1, p2)·p3 + 1,) int64
        Positions at which units begin.
    pieces : (p1·p3 + 1,) int64
        Positions at which row pieces begin, piece (i, l) being number i·p3 + l.
    blocks : (p1 + 1,) int64
        Positions at which row blocks begin.
    inner : (p3·p2 + 1,) int64
        Where inner blocks begin in the numbering of :meth:`inner_positions`, block (j, l) being
        number l·p2 + j.
    """

    def __init__(self, grid: Grid, ordering: Ordering) -> None:
        p1, p2, p3 = self.grid = grid
        units = lcm(p1, p2)
        self.units = ordering.cuts(units * p3)
        self.pieces = self.units[:: units // p1]
        self.blocks = self.pieces[::p3]
        lengths = np.diff(self.units).reshape(p1, p3, -1).transpose(1, 0, 2)
        # Where each unit begins if layer comes after layer.
        starts = np.concatenate(([0], np.cumsum(lengths)))
        self.inner = starts[:: units // p2]
        self._own = starts[:: units // p1]
        self._starts = starts[:-1].reshape(lengths.shape).transpose(1, 0, 2).ravel()

    def inner_positions(self, positions: np.ndarray) -> np.ndarray:
        """Positions in a numbering in which layers, and so inner blocks, are contiguous."""
        unit = np.searchsorted(self.units, positions, side="right") - 1
        return positions - self.units[unit] + self._starts[unit]

    def counts(self, positions: np.ndarray) -> np.ndarray:
        """How many of some positions are in each unit, float64."""
        units = np.searchsorted(self.units, positions, side="right") - 1
        return np.bincount(units, minlength=len(self.units) - 1).astype(np.float64)

    def inner_ranges(self, j: int, layer: int) -> list[tuple[int, int]]:
        """Positions of the units of inner block (j, l), start and stop, in the order it has."""
        p1, p2, p3 = self.grid
        count = len(self.units) - 1
        of_layer = np.arange(count).reshape(p1, p3, -1)[:, layer].ravel()
        mine = of_layer.reshape(p2, -1)[j]
        return [(int(self.units[unit]), int(self.units[unit + 1])) for unit in mine]

    def stages(self, layer: int) -> list[Stage]:
        """The stages of a layer that are not empty, in the order of the inner dimension."""
        p1, p2, _ = self.grid
        rows = self._own[layer * p1 : (layer + 1) * p1 + 1]
        columns = self.inner[layer * p2 : (layer + 1) * p2 + 1]
        bounds = np.union1d(rows, columns)
        starts, stops = bounds[:-1], bounds[1:]
        i, j = (np.searchsorted(cuts, starts, side="right") - 1 for cuts in (rows, columns))
        ranges = (starts - rows[i], stops - rows[i], starts - columns[j], stops - columns[j])
        table = zip(*(array.tolist() for array in (i, j, *ranges)), strict=True)
        return [Stage(i, j, slice(a, b), slice(c, d)) for i, j, a, b, c, d in table]


@dataclass(frozen=True, kw_only=True)
class LayerOrdering(Ordering):
    """An ordering in which the rows of a layer follow each other."""

    layout: Layout

    def positions(self, vertices: np.ndarray) -> np.ndarray:
        """Where vertices are if layer comes after layer."""
        return self.layout.inner_positions(super().positions(vertices))


@dataclass(frozen=True)
class SummaForecast(Forecast):
    """Both schemes on paper: "summa" has p3 = 1.

    Attributes
    ----------
    grid : (p1, p2, p3)
    block : int
        ``scheme.block``.
    facts : Facts
    travelling : mapping of "aggregate" and "aggregate_t" to sequences of int, or None
        Entries of M and of Mᵀ in each stage's columns and one row block, as a running rank knows
        them of its own. Without them, the diagonal is taken to be full and other entries to be
        spread evenly, as a random order of the vertices does.
    shuffled : bool
        Whether the order of the vertices is random.
    """

    grid: Grid
    block: int
    facts: Facts
    travelling: Mapping[Operation, Sequence[int]] | None = None
    shuffled: bool = False
    whole_rows = False

    def ranks(self) -> Sequence[int]:
        """Largest row piece, row block and inner block, one with the diagonal; last columns."""
        _, p2, p3 = self.grid
        piece = int(np.argmax(np.diff(self.layout.pieces)))
        block = int(np.argmax(np.diff(self.layout.blocks)))
        inner = int(np.argmax(np.diff(self.layout.inner)))
        layer, column = divmod(inner, p2)
        crossed = [s.row for s in self.layout.stages(layer) if s.column == column]
        places = [
            (piece // p3, p2 - 1, piece % p3),
            (block, p2 - 1, piece % p3),
            *((row, column, layer) for row in (block, *crossed[:1])),
        ]
        return sorted({int(np.ravel_multi_index(place, self.grid)) for place in places})

    def volume(self, rank: int, product: Operation, k: int, *sizes: int) -> Volume:
        """The broadcasts of every stage, and the reduce-scatter along the fiber.

        A rank of a square grid receives in M·H (b bytes a number, about b + 2 or b + 4 an entry
        of M, as column numbers fit; q = 1 − 1/p1)::

            q·entries·(b + 2 or 4)/(p1·p3)        M: row block i of layer l, but for its own tile
            q·n·d·b/(p2·p3)                       H: layer l, columns block j, but for its own
            (1 − 1/p3)·n·d·b/(p1·p2)              partial sums

        For p1 = p2 = √P, p3 = 1 that is section IV-C's nnz/√P + nf/√P, which leaves out q; for
        p1 = p2 = p3 = P^⅓ it is section IV-D's nnz/P^⅔ + 2nf/P^⅔. Row pointers, which they do not
        count, are 2 or 4 bytes a row and stage here; a tile without entries does not travel.
        T·W and G·Wᵀ receive (1 − 1/p2)·n·d·b/(p1·p3), d being the width of T or G: the partial
        SUMMA's nf/√P or nf/P^⅔; or that of the result where it is narrower, which the paper, with
        one f for all widths, does not look at. So does Tᵀ·G, of the narrower of both: the owner of
        columns of T multiplies, so that one matrix travels and not two.
        """
        i, j, layer = coordinates(self.grid, rank)
        p1, p2, p3 = self.grid
        size = self.facts.itemsize
        total = NOTHING
        if product in SUMS:
            columns, rows = self._columns(sizes[0], j), self._rows(i)
            for kind, times in self._stages(rank, product).items():
                nbytes = message_bytes(rows, kind.size, kind.entries, size)
                total += broadcast(nbytes, p2, kind.gives_tile) * times
                total += broadcast(kind.size * columns * size, p1, kind.gives_rows) * times
            own = self._piece(i, layer) * columns * size
            total += reduce_scatter(own, rows * columns * size, p3)
        elif widths := dense_widths(product, *sizes):
            width, result = widths
            rows = self._piece(i, layer)
            if product != Operation.WEIGHT_GRAD and result_travels(width, result, p2):
                own = rows * self._columns(result, j) * size
                return reduce_scatter(own, rows * result * size, p2)
            for chunk in make_chunks(width, p2, self.block):
                total += broadcast(rows * chunk.width * size, p2, j == chunk.owner)
        elif product in OF_ROWS:
            total = row_volume(product, sizes[0], size, p2)
        return total

    def span(self, product: Operation, k: int) -> Sequence[Span]:
        """Process row, process column and fiber; the process row alone where rows are kept."""
        p1, p2, p3 = self.grid
        row = Span(p2, p3)
        if product in SUMS:
            return [row, Span(p1, p2 * p3), Span(p3, 1)]
        return [] if product == Operation.EXPAND_INPUT else [row]

    def work(self, rank: int, product: Operation, k: int, *sizes: int) -> Sequence[Sparse | Dense]:
        """One local product a stage, or a chunk."""
        i, j, layer = coordinates(self.grid, rank)
        if product in SUMS:
            columns, rows = self._columns(sizes[0], j), self._rows(i)
            return [
                Sparse(
                    rows,
                    kind.size,
                    kind.entries,
                    columns,
                    shuffled=self.shuffled,
                    received=not kind.gives_tile,
                )
                for kind, times in self._stages(rank, product).items()
                for _ in range(times)
            ]
        widths = dense_widths(product, *sizes)
        if not widths:
            return []
        (width, result), rows = widths, self._piece(i, layer)
        chunks, kept = make_chunks(width, self.grid[1], self.block), self._columns(result, j)
        if product == Operation.WEIGHT_GRAD:
            return [Dense(chunk.width, rows, kept) for chunk in chunks]
        if result_travels(width, result, self.grid[1]):
            return [Dense(result, self._columns(width, j), rows)]
        return [Dense(rows, chunk.width, kept) for chunk in chunks]

    def shape(self, rank: int, place: Place, width: int) -> tuple[int, int]:
        """Row piece (i, l), columns block j."""
        i, j, layer = coordinates(self.grid, rank)
        return self._piece(i, layer), self._columns(width, j)

    def entries(self, rank: int) -> int:
        """Tiles of M and Mᵀ, as if entries off the diagonal were spread evenly."""
        i, j, layer = coordinates(self.grid, rank)
        stages = [stage for stage in self.layout.stages(layer) if stage.column == j]
        tile = sum(self._average(i, stage) for stage in stages)
        return tile * (1 if self.facts.one_tile else 2)

    def sides(self, rank: int) -> int:
        """Row block i, and inner block (j, l)."""
        i, j, layer = coordinates(self.grid, rank)
        inner = layer * self.grid[1] + j
        return self._rows(i) + int(self.layout.inner[inner + 1] - self.layout.inner[inner])

    def buffers(self, rank: int, product: Operation, k: int, *sizes: int) -> int:
        """Rows and tiles that a stage receives, tiles in the form that travels, and partial sums.

        The partial sums of a layer have all rows of the row block, p3 times those of the result:
        section IV-D's replication. They are needed where there is more than one layer.
        """
        i, j, layer = coordinates(self.grid, rank)
        p1, p2, p3 = self.grid
        size = self.facts.itemsize
        if product in SUMS:
            columns, rows = self._columns(sizes[0], j), self._rows(i)
            stages = self._stages(rank, product)
            tiles = {s: message_bytes(rows, s.size, s.entries, size) for s in stages}
            own = sum(tiles[s] * times for s, times in stages.items() if s.gives_tile)
            # A tile that was received, and the kernel's form of it.
            sparse = own + 2 * max(tiles.values(), default=0) if p2 > 1 else 0
            dense = max((s.size for s in stages), default=0) if p1 > 1 else 0
            return sparse + (dense + (rows if p3 > 1 else 0)) * columns * size
        widths = dense_widths(product, *sizes)
        if not widths:
            return 0
        width, result = widths
        if product != Operation.WEIGHT_GRAD and result_travels(width, result, p2):
            needed = result + self._columns(result, j)
        else:
            chunks = make_chunks(width, p2, self.block)
            needed = max(chunk.width for chunk in chunks) if p2 > 1 else 0
        return self._piece(i, layer) * needed * size

    def reduction_scratch(self, rank: int, product: Operation, k: int, *sizes: int) -> int:
        """Partial sums of a layer along the fiber; of a product with a weight, along the row."""
        i, j, layer = coordinates(self.grid, rank)
        _, p2, p3 = self.grid
        numbers = 0
        if product in SUMS:
            numbers = self._rows(i) * self._columns(sizes[0], j) if p3 > 1 else 0
        elif product != Operation.WEIGHT_GRAD and (widths := dense_widths(product, *sizes)):
            numbers = self._piece(i, layer) * widths[1] if result_travels(*widths, p2) else 0
        return reduction_scratch(numbers * self.facts.itemsize, scatter=True)

    @cached_property
    def layout(self) -> Layout:
        """Cuts by the rows of the partition's parts, as its metrics have them."""
        metrics = self.facts.metrics
        bounds = None if metrics is None else np.cumsum([0, *metrics["rows"]])
        return Layout(self.grid, Ordering(self.facts.n, None, bounds))

    @cached_property
    def _stages(self) -> Callable[[int, str], Mapping[StageKind, int]]:
        """``_stages(rank, product)``: how often it meets each kind of stage; counted once."""

        def count(rank: int, product: Operation) -> Mapping[StageKind, int]:
            i, j, layer = coordinates(self.grid, rank)
            stages = self.layout.stages(layer)
            entries = [self._average(i, stage) for stage in stages]
            if self.travelling is not None:
                entries = list(self.travelling[product])
            return Counter(
                StageKind(stage.size, number, stage.column == j, stage.row == i)
                for stage, number in zip(stages, entries, strict=True)
            )

        return cache(count)

    def _average(self, i: int, stage: Stage) -> int:
        """Entries of a stage's columns in row block i; all vertices of a stage are in one block."""
        n = self.facts.n
        spread = max(0, self.facts.entries - n) * self._rows(i) * stage.size // n**2
        return spread + (stage.size if stage.row == i else 0)

    def _rows(self, i: int) -> int:
        return int(self.layout.blocks[i + 1] - self.layout.blocks[i])

    def _piece(self, i: int, layer: int) -> int:
        number = i * self.grid[2] + layer
        return int(self.layout.pieces[number + 1] - self.layout.pieces[number])

    def _columns(self, width: int, j: int) -> int:
        columns = slice_of(width, j, self.grid[1])
        return columns.stop - columns.start


def dense_widths(product: Operation, *sizes: int) -> tuple[int, int] | None:
    """Widths of the matrix whose columns are multiplied and of the result; None for others.

    Of Tᵀ·G: of the narrower matrix, which travels, and of the other.
    """
    if product == Operation.WEIGHT_GRAD:
        return min(sizes), max(sizes)
    if product not in DENSE:
        return None
    d_in, d_out = sizes
    return (d_in, d_out) if product == Operation.COMBINE else (d_out, d_in)


def result_travels(width: int, result: int, parts: int) -> bool:
    """Whether a product with a weight moves its result, as the narrower matrix, between parts."""
    return parts > 1 and result < width
