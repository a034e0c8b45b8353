"""``.npz`` files: gnn-benchmark's (Shchur et al., 2018), heterophilous graphs, SciPy's matrices.

gnn-benchmark: CSR adjacency, attributes, labels. Its relatives call the arrays ``adj_data`` or
``adj_matrix.data``, ``attr_data``, ``attr_matrix.data`` or ``feature_data``.

Values that are all 1 are no weights. ``class_names`` or ``idx_to_class`` name classes where they
are plain text. There is no split: give masks, or ``--split``.

Heterophilous graphs (Platonov et al. 2023): ``edges`` (m, 2), each listed once and stored as two
arcs; ``node_features``, ``node_labels``; ``train_masks``, ``val_masks``, ``test_masks`` (splits,
n), all kept.

SciPy: ``scipy.sparse.save_npz(FILE, matrix.tocsr())``, row = source; CSR only.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.graph.graph import MASKS
from partition.importing.readers import Layout, Source
from partition.importing.readers.arc_columns import pick
from partition.importing.readers.classes import class_labels
from partition.importing.readers.files import (
    finite_features,
    finite_weights,
    quoted,
)
from partition.importing.readers.named_arrays import source_of
from partition.importing.readers.sparse import Csr, csr_arrays, dense_features, saved_csr
from partition.records import NUMBERS, TEXTS, npz_names, read_npz

PARTS = ("data", "indices", "indptr", "shape")
ADJACENCY = ("adj_", "adj_matrix.", "adj.")
ATTRIBUTES = ("attr_", "attr_matrix.", "attr.", "feature_", "features_", "features.")
DENSE = ("attr_matrix", "features", "attr", "x")
LABELS = ("labels", "label", "y")
# Plain arrays of texts; where they are pickled objects, they are not read.
SAVED = frozenset((*PARTS, "format"))
CLASS_NAMES = ("class_names", "idx_to_class")


def read(path: Path, layout: Layout) -> Source:
    """Read an adjacency matrix (CSR, row = source) and the attributes and labels with it.

    Members that are not known, and those that are pickled objects, are not touched.
    """
    where = str(path)
    names = npz_names(path)
    if "format" in names:
        matrix = saved_csr(read_npz(path, SAVED, kinds=NUMBERS + TEXTS), where)
        return with_data(arcs_of(matrix, where, "npz"), layout, where)
    if {"edges", "node_features"} <= names:
        return _heterophilous(path, names, layout)
    arrays = read_npz(path, WANTED)
    adjacency = _prefix(arrays, ADJACENCY)
    if adjacency is None:
        found = ", ".join(quoted(name) for name in sorted(names)[:12]) or "nothing"
        raise UserError(
            f"{path} has no array adj_indptr; it holds {found}",
            "an npz is one of gnn-benchmark, of the heterophilous graphs or of "
            "scipy.sparse.save_npz; of others, save the list of arcs as .npy and give the other "
            "arrays by --features and --labels, or call gcnmpi.graph.from_arrays",
        )
    arcs = arcs_of(csr_arrays(arrays, adjacency, where), f"{where}: {adjacency}data", "npz")
    features = _features(arrays, where)
    labels, class_names = None, None
    if name := _one(arrays, LABELS, where):
        labels, class_names = class_labels(arrays[name], where, _class_names(path, names))
    for what, array in (("attributes", features), ("labels", labels)):
        if array is not None and len(array) != arcs.n:
            raise UserError(f"{path} has {what} of {len(array)} vertices, the graph has {arcs.n}")
    arcs = with_data(arcs, layout, where)
    return replace(arcs, features=features, labels=labels, class_names=class_names)


def with_data(arcs: Source, layout: Layout, where: str) -> Source:
    """Arcs of :func:`arcs_of`, of which the weights may be a feature."""
    data, weights, _ = pick({}, arcs.weights, layout.arc_features, layout.arc_label, where)
    return replace(arcs, weights=weights, arc_data=data)


def _heterophilous(path: Path, names: set[str], layout: Layout) -> Source:
    """A graph of Platonov et al. (2023): edges without a direction, each listed once; splits."""
    masks = {f"{name}_masks": f"{name}_mask" for name in MASKS}
    of_arcs = {name for name in names if name.startswith("edge_")}
    wanted = {"edges", "node_features", "node_labels", *masks, *of_arcs} & names
    arrays = read_npz(path, frozenset(wanted))
    edges = arrays["edges"]
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise UserError(f"{path}: edges is not (m, 2), but {edges.shape}")
    fields = {"edge_index": edges.T, "x": arrays["node_features"]}
    fields |= {"y": arrays["node_labels"]} if "node_labels" in arrays else {}
    fields |= {masks[name]: array.T for name, array in arrays.items() if name in masks}
    data = {name: arrays[name] for name in sorted(of_arcs)}
    return replace(source_of(fields, str(path), "npz", layout, data), symmetric=True)


WANTED = frozenset(
    [prefix + part for prefix in (*ADJACENCY, *ATTRIBUTES) for part in PARTS] + [*DENSE, *LABELS]
)


def arcs_of(matrix: Csr, where: str, format: str) -> Source:
    """Vertices, arcs and their weights out of a checked CSR matrix, row = source.

    A UserError if it is not square, without vertices, or has an entry that is not finite.
    """
    indptr, indices, data, (rows, columns) = matrix
    if rows != columns:
        raise UserError(f"{where}: the adjacency matrix is {rows} x {columns}, not square")
    if rows == 0:
        raise UserError(f"{where} holds a graph without vertices")
    weights: np.ndarray | None = finite_weights(data, where)
    if (data == 1).all():
        weights = None  # the format has no other way to say that a graph is unweighted
    degree: np.ndarray = np.diff(indptr.astype(np.int64))
    source = np.repeat(np.arange(rows), degree)
    return Source(rows, source, indices, weights, format=format)


def _features(arrays: dict[str, np.ndarray], where: str) -> np.ndarray | None:
    sparse = _prefix(arrays, ATTRIBUTES)
    dense = _one(arrays, DENSE, where)
    if dense is not None:
        return finite_features(arrays[dense], f"{where}: {dense}")
    if sparse is not None:
        return dense_features(csr_arrays(arrays, sparse, where), f"{where}: {sparse.rstrip('_.')}")
    return None


def _class_names(path: Path, names: set[str]) -> np.ndarray | None:
    for name in CLASS_NAMES:
        if name in names:
            with contextlib.suppress(UserError):  # a pickle: the numbers of the classes will do
                return read_npz(path, (name,), kinds=TEXTS)[name]
    return None


def _prefix(arrays: dict[str, np.ndarray], prefixes: tuple[str, ...]) -> str | None:
    return next((prefix for prefix in prefixes if f"{prefix}indptr" in arrays), None)


def _one(arrays: dict[str, np.ndarray], names: tuple[str, ...], where: str) -> str | None:
    fitting = [name for name in names if name in arrays]
    if len(fitting) > 1:
        raise UserError(f"{where} holds {' and '.join(fitting)}: it is not clear which to read")
    return fitting[0] if fitting else None
