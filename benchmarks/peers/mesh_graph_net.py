"""MeshGraphNet in plain PyTorch, as its paper describes it: each concatenation is one matrix."""

from __future__ import annotations

import torch

from gcnmpi.options.model import MeshOptions
from partition.errors import UserError
from peers.task import Case, Contestant, open_task, training


def train(case: Case) -> Contestant:
    """One with the hidden layers of the case as its blocks."""
    task = open_task(case)
    model = task.config.model
    if not isinstance(model, MeshOptions):
        raise UserError("it takes part for mgn only")
    ends = task.x.shape[1], 0 if task.of_arcs is None else task.of_arcs.shape[1], task.classes
    blocks = model.hidden[0], len(model.hidden), model.mlp_layers, model.reduction
    network = MeshGraphNet(ends, *blocks)
    network.load_state_dict(task.state)
    return training(task, lambda x: network(x, task.arcs, task.of_arcs), network)


class MeshGraphNet(torch.nn.Module):
    """Encoders, blocks and a decoder (Pfaff et al. 2021), with the names of PhysicsNeMo's.

    Parameters
    ----------
    ends : (int, int, int)
        Widths of the features of vertices and of arcs, 0 without, and of the output.
    width : int
        Of the states.
    hidden : int
        Hidden layers of each multilayer perceptron.
    reduction : str
        "sum" or "mean" of the arcs into a vertex.
    """

    def __init__(
        self, ends: tuple[int, int, int], width: int, blocks: int, hidden: int, reduction: str
    ) -> None:
        super().__init__()
        features, arcs, out = ends
        self.reduction = reduction
        self.node_encoder = perceptron(features, width, width, hidden)
        if arcs:
            self.edge_encoder = perceptron(arcs, width, width, hidden)
        layers = []
        for block in range(blocks):
            parts = 3 if arcs or block else 2
            for name, columns in (("edge_mlp", parts * width), ("node_mlp", 2 * width)):
                made = perceptron(columns, width, width, hidden)
                layers.append(torch.nn.ModuleDict({name: made}))
        self.processor = torch.nn.ModuleDict({"processor_layers": torch.nn.ModuleList(layers)})
        self.node_decoder = perceptron(width, out, width, hidden, norm=False)

    def forward(
        self, x: torch.Tensor, arcs: torch.Tensor, of_arcs: torch.Tensor | None
    ) -> torch.Tensor:
        """Output of all vertices; ``arcs`` are their sources and targets, (2, arcs)."""
        source, target = arcs
        x = self.node_encoder.model(x)
        e = None if of_arcs is None or not hasattr(self, "edge_encoder") else of_arcs
        e = None if e is None else self.edge_encoder.model(e)
        layers = iter(self.processor.processor_layers)
        for edge, node in zip(layers, layers, strict=True):
            states = [x[source], x[target]]
            if e is None:
                e = edge.edge_mlp.model(torch.cat(states, 1))
            else:
                e = e + edge.edge_mlp.model(torch.cat([e, *states], 1))
            total = torch.zeros_like(x).index_add(0, target, e)
            if self.reduction == "mean":
                counts = torch.bincount(target, minlength=len(x))
                total = total / counts.clamp(min=1)[:, None]
            x = x + node.node_mlp.model(torch.cat([total, x], 1))
        return self.node_decoder.model(x)


def perceptron(
    d_in: int, d_out: int, width: int, hidden: int, norm: bool = True
) -> torch.nn.ModuleDict:
    """Hidden layers with ReLU, a linear one, and the norm of each row."""
    linear, relu = torch.nn.Linear, torch.nn.ReLU
    parts: list[torch.nn.Module] = [linear(d_in, width), relu()]
    for _ in range(hidden - 1):
        parts += [linear(width, width), relu()]
    parts.append(linear(width, d_out))
    if norm:
        parts.append(torch.nn.LayerNorm(d_out))
    return torch.nn.ModuleDict({"model": torch.nn.Sequential(*parts)})
