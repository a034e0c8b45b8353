"""Seconds per epoch of a module of examples/: on the ranks of this job, and in plain PyG.

    python benchmarks/torch_layers.py G.graph gatv2 --plain
    mpirun -n 2 python benchmarks/torch_layers.py G.graph gatv2 --partition hp-2
    python benchmarks/torch_layers.py G.graph all --plain

A module is a script, or ``modules.NAME`` of examples/modules.py; ``all`` are those ten. Some want
features of arcs (``gcn-partition attach G.graph --arc-features random:4``). GIN pools groups of
1000 vertices.
``--plain`` takes turns with PyTorch Geometric on the whole graph, in the same process. An epoch is
forward, backward and update; its time is that of the slowest rank. The median of all is printed, as
a line of JSON. PyG's GCNConv keeps its normalised edges (``cached``).
"""

import argparse
import importlib
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric.nn
from torch_geometric.utils import add_remaining_self_loops

import gcnmpi.torch
from gcnmpi.mpi.comm import maximum
from gcnmpi.mpi.process import world
from gcnmpi.options.kernel import AUTO, must_be_best
from partition.graph.store import open_graph

WARM = 2  # epochs that are not counted
SCRIPTS = ("gcn", "gatv2", "transformer_conv", "own_layer")
POOLED = 1000  # vertices
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
GALLERY = importlib.import_module("modules")
OF_GALLERY = [f"modules.{name}" for name in GALLERY.MODULES]


def groups(n):
    """Which group each vertex is of, for a module that pools."""
    return torch.arange(n) // POOLED


class Plain:
    """The products that a module asks of a graph, by PyTorch and PyTorch Geometric alone."""

    size, rank = 1, 0
    batch_norm = staticmethod(torch.nn.BatchNorm1d)

    def __init__(self, path, self_loops):
        stored = open_graph(path)
        graph, self.n = stored.graph, stored.manifest.n
        self.num_nodes, self.batch = self.n, groups(self.n)
        self.num_features, self.num_classes = stored.manifest.features, stored.manifest.classes
        self.x = torch.from_numpy(np.array(graph.features[np.arange(self.n)]))
        self.y = torch.from_numpy(graph.labels.astype(np.int64))
        mask = graph.masks["train"] if "train" in graph.masks else np.ones(self.n, bool)
        self.train_mask = torch.from_numpy(np.array(mask)) & (self.y >= 0)
        source = np.repeat(np.arange(self.n), np.diff(graph.indptr))
        self.edge_index = torch.from_numpy(np.stack([source, graph.indices]).astype(np.int64))
        arcs = graph.arc_data.features
        self.edge_attr = None if arcs is None else torch.from_numpy(np.array(arcs))
        if self_loops:
            self.edge_index, _ = add_remaining_self_loops(self.edge_index, num_nodes=self.n)

    def expand(self, h):
        return h

    def dropout(self, h, p, epoch, layer, training=True):
        return F.dropout(h, p, training)

    def mean(self, loss):
        return loss.mean()

    def all_reduce_gradients(self, net):
        pass


class PlainGCN(torch.nn.Module):
    """PyTorch Geometric's GCNConv, unchanged."""

    def __init__(self, g, hidden):
        super().__init__()
        make = torch_geometric.nn.GCNConv
        self.first = make(g.num_features, hidden, cached=True)
        self.last = make(hidden, g.num_classes, cached=True)

    def forward(self, g, epoch=0):
        h = self.first(g.x, g.edge_index).relu()
        h = g.dropout(h, 0.5, epoch, layer=1, training=self.training)
        return self.last(h, g.edge_index)


def trained(g, net, pools=False):
    """A function that runs an epoch and returns its seconds."""
    optimizer, mask = torch.optim.Adam(net.parameters(), lr=0.01), g.train_mask
    of_groups = torch.zeros(int(groups(g.n)[-1]) + 1, dtype=torch.int64)

    def epoch(number):
        began = time.perf_counter()
        optimizer.zero_grad()
        out = net(g, number)
        rows, classes = (out, of_groups) if pools else (out[mask], g.y[mask])
        loss = g.mean(F.cross_entropy(rows, classes, reduction="none"))
        loss.backward()
        g.all_reduce_gradients(net)
        optimizer.step()
        return time.perf_counter() - began

    return epoch


def named(module):
    """A class of modules, the same in plain PyG, and the options that make M."""
    name = module.removeprefix("modules.")
    if name != module:
        return GALLERY.MODULES[name], GALLERY.one_process()[name], GALLERY.OPTIONS[name]
    example = importlib.import_module(module)
    return example.Net, PlainGCN if module == "gcn" else example.Net, example.OPTIONS


def measured(module, args):
    """Median seconds of the slowest rank, by what ran."""
    make, plain_make, options = named(module)
    g = gcnmpi.torch.open(args.graph, args.partition, threads=args.threads, **options)
    if pools := module == "modules.gin":
        g.graphs, g.num_graphs = groups(g.n)[g.ids], int(groups(g.n)[-1]) + 1
    torch.manual_seed(0)
    runs = {"gcnmpi.torch": trained(g, make(g, args.hidden), pools)}
    if args.plain:
        plain = Plain(args.graph, options["self_loops"])
        runs["plain"] = trained(plain, plain_make(plain, args.hidden), pools)
    comm = world()
    seconds = {name: [] for name in runs}
    for number in range(WARM + args.epochs):
        for name, epoch in runs.items():
            comm.Barrier()
            seconds[name].append(maximum(comm, epoch(number)))
    found = {name: round(statistics.median(s[WARM:]), 4) for name, s in seconds.items()}
    return {"module": module, "ranks": g.size, **found}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graph")
    parser.add_argument("module", choices=(*SCRIPTS, *OF_GALLERY, "all"))
    parser.add_argument("--partition")
    parser.add_argument("--hidden", type=int, default=16, help="of a head, where there are several")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--plain", action="store_true", help="take turns with PyG on the whole graph"
    )
    args = parser.parse_args()

    must_be_best(AUTO)
    for module in OF_GALLERY if args.module == "all" else [args.module]:
        found = measured(module, args)
        if world().rank == 0:
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
