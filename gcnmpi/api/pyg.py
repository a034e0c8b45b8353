"""A graph of PyTorch Geometric out of a graph folder; torch is imported here only."""

from __future__ import annotations

from typing import Any

import numpy as np

from partition.errors import UserError, installing
from partition.graph.graph import Graph, arcs


def to_pyg(graph: Graph) -> Any:
    """The tensors of a graph, as :meth:`gcnmpi.api.graph.Graph.to_pyg` describes them."""
    try:
        import torch
        from torch_geometric.data import Data
    except ModuleNotFoundError as error:
        raise UserError(
            f"to_pyg needs the Python package {error.name!r}",
            installing("torch", "torch_geometric"),
        ) from error

    def tensor(values: Any, dtype: Any = None) -> Any:
        return torch.from_numpy(np.array(values, dtype))  # a copy: files are mapped read-only

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
    if graph.ids is not None:
        data.ids = tensor(graph.ids) if graph.ids.dtype.kind == "i" else graph.ids.tolist()
    return data
