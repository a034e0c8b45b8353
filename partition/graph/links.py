"""Pairs of vertices for link prediction: how they are split, and what is drawn by hash.

Sets of pairs are kept in the graph folder: see :mod:`partition.graph.link_files`, whose functions
this module has too. Everything that is drawn depends on the seed and on numbers of vertices and
pairs only, so each of several processes draws what it needs, and all draw the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from partition.errors import UserError
from partition.graph.content import content_id, excess_of
from partition.graph.graph import (
    MASKS,
    Graph,
    arc_pieces,
    arc_places,
    arcs,
    distinct,
    index_dtype,
)
from partition.graph.hashing import key, mixed, permuted
from partition.graph.link_files import HELD_OUT as HELD_OUT
from partition.graph.link_files import MAX_SEED
from partition.graph.link_files import PairSet as PairSet
from partition.graph.link_files import check_pairs as check_pairs
from partition.graph.link_files import has_pairs as has_pairs
from partition.graph.link_files import identified as identified
from partition.graph.link_files import keys as keys
from partition.graph.link_files import list_pairs as list_pairs
from partition.graph.link_files import read_pairs as read_pairs
from partition.graph.link_files import remove_pairs as remove_pairs
from partition.graph.link_files import write_pairs as write_pairs
from partition.graph.relations import VertexTypes, names_of, place_of
from partition.graph.twins import Twin, mutual, twins_of

# Purposes of hashes.
_ORDER, _NEGATIVES, _CANDIDATES = 1, 2, 3
_AT_ONCE = 1 << 20  # pairs that are looked at at once


def held_out(pairs: PairSet) -> np.ndarray:
    """The positives to validate and test on, (k, 2): arcs that M may not have while it trains."""
    return np.concatenate([pairs.positives[mask] for mask in HELD_OUT])


def drawn_candidates(
    pairs: PairSet, mask: str, rows: slice, n: int, types: VertexTypes | None = None
) -> np.ndarray:
    """Candidates of the positives ``rows`` of a mask, (rows, drawn) int64 vertices.

    Candidate c of positive i depends on the seed, the mask, i and c only. Each is uniform among
    the n vertices, or those of the type of the second end, but the two ends of the positive; one
    may come twice.
    """
    first, last, _ = rows.indices(len(pairs.positives[mask]))
    ends = np.asarray(pairs.positives[mask][first:last], np.int64)
    of = VertexTypes(("",), (0, n)) if types is None else types
    offsets, kinds = np.array(of.offsets), of.of(ends)
    low, count = offsets[kinds[:, 1]], np.diff(offsets)[kinds[:, 1]]
    # The ends that are not drawn, the smaller one first; the second one, where the first cannot be.
    both = (kinds[:, 0] == kinds[:, 1]) & (ends[:, 0] != ends[:, 1])
    ends = np.sort(np.where(both[:, np.newaxis], ends, ends[:, 1:]), axis=1)
    base = key(pairs.seed or 0, _CANDIDATES, MASKS.index(mask))
    rest = count - 1 - both
    if pairs.drawn and len(ends) and rest.min() < 1:
        raise UserError(
            f"candidates cannot be drawn: there are {count.min()} vertices to draw from"
        )
    of_pair = mixed(np.arange(first, max(first, last)), base)
    of_number = np.arange(pairs.drawn, dtype=np.uint64)
    hashes = mixed(of_pair[:, None] + of_number, key(base, _CANDIDATES))
    vertices = (hashes % rest[:, None].astype(np.uint64)).astype(np.int64) + low[:, None]
    vertices += vertices >= ends[:, :1]
    vertices += (vertices >= ends[:, 1:]) & both[:, None]
    return vertices


def split_pairs(
    graph: Graph,
    shares: Sequence[Fraction | float | str],
    seed: int = 0,
    directed: bool = False,
    negatives: int = 1,
    *,
    candidates: int = 0,
    name: str = "links",
    graph_id: str | None = None,
    relations: Sequence[str] = (),
    twins: Collection[Twin] | None = None,
) -> PairSet:
    """Split the arcs of a graph at random into pairs to train on, validate on and test on.

    Where arcs have relations, pairs keep theirs, and those of each relation are split for
    themselves; so are negatives, between vertices of the types that the relation joins.

    Parameters
    ----------
    shares : three numbers
        Of the pairs that train, validate and test; they add up to 1. The shares of the last two
        are rounded down, of each relation, the others train.
    directed : bool
        Whether arcs are pairs as they are. Otherwise a pair is {u, v} with u < v, once, if there
        is an arc one way or the other (of the relation, if it joins vertices of one type). Loops
        are no pairs.
    negatives : int
        How many negatives, common to all, there are for each positive to validate or test on:
        distinct pairs that are no arcs, uniform among all of them.
    candidates : int
        ``PairSet.drawn``.
    graph_id : str, optional
        ``Manifest.id`` of the graph, if it is known: it takes a while to be computed.
    relations : sequence of str
        Those whose arcs are pairs, by their names; empty: all but reverses and copies of others,
        whose arcs leave M with those that they belong to.
    twins : collection of Twin, optional
        Relations with the edges of others: those of an edge are in one mask. Else those that are
        recognised: see :mod:`partition.graph.twins`.

    Returns
    -------
    PairSet
        Pairs of each mask in increasing order, one relation after the other. Which pair is in which
        mask depends on the seed and on the place of the pair among all of the relation and its
        twins.

    Raises
    ------
    UserError
        If the shares do not add up to 1, a number is out of range, the graph has no such relation
        or none with an arc, or fewer pairs without an arc than there are to be negatives.
    """
    parsed = parsed_shares(shares)
    if not 0 <= seed <= MAX_SEED:
        raise UserError(f"seed {seed} is outside 0..2^63-1")
    if negatives < 0 or candidates < 0:
        raise UserError("a number of negatives or candidates is not below 0")
    masks: dict[str, list[np.ndarray]] = {mask: [] for mask in MASKS}
    common: dict[str, list[np.ndarray]] = {mask: [] for mask in HELD_OUT}
    twins = twins_of(graph, directed) if twins is None else twins
    groups = _groups(graph, directed, relations, twins)
    if relations and not any(len(group.found) for group in groups):
        raise UserError(f"there are no arcs of {', '.join(relations)} to split into pairs")
    for group in groups:
        edges, first = group.family.edges, group.family.numbers[:1]
        sizes = [int(share * len(edges)) for share in parsed[1:]]
        mask_of = _masks_of(len(edges), sizes, key(seed, _ORDER, *first))
        if group.edges is not edges:
            mask_of = mask_of[np.searchsorted(edges, group.edges)]
        for number, mask in enumerate(MASKS):
            masks[mask].append(_from_keys(group.found[mask_of == number], graph.n))
        wanted = [len(masks[mask][-1]) * negatives for mask in HELD_OUT]
        base = key(seed, _NEGATIVES, *group.numbers)
        drawn = non_arcs(graph, sum(wanted), directed, base, group.ends)
        for mask, piece in zip(HELD_OUT, np.split(drawn, wanted[:1]), strict=True):
            common[mask].append(_from_keys(np.sort(piece), graph.n))
    of_groups = {**masks, **{f"{mask}_negatives": common[mask] for mask in HELD_OUT if negatives}}
    return identified(
        PairSet(
            name=name,
            graph_id=content_id(graph) if graph_id is None else graph_id,
            id="",
            directed=directed,
            seed=seed,
            made=" of ".join([f"split {','.join(map(str, shares))}", *relations]),
            positives={mask: _joined(pieces) for mask, pieces in masks.items()},
            negatives={mask: _joined(common[mask]) for mask in HELD_OUT if negatives},
            drawn=candidates,
            relations={
                file: np.repeat(
                    np.array([group.numbers[0] for group in groups], np.int32),
                    [len(piece) for piece in pieces],
                )
                for file, pieces in of_groups.items()
                if graph.relations
            },
            relation_names=names_of(graph.relations),
            twins=tuple(twins),
        )
    )


def parsed_shares(shares: Sequence[Fraction | float | str]) -> tuple[Fraction, ...]:
    """Three shares to train, validate and test; a UserError unless they add up to 1."""
    hint = "such as 0.85,0.05,0.10: to train, validate and test"
    text = ",".join(map(str, shares))
    try:
        parsed = tuple(Fraction(str(share)) for share in shares)
    except (ValueError, ZeroDivisionError):
        raise UserError(f"{text!r} are no three shares of the pairs", hint) from None
    if len(parsed) != len(MASKS) or min(parsed) < 0:
        raise UserError(f"{text!r} are no three shares of the pairs", hint)
    if sum(parsed) != 1:
        raise UserError(f"the shares {text} add up to {float(sum(parsed)):g}, not to 1", hint)
    return parsed


def has_arcs(
    graph: Graph, pairs: np.ndarray, directed: bool = True, relations: np.ndarray | None = None
) -> np.ndarray:
    """Whether the graph has an arc u→v for each pair (u, v) of (m, 2): (m,) bool.

    If not ``directed``, an arc v→u counts too; with ``relations`` (m,), only an arc of the same
    one, where arcs have relations. Only rows of these vertices are looked at.
    """
    found = np.empty(len(pairs), bool)
    for start in range(0, len(pairs), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        first, second = np.asarray(pairs[some], np.int64).T
        kinds = None if relations is None or graph.arc_type is None else relations[some]
        there = _has_arc(graph, first, second, kinds)
        if not directed:
            there |= _has_arc(graph, second, first, kinds)
        found[some] = there
    return found


def _has_arc(
    graph: Graph, first: np.ndarray, second: np.ndarray, kinds: np.ndarray | None
) -> np.ndarray:
    place = arc_places(graph.indptr, graph.indices, first, second)
    there = place >= 0
    if kinds is None or graph.arc_type is None:
        return there
    # Arcs between two vertices follow each other in the order of their relations.
    open_, found = np.flatnonzero(there), np.zeros(len(first), bool)
    while len(open_):
        here = place[open_]
        same = graph.indices[here] == second[open_]
        found[open_] = same & (graph.arc_type[here] == kinds[open_])
        place[open_] += 1
        open_ = open_[same & ~found[open_] & (place[open_] < graph.indptr[first[open_] + 1])]
    return found


def non_arcs(
    graph: Graph, count: int, directed: bool, base: int, ends: tuple[range, range] | None = None
) -> np.ndarray:
    """Keys of ``count`` distinct pairs that are no arcs of the graph, (count,) int64, as drawn.

    Pairs are numbered, and a permutation of their numbers is walked from its begin; arcs are left
    out. So the draw is uniform without replacement, and a longer one begins with a shorter one.
    ``base`` is the key of the permutation; ``ends`` are the vertices that the first and the second
    end are among, which are all, or either the same or others. A UserError if there are too few.
    """
    first_of, second_of = ends or (range(graph.n), range(graph.n))
    apart, size = first_of != second_of, len(second_of)
    total = len(first_of) * size if apart else size * (size - 1) // (1 if directed else 2)
    found, have, start = [np.zeros(0, np.int64)], 0, 0
    while have < count:
        if start == total:
            raise UserError(
                f"the graph has {have:,} pairs without an arc, {count:,} negatives are asked for: "
                "it is too dense",
                "give fewer --negatives, or 0 and --candidates",
            )
        stop = min(total, start + min(_AT_ONCE, 2 * (count - have) + 64))
        numbers = permuted(np.arange(start, stop), total, base)
        if apart:
            first, second = np.divmod(numbers, size)
        else:
            first, second = (_directed_pair if directed else _undirected_pair)(numbers, size)
        pairs = np.column_stack([first + first_of.start, second + second_of.start])
        pairs = pairs[~has_arcs(graph, pairs, directed)]
        found.append(keys(pairs, graph.n, directed or apart))
        have += len(pairs)
        start = stop
    return np.concatenate(found)[:count]


def _directed_pair(numbers: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The ends u ≠ v of pairs by their numbers below n(n − 1)."""
    first, second = np.divmod(numbers, n - 1)
    return first, second + (second >= first)


def _undirected_pair(numbers: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The ends u < v of pairs by their numbers below n(n − 1)/2.

    Vertex v has v smaller partners. Two vertices that have as many together as any such two make a
    row of a rectangle, without a square root that would have to be rounded.
    """
    row, column = np.divmod(numbers, n if n % 2 else n - 1)
    large = row + n % 2
    other = column >= large
    return column - large * other, np.where(other, n - 1 + n % 2 - large, large)


@dataclass(frozen=True)
class _Family:
    """Relations of which some have the edges of others: an edge is in the same mask for all.

    ``edges`` are keys of all their edges as the first of ``numbers`` has them, increasing.
    """

    numbers: tuple[int, ...]
    edges: np.ndarray


@dataclass(frozen=True)
class _Group:
    """Pairs of a relation: their keys, increasing, and the vertices that ends can be.

    ``numbers`` is that of the relation, empty where there is none; ``edges`` are their keys as the
    family has them.
    """

    found: np.ndarray
    numbers: tuple[int, ...]
    ends: tuple[range, range]
    edges: np.ndarray
    family: _Family


def _groups(
    graph: Graph, directed: bool, names: Sequence[str], twins: Collection[Twin]
) -> list[_Group]:
    """The pairs that the arcs of each relation make, or all arcs where there are none."""
    types, kinds = graph.vertex_types, graph.arc_type
    if types is None or kinds is None:
        if names:
            raise UserError(f"--relation {names[0]}: the graph has no relations", "leave it out")
        every = range(graph.n)
        of_all = {0: _pairs_of(graph, directed)}
        ((found, edges, family),) = _related(of_all, twins, graph.n).values()
        return [_Group(found, (), (every, every), edges, replace(family, numbers=()))]
    chosen = [place_of(name, graph.relations, "--relation") for name in dict.fromkeys(names)]
    order, source = np.argsort(kinds, kind="stable"), arcs(graph)
    bounds = np.searchsorted(kinds[order], np.arange(len(graph.relations) + 1))
    of_relations: dict[int, np.ndarray] = {}
    for number in chosen or _without_twins(graph.schema.forward, twins):
        some = order[bounds[number] : bounds[number + 1]]
        pairs = np.column_stack([source[some], graph.indices[some]])
        one = graph.relations[number]
        of = keys(pairs[pairs[:, 0] != pairs[:, 1]], graph.n, directed or one.source != one.target)
        of_relations[number] = distinct(of)
    return [
        _Group(
            of,
            (number,),
            (
                types.range(graph.relations[number].source),
                types.range(graph.relations[number].target),
            ),
            edges,
            family,
        )
        for number, (of, edges, family) in _related(of_relations, twins, graph.n).items()
    ]


def _without_twins(numbers: Sequence[int], twins: Collection[Twin]) -> list[int]:
    """Some relations but those that have the edges of an earlier one, which has theirs."""
    same, kept = mutual(twins), dict[int, None]()
    for number in numbers:
        if kept.keys().isdisjoint(same.get(number, ())):
            kept[number] = None
    return list(kept)


def _related(
    found: Mapping[int, np.ndarray], twins: Collection[Twin], n: int
) -> dict[int, tuple[np.ndarray, np.ndarray, _Family]]:
    """Of each relation its keys, these as its family has them, and the family."""
    links: dict[int, list[tuple[int, bool]]] = {number: [] for number in found}
    for relation, other, turned in twins:
        if relation in found and other in found:
            links[relation].append((other, turned))
            links[other].append((relation, turned))
    made: dict[int, tuple[np.ndarray, np.ndarray, _Family]] = {}
    for first in found:
        if first in made:
            continue
        turned_of, open_, both = {first: False}, [first], False
        while open_:
            here = open_.pop()
            for other, turned in links[here]:
                way = turned_of[here] ^ turned
                both |= turned_of.get(other, way) != way
                if other not in turned_of:
                    turned_of[other] = way
                    open_.append(other)
        edges = {
            number: _as_edges(found[number], way, both, n) for number, way in turned_of.items()
        }
        every = edges[first]
        if both or len(edges) > 1:
            every = distinct(np.concatenate([*edges.values()]))
        family = _Family(tuple(edges), every)
        made |= {number: (found[number], of, family) for number, of in edges.items()}
    return {number: made[number] for number in found}


def _as_edges(found: np.ndarray, turned: bool, both: bool, n: int) -> np.ndarray:
    """Keys of pairs turned round, or the same for both ways of an edge."""
    if not (turned or both):
        return found
    first, second = np.divmod(found, n)
    pairs = np.column_stack([second, first] if turned else [first, second])
    return keys(pairs, n, directed=not both)


def _joined(pieces: list[np.ndarray]) -> np.ndarray:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _pairs_of(graph: Graph, directed: bool) -> np.ndarray:
    """Keys of the pairs that the arcs of a graph make, without loops, increasing: (m,) int64."""
    # Of a symmetric graph, the arcs to larger vertices are all pairs.
    once = not directed and excess_of(graph, False) == 0
    pieces = [np.zeros(0, np.int64)]
    for _, _, source, target in arc_pieces(graph):
        kept = source < target if once else source != target
        pieces.append(keys(np.column_stack([source[kept], target[kept]]), graph.n, directed))
    found = np.concatenate(pieces)
    del pieces
    if (found[1:] <= found[:-1]).any():
        found.sort()
        found = found[np.append(True, found[1:] != found[:-1])]
    return found


def _masks_of(count: int, sizes: Sequence[int], base: int) -> np.ndarray:
    """The number of the mask of each of ``count`` pairs, (count,) int8, by their place in a hashed
    order: the first ``sizes[0]`` validate, the next ``sizes[1]`` test, the others train.
    """
    mask_of = np.zeros(count, np.int8)
    for start in range(0, count, _AT_ONCE):
        stop = min(count, start + _AT_ONCE)
        place = permuted(np.arange(start, stop), count, base)
        mask_of[start:stop] = np.where(place < sizes[0], 1, np.where(place < sum(sizes), 2, 0))
    return mask_of


def _from_keys(found: np.ndarray, n: int) -> np.ndarray:
    pairs = np.empty((len(found), 2), index_dtype(n))
    for start in range(0, len(found), _AT_ONCE):
        piece = slice(start, start + _AT_ONCE)
        pairs[piece, 0], pairs[piece, 1] = np.divmod(found[piece], n)
    return pairs


def left_out(
    pairs: PairSet,
    source: np.ndarray,
    target: np.ndarray,
    n: int,
    relation: np.ndarray | None = None,
) -> np.ndarray:
    """Which arcs are positives to validate or test on, (m,) bool; without a direction, both ways.

    Where arcs and pairs have relations, only those of the same one; and those of its twins.
    ``source`` is increasing: only held-out pairs with an end between its first and last number are
    looked at.
    """
    if not len(source):
        return np.zeros(0, bool)
    related = relation is not None and bool(pairs.relations)
    twins, low, high = pairs.twins or (), int(source[0]), int(source[-1])
    kinds = 1 + max(pairs.kinds - 1, *(twin.other for twin in twins), 0) if related else 1
    straight, back = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]

    def leaves(keys_of: list[np.ndarray], ends: np.ndarray, kind: np.ndarray | int) -> None:
        near = (ends[:, 0] >= low) & (ends[:, 0] <= high)
        keys_of.append(((ends[:, 0] * n + ends[:, 1]) * kinds + kind)[near])

    for mask in HELD_OUT:
        every = pairs.positives[mask]
        for start in range(0, len(every), _AT_ONCE):
            piece = slice(start, start + _AT_ONCE)
            ends = np.asarray(every[piece], np.int64)
            ways = [ends] if pairs.directed else [ends, ends[:, ::-1]]
            if not related:
                for way in ways:
                    leaves(straight, way, 0)
                leaves(back, ends[:, ::-1], 0)
                continue
            numbers = np.asarray(pairs.relations[mask][piece], np.int64)
            for way in ways:
                leaves(straight, way, numbers)
                for of, other, turned in twins:
                    some = way[numbers == of]
                    leaves(straight, some[:, ::-1] if turned else some, other)
    wanted = source.astype(np.int64) * n + target
    if related and relation is not None:
        wanted = np.where(relation < kinds, wanted * kinds + relation, -1)
    gone = _among(np.concatenate(straight), wanted)
    if twins and not related:
        turned_round = [twin.other for twin in twins if twin.turned]
        of_these = True if relation is None else np.isin(relation, turned_round)
        gone |= _among(np.concatenate(back), wanted) & of_these & bool(turned_round)
    return gone


def _among(held: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    if not len(held):
        return np.zeros(len(wanted), bool)
    held = np.sort(held)
    places = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
    return np.asarray(held[places] == wanted)
