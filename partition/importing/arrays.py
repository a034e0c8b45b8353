"""From arrays to a graph folder: graphs that a program has in memory in place of files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from partition.errors import UserError
from partition.graph.graph import MASKS, check_direction
from partition.graph.store import Manifest, check_target, write_graph
from partition.importing.assemble import build_graph
from partition.importing.readers import Source
from partition.importing.readers.arc_columns import ArcTable, arc_table
from partition.importing.readers.edge_index import ends_of
from partition.importing.readers.files import finite_weights
from partition.importing.readers.gnn_benchmark import arcs_of
from partition.importing.readers.numbering import check_ids
from partition.importing.readers.sparse import Csr, check_csr, dense_features
from partition.importing.splits import RandomSplit
from partition.importing.tensors import host_array
from partition.importing.vertex_data import attach_arrays


def import_arrays(
    out_path: str | os.PathLike[str],
    edge_index: object,
    *,
    edge_weight: object = None,
    n: int | None = None,
    ids: object = None,
    features: object = None,
    labels: object = None,
    targets: object = None,
    masks: Mapping[str, object] | None = None,
    split: RandomSplit | None = None,
    arc_features: object = None,
    arc_labels: object = None,
    arc_masks: Mapping[str, object] | None = None,
    undirected: bool = False,
    direction: str = "in",
    duplicates: str = "merge",
    self_loops: str = "keep",
    keep_features: str = "auto",
    missing_labels: Sequence[str] = (),
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> Manifest:
    """Make a graph folder out of arrays, with the checks of files that hold them.

    Parameters
    ----------
    out_path, direction, overwrite, report, keep_features
        See :func:`partition.graph.store.write_graph`.
    edge_index : (2, E) integers, or SciPy sparse matrix
        Sources and targets of the arcs, numbers from 0; or an (n, n) matrix with a row for each
        source, whose entries are weights unless all are 1.
    edge_weight : (E,) numbers, optional
        Finite weights of the arcs; 1 without it.
    n : int, optional
        Number of vertices; without it, the rows of features, labels or targets, or the largest
        number in ``edge_index`` and 1.
    ids : (n,) integers or texts, optional
        The names of the vertices, each once; their numbers without it.
    features : (n, d) numbers, or SciPy sparse matrix, optional
    labels : (n,) integers or texts, optional
        Classes, −1 for a vertex without a label; also (n, 1).
    targets : (n,) or (n, c) numbers, optional
        See :func:`partition.importing.vertex_data.attach`.
    masks : mapping of "train" / "val" / "test" to array, optional
        (n,) bool, or 0 and 1, or numbers of vertices; or (n, splits) bool.
    split : RandomSplit, optional
        How masks are drawn, in place of ``masks``.
    arc_features : (E,) or (E, d) numbers, optional
        Of each arc that ``edge_index`` lists; of a matrix, of its entries row by row.
    arc_labels : (E,) integers or texts, or (E,) or (E, tasks) fractions, optional
        Classes, −1 for an arc without one; or numbers to be learned, NaN where unknown.
    arc_masks : mapping of "train" / "val" / "test" to (E,) bool, optional
    undirected, duplicates, self_loops
        See :func:`partition.importing.assemble.build_graph`.
    missing_labels : sequence of str
        Words for no label: see :func:`partition.importing.readers.classes.class_labels`.

    Raises
    ------
    UserError
        For an array of another shape or kind, or arrays that are no graph; or if the folder cannot
        be written.
    """
    out_path = Path(out_path)
    check_direction(direction)
    check_target(out_path, overwrite)
    x = None if features is None else _features(features)
    y = None if labels is None else _numpy(labels, "y")
    if y is not None and y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    wanted = None if targets is None else _numpy(targets, "targets")
    rows = [len(array) for array in (x, y, wanted) if array is not None and array.ndim]
    source = _source(edge_index, edge_weight, rows[0] if n is None and rows else n)
    if ids is not None:
        source = replace(source, ids=_ids(ids, source.n))
    of_arcs = {"features": arc_features, "labels": arc_labels, **(arc_masks or {})}
    source = replace(source, arc_data=arc_table_of(of_arcs, len(source.source)))
    graph, facts = build_graph(
        source, undirected=undirected, duplicates=duplicates, self_loops=self_loops
    )
    of_masks = {name: _numpy(mask, f"{name}_mask") for name, mask in (masks or {}).items()}
    graph = attach_arrays(
        graph, features=x, labels=y, targets=wanted, masks=of_masks, split=split,
        missing_labels=missing_labels, report=report,
    )  # fmt: skip
    if split is not None:
        facts["split"] = split.facts()
    return write_graph(
        out_path, graph, source=facts, direction=direction, overwrite=overwrite, report=report,
        keep_features=keep_features,
    )  # fmt: skip


def _source(edge_index: object, edge_weight: object, n: int | None) -> Source:
    edge_index = _host(edge_index, "edge_index")
    if sp.issparse(edge_index):
        if edge_weight is not None:
            raise UserError("edge_weight: the entries of a sparse edge_index are its weights")
        arcs = arcs_of(_csr(edge_index, "edge_index"), "edge_index", "arrays")
        if n not in (None, arcs.n):
            raise UserError(f"edge_index has {arcs.n} vertices, not {n}")
        return arcs
    source, target = ends_of(_numpy(edge_index, "edge_index"), "edge_index", "(2, E)")
    if n is None:
        n = int(max(source.max(initial=-1), target.max(initial=-1))) + 1
    if n < 1:
        raise UserError("edge_index holds a graph without vertices", "give n")
    weights = None
    if edge_weight is not None:
        weights = _numpy(edge_weight, "edge_weight")
        if weights.shape != source.shape or weights.dtype.kind not in "biuf":
            raise UserError(
                f"edge_weight holds {weights.dtype} {weights.shape}, not a number for each of "
                f"{len(source)} arcs"
            )
        weights = finite_weights(weights, "edge_weight")
    return Source(n=n, source=source, target=target, weights=weights, format="arrays")


def arc_table_of(given: Mapping[str, object], count: int) -> ArcTable:
    """Arrays of features, labels and masks of so many arcs, those that are not None."""
    named = {name: "arc_" + (f"{name}_mask" if name in MASKS else name) for name in given}
    arrays = {name: _numpy(a, named[name]) for name, a in given.items() if a is not None}
    for name, array in arrays.items():
        if array.ndim == 0 or len(array) != count:
            rows = len(array) if array.ndim else 0
            raise UserError(f"{named[name]} has {rows} rows, there are {count} arcs")
    return arc_table(arrays, named)


def _ids(ids: object, n: int) -> np.ndarray:
    array = _numpy(ids, "ids")
    if array.shape != (n,) or array.dtype.kind not in "iuU":
        raise UserError(f"ids are {array.dtype} {array.shape}, not one for each of {n} vertices")
    check_ids(array, "ids")
    return array if array.dtype.kind == "U" else array.astype(np.int64)


def _features(features: object) -> np.ndarray:
    features = _host(features, "x")
    if sp.issparse(features):
        return dense_features(_csr(features, "x"), "x")
    return _numpy(features, "x")


def _csr(matrix: object, where: str) -> Csr:
    csr = sp.csr_array(matrix)
    return check_csr((csr.indptr, csr.indices, csr.data, csr.shape), where)


def _host(value: object, where: str) -> Any:
    if sp.issparse(value):
        return value
    try:
        return host_array(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{where} is no array: {error}") from error


def _numpy(value: object, where: str) -> np.ndarray:
    """An array from one, or from a tensor of another library, on any device, with a gradient."""
    array = _host(value, where)
    if sp.issparse(array):
        raise UserError(f"{where} is a sparse matrix", "give a dense array")
    if array.dtype.kind not in "biufSU":
        raise UserError(f"{where} is no array of numbers, but of {array.dtype}")
    return np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
