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
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from partition.errors import UserError, require
from partition.graph import content
from partition.graph.folders import Sets, map_array, save_arrays
from partition.graph.graph import MASKS, Graph, arc_pieces, arc_places, arcs, distinct, index_dtype
from partition.graph.hashing import key, mixed, permuted
from partition.graph.manifest import read_manifest
from partition.graph.relations import VertexTypes, names_of, place_of
from partition.graph.twins import Twin, mutual, twins_by_name, twins_of
from partition.records import Count, Whole, one_of

_REPLACED = ("second", "both")
HELD_OUT = ("val", "test")
_OF_NEGATIVES = tuple(f"{mask}_negatives" for mask in HELD_OUT)  # in ``PairSet.relations``
_KINDS = ("positives", "negatives", "candidates", "relations")
_FILES = (
    *MASKS,
    *(f"{mask}_negatives" for mask in MASKS),
    *(f"{mask}_candidates" for mask in HELD_OUT),
    *(f"{mask}_relations" for mask in (*MASKS, *_OF_NEGATIVES)),
)
_MAX_SEED = 2**63 - 1
_AT_ONCE = 1 << 20  # pairs that are looked at at once
_ORDER, _NEGATIVES, _CANDIDATES = 1, 2, 3  # purposes of hashes


@dataclass(frozen=True)
class PairSet:
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

    name: str
    graph_id: str
    id: str
    directed: bool
    seed: int | None
    made: str
    positives: Mapping[str, np.ndarray]
    negatives: Mapping[str, np.ndarray] = field(default_factory=dict)
    candidates: Mapping[str, np.ndarray] = field(default_factory=dict)
    replaced: str = "second"
    drawn: int = 0
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


@dataclass(frozen=True)
class _Description:
    """The file ``pairs.json``: a set without its arrays, of which it has shapes and checksums."""

    name: str
    graph_id: str
    id: str
    directed: bool
    seed: Whole | None
    made: str
    replaced: Annotated[str, one_of(_REPLACED)]
    drawn: Count
    counts: Mapping[Annotated[str, one_of(_FILES)], tuple[Count, ...]]
    sums: Mapping[Annotated[str, one_of(_FILES)], str]
    relation_names: tuple[str, ...] = ()
    twins: list[tuple[Count, Count, Count]] | None = None  # of a set that an earlier version wrote
    format: Literal["gcnmpi-pairs"] = "gcnmpi-pairs"
    version: Literal[1] = 1


# Fields of a set that its description has as they are.
_KNOWN = {f.name for f in fields(_Description)} & {f.name for f in fields(PairSet)} - {"twins"}
_HINT = "draw some: gcn-partition pairs {path} --split 0.85,0.05,0.10 --name {name}"
PAIRS = Sets("pairs", _Description, _HINT)
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
        pairs = replace(pairs, twins=twins_by_name(manifest.schema))
    pairs = identified(_in_index_dtype(pairs, manifest.n))
    check_pairs(pairs, manifest.n)
    arrays = _arrays_of(pairs)
    facts = _Description(
        **{name: getattr(pairs, name) for name in _KNOWN},
        twins=[(a, b, int(turned)) for a, b, turned in pairs.twins or ()],
        counts={name: array.shape for name, array in arrays.items()},
        sums=content.sums_of(arrays),
    )
    with PAIRS.writing(path, pairs.name, force) as temporary:
        save_arrays(temporary, arrays)
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
    twins = twins_by_name(manifest.schema)
    if facts.twins is not None:
        twins = tuple(Twin(a, b, bool(turned)) for a, b, turned in facts.twins)
    try:
        if facts.sums.keys() != facts.counts.keys() or not set(MASKS) <= facts.counts.keys():
            raise UserError("pairs.json contradicts itself")
        if not all(max(a, b) < max(1, len(manifest.schema)) for a, b, _ in twins):
            raise UserError("twins in pairs.json are no relations")
        arrays = {
            file: map_array(folder / f"{file}.npy", "i", shape, again=_AGAIN)
            for file, shape in facts.counts.items()
        }
        if wrong := [file for file, a in arrays.items() if a.dtype != _dtype(file, manifest.n)]:
            raise UserError(f"{wrong[0]}.npy holds {arrays[wrong[0]].dtype}")
        known = {key: getattr(facts, key) for key in _KNOWN} | {"name": name, "twins": twins}
        pairs = PairSet(**known, **_by_kind(arrays))
        _check_shapes(pairs)
        if check:
            _check_vertices(arrays, manifest.n)
            for file, text in content.sums_of(arrays).items():
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
    return replace(pairs, id=content.named_id(len(MASKS), _arrays_of(pairs), facts))


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
    for mask, array in pairs.positives.items():
        loops = np.flatnonzero(array[:, 0] == array[:, 1])
        if len(loops) and not pairs.relations:
            pair = tuple(array[loops[0]].tolist())
            raise UserError(f"{mask} has the pair {pair}: a vertex is no partner of itself")
    if pairs.drawn and n < 3:
        raise UserError(f"candidates cannot be drawn: the graph has {n} vertices")
    _check_apart(pairs, n)


def _check_apart(pairs: PairSet, n: int) -> None:
    """Refuse a pair to train on that is held out."""
    for other in HELD_OUT:
        held = np.sort(pairs.keys(other, n))
        common = [held[:0]]
        for start in range(0, len(pairs.positives["train"]) if len(held) else 0, _AT_ONCE):
            found = pairs.keys("train", n, slice(start, start + _AT_ONCE))
            common.append(found[_among(held, found)])
        count = sum(map(len, common))
        if count:
            example = int(np.concatenate(common)[0]) // (pairs.kinds if pairs.relations else 1)
            raise UserError(
                f"{count:,} pairs to train on are also in {other}, such as {divmod(example, n)}",
                "gcn-partition pairs --drop-held-out leaves them out of train",
            )


def _check_shapes(pairs: PairSet) -> None:
    if pairs.replaced not in _REPLACED:
        raise UserError(f"replaced is {pairs.replaced!r}, not {' or '.join(_REPLACED)}")
    if pairs.drawn < 0 or (pairs.drawn and pairs.seed is None):
        raise UserError("candidates that are drawn need a seed")
    if pairs.positives.keys() != set(MASKS):
        raise UserError(f"positives are of {', '.join(pairs.positives)}, not {', '.join(MASKS)}")
    sizes = {
        _file(mask, kind): len(a) for kind in _KINDS[:2] for mask, a in getattr(pairs, kind).items()
    }
    for name, array in _arrays_of(pairs).items():
        mask, kind = _mask(name), _kind(name)
        if kind == "relations":
            right = array.shape == (sizes.get(mask, 0),)
        elif kind == "candidates":
            right = array.ndim == 2 and len(array) == sizes[mask]
            right = right and not (pairs.replaced == "both" and array.shape[1] % 2)
        else:
            right = array.ndim == 2 and array.shape[1] == 2
            if name == "train_negatives":
                right = right and not (len(array) % sizes[mask] if sizes[mask] else len(array))
        if not right or array.dtype.kind not in "iu":
            count = f"{sizes[mask.partition('_')[0]]:,} positives"
            raise UserError(f"{name} is {array.dtype} of shape {array.shape}, for {count}")


def _check_vertices(arrays: Mapping[str, np.ndarray], n: int) -> None:
    """Refuse arrays of a set with vertices that there are not, in bounded memory."""
    for name, array in arrays.items():
        for start in range(0, 0 if _kind(name) == "relations" else len(array), _AT_ONCE):
            piece = array[start : start + _AT_ONCE]
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
    masks = (*MASKS, *_OF_NEGATIVES)
    named = {_file(mask, kind): getattr(pairs, kind).get(mask) for kind in _KINDS for mask in masks}
    return {name: np.ascontiguousarray(a) for name, a in named.items() if a is not None}


def _by_kind(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The arrays of a set as its fields have them."""
    return {
        kind: {_mask(file): array for file, array in arrays.items() if _kind(file) == kind}
        for kind in _KINDS
    }


def _file(mask: str, kind: str) -> str:
    return mask if kind == "positives" else f"{mask}_{kind}"


def _kind(file: str) -> str:
    return file.rpartition("_")[2] if "_" in file else "positives"


def _mask(file: str) -> str:
    return file.rpartition("_")[0] or file


def _dtype(file: str, n: int) -> np.dtype:
    return np.dtype(np.int32) if _kind(file) == "relations" else index_dtype(n)


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
    parsed = _parsed_shares(shares)
    require(0 <= seed <= _MAX_SEED, f"seed {seed} is outside 0..2^63-1")
    if negatives < 0 or candidates < 0:
        raise UserError("a number of negatives or candidates is not below 0")
    masks: dict[str, list[np.ndarray]] = {mask: [] for mask in (*MASKS, *_OF_NEGATIVES)}
    twins = twins_of(graph, directed) if twins is None else twins
    groups = _groups(graph, directed, relations, twins)
    if relations and not any(len(group.found) for group in groups):
        raise UserError(f"there are no arcs of {', '.join(relations)} to split into pairs")
    for group in groups:
        sizes = [int(share * len(group.every)) for share in parsed[1:]]
        mask_of = _masks_of(len(group.every), sizes, key(seed, _ORDER, *group.family))
        if group.edges is not group.every:
            mask_of = mask_of[np.searchsorted(group.every, group.edges)]
        for number, mask in enumerate(MASKS):
            masks[mask].append(_from_keys(group.found[mask_of == number], graph.n))
        wanted = [len(masks[mask][-1]) * negatives for mask in HELD_OUT]
        base = key(seed, _NEGATIVES, *group.numbers)
        drawn = non_arcs(graph, sum(wanted), directed, base, group.ends)
        for mask, piece in zip(_OF_NEGATIVES, np.split(drawn, wanted[:1]), strict=True):
            masks[mask].append(_from_keys(np.sort(piece), graph.n))
    masks = {mask: of for mask, of in masks.items() if negatives or mask in MASKS}
    found = {mask: of[0] if len(of) == 1 else np.concatenate(of) for mask, of in masks.items()}
    firsts = np.array([number for group in groups for number in group.numbers], np.int32)
    sizes_of = {mask: [len(piece) for piece in of] for mask, of in masks.items()}
    made = " of ".join([f"split {','.join(map(str, shares))}", *relations])
    graph_id = content.content_id(graph) if graph_id is None else graph_id
    return identified(PairSet(
        name, graph_id, "", directed, seed, made, {mask: found[mask] for mask in MASKS},
        negatives={_mask(mask): found[mask] for mask in _OF_NEGATIVES if negatives},
        drawn=candidates,
        relations={mask: np.repeat(firsts, n) for mask, n in sizes_of.items() if len(firsts)},
        relation_names=names_of(graph.relations),
        twins=tuple(twins),
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
            few = f"the graph has {have:,} pairs without an arc, {count:,} negatives are asked for"
            hint = "give fewer --negatives, or 0 and --candidates"
            raise UserError(f"{few}: it is too dense", hint)
        stop = min(total, start + min(_AT_ONCE, 2 * (count - have) + 64))
        numbers = permuted(np.arange(start, stop), total, base)
        pair_of = _directed_pair if directed else _undirected_pair
        first, second = np.divmod(numbers, size) if apart else pair_of(numbers, size)
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
class _Group:
    """Pairs of a relation, which may have the edges of others: an edge is in one mask for all.

    Attributes
    ----------
    found, edges : (m,) int64
        Their keys, increasing, and these as the ``family`` of relations with such edges has them.
    every : int64
        The keys of all edges of the family, increasing.
    numbers, family : tuple of int
        The number of the relation, and the first one of the family; empty without relations.
    ends : (range, range)
        The vertices that the first end and the second one can be.
    """

    found: np.ndarray
    edges: np.ndarray
    every: np.ndarray
    numbers: tuple[int, ...]
    family: tuple[int, ...]
    ends: tuple[range, range]


def _groups(
    graph: Graph, directed: bool, names: Sequence[str], twins: Collection[Twin]
) -> list[_Group]:
    """The pairs that the arcs of each relation make, or all arcs where there are none."""
    types, kinds, relations = graph.vertex_types, graph.arc_type, graph.relations
    found: dict[int, np.ndarray] = {}
    if types is None or kinds is None:
        if names:
            raise UserError(f"--relation {names[0]}: the graph has no relations", "leave it out")
        found[0] = _pairs_of(graph, directed)
    else:
        chosen = [place_of(name, relations, "--relation") for name in dict.fromkeys(names)]
        order, source = np.argsort(kinds, kind="stable"), arcs(graph)
        bounds = np.searchsorted(kinds[order], np.arange(len(relations) + 1))
        for number in chosen or _without_twins(graph.schema.forward, twins):
            some = order[bounds[number] : bounds[number + 1]]
            pairs = np.column_stack([source[some], graph.indices[some]])
            pairs = pairs[pairs[:, 0] != pairs[:, 1]]
            apart = relations[number].source != relations[number].target
            found[number] = distinct(keys(pairs, graph.n, directed or apart))
    groups = []
    for number, (of, edges, every, first) in _related(found, twins, graph.n).items():
        if types is None or kinds is None:
            groups.append(_Group(of, edges, every, (), (), (range(graph.n), range(graph.n))))
        else:
            source_type, _, target_type = relations[number]
            ends = types.range(source_type), types.range(target_type)
            groups.append(_Group(of, edges, every, (number,), (first,), ends))
    return groups


def _without_twins(numbers: Sequence[int], twins: Collection[Twin]) -> list[int]:
    """Some relations but those that have the edges of an earlier one, which has theirs."""
    same, kept = mutual(twins), dict[int, None]()
    for number in numbers:
        if kept.keys().isdisjoint(same.get(number, ())):
            kept[number] = None
    return list(kept)


def _related(
    found: Mapping[int, np.ndarray], twins: Collection[Twin], n: int
) -> dict[int, tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
    """Of each relation its keys, these as its family has them, those of the family, its first."""
    links: dict[int, list[tuple[int, bool]]] = {number: [] for number in found}
    for relation, other, turned in twins:
        if relation in found and other in found:
            links[relation].append((other, turned))
            links[other].append((relation, turned))
    made: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray, int]] = {}
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
        made |= {number: (found[number], of, every, first) for number, of in edges.items()}
    return {number: made[number] for number in found}


def _as_edges(found: np.ndarray, turned: bool, both: bool, n: int) -> np.ndarray:
    """Keys of pairs turned round, or the same for both ways of an edge."""
    if not (turned or both):
        return found
    first, second = np.divmod(found, n)
    pairs = np.column_stack([second, first] if turned else [first, second])
    return keys(pairs, n, directed=not both)


def _pairs_of(graph: Graph, directed: bool) -> np.ndarray:
    """Keys of the pairs that the arcs of a graph make, without loops, increasing: (m,) int64."""
    # Of a symmetric graph, the arcs to larger vertices are all pairs.
    once = not directed and content.excess_of(graph, False) == 0
    pieces = [np.zeros(0, np.int64)]
    for _, _, source, target in arc_pieces(graph):
        kept = source < target if once else source != target
        pieces.append(keys(np.column_stack([source[kept], target[kept]]), graph.n, directed))
    found = np.concatenate(pieces)
    del pieces
    return distinct(found) if (found[1:] <= found[:-1]).any() else found


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

    def near(ends: np.ndarray, kind: np.ndarray | int) -> np.ndarray:
        found = (ends[:, 0] * n + ends[:, 1]) * kinds + kind
        return found[(ends[:, 0] >= low) & (ends[:, 0] <= high)]

    for mask in HELD_OUT:
        every = pairs.positives[mask]
        for start in range(0, len(every), _AT_ONCE):
            piece = slice(start, start + _AT_ONCE)
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
