"""Pairs of vertices for link prediction: how a folder keeps them, how they are split and drawn.

::

    G.graph/pairs/NAME/
        pairs.json
        train.npy val.npy test.npy
        [train_negatives.npy val_negatives.npy test_negatives.npy]
        [val_candidates.npy test_candidates.npy]
        [train_relations.npy val_relations.npy test_relations.npy]
        [val_negatives_relations.npy test_negatives_relations.npy]

A set is written whole or not at all. The graph itself keeps all of its arcs. Everything that is
drawn depends on the seed and on numbers of vertices and pairs only, so each of several processes
draws what it needs, and all draw the same.

A relation may have the edges of another one: its reverse, a copy of it, a symmetric relation. A
network that passes messages along such *twins* sees the edges that it is to predict. So they are
found once, when pairs are made, and the held-out edges leave them too.
"""

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from partition.errors import UserError, require
from partition.graph import graph as graphs
from partition.graph import manifest as manifests
from partition.graph.graph import MASKS, Graph, arc_places, distinct, index_dtype, slices
from partition.graph.hashing import key, mixed, permuted
from partition.graph.manifest import Sets, read_manifest
from partition.graph.relations import Relation, Schema, VertexTypes, names_of, place_of
from partition.graph.sparse import sp
from partition.records import Count, Whole, one_of
from partition.resident import check_memory

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


def _twins_by_name(schema: Schema) -> tuple[Twin, ...]:
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
        keys = graphs.arcs(graph).astype(np.int64) * graph.n + graph.indices
        found |= recognised(keys, np.asarray(graph.arc_type), graph.n)
    elif _NOBODY not in named and directed and (share := _both_ways(graph)) >= _NEARLY:
        found[Twin(0, 0, True)] = share
    for texts, turned in ((reverse_of, True), (copy_of, False)):
        flag = "--reverse-of" if turned else "--copy-of"
        for text in texts:
            if text != _NOBODY:
                found |= dict.fromkeys(_declared(text, graph.relations, flag, turned))
    return found | dict.fromkeys(_twins_by_name(graph.schema))


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


_REPLACED = ("second", "both")
HELD_OUT = ("val", "test")
_OF_NEGATIVES = tuple(f"{mask}_negatives" for mask in HELD_OUT)  # in ``PairSet.relations``
_MASKS_OF = {  # the masks that arrays of a kind may be of
    "positives": MASKS,
    "negatives": MASKS,
    "candidates": HELD_OUT,
    "relations": (*MASKS, *_OF_NEGATIVES),
}
_FILES = {  # kind and mask of each file
    mask if kind == "positives" else f"{mask}_{kind}": (kind, mask)
    for kind, masks in _MASKS_OF.items()
    for mask in masks
}
_MAX_SEED = 2**63 - 1
_AT_ONCE = 1 << 20  # pairs that are looked at at once
_ORDER, _NEGATIVES, _CANDIDATES = 1, 2, 3  # purposes of hashes


@dataclass(frozen=True, kw_only=True)
class _PairFacts:
    """A set without its arrays and twins: see :class:`PairSet`."""

    name: str
    graph_id: str
    id: str = ""
    directed: bool
    seed: Whole | None
    made: str
    replaced: Annotated[str, one_of(_REPLACED)] = "second"
    drawn: Count = 0


@dataclass(frozen=True, kw_only=True)
class PairSet(_PairFacts):
    """Pairs of vertices to train on, validate on and test on; plain or memory-mapped arrays.

    Attributes
    ----------
    graph_id : str
        ``Manifest.id`` of the graph whose vertices they are.
    id : str
        Content id: see :func:`identified`.
    directed : bool
        Whether (u, v) and (v, u) are two pairs.
    seed : int or None
        Of all hashes by which pairs and candidates are drawn; None where none is drawn.
    made : str
        How the set was made, for people.
    positives : mapping of "train", "val", "test" to (m, 2) of the graph's index dtype
        May be empty. No pair is in two of them.
    negatives : mapping of "train", "val", "test" to (q, 2), the same dtype
        Only those that are given. Of "train": K for each positive, which follow each other. Of
        the others: common to all positives.
    candidates : mapping of "val", "test" to (m, C), the same dtype
        Only those that are given: vertices that take the place of an end of each positive.
    replaced : {"second", "both"}
        The end that candidates take the place of; "both": of the first C/2 columns the second
        end, of the others the first.
    drawn : int
        Candidates of each positive that are drawn by hash when they are needed; 0: none.
    relations : mapping of "train", "val", "test" to (m,) int32
        The relation of each positive; empty where there is one only. And perhaps of
        "val_negatives", "test_negatives": those of the negatives that positives have in common.
    relation_names : tuple of str
        The names of relations, where they are not their numbers.
    twins : tuple of Twin, or None
        The relations whose edges leave M with those of held-out pairs. None: those that are called
        ``rev_NAME``, once the set is in a folder.
    """

    positives: Mapping[str, np.ndarray]
    negatives: Mapping[str, np.ndarray] = field(default_factory=dict)
    candidates: Mapping[str, np.ndarray] = field(default_factory=dict)
    relations: Mapping[str, np.ndarray] = field(default_factory=dict)
    relation_names: tuple[str, ...] = ()
    twins: tuple[Twin, ...] | None = None

    @property
    def kinds(self) -> int:
        """How many relations there are, those without a pair too; 1 where there is one only."""
        largest = (int(of.max(initial=0)) for of in self.relations.values())
        return max(1, len(self.relation_names), *(1 + number for number in largest))

    def keys(self, mask: str, n: int, some: slice = slice(None)) -> np.ndarray:
        """A number for each positive of a mask with its relation, (m,) int64: see :func:`keys`."""
        relations = self.relations.get(mask)
        found = keys(self.positives[mask][some], n, self.directed)
        return found if relations is None else found * self.kinds + relations[some]

    def both_ways(self, mask: str, some: slice = slice(None)) -> np.ndarray:
        """Whether the edge of each positive of a mask leaves M turned round too, (m,) bool."""
        turned = [twin.relation for twin in self.twins or () if twin.turned]
        relations = self.relations.get(mask)
        if not self.directed or relations is None:
            count = len(self.positives[mask][some])
            return np.full(count, not self.directed or bool(turned))
        return np.isin(relations[some], turned)


@dataclass(frozen=True, kw_only=True)
class _PairFile(_PairFacts):
    """The file ``pairs.json``: of the arrays of a set it has shapes and checksums."""

    counts: Mapping[Annotated[str, one_of(_FILES)], tuple[Count, ...]]
    sums: Mapping[Annotated[str, one_of(_FILES)], str]
    relation_names: tuple[str, ...] = ()
    twins: list[tuple[Count, Count, Count]] | None = None  # of a set that an earlier version wrote
    format: Literal["gcnmpi-pairs"] = "gcnmpi-pairs"
    version: Literal[1] = 1


_KNOWN = [fact.name for fact in fields(_PairFacts)] + ["relation_names"]
_HINT = "draw some: gcn-partition pairs {path} --split 0.85,0.05,0.10 --name {name}"
PAIRS = Sets("pairs", _PairFile, _HINT)
_AGAIN = PAIRS.again
list_pairs, has_pairs, remove_pairs = PAIRS.names, PAIRS.has, PAIRS.remove


def write_pairs(path: str | os.PathLike[str], pairs: PairSet, force: bool = False) -> PairSet:
    """Put a set of pairs into the graph folder ``path``; returns it as stored, with its id.

    Raises
    ------
    UserError
        If the name is malformed or taken (without ``force``), the set is of another graph or
        breaks a rule of :func:`check_pairs`, or the files cannot be written.
    """
    path = Path(path)
    PAIRS.folder(path, pairs.name)
    manifest = read_manifest(path)
    require(manifest.id == pairs.graph_id, f"{path} is another graph than the pairs were made for")
    if pairs.twins is None:
        pairs = replace(pairs, twins=_twins_by_name(manifest.schema))
    pairs = identified(_in_index_dtype(pairs, manifest.n))
    check_pairs(pairs, manifest.n)
    arrays = _arrays_of(pairs)
    facts = _PairFile(
        **{name: getattr(pairs, name) for name in _KNOWN},
        twins=[(a, b, int(turned)) for a, b, turned in pairs.twins or ()],
        counts={name: array.shape for name, array in arrays.items()},
        sums=manifests.sums_of(arrays),
    )
    with PAIRS.writing(path, pairs.name, force) as temporary:
        manifests.save_arrays(temporary, arrays)
        PAIRS.describe(temporary, facts)
    return pairs


def read_pairs(path: str | os.PathLike[str], name: str, *, check: bool = True) -> PairSet:
    """Read the set of pairs ``name`` of the graph folder ``path``; its arrays are mapped.

    Parameters
    ----------
    check : bool
        Read the arrays, and refuse vertices that there are not and checksums that differ;
        otherwise sizes and types only.

    Raises
    ------
    UserError
        If there is none of that name, it belongs to another graph, is of another version, or its
        files are damaged.
    """
    path = Path(path)
    folder, manifest = PAIRS.folder(path, name), read_manifest(path)
    facts = PAIRS.described(path, name)
    if facts.graph_id != manifest.id:
        ids = f"(id {facts.graph_id}, this graph is {manifest.id})"
        raise UserError(f"pairs {name!r} in {path} were made for another graph {ids}", _AGAIN)
    twins = _twins_by_name(manifest.schema)
    if facts.twins is not None:
        twins = tuple(Twin(a, b, bool(turned)) for a, b, turned in facts.twins)
    try:
        if facts.sums.keys() != facts.counts.keys() or not set(MASKS) <= facts.counts.keys():
            raise UserError("pairs.json contradicts itself")
        if not all(max(a, b) < max(1, len(manifest.schema)) for a, b, _ in twins):
            raise UserError("twins in pairs.json are no relations")
        arrays = {
            file: manifests.map_array(folder / f"{file}.npy", "i", shape, again=_AGAIN)
            for file, shape in facts.counts.items()
        }
        if wrong := [file for file, a in arrays.items() if a.dtype != _dtype(file, manifest.n)]:
            raise UserError(f"{wrong[0]}.npy holds {arrays[wrong[0]].dtype}")
        known = {key: getattr(facts, key) for key in _KNOWN} | {"name": name, "twins": twins}
        pairs = PairSet(**known, **_by_kind(arrays))
        _check_shapes(pairs)
        if check:
            _check_vertices(arrays, manifest.n)
            for file, text in manifests.sums_of(arrays).items():
                require(facts.sums[file] == text, f"{file}.npy does not hold what pairs.json says")
    except UserError as error:
        raise UserError(f"{folder} is damaged: {error.message}", _AGAIN) from None
    return pairs


def identified(pairs: PairSet) -> PairSet:
    """The set with its content id: a hash of its arrays, and of all that says what they mean."""
    facts = {key: getattr(pairs, key) for key in ("graph_id", "directed", "replaced", "drawn")}
    facts["seed"] = pairs.seed if pairs.drawn else None
    if pairs.twins:
        facts["twins"] = [list(twin) for twin in pairs.twins]
    return replace(pairs, id=manifests.named_id(len(MASKS), _arrays_of(pairs), facts))


def keys(pairs: np.ndarray, n: int, directed: bool) -> np.ndarray:
    """A number for each pair, (m,) int64: u·n + v, the same both ways round if not directed."""
    first, second = np.asarray(pairs[:, 0], np.int64), np.asarray(pairs[:, 1], np.int64)
    if not directed:
        first, second = np.minimum(first, second), np.maximum(first, second)
    return first * n + second


def check_pairs(pairs: PairSet, n: int) -> None:
    """Refuse a set that no graph of ``n`` vertices can have; in bounded memory.

    A UserError if a shape, the seed or ``replaced`` is wrong, a vertex is not there, a positive
    without a relation joins a vertex to itself, or one is in two masks (either way round if the set
    is not directed; of the same relation, where there are some).
    """
    _check_shapes(pairs)
    if pairs.seed is not None and not 0 <= pairs.seed <= _MAX_SEED:
        raise UserError(f"seed {pairs.seed} is outside 0..2^63-1")
    _check_vertices(_arrays_of(pairs), n)
    for mask, array in {} if pairs.relations else pairs.positives.items():
        loops = np.flatnonzero(array[:, 0] == array[:, 1])
        if len(loops):
            pair = tuple(array[loops[0]].tolist())
            raise UserError(f"{mask} has the pair {pair}: a vertex is no partner of itself")
    if pairs.drawn and n < 3:
        raise UserError(f"candidates cannot be drawn: the graph has {n} vertices")
    for other in HELD_OUT:
        held = np.sort(pairs.keys(other, n))
        common = [held[:0]]
        for some in slices(len(pairs.positives["train"]) if len(held) else 0, _AT_ONCE):
            found = pairs.keys("train", n, some)
            common.append(found[_among(held, found)])
        if count := sum(map(len, common)):
            example = int(np.concatenate(common)[0]) // (pairs.kinds if pairs.relations else 1)
            such = f"also in {other}, such as {divmod(example, n)}"
            hint = "gcn-partition pairs --drop-held-out leaves them out of train"
            raise UserError(f"{count:,} pairs to train on are {such}", hint)


def _check_shapes(pairs: PairSet) -> None:
    if pairs.replaced not in _REPLACED:
        raise UserError(f"replaced is {pairs.replaced!r}, not {' or '.join(_REPLACED)}")
    if pairs.drawn < 0 or (pairs.drawn and pairs.seed is None):
        raise UserError("candidates that are drawn need a seed")
    if pairs.positives.keys() != set(MASKS):
        raise UserError(f"positives are of {', '.join(pairs.positives)}, not {', '.join(MASKS)}")
    arrays = _arrays_of(pairs)
    sizes = {name: len(array) for name, array in arrays.items()}
    for name, array in arrays.items():
        (kind, mask), shape = _FILES[name], array.shape
        size = sizes.get(mask, 0)
        if kind == "relations":
            right = shape == (size,)
        elif kind == "candidates":
            odd = pairs.replaced == "both" and shape[-1] % 2
            right = len(shape) == 2 and shape[0] == size and not odd
        else:
            right = shape[1:] == (2,)
            if name == "train_negatives":  # as many for each positive; none where there is none
                right &= not shape[0] % (size or shape[0] + 1)
        if not right or array.dtype.kind not in "iu":
            count = f"{sizes[mask.partition('_')[0]]:,} positives"
            raise UserError(f"{name} is {array.dtype} of shape {shape}, for {count}")


def _check_vertices(arrays: Mapping[str, np.ndarray], n: int) -> None:
    """Refuse arrays of a set with vertices that there are not, in bounded memory."""
    for name, array in arrays.items():
        for some in slices(0 if _FILES[name][0] == "relations" else len(array), _AT_ONCE):
            piece = array[some]
            wrong = piece[(piece < 0) | (piece >= n)]
            if len(wrong):
                raise UserError(f"{name} has the vertex {wrong[0]}: the graph has 0..{n - 1}")


def _in_index_dtype(pairs: PairSet, n: int) -> PairSet:
    """The set with arrays of the types that files have; numbers that do not fit are refused."""
    arrays = _arrays_of(pairs)
    for file, array in arrays.items():
        limits = np.iinfo(_dtype(file, n))
        if array.dtype.kind not in "iu" and array.size:
            raise UserError(f"{file} holds {array.dtype}, not whole numbers")
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise UserError(f"{file} has the number {array.max()}")
        arrays[file] = array.astype(limits.dtype, copy=False)
    return replace(pairs, **_by_kind(arrays))


def _arrays_of(pairs: PairSet) -> dict[str, np.ndarray]:
    """The arrays of a set in C order, by the names of their files."""
    named = {name: getattr(pairs, kind).get(mask) for name, (kind, mask) in _FILES.items()}
    return {name: np.ascontiguousarray(a) for name, a in named.items() if a is not None}


def _by_kind(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The arrays of a set as its fields have them."""
    found: dict[str, Any] = {kind: {} for kind in _MASKS_OF}
    for name, array in arrays.items():
        kind, mask = _FILES[name]
        found[kind][mask] = array
    return found


def _dtype(file: str, n: int) -> np.dtype:
    return np.dtype(np.int32) if _FILES[file][0] == "relations" else index_dtype(n)


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
    ends, types = np.asarray(pairs.positives[mask][first:last], np.int64), types or _one_type(n)
    offsets, kinds = np.array(types.offsets), types.of(ends)
    low, count = offsets[kinds[:, 1]], np.diff(offsets)[kinds[:, 1]]
    # The ends that are not drawn, the smaller one first; the second one, where the first cannot be.
    both = (kinds[:, 0] == kinds[:, 1]) & (ends[:, 0] != ends[:, 1])
    ends = np.sort(np.where(both[:, np.newaxis], ends, ends[:, 1:]), axis=1)
    base = key(pairs.seed or 0, _CANDIDATES, MASKS.index(mask))
    rest = count - 1 - both
    if pairs.drawn and len(ends) and rest.min() < 1:
        few = f"there are {count.min()} vertices to draw from"
        raise UserError(f"candidates cannot be drawn: {few}")
    of_pair = mixed(np.arange(first, max(first, last)), base)
    of_number = np.arange(pairs.drawn, dtype=np.uint64)
    hashes = mixed(of_pair[:, None] + of_number, key(base, _CANDIDATES))
    vertices = (hashes % rest[:, None].astype(np.uint64)).astype(np.int64) + low[:, None]
    vertices += vertices >= ends[:, :1]
    vertices += (vertices >= ends[:, 1:]) & both[:, None]
    return vertices


def _one_type(n: int) -> VertexTypes:
    return VertexTypes(("",), (0, n))


def split_pairs(
    graph: Graph, shares: Sequence[Fraction | float | str], seed: int = 0, directed: bool = False,
    negatives: int = 1, *, candidates: int = 0, name: str = "links", graph_id: str | None = None,
    relations: Sequence[str] = (), twins: Collection[Twin] | None = None,
) -> PairSet:  # fmt: skip
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
        recognised: see the head of this file.

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
    parsed = _parsed_shares(shares)
    require(0 <= seed <= _MAX_SEED, f"seed {seed} is outside 0..2^63-1")
    if negatives < 0 or candidates < 0:
        raise UserError("a number of negatives or candidates is not below 0")
    types, twins = graph.vertex_types, twins_of(graph, directed) if twins is None else twins
    found = _pairs_by_relation(graph, directed, relations, twins)
    if relations and not any(map(len, found.values())):
        raise UserError(f"there are no arcs of {', '.join(relations)} to split into pairs")
    masks: dict[str, list[np.ndarray]] = {mask: [] for mask in (*MASKS, *_OF_NEGATIVES)}
    for number, (family, edges, every) in _families(found, twins, graph.n).items():
        ends, of_family, of_relation = None, list[int](), list[int]()
        if types is not None:
            source, _, target = graph.relations[number]
            ends = types.range(source), types.range(target)
            of_family, of_relation = [family], [number]
        sizes = [int(share * len(every)) for share in parsed[1:]]
        base, mask_of = key(seed, _ORDER, *of_family), np.zeros(len(every), np.int8)
        for some in slices(len(every), _AT_ONCE):  # a hashed order decides
            place = permuted(np.arange(some.start, some.stop), len(every), base)
            mask_of[some] = np.where(place < sizes[0], 1, np.where(place < sum(sizes), 2, 0))
        if edges is not every:
            mask_of = mask_of[np.searchsorted(every, edges)]
        for at, mask in enumerate(MASKS):
            masks[mask].append(found[number][mask_of == at])
        wanted = [len(masks[mask][-1]) * negatives for mask in HELD_OUT]
        base = key(seed, _NEGATIVES, *of_relation)
        drawn = non_arcs(graph, sum(wanted), directed, base, ends)
        for mask, piece in zip(_OF_NEGATIVES, np.split(drawn, wanted[:1]), strict=True):
            masks[mask].append(np.sort(piece))
    masks = {mask: of for mask, of in masks.items() if negatives or mask in MASKS}
    arrays = {mask: _from_keys(of, graph.n) for mask, of in masks.items()}
    for mask, of in masks.items() if types is not None else ():
        arrays[f"{mask}_relations"] = np.repeat(np.array([*found], np.int32), [*map(len, of)])
    made = " of ".join([f"split {','.join(map(str, shares))}", *relations])
    graph_id = manifests.content_id(graph) if graph_id is None else graph_id
    return identified(PairSet(
        name=name, graph_id=graph_id, directed=directed, seed=seed, made=made, drawn=candidates,
        relation_names=names_of(graph.relations), twins=tuple(twins), **_by_kind(arrays),
    ))  # fmt: skip


def _parsed_shares(shares: Sequence[Fraction | float | str]) -> tuple[Fraction, ...]:
    """Three shares to train, validate and test; a UserError unless they add up to 1."""
    hint = "such as 0.85,0.05,0.10: to train, validate and test"
    text, parsed = ",".join(map(str, shares)), [Fraction(-1)]
    with contextlib.suppress(ValueError, ZeroDivisionError):
        parsed = [Fraction(str(share)) for share in shares]
    if len(parsed) != len(MASKS) or min(parsed) < 0:
        raise UserError(f"{text!r} are no three shares of the pairs", hint)
    if sum(parsed) != 1:
        raise UserError(f"the shares {text} add up to {float(sum(parsed)):g}, not to 1", hint)
    return tuple(parsed)


def has_arcs(
    graph: Graph, pairs: np.ndarray, directed: bool = True, relations: np.ndarray | None = None
) -> np.ndarray:
    """Whether the graph has an arc u→v for each pair (u, v) of (m, 2): (m,) bool.

    If not ``directed``, an arc v→u counts too; with ``relations`` (m,), only an arc of the same
    one, where arcs have relations. Only rows of these vertices are looked at.
    """
    found = np.empty(len(pairs), bool)
    for some in slices(len(pairs), _AT_ONCE):
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
            few = f"the graph has {have:,} pairs without an arc, {count:,} negatives are asked for"
            hint = "give fewer --negatives, or 0 and --candidates"
            raise UserError(f"{few}: it is too dense", hint)
        stop = min(total, start + min(_AT_ONCE, 2 * (count - have) + 64))
        numbers = permuted(np.arange(start, stop), total, base)
        if directed or apart:
            first, second = np.divmod(numbers, size if apart else size - 1)
            second += not apart and second >= first
        else:
            # Ends u < v. Vertex v has v smaller partners. Two vertices that have as many together
            # as any such two make a row of a rectangle: no square root has to be rounded.
            odd = size % 2
            row, column = np.divmod(numbers, size if odd else size - 1)
            large, other = row + odd, column >= row + odd
            first = column - large * other
            second = np.where(other, size - 1 + odd - large, large)
        pairs = np.column_stack([first + first_of.start, second + second_of.start])
        pairs = pairs[~has_arcs(graph, pairs, directed)]
        found.append(keys(pairs, graph.n, directed or apart))
        have += len(pairs)
        start = stop
    return np.concatenate(found)[:count]


def _pairs_by_relation(
    graph: Graph, directed: bool, names: Sequence[str], twins: Collection[Twin]
) -> dict[int, np.ndarray]:
    """Keys of the pairs that the arcs of each relation make, or all arcs: increasing, no loops."""
    relations = graph.relations
    if graph.arc_type is None:
        if names:
            raise UserError(f"--relation {names[0]}: the graph has no relations", "leave it out")
        # Of a symmetric graph, the arcs to larger vertices are all pairs.
        once = not directed and manifests.excess_of(graph, False) == 0
        pieces = [np.zeros(0, np.int64)]
        for _, _, source, target in graphs.arc_pieces(graph):
            kept = source < target if once else source != target
            pieces.append(keys(np.column_stack([source[kept], target[kept]]), graph.n, directed))
        every = np.concatenate(pieces)
        del pieces
        return {0: distinct(every) if (every[1:] <= every[:-1]).any() else every}
    chosen = [place_of(name, relations, "--relation") for name in dict.fromkeys(names)]
    if not chosen:  # all but those that have the edges of an earlier one, which has theirs
        known, same = set(twins), dict[int, set[int]]()
        for one, other, turned in twins:
            if (other, one, turned) in known:
                same.setdefault(one, set()).add(other)
        for number in graph.schema.forward:
            if same.get(number, set()).isdisjoint(chosen):
                chosen.append(number)
    order, source = np.argsort(graph.arc_type, kind="stable"), graphs.arcs(graph)
    bounds = np.searchsorted(graph.arc_type[order], np.arange(len(relations) + 1))
    found = {}
    for number in chosen:
        some = order[bounds[number] : bounds[number + 1]]
        pairs = np.column_stack([source[some], graph.indices[some]])
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        apart = relations[number].source != relations[number].target
        found[number] = distinct(keys(pairs, graph.n, directed or apart))
    return found


def _families(
    found: Mapping[int, np.ndarray], twins: Collection[Twin], n: int
) -> dict[int, tuple[int, np.ndarray, np.ndarray]]:
    """Relations with common edges are a family: an edge is in one mask for all of them.

    Of each relation the first one of its family, and keys, increasing: its own as edges of the
    family, and all edges of that.
    """
    # Of each relation those with its edges, and whether these are turned round.
    members = {number: {(number, False)} for number in found}
    for one, other, turned in twins:
        if one in found and other in found:
            joined = members[one] | {(each, way ^ turned) for each, way in members[other]}
            for number, way in joined:
                members[number] = {(each, turn ^ way) for each, turn in joined}
    made: dict[int, tuple[int, np.ndarray, np.ndarray]] = {}
    for first in found:
        if first in made:
            continue
        ways = dict(members[first])
        both = len(ways) < len(members[first])  # the edges of one are turned round, and are not
        edges = {}
        for number, turned in ways.items():
            edges[number] = found[number]
            if turned or both:
                ends = np.column_stack(np.divmod(found[number], n))
                edges[number] = keys(ends[:, ::-1] if turned else ends, n, directed=not both)
        every = edges[first]
        if both or len(edges) > 1:
            every = distinct(np.concatenate([*edges.values()]))
        made |= {number: (first, of, every) for number, of in edges.items()}
    return made


def _from_keys(pieces: Sequence[np.ndarray], n: int) -> np.ndarray:
    """The pairs of keys, (m, 2), of one piece after the other."""
    pairs, end = np.empty((sum(map(len, pieces)), 2), index_dtype(n)), 0
    for piece in pieces:
        for some in slices(len(piece), _AT_ONCE):
            begin, end = end, end + some.stop - some.start
            pairs[begin:end] = np.column_stack(np.divmod(piece[some], n))
    return pairs


def left_out(
    pairs: PairSet, source: np.ndarray, target: np.ndarray, n: int,
    relation: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
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

    def near(ends: np.ndarray, kind: np.ndarray | int) -> np.ndarray:
        found = (ends[:, 0] * n + ends[:, 1]) * kinds + kind
        return found[(ends[:, 0] >= low) & (ends[:, 0] <= high)]

    for mask in HELD_OUT:
        every = pairs.positives[mask]
        for piece in slices(len(every), _AT_ONCE):
            ends = np.asarray(every[piece], np.int64)
            ways = [ends] if pairs.directed else [ends, ends[:, ::-1]]
            numbers = np.asarray(pairs.relations[mask][piece], np.int64) if related else 0
            straight += [near(way, numbers) for way in ways]
            back.append(near(ends[:, ::-1], 0))
            for (of, other, turned), way in product(twins if related else (), ways):
                some = way[numbers == of]
                straight.append(near(some[:, ::-1] if turned else some, other))
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


_RESTART = 0.15  # of the walks of PageRank
_REST = 5e-5  # a vertex keeps so much of what it has to pass on, per neighbour
_MOST_STEPS = 100
_RANKED_AT_ONCE = 256  # vertices from which PageRank is computed together
# Purposes of hashes.
_TIES, _FILL = 1, 2

_Scored = tuple[np.ndarray, np.ndarray]  # vertices, increasing, and a score of each
_Tell = Callable[[str, float, float], None]


def with_hard_candidates(
    pairs: PairSet, graph: Graph, count: int, masks: Sequence[str] = HELD_OUT,
    tell: _Tell = lambda stage, done, total: None,
) -> PairSet:  # fmt: skip
    """The set with ``count`` hard candidates for each positive of some masks, half for either end.

    After Li et al. (2023), "Evaluating graph neural networks for link prediction: current pitfalls
    and new benchmarking". Of a pair (u, v), the first half takes the place of v: the vertices with
    the least sum of two ranks, that of the number of neighbours in common with u and that of
    PageRank from u (a rank is 1 + the number of vertices that have more; those that have nothing
    come last). Ties are in a hashed order, in which vertices that have neither follow. The other
    half takes the place of u likewise. They are of the type of the vertex whose place they take; no
    pair of the set, and no arc of the graph, is among them. Neighbours are those along arcs and
    against them, without the pairs that are held out.

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
    some = [np.asarray(pairs.positives[mask], np.int64) for mask in masks]
    ends, item = np.concatenate(some), index_dtype(graph.n).itemsize
    check_memory(2 * len(ends) * count * item, f"{count} candidates of each pair")
    near, partners = _near(graph, held_out(pairs)), _partners(graph, pairs)
    types, seed, turned = graph.vertex_types or _one_type(graph.n), pairs.seed or 0, ends[:, ::-1]
    ranking = _Ranking(near, partners, types, count // 2, key(seed, 0), tell)
    if pairs.directed:
        other = replace(ranking, partners=partners.T.tocsr(), base=key(seed, 1))
        halves = [ranking.hardest(ends), other.hardest(turned)]
    else:  # partners of a vertex are the same, whichever end it is
        halves = np.split(ranking.hardest(np.concatenate([ends, turned])), 2)
    borders = np.cumsum([len(piece) for piece in some])[:-1]
    found = kept | dict(zip(masks, np.split(np.hstack(halves), borders), strict=True))
    candidates = {mask: found[mask] for mask in MASKS if mask in found}
    drawn = 0 if set(HELD_OUT) <= candidates.keys() else pairs.drawn
    made = f"{pairs.made.split('; ')[0]}; {count} hard candidates of {', '.join(masks)}"
    hard = replace(pairs, candidates=candidates, replaced="both", drawn=drawn, made=made)
    return identified(hard)


@dataclass(frozen=True)
class _Ranking:
    """The search of ``count`` vertices that are likely partners of others, and are none.

    Ranks are by neighbours, which ``near`` has; ``partners`` has a row for each vertex. Both are
    CSR matrices; ``base`` is the key of hashes.
    """

    near: sp.csr_array
    partners: sp.csr_array
    types: VertexTypes
    count: int
    base: int
    tell: _Tell

    def hardest(self, pairs: np.ndarray) -> np.ndarray:
        """Vertices in place of the second end of each pair, of its type: (m, count)."""
        kinds, degree = self.types.of(pairs[:, 1]), np.diff(self.near.indptr)
        rows = np.empty((len(pairs), self.count), index_dtype(len(degree)))
        for kind in np.unique(kinds).tolist():
            here, among = kinds == kind, self.types.range(self.types.names[kind])
            sources, place = np.unique(pairs[here, 0], return_inverse=True)
            best = np.empty((len(sources), self.count), np.int64)
            for first in range(0, len(sources), _RANKED_AT_ONCE):
                block = sources[first : first + _RANKED_AT_ONCE]
                ranks = page_rank(self.near, degree, block)
                for i, source in enumerate(block.tolist()):
                    best[first + i] = self._of(source, _row(ranks, i), among)
                self.tell("ranking partners", first + len(block), len(sources))
            rows[here] = best[place]
        return rows

    def _of(self, source: int, rank: _Scored, among: range) -> np.ndarray:
        """The vertices with the least sums of ranks among some, and others in a hashed order."""
        none = np.union1d(_row(self.partners, source)[0], [source])
        none = none[_within(none, among)]
        if (others := len(among) - len(none)) < self.count:
            what = f"vertex {source} has {others} others that are no partners of it"
            hint = "give a smaller --hard"
            raise UserError(f"{what}, {self.count} are asked for", hint)
        scored = []
        for columns, scores in (_common(self.near, source), rank):
            able = _within(columns, among) & ~_among(none, columns)
            scored.append((columns[able], scores[able]))
        chosen = _least_ranks(scored[0], scored[1], self.count, key(self.base, _TIES, source))
        start, n = 0, self.near.shape[0]
        while len(chosen) < self.count:  # in a hashed order
            stop = min(n, start + 2 * self.count + len(none))
            more = permuted(np.arange(start, stop), n, key(self.base, _FILL, source))
            more = more[_within(more, among)]
            chosen = np.append(chosen, more[~np.isin(more, np.append(chosen, none))])
            start = stop
        return chosen[: self.count]


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
    least = (_REST * degree).astype(np.float32)
    share = ((1 - _RESTART) / np.maximum(degree, 1)).astype(np.float32)
    for _ in range(_MOST_STEPS):
        full = rest.data > least[rest.indices]
        if not full.any():
            break
        pushed = rest.copy()
        pushed.data[~full] = 0
        pushed.eliminate_zeros()
        rest.data[full] = 0
        rest.eliminate_zeros()
        kept = kept + pushed * np.float32(_RESTART)
        pushed.data *= share[pushed.indices]
        passed = pushed @ near
        passed.sort_indices()
        rest = rest + passed
    return kept


def _near(graph: Graph, held: np.ndarray) -> sp.csr_array:
    """1 for each neighbour along an arc or against it, but itself, that no held pair joins."""
    near = _matrix(graph.indptr, graph.indices)
    near = near + near.T.tocsr()
    near.data[:] = 1
    row = np.repeat(np.arange(graph.n, dtype=near.indices.dtype), np.diff(near.indptr))
    near.data[row == near.indices] = 0
    del row
    first, second = np.concatenate([held, held[:, ::-1]]).astype(np.int64).T
    place = arc_places(near.indptr, near.indices, first, second)
    near.data[place[place >= 0]] = 0
    near.eliminate_zeros()
    return near


def _partners(graph: Graph, pairs: PairSet) -> sp.csr_array:
    """The partners of each vertex as the first end: ends of arcs, and of all pairs of the set."""
    first, second = np.concatenate([pairs.positives[mask] for mask in MASKS]).T
    order = np.argsort(first, kind="stable")
    indptr = np.searchsorted(first[order], np.arange(graph.n + 1))
    matrix = _matrix(graph.indptr, graph.indices) + _matrix(indptr, second[order])
    return matrix if pairs.directed else matrix + matrix.T.tocsr()


def _matrix(indptr: np.ndarray, indices: np.ndarray) -> sp.csr_array:
    n, ones = len(indptr) - 1, np.ones(len(indices), np.float32)
    return sp.csr_array((ones, np.asarray(indices), indptr), shape=(n, n))


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
    return (vertices >= among.start) & (vertices < among.stop)


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
