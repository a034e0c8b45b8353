"""Under mpirun on 4 ranks: losses are the same on 1 to 4 of them, and so is their gradient.

Of the examples with features of arcs, with forces, with pairs and with classes. On 3
ranks also their gradients, through expand, aggregate, dropout and mean, by differences. Usage:
torch_losses.py EXAMPLES FOLDER
"""

import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from scipy.spatial import Delaunay

import gcnmpi.torch
from gcnmpi.mpi import comm as mpi
from gcnmpi.mpi.process import run
from gcnmpi.torch.functions import Linear

sys.path.append(str(Path(__file__).parents[2]))
from stored_graphs import with_uneven_parts

from partition.graph.links import split_pairs, write_pairs
from partition.graph.store import open_graph

OF_CLASSES = ("gcn", "transformer_conv", "own_layer", "gatv2")
EXAMPLES = ("meshgraphnet", "forces", "links", *OF_CLASSES)
STEPS = 3


def prepare(folder):
    """A triangulation with numbers to predict, and atoms."""
    random = np.random.default_rng(0)
    points = random.random((40, 2))
    ends = Delaunay(points).simplices[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2)
    ends = np.unique(np.vstack([ends, ends[:, ::-1]]), axis=0)
    gcnmpi.graph.from_arrays(
        ends.T,
        random.standard_normal((40, 3)),
        targets=random.standard_normal((40, 2)),
        arc_features=points[ends[:, 1]] - points[ends[:, 0]],
        train_mask=np.arange(40) % 3 > 0,
        folder=folder / "meshgraphnet.graph",
    )
    __import__("forces").make(folder / "forces.graph", 3)
    path = folder / "links.graph"
    gcnmpi.graph.from_arrays(ends.T, random.standard_normal((40, 3)), folder=path)
    pairs = split_pairs(open_graph(path).graph, (0.7, 0.1, 0.2))
    relations = {mask: random.integers(0, 5, len(of)) for mask, of in pairs.positives.items()}
    write_pairs(path, replace(pairs, relations=relations))
    arrays = random.standard_normal((40, 3)), random.integers(0, 3, 40)
    gcnmpi.graph.from_arrays(ends[::2].T, *arrays, folder=folder / "classes.graph")
    for name in ("meshgraphnet", "forces", "links", "classes"):
        with_uneven_parts(folder / f"{name}.graph", (2, 3, 4), mixed=False)


def loss_of(example, g, net):
    if hasattr(example, "loss_of"):
        return example.loss_of(g, net)
    out = net(g, 1)
    return g.mean(F.cross_entropy(out[g.train_mask], g.y[g.train_mask], reduction="none"))


def curve(example, g):
    """Losses and gradients of some steps of an example, as flat arrays."""
    torch.manual_seed(0)
    net, found = example.Net(g), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(example, g, net)
        loss.backward()
        g.all_reduce_gradients(net)
        optimizer.step()
        found.append([float(loss), *(float(x) for p in net.parameters() for x in p.grad.ravel())])
    return np.array(found)


def check_gradients(g):
    """Of second order, of a function of numbers that all ranks have, by differences."""

    def add(part):
        total = part.detach().clone()
        g._ranks.sum(total)
        return total

    ways = torch.from_numpy(np.random.default_rng(1).standard_normal((g.n, 2, 2)))[g.ids]
    source, target = g.edge_index

    def loss(numbers):
        shared = Linear.apply(numbers, lambda all_: all_.clone(), add)
        h = torch.sin(ways @ shared)
        products = g.expand(h)[source] * h[target]
        h = torch.zeros_like(h).index_add(0, target, products) + g.aggregate(h**2)
        errors = g.dropout(h, 0.3, epoch=1, layer=0).square().mean(1)
        return g.mean(errors) ** 2 + g.mean(torch.tanh(errors))

    torch.manual_seed(2)
    numbers = torch.tensor([0.3, -0.7], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, numbers)
    assert torch.autograd.gradgradcheck(loss, numbers)


def check_relations(g):
    """A positive has its relation, and negatives that positives have in common have none."""
    pairs = g.pairs("corrupt,2", batch=20)
    for mask, some in (("train", pairs.batches(1)), ("val", [pairs.held_out("val")])):
        listed = zip(pairs.set.positives[mask].tolist(), pairs.set.relations[mask], strict=True)
        known = {frozenset(ends): relation for ends, relation in listed}
        for here in some:
            positive = here.positive.numpy()
            ends, relations = here.ends.numpy()[:, positive].T, here.relations.numpy()
            found = [known[frozenset(pair)] for pair in ends.tolist()]
            assert found == relations[positive].tolist()
            assert mask == "train" or (relations[~positive] == -1).all()


def main(comm) -> int:
    folder = Path(sys.argv[2])
    sys.path.insert(0, sys.argv[1])
    warnings.simplefilter("ignore")  # of few cores
    torch.set_default_dtype(torch.float64)
    mpi.from_root(comm, lambda: prepare(folder))
    found = {name: [] for name in EXAMPLES}
    for size in range(1, comm.size + 1):
        few = comm.Split(comm.rank >= size, comm.rank)
        if comm.rank >= size:
            continue
        for name in EXAMPLES:
            example = __import__(name)
            graph = folder / f"{'classes' if name in OF_CLASSES else name}.graph"
            parts = f"uneven-{size}" if size > 1 else None
            g = gcnmpi.torch.open(graph, parts, dtype=torch.float64, comm=few, **example.OPTIONS)
            found[name].append(curve(example, g))
            if name == "links":
                check_relations(g)
        if size == 3:
            check_gradients(g)
    if comm.rank == 0:
        for name, (alone, *others) in found.items():
            worst = max(np.abs(other - alone).max() for other in others)
            assert worst < 1e-10 * max(1, np.abs(alone).max()), (name, worst)
            print(f"{name}: {worst:.1e}")
    return 0


if __name__ == "__main__":
    run(main)
