"""Made-up heterogeneous graphs, whose labels the relations of their arcs tell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from partition.errors import UserError, require
from partition.graph.graph import Graph
from partition.graph.relations import STORED_NAME, Relation
from partition.importing.readers.classes import MAX_CLASSES
from partition.importing.readers.typed_source import RelationArcs, TypedSource, checked
from partition.importing.synthetic import ARCS_STREAM, VERTICES_STREAM
from partition.importing.typed import build_typed
from partition.importing.vertex_data import generator
from partition.resident import check_memory

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
        See :func:`partition.importing.typed.build_typed`.
    seed : int
        The same seed gives the same graph.
    """
    sizes = {name: n for name, (n, _) in types.items()}
    require(bool(types) and min(sizes.values()) >= 1, "there are types, with a vertex or more each")
    require(1 <= classes <= min(*sizes.values(), MAX_CLASSES), f"{classes} classes are too many")
    require(0 <= intra <= 1, f"intra {intra} is outside 0..1")
    require(0 <= noise < np.inf, f"noise {noise} is not a standard deviation")
    require(
        train >= 0 and val >= 0 and train + val <= 1, "train and val are shares of at most 1 in all"
    )
    check_memory(
        sum(4 * n * width for n, width in types.values()) + 64 * sum(relations.values()),
        "a heterogeneous graph",
    )
    rng = generator(seed, VERTICES_STREAM)
    community = {name: rng.permutation(np.arange(n) % classes) for name, n in sizes.items()}
    features = {}
    for name, (n, width) in types.items():
        if width:
            centroid = rng.standard_normal((classes, width))
            centroid /= np.linalg.norm(centroid, axis=1, keepdims=True)
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
    order = rng.permutation(sizes[first])
    ntrain, nval = round(sizes[first] * train), round(sizes[first] * val)
    pieces = np.split(order, [ntrain, ntrain + nval])
    masks = {
        mask: {first: np.isin(np.arange(len(order)), some)}
        for mask, some in zip(("train", "val", "test"), pieces, strict=True)
    }
    made = TypedSource(
        sizes, arcs, features=features, labels={first: community[first]}, masks=masks,
        format="hetero",
    )  # fmt: skip
    return build_typed(checked(made, "the graph"), reverse=reverse, self_loops="drop")[0]


def parse_types(text: str, width: int) -> dict[str, tuple[int, int]]:
    """Types from "paper:4000,author:6000:8": vertices, and columns where not ``width``."""
    found: dict[str, tuple[int, int]] = {}
    for name, *numbers in _words(text, "types", "paper:4000,author:6000", (1, 2)):
        if not STORED_NAME.fullmatch(name) or name in found:
            raise UserError(f"--types {text}: {name!r} is no name of one type")
        found[name] = int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else width
    return found


def parse_relations(text: str) -> dict[Relation, int]:
    """Relations from "author-writes-paper:20000": the number of arcs of each."""
    found: dict[Relation, int] = {}
    for name, count in _words(text, "relations", RELATIONS, (1,)):
        words = name.split("-")
        if len(words) != 3 or not all(words) or (relation := Relation(*words)) in found:
            raise UserError(f"--relations {text}: {name!r} is no relation of its own", RELATIONS)
        found[relation] = int(count)
    return found


def _words(text: str, option: str, example: str, counts: Sequence[int]) -> list[tuple[str, ...]]:
    """The name and the numbers of each word between commas."""
    found: list[tuple[str, ...]] = []
    for word in text.split(","):
        name, *numbers = word.strip().split(":")
        fits = len(numbers) in counts and all(re.fullmatch(r"[0-9]{1,12}", n) for n in numbers)
        if not name or not fits:
            raise UserError(f"--{option} {text}: {word!r}", f"--{option} {example}")
        found.append((name, *numbers))
    return found
