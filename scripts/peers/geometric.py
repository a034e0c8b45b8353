"""PyTorch Geometric's layers, with the graph as a list of arcs or as a sparse CSR tensor."""

from __future__ import annotations

import numpy as np
import torch
import torch_geometric
import torch_geometric.nn as pyg

from gcnmpi.options.model import ModelConfig
from peers.task import Case, Contestant, Stack, Task, open_task, training

# Self-loops are given: the layers would add them in every epoch, and GCNConv adds them to a sparse
# tensor also where there are some.
GIVEN = {"add_self_loops": False}


def by_arcs(case: Case) -> Contestant:
    """The graph as ``edge_index``."""
    task = open_task(case)
    both = task.matrix.tocoo()
    return train(task, torch.from_numpy(np.stack([both.row, both.col]).astype(np.int64)))


def by_rows(case: Case) -> Contestant:
    """The graph as a sparse CSR tensor."""
    task = open_task(case)
    m = task.matrix
    parts = (m.indptr.astype(np.int64), m.indices.astype(np.int64), m.data.astype(np.float32))
    return train(task, torch.sparse_csr_tensor(*map(torch.from_numpy, parts), m.shape))


def train(task: Task, arcs: torch.Tensor) -> Contestant:
    """Its layers have the names of gcnmpi's parameters."""
    network = Stack(task, LAYERS, lambda layer, x: layer(x, arcs))
    network.load_state_dict(task.state)
    return training(task, network, torch_geometric=torch_geometric.__version__)


def gcn(model: ModelConfig, d_in: int, width: int, last: bool) -> torch.nn.Module:
    """It keeps the normalised graph."""
    return pyg.GCNConv(d_in, width, cached=True, **GIVEN)


def gat(model: ModelConfig, d_in: int, width: int, last: bool) -> torch.nn.Module:
    """``width`` is that of all heads together; the logits have one."""
    heads = 1 if last else model.heads
    slope = model.negative_slope
    return pyg.GATConv(d_in, width // heads, heads, negative_slope=slope, **GIVEN)


def sage(model: ModelConfig, d_in: int, width: int, last: bool) -> torch.nn.Module:
    """With the root's weight."""
    return pyg.SAGEConv(d_in, width, aggr=model.aggregation)


def gin(model: ModelConfig, d_in: int, width: int, last: bool) -> torch.nn.Module:
    """With an MLP of two layers."""
    return pyg.GINConv(pyg.MLP([d_in, width, width], norm=None))


LAYERS = {"gcn": gcn, "gat": gat, "sage": sage, "gin": gin}
