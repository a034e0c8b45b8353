"""Batches a second of SAGE in PyTorch: on blocks of ``g.batches``, and of DGL's loader.

    python benchmarks/batches.py G.graph --dgl /path/to/python

Two layers of 64, 1,024 seeds, 10 neighbours of a seed and 5 of these, Adam; forward, backward,
update and drawing. ``pyg-layers`` has SAGEConv of PyTorch Geometric, ``products`` the same by
``block.aggregate``; ``dgl`` DGL's SAGEConv on its blocks, in the Python environment that is given.
Each is a process of one thread; they take turns, an epoch each, of which the first is not counted.
A line of JSON each: median and quartiles of seconds a batch, and the ratio to ``products``.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SIZE, FANOUTS, WIDTH = 1024, [10, 5], 64
OURS = ("products", "pyg-layers")


def of_ours(name, path):
    """A function that trains an epoch on our batches."""
    import torch
    import torch.nn.functional as F
    from torch_geometric.nn import SAGEConv

    import gcnmpi.torch

    g = gcnmpi.torch.open(path, normalize="row", self_loops=False, threads=1)
    torch.manual_seed(0)
    widths = [g.num_features, WIDTH, g.num_classes]
    layers = torch.nn.ModuleList([SAGEConv(widths[k], widths[k + 1]) for k in range(2)])
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.01)

    def layer(conv, block, h):
        if name == "pyg-layers":
            return conv((block.expand(h), block.targets(h)), block.edge_index)
        return conv.lin_l(block.aggregate(h)) + conv.lin_r(block.targets(h))

    def epoch(number):
        batches = g.batches("neighbor", SIZE, FANOUTS, epoch=number)
        for batch in batches:
            optimizer.zero_grad()
            h = layer(layers[0], batch[0], batch.x).relu()
            out = layer(layers[1], batch[1], h)
            loss = batch.mean(F.cross_entropy(out, batch.y, reduction="none"))
            loss.backward()
            g.all_reduce_gradients(layers)
            optimizer.step()
        return len(batches), float(loss.detach())

    return epoch


def of_dgl(path):
    """The same by DGL's sampler, loader and layer."""
    import dgl
    import torch
    import torch.nn.functional as F
    from dgl.nn import SAGEConv

    torch.set_num_threads(1)
    data = np.load(path)
    source, target = (torch.from_numpy(data[name]) for name in ("source", "target"))
    graph = dgl.graph((source, target), num_nodes=len(data["x"])).formats("csc")
    graph.ndata["x"] = torch.from_numpy(data["x"])
    graph.ndata["y"] = torch.from_numpy(data["y"])
    seeds = torch.from_numpy(data["seeds"])
    sampler = dgl.dataloading.NeighborSampler(
        FANOUTS[::-1], prefetch_node_feats=["x"], prefetch_labels=["y"]
    )
    options = {"batch_size": SIZE, "shuffle": True, "drop_last": False, "num_workers": 0}
    loader = dgl.dataloading.DataLoader(graph, seeds, sampler, **options)
    torch.manual_seed(0)
    widths = [data["x"].shape[1], WIDTH, int(data["classes"])]
    layers = torch.nn.ModuleList([SAGEConv(widths[k], widths[k + 1], "mean") for k in range(2)])
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.01)

    def epoch(number):
        count = 0
        for _, _, blocks in loader:
            optimizer.zero_grad()
            h = layers[0](blocks[0], blocks[0].srcdata["x"]).relu()
            loss = F.cross_entropy(layers[1](blocks[1], h), blocks[-1].dstdata["y"])
            loss.backward()
            optimizer.step()
            count += 1
        return count, float(loss.detach())

    return epoch


def work(name, path):
    """Train an epoch for each line of standard input, and print its seconds a batch."""
    epoch = of_dgl(path) if name == "dgl" else of_ours(name, path)
    for number, _ in enumerate(sys.stdin, 1):
        began = time.perf_counter()
        batches, loss = epoch(number)
        print(json.dumps([(time.perf_counter() - began) / batches, loss]), flush=True)


def write_arrays(path, out):
    """The graph as DGL takes it: arcs without loops, features, classes, seeds."""
    from partition.graph.graph import arcs
    from partition.graph.store import open_graph

    graph = open_graph(path).graph
    source, target = arcs(graph).astype(np.int64), np.array(graph.indices, np.int64)
    labels = np.array(graph.labels, np.int64)
    train = np.array(graph.masks["train"]) & (labels >= 0)
    np.savez(
        out, source=source, target=target, x=np.array(graph.features[np.arange(graph.n)]),
        y=labels, seeds=np.flatnonzero(train), classes=labels.max() + 1,
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graph")
    parser.add_argument("--dgl", metavar="PYTHON", help="of an environment that has DGL")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.graph)
        return
    env = {**os.environ, "OMP_NUM_THREADS": "1", "DGLBACKEND": "pytorch"}
    with tempfile.TemporaryDirectory() as folder:
        arrays = str(Path(folder) / "graph.npz")
        names = [*OURS, *(["dgl"] if options.dgl else [])]
        if options.dgl:
            write_arrays(options.graph, arrays)
        workers = {}
        for name in names:
            python, path = (
                (options.dgl, arrays) if name == "dgl" else (sys.executable, options.graph)
            )
            words = [python, __file__, path, "--work", name]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            workers[name] = subprocess.Popen(words, env=env, **pipes)
        seconds = {name: [] for name in names}
        for _ in range(options.rounds + 1):
            for name, worker in workers.items():
                print("go", file=worker.stdin, flush=True)
                seconds[name].append(json.loads(worker.stdout.readline())[0])
        for worker in workers.values():
            worker.communicate()
    for name in names:
        times = np.array(seconds[name][1:])
        ratios = times / np.array(seconds["products"][1:])
        low, median, high = np.percentile(times, [25, 50, 75])
        print(json.dumps({
            "who": name, "seconds": round(median, 5), "quartiles": [round(low, 5), round(high, 5)],
            "batches_a_second": round(1 / median, 2), "ratio": round(float(np.median(ratios)), 3),
        }))  # fmt: skip


if __name__ == "__main__":
    main()
