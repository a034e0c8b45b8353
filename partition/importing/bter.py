"""Block Two-Level Erdős–Rényi graphs: given degrees, and given clustering by degree."""

from __future__ import annotations

import numpy as np

from partition.errors import UserError
from partition.graph.graph import Graph, index_dtype
from partition.importing.assemble import build_graph
from partition.importing.profiles import Profile
from partition.importing.readers import Source
from partition.importing.synthetic import ARCS_STREAM, CHUNK, VERTICES_STREAM
from partition.importing.vertex_data import attach_random, check_random, generator
from partition.resident import check_memory

# Ends that were paired to loops or copies are paired again, so often, or until so few are left.
ROUNDS, TOLERATED = 10, 1e-4


def bter(
    profile: Profile,
    *,
    seed: int = 0,
    shuffle: bool = True,
    features: int | None = None,
    classes: int | None = None,
) -> Graph:
    """An undirected graph with the degrees and the clustering of a profile.

    First level: the vertices are cut into blocks in the order of their degrees, d + 1 vertices
    where the first has degree d ≥ 2, and each pair of a block is an edge with probability c^⅓, c
    the clustering of degree d. Second level: the edges that a vertex lacks of its degree are ends,
    which are paired at random over the whole graph. Kolda, Pinar, Plantenga and Seshadhri (*A
    scalable generative graph model with community structure*, SIAM J. Sci. Comput. 36, 2014) draw
    the second level by expected degrees instead (Chung and Lu), by which many vertices of degree 1
    end up with none; otherwise the model is theirs.

    Degrees are met but for the few ends, mostly of hubs, that could only be paired to loops or
    copies of edges. Clustering is met best at low degrees: vertices of high degree share blocks
    with vertices of lower degree. Time and memory are proportional to the edges.

    Parameters
    ----------
    profile : Profile
        See :mod:`partition.importing.profiles`.
    seed : int
        The same seed gives the same graph.
    shuffle : bool
        Number the vertices at random; otherwise by degree, so that blocks are contiguous.
    features, classes : int, optional
        Columns of random features, number of random classes (see
        ``partition.importing.assemble.attach``).
    """
    check_random(features, classes)
    degrees, n = profile.degrees, len(profile.degrees)
    if n and degrees[-1] >= n:
        raise UserError(
            f"a vertex of degree {degrees[-1]} needs more than {n} vertices",
            "take more vertices, a smaller factor or a smaller maximum",
        )
    nedges = int(degrees.sum()) // 2
    check_memory(64 * nedges + 32 * n, f"a graph of {n} vertices, {nedges} edges")

    rng = generator(seed, ARCS_STREAM)
    key = _inside_blocks(rng, profile)
    lacking = degrees - np.bincount(key // max(n, 1), minlength=n)
    lacking -= np.bincount(key % max(n, 1), minlength=n)
    ends = np.repeat(np.arange(n, dtype=index_dtype(n)), lacking)
    key = np.concatenate([key, _across(rng, key, ends, n)])
    del ends

    source, target = (end.astype(index_dtype(n)) for end in np.divmod(key, max(n, 1)))
    del key
    if shuffle:
        number = generator(seed, VERTICES_STREAM).permutation(n).astype(source.dtype)
        source, target = number[source], number[target]
    graph, _ = build_graph(Source(n=n, source=source, target=target, symmetric=True, format="bter"))
    return attach_random(graph, features, classes, seed)


def _inside_blocks(rng: np.random.Generator, profile: Profile) -> np.ndarray:
    """Edges i · n + j, i > j, increasing in no order, of the first level.

    A block of d + 1 vertices of degree d or more has as many pairs as they have edges at least,
    so that a random number for each pair is affordable.
    """
    n = len(profile.degrees)
    begin, size, likely = _blocks(profile)
    npairs = np.cumsum(size * (size - 1) // 2)
    kept = [np.empty(0, np.int64)]
    for start in range(0, int(npairs[-1]) if len(npairs) else 0, CHUNK):
        pair = np.arange(start, min(start + CHUNK, npairs[-1]))
        block = np.searchsorted(npairs, pair, side="right")
        drawn = rng.random(len(pair)) < likely[block]
        pair, block = pair[drawn], block[drawn]
        # Number of a pair in its block = i (i − 1) / 2 + j, 0 ≤ j < i.
        pair -= npairs[block] - size[block] * (size[block] - 1) // 2
        i = ((1 + np.sqrt(8.0 * pair + 1)) / 2).astype(np.int64)
        i -= i * (i - 1) // 2 > pair  # where the root was rounded up
        j = pair - i * (i - 1) // 2
        kept.append((begin[block] + i) * n + begin[block] + j)
    return np.concatenate(kept)


def _blocks(profile: Profile) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First vertex of each block, number of its vertices, probability of its pairs."""
    degrees, n = profile.degrees, len(profile.degrees)
    begins, firsts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    start = int(np.searchsorted(degrees, 2))  # who has one neighbour or none has no triangle
    while start < n:
        d = int(degrees[start])
        same = int(np.searchsorted(degrees, d, side="right")) - start
        count = -(-same // (d + 1))  # the last of them is filled with vertices of higher degree
        begins.append(start + (d + 1) * np.arange(count))
        firsts.append(np.full(count, d))
        start += count * (d + 1)
    begin, first = np.concatenate(begins), np.concatenate(firsts)
    return begin, np.minimum(first + 1, n - begin), np.cbrt(profile.clustering[first])


def _across(rng: np.random.Generator, inside: np.ndarray, ends: np.ndarray, n: int) -> np.ndarray:
    """Edges of the second level: ``ends`` paired at random, without loops and edges that are there.

    Pairs that are no new edges are taken apart, together with twice as many that are, for
    otherwise hubs would meet the same hubs again, and are paired anew.
    """
    inside = np.sort(inside)
    tolerated = TOLERATED * len(ends)
    edges = _pairs(rng, ends, n)
    for _ in range(ROUNDS):
        bad = _not_new(edges, inside, n)
        nbad = int(np.count_nonzero(bad))
        if nbad <= tolerated:
            break
        bad[rng.integers(len(edges), size=2 * nbad)] = True
        apart = edges[bad]
        ends = np.concatenate([apart // n, apart % n])
        edges = np.concatenate([edges[~bad], _pairs(rng, ends, n)])
        edges.sort()
    return edges[~_not_new(edges, inside, n)]


def _pairs(rng: np.random.Generator, ends: np.ndarray, n: int) -> np.ndarray:
    """The ends in pairs i · n + j, i ≥ j, sorted; one end is left over if their number is odd."""
    rng.shuffle(ends)
    half = len(ends) // 2
    one, other = ends[:half], ends[half : 2 * half]
    pairs = np.multiply(np.maximum(one, other), n, dtype=np.int64)
    pairs += np.minimum(one, other)
    pairs.sort()
    return pairs


def _not_new(edges: np.ndarray, inside: np.ndarray, n: int) -> np.ndarray:
    """Which of the sorted edges are loops, copies of the one before, or there already."""
    bad = edges // max(n, 1) == edges % max(n, 1)
    bad[1:] |= edges[1:] == edges[:-1]
    if len(inside):
        bad |= np.take(inside, np.searchsorted(inside, edges), mode="clip") == edges
    return bad
