"""PyTorch Geometric's layers, with the graph as a list of arcs or as a sparse CSR tensor."""

from __future__ import annotations

from functools import partial

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
    layers = LAYERS
    apply = lambda layer, x: layer(x, arcs)  # noqa: E731
    if task.config.model.name in OF_ARCS:
        layers = {name: partial(make, task) for name, make in OF_ARCS.items()}
        apply = lambda layer, x: layer(x, task.arcs, task.of_arcs)  # noqa: E731
    network = Stack(task, layers, apply)
    network.load_state_dict(task.state)
    return training(task, network, network, torch_geometric=torch_geometric.__version__)


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


def gine(task: Task, model: ModelConfig, d_in: int, width: int, last: bool) -> torch.nn.Module:
    """With an MLP of two layers, and the features of arcs."""
    assert task.of_arcs is not None
    mlp = pyg.MLP([d_in, width, width], norm=None)
    return pyg.GINEConv(mlp, edge_dim=task.of_arcs.shape[1])


def transformer(
    task: Task, model: ModelConfig, d_in: int, width: int, last: bool
) -> torch.nn.Module:
    """One head, without or with the features of arcs."""
    return pyg.TransformerConv(d_in, width, edge_dim=_width(task, model))


def pna(task: Task, model: ModelConfig, d_in: int, width: int, last: bool) -> torch.nn.Module:
    """With the aggregators and scalers of the case."""
    degrees = torch.bincount(torch.bincount(task.arcs[1], minlength=len(task.x)))
    given = model.aggregators.split("+"), model.scalers.split("+"), degrees
    return pyg.PNAConv(d_in, width, *given, edge_dim=_width(task, model))


def _width(task: Task, model: ModelConfig) -> int | None:
    return task.of_arcs.shape[1] if model.arc_features else None


OF_ARCS = {"gine": gine, "transformer": transformer, "pna": pna}
LAYERS = {"gcn": gcn, "gat": gat, "sage": sage, "gin": gin}
