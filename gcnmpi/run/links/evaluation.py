"""Metrics of pairs that were held out, from a pass without dropout.

Common negatives are few: they are scored as positives are, on a rank that owns an end. Candidates
of each positive are many, and touch nearly all vertices. There the rows of the positives' ends go
to all ranks, some positives at a time, and each rank scores the candidates that it owns; two counts
for each positive, of better candidates and of those no worse, are then summed over ranks. So no row
of a candidate is sent, and memory is bounded. All vertices as candidates are in
:mod:`gcnmpi.run.links.filtered`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from gcnmpi.core.volume import NOTHING, Volume, all_reduce
from gcnmpi.halo.pairs import ScoredPairs
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.mpi.comm import reduce_in_place, slice_of
from gcnmpi.nn.metrics import pairs as metrics
from gcnmpi.nn.tasks.drawing import CANDIDATES_AT_ONCE, RANKED_AT_ONCE, share_of_held_out
from gcnmpi.options.task import METRICS, chosen_metrics, hits_of, ranks_all
from gcnmpi.run.evaluation import Logits
from gcnmpi.run.links.filtered import FilteredRanks
from gcnmpi.run.links.scoring import Decoder, LocalScores, pairs_of
from gcnmpi.run.problem import Problem
from partition.graph.vertex_pairs import HELD_OUT, drawn_candidates


class LinkEvaluation:
    """The metrics that are configured, of the pairs to validate and to test on.

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
        self._problem, self._model, self._parameters = problem, model, parameters
        self._metrics, self._pairs = chosen_metrics(problem.config.task), pairs_of(problem)
        self._decoder = decoder
        self._masks = [mask for mask in HELD_OUT if len(self._pairs.positives[mask])]
        self._of_all: dict[str, tuple[ScoredPairs, np.ndarray]] = {}
        self._volume = NOTHING
        self._filtered: dict[str, FilteredRanks] = {}
        for mask in self._masks:
            self._of_all[mask] = self._placed(mask)
            if ranks_all(problem.config.task):
                self._filtered[mask] = FilteredRanks(problem, decoder, mask)

    @property
    def names(self) -> list[str]:
        """The names of all values, such as "val_hits@100"."""
        return [f"{mask}_{metric}" for metric in self._metrics for mask in HELD_OUT]

    def volume(self) -> Volume:
        """The volume of an evaluation, once there was one."""
        found = self._volume
        products = self._model.products(backward=False)
        return sum((self._problem.scheme.volume(*each) for each in products), found)

    def __call__(self) -> dict[str, float | None]:
        """All values, equal on every rank; None where there are no such pairs."""
        problem, comm = self._problem, self._problem.runtime.comm
        values: dict[str, float | None] = dict.fromkeys(self.names)
        with problem.runtime.traffic.during("eval"), problem.runtime.phases.as_one("eval"):
            rows, self._volume = self._model.forward(), NOTHING
            for mask in self._masks:
                scored = self._scores(mask, rows)
                for metric in self._metrics:
                    k = hits_of(metric)
                    function = METRICS.get(metric)
                    value = (partial(function, k=k) if k else function)(comm, scored)
                    if value is not None and np.isfinite(value):
                        values[f"{mask}_{metric}"] = value
        return values

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
            found.append(counts.sum(axis=0)[mine] / 2 + 1)
        return np.concatenate(found) if found else np.zeros(0)
