"""Made-up graphs: planted communities that can be learnt, and R-MAT graphs with hubs."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from partition.errors import UserError, require
from partition.graph.graph import MASKS, Graph, index_dtype
from partition.graph.relations import STORED_NAME, Relation
from partition.importing.arcs import build_graph, build_typed
from partition.importing.data_files import attach_random, check_random, generator
from partition.importing.readers.classes import MAX_CLASSES
from partition.importing.readers.source import RelationArcs, Source, TypedSource
from partition.importing.readers.typed_tables import checked
from partition.resident import check_memory

ARCS_STREAM, VERTICES_STREAM = 3, 4
CHUNK = 1 << 20


def sbm(
    n: int,
    classes: int | Sequence[float],
    *,
    degree: float = 10,
    intra: float = 0.8,
    features: int = 32,
    noise: float = 1.0,
    seed: int = 0,
    train: float = 0.1,
    val: float = 0.1,
) -> Graph:
    """A stochastic block model: an undirected graph whose communities are its classes.

    n · degree / 2 edges are drawn, each from a random vertex to one of its own community (with
    probability ``intra``) or of another; self-loops are dropped and copies merged, so that the
    mean degree is slightly lower. Features are the centroid of the class, a random point at
    distance 1 from the origin, plus normal noise in every column. Vertices are in random order.

    Parameters
    ----------
    n : int
        Vertices.
    classes : int or sequence of float
        Number of communities of equal size (give or take one), or their relative sizes.
    degree : float
        Mean degree.
    intra : float
        Share of the edges that stay in a community, 0..1.
    features : int
        Columns.
    noise : float
        Standard deviation of the noise. At 1, a vertex' own features say little, the mean over
        its neighbourhood says much.
    seed : int
        The same seed gives the same graph.
    train, val : float
        Shares of the vertices in these masks; the others are in the test mask.
    """
    sizes = _community_sizes(n, classes)
    require(0 <= degree < np.inf, f"degree {degree} is not a mean degree")
    require(features >= 1, f"features {features}: there must be at least one column")
    _check_shares(intra, noise, train, val)
    nedges = round(n * degree / 2)
    check_memory(8 * n * features + 64 * nedges, f"a graph of {n} vertices, {nedges} edges")

    rng = generator(seed, VERTICES_STREAM)
    labels = rng.permutation(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes))
    centroid = _centroids(rng, len(sizes), features)
    rows = rng.standard_normal((n, features), dtype=np.float32)
    rows *= np.float32(noise)
    rows += centroid.astype(np.float32)[labels]

    # Members of a community are adjacent in `member`; a position in it picks a neighbour.
    rng = generator(seed, ARCS_STREAM)
    member = np.argsort(labels, kind="stable")
    source = rng.integers(n, size=nedges)
    size = sizes[labels[source]]
    begin = (np.cumsum(sizes) - sizes)[labels[source]]
    inside = rng.random(nedges) < intra
    inside |= size == n  # there is no other community
    choices = np.where(inside, size, n - size)
    position = np.floor(rng.random(nedges) * choices).astype(np.int64)
    position += np.where(inside, begin, np.where(position >= begin, size, 0))

    made = Source(
        n, source, member[position], features=rows, labels=labels, symmetric=True, format="sbm",
        masks=_masks(rng, n, train, val),
    )  # fmt: skip
    return build_graph(made, self_loops="drop")[0]


def _check_shares(intra: float, noise: float, train: float, val: float) -> None:
    require(0 <= intra <= 1, f"intra {intra} is outside 0..1")
    require(0 <= noise < np.inf, f"noise {noise} is not a standard deviation")
    fits = min(train, val) >= 0 and train + val <= 1
    require(fits, "train and val are shares of at most 1 in all")


def _centroids(rng: np.random.Generator, classes: int, width: int) -> np.ndarray:
    """A random point at distance 1 from the origin for each class: (classes, width) float64."""
    points = rng.standard_normal((classes, width))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def _masks(rng: np.random.Generator, n: int, train: float, val: float) -> dict[str, np.ndarray]:
    """Masks of these shares of n vertices; the others are in the test mask."""
    order, ntrain, nval = rng.permutation(n), round(n * train), round(n * val)
    pieces = np.split(order, [ntrain, ntrain + nval])
    return {mask: np.isin(np.arange(n), some) for mask, some in zip(MASKS, pieces, strict=True)}


def rmat(
    scale: int,
    arcs: int,
    *,
    a: float = 0.57,
    b: float = 0.19,
    c: float = 0.19,
    seed: int = 0,
    undirected: bool = False,
    shuffle: bool = True,
    features: int | None = None,
    classes: int | None = None,
) -> Graph:
    """An R-MAT graph (Chakrabarti, Zhan, Faloutsos, 2004): few hubs, many vertices of low degree.

    Each arc descends ``scale`` times into a quadrant of the adjacency matrix, upper left, upper
    right, lower left, lower right, with probabilities a, b, c, 1 − a − b − c. Self-loops are
    dropped and copies merged, so that fewer than ``arcs`` arcs remain.

    Parameters
    ----------
    scale : int
        2**scale vertices, 0 ≤ scale ≤ 31.
    arcs : int
        Arcs drawn.
    undirected : bool
        Add the reverse of every arc.
    shuffle : bool
        Number the vertices at random; otherwise hubs have small numbers.
    features, classes : int, optional
        Columns of random features, number of random classes (see
        ``partition.importing.data_files.attach``).
    seed : int
        The same seed gives the same graph.
    """
    require(0 <= scale <= 31, f"scale {scale} is outside 0..31")
    require(arcs >= 0, f"{arcs} arcs: a number of 0 or more")
    require(min(a, b, c) >= 0 and a + b + c <= 1, f"a, b, c = {a}, {b}, {c} are not probabilities")
    check_random(features, classes)
    n = 1 << scale
    check_memory(24 * arcs * (2 if undirected else 1) + 16 * n, f"{n} vertices, {arcs} arcs")

    rng = generator(seed, ARCS_STREAM)
    source = np.empty(arcs, index_dtype(n))
    target = np.empty(arcs, index_dtype(n))
    for start in range(0, arcs, CHUNK):
        at = slice(start, min(start + CHUNK, arcs))
        source[at], target[at] = _descend(rng, at.stop - at.start, scale, (a, b, c))
    if shuffle:
        number = generator(seed, VERTICES_STREAM).permutation(n).astype(source.dtype)
        for ends in (source, target):
            np.take(number, ends, out=ends, mode="clip")  # clip: without a copy of `out`
    made = Source(n, source, target, format="rmat")
    graph, _ = build_graph(made, undirected=undirected, self_loops="drop")
    return attach_random(graph, features, classes, seed)


def _descend(
    rng: np.random.Generator, count: int, scale: int, probabilities: tuple[float, float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of ``count`` arcs: one bit of each for every level."""
    upper_left, upper, all_but_last = np.cumsum(probabilities, dtype=np.float32)
    row, column = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for _ in range(scale):
        draw = rng.random(count, dtype=np.float32)
        lower = draw >= upper
        right = (draw >= upper_left) ^ lower  # upper right; all of the lower left is False
        right |= draw >= all_but_last
        row += row
        row += lower
        column += column
        column += right
    return row, column


def _community_sizes(n: int, classes: int | Sequence[float]) -> np.ndarray:
    """Vertices in each community, n in all, each at least 1."""
    share = np.ones(1) if isinstance(classes, int) else np.asarray(classes, np.float64)
    require(share.ndim == 1, "classes is a number, or a list of relative sizes")
    count = classes if isinstance(classes, int) else len(share)
    require(1 <= count <= min(n, MAX_CLASSES), f"{n} vertices cannot make {count} classes")
    share = np.resize(share, count)
    require(bool((share > 0).all() and np.isfinite(share).all()), "a share of a class must be > 0")
    ends = np.round(np.cumsum(share) / share.sum() * n).astype(np.int64)
    sizes = np.diff(ends, prepend=0)
    require(bool((sizes > 0).all()), f"{n} vertices leave a class with relative size too small")
    return sizes


TYPES, RELATIONS = "paper:4000,author:6000", "author-writes-paper:20000,paper-cites-paper:8000"


def hetero(
    types: Mapping[str, tuple[int, int]],
    relations: Mapping[Relation, int],
    *,
    classes: int = 4,
    intra: float = 0.8,
    noise: float = 1.0,
    train: float = 0.1,
    val: float = 0.1,
    reverse: bool = False,
    seed: int = 0,
) -> Graph:
    """A graph in which a vertex of any type has a community, and each relation its own shift.

    An arc of relation r goes from a random vertex of community c to one of community (c + r) mod
    ``classes``, with probability ``intra``, and to any other one otherwise. So a network that tells
    relations apart learns the communities, and one that does not adds up different shifts. The
    communities of the first type are its labels. Features are the centroid of the community, a
    random point at distance 1 from the origin, plus normal noise in every column.

    Parameters
    ----------
    types : mapping of str to (vertices, columns of features)
        Columns may be 0. The first type has labels and masks.
    relations : mapping of Relation to int
        Arcs that are drawn; those that are drawn twice are one.
    classes : int
        Number of communities.
    intra : float
        Share of the arcs that follow their shift, 0..1.
    noise : float
        Standard deviation of the noise.
    train, val : float
        Shares of the first type's vertices in these masks; the others are in the test mask.
    reverse : bool
        See :func:`partition.importing.arcs.build_typed`.
    seed : int
        The same seed gives the same graph.
    """
    sizes = {name: n for name, (n, _) in types.items()}
    require(bool(types) and min(sizes.values()) >= 1, "there are types, with a vertex or more each")
    require(1 <= classes <= min(*sizes.values(), MAX_CLASSES), f"{classes} classes are too many")
    _check_shares(intra, noise, train, val)
    of_features = sum(4 * n * width for n, width in types.values())
    check_memory(of_features + 64 * sum(relations.values()), "a heterogeneous graph")
    rng = generator(seed, VERTICES_STREAM)
    community = {name: rng.permutation(np.arange(n) % classes) for name, n in sizes.items()}
    features = {}
    for name, (n, width) in types.items():
        if width:
            centroid = _centroids(rng, classes, width)
            rows = noise * rng.standard_normal((n, width)) + centroid[community[name]]
            features[name] = rows.astype(np.float32)
    rng = generator(seed, ARCS_STREAM)
    arcs = []
    for shift, (relation, count) in enumerate(relations.items()):
        for name in relation[::2]:
            if name not in sizes:
                raise UserError(f"the relation {relation} has the type {name!r}, which is none")
        source = rng.integers(sizes[relation.source], size=count)
        there = community[relation.target]
        wanted = (community[relation.source][source] + shift) % classes
        members = np.argsort(there, kind="stable")
        starts = np.searchsorted(there[members], np.arange(classes + 1))
        place = rng.random(count) * np.diff(starts)[wanted] + starts[wanted]
        follows = rng.random(count) < intra
        anywhere = rng.integers(len(there), size=count)
        target = np.where(follows, members[place.astype(np.int64)], anywhere)
        arcs.append(RelationArcs(relation, source, target))
    first = next(iter(types))
    masks = _masks(rng, sizes[first], train, val)
    made = TypedSource(
        sizes, arcs, features=features, labels={first: community[first]}, format="hetero",
        masks={mask: {first: some} for mask, some in masks.items()},
    )  # fmt: skip
    return build_typed(checked(made, "the graph"), reverse=reverse, self_loops="drop")[0]


def parse_types(text: str, width: int) -> dict[str, tuple[int, int]]:
    """Types from "paper:4000,author:6000:8": vertices, and columns where not ``width``."""
    found: dict[str, tuple[int, int]] = {}
    for word in text.split(","):
        fits = re.fullmatch(r"([^:]+):([0-9]{1,12})(?::([0-9]{1,12}))?", word.strip())
        if not fits:
            raise UserError(f"--types {text}: {word!r}", f"--types {TYPES}")
        name, n, columns = fits.groups()
        alone = bool(STORED_NAME.fullmatch(name)) and name not in found
        require(alone, f"--types {text}: {name!r} is no name of one type")
        found[name] = int(n), int(columns or width)
    return found


def parse_relations(text: str) -> dict[Relation, int]:
    """Relations from "author-writes-paper:20000": the number of arcs of each."""
    found: dict[Relation, int] = {}
    for word in text.split(","):
        fits = re.fullmatch(r"([^:-]+)-([^:-]+)-([^:-]+):([0-9]{1,12})", word.strip())
        relation = Relation(*fits.groups()[:3]) if fits else None
        if not fits or relation is None or relation in found:
            told = f"{word.partition(':')[0]!r} is no relation of its own"
            raise UserError(f"--relations {text}: {told}", f"--relations {RELATIONS}")
        found[relation] = int(fits[4])
    return found
