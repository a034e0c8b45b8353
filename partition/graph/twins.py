"""Relations that have the edges of another one: its reverse, a copy of it, a symmetric relation.

A network that passes messages along them sees the edges that it is to predict. So they are found
once, when pairs are made, and the held-out edges leave them too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from partition.errors import UserError
from partition.graph.graph import Graph, arc_places, arcs, distinct
from partition.graph.relations import Relation, Schema, names_of, place_of

_NEARLY = 0.9  # the share of its edges from which a relation has those of another one
_NOBODY = "none"
_SAMPLED = 1 << 16  # edges of each relation that are looked at


class Twin(NamedTuple):
    """The edges of ``other`` are those of ``relation``, by their numbers, perhaps turned round.

    Of a symmetric relation both are the same one; without relations, both are 0.
    """

    relation: int
    other: int
    turned: bool


def twins_by_name(schema: Schema) -> tuple[Twin, ...]:
    """The reverses that are called so: ``rev_NAME`` of ``NAME``, and ``NAME`` of ``rev_NAME``."""
    return tuple(Twin(one, back, True) for one, back in enumerate(schema.reverses) if back >= 0)


def twins_of(
    graph: Graph, directed: bool, reverse_of: Sequence[str] = (), copy_of: Sequence[str] = ()
) -> dict[Twin, float | None]:
    """The twins of a graph, each with the share of its edges by which it was recognised.

    Parameters
    ----------
    directed : bool
        Whether pairs have a direction. Else a graph without relations has no twins.
    reverse_of, copy_of : sequence of str
        Twins that the user names, "OTHER=RELATION". "none": no others are recognised.

    Raises
    ------
    UserError
        If such a text is malformed, or the graph has no such relation.
    """
    named = [*reverse_of, *copy_of]
    found: dict[Twin, float | None] = {}
    if _NOBODY not in named and graph.arc_type is not None:
        keys = arcs(graph).astype(np.int64) * graph.n + graph.indices
        found |= recognised(keys, np.asarray(graph.arc_type), graph.n)
    elif _NOBODY not in named and directed and (share := _both_ways(graph)) >= _NEARLY:
        found[Twin(0, 0, True)] = share
    for texts, turned in ((reverse_of, True), (copy_of, False)):
        flag = "--reverse-of" if turned else "--copy-of"
        for text in texts:
            if text != _NOBODY:
                found |= dict.fromkeys(_declared(text, graph.relations, flag, turned))
    return found | dict.fromkeys(twins_by_name(graph.schema))


def recognised(keys: np.ndarray, kinds: np.ndarray, n: int) -> dict[Twin, float]:
    """The relations whose edges are nearly all those of another one, with the share that is.

    Parameters
    ----------
    keys : (m,) int64
        source · n + target of all edges, increasing. Loops do not count.
    kinds : (m,) integers
        The relation of each.
    """
    sample = _sample(keys, kinds, n)
    count, of_sample = int(kinds.max(initial=0)) + 1, kinds[sample].astype(np.int64)
    totals = np.bincount(of_sample, minlength=count)
    straight = _met(keys, kinds, keys[sample], count)
    turned = _met(keys, kinds, keys[sample] % n * n + keys[sample] // n, count)
    found, all_met = dict[Twin, float](), distinct(np.concatenate([straight, turned]))
    # Whether the edges are those of another relation, these turned round, or some of each.
    for ways, met in (((False,), straight), ((True,), turned), ((False, True), all_met)):
        edge, relation = np.divmod(met, count)
        both, sizes = np.unique(relation * count + of_sample[edge], return_counts=True)
        for pair, size in zip(both.tolist(), sizes.tolist(), strict=True):
            one, other = divmod(pair, count)
            share = size / int(totals[other])
            some = [Twin(one, other, way) for way in ways if way or one != other]
            if share >= _NEARLY and len(some) == len(ways) and found.keys().isdisjoint(some):
                found |= dict.fromkeys(some, share)
    return found


def _met(keys: np.ndarray, kinds: np.ndarray, wanted: np.ndarray, count: int) -> np.ndarray:
    """i · count + r for each relation r with the edge ``wanted[i]``, distinct."""
    first = np.searchsorted(keys, wanted)
    counts = np.searchsorted(keys, wanted, side="right") - first
    edge = np.repeat(np.arange(len(wanted)), counts)
    places = np.arange(len(edge)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    return distinct(edge * count + kinds[places])


def mutual(twins: Iterable[Twin]) -> dict[int, set[int]]:
    """Of each relation those that have its edges, and of which it has the edges."""
    every, found = set(twins), dict[int, set[int]]()
    for one in every:
        if one.relation != one.other and Twin(one.other, one.relation, one.turned) in every:
            found.setdefault(one.relation, set()).add(one.other)
    return found


def descriptions(
    twins: Mapping[Twin, float | None], relations: Sequence[Relation], of: Collection[int]
) -> list[str]:
    """A line for each twin of the relations ``of`` that is not recognised by its name alone."""
    names = names_of(relations) or ("the graph",)
    lines = []
    for (relation, other, turned), share in twins.items():
        if relation in of and share is not None:
            what = f"{names[relation]} is symmetric", "both directions of an edge"
            if relation != other:
                way = " turned round" if turned else ""
                what = f"{names[other]} has the edges of {names[relation]}{way}", "they"
            lines.append(f"{what[0]} ({share:.0%}): {what[1]} are held out together")
    return lines


def _both_ways(graph: Graph) -> float:
    """The share of some evenly spaced arcs, without loops, that lead back too."""
    count = min(graph.nnz, _SAMPLED)
    places = np.linspace(0, graph.nnz, count, endpoint=False).astype(np.int64)
    source = np.searchsorted(graph.indptr, places, side="right") - 1
    target = np.asarray(graph.indices[places], np.int64)
    ends = target[source != target], source[source != target]
    there = arc_places(graph.indptr, graph.indices, *ends) >= 0
    return float(there.mean()) if len(there) else 0.0


def _sample(keys: np.ndarray, kinds: np.ndarray, n: int) -> np.ndarray:
    """The places of some edges of each relation, evenly spaced, without loops."""
    places = np.flatnonzero(keys // max(1, n) != keys % max(1, n))
    order = places[np.argsort(kinds[places], kind="stable")]
    bounds = np.flatnonzero(np.diff(kinds[order], prepend=-1, append=-1))
    pieces = [order[:0]]
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        some = np.linspace(first, last, min(last - first, _SAMPLED), endpoint=False)
        pieces.append(order[some.astype(np.int64)])
    return np.concatenate(pieces)


def _declared(text: str, relations: Sequence[Relation], flag: str, turned: bool) -> list[Twin]:
    other, equals, relation = text.partition("=")
    if not relations:
        raise UserError(f"{flag} {text}: the graph has no relations", f"leave it out, or {_NOBODY}")
    if not equals:
        raise UserError(f"{flag} {text!r} is not OTHER=RELATION", f"{flag} bought_by=buys")
    a, b = (place_of(name.strip(), relations, flag) for name in (relation, other))
    if a == b and not turned:
        raise UserError(f"{flag} {text}: a relation is no copy of itself")
    return [Twin(a, b, turned), Twin(b, a, turned)]
