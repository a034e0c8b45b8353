"""Write the fixtures of this folder that PyTorch Geometric makes; torch is no dependency of tests.

Usage: python tests/foreign/make_pyg.py   (written with torch 2.13 and torch_geometric 2.8)

``pyg.toml`` describes every network, as the table [model] of the file that ``gcnmpi infer
--network`` takes. Written are a graph, the state dicts of these networks after a few epochs in
float64 as ``torch.save`` writes them, and their logits. Modules are those of
``tests/differential``, and whole models of PyTorch Geometric by the names ``basic-…``.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric.nn as pyg
from torch.nn import BatchNorm1d, Linear, ModuleList, ReLU, Sequential
from torch.nn.functional import cross_entropy

HERE = Path(__file__).parent
sys.path += [str(HERE.parent), str(HERE.parent / "differential")]
from layers import module_of  # noqa: E402 (found there only)
from stored_graphs import graph_of  # noqa: E402

from gcnmpi.options.config import from_table  # noqa: E402
from gcnmpi.proof import oracle  # noqa: E402
from partition.graph.arc_data import ArcData  # noqa: E402
from partition.graph.graph import Graph  # noqa: E402

N, WIDTH, HIDDEN, CLASSES, OF_ARCS = 40, 5, 6, 3, 2
ENDS: dict[str, Any] = {"in_channels": WIDTH, "hidden_channels": HIDDEN, "out_channels": CLASSES}
HEADS = {"num_layers": 2, "heads": 2}
BASIC = {
    "basic-gcn": (pyg.GCN, {"num_layers": 3, "norm": "batch_norm", "jk": "cat"}),
    "basic-sage": (pyg.GraphSAGE, {"num_layers": 2, "act": "prelu", "jk": "max"}),
    "basic-gin": (pyg.GIN, {"num_layers": 2, "norm": "batch_norm", "eps": 0.25}),
    "basic-gat": (pyg.GAT, HEADS | {"act": "elu", "residual": True}),
    "basic-gatv2": (
        pyg.GAT,
        HEADS | {"v2": True, "norm": "layer_norm", "norm_kwargs": {"mode": "node"}, "jk": "last"},
    ),
}


def made(name: str, table: dict[str, Any], graph: Graph) -> tuple[torch.nn.Module, list[Any]]:
    """A network, and the features of arcs if it takes them; norms and MLPs as in examples."""
    if name in BASIC:
        kind, options = BASIC[name]
        return kind(**ENDS, **options), []
    config = from_table({"dtype": "float64", "model": table})
    net, given = module_of(graph, oracle.Problem(graph, "in", config))
    net.norms = ModuleList(BatchNorm1d(HIDDEN) for _ in net.norms)
    for conv in net.convs if name == "gin" else ():
        first, last = (lin.weight.shape for lin in conv.nn.lins)
        norm = BatchNorm1d(first[0])
        conv.nn = Sequential(Linear(first[1], first[0]), norm, ReLU(), Linear(last[1], last[0]))
    return net, given


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
    # The program's rows are targets.
    data = {"labels": labels.astype(np.int32), "masks": {"train": np.ones(N, bool)}}
    arc_data = ArcData(of_arcs[np.lexsort(edges)])
    graph = graph_of(dense.T, features=features, arc_data=arc_data, **data)
    given = torch.from_numpy(features).double(), torch.from_numpy(edges)
    logits = {}
    for name, table in tomllib.loads((HERE / "pyg.toml").read_text()).items():
        model, arcs = made(name, table, graph)
        takes = [None] if arcs == [None] else [torch.from_numpy(of_arcs).double()] * len(arcs)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(5):
            optimizer.zero_grad()
            cross_entropy(model(*given, *takes), torch.from_numpy(labels)).backward()
            optimizer.step()
        logits[name] = model.eval()(*given, *takes).detach().numpy()
        torch.save(model.state_dict(), HERE / f"{name}.pt")
    np.savez(HERE / "pyg.npz", **logits)


if __name__ == "__main__":
    main()
