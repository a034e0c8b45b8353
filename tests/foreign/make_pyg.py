"""Write the fixtures of this folder that PyTorch Geometric makes; torch is no dependency of tests.

Usage: python tests/foreign/make_pyg.py   (written with torch 2.13 and torch_geometric 2.8.1)

A graph, networks that were trained on it for a few epochs in float64, their state dicts as
``torch.save`` writes them, and their logits. Every network has its description in ``pyg.toml``, as
the table [model] of the file that ``gcnmpi infer --network`` takes.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric.nn as pyg
from torch.nn import Linear, ModuleList, ReLU, Sequential

HERE = Path(__file__).parent
N, WIDTH, HIDDEN, CLASSES, OF_ARCS = 40, 5, 6, 3, 2


class Stack(torch.nn.Module):
    """Convolution, linear residual, batch norm, ReLU, as in "Classic GNNs are strong baselines".

    With ``of_arcs`` the convolutions are given the features of arcs.
    """

    def __init__(self, convolution: Any, of_arcs: bool = False) -> None:
        super().__init__()
        self.of_arcs = of_arcs
        widths = [WIDTH, HIDDEN, HIDDEN, CLASSES]
        pairs = list(pairwise(widths))
        self.convs = ModuleList(convolution(*pair, pair[1] == CLASSES) for pair in pairs)
        self.residuals = ModuleList(Linear(*pair) for pair in pairs)
        self.norms = ModuleList(torch.nn.BatchNorm1d(width) for width in widths[1:-1])

    def forward(self, x: torch.Tensor, edges: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        """Logits of all vertices."""
        given = given if self.of_arcs else ()
        for k, (conv, residual) in enumerate(zip(self.convs, self.residuals, strict=True)):
            x = conv(x, edges, *given) + residual(x)
            if k < len(self.norms):
                x = self.norms[k](x).relu()
        return x


def perceptron(d_in: int, d_out: int) -> Sequential:
    """The MLP that most examples write."""
    norm = torch.nn.BatchNorm1d(d_out)
    return Sequential(Linear(d_in, d_out), norm, ReLU(), Linear(d_out, d_out))


def heads(kind: Any, **options: Any) -> Any:
    """Two heads, concatenated in hidden layers and averaged in the last one."""

    def make(d_in: int, d_out: int, last: bool) -> Any:
        return kind(d_in, d_out if last else d_out // 2, heads=2, concat=not last, **options)

    return make


def averaged(d_in: int, d_out: int, last: bool) -> pyg.TransformerConv:
    """Two heads, averaged in every layer, with a gate and features of arcs."""
    return pyg.TransformerConv(d_in, d_out, 2, False, True, edge_dim=OF_ARCS)


def pna(degrees: torch.Tensor, **options: Any) -> Any:
    """All aggregators and scalers that are the defaults here, or others."""
    aggregators, scalers = ["mean", "min", "max", "std"], ["identity", "amplification"]
    given = {"aggregators": aggregators, "scalers": [*scalers, "attenuation"]} | options

    def make(d_in: int, d_out: int, last: bool) -> Any:
        return pyg.PNAConv(d_in, d_out, deg=degrees, **given)

    return make


ATTENTION = {"heads": 2, "out_heads": 2}
BASIC: dict[str, Any] = {"in_channels": WIDTH, "hidden_channels": HIDDEN, "out_channels": CLASSES}
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "gcn": (lambda: Stack(lambda i, o, _: pyg.GCNConv(i, o)), {}),
    "sage": (lambda: Stack(lambda i, o, _: pyg.SAGEConv(i, o)), {}),
    "gin": (
        lambda: Stack(lambda i, o, _: pyg.GINConv(perceptron(i, o), train_eps=True)),
        {"train_eps": True},
    ),
    "gat": (lambda: Stack(heads(pyg.GATConv)), ATTENTION),
    "gatv2": (lambda: Stack(heads(pyg.GATv2Conv)), ATTENTION),
    "basic-gcn": (
        lambda: pyg.GCN(**BASIC, num_layers=3, norm="batch_norm", jk="cat"),
        {"hidden": [HIDDEN] * 3, "residual": "none", "jk": "cat"},
    ),
    "basic-sage": (
        lambda: pyg.GraphSAGE(**BASIC, num_layers=2, act="prelu", jk="max"),
        {"norm": "none", "residual": "none", "activation": "prelu", "jk": "max"},
    ),
    "basic-gin": (
        lambda: pyg.GIN(**BASIC, num_layers=2, norm="batch_norm", eps=0.25),
        {"hidden": [HIDDEN], "residual": "none", "eps": 0.25},
    ),
    "basic-gat": (
        lambda: pyg.GAT(**BASIC, num_layers=2, heads=2, act="elu", residual=True),
        ATTENTION | {"hidden": [HIDDEN], "norm": "none", "activation": "elu"},
    ),
    "basic-gatv2": (
        lambda: pyg.GAT(
            **BASIC, num_layers=2, v2=True, heads=2, norm="layer_norm",
            norm_kwargs={"mode": "node"}, jk="last",
        ),
        ATTENTION | {"norm": "layer", "residual": "none", "linear_after": True},
    ),
}  # fmt: skip
ARCS = {"arc_features": True}
# The same of networks with rows of arcs; PNA's are told how many vertices have which degree.
CASES_OF_ARCS: dict[str, tuple[Any, dict[str, Any]]] = {
    "gine": (
        lambda _: Stack(
            lambda i, o, _: pyg.GINEConv(perceptron(i, o), eps=0.25, edge_dim=OF_ARCS), True
        ),
        {"eps": 0.25},
    ),
    "gat-arcs": (lambda _: Stack(heads(pyg.GATConv, edge_dim=OF_ARCS), True), ATTENTION | ARCS),
    "gatv2-arcs": (lambda _: Stack(heads(pyg.GATv2Conv, edge_dim=OF_ARCS), True), ATTENTION | ARCS),
    "transformer": (
        lambda _: Stack(averaged, True),
        ATTENTION | ARCS | {"concat": False, "beta": True},
    ),
    "transformer-plain": (
        lambda _: Stack(heads(pyg.TransformerConv, root_weight=False)),
        ATTENTION | {"root_weight": False},
    ),
    "gatedgcn": (
        lambda _: Stack(lambda i, o, _: pyg.ResGatedGraphConv(i, o, edge_dim=OF_ARCS), True),
        ARCS,
    ),
    "gatedgcn-plain": (
        lambda _: Stack(lambda i, o, _: pyg.ResGatedGraphConv(i, o, root_weight=False)),
        {"root_weight": False},
    ),
    "pna": (lambda degrees: Stack(pna(degrees, edge_dim=OF_ARCS), True), ARCS),
    "pna-towers": (
        lambda degrees: Stack(pna(degrees, scalers=["identity"], towers=3, pre_layers=2)),
        {"scalers": "identity", "towers": 3, "pre_layers": 2},
    ),
}


def main() -> None:
    """Write the graph and all files of PyTorch Geometric's networks."""
    torch.manual_seed(7)
    torch.set_default_dtype(torch.float64)
    random = np.random.default_rng(7)
    dense = random.random((N, N)) < 0.08
    np.fill_diagonal(dense, False)
    dense[-2:] = dense[:, -2:] = False  # isolated vertices
    edges = np.stack(np.nonzero(dense)).astype(np.int64)
    features = random.standard_normal((N, WIDTH)).astype(np.float32)
    labels = random.integers(0, CLASSES, N)
    of_arcs = random.standard_normal((edges.shape[1], OF_ARCS)).astype(np.float32)
    np.savez(HERE / "graph.npz", edges=edges, features=features, arc_features=of_arcs)
    given = torch.from_numpy(features).double(), torch.from_numpy(edges)
    degrees = torch.bincount(torch.bincount(given[1][1], minlength=N))
    with_arcs = *given, torch.from_numpy(of_arcs).double()
    cases = {name: (make(), options, given) for name, (make, options) in CASES.items()}
    cases |= {
        name: (make(degrees), options, with_arcs) for name, (make, options) in CASES_OF_ARCS.items()
    }
    logits, lines = {}, []
    for name, (model, options, inputs) in cases.items():
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(5):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(*inputs), torch.from_numpy(labels))
            loss.backward()
            optimizer.step()
        logits[name] = model.eval()(*inputs).detach().numpy()
        torch.save(model.state_dict(), HERE / f"{name}.pt")
        kind = name.removeprefix("basic-").partition("-")[0]
        table = {"name": kind, "hidden": [HIDDEN] * 2, "norm": "batch", "residual": "linear"}
        spelled = (f"{key} = {json.dumps(value)}" for key, value in (table | options).items())
        lines.append(f"{name} = {{{', '.join(spelled)}}}\n")
    (HERE / "pyg.toml").write_text("".join(lines))
    np.savez(HERE / "pyg.npz", **logits)


if __name__ == "__main__":
    main()
