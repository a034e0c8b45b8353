"""Degrees, and clustering by degree: of a graph, of a power law, or of either at another size."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from partition.errors import require
from partition.graph.graph import Graph, arcs
from partition.importing.assemble import build_graph
from partition.importing.readers import Source
from partition.importing.vertex_data import generator

WEDGE_STREAM = 5
WEDGES = 2000  # of each degree: a standard error of 0.011 at most
_AT_ONCE = 1 << 20
_MAX_DEGREE = 2**31 - 1


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
