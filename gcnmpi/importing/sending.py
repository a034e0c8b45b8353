"""Messages between the ranks of an import, and files that they write together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi.layout.writing import writing_apart
from gcnmpi.mpi.comm import Comm, agreed, maximum, redistribute
from partition.errors import UserError
from partition.importing.arcs import Columns

SENT_BYTES = 64  # that an arc takes while it is sent


@dataclass(frozen=True)
class Ranks:
    """The ranks of an import.

    Attributes
    ----------
    comm : Comm
    at_once : int
        Arcs that a rank sends in a round.
    """

    comm: Comm
    at_once: int

    def send(self, to: np.ndarray, *arrays: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """Row i of each array to the rank ``to[i]``: see :func:`gcnmpi.mpi.comm.redistribute`."""
        return redistribute(self.comm, to.astype(np.int32), arrays, self.at_once * SENT_BYTES)

    def ask(
        self, to: np.ndarray, questions: np.ndarray, answer: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """The answers to questions, (m,), in their order: each goes to a rank, which answers all.

        ``to``, (m,) integers, are these ranks; all ranks ask together. A UserError that an answer
        raises is raised on all of them.
        """
        (asked,), counts = self.send(to, questions)
        with agreed(self.comm):
            answers = answer(asked)
        (arrived,), _ = self.send(np.repeat(np.arange(self.comm.size), counts), answers)
        found = np.empty_like(arrived)
        found[np.argsort(to, kind="stable")] = arrived
        return found

    def before(self, count: int) -> tuple[int, int]:
        """How many the ranks before this one have, which has ``count``; and all together."""
        counts = self.comm.allgather(count)
        return sum(counts[: self.comm.rank]), sum(counts)

    def rounds(self, columns: Columns) -> Iterator[tuple[Any, ...]]:
        """So many arcs at a time, and in the end none, until no rank has any more."""
        for number in range(int(maximum(self.comm, -(-columns.rows // self.at_once)))):
            yield columns.rows_from(number * self.at_once, self.at_once)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """A block in which a rank writes to files of its own, and that all ranks leave together."""
        with agreed(self.comm):
            try:
                yield
            except OSError as error:
                what = f"cannot write {error.filename or 'files'}: {error.strerror or error}"
                hint = "arcs are kept there meanwhile: some 60 bytes for each, 100 with weights"
                raise UserError(what, hint) from error

    @contextlib.contextmanager
    def appending(
        self, path: Path, dtype: np.dtype, shape: tuple[int, ...], first: int
    ) -> Iterator[Callable[[np.ndarray], None]]:
        """Give ``put(rows)``, by which a rank writes its rows of an ``.npy`` from ``first`` on.

        See :func:`gcnmpi.layout.writing.writing_apart`.
        """
        with writing_apart(self.comm, path, dtype, shape) as write:

            def put(rows: np.ndarray) -> None:
                nonlocal first
                write(first, rows)
                first += len(rows)

            yield put

    def write(self, path: Path, rows: np.ndarray, total: int, first: int) -> None:
        """Write an ``.npy`` of so many rows, of which each rank has some, from ``first`` on."""
        shape = (total, *rows.shape[1:])
        with self.appending(path, rows.dtype, shape, first) as put, agreed(self.comm):
            put(rows)
