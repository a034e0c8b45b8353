"""Heterogeneous graphs as objects of PyTorch Geometric."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from partition.graph.graph import Graph

if TYPE_CHECKING:
    import torch
    from torch_geometric.data import HeteroData


def hetero_data(graph: Graph, tensor: Callable[..., torch.Tensor]) -> HeteroData:
    """A ``HeteroData`` with all of a heterogeneous graph; ``tensor`` copies an array into one."""
    from torch_geometric.data import HeteroData

    from partition.importing.typed_export import taken_apart

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
