"""Metrics of pairs that were held out, from a pass without dropout.

Common negatives are few: they are scored as positives are, on a rank that owns an end. Candidates
of each positive are many, and touch nearly all vertices. There the rows of the positives' ends go
to all ranks, some positives at a time, and each rank scores the candidates that it owns; two counts
for each positive, of better candidates and of those no worse, are then summed over ranks. So no row
of a candidate is sent, and memory is bounded.

Knowledge graphs are evaluated among all vertices but known ones (Bordes et al. 2013, "filtered").
Of a positive (h, r, t), all vertices take the place of t, then of h, but for those that make a pair
which is known: an arc of the graph, or one of the pairs to train, validate or test on, of the same
relation where there are relations. Where vertices have types, only those of the type of t, then of
h: others are no such pair, and would make ranks look better. The rows of h and t go to all ranks,
and each scores its own vertices with them, a tile of scores at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gcnmpi.core.volume import NOTHING, Volume, all_reduce
from gcnmpi.halo.pairs import ScoredPairs
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.mpi.comm import agreed, reduce_in_place, slice_of
from gcnmpi.nn.metrics import pairs as metrics
from gcnmpi.nn.metrics.pairs import ranks_of
from gcnmpi.nn.metrics.ranking import TIES
from gcnmpi.nn.tasks.drawing import CANDIDATES_AT_ONCE, RANKED_AT_ONCE, TILE, share_of_held_out
from gcnmpi.options.task import FILTERED, METRICS, hits_of
from gcnmpi.run.evaluation import Evaluation, GivenLogits, Logits
from gcnmpi.run.links.scoring import AT_ONCE, Decoder, LocalScores, of_decoder, pairs_of
from gcnmpi.run.problem import Problem
from partition.errors import UserError
from partition.graph.graph import MASKS, arc_pieces, distinct
from partition.graph.vertex_pairs import HELD_OUT, drawn_candidates

if TYPE_CHECKING:
    from gcnmpi.run.inference import Computed


class LinkEvaluation(Evaluation):
    """The metrics of the pairs to validate and to test on.

    Parameters
    ----------
    model : model
        Gives the rows of vertices.
    decoder : Decoder
    parameters : mapping of str to array
        Those of the decoder; there may be others.
    """

    def __init__(
        self, problem: Problem, model: Logits, decoder: Decoder, parameters: Mapping[str, Array]
    ) -> None:
        super().__init__(problem, model)
        self._parameters, self._pairs = parameters, pairs_of(problem)
        self._decoder, self._volume = decoder, NOTHING
        every = [mask for mask in HELD_OUT if len(self._pairs.positives[mask])]
        self._of_all = {mask: self._placed(mask) for mask in every}
        filtered = every if getattr(problem.config.task, "ranked", "") == FILTERED else []
        self._filtered = {mask: _FilteredRanks(problem, decoder, mask) for mask in filtered}

    def volume(self) -> Volume:
        """The volume of an evaluation, once there was one."""
        return super().volume() + self._volume

    def _values(self) -> Iterator[tuple[str, float | None]]:
        rows, self._volume = self._model.forward(), NOTHING
        for mask in self._of_all:
            scored = self._scores(mask, rows)
            for metric in self._metrics:
                k, function = hits_of(metric), METRICS.get(metric)
                function = partial(function, k=k) if k else function
                yield f"{mask}_{metric}", function(self._problem.runtime.comm, scored)

    def _placed(self, mask: str) -> tuple[ScoredPairs, np.ndarray]:
        """Positives and common negatives where they are scored; which are positives."""
        comm = self._problem.runtime.comm
        pairs, positive, relations = share_of_held_out(self._pairs, mask, comm.rank, comm.size)
        keys = np.zeros(len(pairs), np.uint64)  # without dropout
        placed = self._decoder.place(pairs, keys, [positive], lasts=True, relations=relations)
        return placed, placed.given[0]

    def _scores(self, mask: str, rows: Array) -> metrics.ScoredPairs:
        problem = self._problem
        placed, positive = self._of_all[mask]
        # Made anew each time: kept, it would hold all rows of vertices once more.
        scored = self._decoder.scored(placed, rows, self._parameters)
        scores = np.array(problem.runtime.kernel.to_host(scored.passes.evaluate())[:, 0])
        self._volume += self._decoder.volume(scored, backward=False)
        del scored
        positives, negatives = scores[positive], scores[~positive]
        if mask in self._filtered:
            own = problem, self._decoder, rows, self._parameters
            ranks = self._filtered[mask](LocalScores(*own, 2 * RANKED_AT_ONCE))
            self._volume += self._filtered[mask].volume
            return metrics.ScoredPairs(positives, negatives, ranks)
        if mask in self._pairs.candidates or self._pairs.drawn:
            return metrics.ScoredPairs(positives, negatives, self._ranks(mask, rows))
        of_all = None
        if "mrr" in self._metrics:
            of_all = metrics.ranks_among(problem.runtime.comm, positives, negatives)
        return metrics.ScoredPairs(positives, negatives, of_all=of_all)

    def _ranks(self, mask: str, rows: Array) -> np.ndarray:
        """The ranks of this rank's share of the positives among their candidates."""
        problem, pairs, comm = self._problem, self._pairs, self._problem.runtime.comm
        own, parts = self._decoder.own, self._decoder.parts
        every, given = pairs.positives[mask], pairs.candidates.get(mask)
        count = pairs.drawn if given is None else given.shape[1]
        both = given is not None and pairs.replaced == "both"
        at_once = max(1, min(len(every), CANDIDATES_AT_ONCE // max(1, count)))
        local = LocalScores(problem, self._decoder, rows, self._parameters, 2 * at_once)
        relations = pairs.relations.get(mask)
        found = []
        for start in range(0, len(every), at_once):
            some = slice(start, min(start + at_once, len(every)))
            ends = np.asarray(every[some], np.int64)
            local.send(ends.T.reshape(-1))
            self._volume += local.volume(2 * len(ends))
            if given is None:
                types = problem.source.stored.graph.vertex_types
                candidates = drawn_candidates(pairs, mask, some, len(parts), types)
            else:
                candidates = np.asarray(given[some], np.int64)
            first = len(own) + np.arange(len(ends))
            second = first + len(ends)
            of = None if relations is None else np.asarray(relations[some])
            scores = local.of(first, second, of)[:, np.newaxis].astype(np.float64)
            i, c = np.nonzero(parts[candidates] == comm.rank)
            places = self._decoder.places[candidates[i, c]].astype(np.int64)
            left, right = first[i], places
            if both:  # the others take the place of the first end
                turned = c >= count // 2
                left, right = np.where(turned, places, left), np.where(turned, second[i], right)
            of = None if of is None else of[i]
            of_candidates = local.of(left, right, of).astype(np.float64)
            close = metrics.tolerance(comm, scores, of_candidates)
            better = np.bincount(i[of_candidates > scores[i, 0] + close], minlength=len(ends))
            equal = np.bincount(i[of_candidates >= scores[i, 0] - close], minlength=len(ends))
            counts = np.stack((better, equal)).astype(np.float64)
            reduce_in_place(comm, counts)
            problem.runtime.traffic.count(all_reduce(counts.nbytes, comm.size))
            self._volume += all_reduce(counts.nbytes, comm.size)
            mine = slice_of(len(ends), comm.rank, comm.size)
            found.append(metrics.ranks_of(*counts)[mine])
        return np.concatenate(found) if found else np.zeros(0)


def of_weights(done: Computed) -> tuple[dict[str, float | None], tuple[str, ...]]:
    """The metrics of given weights, of the pairs that are configured, and warnings for the user."""
    problem = done.problem
    with agreed(problem.runtime.comm):
        if problem.source.stored.pairs is None:
            path = problem.source.stored.path
            raise UserError(
                f"{path} has no pairs to validate or to test on",
                f"draw some: gcn-partition pairs {path}",
            )
    rows = GivenLogits(done.result, problem.network.widths)
    given = of_decoder(problem, done.weights.parameters)
    return LinkEvaluation(problem, rows, Decoder(problem), given)(), problem.told


Known = Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]


class _FilteredRanks:
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
