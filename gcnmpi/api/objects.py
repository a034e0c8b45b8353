"""Graphs as objects of PyTorch Geometric."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from partition.errors import UserError, installing
from partition.graph.graph import Graph, arcs

if TYPE_CHECKING:
    import torch
    from torch_geometric.data import Data, HeteroData


def pyg_of(graph: Graph) -> Data | HeteroData:
    """The object that :meth:`gcnmpi.api.graph.Graph.to_pyg` describes."""
    try:
        import torch
        from torch_geometric.data import Data
    except ModuleNotFoundError as error:
        raise UserError(
            f"to_pyg needs the Python package {error.name!r}",
            installing("torch", "torch_geometric"),
        ) from error

    def tensor(values: ArrayLike, dtype: DTypeLike | None = None) -> torch.Tensor:
        return torch.from_numpy(np.array(values, dtype))  # a copy: files are mapped read-only

    if graph.vertex_types is not None:
        return hetero_data(graph, tensor)
    data = Data(edge_index=tensor(np.stack([arcs(graph), graph.indices]), np.int64))
    data.num_nodes = graph.n
    if graph.weights is not None:
        data.edge_weight = tensor(graph.weights, np.float32)
    if graph.features is not None:
        data.x = tensor(graph.features)
    if graph.labels is not None and graph.classes:
        data.y = tensor(graph.labels, np.int64)
    elif graph.targets is not None:
        data.y = tensor(graph.targets)
    for name, mask in graph.masks.items():
        data[f"{name}_mask"] = tensor(mask)
    for name, column in graph.arc_data.columns().items():
        called = {"features": "attr", "labels": "label"}
        part = name.removeprefix("arc_")
        data[f"edge_{called.get(part, part)}"] = tensor(column)
    if graph.ids is not None:
        data.ids = tensor(graph.ids) if graph.ids.dtype.kind == "i" else graph.ids.tolist()
    return data


def hetero_data(graph: Graph, tensor: Callable[..., torch.Tensor]) -> HeteroData:
    """A ``HeteroData`` with all of a heterogeneous graph; ``tensor`` copies an array into one."""
    from torch_geometric.data import HeteroData

    from partition.importing.assemble import taken_apart

    parts, data = taken_apart(graph), HeteroData()
    for name, count in parts.counts.items():
        one = data[name]
        one.num_nodes = count
        if name in parts.features:
            one.x = tensor(parts.features[name])
        if name in parts.labels:
            one.y = tensor(parts.labels[name], np.int64)
        elif name in parts.targets:
            one.y = tensor(parts.targets[name])
        for mask, rows in parts.masks.items():
            if name in rows:
                one[f"{mask}_mask"] = tensor(rows[name])
        if name in parts.ids:
            ids = parts.ids[name]
            one.ids = tensor(ids) if ids.dtype.kind == "i" else ids.tolist()
    for arcs_of in parts.arcs:
        found = data[tuple(arcs_of.relation)]
        found.edge_index = tensor(np.stack([arcs_of.source, arcs_of.target]), np.int64)
        if arcs_of.weights is not None:
            found.edge_weight = tensor(arcs_of.weights, np.float32)
    return data
