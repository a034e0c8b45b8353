"""The schemes whose ranks own rows: ``p2p``, and ``bcast`` and ``replicated``, which copy them too.

They differ in how the rows of others get to where they are multiplied, which is a
:class:`RowProducts`, and in how own rows are chosen, which is a :class:`Rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.volume import Volume
from gcnmpi.halo.matrix import Matrix
from gcnmpi.halo.plan import Plan
from gcnmpi.halo.rows import Halo
from gcnmpi.kernels.epilogues import Epilogue
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.kernels.scaled import ScaledPattern
from gcnmpi.layout.entries import NO_ARC, EntryRows
from gcnmpi.layout.loading import OwnRows, Readable, original_rows
from gcnmpi.layout.place import Block, Place, Space
from gcnmpi.layout.runtime import Runtime
from gcnmpi.mpi.collectives import Group
from gcnmpi.mpi.comm import Comm, slice_of
from gcnmpi.schemes.forecast import Facts, Forecast
from gcnmpi.schemes.operations import Operation
from gcnmpi.schemes.whole_rows import WholeRows

Operand = TypeVar("Operand")
Operand_in = TypeVar("Operand_in", contravariant=True)


ALL = slice(None)  # columns


@dataclass(frozen=True)
class Laid:
    """A rank's rows of M, and the exchange that serves them.

    Attributes
    ----------
    facts : Facts
    rows : OwnRows
    plan : Plan
    forward : (nown, nown + nhalo) csr_array or ScaledPattern
        Own rows of M over local columns.
    backward : csr_array, ScaledPattern or None
        The same of Mᵀ; ``forward`` itself where they are equal. None: products with Mᵀ fold.
    degree : (nown + nhalo,) float64
        Row sums of Ã of the vertices of local columns.
    """

    facts: Facts
    rows: OwnRows
    plan: Plan
    forward: sp.csr_array | ScaledPattern
    backward: sp.csr_array | ScaledPattern | None
    degree: np.ndarray

    @property
    def valued(self) -> sp.csr_array:
        """Own rows of M, which have values."""
        assert isinstance(self.forward, sp.csr_array), "a pattern without values"
        return self.forward

    @property
    def pattern(self) -> sp.csr_array:
        """Own rows of M for those who do not look at values."""
        scaled = isinstance(self.forward, ScaledPattern)
        return self.forward.pattern() if scaled else self.forward


class Rows(Protocol):
    """Which rows a rank owns, and how they come from files and go there."""

    @property
    def vertices(self) -> np.ndarray:
        """The global ids of these rows."""

    @property
    def copy(self) -> int:
        """Which of the ranks with these rows it is."""

    def load(self, comm: Comm, array: Readable, max_bytes: float) -> np.ndarray:
        """These rows of an array on disk."""

    def original(self, comm: Comm, tile: np.ndarray, width: int, max_bytes: float) -> np.ndarray:
        """The inverse: this rank's contiguous 1/P of all rows, in the original order."""


class RowProducts(Protocol[Operand_in]):
    """How the rows of others get to where they are multiplied, with matrices of its own form."""

    def empty(self, place: Place, width: int) -> Matrix:
        """A matrix of own rows that will be multiplied."""

    def release(self) -> None:
        """Free the buffers of products that are made once."""

    def multiply(
        self, matrix: Operand_in, x: Matrix, out: Array, epilogue: Epilogue | None = None
    ) -> None:
        """out = epilogue(this rank's tile of a matrix times the rows of x it takes)."""


class RowScheme(WholeRows, Generic[Operand]):
    """The methods of such a scheme; see ``schemes.interface`` for their meaning.

    Parameters
    ----------
    options : dict
        The result of ``describe``, with the name of the scheme.
    operands : sequence
        This rank's tiles of M and of Mᵀ, as the products take them; empty: there are no products.
    max_bytes : float
        Bound of the buffers of files' rows.
    replicas : Group or None
        The ranks with the same rows, numbered by copy; None: there is one copy.
    complete_on : int or None
        The copy on which the transposed product is complete; None: it is the sum of all copies'.
    halo : Halo or None
        Whole rows of neighbours.
    plan : Plan or None
        As the interface says.
    entries : EntryRows or None
        The entries of own rows, where matrices have a row for each.
    laid : Laid or None
        The rows out of which mini-batches are cut (:mod:`gcnmpi.schemes.sampled`), if any are.
    """

    def __init__(
        self,
        runtime: Runtime,
        options: dict[str, Any],
        rows: Rows,
        products: RowProducts[Operand],
        operands: Sequence[Operand],
        forecast: Forecast,
        max_bytes: float,
        *,
        replicas: Group | None = None,
        complete_on: int | None = None,
        halo: Halo | None = None,
        plan: Plan | None = None,
        entries: EntryRows | None = None,
        laid: Laid | None = None,
    ) -> None:
        super().__init__(runtime)
        self.name, self._options = options["name"], options
        self._rows, self._forecast = rows, forecast
        self._products, self._operands = products, operands
        self._replicas, self._complete_on, self._max_bytes = replicas, complete_on, max_bytes
        self.halo, self.plan, self.laid = halo, plan, laid
        self._vertices, self.entries = rows.vertices, entries
        self._blocks = {Space.OWN: Block.of(rows.vertices, ALL)}
        if halo is not None:
            self._blocks[Space.WHOLE] = Block.of(halo.ids, ALL)
        if entries is not None:
            self._blocks[Space.ENTRIES] = Block(len(entries.places), lambda: entries.keys, ALL)
            if entries.groups is not None:
                self._blocks[Space.GROUPS] = Block.of(entries.groups.keys, ALL)
            first, stop = entries.of_type.start, entries.of_type.stop
            own = rows.vertices
            self._blocks[Space.OF_TYPE] = Block.of(own[(own >= first) & (own < stop)], ALL)

    @property
    def own_rows(self) -> OwnRows:
        """The rows of this rank, where each row is on one rank."""
        assert isinstance(self._rows, OwnRows)
        return self._rows

    def describe(self) -> dict[str, object]:
        """Options as they were resolved."""
        return self._options

    def block(self, place: Place, width: int) -> Block:
        """All columns of the rows of a space, whatever the layer."""
        return replace(self._blocks[place.space], columns=slice(0, width), copy=self._rows.copy)

    def all_rows(self, space: Space) -> int:
        """Of the entries that were loaded, of their groups, and of the vertices of the type."""
        entries = self.entries
        assert entries is not None, "no entries were asked for"
        if space is Space.OF_TYPE:
            return len(entries.of_type)
        if space is Space.GROUPS:
            assert entries.groups is not None, "no groups were asked for"
            return entries.groups.total
        return entries.total

    def summed(self, rows: int) -> slice:
        """Each copy sums up a part of them."""
        if self._replicas is None:
            return slice(None)
        return slice_of(rows, self._rows.copy, self._replicas.size)

    def empty(self, place: Place, width: int, exchanged: bool = False) -> Matrix:
        """Own rows; those to be exchanged are the head of an ``[own | halo]`` buffer, if any is."""
        if place.space.of_arcs or place.space is Space.OF_TYPE:
            return Matrix(place, self._kernel.empty(self._blocks[place.space].count, width))
        if exchanged or place.space is Space.WHOLE:
            return (self.halo or self._products).empty(place, width)
        return Matrix(place, self._kernel.empty(len(self._vertices), width))

    def release(self) -> None:
        """Free the buffers of a product that is made once."""
        self._products.release()
        if self.halo is not None:
            self.halo.release()

    def aggregate(self, k: int, x: Matrix, out: Array, epilogue: Epilogue | None = None) -> None:
        """The product of this copy; then the sum over copies, in place."""
        self._multiply(self._operands[0], None, x, out, epilogue)

    def aggregate_t(self, k: int, x: Matrix, out: Array, epilogue: Epilogue | None = None) -> None:
        """The same with Mᵀ; the copy on which the rows are complete gives them to the others."""
        self._multiply(self._operands[1], self._complete_on, x, out, epilogue)

    def load(self, place: Place, array: Readable) -> np.ndarray:
        """Own rows of an array on disk."""
        return self._rows.load(self._comm, array, self._max_bytes)

    def load_arcs(self, array: Readable, loops: str) -> np.ndarray:
        """Rows of an array on disk of the arcs into own vertices."""
        assert self.entries is not None, "no entries were asked for"
        return self.entries.load(array, loops)

    def original(self, place: Place, piece: np.ndarray, width: int) -> np.ndarray:
        """This rank's contiguous 1/P of all rows, in the original order."""
        if place.space is not Space.ENTRIES:
            return self._rows.original(self._comm, piece, width, self._max_bytes)
        entries = self.entries
        assert entries is not None, "no entries were asked for"
        numbers = entries.arcs()
        some = np.flatnonzero((numbers != NO_ARC) & (self._rows.copy == 0))
        numbers, rows = numbers[some], piece[some]
        return original_rows(self._comm, numbers, rows, entries.stored, self._max_bytes)

    def volume(self, product: Operation, k: int, *sizes: int) -> Volume:
        """As the forecast has it."""
        return self._forecast.volume(self._comm.rank, product, k, *sizes)

    def _multiply(
        self,
        matrix: Operand,
        complete_on: int | None,
        x: Matrix,
        out: Array,
        epilogue: Epilogue | None,
    ) -> None:
        if self._replicas is None:
            self._products.multiply(matrix, x, out, epilogue)
            return
        self._products.multiply(matrix, x, out)
        if complete_on is None:
            self._replicas.all_reduce(out)
        else:
            self._replicas.broadcast(out, complete_on)
        self._kernel.follow(out, epilogue)
