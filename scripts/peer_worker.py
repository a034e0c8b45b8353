#!/usr/bin/env python
"""A contestant of scripts/bench_peers.py: trains a GCN with one library, some epochs on request.

Usage: peer_worker.py gcnmpi|torch|torch-tuned|pyg|pyg-csr|dgl

Reads JSON objects from standard input, one a line, and answers each with one. The first is the
case: graph, hidden, threads, cache, seed, lr, kernel; the answer is {"versions": …} or, where the
library is not installed, {"missing": why}. Then {"epochs": n} is answered with {"seconds": [n
numbers], "losses": [n numbers]}. The end of the input ends it.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import count, pairwise
from typing import Any, NoReturn

import numpy as np

from gcnmpi.core.rng import glorot
from partition.graph.graph import Graph, aggregation_matrix, training_vertices
from partition.graph.store import open_graph

Case = dict[str, Any]
Epoch = Callable[[], float]  # trains one, returns its loss


def main() -> None:
    """Answer until the input ends."""
    name, case = sys.argv[1], json.loads(sys.stdin.readline())
    if name == "gcnmpi":
        train_with_ours(case)
    try:
        epoch, versions = PEERS[name](case)
    except ImportError as error:
        answer({"missing": f"{type(error).__name__}: {error}"})
        return
    serve(epoch, versions)


def serve(epoch: Epoch, versions: dict[str, str]) -> None:
    """Say that the contestant is ready, and train on request."""
    answer({"versions": versions})
    for line in sys.stdin:
        seconds, losses = [], []
        for _ in range(json.loads(line)["epochs"]):
            began = time.perf_counter()
            losses.append(epoch())
            seconds.append(time.perf_counter() - began)
        answer({"seconds": seconds, "losses": losses})


def answer(values: dict[str, Any]) -> None:
    """Write one line, now."""
    print(json.dumps(values), flush=True)


def train_with_ours(case: Case) -> NoReturn:
    """One rank of gcnmpi."""
    from gcnmpi import __version__
    from gcnmpi.core.config import from_table
    from gcnmpi.mpi import comm
    from gcnmpi.run.problem import open_problem
    from gcnmpi.run.trainer import Step

    kernel = {"kernel": case["kernel"]} if case["kernel"] else {}
    config = from_table({
        **kernel, "threads": case["threads"],
        "model": {"hidden": case["hidden"], "cache_input": case["cache"]},
        "train": {"lr": case["lr"], "seed": case["seed"]},
    })  # fmt: skip

    def job(world: Any) -> int:
        problem = open_problem(world, case["graph"], None, config)
        step, numbers = Step(problem), count(1)
        serve(lambda: step(next(numbers)), {"gcnmpi": __version__, "kernel": problem.kernel.name})
        return 0

    comm.run(job)


def plain_torch(case: Case, tuned: bool) -> tuple[Epoch, dict[str, str]]:
    """PyTorch with M as a sparse CSR tensor; tuned: told that M is its own transpose."""
    torch = with_torch(case)
    graph = open_graph(case["graph"]).graph
    m = aggregation_matrix(graph)
    indices = [torch.from_numpy(part.astype(np.int32)) for part in (m.indptr, m.indices)]
    matrix = torch.sparse_csr_tensor(*indices, torch.from_numpy(m.data.astype(np.float32)), m.shape)

    class Aggregate(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return matrix @ x

        @staticmethod
        def backward(ctx, grad):
            return matrix @ grad

    aggregate = Aggregate.apply if tuned else lambda product: matrix @ product
    x, kept = torch.from_numpy(np.array(graph.features, np.float32)), case["cache"] and tuned
    if kept:
        x = matrix @ x
    weights = [torch.from_numpy(w.astype(np.float32)) for w in initial_weights(case, graph)]
    biases = [torch.zeros(w.shape[1]) for w in weights]
    parameters = [torch.nn.Parameter(p) for p in (*weights, *biases)]

    def forward():
        h = x
        for k, (weight, bias) in enumerate(
            zip(parameters[: len(weights)], parameters[len(weights) :], strict=True)
        ):
            h = torch.relu(h) if k else h
            product = h @ weight
            h = (product if kept and not k else aggregate(product)) + bias
        return h

    return torch_epoch(torch, case, graph, forward, parameters), {"torch": torch.__version__}


def geometric(case: Case, csr: bool) -> tuple[Epoch, dict[str, str]]:
    """PyTorch Geometric's GCNConv, which keeps the normalised graph; as arcs, or as sparse CSR."""
    torch = with_torch(case)
    import torch_geometric
    from torch_geometric.nn import GCNConv

    graph = open_graph(case["graph"]).graph
    # Self-loops are given: GCNConv adds them to a sparse tensor also where there are some.
    adjacency = aggregation_matrix(graph, normalize="none")
    if csr:
        parts = (adjacency.indptr, adjacency.indices, adjacency.data)
        kinds = (np.int64, np.int64, np.float32)
        tensors = [torch.from_numpy(p.astype(kind)) for p, kind in zip(parts, kinds, strict=True)]
        arcs = torch.sparse_csr_tensor(*tensors, adjacency.shape)
    else:
        both = adjacency.tocoo()
        arcs = torch.from_numpy(np.stack([both.row, both.col]).astype(np.int64))
    layers = []
    for weight in initial_weights(case, graph):
        layer = GCNConv(*weight.shape, cached=True, add_self_loops=False)
        with torch.no_grad():
            layer.lin.weight.copy_(torch.from_numpy(weight.T))
            layer.bias.zero_()
        layers.append(layer)
    x = torch.from_numpy(np.array(graph.features, np.float32))

    def forward():
        h = x
        for k, layer in enumerate(layers):
            h = layer(torch.relu(h) if k else h, arcs)
        return h

    parameters = [p for layer in layers for p in layer.parameters()]
    versions = {"torch": torch.__version__, "torch_geometric": torch_geometric.__version__}
    return torch_epoch(torch, case, graph, forward, parameters), versions


def deep_graph_library(case: Case) -> tuple[Epoch, dict[str, str]]:
    """DGL's GraphConv, on the graph with its self-loops."""
    torch = with_torch(case)
    try:
        import dgl
        from dgl.nn.pytorch import GraphConv
    except OSError as error:  # it looks for a library made for this version of PyTorch
        raise ImportError(str(error)) from error

    graph = open_graph(case["graph"]).graph
    m = aggregation_matrix(graph).tocoo()
    arcs = dgl.graph((torch.from_numpy(m.col), torch.from_numpy(m.row)), num_nodes=graph.n)
    layers = []
    for weight in initial_weights(case, graph):
        layer = GraphConv(*weight.shape, norm="both")
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight))
            layer.bias.zero_()
        layers.append(layer)
    x = torch.from_numpy(np.array(graph.features, np.float32))

    def forward():
        h = x
        for k, layer in enumerate(layers):
            h = layer(arcs, torch.relu(h) if k else h)
        return h

    parameters = [p for layer in layers for p in layer.parameters()]
    versions = {"torch": torch.__version__, "dgl": dgl.__version__}
    return torch_epoch(torch, case, graph, forward, parameters), versions


PEERS: dict[str, Callable[[Case], tuple[Epoch, dict[str, str]]]] = {
    "torch": partial(plain_torch, tuned=False),
    "torch-tuned": partial(plain_torch, tuned=True),
    "pyg": partial(geometric, csr=False),
    "pyg-csr": partial(geometric, csr=True),
    "dgl": deep_graph_library,
}


def with_torch(case: Case) -> Any:
    """PyTorch with the threads of the case."""
    import torch

    warnings.filterwarnings("ignore", "Sparse")  # CSR tensors are called beta
    torch.set_num_threads(case["threads"])
    return torch


def initial_weights(case: Case, graph: Graph) -> list[np.ndarray]:
    """Those that gcnmpi starts from; biases are 0."""
    widths = (graph.features.shape[1], *case["hidden"], graph.classes)
    return [
        glorot(case["seed"], k, d_in, d_out) for k, (d_in, d_out) in enumerate(pairwise(widths), 1)
    ]


def torch_epoch(
    torch: Any, case: Case, graph: Graph, forward: Callable[[], Any], parameters: list
) -> Epoch:
    """An epoch of Adam on the cross-entropy of the training vertices."""
    optimizer = torch.optim.Adam(parameters, lr=case["lr"])
    trained = training_vertices(graph)
    rows = None if trained.all() else torch.from_numpy(np.flatnonzero(trained))
    labels = torch.from_numpy(np.array(graph.labels[trained], np.int64))

    def epoch() -> float:
        optimizer.zero_grad(set_to_none=True)
        logits = forward()
        loss = torch.nn.functional.cross_entropy(logits if rows is None else logits[rows], labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return epoch


if __name__ == "__main__":
    main()
