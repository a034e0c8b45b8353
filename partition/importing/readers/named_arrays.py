"""Graphs as named arrays, by the names of PyTorch Geometric, from files of several libraries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from partition.errors import UserError
from partition.graph.graph import MASKS
from partition.importing.readers import Layout, Source
from partition.importing.readers.arc_columns import pick
from partition.importing.readers.classes import class_labels
from partition.importing.readers.edge_index import ends_of
from partition.importing.readers.files import check_vertices, finite_features, finite_weights
from partition.importing.readers.sparse import check_csr, dense_features
from partition.importing.readers.vertex_files import checked_targets

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
        raise UserError(
            f"{where} has no edge_index", f"it has {', '.join(map(str, fields)) or 'nothing'}"
        )
    source, target = ends_of(fields["edge_index"], f"{where}: edge_index", "(2, E)")
    n = _number_of_vertices(n, fields, source, target, where)
    graph = Source(n, source, target, format=format)
    if (x := fields.get("x")) is not None:
        graph = replace(graph, features=finite_features(x, f"{where}: x"))
    if (y := fields.get("y")) is not None:
        kind, values = labels_or_targets(y)
        if kind == "labels":
            labels, names = class_labels(values, f"{where}: y")
            graph = replace(graph, labels=labels, class_names=names)
        else:
            graph = replace(graph, targets=checked_targets(values, f"{where}: y"))
    for name, rows in (("x", x), ("y", y)):
        if rows is not None and len(rows) != n:
            raise UserError(f"{where}: {name} has {len(rows)} rows, the graph has {n} vertices")
    found = {name: fields.get(f"{name}_mask") for name in MASKS}
    masks = {
        name: _mask(mask, n, f"{where}: {name}_mask")
        for name, mask in found.items()
        if mask is not None
    }
    weights = None
    weight = weights_name(fields, layout.arc_features)
    if weight is not None:
        given = fields[weight]
        if given.size != len(source) or given.dtype.kind not in "biuf":
            raise UserError(f"{where}: {weight} is not a number for each of {len(source)} arcs")
        weights = finite_weights(given.reshape(-1), f"{where}: {weight}")
    named = {
        name: array
        for name, array in of_arcs.items()
        if name != weight and array.ndim and len(array) == len(source)
    }
    data, weights, left = pick(named, weights, layout.arc_features, layout.arc_label, where)
    unread = {*left, *map(str, (set(fields) | set(of_arcs)) - {*FIELDS, weight, *named})}
    said = [f"weight {weight}"] if weight == "edge_attr" else []
    taken = sorted(set(named) - set(left))
    said += [f"data of arcs {', '.join(taken)}"] if taken else []
    said += [f"not read: {', '.join(sorted(unread))}"] if unread else []
    notes = {"columns": "; ".join(said)} if said else {}
    return replace(graph, weights=weights, masks=masks, notes=notes, arc_data=data)


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
            csr = sp.csr_array(matrix)
            csr = check_csr((csr.indptr, csr.indices, csr.data, csr.shape), f"{where}: {name}")
            found[name] = dense_features(csr, f"{where}: {name}")
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


def labels_or_targets(y: np.ndarray) -> tuple[str, np.ndarray]:
    """``y`` as ("labels", (n,)), if it is whole numbers in one column; otherwise ("targets", y)."""
    column = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if column.ndim == 1 and column.dtype.kind in "biuUS":
        return "labels", column.astype(np.int8) if column.dtype.kind == "b" else column
    return "targets", y


def _number_of_vertices(
    n: object, fields: Mapping[str, np.ndarray], source: np.ndarray, target: np.ndarray, where: str
) -> int:
    """``n``, the rows of ``x`` or ``y``, or the largest vertex and 1."""
    if n is None:
        arrays = [fields[name] for name in ("x", "y") if fields.get(name) is not None]
        sizes = [len(array) for array in arrays if array.ndim]
        n = sizes[0] if sizes else int(max(source.max(initial=-1), target.max(initial=-1))) + 1
    elif type(n) is not int or not 0 < n < 2**62:
        raise UserError(f"{where}: num_nodes is not a number of vertices")
    check_vertices(n, where)
    return n


def _mask(mask: np.ndarray, n: int, where: str) -> np.ndarray:
    """(n,) or (n, splits) bool."""
    binary = mask.dtype.kind == "b" or (mask.dtype.kind in "iu" and np.isin(mask, (0, 1)).all())
    if not binary or mask.ndim not in (1, 2) or len(mask) != n or 0 in mask.shape:
        raise UserError(
            f"{where} is {mask.dtype} {mask.shape}, not a bool for each of {n} vertices"
        )
    mask = mask.astype(bool)
    return mask[:, 0] if mask.ndim == 2 and mask.shape[1] == 1 else mask
