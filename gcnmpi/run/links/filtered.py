"""Ranks of positives among all vertices but known ones, as knowledge graphs are evaluated.

Of a positive (h, r, t), all vertices take the place of t, then of h, but for those that make a pair
which is known: an arc of the graph, or one of the pairs to train, validate or test on, of the same
relation where there are relations (Bordes et al. 2013, "filtered"). Where vertices have types, only
those of the type of t, then of h: others are no such pair, and would make ranks look better. The
rows of h and t go to all ranks, and each scores its own vertices with them, a tile of scores at a
time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gcnmpi.core.volume import NOTHING, all_reduce
from gcnmpi.mpi.comm import reduce_in_place, slice_of
from gcnmpi.nn.metrics.pairs import ranks_of
from gcnmpi.nn.metrics.ranking import TIES
from gcnmpi.nn.tasks.drawing import RANKED_AT_ONCE, TILE
from gcnmpi.run.links.scoring import AT_ONCE, Decoder, LocalScores, pairs_of
from gcnmpi.run.problem import Problem
from partition.graph.graph import MASKS, arc_pieces, distinct

Known = Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]


class FilteredRanks:
    """The ranks of the positives of a mask; made by all ranks together.

    Attributes
    ----------
    volume : Volume
        That of the last evaluation.
    """

    def __init__(self, problem: Problem, decoder: Decoder, mask: str) -> None:
        self._problem, self._decoder, self._pairs = problem, decoder, pairs_of(problem)
        self._ends = np.asarray(self._pairs.positives[mask], np.int64)
        relations = self._pairs.relations.get(mask)
        self._relations = None if relations is None else np.asarray(relations)
        self.volume = NOTHING
        # Of each positive and end that is replaced: whose known vertices these are not.
        kinds = np.zeros(len(self._ends), np.int64) if relations is None else np.asarray(relations)
        anchors = [self._numbered(self._ends[:, end], kinds, end) for end in (0, 1)]
        wanted = distinct(np.concatenate(anchors))
        self._anchors = [np.searchsorted(wanted, of) for of in anchors]
        self._starts, self._known = self._among(wanted)
        self._types, self._of_own = map(self._types_of, (self._ends, decoder.own))

    def __call__(self, local: LocalScores) -> np.ndarray:
        """Both ranks of this rank's share of the positives, by the rows that it has."""
        found = [np.zeros(0)]
        self.volume = NOTHING
        for start in range(0, len(self._ends), RANKED_AT_ONCE):
            some = slice(start, min(start + RANKED_AT_ONCE, len(self._ends)))
            local.send(self._ends[some].T.reshape(-1))
            self.volume += local.volume(2 * (some.stop - some.start))
            found.append(self._block(local, some))
        return np.concatenate(found)

    def _block(self, local: LocalScores, some: slice) -> np.ndarray:
        runtime, own = self._problem.runtime, len(self._decoder.own)
        comm, size = runtime.comm, some.stop - some.start
        relations = None if self._relations is None else self._relations[some]
        number = np.arange(size)
        of_positives = local.of(own + number, own + size + number, relations)[:, np.newaxis]
        close = of_positives.dtype.type(TIES * np.abs(of_positives).max(initial=0))
        counts = np.zeros((2, 2, size))  # better ones and those no worse, of each end
        for end in (0, 1):
            types = self._types[some, 1 - end]  # of the vertices whose place others take
            for kind in np.unique(types).tolist():
                of = np.flatnonzero(types == kind)
                counts[end][:, of] = self._counts(local, some, end, of, kind, of_positives, close)
        reduce_in_place(comm, counts)
        runtime.traffic.count(all_reduce(counts.nbytes, comm.size))
        self.volume += all_reduce(counts.nbytes, comm.size)
        mine = slice_of(size, comm.rank, comm.size)
        return ranks_of(*counts.swapaxes(0, 1))[:, mine].reshape(-1)

    def _counts(
        self,
        local: LocalScores,
        some: slice,
        end: int,
        of: np.ndarray,
        kind: int,
        of_positives: np.ndarray,
        close: np.floating,
    ) -> np.ndarray:
        """Own vertices of a type that are better than positives ``of`` a block, or no worse."""
        own, best = np.flatnonzero(self._of_own == kind), of_positives[of]
        relations = None if self._relations is None else self._relations[some][of]
        i, place = self._listed(self._anchors[end][some][of], kind)
        rows = of + end * (some.stop - some.start)
        step = max(1, min(TILE // len(of), AT_ONCE // local.width))
        counts = np.zeros((2, len(of)))
        for first in range(0, len(own), step):
            tile = own[first : first + step]
            scores = local.with_own(rows, tile, relations, turned=end == 1)
            those = slice(*np.searchsorted(place, (first, first + step)))
            scores[i[those], place[those] - first] = -np.inf
            counts[0] += (scores > best + close).sum(axis=1)
            counts[1] += (scores >= best - close).sum(axis=1)
        return counts

    def _listed(self, anchors: np.ndarray, kind: int) -> tuple[np.ndarray, np.ndarray]:
        """The known own vertices of anchors: numbers of these, and places, which increase.

        They are those of a type, and so are the places.
        """
        counts = self._starts[anchors + 1] - self._starts[anchors]
        skipped = np.cumsum(counts) - counts
        number = np.repeat(np.arange(len(anchors)), counts)
        places = np.repeat(self._starts[anchors] - skipped, counts) + np.arange(len(number))
        some = np.flatnonzero(self._of_own[self._known[places]] == kind)
        order = some[np.argsort(self._known[places[some]], kind="stable")]
        own = np.flatnonzero(self._of_own == kind)
        return number[order], np.searchsorted(own, self._known[places[order]])

    def _types_of(self, vertices: np.ndarray) -> np.ndarray:
        """The number of the type of each vertex; 0 where they have none."""
        types = self._problem.source.stored.graph.vertex_types
        return np.zeros(vertices.shape, np.int64) if types is None else types.of(vertices)

    def _among(self, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each anchor, where its known own vertices begin, and their places."""
        rank, own = self._problem.runtime.comm.rank, len(self._decoder.own)
        parts, places = self._decoder.parts, self._decoder.places
        found = [np.zeros(0, np.int64)]
        for u, v, kinds in self._every_known():
            for end, (anchor, other) in enumerate(((u, v), (v, u))):
                keys = self._numbered(anchor, kinds, end)
                number = np.minimum(np.searchsorted(wanted, keys), len(wanted) - 1)
                mine = (wanted[number] == keys) & (parts[other] == rank)
                found.append(number[mine] * own + places[other[mine]])
        both = distinct(np.concatenate(found))
        anchors, known = np.divmod(both, max(1, own))
        starts = np.zeros(len(wanted) + 1, np.int64)
        np.cumsum(np.bincount(anchors, minlength=len(wanted)), out=starts[1:])
        return starts, known

    def _every_known(self) -> Known:
        """All known pairs, some at a time: first and second vertices, and relations."""
        pairs, graph = self._pairs, self._problem.source.stored.graph
        for mask in MASKS:
            ends = np.asarray(pairs.positives[mask], np.int64)
            relations = pairs.relations.get(mask)
            kinds = np.zeros(len(ends), np.int64) if relations is None else np.asarray(relations)
            yield from self._ways(ends[:, 0], ends[:, 1], kinds.astype(np.int64))
        if pairs.relations and graph.arc_type is None:
            return  # nothing says of which relation an arc is
        for first, last, source, target in arc_pieces(graph):
            kinds = np.zeros(len(source), np.int64)
            if pairs.relations and graph.arc_type is not None:
                some = slice(graph.indptr[first], graph.indptr[last])
                kinds = np.asarray(graph.arc_type[some], np.int64)
            kept = kinds < pairs.kinds
            yield from self._ways(
                source[kept].astype(np.int64), target[kept].astype(np.int64), kinds[kept]
            )

    def _ways(self, first: np.ndarray, second: np.ndarray, kinds: np.ndarray) -> Known:
        yield first, second, kinds
        if not self._pairs.directed:
            yield second, first, kinds

    def _numbered(self, anchor: np.ndarray, kinds: np.ndarray, end: int) -> np.ndarray:
        """A number for each vertex with a relation, and the end of the pair that it is."""
        return 2 * (anchor * self._pairs.kinds + kinds) + end
