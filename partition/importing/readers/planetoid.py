"""The eight-file planetoid format (Yang, Cohen, Salakhutdinov, 2016): Cora, Citeseer, PubMed.

PREFIX.x .y (training), .allx .ally (all but the test vertices), .tx .ty (test), .graph (a dict of
neighbour lists), .test.index (which vertices the rows of tx and ty are).

Seven of them are pickles, of Python 2 as they were published, which hold dense arrays and CSR
matrices: :mod:`partition.tensor_files` reads them without running anything that they name.

Self-loops, which PyTorch Geometric drops, stay without ``--self-loops drop``.
"""

import itertools
from pathlib import Path

import numpy as np

from partition import tensor_files
from partition.errors import UserError, require
from partition.graph.graph import UNLABELLED
from partition.importing.readers.files import (
    check_csr,
    check_file,
    check_inside,
    dense_features,
    finite_features,
    read_errors,
)
from partition.importing.readers.source import Layout, Source
from partition.resident import check_memory

_MATRICES = ("x", "y", "allx", "ally", "tx", "ty")
_VALIDATION = 500
# SciPy has moved its modules; pickles keep the name of their day.
_NAMES = tensor_files.ARRAY_NAMES | {
    ("scipy.sparse.csr", "csr_matrix"): "matrix",
    ("scipy.sparse._csr", "csr_matrix"): "matrix",
    ("collections", "defaultdict"): tensor_files.DICT,
    ("__builtin__", "list"): "list",  # only ever an argument, of defaultdict
    ("builtins", "list"): "list",
}
_MEANT = tensor_files.Meant(
    "a pickle of the planetoid format", "give the prefix of the eight files, such as DIR/ind.cora"
)


def read(prefix: Path, layout: Layout) -> Source:
    """Read the eight files ``PREFIX.*`` with the public split.

    Training: the vertices of ``y``; validation: the 500 after them; test: ``test.index``. Vertices
    that no file describes (Citeseer has 15) get features of zero and no label, and are in no mask.
    The arcs are those of the neighbour lists; where only one end lists an edge, the other arc is
    added. A UserError if a file is missing, holds anything but plain arrays, or does not fit the
    others.
    """
    files = {part: _file(prefix, part) for part in (*_MATRICES, "graph", "test.index")}
    test = _read_test_index(files["test.index"])
    x, y, allx, ally, tx, ty = (_rows(files[part]) for part in _MATRICES)
    ntrain, of_test = len(y), files["test.index"]
    for part, rows, labels in (("x", x, y), ("allx", allx, ally), ("tx", tx, ty)):
        told = f"{files[part]} has {len(rows)} rows, its labels {len(labels)}"
        require(len(rows) == len(labels), told)
    told = f"{of_test} names {len(test)} vertices, tx has {len(tx)} rows"
    require(len(test) == len(tx), told)
    same = tx.shape[1] == allx.shape[1] and ty.shape[1] == ally.shape[1]
    require(same, f"{files['tx']} and {files['allx']} differ in their columns")
    require(ntrain <= len(ally), f"{files['y']} has more rows than ally")

    # Test vertices come after all others, in the order of test.index, perhaps with gaps.
    n = max(len(allx), int(test.max()) + 1)
    after = test.min() >= len(allx) and n - len(allx) <= 2 * len(test)
    require(after, f"{of_test}: vertices are not those after the {len(allx)} of allx")
    check_memory(8 * n * (allx.shape[1] + ally.shape[1]), f"{prefix}: features")
    features = np.zeros((n, allx.shape[1]), np.float32)
    onehot = np.zeros((n, ally.shape[1]))
    for array, known, last in ((features, allx, tx), (onehot, ally, ty)):
        array[: len(known)] = known
        array[test] = last
    count = (onehot == 1).sum(axis=1)
    single = not ((onehot != 0) & (onehot != 1)).any() and not (count > 1).any()
    require(single, f"{prefix}: labels are not rows with a single 1")
    labels = np.where(count == 1, onehot.argmax(axis=1), UNLABELLED).astype(np.int32)

    train, val = np.arange(ntrain), np.arange(ntrain, min(ntrain + _VALIDATION, len(allx)))
    masks = {
        name: np.isin(np.arange(n), vertices) & (labels != UNLABELLED)
        for name, vertices in (("train", train), ("val", val), ("test", test))
    }
    features = finite_features(features, str(prefix))
    ends = _read_graph(files["graph"], n)
    return Source(n, *ends, features=features, labels=labels, masks=masks, format="planetoid")


def _file(prefix: Path, part: str) -> Path:
    path = prefix.with_name(f"{prefix.name}.{part}")
    if not path.exists():
        raise UserError(f"there is no file {path}", _MEANT.hint)
    check_file(path)
    check_memory(3 * path.stat().st_size, f"{path}: its content")
    return path


def _content(path: Path) -> object:
    with read_errors(path):
        return tensor_files.read_pickle(path.read_bytes(), path, _NAMES, _MEANT)


def _rows(path: Path) -> np.ndarray:
    """A matrix, sparse or dense, as a dense array with two dimensions, of a sparse one float32."""
    value, where = _content(path), str(path)
    if isinstance(value, tensor_files.Made) and value.word == "matrix":
        held = value.state if isinstance(value.state, dict) else {}
        parts = ("indptr", "indices", "data")
        indptr, indices, data = (tensor_files.numpy_array(held.get(name), where) for name in parts)
        match held.get("_shape"):
            case (int(rows), int(columns)) if 0 <= rows < 2**63 and 0 <= columns < 2**63:
                csr = check_csr((indptr, indices, data, (rows, columns)), where)
                matrix = dense_features(csr, where)
            case _:
                raise UserError(f"{where} holds a CSR matrix without a shape")
    else:
        matrix = tensor_files.numpy_array(value, where)
    fits = matrix.ndim == 2 and min(matrix.shape) >= 1
    require(fits, f"{path} holds no matrix but an array of shape {matrix.shape}")
    return matrix


def _integers(values: list[object], where: str) -> np.ndarray:
    """A list of int as int64; a UserError if there is anything else in it."""
    if not all(type(value) is int for value in values):
        raise UserError(f"{where} holds something else than whole numbers")
    try:
        return np.array(values, np.int64)
    except OverflowError as error:
        raise UserError(f"{where} holds a number beyond 64 bits") from error


def _read_test_index(path: Path) -> np.ndarray:
    words = path.read_bytes().split()
    try:
        test = np.array([int(word) for word in words], np.int64)
    except (ValueError, OverflowError) as error:
        raise UserError(f"{path} is not a list of vertex numbers, one a line") from error
    if not len(test) or len(np.unique(test)) != len(test):
        raise UserError(f"{path} names no vertex, or one of them twice")
    return test


def _read_graph(path: Path, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The arcs of the neighbour lists, and those that are missing for symmetry."""
    lists = _content(path)
    if not isinstance(lists, dict) or not all(isinstance(v, list) for v in lists.values()):
        raise UserError(f"{path} does not hold a dict of neighbour lists")
    sizes = [len(neighbours) for neighbours in lists.values()]
    # A pickle can refer to one list many times over; an honest one spends bytes on each entry.
    if sum(sizes) > path.stat().st_size:
        raise UserError(f"{path} holds more neighbours than a file of its size can")
    source = np.repeat(_integers(list(lists), str(path)), sizes)
    target = _integers([*itertools.chain(*lists.values())], str(path))
    for ends in (source, target):
        check_inside(ends, n, path)
    missing = np.setdiff1d(target * n + source, source * n + target)
    return np.append(source, missing // n), np.append(target, missing % n)
