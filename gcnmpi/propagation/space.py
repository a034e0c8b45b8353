"""The rows of a rank, and what methods do with them: products, sums over ranks, rows of files."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from gcnmpi.core.volume import Volume
from gcnmpi.halo.matrix import Matrix
from gcnmpi.layout.arcs import Weights, arc_pieces, check_content, sums_on_disk
from gcnmpi.layout.loading import Readable
from gcnmpi.layout.place import Place
from gcnmpi.layout.place import Space as Space_
from gcnmpi.mpi.comm import agreed, minimum, slice_of
from gcnmpi.mpi.reduction import reduce_over_ranks
from gcnmpi.propagation.checkpoint import Checkpoints
from gcnmpi.run.opening import Opened
from gcnmpi.run.own_rows import check_labels, check_trains, own_features
from gcnmpi.run.results import Rows, write
from gcnmpi.schemes.interface import Scheme
from gcnmpi.schemes.operations import Operation
from partition.errors import UserError
from partition.graph.graph import TARGET_FILES, UNLABELLED, VERTICES

PURPOSE = "propagate"  # of what is counted
_PAUSE = 5.0  # seconds between two lines of progress, at first
_GROWTH = 1.3
T = TypeVar("T")


class Space:
    """Dense matrices with a row for each vertex, of which a rank has those of its own vertices.

    Methods compute with NumPy on own rows; what is here is all that they need of other ranks, and
    is called by all of them together. ``tell`` is called with lines of progress.

    Attributes
    ----------
    n : int
        Vertices of the graph.
    vertices : (own,) integers
        Global ids of own rows. Ranks may have copies of the same rows: see ``counted``.
    counted : slice
        The own rows that this rank takes in sums over all vertices.
    products : Counter
        How many products there were of each kind and width.
    """

    def __init__(self, opened: Opened, scheme: Scheme, tell: Callable[[str], None]) -> None:
        runtime, source, config = opened.runtime, opened.source, opened.config
        self.comm, self.stored, self.config = runtime.comm, source.stored, config
        self.n, self.direction, self.scheme = source.stored.graph.n, source.direction, scheme
        self.vertices: np.ndarray = scheme.block(Place(0), 1).rows
        self.counted, self.dtype = scheme.summed(len(self.vertices)), np.dtype(config.dtype)
        self.products: Counter[tuple[Operation, int]] = Counter()
        self._kernel, self._tell = runtime.kernel, tell
        self._phases, self._traffic = runtime.phases, runtime.traffic
        self._operands: dict[int, Matrix] = {}
        self._told, self._pause = 0.0, _PAUSE
        self.checkpoints = Checkpoints(self.comm, self.save, self.own)

    def multiply(self, x: np.ndarray) -> np.ndarray:
        """M · x of own rows, (own, width) or (own,): own rows of it, in a new array."""
        columns = x[:, np.newaxis] if x.ndim == 1 else x
        operation = Operation.AGGREGATE, columns.shape[1]
        return self._multiply(columns, self._operand(columns.shape[1]), operation).reshape(x.shape)

    def chain(self, width: int) -> RowChain:
        """Products one after the other, of matrices of so many columns."""
        return Chain(self, width) if self.scheme.turns else RowChain(self)

    def _multiply(self, x: np.ndarray, operand: Matrix, as_: tuple[Operation, int]) -> np.ndarray:
        self._kernel.copy(self._kernel.from_host(np.ascontiguousarray(x)), operand.array)
        out = self._kernel.empty(*x.shape)
        with self._counted(as_):
            self.scheme.aggregate(1, operand, out)
        return self._kernel.to_host(out)

    @contextlib.contextmanager
    def _counted(self, operation: tuple[Operation, int]) -> Iterator[None]:
        """Count bytes that are moved in the block as those of a product."""
        with self._traffic.during(PURPOSE, epoch=self.products.total() + 1):
            yield
        self.products[operation] += 1

    def largest_neighbour(self, x: np.ndarray) -> np.ndarray:
        """The maximum of x over the entries of each own row of M, (own,); 0 without entries.

        Only of a method that asks for whole rows.
        """
        halo = self.scheme.halo
        assert halo is not None, "the method asks for whole rows"
        if 1 not in self._operands:
            self._operands[1] = halo.empty(Place(0), 1)
        operand, out = self._operands[1], self._kernel.empty(len(x), 1)
        self._kernel.copy(self._kernel.from_host(x[:, np.newaxis]), operand.array)
        with self._counted((Operation.EXPAND, 1)):
            rows = halo.expand(operand)
        where = self._kernel.empty_integers(len(x), 1)
        self._kernel.max_aggregate(halo.pattern, rows, out, where)
        return self._kernel.to_host(out)[:, 0]

    def _operand(self, width: int) -> Matrix:
        if width not in self._operands:
            self._operands.clear()  # methods mostly stay with one width
            made = self.scheme.empty(Place(0), width, exchanged=True)
            self._operands[width] = replace(made, spent=True)  # rows are copied to it each time
        return self._operands[width]

    def total(self, contributions: np.ndarray | float) -> np.ndarray:
        """The sum over ranks of an array, in float64; all ranks get the same bits."""
        flat = np.array(contributions, np.float64).reshape(-1)
        with self._traffic.during(PURPOSE):
            reduce_over_ranks(self.comm, flat, self._phases, self._traffic)
        return flat.reshape(np.shape(contributions))

    def lowest(self, vertices: np.ndarray) -> int:
        """The lowest of the vertices that ranks give; n where none gives any."""
        return minimum(self.comm, int(vertices.min(initial=self.n)))

    def gram(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Xᵀ · Y over the rows of all ranks, in float64: one all-reduce."""
        return self.grams([x], y)

    def grams(self, xs: Sequence[np.ndarray], y: np.ndarray) -> np.ndarray:
        """Xᵀ · Y of several X, one above the other: one all-reduce for all."""
        mine = self.counted
        right = y[mine].astype(np.float64, copy=False)
        return self.total(np.vstack([x[mine].T @ right for x in xs]))

    def alike(self, make: Callable[[], T]) -> T:
        """The result of ``make()`` on rank 0.

        For decisions, and factors of small matrices: other processors may round differently.
        """
        return self.comm.bcast(make() if self.comm.rank == 0 else None)  # type: ignore[return-value]

    def read(self, make: Callable[[], np.ndarray]) -> np.ndarray:
        """The rows that ``make()`` reads of a file, on each rank; its UserError on all of them."""
        with agreed(self.comm):
            return make()

    def own(self, array: Readable) -> np.ndarray:
        """Own rows of an (n, …) array on disk."""
        return self.scheme.load(Place(0), array)

    def result(self, rows: np.ndarray) -> Rows:
        """Own rows as those of a result: of copies, the first gives them."""
        first = self.scheme.block(Place(0), 1).copy == 0
        own = self.vertices if first else self.vertices[:0]
        return Rows(own, np.arange(len(own)), rows, self.n)

    def save(self, rows: np.ndarray, path: Path) -> None:
        """Write own rows into a ``.npy`` in the original order, which is replaced as a whole."""
        write(self.comm, path, self.result(rows), None, self.max_bytes)

    def column_sums(self) -> np.ndarray:
        """Sums of the columns of A, oriented as M, for own vertices; (own,) float64.

        With direction "in", the weights of the arcs that leave a vertex: none may be negative.
        """
        comm, stored = self.comm, self.stored

        def columns(check: bool) -> Iterator[Weights]:
            for piece in arc_pieces(comm, stored, self.direction, self.max_bytes, check):
                with agreed(comm):
                    if piece.weight is not None and (piece.weight < 0).any():
                        raise UserError(f"{stored.path} has an arc of negative weight")
                yield piece.column, piece.weight

        sums = sums_on_disk(comm, columns, self.n, self.max_bytes)
        return self.own(_Slice(sums, slice_of(self.n, comm.rank, comm.size), self.n))

    def features(self) -> np.ndarray:
        """Own rows of the features, (own, width), normalised as configured; all are finite."""

        def load(features: Readable) -> np.ndarray:
            return self.own(features).astype(self.dtype, copy=False)

        return own_features(self.comm, self.stored, self.config, load)

    def train_labels(self) -> np.ndarray:
        """Labels of own vertices that train, (own,) int32; −1 for all others."""
        graph = self.stored.graph
        check_content(self.comm, self.stored, TARGET_FILES[VERTICES])
        labels = self.own(graph.labels)  # type: ignore[arg-type]
        if "train" in graph.masks:
            labels = np.where(self.own(graph.masks["train"]), labels, UNLABELLED)
        check_labels(self.comm, self.stored, labels, self.stored.manifest.classes)
        count = self.total(float(np.sum(labels[self.counted] != UNLABELLED)))
        check_trains(self.comm, self.stored, VERTICES, bool(count))
        return labels

    def progress(self, what: str, done: int, most: int, text: str = "") -> None:
        """Say how far it is, now and then: at first after five seconds, then less often."""
        now = time.monotonic()
        if self._told and now - self._told < self._pause and done < most:
            return
        if self._told and done < most:
            self._pause *= _GROWTH
        if self._told or done == most:
            self._tell(f"{what} {done}/{most}  {text}".rstrip())
        self._told = now

    @property
    def max_bytes(self) -> float:
        """Bound of buffers while rows are distributed."""
        return self.config.loading.max_bytes

    def counted_volumes(self) -> tuple[Volume, Volume]:
        """The volumes of this rank's products, and of its sums over ranks."""
        return self._traffic[PURPOSE], self._traffic[f"{PURPOSE}_reduce"]


class RowChain:
    """Products one after the other of own rows: each is one of the space."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def enter(self, rows: np.ndarray) -> np.ndarray:
        """The matrix that is multiplied, of own rows."""
        return rows

    def multiply(self, x: np.ndarray) -> np.ndarray:
        """M · x, in a new array."""
        return self._space.multiply(x)

    def leave(self, x: np.ndarray) -> np.ndarray:
        """Own rows of the result."""
        return x


class Chain(RowChain):
    """The same on columns of all rows, where the scheme turns: products move nothing.

    Matrices have ``width`` columns on all ranks together.
    """

    def __init__(self, space: Space, width: int) -> None:
        super().__init__(space)
        self._width = width
        self._rows, self._columns = (
            space.scheme.empty(Place(0, space=one), width) for one in (Space_.OWN, Space_.TURNED)
        )

    def enter(self, rows: np.ndarray) -> np.ndarray:
        """This rank's columns of all rows."""
        return self._turned(Operation.TO_COLUMNS, self._rows, self._columns, rows)

    def multiply(self, x: np.ndarray) -> np.ndarray:
        """M · x of these columns."""
        operation = Operation.MULTIPLY, self._width
        return self._space._multiply(x, self._columns, operation)

    def leave(self, x: np.ndarray) -> np.ndarray:
        """Own rows of all columns, of this rank's columns."""
        return self._turned(Operation.TO_ROWS, self._columns, self._rows, x)

    def _turned(self, way: Operation, before: Matrix, after: Matrix, x: np.ndarray) -> np.ndarray:
        space, kernel = self._space, self._space._kernel
        kernel.copy(kernel.from_host(np.ascontiguousarray(x)), before.array)
        with space._counted((way, self._width)):
            space.scheme.move(before, after, self._width)
        return kernel.to_host(after.array).copy()  # whose memory is that of the next turn


class _Slice:
    """An (n,) array of which a rank has its contiguous 1/P, read as if it were on disk."""

    ndim = 1

    def __init__(self, piece: np.ndarray, mine: slice, n: int) -> None:
        self._piece, self._mine = piece, mine
        self.dtype, self.shape = piece.dtype, (n,)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: slice) -> np.ndarray:
        assert key == self._mine, "another rank has it"
        return self._piece
