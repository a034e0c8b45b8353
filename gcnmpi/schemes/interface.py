"""The interface of a scheme to layers, loss and optimizer, which never communicate themselves.

Dense matrices are arrays of the kernel; where their place or their exchange matters, they come in a
:class:`~gcnmpi.halo.matrix.Matrix`. ``k`` is the number of the layer that a product belongs
to, from 1: schemes whose layout rotates with the layer need it. Where a matrix lives is a
:class:`~gcnmpi.layout.place.Place`.

A :class:`Scheme` is a :class:`Layout`, :class:`Products` and :class:`RowOperations`; where rows
are whole, it may give a :class:`~gcnmpi.halo.rows.Halo` besides. Its :class:`Entry` in the table
of schemes says how it is made, so mypy compares each scheme with these protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from gcnmpi.core.volume import Volume
from gcnmpi.halo.matrix import Matrix
from gcnmpi.halo.plan import Plan
from gcnmpi.halo.rows import Halo
from gcnmpi.kernels.epilogues import Epilogue, Product
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.layout.loading import Readable
from gcnmpi.layout.place import Block, Place, Space
from gcnmpi.layout.runtime import Demand, Runtime, Source
from gcnmpi.options.config import Config
from gcnmpi.options.scheme import SchemeConfig
from gcnmpi.schemes.forecast import Facts, Forecast
from gcnmpi.schemes.operations import Operation


class Layout(Protocol):
    """Where the pieces of dense matrices are, and how they get there."""

    orders: tuple[str, ...]
    """Which product may come first in a layer: "combine", "aggregate"."""
    sharded: bool
    """Whether a rank holds a piece of each weight, and not the whole."""
    whole_rows: bool
    """Whether a rank holds all columns of the rows it has: row operations are local."""
    turns: bool
    """Whether it multiplies columns of all rows, those of ``Space.TURNED``, and moves to these."""

    def layout(self, place: Place) -> Hashable:
        """Equal for places whose matrices of one width have the same piece on every rank."""

    def all_rows(self, space: Space) -> int:
        """Rows of all ranks in a space that is not all vertices, where there are matrices of it."""

    def summed(self, rows: int) -> slice:
        """Which of so many rows a rank sums up for gradients: copies of them divide them."""

    def block(self, place: Place, width: int) -> Block:
        """Global rows and columns of this rank's piece of a matrix of that width in all."""

    def empty(self, place: Place, width: int, exchanged: bool = False) -> Matrix:
        """An uninitialised matrix with ``width`` columns in all: this rank's piece.

        ``exchanged=True`` promises that it will be the input of ``aggregate`` or
        ``aggregate_t``, so that the scheme can lay it out for its exchange and copy nothing.
        """

    def release(self) -> None:
        """Free the buffers of products of matrices that were not made with ``exchanged=True``.

        For a product that is made once, such as M·H⁰, whose buffers are as large as H⁰.
        """

    def move(self, x: Matrix, out: Matrix, width: int) -> None:
        """out = x (with ``width`` columns in all), laid out as the place of out has it."""

    def weight_shape(self, k: int, d_in: int, d_out: int) -> tuple[int, ...]:
        """Shape of this rank's piece of the weight of layer k."""

    def shard(self, k: int, weight: np.ndarray) -> np.ndarray:
        """This rank's piece of a whole weight (or moment of it) of layer k."""

    def unshard(self, k: int, piece: np.ndarray, d_in: int, d_out: int) -> np.ndarray:
        """The whole weight again, on every rank."""

    def load(self, place: Place, array: Readable) -> np.ndarray:
        """This rank's piece of an (n, width) array on disk, or its rows of an (n,) one."""

    def load_arcs(self, array: Readable, loops: str) -> np.ndarray:
        """The rows of the arcs into this rank's vertices, of an array on disk: (entries, width).

        The array has a row for each arc; ``loops`` says which rows self-loops have: see
        :meth:`~gcnmpi.layout.entries.EntryRows.load`.
        """

    def original(self, place: Place, piece: np.ndarray, width: int) -> np.ndarray:
        """The inverse: this rank's contiguous 1/P of all rows, whole, in the original order.

        Of rows of arcs: those of the folder, in its order.
        """

    def input_block(self, width: int) -> Block:
        """This rank's share of H⁰ where it is trained: each entry belongs to one rank or copy."""

    def expand_input(self, share: Array, out: Array) -> None:
        """out = this rank's piece of H⁰, from the shares."""

    def share_input(self, piece: Array, out: Array) -> None:
        """out = this rank's share, out of its piece of H⁰ (or of the gradient of H⁰)."""


class Products(Protocol):
    """The products of a layer, and the sums over all ranks that their gradients need.

    The first three finish with an epilogue, if there is one. Where rows are not whole, a dense
    product cannot be added to a matrix or to another one: these layouts refuse it.
    """

    def aggregate(self, k: int, x: Matrix, out: Array, epilogue: Epilogue | None = None) -> None:
        """out = M·x, and the epilogue."""

    def aggregate_t(self, k: int, x: Matrix, out: Array, epilogue: Epilogue | None = None) -> None:
        """out = Mᵀ·x, and the epilogue."""

    def combine(self, k: int, product: Product[Array]) -> None:
        """Rows times W, or times Wᵀ where the product is transposed."""

    def weight_grad(
        self, k: int, x: Array, grad: Array, out: Array, sums: Array | None = None
    ) -> None:
        """out = this rank's contribution to xᵀ·grad; its piece of the sum where it is sharded.

        With ``sums``, these become the result of ``column_sum`` for grad.
        """

    def column_sum(self, k: int, grad: Array, out: Array) -> None:
        """out = this rank's contribution to the column sums of grad, whole: zero elsewhere."""

    def reduce(self, contributions: Array) -> None:
        """Sum a flat float64 array, of the host or of the kernel, over ranks, in place.

        The block says which ranks contribute, so that everything counts once.
        """


class RowOperations(Protocol):
    """Operations on each row, over the ranks that share it."""

    def row_max(self, k: int, x: Array) -> Array:
        """Largest entry of each row of (some rows of) Hᵏ, (rows, 1)."""

    def row_sum(self, k: int, sums: Array) -> Array:
        """Sum of this rank's row sums (rows, 1) over the ranks that share a row."""

    def row_pick(self, k: int, x: Array, columns: np.ndarray, width: int) -> Array:
        """The entry of each row in the given global column, (rows, 1)."""

    def row_argmax(self, k: int, x: Array, width: int) -> np.ndarray:
        """Global column of the largest entry of each row, the lowest on a tie."""


class Scheme(Layout, Products, RowOperations, Protocol):
    """A layout of the dense matrices and the products on it (see the module's docstring)."""

    name: str

    @property
    def halo(self) -> Halo | None:
        """Whole rows of neighbours; only where the network asked for them."""

    def halo_of(self, k: int) -> Halo | None:
        """That of a layer: the same for all, but in batches of sampled neighbours."""

    @property
    def plan(self) -> Plan | None:
        """Which rows travel, where one exchange between all ranks serves all products."""

    def describe(self) -> dict[str, object]:
        """The options as they were resolved, for the record of the run."""

    def volume(self, product: Operation, k: int, *sizes: int) -> Volume:
        """Bytes and messages that this rank will hand to MPI for a product.

        ``sizes`` are the widths it depends on: one for "aggregate", "aggregate_t" and
        "expand_input"; d_in and d_out for "combine", "combine_t" and "weight_grad". For "row_max",
        "row_sum", "row_pick" and "row_argmax" it is the number of rows.
        """


Options = TypeVar("Options", bound=SchemeConfig)


@dataclass(frozen=True)
class Entry(Generic[Options]):
    """An entry of the table of schemes.

    Attributes
    ----------
    load : callable
        ``load(runtime, source, config, demand)`` brings the graph to the ranks and returns the
        :class:`Scheme`.
    forecast : callable
        ``forecast(config, size, facts)``: the scheme on paper, with resolved options.
    parts : callable
        ``parts(config, size)``: how many parts the partition must have on ``size`` ranks; 0: it
        needs none, and any that it can group will do. A UserError where the options do not fit.
    variants : callable
        ``variants(config, size)``: the options with every grid or replication factor that is
        possible on ``size`` ranks, for the ranking of all; one, where there is nothing to choose.
    gives_rows : bool
        Whether it can give whole rows of neighbours, which attention and maxima need.
    cuts_batches : bool
        Whether mini-batches can be cut out of what it loads: the subgraphs that vertices induce.
    asks_for_rows : bool
        Whether a rank can ask others for single rows: batches of sampled neighbours, and pairs.
    keeps_rows : bool
        Whether a rank has all columns of its own rows, though it may not give those of neighbours.
    sums_groups : bool
        Whether it multiplies with the matrix of means by relation, too: see :class:`Demand`.
    loads_by_rows : bool
        Whether it makes no tiles for products where whole rows of neighbours are all that is asked
        for, and brings rows in order as they are loaded.
    """

    load: Callable[[Runtime, Source, Config, Demand], Scheme]
    forecast: Callable[[Options, int, Facts], Forecast]
    parts: Callable[[Options, int], int] = lambda config, size: 0
    variants: Callable[[Options, int], list[Options]] = lambda config, size: [config]
    gives_rows: bool = False
    cuts_batches: bool = False
    asks_for_rows: bool = False
    keeps_rows: bool = False
    sums_groups: bool = False
    loads_by_rows: bool = False


def refuse_to_add(name: str, product: Product[Array]) -> None:
    """For ``combine`` where rows are not whole: its result is a sum over ranks."""
    if product.accumulate or product.also is not None:
        raise ValueError(f"scheme {name!r} adds no product to a matrix")
