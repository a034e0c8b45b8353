"""Under mpirun: mini-batches of gcnmpi.torch against dense matrices of the whole graph.

The reference makes each layer's matrix of all vertices, by the sampler's decisions on all of its
entries. Usage: torch_batches.py FOLDER, with the graphs that ``prepare`` makes there; prints the
losses of a training, which are the same on any number of ranks.
"""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from products import N, assignments
from torch.nn.functional import cross_entropy
from torch_cases import mask_of, prepare

import gcnmpi.torch
from gcnmpi.mpi import comm as mpi
from gcnmpi.mpi.process import run
from partition.graph.aggregation import aggregation_matrix
from partition.graph.graph import arcs
from partition.graph.sampling import make_sampler
from partition.graph.store import open_graph, read_partition

sys.path.append(str(Path(__file__).parents[2]))
from refusals import refuses
from stored_graphs import store_parts

WIDTH, SEED, CLASSES = 3, 5, 3
KINDS = [
    ("neighbor", 7, [3, 2]), ("neighbor", "100%", [-1, -1]), ("labor", 9, [2, 3]),
    ("neighbor", 1, [4]), ("vertex", 20, []), ("cluster", 2, []),
]  # fmt: skip


class Whole:
    """Layers of batches as dense matrices of all vertices, by the decisions of the sampler."""

    def __init__(self, stored, kind, size, fanouts):
        graph = stored.graph
        self.labels = torch.from_numpy(np.array(graph.labels, np.int64))
        self.train = np.array(graph.masks["train"]) & (self.labels.numpy() >= 0)
        self.seeds = np.flatnonzero(self.train)
        self.matrix = aggregation_matrix(graph, "in", True, "sym").tocsr()
        clusters = read_partition(stored.path, "fine").parts if kind == "cluster" else None
        many = len(self.seeds) if fanouts else N
        size = min(size, many) if isinstance(size, int) else size
        self.sampler = make_sampler(kind, many, size, SEED, fanouts, clusters)

    def layers(self, epoch, batch):
        """Vertices that begin, and the matrices (N, N), that of the seeds first."""
        sampler, coo = self.sampler, self.matrix.tocoo()
        of = np.arange(sampler.n) if sampler.layered else np.arange(N)
        inside = sampler.batch_of(epoch, of) == batch
        first = self.seeds[inside] if sampler.layered else np.flatnonzero(inside)
        rows, found = first, []
        for hop in range(len(sampler.fanouts) or 1):
            some = np.isin(coo.row, rows)
            row, column, value = coo.row[some], coo.col[some], coo.data[some]
            kept, factor = sampler.entries((epoch, batch, hop), row, column)
            dense = np.zeros((N, N))
            dense[row[kept], column[kept]] = value[kept] * factor
            found.append(torch.from_numpy(dense))
            rows = np.union1d(rows, column[kept]) if sampler.layered else rows
        return first, found


def network(layers):
    torch.manual_seed(0)
    widths = [WIDTH, *[5] * (layers - 1), CLASSES]
    return torch.nn.ModuleList(
        [torch.nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    ).double()


def on_whole(net, graph, layers, number):
    """Output of all vertices, with the dropout of the batch."""
    h = torch.from_numpy(np.array(graph.features, np.float64))
    order = layers[::-1] if len(layers) == len(net) else layers * len(net)
    for k, (linear, matrix) in enumerate(zip(net, order, strict=True)):
        h = linear(matrix @ (h * mask_of((SEED, number, k), h.shape, 0.3).double()))
        h = torch.tanh(h) if k + 1 < len(net) else h
    return h


def on_blocks(net, batch, by_entries):
    """The same in blocks, by the product or by gathering and scattering along entries."""
    h = batch.x
    for k, (linear, block) in enumerate(zip(net, batch, strict=False)):
        h = block.dropout(h, 0.3, layer=k)
        if by_entries:
            source, target = block.edge_index
            rows = block.expand(h)[source] * block.edge_weight[:, None]
            h = torch.zeros(block.num_targets, h.shape[1], dtype=h.dtype).index_add(0, target, rows)
        else:
            h = block.aggregate(h)
        h = torch.tanh(linear(h)) if k + 1 < len(net) else linear(h)
    return h


def check(comm, path, partition, kind, size, fanouts):
    """Every batch of an epoch: its output, loss, gradients, entries, arcs."""
    g = gcnmpi.torch.open(path, partition, dtype=torch.float64, seed=SEED, threads=1)
    stored = open_graph(path)
    whole = Whole(stored, kind, size, fanouts)
    net, epoch = network(max(2, len(fanouts)) if fanouts != [4] else 1), 2
    options = {"clusters": "fine"} if kind == "cluster" else {}
    batches = g.batches(kind, size, fanouts, epoch=epoch, **options)
    assert len(batches) == whole.sampler.batches
    seen, shares = [], 0.0
    for number, batch in enumerate(batches):
        first, layers = whole.layers(epoch, number)
        together = np.concatenate(comm.allgather(batch.ids[: batch.num_seeds].numpy()))
        assert np.array_equal(np.sort(together), first)
        seen.append(first)
        shares += batch.share
        expected = on_whole(net, stored.graph, layers, batch.number)
        known = torch.from_numpy(whole.train[first])
        losses = cross_entropy(expected[first][known], whole.labels[first][known], reduction="sum")
        share = whole.sampler.count(number) / whole.sampler.n
        losses = losses / (len(first) if fanouts else share * len(whole.seeds))
        net.zero_grad()
        losses.backward()
        wanted = [p.grad.clone() for p in net.parameters()]
        for by_entries in (False, True):
            out = on_blocks(net, batch, by_entries)
            torch.testing.assert_close(out, expected[batch.ids[: batch.num_seeds]].detach())
            net.zero_grad()
            rows = cross_entropy(out[batch.seeds], batch.y[batch.seeds], reduction="none")
            loss = batch.mean(rows)
            torch.testing.assert_close(loss, losses.detach(), rtol=1e-12, atol=1e-12)
            loss.backward()
            g.all_reduce_gradients(net)
            for one, other in zip(net.parameters(), wanted, strict=True):
                torch.testing.assert_close(one.grad, other, rtol=1e-11, atol=1e-12)
        for block in batch.blocks:
            check_arcs(stored.graph, block)
    assert shares == pytest.approx(1)
    everyone = whole.seeds if fanouts else np.arange(N)
    assert np.array_equal(np.sort(np.concatenate(seen)), everyone)
    return g


def check_arcs(graph, block):
    """Numbers of arcs, and their features; loops that were added have none."""
    source, target = (block.ids[ends].numpy() for ends in block.edge_index)
    found = block.edge_ids.numpy()
    there = found >= 0
    assert np.array_equal(arcs(graph)[found[there]], source[there])
    assert np.array_equal(np.array(graph.indices)[found[there]], target[there])
    assert np.array_equal(source[~there], target[~there])
    rows = np.where(there[:, None], np.array(graph.arc_data.features)[found], 0)
    assert np.array_equal(block.edge_attr.numpy(), rows.astype(np.float64))


def check_mistakes(g, path):
    """Each is one line, on all ranks."""
    none, drawn = torch.zeros(g.num_own, dtype=torch.bool), ("neighbor", 4, [2])
    for words, options, said in (
        (("vertex", 4, [2]), {"epoch": 1}, "no fan-outs"),
        (("cluster", 2), {"epoch": 1}, "such as cluster"),
        (("full", 2), {"epoch": 1}, "no mini-batches"),
        (drawn, {"epoch": 0}, "epochs count from 1"),
        (drawn, {"epoch": 1, "seeds": none}, "no vertex of any rank"),
        (drawn, {"epoch": 1, "seeds": none.long()}, "mask of own rows"),
    ):
        refuses(said, g.batches, *words, **options)
    batch = next(iter(g.batches(*drawn, epoch=1)))
    refuses("1 blocks, as many as fan-outs", batch.__getitem__, 1, error=IndexError)
    more = torch.zeros(1000, 2, dtype=torch.float64)
    refuses("rows of the block", batch[0].expand, more, error=ValueError)
    other = torch.arange(N)[g.ids] % 2 == 0  # seeds of one's own
    for batch in g.batches("labor", 20, [-1], epoch=3, seeds=other):
        assert (batch.ids[: batch.num_seeds] % 2 == 0).all()


def train(path, partition):
    """Losses of three epochs with dropout, a batch norm and Adam."""
    g = gcnmpi.torch.open(path, partition, dtype=torch.float64, seed=1)
    net = network(2)
    norm = g.batch_norm(5)
    optimizer = torch.optim.Adam([*net.parameters(), *norm.parameters()], lr=0.05)
    for epoch in range(1, 4):
        total = 0.0
        for batch in g.batches("neighbor", 6, [3, 2], epoch=epoch):
            optimizer.zero_grad()
            h = net[0](batch[0].aggregate(batch[0].dropout(batch.x, 0.3, layer=0)))
            out = net[1](batch[1].aggregate(norm(h).relu()))
            loss = batch.mean(cross_entropy(out, batch.y, reduction="none"))
            loss.backward()
            g.all_reduce_gradients([*net.parameters(), *norm.parameters()])
            optimizer.step()
            total += batch.share * float(loss.detach())
        if g.rank == 0:
            print(repr(total))


def main(comm):
    folder = Path(sys.argv[1])
    mpi.from_root(comm, lambda: prepare(folder, comm.size))
    path, fine = folder / f"directed-{comm.size}.graph", np.random.default_rng(5).integers(0, 6, N)
    mpi.from_root(comm, lambda: store_parts(path, "fine", fine, 6))
    parts = list(assignments(comm.size)) if comm.size > 1 else [None]
    for number, (kind, size, fanouts) in enumerate(KINDS):
        g = check(comm, path, parts[number % len(parts)], kind, size, fanouts)
    check_mistakes(g, path)
    for part in parts[:2]:
        train(path, part)
    return 0


if __name__ == "__main__":
    run(main)
