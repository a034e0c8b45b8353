"""The ranks as readers of one file, and questions that others answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from gcnmpi.mpi.comm import Comm, agreed, redistribute
from partition.errors import UserError
from partition.graph.hashing import key, mixed

T = TypeVar("T")
HOMES = key(0, 0x484F4D45)  # a key of its own


@dataclass(frozen=True)
class Ranks:
    """The ranks of a communicator, who read a file together."""

    comm: Comm

    @property
    def rank(self) -> int:
        """The number of this one."""
        return self.comm.rank

    @property
    def size(self) -> int:
        """How many there are."""
        return self.comm.size

    def gathered(self, value: T) -> list[T]:
        """The values of all ranks, in their order."""
        return self.comm.allgather(value)

    def agreed(self) -> contextlib.AbstractContextManager[None]:
        """A block that all ranks leave together."""
        return agreed(self.comm)


@contextlib.contextmanager
def agreed_writing(comm: Comm) -> Iterator[None]:
    """A block in which a rank writes to files of its own, and that all ranks leave together."""
    with agreed(comm):
        try:
            yield
        except OSError as error:
            what = f"cannot write {error.filename or 'files'}: {error.strerror or error}"
            hint = "arcs are kept there meanwhile: some 60 bytes for each, 100 with weights"
            raise UserError(what, hint) from error


def homes(comm: Comm, ids: np.ndarray) -> np.ndarray:
    """The rank that knows what is to be known of each id, by a hash of it: (m,) int32."""
    return (mixed(ids.view(np.uint64), HOMES) % np.uint64(comm.size)).astype(np.int32)


def answered(
    comm: Comm,
    to: np.ndarray,
    questions: np.ndarray,
    answer: Callable[[np.ndarray], np.ndarray],
    max_bytes: float,
) -> np.ndarray:
    """The answers to questions, (m,), in their order: each goes to a rank, which answers all.

    ``to``, (m,) int32, are these ranks; all ranks ask together. A UserError that an answer raises
    is raised on all of them.
    """
    (asked,), counts = redistribute(comm, to, [questions], max_bytes)
    with agreed(comm):
        answers = answer(asked)
    back = np.repeat(np.arange(comm.size, dtype=np.int32), counts)
    (arrived,), _ = redistribute(comm, back, [answers], max_bytes)
    found = np.empty_like(arrived)
    found[np.argsort(to, kind="stable")] = arrived
    return found


def before(comm: Comm, count: int) -> tuple[int, int]:
    """How many the ranks before this one have, which has ``count``; and all together."""
    counts = comm.allgather(count)
    return sum(counts[: comm.rank]), sum(counts)
