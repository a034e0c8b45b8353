"""Words between groups of ranks that do not wait for each other."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from gcnmpi.mpi.comm import MPI, Comm, Request, wait_all

_NOTHING = np.empty(0, np.uint8)


class Bell:
    """A word that any rank says, and that some ranks hear as soon as they listen: nobody waits.

    A context that all ranks enter and leave together.

    Parameters
    ----------
    comm : Comm
    listeners : collection of int
        The ranks that hear. A word goes to each of them, in a message without content.
    """

    def __init__(self, comm: Comm, listeners: Collection[int]) -> None:
        self._comm: Comm = comm.Dup()  # whose messages are told from all others
        self._listeners = [rank for rank in listeners if rank != comm.rank]
        self._here = comm.rank in listeners
        self._said: list[int] = []
        self._heard: list[int] = []
        self._sent: list[Request] = []

    def __enter__(self) -> Bell:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:  # of one rank, which ends them all: nobody waits
            return
        every = [word for said in self._comm.allgather(self._said) for word in said]
        if self._here:
            while len(self._heard) < len(every) - len(self._said):
                self._receive()
        wait_all(self._sent)
        self._comm.Free()

    def say(self, word: int) -> None:
        """Say a word, a number from 0; it is said once, however often this is called."""
        if word not in self._said:
            self._said.append(word)
            self._sent += [self._comm.Isend(_NOTHING, rank, word) for rank in self._listeners]

    def heard(self) -> set[int]:
        """All words so far that this rank has said, or heard."""
        while self._here and self._comm.Iprobe():
            self._receive()
        return {*self._said, *self._heard}

    def _receive(self) -> None:
        status = MPI.Status()
        self._comm.Recv(_NOTHING, status=status)
        self._heard.append(status.tag)
