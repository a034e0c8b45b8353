"""A rank's piece of a dense matrix: where it lives, and what its rows are exchanged with."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gcnmpi.halo.exchange import Exchange
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.layout.place import Place


@dataclass(frozen=True, eq=False)
class Matrix:
    """This rank's piece of a dense matrix; its memory is freed with the last one that refers to it.

    ``array`` is the head of ``buffer``, (own + halo, width), if there is room for neighbours' rows
    behind it; ``exchange`` fills that room, if rows are sent point to point. ``spent``: nobody
    reads it after the product with it, which may change it.
    """

    place: Place
    array: Array
    buffer: Array | None = None
    exchange: Exchange | None = None
    spent: bool = False

    @property
    def whole(self) -> Array:
        """The buffer, of a matrix that has one."""
        assert self.buffer is not None, "made without room for the rows of neighbours"
        return self.buffer

    def at(self, place: Place) -> Matrix:
        """The same memory for the matrix of another place, of the same layout."""
        return replace(self, place=place)
