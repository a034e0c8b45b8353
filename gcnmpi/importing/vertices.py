"""Which vertex is which number, where no rank knows the ids of all.

An id is known to its *home*, the rank that a hash of it says; so ids of any distribution are spread
evenly, and so are the questions for their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gcnmpi.importing.sending import Ranks
from gcnmpi.mpi.comm import agreed, from_root, slice_of
from partition.errors import UserError
from partition.graph.hashing import key, mixed
from partition.importing.arcs import check_number
from partition.importing.readers.numbering import IdsSeen, announced, distinct, numbering_of
from partition.importing.readers.source import Layout, Stream
from partition.importing.readers.vertex_tables import read_ids

HOMES = key(0, 0x484F4D45)  # a key of its own
SAMPLES = 256  # ids of each rank that tell where the ranges of equally many of them begin
SPAN = 16  # ids are looked up in a table if that has so many places for each end, or fewer
NO_IDS = np.empty(0, np.int64)


def _homes(ranks: Ranks, ids: np.ndarray) -> np.ndarray:
    """The rank that knows the number of each id."""
    return mixed(ids.view(np.uint64), HOMES) % np.uint64(ranks.comm.size)


@dataclass(frozen=True)
class SpreadNumbering:
    """Numbers 0..n−1 of the vertices.

    Attributes
    ----------
    n : int
    low : int
        The number of an id is the id less this one, unless there are ``homes``.
    homes : ((m,) int64, (m,) int64), optional
        The ids whose home is here, increasing, and their numbers, where ids have gaps, or an order
        of the user's.
    share : (int, (k,) int64), optional
        A range of all ids in the order of numbers, with its begin, another one on each rank; None
        where ids are numbers.
    """

    n: int
    low: int = 0
    homes: tuple[np.ndarray, np.ndarray] | None = None
    share: tuple[int, np.ndarray] | None = None

    def asked(self, ranks: Ranks, ends: np.ndarray) -> np.ndarray:
        """The numbers of ids, (m,) int64, from their homes, each asked for once; all ranks ask."""
        different = distinct(ends)

        def answer(ids: np.ndarray) -> np.ndarray:
            assert self.homes is not None
            known, numbers = self.homes
            return numbers[np.searchsorted(known, ids)]

        numbers = ranks.ask(_homes(ranks, different), different, answer)
        low, high = (int(different[0]), int(different[-1])) if len(different) else (0, 0)
        if high - low > SPAN * len(ends):
            return numbers[np.searchsorted(different, ends)]
        table = np.empty(high - low + 1, np.int64)
        table[different - low] = numbers
        return table[ends - low]


class IdCollector:
    """The ids of arcs that come in pieces: the smallest and the largest, and all at their homes.

    The latter where they are needed. Rank 0 reads the file of ``layout.ids``.
    """

    def __init__(self, ranks: Ranks, stream: Stream, layout: Layout, few: int) -> None:
        self._ranks, self._stream, self._layout = ranks, stream, layout
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
            (arrived,), _ = self._ranks.send(_homes(self._ranks, fresh), fresh)
            self._seen.add(arrived)

    def numbering(self) -> SpreadNumbering:
        """The numbers of vertices, as the user or the ids say.

        A UserError on all ranks if an id is none of those announced, or there is no arc to tell.
        """
        comm, stream = self._ranks.comm, self._stream
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
                numbering_of(NO_IDS, stream.where, None, None)
            check_number(total)
        if high - low + 1 == total:
            return self._consecutive(low, high)
        return self._in_order(known, total)

    def _consecutive(self, low: int, high: int) -> SpreadNumbering:
        """Ids that follow each other."""
        n = high - low + 1
        comm = self._ranks.comm
        mine = slice_of(n, comm.rank, comm.size)
        share = (mine.start, np.arange(mine.start, mine.stop) + low) if low else None
        return SpreadNumbering(n, low, share=share)

    def _in_order(self, known: np.ndarray, total: int) -> SpreadNumbering:
        """Numbers in the order of the ids: ranges of these are sorted, each by a rank.

        A sample sort (Frazer and McKellar 1970), of which hashes draw the samples.
        """
        ranks, comm = self._ranks, self._ranks.comm
        places = np.linspace(0, len(known) - 1, min(len(known), SAMPLES)).astype(np.int64)
        samples = np.sort(np.concatenate(comm.allgather(known[places])))
        cuts = samples[[len(samples) * rank // comm.size for rank in range(1, comm.size)]]
        (ids,), _ = ranks.send(np.searchsorted(cuts, known, side="right"), known)
        return self._at_homes(total, ranks.before(len(ids))[0], np.sort(ids))

    def _at_homes(self, n: int, first: int, share: np.ndarray) -> SpreadNumbering:
        """The numbers of a range of all ids on each rank, made known to the homes of these."""
        numbers = np.arange(first, first + len(share))
        (known, own), _ = self._ranks.send(_homes(self._ranks, share), share, numbers)
        order = np.argsort(known, kind="stable")
        return SpreadNumbering(n, 0, (known[order], own[order]), (first, share))

    def _listed(self, known: np.ndarray) -> SpreadNumbering:
        """Numbers in the order of a list, of which each rank gets a contiguous share.

        ``known`` are the ids of arcs whose home is here.
        """
        comm, where = self._ranks.comm, self._stream.where
        ids = NO_IDS

        def read() -> tuple[int, bool]:
            nonlocal ids
            assert self._layout.ids is not None
            ids = read_ids(self._layout.ids, comments=self._layout.comments)
            numbering_of(NO_IDS, where, None, ids)
            check_number(len(ids))
            return len(ids), bool((ids == np.arange(len(ids))).all())

        n, plain = from_root(comm, read)
        bounds = np.array([slice_of(n, rank, comm.size).stop for rank in range(comm.size)])
        to = np.searchsorted(bounds, np.arange(len(ids)), side="right")
        (share,), _ = self._ranks.send(to, ids)
        found = self._at_homes(n, slice_of(n, comm.rank, comm.size).start, share)
        assert found.homes is not None
        missing = np.setdiff1d(known, found.homes[0])
        smallest = min(comm.allgather(int(missing[0]) if len(missing) else 2**63))
        with agreed(comm):
            if smallest < 2**63:
                raise UserError(f"{where}: the vertex {smallest} is not in the file of --ids")
        return self._consecutive(0, n - 1) if plain else found
