"""Metrics of pairs that were held out, from a pass without dropout.

Common negatives are few: they are scored as positives are, on a rank that owns an end. Candidates
of each positive are many, and touch nearly all vertices. There the rows of the positives' ends go
to all ranks, some positives at a time, and each rank scores the candidates that it owns; two counts
for each positive, of better candidates and of those no worse, are then summed over ranks. So no row
of a candidate is sent, and memory is bounded. All vertices as candidates are in
:mod:`gcnmpi.run.links.filtered`.
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
from gcnmpi.nn.tasks.drawing import CANDIDATES_AT_ONCE, RANKED_AT_ONCE, share_of_held_out
from gcnmpi.options.task import FILTERED, METRICS, hits_of
from gcnmpi.run.evaluation import Evaluation, GivenLogits, Logits
from gcnmpi.run.links.filtered import FilteredRanks
from gcnmpi.run.links.scoring import Decoder, LocalScores, of_decoder, pairs_of
from gcnmpi.run.problem import Problem
from partition.errors import UserError
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
        self._filtered = {mask: FilteredRanks(problem, decoder, mask) for mask in filtered}

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
