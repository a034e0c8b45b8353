"""Sets of pairs of vertices for link prediction, as a graph folder keeps them.

::

    G.graph/pairs/NAME/
        pairs.json
        train.npy val.npy test.npy
        [train_negatives.npy val_negatives.npy test_negatives.npy]
        [val_candidates.npy test_candidates.npy]
        [train_relations.npy val_relations.npy test_relations.npy]
        [val_negatives_relations.npy test_negatives_relations.npy]

A set is written whole or not at all. The graph itself keeps all of its arcs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from partition.errors import UserError
from partition.graph import content
from partition.graph.folders import Sets, map_array
from partition.graph.graph import MASKS, index_dtype
from partition.graph.manifest import dump_json, read_manifest
from partition.graph.twins import Twin, twins_by_name
from partition.records import Count, Whole, atomic_file, one_of

FORMAT = "gcnmpi-pairs"
VERSION = 1
REPLACED = ("second", "both")
HELD_OUT = ("val", "test")
OF_NEGATIVES = tuple(f"{mask}_negatives" for mask in HELD_OUT)  # in ``PairSet.relations``
FILES = (
    *MASKS,
    *(f"{mask}_negatives" for mask in MASKS),
    *(f"{mask}_candidates" for mask in HELD_OUT),
    *(f"{mask}_relations" for mask in (*MASKS, *OF_NEGATIVES)),
)
MAX_SEED = 2**63 - 1
_AT_ONCE = 1 << 20  # pairs that are looked at at once


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
    replaced: Annotated[str, one_of(REPLACED)]
    drawn: Count
    counts: Mapping[Annotated[str, one_of(FILES)], tuple[Count, ...]]
    sums: Mapping[Annotated[str, one_of(FILES)], str]
    relation_names: tuple[str, ...] = ()
    twins: list[tuple[Count, Count, Count]] | None = None  # of a set that an earlier version wrote
    format: str = FORMAT
    version: int = VERSION


# Fields of a set that its description has as they are.
KNOWN = {f.name for f in fields(_Description)} & {f.name for f in fields(PairSet)} - {"twins"}
PAIRS = Sets(
    "pairs",
    _Description,
    "draw some: gcn-partition pairs {path} --split 0.85,0.05,0.10 --name {name}",
)
AGAIN = PAIRS.again
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
    if manifest.id != pairs.graph_id:
        raise UserError(f"{path} is another graph than the pairs were made for")
    if pairs.twins is None:
        pairs = replace(pairs, twins=twins_by_name(manifest.schema))
    pairs = identified(_in_index_dtype(pairs, manifest.n))
    check_pairs(pairs, manifest.n)
    arrays = arrays_of(pairs)
    facts = _Description(
        **{name: getattr(pairs, name) for name in KNOWN},
        twins=[(a, b, int(turned)) for a, b, turned in pairs.twins or ()],
        counts={name: array.shape for name, array in arrays.items()},
        sums=content.sums_of(arrays),
    )
    with PAIRS.writing(path, pairs.name, force) as temporary:
        for name, array in arrays.items():
            with atomic_file(temporary / f"{name}.npy") as file:
                np.save(file, array, allow_pickle=False)
        with atomic_file(temporary / "pairs.json", "w") as file:
            dump_json(file, asdict(facts))
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
        raise UserError(
            f"pairs {name!r} in {path} were made for another graph "
            f"(id {facts.graph_id}, this graph is {manifest.id})",
            AGAIN,
        )
    arrays = {}
    for file, shape in facts.counts.items():
        arrays[file] = map_array(folder / f"{file}.npy", shape, "i", again=AGAIN)
        expected = np.dtype(np.int32) if _kind(file) == "relations" else index_dtype(manifest.n)
        if arrays[file].dtype != expected:
            raise UserError(
                f"{folder}/{file}.npy holds {arrays[file].dtype}, not {expected}", AGAIN
            )
    if facts.sums.keys() != arrays.keys() or not set(MASKS) <= arrays.keys():
        raise UserError(f"{folder}/pairs.json is damaged: it contradicts itself", AGAIN)
    by_kind: dict[str, dict[str, np.ndarray]] = {kind: {} for kind in _KINDS}
    for file, array in arrays.items():
        by_kind[_kind(file)][_mask(file)] = array
    twins = twins_by_name(manifest.schema)
    if facts.twins is not None:
        count = max(1, len(manifest.schema))
        if not all(max(a, b) < count for a, b, _ in facts.twins):
            raise UserError(f"{folder}/pairs.json is damaged: twins are no relations", AGAIN)
        twins = tuple(Twin(a, b, bool(turned)) for a, b, turned in facts.twins)
    said = {key: getattr(facts, key) for key in KNOWN}
    pairs = PairSet(**said | by_kind | {"name": name}, twins=twins)
    try:
        _check_shapes(pairs)
        if check:
            for file, array in arrays.items():
                if _kind(file) != "relations":
                    _check_vertices(file, array, manifest.n)
    except UserError as error:
        raise UserError(f"{folder} is damaged: {error.message}", AGAIN) from None
    if check:
        for file, text in content.sums_of(arrays).items():
            if facts.sums[file] != text:
                wrong = f"{file}.npy does not hold what pairs.json says"
                raise UserError(f"{folder} is damaged: {wrong}", AGAIN)
    return pairs


def keep_pairs(old: Path, new: Path, graph_id: str) -> list[str]:
    """Bring along the sets of the graph ``graph_id``: see :meth:`Sets.keep`."""
    return PAIRS.keep(old, new, lambda facts: facts.graph_id == graph_id)


def identified(pairs: PairSet) -> PairSet:
    """The set with its content id: a hash of its arrays, and of all that says what they mean."""
    facts = {key: getattr(pairs, key) for key in ("graph_id", "directed", "replaced", "drawn")}
    facts["seed"] = pairs.seed if pairs.drawn else None
    if pairs.twins:
        facts["twins"] = [list(twin) for twin in pairs.twins]
    return replace(pairs, id=content.named_id(len(MASKS), arrays_of(pairs), facts))


def arrays_of(pairs: PairSet) -> dict[str, np.ndarray]:
    """The arrays of a set in C order, by the names of their files."""
    masks = (*MASKS, *OF_NEGATIVES)
    named = {_file(mask, kind): getattr(pairs, kind).get(mask) for kind in _KINDS for mask in masks}
    return {name: np.ascontiguousarray(a) for name, a in named.items() if a is not None}


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
    if pairs.seed is not None and not 0 <= pairs.seed <= MAX_SEED:
        raise UserError(f"seed {pairs.seed} is outside 0..2^63-1")
    for name, array in arrays_of(pairs).items():
        if _kind(name) != "relations":
            _check_vertices(name, array, n)
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
        every, count, example = pairs.positives["train"], 0, 0
        for start in range(0, len(every) if len(held) else 0, _AT_ONCE):
            found = pairs.keys("train", n, slice(start, start + _AT_ONCE))
            place = np.minimum(np.searchsorted(held, found), len(held) - 1)
            common = found[held[place] == found]
            if len(common) and not count:
                example = int(common[0])
            count += len(common)
        if count:
            pair = divmod(example // (pairs.kinds if pairs.relations else 1), n)
            raise UserError(
                f"{count:,} pairs to train on are also in {other}, such as {pair}",
                "gcn-partition pairs --drop-held-out leaves them out of train",
            )


def _check_shapes(pairs: PairSet) -> None:
    if pairs.replaced not in REPLACED:
        raise UserError(f"replaced is {pairs.replaced!r}, not {' or '.join(REPLACED)}")
    if pairs.drawn < 0 or (pairs.drawn and pairs.seed is None):
        raise UserError("candidates that are drawn need a seed")
    sizes = {mask: len(array) for mask, array in pairs.positives.items()}
    negatives = {f"{mask}_negatives": len(array) for mask, array in pairs.negatives.items()}
    if sizes.keys() != set(MASKS):
        raise UserError(f"positives are of {', '.join(sizes)}, not of {', '.join(MASKS)}")
    for name, array in arrays_of(pairs).items():
        mask, kind = _mask(name), _kind(name)
        if kind == "relations":
            right = array.shape == ((sizes | negatives).get(mask, 0),)
        elif kind == "candidates":
            right = array.ndim == 2 and len(array) == sizes[mask]
            right = right and not (pairs.replaced == "both" and array.shape[1] % 2)
        else:
            right = array.ndim == 2 and array.shape[1] == 2
            if name == "train_negatives":
                right = right and not (len(array) % sizes[mask] if sizes[mask] else len(array))
        if not right or array.dtype.kind not in "iu":
            raise UserError(
                f"{name} is {array.dtype} of shape {array.shape}, "
                f"for {sizes[mask.partition('_')[0]]:,} positives"
            )


def _check_vertices(name: str, array: np.ndarray, n: int) -> None:
    for start in range(0, len(array), _AT_ONCE):
        piece = array[start : start + _AT_ONCE]
        if piece.size and (piece.min() < 0 or piece.max() >= n):
            wrong = int(piece.min() if piece.min() < 0 else piece.max())
            raise UserError(f"{name} has the vertex {wrong}: the graph has 0..{n - 1}")


def _in_index_dtype(pairs: PairSet, n: int) -> PairSet:
    """The set with arrays of the types that files have; numbers that do not fit are refused."""

    def converted(kind: str, mask: str, array: np.ndarray) -> np.ndarray:
        array = np.asarray(array)
        dtype = np.dtype(np.int32) if kind == "relations" else index_dtype(n)
        if array.dtype.kind not in "iu" and array.size:
            raise UserError(f"{_file(mask, kind)} holds {array.dtype}, not whole numbers")
        limits = np.iinfo(dtype)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise UserError(f"{_file(mask, kind)} has the number {array.max()}")
        return array.astype(dtype, copy=False)

    arrays: dict[str, Any] = {
        kind: {mask: converted(kind, mask, a) for mask, a in getattr(pairs, kind).items()}
        for kind in _KINDS
    }
    return replace(pairs, **arrays)


_KINDS = ("positives", "negatives", "candidates", "relations")


def _file(mask: str, kind: str) -> str:
    return mask if kind == "positives" else f"{mask}_{kind}"


def _kind(file: str) -> str:
    return file.rpartition("_")[2] if "_" in file else "positives"


def _mask(file: str) -> str:
    return file.rpartition("_")[0] or file
