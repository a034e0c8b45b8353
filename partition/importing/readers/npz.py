"""Graphs as named arrays, and what different programs call them in ``.npz`` files."""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from partition.errors import UserError, require
from partition.graph.graph import MASKS
from partition.graph.sparse import sp
from partition.importing.readers import classes, files, vertex_tables
from partition.importing.readers.arc_columns import ends_of, is_binary, pick
from partition.importing.readers.source import Layout, Source
from partition.records import NUMBERS, TEXTS, npz_names, read_npz

MASK_FIELDS = tuple(f"{name}_mask" for name in MASKS)
FIELDS = ("edge_index", "edge_weight", "x", "y", *MASK_FIELDS)


def source_of(
    fields: Mapping[str, np.ndarray],
    where: str,
    format: str,
    layout: Layout,
    of_arcs: Mapping[str, np.ndarray],
    n: object = None,
) -> Source:
    """A graph out of arrays, by their names.

    These are ``edge_index`` (2, E), and those that there are of ``x`` (n, d), ``y`` (n,) or (n, c),
    ``edge_weight`` (E,) or (E, 1), or in its place ``edge_attr``, ``train_mask`` and so on, (n,) or
    (n, splits) bool. ``of_arcs`` are data of the arcs, (E, …), by names of their own, of which
    those are taken that ``layout`` or custom says. Others are noted as not read. ``n`` is the
    number of vertices, an int where it is known. A UserError if there is no ``edge_index``, or an
    array does not fit the others.
    """
    if "edge_index" not in fields:
        there = ", ".join(map(str, fields)) or "nothing"
        raise UserError(f"{where} has no edge_index", f"it has {there}")
    source, target = ends_of(fields["edge_index"], f"{where}: edge_index", "(2, E)")
    vertices = {name: fields[name] for name in ("x", "y") if fields.get(name) is not None}
    if n is None:
        sizes = [len(array) for array in vertices.values() if array.ndim]
        n = sizes[0] if sizes else int(max(source.max(initial=-1), target.max(initial=-1))) + 1
    elif type(n) is not int or not 0 < n < 2**62:
        raise UserError(f"{where}: num_nodes is not a number of vertices")
    files.check_vertices(n, where)
    found: dict[str, Any] = {}
    for name, rows in vertices.items():
        at = f"{where}: {name}"
        found |= {"features": files.finite_features(rows, at)} if name == "x" else learned(rows, at)
        require(len(rows) == n, f"{at} has {len(rows)} rows, the graph has {n} vertices")
    masks = {
        name.removesuffix("_mask"): _mask(fields[name], n, f"{where}: {name}")
        for name in MASK_FIELDS
        if fields.get(name) is not None
    }
    weights: np.ndarray | None = None
    weight = weights_name(fields, layout.arc_features)
    if weight is not None:
        given, at = fields[weight], f"{where}: {weight}"
        if given.size != len(source) or given.dtype.kind not in "biuf":
            form = f"{given.dtype} {given.shape}"
            raise UserError(f"{at} holds {form}, not a number for each of {len(source)} arcs")
        weights = files.finite_weights(given.reshape(-1), at)
    named = {
        name: array
        for name, array in of_arcs.items()
        if name != weight and array.ndim and len(array) == len(source)
    }
    data, weights, left = pick(named, weights, layout.arc_features, layout.arc_label, where)
    unread = {*left, *map(str, (set(fields) | set(of_arcs)) - {*FIELDS, weight, *named})}
    taken = ", ".join(sorted(set(named) - set(left)))
    said = ["weight edge_attr"] if weight == "edge_attr" else []
    said += [f"data of arcs {taken}"] if taken else []
    said += [f"not read: {', '.join(sorted(unread))}"] if unread else []
    notes = {"columns": "; ".join(said)} if said else {}
    return Source(
        n, source, target, weights, masks=masks, format=format, notes=notes, arc_data=data, **found
    )


def learned(values: np.ndarray, where: str, *, whole: bool = False) -> dict[str, Any]:
    """Labels with ``class_names``, or ``targets``, out of an array of either.

    ``whole``: fractions that are whole numbers are classes, too.
    """
    kind, found = classes.classes_or_targets(values, whole)
    if kind == "targets":
        return {"targets": vertex_tables.checked_targets(found, where)}
    labels, class_names = classes.class_labels(found, where)
    return {"labels": labels, "class_names": class_names}


def with_dense(fields: Mapping[str, Any], where: str) -> tuple[dict[str, np.ndarray], int | None]:
    """The fields with arrays in place of matrices of SciPy, and the vertices that one is of.

    ``adj_t``, with a row for each target, and ``adj`` are the arcs and their weights, unless there
    is an ``edge_index``; other matrices are arrays with zeros.
    """
    found = {name: value for name, value in fields.items() if not sp.issparse(value)}
    n = None
    for name, matrix in fields.items():
        if not sp.issparse(matrix):
            continue
        if name not in ("adj_t", "adj"):
            at = f"{where}: {name}"
            found[name] = files.dense_features(files.csr_of(matrix, at), at)
        elif fields.get("edge_index") is None and "edge_index" not in found:
            row, column = matrix.tocoo().coords
            found["edge_index"] = np.stack((column, row) if name == "adj_t" else (row, column))
            if matrix.shape[0] == matrix.shape[1]:
                n = int(matrix.shape[0])
            if (matrix.data != 1).any() and fields.get("edge_weight") is None:
                found["edge_weight"] = matrix.data
    return found, n


def weights_name(fields: Mapping[str, object], features: str | None = None) -> str | None:
    """Which of the fields has the weights: ``edge_weight``, or an ``edge_attr`` of one column.

    None of them, if it is named among ``features`` of arcs.
    """
    if features is not None and "edge_attr" in features:
        fields = {name: value for name, value in fields.items() if name != "edge_attr"}
    if fields.get("edge_weight") is not None:
        return "edge_weight"
    shape = getattr(fields.get("edge_attr"), "shape", None)
    return "edge_attr" if shape is not None and (len(shape) == 1 or shape[1:] == (1,)) else None


def _mask(mask: np.ndarray, n: int, where: str) -> np.ndarray:
    """(n,) or (n, splits) bool."""
    if not is_binary(mask) or mask.ndim not in (1, 2) or len(mask) != n or 0 in mask.shape:
        form = f"{mask.dtype} {mask.shape}"
        raise UserError(f"{where} is {form}, not a bool for each of {n} vertices")
    mask = mask.astype(bool)
    return mask[:, 0] if mask.ndim == 2 and mask.shape[1] == 1 else mask


_PARTS = ("data", "indices", "indptr", "shape")
_ADJACENCY = ("adj_", "adj_matrix.", "adj.")
_ATTRIBUTES = ("attr_", "attr_matrix.", "attr.", "feature_", "features_", "features.")
_DENSE = ("attr_matrix", "features", "attr", "x")
_LABELS = ("labels", "label", "y")
_CLASS_NAMES = ("class_names", "idx_to_class")
_WANTED = frozenset(
    [prefix + part for prefix in (*_ADJACENCY, *_ATTRIBUTES) for part in _PARTS]
    + [*_DENSE, *_LABELS]
)


def read(path: Path, layout: Layout) -> Source:
    """Read an adjacency matrix (CSR, row = source) and the attributes and labels with it.

    Members that are not known, and those that are pickled objects, are not touched.
    """
    where, names = str(path), npz_names(path)
    if "format" in names:
        arrays = read_npz(path, frozenset((*_PARTS, "format")), kinds=NUMBERS + TEXTS)
        return arcs_of(files.saved_csr(arrays, where), where, "npz", layout)
    if {"edges", "node_features"} <= names:
        return _heterophilous(path, names, layout)
    arrays = read_npz(path, _WANTED)
    adjacency = _prefix(arrays, _ADJACENCY)
    if adjacency is None:
        found = ", ".join(files.quoted(name) for name in sorted(names)[:12]) or "nothing"
        raise UserError(
            f"{path} has no array adj_indptr; it holds {found}",
            "an npz is one of gnn-benchmark, of the heterophilous graphs or of "
            "scipy.sparse.save_npz; of others, save the list of arcs as .npy and give the other "
            "arrays by --features and --labels, or call gcnmpi.graph.from_arrays",
        )
    matrix = files.csr_arrays(arrays, adjacency, where)
    arcs = arcs_of(matrix, f"{where}: {adjacency}data", "npz", layout)
    features, labels, class_names = None, None, None
    if dense := _one(arrays, _DENSE, where):
        features = files.finite_features(arrays[dense], f"{where}: {dense}")
    elif sparse := _prefix(arrays, _ATTRIBUTES):
        matrix = files.csr_arrays(arrays, sparse, where)
        features = files.dense_features(matrix, f"{where}: {sparse.rstrip('_.')}")
    if name := _one(arrays, _LABELS, where):
        labels, class_names = classes.class_labels(arrays[name], where, _class_names(path, names))
    for what, array in (("attributes", features), ("labels", labels)):
        if array is not None and len(array) != arcs.n:
            raise UserError(f"{path} has {what} of {len(array)} vertices, the graph has {arcs.n}")
    return replace(arcs, features=features, labels=labels, class_names=class_names)


def arcs_of(matrix: files.Csr, where: str, format: str, layout: Layout) -> Source:
    """Vertices, arcs and their weights, or data, out of a checked CSR matrix, row = source.

    A UserError if it is not square, without vertices, or has an entry that is not finite.
    """
    indptr, indices, values, (rows, columns) = matrix
    square = f"{where}: the adjacency matrix is {rows} x {columns}, not square"
    require(rows == columns, square)
    require(rows > 0, f"{where} holds a graph without vertices")
    weights: np.ndarray | None = files.finite_weights(values, where)
    if (values == 1).all():
        weights = None  # the format has no other way to say that a graph is unweighted
    degrees: np.ndarray = np.diff(indptr.astype(np.int64))
    source = np.repeat(np.arange(rows), degrees)
    data, weights, _ = pick({}, weights, layout.arc_features, layout.arc_label, where)
    return Source(rows, source, indices, weights, format=format, arc_data=data)


def _heterophilous(path: Path, names: set[str], layout: Layout) -> Source:
    """A graph of Platonov et al. (2023): edges without a direction, each listed once; splits."""
    masks = {f"{name}_masks": f"{name}_mask" for name in MASKS}
    of_arcs = {name for name in names if name.startswith("edge_")}
    wanted = {"edges", "node_features", "node_labels", *masks, *of_arcs} & names
    arrays = read_npz(path, frozenset(wanted))
    edges = arrays["edges"]
    require(edges.shape[1:] == (2,), f"{path}: edges is not (m, 2), but {edges.shape}")
    fields = {"edge_index": edges.T, "x": arrays["node_features"]}
    fields |= {"y": arrays["node_labels"]} if "node_labels" in arrays else {}
    fields |= {masks[name]: array.T for name, array in arrays.items() if name in masks}
    data = {name: arrays[name] for name in sorted(of_arcs)}
    return replace(source_of(fields, str(path), "npz", layout, data), symmetric=True)


def _class_names(path: Path, names: set[str]) -> np.ndarray | None:
    for name in (name for name in _CLASS_NAMES if name in names):
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
