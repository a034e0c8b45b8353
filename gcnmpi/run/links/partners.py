"""For each of some vertices, the best partners over all vertices: exact, in bounded memory.

The rows of a block of vertices go to all ranks, and each rank scores its own vertices with them, a
tile of scores at a time. It keeps the best ones; those of all ranks are then merged.

Where a score is a product of two rows, it is at the most the product of their norms. A rank
therefore goes through its vertices in the order of decreasing norms, and is done with a vertex of
the block as soon as no score of the rest can be among its best (Teflioudi, Gemulla, Mykytiuk, LEMP,
SIGMOD 2015, section 3). It loses nothing, and where norms differ it saves nearly all products.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.mpi.comm import MAX, maximum, redistribute, reduce_in_place
from gcnmpi.nn.metrics.ranking import TIES
from gcnmpi.options.task import LinkOptions
from gcnmpi.run.links.scoring import AT_ONCE, Decoder, LocalScores
from gcnmpi.run.problem import Problem
from partition.graph.graph import arc_pieces, distinct

BLOCK = 4096  # vertices whose rows are sent at a time
SCORED_AT_ONCE = 1 << 20  # scores of a tile
NOBODY = -1  # in place of a partner, where there are fewer


@dataclass(frozen=True)
class Best:
    """Partners of some vertices, the best ones first.

    Attributes
    ----------
    partners : (q, K) int64
        ``NOBODY`` where there are fewer.
    scores : (q, K) floating-point numbers
        −∞ there.
    """

    partners: np.ndarray
    scores: np.ndarray

    def of(self, some: np.ndarray) -> Best:
        """The partners of some of the vertices, copied."""
        return Best(self.partners[some], self.scores[some])


def best_partners(
    problem: Problem,
    rows: Array,
    parameters: Mapping[str, Array],
    vertices: np.ndarray,
    k: int,
    with_arcs: bool,
    relation: int | None = None,
) -> tuple[np.ndarray, Best]:
    """The K best partners of each vertex, on all ranks together: each gets those of some of them.

    Parameters
    ----------
    rows : (nown, width) array
        What the network gives for own vertices.
    parameters : mapping of str to array
        Of the decoder.
    vertices : (q,) int64
        The same on all ranks; the first of each pair, where the decoder tells them apart.
    with_arcs : bool
        Whether a partner may be one that the vertex has an arc with.
    relation : int, optional
        That of the pairs: partners are of the type that it leads to, and arcs are those of the
        relation. Where the decoder tells relations apart, there is one.

    Returns
    -------
    numbers : (r,) int64
        Places in ``vertices`` of those that this rank has the result of.
    best : Best
        A vertex is no partner of itself. Scores that are equal but for rounding are in the order of
        their vertices.
    """
    comm, kernel = problem.runtime.comm, problem.runtime.kernel
    decoder = Decoder(problem)
    local = LocalScores(problem, decoder, rows, parameters, min(BLOCK, len(vertices)))
    norms = local.norms()
    order = np.lexsort((decoder.own, -norms))
    graph = problem.source.stored.graph
    if relation is not None and graph.vertex_types is not None:
        target = graph.vertex_types.range(graph.relations[relation].target)
        order = order[(decoder.own[order] >= target.start) & (decoder.own[order] < target.stop)]
    own, norms = decoder.own[order], norms[order]
    longest = maximum(comm, float(norms.max(initial=0.0)))
    known = _Known(problem, decoder, vertices, own, with_arcs, relation)
    equal = max(TIES, 8 * float(np.finfo(kernel.dtype).eps))
    numbers, found = [np.zeros(0, np.int64)], [_nobody(0, k, kernel.dtype)]
    for start in range(0, len(vertices), BLOCK):
        block = vertices[start : start + BLOCK]
        local.send(block)
        kinds = None if relation is None else np.full(len(block), relation)
        slope, offset = local.bound(kinds)
        best, bounded = _nobody(len(block), k, kernel.dtype), np.isfinite(longest)
        largest = slope * longest + abs(offset) if bounded else np.zeros(len(block))
        number, place = known.of(block)
        some, first = np.arange(len(block)), 0  # vertices of the block that are not done
        while len(some) and first < len(own):
            step = max(k, min(SCORED_AT_ONCE // len(some), AT_ONCE // rows.shape[1]))
            tile = slice(first, first + step)
            scores = local.with_own(some, order[tile], None if kinds is None else kinds[some])
            if not bounded:
                largest = np.maximum(largest, np.abs(scores).max(axis=1))
            _leave_out(scores, some, number, place, first)
            close, first = equal * largest[some], first + step
            kept = _with_tile(best.of(some), scores, own[tile], close)
            best.partners[some], best.scores[some] = kept.partners, kept.scores
            if bounded and first < len(own):
                at_most = slope[some] * norms[first] + offset
                some = some[at_most >= kept.scores[:, -1] - close]
        reduce_in_place(comm, largest, MAX)
        mine, best = _merged(problem, best, equal * largest)
        numbers.append(start + mine)
        found.append(best)
    whole = (np.concatenate([getattr(b, name) for b in found]) for name in ("partners", "scores"))
    return np.concatenate(numbers), Best(*whole)


def _leave_out(
    scores: np.ndarray, some: np.ndarray, number: np.ndarray, place: np.ndarray, first: int
) -> None:
    """Give −∞ to those pairs of a tile that are none: see :class:`_Known`."""
    those = slice(*np.searchsorted(place, (first, first + scores.shape[1])))
    row = np.minimum(np.searchsorted(some, number[those]), len(some) - 1)
    there = some[row] == number[those]
    scores[row[there], place[those][there] - first] = -np.inf


def _with_tile(best: Best, scores: np.ndarray, ids: np.ndarray, close: np.ndarray) -> Best:
    """The best of those so far, (q, K), and of a tile, (q, m) scores of further vertices."""
    k = best.scores.shape[1]
    last = best.scores[:, -1:]
    if np.isfinite(last).all():
        better = scores >= (last - close[:, np.newaxis]).astype(scores.dtype)
        if better.any():  # one that only equals the last takes the place of a larger number
            smaller = ids < best.partners.max(axis=1, keepdims=True)
            better &= smaller | (scores > (last + close[:, np.newaxis]).astype(scores.dtype))
    else:  # the best of this tile, and those that equal the last of them
        better = scores > -np.inf
        if scores.shape[1] > k:
            last = np.partition(scores, -k, axis=1)[:, -k : -k + 1 or None]
            better &= scores >= (last - close[:, np.newaxis]).astype(scores.dtype)
    hits = np.flatnonzero(better)
    if not len(hits):
        return best
    i, j = np.divmod(hits, scores.shape[1])
    counts = np.bincount(i, minlength=len(scores))
    some = np.flatnonzero(counts)
    place = np.arange(len(i)) - np.repeat(np.cumsum(counts) - counts, counts)
    more = _nobody(len(some), int(counts.max()), scores.dtype)
    row = np.searchsorted(some, i)
    more.partners[row, place], more.scores[row, place] = ids[j], scores[i, j]
    taken = (
        np.concatenate((getattr(best, name)[some], getattr(more, name)), axis=1)
        for name in ("partners", "scores")
    )
    chosen = _chosen(Best(*taken), k, close[some])
    best.partners[some], best.scores[some] = chosen.partners, chosen.scores
    return best


def _chosen(best: Best, k: int, close: np.ndarray) -> Best:
    """The K best of each row; of scores next to each other within ``close``, the smaller vertex."""
    order = np.argsort(-best.scores, axis=1, kind="stable")
    scores = np.take_along_axis(best.scores, order, axis=1)
    partners = np.take_along_axis(best.partners, order, axis=1)
    with np.errstate(invalid="ignore"):  # −∞ less −∞
        apart = scores[:, :-1] - scores[:, 1:] > close[:, np.newaxis]
    group = np.zeros(scores.shape, np.int64)
    np.cumsum(apart, axis=1, out=group[:, 1:])
    order = np.lexsort((partners, group), axis=1)[:, :k]
    return Best(*(np.take_along_axis(each, order, axis=1) for each in (partners, scores)))


def _merged(problem: Problem, best: Best, close: np.ndarray) -> tuple[np.ndarray, Best]:
    """The best of all ranks for this rank's share of a block, and the numbers of these in it."""
    comm, limit = problem.runtime.comm, problem.config.loading.max_bytes
    count, k = best.scores.shape
    share = np.arange(count) * comm.size // max(count, 1)
    (partners, scores), _ = redistribute(comm, share, [best.partners, best.scores], limit)
    mine = np.flatnonzero(share == comm.rank)
    shape = comm.size, len(mine), k
    pieces = (each.reshape(shape).transpose(1, 0, 2) for each in (partners, scores))
    return mine, _chosen(
        Best(*(p.reshape(len(mine), comm.size * k) for p in pieces)), k, close[mine]
    )


def _nobody(count: int, k: int, dtype: np.dtype) -> Best:
    return Best(np.full((count, k), NOBODY, np.int64), np.full((count, k), -np.inf, dtype))


class _Known:
    """The own vertices that are no partners: the vertex itself, and those that it has an arc with.

    Where the score has no direction, or pairs have none, arcs count both ways.
    """

    def __init__(
        self,
        problem: Problem,
        decoder: Decoder,
        vertices: np.ndarray,
        own: np.ndarray,
        with_arcs: bool,
        relation: int | None,
    ) -> None:
        stored, task = problem.source.stored, problem.config.task
        assert isinstance(task, LinkOptions)
        graph, self._order = stored.graph, np.argsort(own)
        self._own = own[self._order]
        self._kinds, self._relation = None, relation
        if relation is not None and graph.arc_type is not None:
            self._kinds = np.asarray(graph.arc_type) == relation
        # Where arcs begin, by vertex or by place among some vertices; their other ends.
        self._arcs: list[tuple[Any, Any, np.ndarray | None]] = []
        if not with_arcs:
            self._arcs = [(graph.indptr, graph.indices, None)]
        directed = stored.manifest.directed if stored.pairs is None else stored.pairs.directed
        turned = not (directed and not decoder.symmetric)
        if self._arcs and turned and stored.manifest.directed:
            self._arcs.append(self._turned(problem, decoder.parts, vertices))

    def of(self, block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of a block: numbers of its vertices, and places among own ones, which increase."""
        numbers, others = [np.arange(len(block))], [block]
        for indptr, indices, among in self._arcs:
            at = block if among is None else np.searchsorted(among, block)
            starts, counts = indptr[at], indptr[at + 1] - indptr[at]
            skipped = np.cumsum(counts) - counts
            arcs = np.repeat(starts - skipped, counts) + np.arange(counts.sum())
            number = np.repeat(numbers[0], counts)
            if among is None and self._kinds is not None:
                number, arcs = number[self._kinds[arcs]], arcs[self._kinds[arcs]]
            numbers.append(number)
            others.append(np.asarray(indices[arcs], np.int64))
        number, other = np.concatenate(numbers), np.concatenate(others)
        place = np.minimum(np.searchsorted(self._own, other), max(0, len(self._own) - 1))
        mine = np.flatnonzero(self._own[place] == other) if len(self._own) else place[:0]
        place = self._order[place[mine]]
        increasing = np.argsort(place, kind="stable")
        return number[mine][increasing], place[increasing]

    def _turned(
        self, problem: Problem, parts: np.ndarray, vertices: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The arcs from own vertices to those, by their targets: where each begins, and sources.

        And the targets, increasing.
        """
        graph, wanted = problem.source.stored.graph, distinct(vertices)
        targets, sources = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for first, last, source, target in arc_pieces(graph):
            if self._kinds is not None:
                some = self._kinds[graph.indptr[first] : graph.indptr[last]]
                source, target = source[some], target[some]
            place = np.minimum(np.searchsorted(wanted, target), len(wanted) - 1)
            some = (wanted[place] == target) & (parts[source] == problem.runtime.comm.rank)
            targets.append(place[some])
            sources.append(source[some])
        target, source = np.concatenate(targets), np.concatenate(sources)
        starts = np.zeros(len(wanted) + 1, np.int64)
        np.cumsum(np.bincount(target, minlength=len(wanted)), out=starts[1:])
        return starts, source[np.argsort(target, kind="stable")], wanted
