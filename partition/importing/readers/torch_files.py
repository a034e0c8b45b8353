"""Graphs that PyTorch Geometric and DGL wrote, and tensors of these, read without running them.

A file of ``torch.save`` is a pickle, which is a program: :mod:`partition.tensor_files`
reads it as data, and the classes of PyTorch Geometric stand for their attributes.

A file of ``dgl.save_graphs``, version 2 of the format (DGL 0.9 to 2.x), is a stream of numbers in
little-endian order: vectors and texts begin with their length in 8 bytes, arrays with a header that
has their type and shape. Nothing in it is a program. Sources: ``heterograph_serialize.cc``,
``unit_graph.cc``, ``coo.h``, ``spmat.h`` and ``ndarray.h`` of DGL.
"""

from __future__ import annotations

import itertools
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from partition.errors import UserError, require
from partition.graph.sparse import sp
from partition.importing.readers.files import check_file, quoted
from partition.importing.readers.npz import FIELDS, source_of, with_dense
from partition.importing.readers.source import Layout, Source, TypedSource
from partition.importing.readers.typed_tables import checked, typed_source_of
from partition.records import open_regular
from partition.tensor_files import DICT, INSTANCE, Made, Meant, TorchFile, is_tensor, open_torch

# Methods of a sparse tensor that give its ends and its values, by its layout.
_PARTS = {
    "torch.sparse_coo": ("_indices", "_values"),
    "torch.sparse_csr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_csc": ("ccol_indices", "row_indices", "values"),
}


def host_array(value: Any) -> Any:
    """An array from one, or from a tensor on any device; of bfloat16 float32.

    Of a sparse tensor, or a ``SparseTensor`` of torch_sparse, a matrix. A UserError if that has
    more than two dimensions, or blocks.
    """
    if hasattr(value, "sparse_sizes") and hasattr(value, "coo"):
        row, column, numbers = value.coo()
        numbers = None if numbers is None else host_array(numbers)
        shape = tuple(int(size) for size in value.sparse_sizes())
        return _matrix_of("torch.sparse_coo", (host_array(row), host_array(column)), numbers, shape)
    if not hasattr(value, "detach"):
        return np.asarray(value)
    value = value.detach().cpu()
    layout = str(getattr(value, "layout", "torch.strided"))
    if layout == "torch.strided":
        half = "bfloat16" in str(getattr(value, "dtype", ""))
        return np.asarray(value.float() if half else value)
    if layout not in _PARTS:
        raise UserError(f"a tensor of the layout {layout} is not read", "tensor.to_sparse()")
    *ends, numbers = (host_array(getattr(value, part)()) for part in _PARTS[layout])
    return _matrix_of(
        layout, tuple(ends if len(ends) > 1 else ends[0]), numbers, tuple(value.shape)
    )


def _matrix_of(
    layout: str, ends: tuple[np.ndarray, ...], values: np.ndarray | None, shape: tuple[int, ...]
) -> sp.coo_array:
    """The matrix of a layout of torch, with entries in its order; without values, ones.

    A UserError if arrays do not fit each other.
    """
    wrong = "a sparse tensor is no matrix whose entries lie inside of it"
    vectors = [np.asarray(end) for end in ends if end.ndim == 1 and end.dtype.kind in "iu"]
    require(len(shape) == len(ends) == len(vectors) == 2, wrong)
    first, second = vectors
    values = np.ones(len(second)) if values is None else values
    require(values.shape == (len(second),), wrong)
    try:
        if layout == "torch.sparse_coo":
            return sp.coo_array((values, (first, second)), shape=shape)
        kind = sp.csr_array if layout == "torch.sparse_csr" else sp.csc_array
        matrix = kind((values, second, first), shape=shape)
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise UserError(wrong) from error
    require(matrix.nnz == len(second), wrong)  # SciPy cuts off what row pointers do not cover
    return matrix.tocoo()


_MODULE = "torch_geometric.data"
CLASSES = {
    *((f"{_MODULE}.data", name) for name in ("Data", "DataEdgeAttr", "DataTensorAttr")),
    *((f"{_MODULE}.storage", name) for name in ("GlobalStorage", "BaseStorage")),
    (f"{_MODULE}.hetero_data", "HeteroData"),  # to be told from damage
    *((f"{_MODULE}.storage", name) for name in ("NodeStorage", "EdgeStorage", "AttrType")),
    (f"{_MODULE}.graph_store", "EdgeAttr"),
    (f"{_MODULE}.feature_store", "TensorAttr"),
    ("torch_sparse.tensor", "SparseTensor"),
    ("torch_sparse.storage", "SparseStorage"),
}
# A graph that was asked which attributes are of vertices, or of edges, keeps the answers in these.
CACHES = {
    ("torch._utils", "_rebuild_sparse_tensor"): "sparse",
    ("torch.serialization", "_get_layout"): "layout",
    ("collections", "defaultdict"): DICT,
    ("builtins", "set"): "set",
    ("__builtin__", "set"): "set",
}
_SAVE = "torch.save(data.to_dict(), FILE), or in Python gcnmpi.graph.from_object(data, folder=…)"
_MEANT = Meant("a graph of PyTorch Geometric", _SAVE)


def read(path: Path, layout: Layout) -> Source | TypedSource:
    """Read a graph with its features, labels or targets, weights and masks; or a HeteroData.

    ``path`` is a file, or the folder of a dataset, with ``processed/data.pt``. ``y`` of whole
    numbers in one column is a class, −1 for none; otherwise targets. ``edge_weight`` holds weights,
    or an ``edge_attr`` of one column; another ``edge_attr`` is features of arcs, and
    ``edge_label`` their labels.

    A UserError if it holds several graphs, or no graph; or names anything else than tensors and the
    classes of a graph, none of which is run.
    """
    file = path / "processed" / "data.pt" if path.is_dir() else path
    check_file(file)
    with open_torch(file, CLASSES, _MEANT, CACHES) as opened:
        graph = _only(opened)
        if (stores := _stores(graph)) is not None:
            return _typed(opened, stores)
        found = attributes_of(graph, file)
        fields, n = _arrays(opened, found)
    for name in FIELDS:
        if found.get(name) is not None and name not in fields:
            raise UserError(f"{file}: {name} is no tensor, but {_called(found[name])}", _SAVE)
    arcs = ("edge_index", "edge_weight")
    of_arcs = {k: array for k, array in fields.items() if k.startswith("edge_") and k not in arcs}
    return source_of(fields, str(file), "pyg", layout, of_arcs, found.get("num_nodes", n))


def _typed(opened: TorchFile, stores: Mapping[Any, Mapping[Any, object]]) -> TypedSource:
    """The graph of the attributes of each type and each relation."""
    arrays = {
        key: _arrays(opened, {f: v for f, v in fields.items() if isinstance(f, str)})[0]
        for key, fields in stores.items()
    }
    vertices = {key: fields for key, fields in arrays.items() if isinstance(key, str)}
    arcs = {key: fields for key, fields in arrays.items() if isinstance(key, tuple)}
    given = {key: stores[key].get("num_nodes") for key in vertices}
    counts = {key: n if type(n) is int else None for key, n in given.items()}
    where = str(opened.path)
    return checked(typed_source_of(vertices, arcs, where, "pyg", counts), where)


def _arrays(
    opened: TorchFile, fields: Mapping[str, object]
) -> tuple[dict[str, np.ndarray], int | None]:
    """The tensors among some attributes, and of how many vertices a matrix of arcs is."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if is_tensor(value):
            found[name] = opened.array(name, value)
        elif (matrix := _matrix(opened, name, value)) is not None:
            found[name] = matrix
    return with_dense(found, str(opened.path))


def _matrix(opened: TorchFile, name: str, value: object) -> sp.coo_array | None:
    """A sparse tensor, or a SparseTensor of torch_sparse; None of anything else."""
    match value:
        case Made("sparse", (Made("layout", (str(layout),)), tuple(parts))):
            tensors = list(itertools.takewhile(is_tensor, parts))
            ends = [opened.array(name, tensor) for tensor in tensors]
            match parts[len(ends) :]:
                case (Made("size", (shape,)), *_) if len(ends) in (2, 3):
                    *ends, numbers = ends
                    if len(ends) == 1 and ends[0].ndim == 2:
                        ends = list(ends[0])
                    return _matrix_of(layout, tuple(ends), numbers, _shape(shape))
    storage = _state((_state(value) or {}).get("storage")) or {}
    parts = ("_row", "_rowptr", "_col", "_value")
    found = {k: opened.array(name, storage[k]) for k in parts if is_tensor(storage.get(k))}
    for first, layout in (("_row", "torch.sparse_coo"), ("_rowptr", "torch.sparse_csr")):
        if {first, "_col"} <= found.keys():
            pair, shape = (found[first], found["_col"]), _shape(storage.get("_sparse_sizes"))
            return _matrix_of(layout, pair, found.get("_value"), shape)
    return None


def _shape(sizes: object) -> tuple[int, ...]:
    if not isinstance(sizes, tuple | list):
        return ()
    return tuple(sizes) if all(type(n) is int and 0 <= n < 2**48 for n in sizes) else ()


def _stores(data: object) -> dict[str | tuple[str, str, str], dict[object, object]] | None:
    """The attributes of each type and each relation of a HeteroData; None of anything else."""
    if (state := _state(data)) is not None and "_node_store_dict" in state:
        both = [state["_node_store_dict"], state.get("_edge_store_dict")]
        named = {key: one for each in both if isinstance(each, dict) for key, one in each.items()}
        named = {key: (_state(one) or {}).get("_mapping") for key, one in named.items()}
    elif isinstance(data, dict) and isinstance(data.get("_global_store"), dict):
        named = {key: one for key, one in data.items() if key != "_global_store"}
    else:
        return None
    return {
        key: one
        for key, one in named.items()
        if isinstance(one, dict)
        and (isinstance(key, str) or (isinstance(key, tuple) and len(key) == 3))
    }


def _only(file: TorchFile) -> object:
    """The only graph of a dataset, (data, slices[, class]) or a list; or else the content."""
    content = file.content
    if not isinstance(content, list | tuple) or not content:
        return content
    graphs = len(content)
    if isinstance(content, tuple):
        slices = content[1] if len(content) > 1 else None
        first = next(iter(slices.values()), None) if isinstance(slices, dict) else None
        graphs = file.array("slices", first).size - 1 if is_tensor(first) else 1
    if graphs != 1:
        raise UserError(
            f"{file.path} holds {graphs} graphs, one is read",
            "torch.save(dataset[0].to_dict(), FILE)",
        )
    return content[0]


def attributes_of(data: object, path: Path) -> dict[str, object]:
    """The attributes of a graph, by name: of a Data object of any version, or of a dict.

    A UserError if it has vertices of several types, or is something else.
    """
    several = _stores(data) is not None
    require(not several, f"{path} holds a graph with vertices of several types")
    if (state := _state(data)) is not None:
        store = _state(state.get("_store"))
        data = state if store is None else store.get("_mapping")
        if isinstance(data, dict) and type(data.get("__num_nodes__")) is int:  # version 1
            data = data | {"num_nodes": data["__num_nodes__"]}
    if not isinstance(data, dict):
        raise UserError(f"{path} holds no graph, but {_called(data)}", _SAVE)
    return {name: value for name, value in data.items() if isinstance(name, str)}


def _state(value: object) -> dict[object, object] | None:
    """The attributes of an object of a class; None of anything else."""
    if not isinstance(value, Made) or value.word != INSTANCE:
        return None
    return value.state if isinstance(value.state, dict) else None


def _called(value: object) -> str:
    return quoted(value.word if isinstance(value, Made) else type(value).__name__)


# The numbers by which parts of a file of DGL begin.
MAGIC = {
    "file": 0xDD2E4FF046B4A13F, "hetero": 0xDD589FBE35224ABF, "immutable": 0xDD3C5FFE20046ABF,
    "unit": 0xDD2E60F0F6B4A127, "coo": 0xDD61FFD305DFF127, "csr": 0xDD6CD31205DFF127,
    "array": 0xDD5E40F096B4A13F,
}  # fmt: skip
_META_BYTES = 4096
_VERSION = _GRAPH_KIND = 2
_MARKED = 1 << 32  # of formats, which older files number otherwise
_IN_COO, _IN_CSR, _IN_CSC = 1, 2, 4
_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}
# DGL's names of the data of vertices and arcs, and ours.
DGL_NAMES = {"feat": "x", "features": "x", "label": "y", "labels": "y"}
DGL_WEIGHTS = ("weight", "w", "edge_weight")
_IN_PYTHON = "in Python: gcnmpi.graph.from_object(dgl.load_graphs(FILE)[0][0], folder=…)"


def read_dgl(path: Path, layout: Layout) -> Source:
    """Read the only graph of a file: ``feat``, ``label``, the masks; of its arcs ``weight``, data.

    A UserError if it holds several, or vertices or arcs of several types.
    """
    stream = _Stream(path)
    require(stream.number() == MAGIC["file"], f"{path} is not a file of dgl.save_graphs")
    version, kind, count = stream.number(), stream.number(), stream.number()
    if (version, kind) != (_VERSION, _GRAPH_KIND):
        told = f"is in version {version} of DGL's format, {_VERSION} is read"
        raise UserError(f"{path} {told}", _IN_PYTHON)
    if count != 1:
        raise UserError(f"{path} holds {count} graphs, one is read", _IN_PYTHON)
    stream.at = _META_BYTES
    stream.at = stream.number()  # labels of graphs are passed over
    stream.expect("hetero")
    if _metagraph(stream) != (1, 1) or stream.number() != 1:
        raise UserError(
            f"{path} holds a graph with vertices or arcs of several types",
            "dgl.to_homogeneous(g, ndata=['feat']) makes one of one type",
        )
    ends = _arcs(stream)
    sizes = stream.vector()
    n = sizes[0] if len(sizes) == 1 else -1
    if ends.size and not 0 <= ends.min() <= ends.max() < n:
        raise stream.damaged(f"vertices outside 0..{n - 1}")
    fields = {DGL_NAMES.get(name, name): array for name, array in stream.table().items()}
    arc_data, asked = stream.table(), (layout.arc_features or "").split(",")
    weights = [arc_data[name] for name in DGL_WEIGHTS if name in arc_data and name not in asked]
    fields |= {"edge_index": ends} | ({"edge_weight": weights[0]} if weights else {})
    of_arcs = {name: a for name, a in arc_data.items() if name in asked or name not in DGL_WEIGHTS}
    return source_of(fields, str(path), "dgl", layout, of_arcs, n)


def _arcs(stream: _Stream) -> np.ndarray:
    """Sources and targets, (2, E), out of one of the forms that the file has."""
    stream.expect("unit")
    forms = stream.number()
    stream.number()  # forms that the program may make
    there = [form for form in (_IN_COO, _IN_CSR, _IN_CSC) if forms & form]
    if not forms & _MARKED or not there:
        raise UserError(f"{stream.path} was saved by an old version of DGL", _IN_PYTHON)
    found = []
    for form in there:
        _metagraph(stream)
        _, ends = _ends(stream, "coo" if form == _IN_COO else "csr")
        found.append(ends[::-1] if form == _IN_CSC else ends)
    return found[0]


def _metagraph(stream: _Stream) -> tuple[int, int]:
    """The graph of types: how many of vertices and of arcs there are."""
    stream.expect("immutable")
    types, ends = _ends(stream, "csr")
    return types, ends.shape[1]


def _ends(stream: _Stream, form: str) -> tuple[int, np.ndarray]:
    """The number of rows of a matrix; row and column of each entry, in the order of the arcs."""
    stream.expect(form)
    rows, _ = stream.number(), stream.number()
    row, column, number = stream.array(), stream.array(), stream.array()
    stream.at += 2 if form == "coo" else 1  # whether they are sorted
    if form == "csr":
        degrees: np.ndarray = np.diff(row.astype(np.int64)) if row.ndim == 1 else np.array([-1])
        if len(degrees) != rows or (degrees < 0).any() or degrees.sum() != len(column):
            raise stream.damaged("row pointers that do not rise to the number of arcs")
        row = np.repeat(np.arange(rows), degrees)
    if row.shape != column.shape or row.ndim != 1 or row.dtype.kind not in "iu":
        raise stream.damaged("rows and columns that do not fit each other")
    ends = np.stack([row, column])
    if not number.size:  # they are in the order of their numbers
        return rows, ends
    if number.shape != row.shape or (np.sort(number) != np.arange(len(row))).any():
        raise stream.damaged("numbers of arcs that are not 0, 1, 2 …")
    return rows, ends[:, np.argsort(number)]


class _Stream:
    """A file that is read from front to back, never beyond its end."""

    def __init__(self, path: Path) -> None:
        self.path, self.at = path, 0
        with open_regular(path) as file:
            empty = not os.fstat(file.fileno()).st_size
            self._bytes = np.empty(0, np.uint8) if empty else np.memmap(file, np.uint8, "r")

    def damaged(self, what: str) -> UserError:
        """The refusal of a file, with the fault that was found in it."""
        return UserError(f"{self.path} is truncated or damaged: it has {what}", _IN_PYTHON)

    def take(self, nbytes: int) -> np.ndarray:
        """The bytes that follow, so many."""
        if not 0 <= nbytes <= len(self._bytes) - self.at:
            raise self.damaged("an end where more was announced")
        self.at += nbytes
        return self._bytes[self.at - nbytes : self.at]

    def number(self) -> int:
        """The next number of 8 bytes."""
        return int.from_bytes(self.take(8).tobytes(), "little")

    def expect(self, part: str) -> None:
        """A UserError unless a part of this kind begins here."""
        if self.number() != MAGIC[part]:
            raise self.damaged(f"no {MAGIC[part]:#x} where one has to be")

    def vector(self) -> list[int]:
        """Numbers of 8 bytes."""
        return np.frombuffer(self.take(8 * self.number()), "<i8").tolist()

    def table(self) -> dict[str, np.ndarray]:
        """Arrays by name, of the only type."""
        if self.number() != 1:
            raise self.damaged("data of several types")
        return {self.text(): self.array() for _ in range(self.number())}

    def text(self) -> str:
        """A name, with its length before it."""
        return self.take(self.number()).tobytes().decode("utf-8", "replace")

    def array(self) -> np.ndarray:
        """An array of numbers, in the file's memory."""
        self.expect("array")
        self.at += 16  # reserved, and the device, which is always the host
        ndim = int.from_bytes(self.take(4).tobytes(), "little")
        kind, bits, lanes = struct.unpack("<BBH", self.take(4).tobytes())
        if not ndim <= 32:
            raise self.damaged(f"an array of {ndim} dimensions")
        shape = np.frombuffer(self.take(8 * ndim), "<i8").tolist()
        nbytes = self.number()
        bits = 8 if kind == 6 else bits
        known = kind in _KINDS and bits in (8, 16, 32, 64) and lanes == 1
        if not known or min(shape, default=0) < 0:
            raise self.damaged(f"an array of type {kind}, {bits} bits, which is not read")
        if math.prod(shape) * bits != 8 * nbytes:
            raise self.damaged(f"{nbytes} bytes for an array of shape {quoted(str(shape))}")
        return np.frombuffer(self.take(nbytes), f"<{_KINDS[kind]}{bits // 8}").reshape(shape)
