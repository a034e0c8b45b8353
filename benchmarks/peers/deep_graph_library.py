"""A contestant made of DGL's own layers."""

from __future__ import annotations

import torch

from partition.errors import UserError

try:
    import dgl
    import dgl.nn.pytorch as layers
except OSError as error:  # it looks for a library made for this version of PyTorch
    raise UserError(str(error)) from error
from gcnmpi.options.model import ModelConfig
from peers.task import Case, Contestant, Stack, open_task, training


def train(case: Case) -> Contestant:
    """Its layers take the parameters by names of their own."""
    task = open_task(case)
    m = task.matrix.tocoo()
    arcs = dgl.graph((torch.from_numpy(m.col), torch.from_numpy(m.row)), num_nodes=m.shape[0])
    network = Stack(task, LAYERS, lambda layer, x: layer(arcs, x).flatten(1))
    for k, layer in enumerate(network.convs):
        names = NAMES[task.config.model.name]
        state = {own: task.state[f"convs.{k}.{name}"] for own, name in names.items()}
        if isinstance(layer, layers.GraphConv):
            state["weight"] = state["weight"].T
        layer.load_state_dict(state)
    return training(task, network, network, dgl=dgl.__version__)


class SageMax(torch.nn.Module):
    """GraphSAGE with the plain maximum of the neighbours, which DGL's SAGEConv does not have."""

    def __init__(self, d_in: int, width: int) -> None:
        super().__init__()
        self.fc_neigh = torch.nn.Linear(d_in, width, bias=False)
        self.fc_self = torch.nn.Linear(d_in, width)

    def forward(self, arcs: dgl.DGLGraph, x: torch.Tensor) -> torch.Tensor:
        """max over neighbours · W₁ + x · W₂ + b."""
        with arcs.local_scope():
            arcs.srcdata["x"] = x
            arcs.update_all(dgl.function.copy_u("x", "m"), dgl.function.max("m", "y"))
            return self.fc_neigh(arcs.dstdata["y"]) + self.fc_self(x)


def gcn(model: ModelConfig, d_in: int, width: int, last: bool) -> torch.nn.Module:
    """On the graph with its self-loops."""
    return layers.GraphConv(d_in, width, norm="both")


def gat(model: ModelConfig, d_in: int, width: int, last: bool) -> torch.nn.Module:
    """``width`` is that of all heads together; the logits have one."""
    heads = 1 if last else model.heads
    return layers.GATConv(d_in, width // heads, heads, negative_slope=model.negative_slope)


def sage(model: ModelConfig, d_in: int, width: int, last: bool) -> torch.nn.Module:
    """With the root's weight."""
    if model.aggregation == "max":
        return SageMax(d_in, width)
    return layers.SAGEConv(d_in, width, model.aggregation)


def gin(model: ModelConfig, d_in: int, width: int, last: bool) -> torch.nn.Module:
    """With an MLP of two layers."""
    linear = torch.nn.Linear
    return layers.GINConv(
        torch.nn.Sequential(linear(d_in, width), torch.nn.ReLU(), linear(width, width)), "sum"
    )


LAYERS = {"gcn": gcn, "gat": gat, "sage": sage, "gin": gin}
# Network → DGL's name of each parameter, and PyTorch Geometric's.
NAMES = {
    "gcn": {"weight": "lin.weight", "bias": "bias"},
    "gat": {"fc.weight": "lin.weight", "attn_l": "att_src", "attn_r": "att_dst", "bias": "bias"},
    "sage": {
        "fc_neigh.weight": "lin_l.weight", "fc_self.bias": "lin_l.bias",
        "fc_self.weight": "lin_r.weight",
    },
    "gin": {
        "eps": "eps",
        "apply_func.0.weight": "nn.lins.0.weight", "apply_func.0.bias": "nn.lins.0.bias",
        "apply_func.2.weight": "nn.lins.1.weight", "apply_func.2.bias": "nn.lins.1.bias",
    },
}  # fmt: skip
