"""Which vertex is which number, where no rank knows the ids of all.

An id is known to its *home*, the rank that a hash of it says; so ids of any distribution are spread
evenly, and so are the questions for their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gcnmpi.importing.exchange import answered, before, homes
from gcnmpi.mpi.comm import Comm, agreed, from_root, redistribute, slice_of
from partition.errors import UserError
from partition.importing.arcs import check_number
from partition.importing.readers.numbering import IdsSeen, announced, distinct, numbering_of
from partition.importing.readers.source import Layout, Stream
from partition.importing.readers.vertex_tables import read_ids

SAMPLES = 256  # ids of each rank that tell where the ranges of equally many of them begin
SPAN = 16  # ids are looked up in a table if that has so many places for each end, or fewer
NO_IDS = np.empty(0, np.int64)


class Numbering(Protocol):
    """Numbers 0..n−1 of the vertices."""

    @property
    def n(self) -> int:
        """How many vertices there are."""

    @property
    def local(self) -> bool:
        """Whether a rank finds a number without the others."""

    def of(self, ends: np.ndarray) -> np.ndarray:
        """The numbers of ids, (m,) int64; all ranks ask together, unless it is ``local``."""

    def ids(self) -> tuple[int, np.ndarray] | None:
        """A range of all ids in the order of numbers, with its begin; None: as their numbers.

        Each rank has another one.
        """


@dataclass(frozen=True)
class Consecutive:
    """Ids that follow each other from ``low`` on; ``share`` is the range of this rank."""

    n: int
    low: int
    share: range
    local: bool = True

    def of(self, ends: np.ndarray) -> np.ndarray:
        """The numbers of some ids."""
        return ends - self.low if self.low else ends

    def ids(self) -> tuple[int, np.ndarray] | None:
        """The ids of this rank's range."""
        if not self.low:
            return None
        return self.share.start, np.arange(self.share.start, self.share.stop) + self.low


@dataclass(frozen=True)
class AtHome:
    """Ids with gaps, or in an order of the user's.

    Attributes
    ----------
    known : (m,) int64
        The ids whose home is here, increasing.
    numbers : (m,) int64
        Their numbers.
    share : (int, (k,) int64)
        As :meth:`Numbering.ids` gives it.
    """

    comm: Comm
    n: int
    known: np.ndarray
    numbers: np.ndarray
    share: tuple[int, np.ndarray]
    max_bytes: float
    local: bool = False

    def of(self, ends: np.ndarray) -> np.ndarray:
        """The numbers of some ids, each of which is asked for once."""
        different = distinct(ends)

        def answer(ids: np.ndarray) -> np.ndarray:
            return self.numbers[np.searchsorted(self.known, ids)]

        to = homes(self.comm, different)
        numbers = answered(self.comm, to, different, answer, self.max_bytes)
        low, high = (int(different[0]), int(different[-1])) if len(different) else (0, 0)
        if high - low > SPAN * len(ends):
            return numbers[np.searchsorted(different, ends)]
        table = np.empty(high - low + 1, np.int64)
        table[different - low] = numbers
        return table[ends - low]

    def ids(self) -> tuple[int, np.ndarray] | None:
        """The ids of this rank's range."""
        return self.share


class Collected:
    """The ids of arcs that come in pieces: the smallest and the largest, and all at their homes.

    The latter where they are needed. Rank 0 reads the file of ``layout.ids``.
    """

    def __init__(
        self, comm: Comm, stream: Stream, layout: Layout, few: int,
        max_bytes: float,
    ) -> None:  # fmt: skip
        self._comm, self._stream, self._max_bytes = comm, stream, max_bytes
        self._layout = layout
        self._seen = IdsSeen(few) if stream.vertices is None else None
        self._low, self._high = np.iinfo(np.int64).max, np.iinfo(np.int64).min

    def add(self, *ends: np.ndarray) -> None:
        """Take the ends of some arcs; all ranks do together."""
        for some in ends:
            if len(some):
                self._low = min(self._low, int(some.min()))
                self._high = max(self._high, int(some.max()))
        if self._seen is not None:
            fresh = distinct(*ends)
            to = homes(self._comm, fresh)
            (arrived,), _ = redistribute(self._comm, to, [fresh], self._max_bytes)
            self._seen.add(arrived)

    def numbering(self) -> Numbering:
        """The numbers of vertices, as the user or the ids say.

        A UserError on all ranks if an id is none of those announced, or there is no arc to tell.
        """
        comm, stream = self._comm, self._stream
        low, high = min(comm.allgather(self._low)), max(comm.allgather(self._high))
        if self._seen is None:
            assert stream.vertices is not None
            with agreed(comm):
                span = np.array([low, high] if low <= high else [], np.int64)
                low, high = announced(span, stream.vertices, stream.where)
                check_number(high - low + 1)
            return self._consecutive(low, high)
        known = self._seen.all()
        if self._layout.ids is not None:
            return self._listed(known)
        total = sum(comm.allgather(len(known)))
        with agreed(comm):
            if not total:
                numbering_of(None, NO_IDS, stream.where, None, None)
            check_number(total)
        if high - low + 1 == total:
            return self._consecutive(low, high)
        return self._in_order(known, total)

    def _consecutive(self, low: int, high: int) -> Consecutive:
        mine = slice_of(high - low + 1, self._comm.rank, self._comm.size)
        return Consecutive(high - low + 1, low, range(mine.start, mine.stop))

    def _in_order(self, known: np.ndarray, total: int) -> AtHome:
        """Numbers in the order of the ids: ranges of these are sorted, each by a rank.

        A sample sort (Frazer and McKellar 1970), of which hashes draw the samples.
        """
        comm = self._comm
        places = np.linspace(0, len(known) - 1, min(len(known), SAMPLES)).astype(np.int64)
        samples = np.sort(np.concatenate(comm.allgather(known[places])))
        cuts = samples[[len(samples) * rank // comm.size for rank in range(1, comm.size)]]
        to = np.searchsorted(cuts, known, side="right").astype(np.int32)
        (ids,), counts = redistribute(comm, to, [known], self._max_bytes)
        order = np.argsort(ids, kind="stable")
        first, _ = before(comm, len(ids))
        numbers = np.empty(len(ids), np.int64)
        numbers[order] = np.arange(first, first + len(ids))
        back = np.repeat(np.arange(comm.size, dtype=np.int32), counts)
        (own,), _ = redistribute(comm, back, [numbers], self._max_bytes)
        return AtHome(comm, total, known, own, (first, ids[order]), self._max_bytes)

    def _listed(self, known: np.ndarray) -> Numbering:
        """Numbers in the order of a list, of which each rank gets a contiguous share.

        ``known`` are the ids of arcs whose home is here.
        """
        comm, where = self._comm, self._stream.where
        ids = NO_IDS

        def read() -> tuple[int, bool]:
            nonlocal ids
            assert self._layout.ids is not None
            ids = read_ids(self._layout.ids, comments=self._layout.comments)
            numbering_of(None, NO_IDS, where, None, ids)
            check_number(len(ids))
            return len(ids), bool((ids == np.arange(len(ids))).all())

        n, plain = from_root(comm, read)
        bounds = np.array([slice_of(n, rank, comm.size).stop for rank in range(comm.size)])
        to = np.searchsorted(bounds, np.arange(len(ids)), side="right").astype(np.int32)
        (share,), _ = redistribute(comm, to, [ids], self._max_bytes)
        first = slice_of(n, comm.rank, comm.size).start
        numbers = np.arange(first, first + len(share))
        (own, places), _ = redistribute(comm, homes(comm, share), [share, numbers], self._max_bytes)
        missing = np.setdiff1d(known, own)
        smallest = min(comm.allgather(int(missing[0]) if len(missing) else 2**63))
        with agreed(comm):
            if smallest < 2**63:
                raise UserError(f"{where}: the vertex {smallest} is not in the file of --ids")
        if plain:
            return self._consecutive(0, n - 1)
        order = np.argsort(own, kind="stable")
        return AtHome(comm, n, own[order], places[order], (first, share), self._max_bytes)
