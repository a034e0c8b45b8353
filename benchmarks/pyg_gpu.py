"""Seconds per epoch of PyTorch Geometric on a GPU: pyg_gpu.py G.graph WIDTH LAYERS.

GCN with the graph as ``edge_index`` and as a sparse CSR tensor, normalised once; GraphSAGE and GAT
with one head, as ``edge_index``; full batch, Adam, no dropout; a line of JSON each. gcnmpi's epoch
with the same widths is that of ``gcnmpi train --set model.name=… --set model.hidden=WIDTH,…``.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

from partition.graph.aggregation import aggregation_matrix
from partition.graph.store import open_graph

EPOCHS, WARM = 20, 3
LAYERS = {
    "gcn": partial(GCNConv, normalize=False),
    "sage": SAGEConv,
    "gat": partial(GATConv, add_self_loops=False),
}


def main(path: str, width: str, layers: str, device: str = "cuda") -> None:
    """Print a line for each form of the graph."""
    stored = open_graph(path)
    graph, manifest = stored.graph, stored.manifest
    matrix = aggregation_matrix(graph, "in", True, "sym").astype(np.float32)
    x = torch.from_numpy(np.array(graph.features[np.arange(manifest.n)], np.float32)).to(device)
    y = torch.from_numpy(np.array(graph.labels, np.int64)).to(device)
    both = matrix.tocoo()
    arcs = torch.from_numpy(np.stack([both.row, both.col]).astype(np.int64)).to(device)
    weights = torch.from_numpy(both.data).to(device)
    parts = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data)
    rows = torch.sparse_csr_tensor(*map(torch.from_numpy, parts), matrix.shape).to(device)
    widths = [manifest.features, *[int(width)] * (int(layers) - 1), manifest.classes]
    cases = {
        "gcn edge_index": (arcs, weights), "gcn csr": (rows,),
        "sage edge_index": (arcs,), "gat edge_index": (arcs,),
    }  # fmt: skip
    for form, given in cases.items():
        seconds = epochs(LAYERS[form.split()[0]], widths, x, y, given, device)
        record = {
            "graph": path, "form": form, "widths": widths, "seconds_per_epoch": seconds,
            "torch": torch.__version__, "pyg": torch_geometric.__version__, "device": device,
        }  # fmt: skip
        print(json.dumps(record), flush=True)


def epochs(
    layer: Callable[[int, int], torch.nn.Module], widths: list[int], x: torch.Tensor,
    y: torch.Tensor, given: tuple, device: str,
) -> float:  # fmt: skip
    """Median seconds of an epoch."""
    convs = [layer(a, b) for a, b in itertools.pairwise(widths)]
    network = torch.nn.ModuleList(convs).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    times = []
    for _ in range(EPOCHS + WARM):
        began = time.perf_counter()
        optimizer.zero_grad()
        h = x
        for number, conv in enumerate(network):
            h = conv(h if number == 0 else F.relu(h), *given)
        loss = F.cross_entropy(h, y, ignore_index=-1)
        loss.backward()
        optimizer.step()
        loss.item()  # waits for the device
        times.append(time.perf_counter() - began)
    return statistics.median(times[WARM:])


if __name__ == "__main__":
    main(*sys.argv[1:])
