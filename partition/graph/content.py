"""Hashes of arrays: content ids of a graph, and checksums that ranks add up.

An id is of all bytes in their order, so one process has to read them all. A checksum is a sum over
all words of a file, so each of many can read a part of it, and any number of them finds the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from partition.errors import UserError
from partition.graph.graph import MASKS, Graph, arc_pieces
from partition.graph.hashing import AT_ONCE, MASK64, key, mixed
from partition.graph.sparse_rows import FILES as SPARSE_FILES
from partition.graph.sparse_rows import SparseRows
from partition.resident import forget_pages

ARC_FILES = ("indptr", "indices", "weights")
ARC_FEATURES = ("arc_features",)
ARC_TYPE = "arc_type"
FEATURE_FILES = ("features", *SPARSE_FILES)
TYPE_FEATURES = "features/"  # begins the names of files of one type of vertices
_ALPHA, BETA = key(0, 0x5355), key(0, 0x4D53)  # keys of their own
_STRIDE = 0xD1342543DE82EF95  # odd: makes one number of two


def content_id(graph: Graph) -> str:
    """Hash of the structure of a graph: n, indptr, indices and weights; 32 hex digits."""
    return _digest(graph.n, graph.indptr, graph.indices, graph.weights)


def data_id(graph: Graph) -> str:
    """Hash of the data of vertices and arcs: features, labels, targets, masks, ids; 32 hex digits.

    Which of them there are counts too, with their types and shapes, and the names of the classes;
    of a heterogeneous graph, types of vertices and the relation of each arc.
    """
    names: dict[str, object] = {"class_names": list(graph.class_names or ())}
    if graph.arc_data.class_names:
        names["arc_class_names"] = list(graph.arc_data.class_names)
    if graph.vertex_types is not None:
        names["vertex_types"] = [f"{n} {name}" for name, n in graph.vertex_types.counts.items()]
        names["relations"] = [list(one) for one in graph.relations]
    return named_id(graph.n, _data_arrays(graph), names)


def named_id(
    number: int, arrays: Mapping[str, np.ndarray | SparseRows], facts: Mapping[str, object]
) -> str:
    """Hash of a number, of named arrays with their types and shapes, and of facts about them."""
    forms = {name: [array.dtype.str, list(array.shape)] for name, array in arrays.items()}
    head = np.frombuffer(json.dumps({**forms, **facts}).encode(), np.uint8)
    return _digest(number, head, *arrays.values())


def parts_id(k: int, parts: np.ndarray) -> str:
    """Hash of a partition: k and the part of each vertex, int32; 32 hex digits."""
    return _digest(k, parts)


def file_arrays(graph: Graph) -> dict[str, np.ndarray]:
    """The arrays of a graph as a folder keeps them, by the names of their files."""
    arcs = {name: getattr(graph, name) for name in ARC_FILES}
    data = _data_arrays(graph)
    if isinstance(graph.features, SparseRows):
        of_arcs = {name: data.pop(name) for name in [*data] if name.startswith("arc_")}
        data = data | graph.features.files() | of_arcs
        del data["features"]
    return {name: np.ascontiguousarray(a) for name, a in (arcs | data).items() if a is not None}


def _data_arrays(graph: Graph) -> dict[str, Any]:
    """The data of vertices and of arcs, by the names of their files.

    Features that are kept as CSR read like the array that they stand for.
    """
    named = {
        "features": graph.features,
        "labels": graph.labels if graph.classes else None,
        "targets": graph.targets,
        "ids": graph.ids,
        **{f"{name}_mask": graph.masks.get(name) for name in MASKS},
        **{TYPE_FEATURES + name: array for name, array in graph.type_features.items()},
        **graph.arc_data.columns(),
        ARC_TYPE: graph.arc_type,
    }
    return {
        name: a if isinstance(a, SparseRows) else np.ascontiguousarray(a)
        for name, a in named.items()
        if a is not None
    }


class Known(NamedTuple):
    """Facts about the arrays of a graph that many have looked at together.

    Attributes
    ----------
    symmetric : (bool, bool)
        See :func:`partition.graph.graph.symmetry`.
    sums : mapping of str to str
        Those of some of the files: see :func:`sums_of`.
    """

    symmetric: tuple[bool, bool]
    sums: Mapping[str, str]


def sums_of(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Type and checksum of each array, as a manifest has them."""
    return {name: described_sum(a, part_of_sum(a, 0, len(a))) for name, a in arrays.items()}


def described_sum(array: np.ndarray, total: int) -> str:
    """The type of an array and its checksum as text: ``<f4 0123456789abcdef``."""
    return f"{array.dtype.str} {total & MASK64:016x}"


def part_of_sum(array: np.ndarray, first: int, last: int) -> int:
    """The share of the rows first … last − 1 in the checksum of an array, a sum mod 2⁶⁴.

    Words of at most 32 bits, each times an odd number of 64 bits that depends on its place: a word
    that changes always changes the sum; any other change does but for one in 2³² or fewer (the
    multilinear hashes of Lemire and Kaser 2014). It tells accidents from data, not forgeries. The
    array is in C order; if it is mapped, a piece at a time is read.
    """
    rows = array[first:last].reshape(-1)
    if not rows.size:
        return 0
    width = rows.dtype.itemsize
    words = rows.view(np.uint32 if width % 4 == 0 else f"u{width}")
    begin = first * (len(words) // (last - first))
    places = min(AT_ONCE, begin % AT_ONCE + len(words))
    within = mixed(np.arange(places), _ALPHA) | np.uint64(1)
    total, product = 0, np.empty(AT_ONCE, np.uint64)
    for block in range(begin // AT_ONCE, -(-(begin + len(words)) // AT_ONCE)):
        start, stop = block * AT_ONCE - begin, (block + 1) * AT_ONCE - begin
        skipped = max(0, -start)
        piece = words[start + skipped : stop]
        weighed = product[: len(piece)]
        np.multiply(piece, within[skipped : skipped + len(piece)], out=weighed)
        total += (key(BETA, block) | 1) * int(weighed.sum())
    return total & MASK64


def reverse_excess(row: np.ndarray, column: np.ndarray, weight: np.ndarray | None) -> int:
    """A sum mod 2⁶⁴ over entries of a matrix, which is 0 over all of a symmetric one.

    Each entry (i, j) with i < j adds a hash of (i, j, weight), each (j, i) subtracts the same: so
    entries without a reverse of equal weight remain. Of others it is 0 once in 2⁶⁴. Without weights
    it is the sum of the pattern.
    """
    total = 0
    for start in range(0, len(row), AT_ONCE):
        piece = slice(start, start + AT_ONCE)
        i, j = row[piece], column[piece]
        ends = np.minimum(i, j).astype(np.uint64) * np.uint64(_STRIDE)
        ends += np.maximum(i, j).astype(np.uint64)
        hashes = mixed(ends, _ALPHA)
        if weight is not None:
            # −0.0 and 0.0 are equal, and have other bits.
            hashes ^= (weight[piece] + 0.0).view(np.uint64)
            hashes = mixed(hashes, BETA)
        sign = (i < j).astype(np.uint64)
        sign -= i > j
        total += int(np.dot(hashes, sign))
    return total & MASK64


def check_sums(path: Path, found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """A UserError if a file that was read from the folder ``path`` has another sum than expected.

    The expected sums are the manifest's, of all files; empty where it knows none.
    """
    for name, text in found.items():
        if expected.get(name, text) != text:
            raise _damaged(path, f"{name}.npy does not hold what the manifest says")


def check_symmetry(path: Path, excess: int) -> None:
    """A UserError if a sum of :func:`reverse_excess` is not that of a symmetric matrix."""
    if excess & MASK64:
        raise _damaged(
            path, "the manifest says that its arcs are symmetric, but one or more have no reverse "
            "of equal weight",
        )  # fmt: skip


def _damaged(path: Path, what: str) -> UserError:
    hint = f"import the graph again; gcn-partition check {path} looks at everything in it"
    return UserError(f"{path} is damaged: {what}", hint)


def excess_of(graph: Graph, values: bool) -> int:
    """The sum of :func:`reverse_excess` over all arcs of a graph; in bounded memory."""
    total = 0
    for first, last, row, column in arc_pieces(graph):
        place = slice(graph.indptr[first], graph.indptr[last])
        weight = graph.weights[place] if values and graph.weights is not None else None
        total += reverse_excess(row, column, weight)
        forget_pages(graph.indices)
    return total & MASK64


def _digest(number: int, *arrays: np.ndarray | SparseRows | None) -> str:
    digest = hashlib.blake2b(np.int64(number).tobytes(), digest_size=16)
    for array in arrays:
        if array is None or not array.size:
            continue
        step = max(1, (1 << 24) // (array.nbytes // len(array)))
        for start in range(0, len(array), step):
            digest.update(array[start : start + step].tobytes())
            if isinstance(array, np.ndarray):
                forget_pages(array)
    return digest.hexdigest()
