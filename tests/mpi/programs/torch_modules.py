"""Under mpirun: the examples' modules against PyTorch Geometric on the whole graph in one process.

Usage: torch_modules.py CASES.json EXAMPLES

CASES.json holds a list of {"graph", "partition", "feature_norm", "examples"}; EXAMPLES is their
folder. Each module is trained three steps in float64; loss and gradients agree within 1e-10.
"""

import importlib
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric.nn
from torch_geometric.utils import add_remaining_self_loops

import gcnmpi.torch
from gcnmpi.core import rng
from gcnmpi.mpi.process import run
from partition.graph.store import open_graph

STEPS = 3
BOUND = 1e-10


class Whole:
    """All of a graph in one process, as modules ask for it, without gcnmpi's arithmetic."""

    dtype = torch.float64
    batch_norm = staticmethod(lambda width: torch.nn.BatchNorm1d(width))

    def __init__(self, path, options):
        graph, manifest = (stored := open_graph(path)).graph, stored.manifest
        self.n = manifest.n
        self.num_features, self.num_classes = manifest.features, manifest.classes
        x = np.array(graph.features[np.arange(self.n)], np.float64)
        if options["feature_norm"] == "row":
            sums = x.sum(axis=1, keepdims=True)
            x = np.divide(x, sums, out=np.zeros_like(x), where=sums != 0)
        self.x = torch.from_numpy(x)
        self.y = torch.from_numpy(graph.labels.astype(np.int64))
        mask = graph.masks["train"][:] if "train" in graph.masks else np.ones(self.n, bool)
        self.train_mask = torch.from_numpy(np.array(mask)) & (self.y >= 0)
        source = np.repeat(np.arange(self.n), np.diff(graph.indptr))
        self.edge_index = torch.from_numpy(np.stack([source, graph.indices]).astype(np.int64))
        self.arcs = self.edge_index
        if options.get("self_loops", True):
            self.edge_index, _ = add_remaining_self_loops(self.edge_index, num_nodes=self.n)

    def expand(self, h):
        return h

    def dropout(self, h, p, epoch, layer, training=True):
        if not training:
            return h
        keys = rng.row_keys(0, epoch, layer, np.arange(self.n))
        hashes, scratch = np.empty((2, *h.shape), np.uint32)
        rng.hash_block(keys, rng.column_keys(np.arange(h.shape[1])), hashes, scratch)
        return h * torch.from_numpy(hashes >= rng.threshold(p)) / (1 - p)


class WholeGCN(torch.nn.Module):
    """PyTorch Geometric's GCNConv as it is, with the weights of examples/gcn.py."""

    def __init__(self, g, hidden=16):
        super().__init__()
        self.first = torch_geometric.nn.GCNConv(g.num_features, hidden)
        self.last = torch_geometric.nn.GCNConv(hidden, g.num_classes)

    def forward(self, g, epoch=0):
        h = self.first(g.x, g.arcs).relu()
        h = g.dropout(h, 0.5, epoch, layer=1, training=self.training)
        return self.last(h, g.arcs)


def curve(net, loss_of, reduce=lambda net: None):
    """Loss and gradients of some steps of gradient descent."""
    optimizer, found = torch.optim.SGD(net.parameters(), lr=0.1), []
    for epoch in range(1, STEPS + 1):
        net.train()
        optimizer.zero_grad()
        loss = loss_of(net, epoch)
        loss.backward()
        reduce(net)
        gradients = {name: p.grad.clone() for name, p in net.named_parameters()}
        found.append((float(loss), gradients))
        optimizer.step()
    return found


def distributed(example, path, partition, options):
    g = gcnmpi.torch.open(path, partition, dtype=torch.float64, **options)
    torch.manual_seed(1)
    net, mask = example.Net(g).double(), g.train_mask

    def loss_of(net, epoch):
        out = net(g, epoch)
        return g.mean(F.cross_entropy(out[mask], g.y[mask], reduction="none"))

    steps = curve(net, loss_of, g.all_reduce_gradients)
    net.eval()
    with torch.no_grad():
        out = net(g)
        return steps, g.gather(out), g.metrics(out)


def serial(example, path, options):
    whole = Whole(path, options)
    torch.manual_seed(1)
    make = WholeGCN if example.__name__ == "gcn" else example.Net
    net, mask = make(whole).double(), whole.train_mask
    steps = curve(net, lambda net, epoch: F.cross_entropy(net(whole, epoch)[mask], whole.y[mask]))
    net.eval()
    with torch.no_grad():
        out = net(whole)
    right = (out.argmax(1) == whole.y)[mask].double().mean()
    return steps, out, float(right)


def check_layers(path, partition):
    """Layers that take sources and targets: their output for own rows, with loops of their own."""
    options = {"feature_norm": "none", "self_loops": False}
    g = gcnmpi.torch.open(path, partition, dtype=torch.float64, **options)
    whole, nn = Whole(path, options), torch_geometric.nn
    for make in (
        lambda d: nn.SAGEConv(d, 4),
        lambda d: nn.SAGEConv(d, 4, aggr="max"),
        lambda d: nn.GATConv(d, 4, heads=2),
        lambda d: nn.GATv2Conv(d, 4, heads=2),
        lambda d: nn.TransformerConv(d, 4, heads=2),
        lambda d: nn.GINConv(torch.nn.Linear(d, 4)),
        lambda d: nn.GraphConv(d, 4),
        lambda d: nn.ResGatedGraphConv(d, 4),
        lambda d: nn.LEConv(d, 4),
    ):
        torch.manual_seed(2)
        layer = make(g.num_features).double()
        with torch.no_grad():
            found = layer((g.expand(g.x), g.x), g.edge_index)
            expected = layer((whole.x, whole.x), whole.edge_index)[g.ids]
        torch.testing.assert_close(found, expected, rtol=0, atol=BOUND, msg=str(layer))


def difference(one, other):
    scale = max(1.0, float(other.abs().max()))
    return float((one - other).abs().max()) / scale


def main(comm) -> int:
    warnings.simplefilter("ignore")
    cases = json.loads(Path(sys.argv[1]).read_text())
    sys.path.insert(0, sys.argv[2])
    check_layers(cases[0]["graph"], cases[0]["partition"])
    for case in cases:
        for name in case["examples"]:
            example = importlib.import_module(name)
            path, options = case["graph"], {"feature_norm": case["feature_norm"], **example.OPTIONS}
            steps, out, metrics = distributed(example, path, case["partition"], options)
            if comm.rank:
                continue
            expected_steps, expected, right = serial(example, path, options)
            worst = difference(out, expected)
            for (loss, gradients), (other, others) in zip(steps, expected_steps, strict=True):
                assert gradients.keys() == others.keys()
                worst = max(worst, abs(loss - other))
                worst = max([worst, *(difference(gradients[k], others[k]) for k in others)])
            label = f"{Path(path).stem} {name} on {comm.size}: {worst:.1e}"
            assert worst < BOUND, label
            assert abs(metrics["train_accuracy"] - right) < 1e-12, label
            print(label)
        comm.Barrier()
    return 0


if __name__ == "__main__":
    run(main)
