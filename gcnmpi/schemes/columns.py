"""The scheme of columns: each rank multiplies M with some columns of all rows.

Ai et al. 2024, NeutronTP: Load-balanced distributed full-graph GNN training with tensor parallelism
(PVLDB 18). Rank r owns a block of rows of every dense matrix, as under ``bcast``; weights
are replicated. A product **turns** its operand: every rank sends each other one that one's columns
of its own rows, so that rank r has columns d·r/P … d·(r + 1)/P of all n rows; multiplies M with
them; and the result is turned back. Between the products of a chain, such as the K of APPNP, SGC or
SIGN, columns stay where they are (:mod:`gcnmpi.nn.compile.turned`), so that the chain takes two
turns, whatever K, the graph and its partition are.

A turn of d columns moves (P − 1)/P·d numbers of each own row. The price: each rank reads all of M,
and of Mᵀ where M is not symmetric. They are in memory once a node, if the kernel takes arrays as
they are (``native``); a rank holds n·d/P numbers of a matrix, as many as under the other schemes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.halo.matrix import Matrix
from gcnmpi.kernels.epilogues import Epilogue
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.kernels.interface.kernel import Sparse as Tile
from gcnmpi.layout.grid import line
from gcnmpi.layout.place import Block, Place, Space
from gcnmpi.layout.runtime import Demand, Runtime, Source
from gcnmpi.layout.tiling import Tiling
from gcnmpi.mpi.collectives import Group
from gcnmpi.mpi.comm import Comm, agreed, once_a_node, slice_of
from gcnmpi.options.config import Config
from gcnmpi.options.scheme import SchemeConfig
from gcnmpi.schemes.block_rows import block_bounds, block_rows, check_blocks, load_tiles
from gcnmpi.schemes.forecast import (
    Dense,
    Facts,
    Forecast,
    Span,
    Sparse,
    make_facts,
    whole_row_work,
)
from gcnmpi.schemes.interface import Entry
from gcnmpi.schemes.operations import SUMS, TURNS, Operation
from gcnmpi.schemes.row_scheme import RowScheme
from partition.graph.graph import index_dtype


def load(runtime: Runtime, source: Source, config: Config, demand: Demand) -> RowScheme:
    """Bring M to every node; the parts are grouped into a block of rows for each rank."""
    comm = runtime.comm
    with agreed(comm):
        check_blocks(source.partition, comm.size)
        facts = make_facts(source, config, demand)
    tiling = block_rows(comm, source, 1, config, demand)
    max_bytes = config.loading.max_bytes
    turns = Turns(runtime, line(runtime, (comm.size, 1), 0), tiling)
    operands: list[Tile] = []
    if demand.products:
        own = load_tiles(comm, source, tiling, config, transposed=not facts.one_tile)
        whole = [of_all_ranks(comm, one, runtime.kernel.dtype) for one in own]
        operands = [runtime.kernel.sparse(matrix) for matrix in whole]
    both = [*operands[:1], *operands[-1:]]  # M, which may be Mᵀ too
    forecast = ColumnsForecast(comm.size, facts)
    return Columns(runtime, {"name": "columns"}, tiling, turns, both, forecast, max_bytes)


def of_all_ranks(comm: Comm, own: sp.csr_array, dtype: np.dtype) -> sp.csr_array:
    """The rows of all ranks, one rank's after the other's, in memory that each node has once."""
    indices, data = (
        once_a_node(comm, piece).array
        for piece in (own.indices, own.data.astype(dtype, copy=False))
    )
    counts = once_a_node(comm, np.diff(own.indptr))
    starts = np.zeros(len(counts.array) + 1, index_dtype(len(data)))
    np.cumsum(counts.array, out=starts[1:])
    counts.free()
    return sp.csr_array((data, indices, starts), shape=(len(starts) - 1, own.shape[1]), copy=False)


@dataclass(frozen=True)
class ColumnsForecast(Forecast):
    """The scheme on paper.

    Attributes
    ----------
    size : int
        P.
    facts : Facts
        Blocks are groups of parts where P divides their number, else of equal size.
    """

    size: int
    facts: Facts
    turns = True

    @cached_property
    def bounds(self) -> np.ndarray:
        """Where blocks begin, (P + 1,) int64."""
        return block_bounds(self.facts, self.size)

    def rows(self, rank: int) -> int:
        """How many rows a rank owns."""
        return int(self.bounds[rank + 1] - self.bounds[rank])

    def columns(self, rank: int, width: int) -> slice:
        """A rank's columns of a matrix of columns."""
        return slice_of(width, rank, self.size)

    def ranks(self) -> Sequence[int]:
        """The ranks with most and with fewest rows; the first has fewest columns, the last most."""
        rows = np.diff(self.bounds)
        return sorted({int(np.argmax(rows)), int(np.argmin(rows)), 0, self.size - 1})

    def volume(self, rank: int, product: Operation, k: int, *sizes: int) -> Volume:
        """Turns; of a product with own rows, of its operand and of its result."""
        if product == Operation.TO_COLUMNS:
            return self._turn(rank, sizes[0])
        if product == Operation.TO_ROWS:
            return self._turn_back(rank, sizes[0])
        if product in (Operation.AGGREGATE, Operation.AGGREGATE_T):
            return self._turn(rank, sizes[0]) + self._turn_back(rank, sizes[0])
        return NOTHING

    def span(self, product: Operation, k: int) -> Sequence[Span]:
        """All ranks, each with any other."""
        return [Span(self.size, 1, all_pairs=True)] if product in (*SUMS, *TURNS) else []

    def work(self, rank: int, product: Operation, k: int, *sizes: int) -> Sequence[Sparse | Dense]:
        """All of M with the columns; dense products of own rows."""
        if product not in SUMS:
            return whole_row_work(self.rows(rank), product, *sizes)
        n, width = self.facts.n, _length(self.columns(rank, sizes[0]))
        return [Sparse(n, n, self.facts.entries, width)]

    def shape(self, rank: int, place: Place, width: int) -> tuple[int, int]:
        """All columns of own rows, or some columns of all rows."""
        columns = _length(self.columns(rank, width)) if place.space is Space.TURNED else width
        return self.facts.rows_in(place.space, self.rows(rank), 0, 0), columns

    def entries(self, rank: int) -> int:
        """All of M, and of Mᵀ: once a node, of which each rank is taken to be one."""
        return self.facts.entries * (1 if self.facts.one_tile else 2)

    def loaded(self, rank: int) -> int:
        """Entries of own rows, if they are spread evenly, before those of others come."""
        return self.entries(rank) * self.rows(rank) // max(1, self.facts.n)

    def buffers(self, rank: int, product: Operation, k: int, *sizes: int) -> int:
        """Own rows, packed; of a product with own rows both turns, and columns of its two sides."""
        packed = self.facts.row_bytes(sizes[0]) * self.rows(rank) if sizes else 0
        if product in TURNS:
            return packed
        if product not in (Operation.AGGREGATE, Operation.AGGREGATE_T):
            return 0
        columns = self.facts.row_bytes(_length(self.columns(rank, sizes[0])))
        return 2 * (packed + self.facts.n * columns)

    def _turn(self, rank: int, width: int) -> Volume:
        """Own rows of the columns of others; own columns of the rows of others."""
        rows, mine = self.rows(rank), _length(self.columns(rank, width))
        takers = min(width, self.size) - (mine > 0)  # that have columns
        sent, received = rows * (width - mine), (self.facts.n - rows) * mine
        size = self.facts.itemsize
        return Volume(sent * size, received * size, takers if rows else 0)

    def _turn_back(self, rank: int, width: int) -> Volume:
        """The same messages the other way."""
        there, mine = self._turn(rank, width), _length(self.columns(rank, width))
        takers = np.count_nonzero(np.diff(self.bounds)) - (self.rows(rank) > 0)
        return Volume(there.received, there.sent, int(takers) if mine else 0)


# Without a partition, blocks are ranges of vertices.
ENTRY: Entry[SchemeConfig] = Entry(
    load, lambda config, size, facts: ColumnsForecast(size, facts), keeps_rows=True
)


class Turns:
    """How own rows become columns, and back; products of either.

    Parameters
    ----------
    group : Group
        All ranks.
    tiling : Tiling
        Rank q has the rows of block q.
    """

    def __init__(self, runtime: Runtime, group: Group, tiling: Tiling) -> None:
        self._kernel, self._phases, self._group = runtime.kernel, runtime.phases, group
        cuts = tiling.cuts.tolist()
        self._blocks = [slice(*pair) for pair in pairwise(cuts)]
        self._rows, self.n = tiling.rows, tiling.ordering.n
        self._buffers: dict[tuple[str, int], Array] = {}

    def columns(self, width: int, rank: int | None = None) -> slice:
        """Columns of this rank in a matrix of columns, or of another one."""
        return slice_of(width, self._group.rank if rank is None else rank, self._group.size)

    def empty(self, place: Place, width: int) -> Matrix:
        """Own rows; or columns of all rows."""
        if place.space is Space.TURNED:
            return Matrix(place, self._kernel.empty(self.n, _length(self.columns(width))))
        return Matrix(place, self._kernel.empty(self._rows, width))

    def release(self) -> None:
        """Free packed rows, and columns of single products."""
        self._buffers.clear()

    def to_columns(self, x: Array, out: Array) -> None:
        """Own rows, (own, width), as columns, (n, part of the width): they arrive in place."""
        width = x.shape[1]
        packed, columns = self._packed("to columns", width), self._columns(width)
        with self._phases("pack"):
            for piece, some in zip(packed, columns, strict=True):
                self._kernel.copy(x[:, some], piece)
        self._group.all_to_all(packed, [out[block] for block in self._blocks])

    def to_rows(self, x: Array, out: Array) -> None:
        """The way back: they leave from where they are."""
        width = out.shape[1]
        packed, columns = self._packed("to rows", width), self._columns(width)
        self._group.all_to_all([x[block] for block in self._blocks], packed)
        with self._phases("pack"):
            for piece, some in zip(packed, columns, strict=True):
                self._kernel.copy(piece, out[:, some])

    def multiply(
        self, matrix: Tile, x: Matrix, out: Array, epilogue: Epilogue | None = None
    ) -> None:
        """out = epilogue(matrix · x), of columns; or of own rows, which are turned for it."""
        if x.place.space is Space.TURNED:
            self._multiply(matrix, x.array, out, epilogue)
            return
        shape = self.n, _length(self.columns(x.array.shape[1]))
        operand, result = self._buffer("operand", *shape), self._buffer("result", *shape)
        self.to_columns(x.array, operand)
        self._multiply(matrix, operand, result, None)
        self.to_rows(result, out)
        self._kernel.follow(out, epilogue)

    def _multiply(self, matrix: Tile, x: Array, out: Array, epilogue: Epilogue | None) -> None:
        if x.shape[1]:  # a rank of more than there are columns has none
            with self._phases("spmm"):
                self._kernel.spmm_then(matrix, x, out, False, epilogue)

    def _columns(self, width: int) -> list[slice]:
        return [self.columns(width, rank) for rank in range(self._group.size)]

    def _packed(self, name: str, width: int) -> list[Array]:
        """Own rows of the columns of each rank, each contiguous, behind each other."""
        whole, pieces = self._buffer(name, self._rows, width).reshape(-1), []
        for some in self._columns(width):
            piece = whole[self._rows * some.start : self._rows * some.stop]
            pieces.append(piece.reshape(self._rows, _length(some)))
        return pieces

    def _buffer(self, name: str, rows: int, columns: int) -> Array:
        """Memory that is kept, for each width."""
        if (name, columns) not in self._buffers:
            self._buffers[name, columns] = self._kernel.empty(rows, columns)
        return self._buffers[name, columns]


class Columns(RowScheme[Tile]):
    """Own rows, as other schemes have them, and columns of all rows besides."""

    _products: Turns
    turns = True

    def block(self, place: Place, width: int) -> Block:
        """Own rows; or columns of all rows, one rank's after the other's."""
        if place.space is not Space.TURNED:
            return super().block(place, width)
        return Block.of(self._all_vertices, self._products.columns(width), part=self._comm.rank)

    def empty(self, place: Place, width: int, exchanged: bool = False) -> Matrix:
        """Nothing is special about matrices that are multiplied."""
        return self._products.empty(place, width)

    def move(self, x: Matrix, out: Matrix, width: int) -> None:
        """Turn rows into columns, or columns into rows."""
        turns = self._products
        turn = turns.to_columns if out.place.space is Space.TURNED else turns.to_rows
        turn(x.array, out.array)

    @cached_property
    def _all_vertices(self) -> np.ndarray:
        assert isinstance(self._rows, Tiling)
        return self._rows.ordering.vertices(0, self._products.n)


def _length(columns: slice) -> int:
    return int(columns.stop - columns.start)
