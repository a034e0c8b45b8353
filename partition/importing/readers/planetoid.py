"""The eight-file planetoid format (Yang, Cohen, Salakhutdinov, 2016): Cora, Citeseer, PubMed.

PREFIX.x .y (training), .allx .ally (all but the test vertices), .tx .ty (test), .graph (a dict of
neighbour lists), .test.index (which vertices the rows of tx and ty are).

Seven of them are Python 2 pickles. :mod:`partition.importing.readers.unpickle` reads them without
running anything that they name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from partition.errors import UserError
from partition.graph.graph import UNLABELLED
from partition.importing.readers import Layout, Source
from partition.importing.readers.files import check_file, check_memory, finite_features, read_errors
from partition.importing.readers.unpickle import as_array, as_dense, unpickle

PICKLES = ("x", "tx", "allx", "y", "ty", "ally", "graph")
VALIDATION = 500


def read(prefix: Path, layout: Layout | None = None) -> Source:
    """Read the eight files ``PREFIX.*`` with the public split.

    Training: the vertices of ``y``; validation: the 500 after them; test: ``test.index``.
    Vertices that no file describes (Citeseer has 15) get features of zero and no label, and are
    in no mask. The arcs are those of the neighbour lists; where only one end lists an edge, the
    other arc is added.

    Raises
    ------
    UserError
        If a file is missing, holds anything but plain arrays, or does not fit the others.
    """
    files = {part: _file(prefix, part) for part in (*PICKLES, "test.index")}
    test = _read_test_index(files["test.index"])
    x, y, allx, ally, tx, ty = (
        _rows(files[part]) for part in ("x", "y", "allx", "ally", "tx", "ty")
    )
    ntrain = len(y)
    for features, labels, part in ((x, y, "x"), (allx, ally, "allx"), (tx, ty, "tx")):
        if len(features) != len(labels):
            raise UserError(f"{files[part]} has {len(features)} rows, its labels {len(labels)}")
    if len(test) != len(tx):
        raise UserError(f"{files['test.index']} names {len(test)} vertices, tx has {len(tx)} rows")
    if tx.shape[1] != allx.shape[1] or ty.shape[1] != ally.shape[1]:
        raise UserError(f"{files['tx']} and {files['allx']} differ in their columns")
    if ntrain > len(ally):
        raise UserError(f"{files['y']} has more rows than ally")

    # Test vertices come after all others, in the order of test.index, perhaps with gaps.
    n = max(len(allx), int(test.max()) + 1)
    if test.min() < len(allx) or n - len(allx) > 2 * len(test):
        raise UserError(
            f"{files['test.index']}: vertices are not those after the {len(allx)} of allx"
        )
    check_memory(8 * n * (allx.shape[1] + ally.shape[1]), f"{prefix}: features")
    features = np.zeros((n, allx.shape[1]), np.float32)
    onehot = np.zeros((n, ally.shape[1]))
    for array, known, last in ((features, allx, tx), (onehot, ally, ty)):
        array[: len(known)] = known
        array[test] = last
    labels = _classes(onehot, prefix)

    train, val = np.arange(ntrain), np.arange(ntrain, min(ntrain + VALIDATION, len(allx)))
    masks = {}
    for name, vertices in (("train", train), ("val", val), ("test", test)):
        masks[name] = np.zeros(n, bool)
        masks[name][vertices] = True
        masks[name] &= labels != UNLABELLED
    source, target = _read_graph(files["graph"], n)
    return Source(
        n=n,
        source=source,
        target=target,
        features=finite_features(features, str(prefix)),
        labels=labels,
        masks=masks,
        format="planetoid",
    )


def _file(prefix: Path, part: str) -> Path:
    path = prefix.with_name(f"{prefix.name}.{part}")
    if not path.exists():
        hint = "give the prefix of the eight files, such as DIR/ind.cora"
        raise UserError(f"there is no file {path}", hint)
    check_file(path)
    check_memory(3 * path.stat().st_size, f"{path}: its content")
    return path


def _rows(path: Path) -> np.ndarray:
    """A matrix, sparse or dense, as a dense array with two dimensions."""
    with read_errors(path):
        matrix = as_dense(unpickle(path), str(path))
    if matrix.ndim != 2 or min(matrix.shape) < 1:
        raise UserError(f"{path} holds no matrix but an array of shape {matrix.shape}")
    return matrix


def _read_test_index(path: Path) -> np.ndarray:
    words = path.read_bytes().split()
    try:
        test = np.array([int(word) for word in words], np.int64)
    except (ValueError, OverflowError) as error:
        raise UserError(f"{path} is not a list of vertex numbers, one a line") from error
    if not len(test) or len(np.unique(test)) != len(test):
        raise UserError(f"{path} names no vertex, or one of them twice")
    return test


def _classes(onehot: np.ndarray, prefix: Path) -> np.ndarray:
    """Column of the 1 of each row, −1 where there is none."""
    count = (onehot == 1).sum(axis=1)
    if ((onehot != 0) & (onehot != 1)).any() or (count > 1).any():
        raise UserError(f"{prefix}: labels are not rows with a single 1")
    return np.where(count == 1, onehot.argmax(axis=1), UNLABELLED).astype(np.int32)


def _read_graph(path: Path, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The arcs of the neighbour lists, and those that are missing for symmetry."""
    with read_errors(path):
        lists: Any = unpickle(path)
    if not isinstance(lists, dict) or not all(isinstance(v, list) for v in lists.values()):
        raise UserError(f"{path} does not hold a dict of neighbour lists")
    sizes = [len(neighbours) for neighbours in lists.values()]
    # A pickle can refer to one list many times over; an honest one spends bytes on each entry.
    if sum(sizes) > path.stat().st_size:
        raise UserError(f"{path} holds more neighbours than a file of its size can")
    source = np.repeat(as_array(list(lists), str(path)), sizes)
    target = as_array([vertex for neighbours in lists.values() for vertex in neighbours], str(path))
    for ends in (source, target):
        if len(ends) and (ends.min() < 0 or ends.max() >= n):
            raise UserError(f"{path} names a vertex outside 0..{n - 1}")
    missing = np.setdiff1d(target * n + source, source * n + target)
    return np.append(source, missing // n), np.append(target, missing % n)
