"""Under mpirun: gcnmpi.torch on devices against itself on the host.

On the stand-in if tests/fake is on PYTHONPATH, which then tells how often an epoch waits. All that
graphs of both give and train on agrees to 1e-10. Usage: torch_devices.py FOLDER TRANSPORT [DEVICE]
"""

import itertools
import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from products import N, assignments, random_graph
from torch.utils._pytree import tree_leaves
from torch_cases import refused

import gcnmpi.torch
from gcnmpi.mpi import comm as mpi
from gcnmpi.mpi.process import run
from partition.errors import UserError
from partition.graph.graph import ArcData
from partition.graph.relations import Relation, VertexTypes
from partition.graph.samples import write_samples
from partition.graph.store import open_graph, write_graph
from partition.graph.vertex_pairs import split_pairs, write_pairs

sys.path.append(str(Path(__file__).parents[2]))
from stored_graphs import store_parts

try:
    from cupy.queue import counts
    from torch_gpu import GPU
except ImportError:  # a real one
    counts: dict[str, int] = {}
    GPU = torch.device("cuda", 0)
FEATURES, COLUMNS, STEPS = 4, 3, 12


class Net(torch.nn.Module):
    """A product by the kernel, dropout, attention over edges in PyTorch, functions of rows."""

    def __init__(self, g):
        super().__init__()
        self.first = torch.nn.Linear(FEATURES, 8, bias=False, dtype=g.dtype)
        self.norm, self.last = g.batch_norm(8), g.norm("graph", 4)
        self.second, self.out = linear(g, 8, 4), linear(g, 4, 3)
        self.score = torch.nn.Parameter(torch.linspace(-1, 1, 4, dtype=g.dtype))

    def forward(self, g, epoch=1):
        h = self.norm(g.aggregate(self.first(g.x))).relu()
        h = self.second(g.dropout(h, 0.5, epoch, layer=1))
        whole, (source, target) = g.expand(h), g.edge_index
        power = ((whole[source] + h[target]).tanh() @ self.score).exp() * g.edge_weight.abs()
        sums = h.new_zeros(g.num_own).index_add(0, target, power)
        messages = whole[source] * (power / sums[target].clamp(min=1e-9))[:, None]
        h = self.last(torch.zeros_like(h).index_add(0, target, messages))
        others = g.fetch(h, (g.ids + 7) % g.n)
        pooled = g.collective.mean(h) + g.collective.max(h)
        return self.out(h + others * g.collective.softmax(h[:, :1]) + pooled)


def prepare(folder, k):
    """A graph with features of arcs, pairs and samples; one with types and parallel arcs."""
    random = np.random.default_rng(5)
    x = random.standard_normal((N, FEATURES)).astype(np.float32)
    plain = random_graph("directed")
    arcs = ArcData(random.standard_normal((plain.nnz, COLUMNS)).astype(np.float32))
    of_rows = {
        "labels": random.integers(0, 3, N, np.int32),
        "masks": {"train": random.random(N) < 0.5},
    }
    plain = replace(plain, features=x, arc_data=arcs, **of_rows)
    write_graph(folder / "plain.graph", plain, source={})
    pairs = split_pairs(open_graph(folder / "plain.graph").graph, (0.7, 0.1, 0.2))
    relations = {mask: random.integers(0, 3, len(of)) for mask, of in pairs.positives.items()}
    write_pairs(folder / "plain.graph", replace(pairs, relations=relations))
    states = random.standard_normal((STEPS, N, 2)).astype(np.float32)
    ranges = {"train": [(0, 9)], "val": [(9, STEPS)]}
    write_samples(folder / "plain.graph", "weather", states, None, ranges, made="drawn")
    types = VertexTypes(("item", "user"), (0, 9, N))
    first = types.of(np.repeat(np.arange(N), np.diff(plain.indptr)))
    second = types.of(np.asarray(plain.indices))
    kinds = list(itertools.product(types.names, repeat=2))
    typed = replace(
        plain, vertex_types=types, arc_data=ArcData(), parallel=True, weights=None,
        relations=tuple(Relation(one, "to", other) for one, other in kinds),
        arc_type=(2 * first + second).astype(np.uint8),
    )  # fmt: skip
    write_graph(folder / "typed.graph", typed, source={})
    for name, parts in assignments(k).items() if k > 1 else ():
        for path in ("plain.graph", "typed.graph"):
            store_parts(folder / path, name, parts, k, mixed=False)


def stepped(g, net, losses):
    """Gradients of the mean of losses, summed over ranks, and the weights after a step."""
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        loss = g.mean(losses())
        loss.backward()
        g.all_reduce_gradients(net)
        optimizer.step()
    g.check(net)
    parameters = list(net.parameters())
    return loss, [p.grad for p in parameters], parameters


def linear(g, *widths):
    torch.manual_seed(3)
    return torch.nn.Linear(*widths, dtype=g.dtype).to(g.device)


def of_arcs(g):
    """A message of each arc, from its source's row and its own numbers."""
    net, (source, target) = linear(g, FEATURES + COLUMNS, 3), g.edge_index

    def losses():
        given = torch.cat([g.expand(g.x)[source], g.edge_attr], 1)
        sums = g.x.new_zeros(g.num_own, 3).index_add(0, target, net(given).tanh())
        return sums.square().mean(1)

    yield from (g.edge_attr, g.edge_ids, g.edge_weight, g.ids, g.halo_ids)
    yield from stepped(g, net, losses)


def of_pairs(g):
    """Pairs that are scored by a product of rows, in batches and held out."""
    net = linear(g, FEATURES, 3)
    pairs = g.pairs("corrupt,2", batch=20, ordered=True)

    def losses(here):
        first, second = here.rows(g.aggregate(net(g.x)))
        signs = torch.where(here.positive, 1.0, -1.0).to(g.dtype)
        return (first * second).sum(1).mul(-signs).exp().log1p()[here.counts]

    for here in [*pairs.batches(1), pairs.held_out("val")]:
        yield from (here.ends, here.positive, here.counts, here.relations)
        yield stepped(g, net, lambda here=here: losses(here))


def of_samples(g):
    """States of a few steps, of which a group has its own."""
    net, samples = linear(g, 2, 2), g.samples("weather", history=1)
    yield samples.scales()
    yield samples.states([])
    for mine in samples.mine("train", 2 * g.groups, 1):
        now, then = samples.states(mine), samples.states([t + 1 for t in mine])

        def losses(now=now, then=then):
            out = torch.stack([g.aggregate(net(now[:, k])) for k in range(now.shape[1])], 1)
            return (out - then).square().mean(-1).flatten()

        yield now
        yield stepped(g, net, losses)


def of_types(g):
    """Rows and arcs of types, an exchange of some, and mini-batches that tell relations apart."""
    yield from (g.x_dict, g.masks, g.edge_index_dict, g.typed_edges, g["user"].y, g["user"].ids)
    net, kind = linear(g, FEATURES, 3), ("user", "to", "item")
    source, target = g[kind].edge_index

    def losses():
        whole = g.expand({name: net(x) for name, x in g.x_dict.items()})
        sums = g.x.new_zeros(g["item"].num_own, 3).index_add(0, target, whole["user"][source])
        return torch.cat([sums, g.own(whole)["user"]]).square().mean(1)

    yield stepped(g, net, losses)
    for batch in g.batches("neighbor", 6, [2, -1], epoch=1, relations=True):
        h = batch.x
        for block in batch:
            yield from (*block.typed_edges, block.node_type, block.edge_ids, block.targets(h))
            (of, to), weight = block.edge_index, block.edge_weight[:, None]
            rows = block.expand(h)[of] * weight * (1 + block.edge_type[:, None])
            h = h.new_zeros(block.num_targets, FEATURES).index_add(0, to, rows)
        yield h
        yield batch.mean(h[batch.seeds].square().sum(1))


def of_networks(g):
    """Losses, gradients and steps of a network; what an evaluation finds; what a graph has."""
    yield from (g.x, g.y, g.train_mask, g.ids, g.halo_ids, g.edge_index, g.edge_weight, g.edge_ids)
    torch.manual_seed(2)
    net = Net(g).to(g.device)
    yield from stepped(g, net, lambda: losses_of(g, net(g)))
    out = net(g, 2)
    yield torch.tensor([g.metrics(out)["train_accuracy"]]).to(g.device)
    g.write(out, FOLDER / "out.npy")
    yield torch.from_numpy(np.load(FOLDER / "out.npy")).to(g.device)


def losses_of(g, out):
    rows = g.train_mask.nonzero()[:, 0]
    return F.cross_entropy(out.index_select(0, rows), g.y[rows], reduction="none")


def of_functions(g):
    """Second derivatives, half rows, live results, a broadcast, mini-batches."""
    h = g.x.detach().clone().requires_grad_()
    y = g.aggregate(g.expand(h)[: g.num_own].square())
    (first,) = torch.autograd.grad(g.mean(y.square().sum(1)), h, create_graph=True)
    (second,) = torch.autograd.grad(g.mean(first.square().sum(1)), h)
    yield from (y, first, second, g.expand(h.to(torch.bfloat16)).double())
    a, b = g.expand(h.detach()), g.expand(2 * h.detach())
    kept = a[-1:].clone(), a[-1:]
    del a
    g.expand(3 * h.detach())
    yield from (b, *kept)
    lin = linear(g, FEATURES, FEATURES)
    with torch.no_grad():
        for place, p in enumerate(lin.parameters()):
            p.fill_(0.1 + g.rank + place)
    g.broadcast(lin)
    yield from lin.parameters()
    for batch in g.batches("neighbor", 16, [3, -1], epoch=1):
        h = batch.x
        for k, block in enumerate(batch.blocks):
            yield from (block.edge_index, block.edge_weight, block.expand(h))
            h = block.dropout(block.aggregate(h) @ lin.weight, 0.5, layer=k)
        yield h
        yield batch.mean(h[batch.seeds].sum(1))


def compare(path, partition, transport, kinds, groups=1):
    found = []
    options = {"normalize": "none", "dtype": torch.float64, "direction": "in", "groups": groups}
    options |= {"self_loops": False, "threads": 1}
    options |= {} if path.stem == "typed" else {"pairs": "links"}
    for given in ({}, {"device": GPU.type, "transport": transport}):
        g = gcnmpi.torch.open(path, partition, **options, **given)
        found.append([one for of in kinds for one in tree_leaves(list(of(g)))])
    for one, other in zip(*found, strict=True):
        assert other.device == GPU
        torch.testing.assert_close(other.detach().cpu(), one.detach(), rtol=0, atol=1e-10)
    return g


def mistakes(g):
    """A tensor of the host, and a model that was left there."""
    on = f"on the device of the graph, {GPU}"
    refused(TypeError, on, g.aggregate, torch.zeros(g.num_own, 3, dtype=g.dtype))
    refused(UserError, on, g.broadcast, torch.nn.Linear(3, 3))


def recorded(g, out, epochs):
    """The losses of a run with checkpoints, which goes on if there is one."""
    torch.manual_seed(2)
    net, found = Net(g).to(g.device), []
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    with g.run(out, net, optimizer, progress=False) as going:
        for epoch in going.epochs(epochs):
            optimizer.zero_grad()
            loss = g.mean(losses_of(g, net(g, epoch)))
            loss.backward()
            g.all_reduce_gradients(net)
            optimizer.step()
            going.log(epoch, loss=loss)
            found.append(loss.detach().cpu())
    return found


def whole_programs(given):
    """Runs that go on, and what compares ranks with one process."""
    options = {"dtype": torch.float64, "normalize": "none"}
    host = gcnmpi.torch.open(*given, **options)
    device = gcnmpi.torch.open(*given, **options, device=GPU.type)
    expected = recorded(host, FOLDER / "host", 4)
    first, rest = (recorded(device, FOLDER / "device", epochs) for epochs in (2, 4))
    torch.testing.assert_close([*first, *rest], expected, rtol=0, atol=1e-10)
    assert gcnmpi.torch.verify(Net, *given, device=GPU.type, epochs=1).ranks == host.size


def waits(g):
    """How often the host waits for the device, and copies go between them, in an epoch."""
    net = torch.nn.ModuleList([linear(g, FEATURES, 8), linear(g, 8, 3)])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    rows = g.train_mask.nonzero()[:, 0]
    labels = g.y[rows]
    for epoch in range(1, 7):
        if epoch == 6:  # which compares no weights
            before = dict(counts)
        optimizer.zero_grad()
        h = g.dropout(g.aggregate(net[0](g.x)).relu(), 0.5, epoch, layer=1)
        out = g.aggregate(net[1](h)).index_select(0, rows)
        loss = g.mean(F.cross_entropy(out, labels, reduction="none"))
        loss.backward()
        g.all_reduce_gradients(net)
        optimizer.step()
    float(loss.detach())
    return {name: counts[name] - before[name] for name in counts}


def main(comm) -> int:
    transport = sys.argv[2]
    mpi.from_root(comm, lambda: prepare(FOLDER, comm.size))
    warnings.simplefilter("ignore")
    plain, typed = FOLDER / "plain.graph", FOLDER / "typed.graph"
    if sys.argv[3:]:  # one that is not there
        gcnmpi.torch.open(plain, "random", device=sys.argv[3])
    kinds = of_networks, of_functions, of_arcs, of_pairs, of_samples
    for name in ("empty", "random") if comm.size > 1 else (None,):
        compare(typed, name, transport, (of_types,))
        device = compare(plain, name, transport, kinds)
    compare(plain, None, transport, (of_samples,), comm.size)
    mistakes(device)
    whole_programs((plain, name))
    counted = waits(device)
    if comm.rank == 0:
        print(json.dumps(counted))
    return 0


if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    run(main)
