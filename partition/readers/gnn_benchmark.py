"""The ``.npz`` files of gnn-benchmark (Shchur et al., 2018): CSR adjacency, attributes, labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.readers import Source
from partition.readers.files import (
    check_csr,
    class_labels,
    dense_features,
    finite_features,
    finite_weights,
)
from partition.records import read_npz


def read(path: Path) -> Source:
    """Read ``adj_*`` (CSR, row = source) and, where they are there, attributes and ``labels``.

    Attributes are CSR (``attr_*``) or dense (``attr_matrix``). Other members, such as the names
    kept as pickled objects, are not touched.

    Raises
    ------
    UserError
        If an array is missing or damaged, or the arrays do not fit each other.
    """
    where = str(path)
    arrays = read_npz(path, WANTED)
    if "adj_indptr" not in arrays:
        raise UserError(
            f"{path} has no array adj_indptr", "its keys must be those of gnn-benchmark"
        )
    indptr, indices, data, (rows, columns) = _csr(arrays, "adj", where)
    if rows != columns:
        raise UserError(f"{path}: the adjacency matrix is {rows} x {columns}, not square")
    if rows == 0:
        raise UserError(f"{path} holds a graph without vertices")

    weights: np.ndarray | None = finite_weights(data, f"{where}: adj_data")
    if (data == 1).all():
        weights = None  # the format has no other way to say that a graph is unweighted

    features = None
    if "attr_matrix" in arrays:
        features = finite_features(arrays["attr_matrix"], f"{where}: attr_matrix")
    elif "attr_indptr" in arrays:
        attributes = _csr(arrays, "attr", where)
        features = dense_features(*attributes, f"{where}: attr")
    labels = class_labels(arrays["labels"], where) if "labels" in arrays else None
    for name, array in (("attributes", features), ("labels", labels)):
        if array is not None and len(array) != rows:
            raise UserError(f"{path} has {name} of {len(array)} vertices, the graph has {rows}")
    degree: np.ndarray = np.diff(indptr.astype(np.int64))
    return Source(
        n=rows,
        source=np.repeat(np.arange(rows), degree),
        target=indices,
        weights=weights,
        features=features,
        labels=labels,
        format="npz",
    )


WANTED = frozenset(
    [f"{matrix}_{part}" for matrix in ("adj", "attr") for part in ("data", "indices", "indptr")]
    + ["adj_shape", "attr_shape", "attr_matrix", "labels"]
)


def _csr(
    arrays: dict[str, np.ndarray], name: str, where: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]:
    keys = [f"{name}_{part}" for part in ("indptr", "indices", "data", "shape")]
    for key in keys:
        if key not in arrays:
            raise UserError(f"{where} has no array {key}")
    indptr, indices, data, shape = (arrays[key] for key in keys)
    if shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise UserError(f"{where}: {name}_shape is not a pair of integers")
    pair = (int(shape[0]), int(shape[1]))
    check_csr(indptr, indices, data, pair, f"{where}: {name}")
    return indptr, indices, data, pair
