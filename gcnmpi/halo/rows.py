"""Whole rows of neighbours, which attention and maxima need, and products do not.

A **halo** brings the rows that the own rows of M have entries for behind the own ones, (own + halo,
width), and takes gradients of all these rows back to their owners, where they are added. With it
comes the pattern of M over these local columns.
"""

from __future__ import annotations

import functools
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.timing import Phases
from gcnmpi.core.volume import Kept
from gcnmpi.halo.matrix import Matrix
from gcnmpi.halo.patterns import Patterns
from gcnmpi.halo.plan import Plan
from gcnmpi.halo.product import HaloProduct
from gcnmpi.kernels.interface.kernel import Array, Pattern
from gcnmpi.layout.entries import Groups
from gcnmpi.layout.place import Incidence, Place
from gcnmpi.layout.runtime import Runtime
from gcnmpi.mpi.collectives import Group


class Halo(Protocol):
    """The rows that a scheme gives to operators that look at neighbours one by one.

    Attributes
    ----------
    ids : (own + halo,) integers
        Global vertices of the local columns.
    kept : Kept
        Rows that need no message.
    alone : bool
        Whether there is one rank only: none has a halo.
    """

    ids: np.ndarray
    phases: Phases
    kept: Kept
    alone: bool

    @property
    def patterns(self) -> Patterns:
        """Of own rows over local columns, (own, own + halo)."""

    @property
    def given(self) -> tuple[sp.csr_array, Groups | None]:
        """The entries of own rows, and their groups, as they were before there were patterns."""

    @property
    def pattern(self) -> Pattern:
        """Own rows over local columns, one entry for each arc."""

    def empty(self, place: Place, width: int) -> Matrix:
        """A matrix that can be expanded."""

    def expand(self, x: Matrix) -> Array:
        """Own and halo rows of x, which comes from ``empty``: its ``whole``, with its halo."""

    def gradient(self, place: Place, width: int) -> Matrix:
        """A matrix whose ``whole`` has room for gradients of own and halo rows.

        One memory for each width: its content is lost with the next gradient.
        """

    def fold(self, gradient: Matrix, out: Array) -> None:
        """out = own rows of what comes from ``gradient`` + what others' halos hold."""

    def release(self) -> None:
        """Free what was kept for matrices that are expanded once."""


class _WithPatterns:
    """The part of a halo that says which entries own rows have: see :class:`Patterns`."""

    def __init__(
        self,
        runtime: Runtime,
        pattern: sp.csr_array,
        ids: np.ndarray,
        groups: Groups | None,
        in_order: bool = False,
    ) -> None:
        self.ids, self.phases, self.alone = ids, runtime.phases, runtime.comm.size == 1
        self._kernel, self._given = runtime.kernel, [(pattern, groups)]
        self._order = None if in_order else ids

    @property
    def given(self) -> tuple[sp.csr_array, Groups | None]:
        """Entries and groups, as long as nobody has asked for patterns."""
        return self._given[0]

    @functools.cached_property
    def patterns(self) -> Patterns:
        """Made when they are asked for: from then on, they hold the entries alone."""
        pattern, groups = self._given.pop()
        return Patterns(self._kernel, pattern, self._order, groups)

    @property
    def pattern(self) -> Pattern:
        """Own rows over local columns, one entry for each arc."""
        return self.patterns.of(Incidence.ARCS)


class ExchangedHalo(_WithPatterns):
    """Needed rows point to point, with the buffers, plan and transport of a product.

    ``pattern``, (own, own + halo), and ``ids``, (own + halo,), are as in :class:`Halo`. Entries of
    a row may be ``in_order`` of the ids of their columns.
    """

    def __init__(
        self,
        runtime: Runtime,
        products: HaloProduct,
        pattern: sp.csr_array,
        ids: np.ndarray,
        groups: Groups | None = None,
        in_order: bool = False,
    ) -> None:
        super().__init__(runtime, pattern, ids, groups, in_order)
        self.kept = products.kept
        self.empty, self.release = products.empty, products.release
        self.expand, self.gradient, self.fold = products.gather, products.gradient, products.scatter


class BroadcastHalo(_WithPatterns):
    """Every block goes to all ranks of a group, each of which keeps the rows it needs.

    The adjoint of a broadcast is a reduction to its root: block after block, each rank adds the
    gradients that it has for that block. Rank q of the group owns block q, of ``rows[q]`` rows from
    position ``first[q]``; own rows and halo of the plan are numbered by position.
    """

    def __init__(
        self,
        runtime: Runtime,
        group: Group,
        rows: list[int],
        first: np.ndarray,
        plan: Plan,
        pattern: sp.csr_array,
        ids: np.ndarray,
        groups: Groups | None = None,
    ) -> None:
        super().__init__(runtime, pattern, ids, groups)
        self._group, self._kernel, self._rows, self._plan = group, runtime.kernel, rows, plan
        self.kept = Kept()
        self._largest = max((r for q, r in enumerate(rows) if q != group.rank), default=0)
        # Of each block: where its rows go behind the own ones, and which of its rows they are.
        self._needed: dict[int, tuple[slice, Any]] = {}
        for number, peer in enumerate(plan.recv_peers.tolist()):
            start, stop = plan.recv_offsets[number : number + 2].tolist()
            places = plan.halo[start:stop].astype(np.int64) - first[peer]
            kept = runtime.kernel.resident(places, np.int64)
            self._needed[peer] = slice(plan.nown + start, plan.nown + stop), kept
        self._gradients: dict[int, Array] = {}
        self._blocks: dict[int, Array] = {}

    def empty(self, place: Place, width: int) -> Matrix:
        """The head of an ``[own | halo]`` buffer."""
        return self._matrix(place, self._new(width))

    def expand(self, x: Matrix) -> Array:
        """Broadcast block after block, and keep the rows that are needed."""
        whole = x.whole
        for block, rows in enumerate(self._rows):
            if block == self._group.rank:
                self._group.broadcast(x.array, block)
            elif rows:
                array = self._block(rows, whole.shape[1])
                self._group.broadcast(array, block)
                if block in self._needed:
                    place, needed = self._needed[block]
                    with self.phases("pack"):
                        self._kernel.take_rows(array, needed, whole[place])
        return whole

    def gradient(self, place: Place, width: int) -> Matrix:
        """One memory for each width."""
        if width not in self._gradients:
            self._gradients[width] = self._new(width)
        return self._matrix(place, self._gradients[width])

    def fold(self, gradient: Matrix, out: Array) -> None:
        """Reduce block after block to its rank."""
        whole = gradient.whole
        self._kernel.copy(gradient.array, out)
        for block, rows in enumerate(self._rows):
            if block == self._group.rank:
                self._group.reduce(out, block)
            elif rows:
                array = self._block(rows, out.shape[1])
                array.fill(0)
                if block in self._needed:
                    place, needed = self._needed[block]
                    with self.phases("pack"):
                        self._kernel.put_rows(whole[place], needed, array)
                self._group.reduce(array, block)

    def release(self) -> None:
        """Free the memory of gradients, and of blocks of others."""
        self._gradients.clear()
        self._blocks.clear()

    def _new(self, width: int) -> Array:
        return self._kernel.empty(self._plan.nown + self._plan.nhalo, width)

    def _matrix(self, place: Place, whole: Array) -> Matrix:
        return Matrix(place, whole[: self._plan.nown], whole)

    def _block(self, rows: int, width: int) -> Array:
        """A block of another rank, in memory for the largest one."""
        if width not in self._blocks:
            self._blocks[width] = self._kernel.empty(self._largest, width)
        return self._blocks[width][:rows]
