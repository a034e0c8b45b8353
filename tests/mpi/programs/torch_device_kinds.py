"""Under mpirun: arcs, types, pairs and samples of gcnmpi.torch on devices, without a device.

All that they give and train on is what the host has, to 1e-10. tests/fake has to be on PYTHONPATH.
Usage: torch_device_kinds.py FOLDER TRANSPORT
"""

import itertools
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch_gpu
from products import N, assignments, random_graph
from torch.utils._pytree import tree_leaves

import gcnmpi.torch
from gcnmpi.mpi import comm as mpi
from gcnmpi.mpi.process import run
from partition.graph.arc_data import ArcData
from partition.graph.links import split_pairs, write_pairs
from partition.graph.relations import Relation, VertexTypes
from partition.graph.samples import write_samples
from partition.graph.store import open_graph, write_graph

sys.path.append(str(Path(__file__).parents[2]))
from stored_graphs import store_parts

FEATURES, COLUMNS, STEPS = 4, 3, 12


def prepare(folder, k):
    """A graph with features of arcs, pairs and samples; one with types and parallel arcs."""
    random = np.random.default_rng(5)
    x = random.standard_normal((N, FEATURES)).astype(np.float32)
    plain = random_graph("directed")
    arcs = ArcData(random.standard_normal((plain.nnz, COLUMNS)).astype(np.float32))
    plain = replace(plain, features=x, arc_data=arcs)
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
        arc_type=(2 * first + second).astype(np.uint8), labels=random.integers(0, 3, N, np.int32),
        masks={"train": random.random(N) < 0.5},
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


def compare(path, partition, transport, kinds, groups=1):
    found = []
    options = {"normalize": "none", "dtype": torch.float64, "direction": "in", "groups": groups}
    options |= {"self_loops": False, "threads": 1}
    options |= {} if path.stem == "typed" else {"pairs": "links"}
    for given in ({}, {"device": "gpu", "transport": transport}):
        g = gcnmpi.torch.open(path, partition, **options, **given)
        found.append([one for of in kinds for one in tree_leaves(list(of(g)))])
    for one, other in zip(*found, strict=True):
        assert other.device == torch_gpu.GPU
        torch.testing.assert_close(other.detach().cpu(), one.detach(), rtol=0, atol=1e-10)
    return len(found[0])


def main(comm) -> int:
    folder, transport = Path(sys.argv[1]), sys.argv[2]
    mpi.from_root(comm, lambda: prepare(folder, comm.size))
    warnings.simplefilter("ignore")
    count = 0
    for name in ("empty", "random") if comm.size > 1 else (None,):
        count += compare(folder / "plain.graph", name, transport, (of_arcs, of_pairs, of_samples))
        count += compare(folder / "typed.graph", name, transport, (of_types,))
    count += compare(folder / "plain.graph", None, transport, (of_samples,), comm.size)
    if comm.rank == 0:
        print(f"{count} tensors agree")
    return 0


if __name__ == "__main__":
    run(main)
