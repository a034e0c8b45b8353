"""Candidates that are hard to tell from a pair's own end, by common neighbours and PageRank.

After Li et al. (2023), "Evaluating graph neural networks for link prediction: current pitfalls and
new benchmarking": of each pair, either end is replaced by the vertices that heuristics take for the
likeliest partners of the other end, and that are none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from partition.errors import UserError
from partition.graph.graph import MASKS, Graph, arc_places, index_dtype
from partition.graph.hashing import key, mixed, permuted
from partition.graph.links import HELD_OUT, PairSet, held_out, identified
from partition.graph.relations import VertexTypes
from partition.graph.sparse import sp
from partition.resident import check_memory

RESTART = 0.15  # of the walks of PageRank
REST = 5e-5  # a vertex keeps so much of what it has to pass on, per neighbour
MOST_STEPS = 100
_AT_ONCE = 256  # vertices from which PageRank is computed together
# Purposes of hashes.
_TIES, _FILL = 1, 2

_Scored = tuple[np.ndarray, np.ndarray]  # vertices, increasing, and a score of each
_Tell = Callable[[str, float, float], None]


def with_hard_candidates(
    pairs: PairSet,
    graph: Graph,
    count: int,
    masks: Sequence[str] = HELD_OUT,
    tell: _Tell = lambda stage, done, total: None,
) -> PairSet:
    """The set with ``count`` hard candidates for each positive of some masks, half for either end.

    Of a pair (u, v), the first half takes the place of v: the vertices with the least sum of two
    ranks, that of the number of neighbours in common with u and that of PageRank from u (a rank is
    1 + the number of vertices that have more; those that have nothing come last). Ties are in a
    hashed order, in which vertices that have neither follow. The other half takes the place of u
    likewise. They are of the type of the vertex whose place they take; no pair of the set, and no
    arc of the graph, is among them. Neighbours are those along arcs and against them, without the
    pairs that are held out.

    Parameters
    ----------
    count : int
        Even, above 0.
    masks : sequence of str
        Some of "val" and "test". The others keep candidates that they have for both ends.
    tell : callable
        Told the stage, and how many vertices are done, of how many.

    Raises
    ------
    UserError
        If ``count`` or ``masks`` are not such, or a vertex has fewer than ``count``/2 others of a
        type that are no partners of it.
    """
    if count <= 0 or count % 2:
        raise UserError(f"{count} hard candidates are not half for either end", "--hard 500")
    kept = {mask: found for mask, found in pairs.candidates.items() if mask not in masks}
    if kept and pairs.replaced != "both":
        what = f"the candidates of {min(kept)} are of the second end only, hard ones of both"
        raise UserError(what, f"--of {','.join(HELD_OUT)}")
    sizes, dtype = sum(len(pairs.positives[mask]) for mask in masks), index_dtype(graph.n)
    check_memory(2 * sizes * count * dtype.itemsize, f"{count} candidates of each pair")
    near, partners = _near(graph, held_out(pairs)), _partners(graph, pairs)
    seed, half = pairs.seed or 0, count // 2
    types = graph.vertex_types or VertexTypes.of_counts({"": graph.n})

    def replacing(
        told: np.ndarray, other: np.ndarray, matrix: sp.csr_array, side: int
    ) -> np.ndarray:
        """Candidates in place of the ``other`` end of pairs, of its type: (m, count/2)."""
        rows, kinds = np.empty((len(told), half), dtype), types.of(other)
        for kind in np.unique(kinds).tolist():
            here, among = kinds == kind, types.range(types.names[kind])
            sources, place = np.unique(told[here], return_inverse=True)
            best = _hardest(near, sources, matrix, half, key(seed, side), tell, among)
            rows[here] = best[place]
        return rows

    joined = [np.asarray(pairs.positives[mask], np.int64) for mask in masks]
    first, second = np.concatenate(joined).T
    if pairs.directed:
        halves = [replacing(first, second, partners, 0)]
        halves.append(replacing(second, first, partners.T.tocsr(), 1))
    else:  # partners of a vertex are the same, whichever end it is
        told, other = np.concatenate([first, second]), np.concatenate([second, first])
        halves = np.split(replacing(told, other, partners, 0), 2)
    ends = np.cumsum([len(some) for some in joined])[:-1]
    found = dict(zip(masks, np.split(np.hstack(halves), ends), strict=True))
    candidates = {mask: (kept | found)[mask] for mask in MASKS if mask in kept | found}
    drawn = 0 if set(HELD_OUT) <= candidates.keys() else pairs.drawn
    made = f"{pairs.made.split('; ')[0]}; {count} hard candidates of {', '.join(masks)}"
    hard = replace(pairs, candidates=candidates, replaced="both", drawn=drawn, made=made)
    return identified(hard)


def _hardest(
    near: sp.csr_array,
    sources: np.ndarray,
    partners: sp.csr_array,
    count: int,
    base: int,
    tell: _Tell = lambda stage, done, total: None,
    among: range | None = None,
) -> np.ndarray:
    """The vertices that are likeliest to be partners of each source and are none: (s, count).

    Parameters
    ----------
    near, partners : (n, n) csr_array
        Neighbours by which vertices are ranked; and which are true partners, a row for each source.
    sources : (s,) int64
    base : int
        Key of hashes.
    among : range, optional
        Which vertices they may be.
    """
    n, degree = near.shape[0], np.diff(near.indptr)
    among = among or range(n)
    found = np.empty((len(sources), count), np.int64)
    for first in range(0, len(sources), _AT_ONCE):
        block = sources[first : first + _AT_ONCE]
        ranks = page_rank(near, degree, block)
        for place, source in enumerate(block.tolist()):
            own = _within(np.union1d(_row(partners, source)[0], [source]), among)
            if (others := len(among) - len(own)) < count:
                what = f"vertex {source} has {others} others that are no partners of it"
                raise UserError(f"{what}, {count} are asked for", "give a smaller --hard")
            scored = _common(near, source), _row(ranks, place)
            common, rank = (_without(each, own, among) for each in scored)
            chosen = _least_ranks(common, rank, count, key(base, _TIES, source))
            found[first + place] = _filled(chosen, own, n, count, key(base, _FILL, source), among)
        tell("ranking partners", first + len(block), len(sources))
    return found


def page_rank(near: sp.csr_array, degree: np.ndarray, sources: np.ndarray) -> sp.csr_array:
    """Personalised PageRank from each source, (s, n) float32, by forward push.

    The algorithm of Andersen, Chung and Lang (2006), for all vertices that hold more than ``REST``
    times their degree at once: a vertex keeps the share ``RESTART`` of what it holds and passes the
    others on to its neighbours, in equal parts.
    """
    shape = (len(sources), near.shape[0])
    rows = np.arange(len(sources) + 1)
    rest = sp.csr_array((np.ones(len(sources), np.float32), sources, rows), shape=shape)
    kept = sp.csr_array(shape, dtype=np.float32)
    least = (REST * degree).astype(np.float32)
    share = ((1 - RESTART) / np.maximum(degree, 1)).astype(np.float32)
    for _ in range(MOST_STEPS):
        full = rest.data > least[rest.indices]
        if not full.any():
            break
        pushed = rest.copy()
        pushed.data[~full] = 0
        pushed.eliminate_zeros()
        rest.data[full] = 0
        rest.eliminate_zeros()
        kept = kept + pushed * np.float32(RESTART)
        pushed.data *= share[pushed.indices]
        passed = pushed @ near
        passed.sort_indices()
        rest = rest + passed
    return kept


def _near(graph: Graph, held: np.ndarray) -> sp.csr_array:
    """1 for each neighbour along an arc or against it, but itself, that no held pair joins."""
    arcs = _matrix(graph)
    near = arcs + arcs.T.tocsr()
    near.data[:] = 1
    row = np.repeat(np.arange(graph.n, dtype=near.indices.dtype), np.diff(near.indptr))
    near.data[row == near.indices] = 0
    del row, arcs
    first, second = np.concatenate([held, held[:, ::-1]]).astype(np.int64).T
    place = arc_places(near.indptr, near.indices, first, second)
    near.data[place[place >= 0]] = 0
    near.eliminate_zeros()
    return near


def _partners(graph: Graph, pairs: PairSet) -> sp.csr_array:
    """The partners of each vertex as the first end: ends of arcs, and of all pairs of the set."""
    ends = tuple(np.concatenate([pairs.positives[mask] for mask in MASKS]).T)
    ones, shape = np.ones(len(ends[0]), np.float32), (graph.n, graph.n)
    matrix = _matrix(graph) + sp.coo_array((ones, ends), shape=shape).tocsr()
    return matrix if pairs.directed else matrix + matrix.T.tocsr()


def _matrix(graph: Graph) -> sp.csr_array:
    ones, ends = np.ones(graph.nnz, np.float32), (np.asarray(graph.indices), graph.indptr)
    return sp.csr_array((ones, *ends), shape=(graph.n, graph.n))


def _row(matrix: sp.csr_array, row: int) -> _Scored:
    here = slice(matrix.indptr[row], matrix.indptr[row + 1])
    return matrix.indices[here], matrix.data[here]


def _common(near: sp.csr_array, source: int) -> _Scored:
    """The vertices that have neighbours in common with one, and how many."""
    ends = near[_row(near, source)[0]].indices
    if 4 * len(ends) > near.shape[0]:  # a table is faster than sorting
        counts = np.bincount(ends)
        columns = np.flatnonzero(counts).astype(ends.dtype)
        return columns, counts[columns]
    return np.unique(ends, return_counts=True)


def _within(vertices: np.ndarray, among: range) -> np.ndarray:
    return vertices[(vertices >= among.start) & (vertices < among.stop)]


def _without(scored: _Scored, excluded: np.ndarray, among: range) -> _Scored:
    columns, scores = scored
    keep = (columns >= among.start) & (columns < among.stop)
    if len(columns):
        place = np.minimum(np.searchsorted(columns, excluded), len(columns) - 1)
        keep[place[columns[place] == excluded]] = False
    return columns[keep], scores[keep]


def _least_ranks(first: _Scored, second: _Scored, count: int, base: int) -> np.ndarray:
    """Of vertices with two scores, the ``count`` with the least sums of ranks, the least first."""
    of_first, of_second = _ranks(first[1]), _ranks(second[1])
    last = len(first[0]) + 1, len(second[0]) + 1
    only, total = np.ones(len(of_first), bool), of_second + last[0]
    if len(of_first):
        place = np.minimum(np.searchsorted(first[0], second[0]), len(of_first) - 1)
        both = first[0][place] == second[0]
        total[both] += of_first[place[both]] - last[0]
        only[place[both]] = False
    columns = np.concatenate([first[0][only], second[0]])
    total = np.concatenate([of_first[only] + last[1], total])
    if len(columns) > count:
        least = np.flatnonzero(total <= np.partition(total, count - 1)[count - 1])
        columns, total = columns[least], total[least]
    return columns[np.lexsort((mixed(columns, base) >> np.uint64(32), total))][:count]


def _ranks(scores: np.ndarray) -> np.ndarray:
    """1 + the number of scores that are higher, of each: int64."""
    ordered = np.sort(scores)
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)[: len(ordered)])
    return len(scores) - last[np.searchsorted(ordered[last], scores)]


def _filled(
    chosen: np.ndarray, excluded: np.ndarray, n: int, count: int, base: int, among: range
) -> np.ndarray:
    """The chosen vertices, and others in a hashed order, but the excluded ones, up to ``count``."""
    start = 0
    while len(chosen) < count:
        some = permuted(np.arange(start, min(n, start + 2 * count + len(excluded))), n, base)
        start += len(some)
        some = _within(some, among)
        chosen = np.append(chosen, some[~np.isin(some, np.append(chosen, excluded))])
    return chosen[:count]
