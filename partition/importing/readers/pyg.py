"""Files of PyTorch Geometric: ``data.pt`` of a dataset, and graphs that ``torch.save`` wrote.

A pickle is a program. It is read by :mod:`partition.tensor_files` as data: the classes of
PyTorch Geometric stand for their attributes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from partition.errors import UserError
from partition.importing.readers.files import check_file, quoted
from partition.importing.readers.npz import FIELDS, source_of, with_dense
from partition.importing.readers.source import Layout, Source, TypedSource
from partition.importing.readers.typed_tables import checked, typed_source_of
from partition.importing.tensors import matrix_of
from partition.tensor_files import DICT, INSTANCE, Made, Meant, TorchFile, is_tensor, open_torch

MODULE = "torch_geometric.data"
CLASSES = {
    *((f"{MODULE}.data", name) for name in ("Data", "DataEdgeAttr", "DataTensorAttr")),
    *((f"{MODULE}.storage", name) for name in ("GlobalStorage", "BaseStorage")),
    (f"{MODULE}.hetero_data", "HeteroData"),  # to be told from damage
    *((f"{MODULE}.storage", name) for name in ("NodeStorage", "EdgeStorage", "AttrType")),
    (f"{MODULE}.graph_store", "EdgeAttr"),
    (f"{MODULE}.feature_store", "TensorAttr"),
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
SAVE = "torch.save(data.to_dict(), FILE), or in Python gcnmpi.graph.from_object(data, folder=…)"
MEANT = Meant("a graph of PyTorch Geometric", SAVE)


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
    with open_torch(file, CLASSES, MEANT, CACHES) as opened:
        graph = _only(opened)
        if (stores := _stores(graph)) is not None:
            return _typed(opened, stores)
        found = attributes_of(graph, file)
        fields, n = _arrays(opened, found)
    for name in FIELDS:
        if found.get(name) is not None and name not in fields:
            raise UserError(f"{file}: {name} is no tensor, but {_called(found[name])}", SAVE)
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
                    return matrix_of(layout, tuple(ends), numbers, _shape(shape))
    storage = _state((_state(value) or {}).get("storage")) or {}
    parts = ("_row", "_rowptr", "_col", "_value")
    found = {k: opened.array(name, storage[k]) for k in parts if is_tensor(storage.get(k))}
    first = "_row" if "_row" in found else "_rowptr"
    if not {first, "_col"} <= found.keys():
        return None
    layout = "torch.sparse_coo" if first == "_row" else "torch.sparse_csr"
    pair = found[first], found["_col"]
    return matrix_of(layout, pair, found.get("_value"), _shape(storage.get("_sparse_sizes")))


def _shape(sizes: object) -> tuple[int, ...]:
    known = isinstance(sizes, tuple | list) and all(
        type(size) is int and 0 <= size < 2**48 for size in sizes
    )
    return tuple(sizes) if known and isinstance(sizes, tuple | list) else ()


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
    if (state := _state(data)) is not None:
        if "_node_store_dict" in state:
            raise UserError(
                f"{path} holds a graph with vertices of several types",
                "data.to_homogeneous() makes one of one type, without the features",
            )
        store = _state(state.get("_store"))
        data = state if store is None else store.get("_mapping")
        if isinstance(data, dict) and type(data.get("__num_nodes__")) is int:  # version 1
            data = data | {"num_nodes": data["__num_nodes__"]}
    if not isinstance(data, dict):
        raise UserError(f"{path} holds no graph, but {_called(data)}", SAVE)
    if isinstance(data.get("_global_store"), dict):
        raise UserError(f"{path} holds a graph with vertices of several types")
    return {name: value for name, value in data.items() if isinstance(name, str)}


def _state(value: object) -> dict[object, object] | None:
    """The attributes of an object of a class; None of anything else."""
    if not isinstance(value, Made) or value.word != INSTANCE:
        return None
    return value.state if isinstance(value.state, dict) else None


def _called(value: object) -> str:
    return quoted(value.word if isinstance(value, Made) else type(value).__name__)
