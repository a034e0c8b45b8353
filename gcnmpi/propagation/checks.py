"""The demands of methods on a graph and on files of the user's, before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gcnmpi.mpi.comm import agreed
from gcnmpi.propagation.space import Space
from gcnmpi.run.vertices import called, text_lines
from partition.errors import UserError
from partition.graph.graph import check_one_width
from partition.graph.store import StoredGraph
from partition.records import map_npy


def needs_features(stored: StoredGraph, options: object) -> None:
    """A UserError for a graph without features."""
    if stored.graph.features is None:
        check_one_width(stored.path, stored.graph)
        raise UserError(f"{stored.path} has no features", "gcn-partition attach --features FILE")


def needs_labels(stored: StoredGraph, options: object) -> None:
    """A UserError for a graph without labels of one class a vertex."""
    if stored.graph.labels is None:
        raise UserError(
            f"{stored.path} has no labels: one class a vertex is needed",
            "gcn-partition attach --labels FILE",
        )


def needs_symmetry(stored: StoredGraph, why: str, values: bool = True) -> None:
    """A UserError for a graph with an arc without its reverse; ``values``: of the same weight."""
    manifest = stored.manifest
    if not (manifest.symmetric_values if values else manifest.symmetric_pattern):
        raise UserError(
            f"{stored.path} is directed, and {why}",
            "gcn-partition import --undirected makes a graph folder with the reverse of each arc",
        )


def predictions_of(path: str, n: int, width: int = 0) -> np.ndarray:
    """Rows that were predicted, (n, width) numbers, mapped from a ``.npy``; width 0: any."""
    how = "gcnmpi infer … --what probabilities --out P.npy writes them"
    if not path:
        raise UserError("the option predictions is missing: a row for each vertex", how)
    if Path(path).suffix != ".npy":
        raise UserError(f"predictions {path} is no .npy", how)
    try:
        rows = map_npy(path)
    except UserError as error:
        raise UserError(f"predictions: {error.message}", error.hint or how) from error
    if rows.ndim != 2:
        dimensions = f"{rows.ndim} dimension{'s' * (rows.ndim != 1)}"
        raise UserError(f"predictions {path} has {dimensions}, not 2: one row for each vertex", how)
    if not rows.shape[1]:
        raise UserError(f"predictions {path} has no columns", how)
    wanted = f"{n} × {width}" if width else f"{n} rows"
    if len(rows) != n or (width and rows.shape[1] != width):
        shape = f"{len(rows)} × {rows.shape[1]}"
        raise UserError(f"predictions {path} is {shape}; the graph takes {wanted}", how)
    if rows.dtype.kind != "f":
        raise UserError(f"predictions {path} is {rows.dtype}, not floating-point numbers", how)
    return rows


def own_predictions(space: Space, path: str, width: int = 0) -> np.ndarray:
    """Own rows of predictions, (own, width), in the dtype of the space; all are finite."""
    rows = space.own(space.read(lambda: predictions_of(path, space.n, width)))
    with np.errstate(over="ignore"):
        rows = rows.astype(space.dtype, copy=False)
    finite = np.isfinite(rows).all(axis=1)
    first = space.lowest(space.vertices[~finite])
    with agreed(space.comm):
        if first < space.n:
            raise UserError(
                f"predictions {path} has a number that is not finite in row {first}",
                "a model whose training diverged writes such rows",
            )
    return rows


def weights_of(stored: StoredGraph, path: Path) -> np.ndarray:
    """Weights of vertices, (n,) float64, as a file says: a vertex a line, or a vertex and a weight.

    Vertices are called as in the file that the graph was imported from. One that is not named has
    weight 0. Empty lines and those that begin with # say nothing.
    """
    words, numbers = [], []
    lines = text_lines(path, "it is a text file, a vertex a line")
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        vertex, *rest = line.split()
        try:
            weight = float(rest[0]) if rest else 1.0
        except ValueError:
            weight = -1.0
        if len(rest) > 1 or not 0 <= weight < np.inf:
            raise UserError(
                f"{path}, line {number}: {line!r} is no vertex with a weight",
                "a line is VERTEX, or VERTEX WEIGHT with a weight that is not negative",
            )
        words.append((number, vertex))
        numbers.append(weight)
    weights = np.zeros(stored.manifest.n)
    np.add.at(weights, called(stored, words, f"{path}, line"), numbers)
    how = "a line is VERTEX, which has weight 1, or VERTEX WEIGHT"
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not total:
        raise UserError(f"{path} gives no vertex a weight above 0", how)
    if not np.isfinite(total):
        raise UserError(
            f"the sum of the weights in {path} overflows", "divide them all by one number"
        )
    return weights
