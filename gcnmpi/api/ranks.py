"""A function of rank 0, in a program under mpirun and in one that is alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gcnmpi.mpi.launch import launched

T = TypeVar("T")


def on_root(make: Callable[[], T]) -> T:
    """On every rank the result of ``make()`` on rank 0; in a process that is alone, without MPI."""
    if not launched():
        return make()
    from gcnmpi.mpi.process import told, world

    return told(world(), make)
