#!/usr/bin/env python3
"""Block Two-Level Erdős–Rényi graphs: given degrees, and given clustering by degree.

These are of a graph, of a power law, or of either at another size.

    scripts/reproduce/bter.py twin.graph --like G.graph
    scripts/reproduce/bter.py dense.graph --like G.graph --factor 8 --features 512 --classes 40
    scripts/reproduce/bter.py law.graph --vertices 100000 --exponent 2.5 --clustering 0.3
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from partition.cli.common import working
from partition.cli.importing import synth, write_synthetic
from partition.commands import option, path_option
from partition.errors import UserError, require
from partition.graph import store
from partition.graph.graph import Graph, arcs, index_dtype
from partition.importing.arcs import build_graph
from partition.importing.data_files import attach_random, check_random, generator
from partition.importing.readers.source import Source
from partition.importing.synthetic import ARCS_STREAM, CHUNK, VERTICES_STREAM
from partition.resident import check_memory

WEDGE_STREAM = 5
WEDGES = 2000  # of each degree: a standard error of 0.011 at most
OF_POWER_LAW = ("exponent", "min_degree", "max_degree", "clustering", "decay")
_AT_ONCE = 1 << 20
_MAX_DEGREE = 2**31 - 1
# Ends that were paired to loops or copies are paired again, so often, or until so few are left.
ROUNDS, TOLERATED = 10, 1e-4


@dataclass(frozen=True)
class Profile:
    """The degrees and the clustering that a BTER graph shall have.

    Attributes
    ----------
    degrees : (n,) int64
        Neighbours of each vertex, increasing.
    clustering : (max degree + 1,) float64
        By degree d: the share of pairs of neighbours of such vertices that are neighbours of each
        other, 0..1.
    """

    degrees: np.ndarray
    clustering: np.ndarray


def profile_of(graph: Graph, *, seed: int = 0) -> Profile:
    """The degrees and the clustering of a graph: arcs as undirected edges, without self-loops.

    Clustering is estimated from 2,000 wedges of each degree, a random pair of neighbours of a
    random vertex each (wedge sampling: Seshadhri, Pinar, Kolda, 2013). Between degrees that occur
    it is interpolated.

    Parameters
    ----------
    seed : int
        The same seed gives the same estimate.
    """
    edges = Source(n=graph.n, source=arcs(graph), target=graph.indices, symmetric=True)
    simple, _ = build_graph(edges, self_loops="drop")
    degree = np.diff(simple.indptr)
    by_degree = np.argsort(degree, kind="stable")
    degrees = degree[by_degree]
    clustering = np.zeros(int(degrees[-1]) + 1 if len(degrees) else 1)
    occurring = np.unique(degrees[degrees >= 2])
    if not len(occurring):
        return Profile(degrees, clustering)

    rng = generator(seed, WEDGE_STREAM)
    first = np.searchsorted(degrees, occurring)
    count = np.searchsorted(degrees, occurring, side="right") - first
    closed = np.zeros(len(occurring))
    step = max(1, _AT_ONCE // WEDGES)
    for start in range(0, len(occurring), step):
        some = slice(start, start + step)
        shape = (len(occurring[some]), WEDGES)
        centre = by_degree[first[some, None] + rng.integers(count[some, None], size=shape)]
        d = occurring[some, None]
        one = rng.integers(d, size=shape)
        other = (one + rng.integers(1, d, size=shape)) % d  # not the same neighbour
        begin = simple.indptr[centre]
        ends = simple.indices[begin + one], simple.indices[begin + other]
        closed[some] = _adjacent(simple, *ends).mean(axis=1)
    known = np.interp(np.arange(2, len(clustering)), occurring, closed)
    clustering[2:] = known
    return Profile(degrees, clustering)


def power_law(
    n: int,
    *,
    exponent: float = 2.2,
    min_degree: int = 2,
    max_degree: int | None = None,
    clustering: float = 0.5,
    decay: float = 0.02,
) -> Profile:
    """Degrees of a power law, and clustering that falls with the degree.

    The number of vertices of degree d is proportional to d^−``exponent``. Clustering is
    ``clustering`` · exp(−``decay`` · (d − 1)), as in Kolda et al. (2014).

    Parameters
    ----------
    n : int
        Vertices.
    max_degree : int, optional
        Default: √n, above which a random graph of such degrees would need repeated edges.
    """
    require(0 <= n <= _MAX_DEGREE, f"{n} vertices are outside 0..{_MAX_DEGREE}")
    require(0 <= exponent <= 20, f"exponent {exponent} is outside 0..20")
    require(0 <= min_degree <= _MAX_DEGREE, f"min_degree {min_degree} is not a degree")
    if max_degree is None:
        max_degree = max(min_degree, round(n**0.5))
    require(
        min_degree <= max_degree <= max(n - 1, 0),
        f"max_degree {max_degree} is outside min_degree {min_degree}..{n - 1}, vertices - 1",
    )
    require(0 <= clustering <= 1, f"clustering {clustering} is outside 0..1")
    require(0 <= decay < np.inf, f"decay {decay} is negative")
    d = np.arange(min_degree, max_degree + 1)
    share = np.cumsum(np.maximum(d, 1.0) ** -exponent)
    degrees = d[np.searchsorted(share, share[-1] * _quantiles(n), side="right")]
    at = np.arange(max_degree + 1)
    return Profile(degrees, clustering * np.exp(-decay * np.maximum(at - 1, 0)))


def resized(profile: Profile, *, vertices: int | None = None, factor: float = 1.0) -> Profile:
    """The profile at another number of vertices, and of another mean degree.

    Parameters
    ----------
    vertices : int, optional
        So many vertices of the same distribution of degrees.
    factor : float
        Multiplies every degree; a vertex keeps its clustering. This is how MG-GCN's authors made
        denser copies of a graph.
    """
    if vertices is not None:
        require(0 <= vertices <= _MAX_DEGREE, f"{vertices} vertices are outside 0..{_MAX_DEGREE}")
        require(
            len(profile.degrees) > 0 or vertices == 0, "a graph without vertices has no degrees"
        )
        at = np.floor(_quantiles(vertices) * len(profile.degrees)).astype(np.int64)
        profile = replace(profile, degrees=profile.degrees[at])
    require(0 < factor < np.inf, f"factor {factor} is not positive")
    if factor == 1:
        return profile
    largest = len(profile.clustering) - 1
    require(largest * factor <= _MAX_DEGREE, f"factor {factor} makes degrees too large")
    degrees = np.rint(profile.degrees * factor).astype(np.int64)
    at = np.arange(round(largest * factor) + 1) / factor
    clustering = np.interp(at, np.arange(largest + 1), profile.clustering)
    return Profile(degrees, clustering)


def _quantiles(n: int) -> np.ndarray:
    """The middles of n equal pieces of 0..1."""
    return (np.arange(n) + 0.5) / max(n, 1)


def _adjacent(graph: Graph, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Whether there is an arc from each source to its target: binary searches, all at once."""
    low, high = graph.indptr[source], graph.indptr[source + 1] - 1
    while (open_ := low < high).any():
        middle = (low + high) // 2
        less = graph.indices[middle] < target
        low = np.where(open_ & less, middle + 1, low)
        high = np.where(open_ & ~less, middle, high)
    return graph.indices[low] == target


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
    seed : int
        The same seed gives the same graph.
    shuffle : bool
        Number the vertices at random; otherwise by degree, so that blocks are contiguous.
    features, classes : int, optional
        Columns of random features, number of random classes (see
        ``partition.importing.data_files.attach``).
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


@click.command()
@click.argument("out", metavar="OUT.graph", type=click.Path(path_type=Path))
@path_option("--like", "G.graph", "Degrees and clustering of this graph.")
@option("-n --vertices n", "Vertices.  [default: those of --like, or 20000]", type=int)
@option("--factor", "Multiply every degree by this.", 1.0)
@option("--exponent", "Exponent of the power law.", 2.2)
@option("--min-degree", "Least degree.", 2)
@option("--max-degree", "Largest degree.  [default: √vertices]", type=int)
@option("--clustering", "Clustering of degree 1.", 0.5)
@option("--decay", "Clustering of degree d is that of degree 1 times exp(-DECAY (d - 1)).", 0.02)
@option("--shuffle/--no-shuffle", "Number vertices at random.", True)
@option("--features", "Columns of random features.  [default: none]", type=int)
@option("--classes", "Random classes.  [default: none]", type=int)
@option("--seed", default=0)
@option("--force", "Replace existing output.", is_flag=True)
@option("--json as_json", "Print one JSON value and nothing else.", is_flag=True)
def main(
    out: Path, like: Path | None, n: int | None, factor: float, force: bool, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """A BTER graph: given degrees, and given clustering by degree.

    Degrees and clustering are those of --like, or of a power law. Arcs of a directed graph count
    as undirected edges.
    """
    store.check_target(out, force)
    law = {name: options.pop(name) for name in OF_POWER_LAW}
    facts = {"vertices": n, "factor": factor} | options
    with working("making"):
        if like is None:
            profile = resized(power_law(20000 if n is None else n, **law), factor=factor)
            facts |= law
        else:
            _refuse_power_law()
            stored = store.open_graph(like)
            degrees = profile_of(stored.graph, seed=options["seed"])
            profile = resized(degrees, vertices=n, factor=factor)
            facts |= {"like": stored.manifest.name, "like_id": stored.manifest.id}
        graph = bter(profile, **options)
    write_synthetic(out, "bter", graph, facts, force).print(as_json)


def _refuse_power_law() -> None:
    context = click.get_current_context()
    for name in OF_POWER_LAW:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = "--" + name.replace("_", "-")
            raise UserError(f"{option} is of a power law, and --like takes a graph's degrees")


if __name__ == "__main__":
    synth.add_command(main, "bter")
    synth.main(["bter", *sys.argv[1:]])
