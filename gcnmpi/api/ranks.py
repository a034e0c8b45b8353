"""Functions that all ranks call alike, in a program under mpirun and in one that is alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from gcnmpi.mpi.launch import launched

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm

T = TypeVar("T")


def ranks_of(comm: Comm | None) -> Comm:
    """The communicator that was given, or that of all ranks, with which MPI starts if need be."""
    if comm is not None:
        return comm
    from gcnmpi.mpi.process import world

    return world()


def on_root(make: Callable[[], T]) -> T:
    """On every rank the result of ``make()`` on rank 0; in a process that is alone, without MPI."""
    if not launched():
        return make()
    from gcnmpi.mpi.process import told, world

    return told(world(), make)
