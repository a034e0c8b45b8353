"""Under mpirun: layers that read features of arcs on a part, against the whole graph; and the plan.

Usage: torch_arcs.py FOLDER, with the graphs that ``prepare`` makes there.
"""

import copy
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from mpi4py import MPI
from products import N, assignments, random_graph
from torch_geometric.nn import GINEConv, GraphNorm, LayerNorm, MeanSubtractionNorm, NNConv, PairNorm

import gcnmpi.torch
from gcnmpi.mpi import comm as mpi
from gcnmpi.mpi.process import run
from partition.graph.arc_data import ArcData
from partition.graph.graph import arcs
from partition.graph.store import open_graph, write_graph

sys.path.append(str(Path(__file__).parents[2]))
from stored_graphs import store_parts

WIDTH, COLUMNS = 4, 3


def prepare(folder, k):
    """A directed graph with self-loops and isolated vertices, and one whose arcs are parallel."""
    random = np.random.default_rng(5)
    graph = random_graph("directed")
    graph = replace(graph, features=random.standard_normal((N, WIDTH)).astype(np.float32))
    features = random.standard_normal((graph.nnz, COLUMNS)).astype(np.float32)
    graph = replace(graph, arc_data=ArcData(features))
    write_graph(folder / "one-way.graph", graph, source={})
    write_graph(folder / "parallel.graph", replace(graph, parallel=True), source={})
    for name, parts in assignments(k).items():
        for path in ("one-way.graph", "parallel.graph"):
            store_parts(folder / path, name, parts, k, mixed=False)


def layers():
    torch.manual_seed(0)
    perceptron = torch.nn.Sequential(torch.nn.Linear(WIDTH, 5), torch.nn.Tanh())
    of_arcs = torch.nn.Linear(COLUMNS, WIDTH * 5)
    return [
        GINEConv(perceptron, edge_dim=COLUMNS).double(),
        NNConv(WIDTH, 5, of_arcs, aggr="mean").double(),
    ]


def check_layers(comm, g, whole):
    """Output and gradients are those of the layer on the whole graph."""
    ends = np.stack((arcs(whole), whole.indices)).astype(np.int64)
    features = torch.from_numpy(np.array(whole.arc_data.features, np.float64))
    x = torch.from_numpy(np.array(whole.features, np.float64))
    for layer in layers():
        one = copy.deepcopy(layer)
        expected = one(x, torch.from_numpy(ends), features)
        expected.square().mean(dim=1).mean().backward()
        found = layer((g.expand(g.x), g.x), g.edge_index, g.edge_attr)
        torch.testing.assert_close(found, expected[g.ids], rtol=0, atol=1e-12)
        g.mean(found.square().mean(dim=1)).backward()
        g.all_reduce_gradients(layer)
        for mine, theirs in zip(layer.parameters(), one.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=1e-12)


def check_norms(comm, g, whole):
    """Norms over all rows, or over those of groups that lie on several ranks, are those of PyG."""
    x, groups = torch.from_numpy(np.array(whole.features, np.float64)), torch.arange(N) % 3
    weights = torch.linspace(-1, 2, N * WIDTH, dtype=torch.float64).view(N, WIDTH)
    for kind, norm in (
        ("graph", GraphNorm(WIDTH)),
        ("pair", PairNorm()),
        ("mean", MeanSubtractionNorm()),
        ("layer", LayerNorm(WIDTH, mode="graph")),
    ):
        theirs, ours = norm.double(), g.norm(kind, WIDTH)
        with torch.no_grad():
            for number, parameter in enumerate(theirs.parameters()):
                parameter += torch.linspace(0, 1 + number, WIDTH)
        ours.load_state_dict(theirs.state_dict())
        for given in ((), (groups, 3)):
            w, h = x.clone().requires_grad_(), x[g.ids].clone().requires_grad_()
            expected, found = (
                theirs(w, *given),
                ours(h, *(each[g.ids] for each in given[:1]), *given[1:]),
            )
            torch.testing.assert_close(found, expected[g.ids], rtol=0, atol=1e-11)
            for module in (ours, theirs):
                module.zero_grad()
            (expected * weights).sum().backward()
            (found * weights[g.ids]).sum().backward()
            g.all_reduce_gradients(ours)
            torch.testing.assert_close(h.grad, w.grad[g.ids], rtol=0, atol=1e-10)
            for mine, one in zip(ours.parameters(), theirs.parameters(), strict=True):
                torch.testing.assert_close(mine.grad, one.grad, rtol=0, atol=1e-10)


def check_plan(comm, g):
    """The exchanges of docs/pytorch.md, from the plan alone, bring what ``expand`` brings."""
    names = {"np": np, "torch": torch, "MPI": MPI, "dist": torch.distributed, "comm": comm, "g": g}
    for code in exchanges_of_the_page():
        exec(code, names)
        np.testing.assert_array_equal(names.pop("whole"), g.expand(g.x))
    # Own rows for each rank, and how many rows come from each.
    rows = torch.from_numpy(g.plan.send_rows).split(names["sends"].tolist())
    asked = comm.alltoall([g.ids[of_rank].numpy() for of_rank in rows])
    np.testing.assert_array_equal([len(ids) for ids in asked], names["receives"])
    np.testing.assert_array_equal(np.concatenate(asked), g.halo_ids)
    np.testing.assert_array_equal(g.plan.own, g.ids)
    np.testing.assert_array_equal(g.plan.halo, g.halo_ids)


def exchanges_of_the_page():
    text = (Path(__file__).parents[3] / "docs" / "pytorch.md").read_text(encoding="utf-8")
    section = text.partition("## The exchange as arrays\n")[2].partition("\n### ")[0]
    with_mpi, with_torch = re.findall(r"```py\n(.*?)```", section, re.DOTALL)
    return with_mpi, with_torch


def start_gloo(comm, folder):
    """The processes of torch.distributed are the ranks; on one machine."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    file = f"file://{folder / 'gloo'}"
    torch.distributed.init_process_group("gloo", file, rank=comm.rank, world_size=comm.size)


def check_loops(g, whole):
    """Self-loops that are not in the graph have zeros."""
    own = torch.cat((g.ids, g.halo_ids)).numpy()
    source, target = own[g.edge_index[0]], own[g.edge_index[1]]
    stored = {pair: i for i, pair in enumerate(zip(arcs(whole), whole.indices, strict=True))}
    pairs = list(zip(source, target, strict=True))
    for pair, row in zip(pairs, g.edge_attr.numpy(), strict=True):
        expected = whole.arc_data.features[stored[pair]] if pair in stored else np.zeros(COLUMNS)
        np.testing.assert_array_equal(row, expected)
    assert g.edge_ids.tolist() == [stored.get(pair, -1) for pair in pairs]


def main(comm):
    folder = Path(sys.argv[1])
    mpi.from_root(comm, lambda: prepare(folder, comm.size))
    start_gloo(comm, folder)
    whole, count = open_graph(folder / "one-way.graph").graph, 0
    for name in assignments(comm.size):
        options = {"normalize": "none", "dtype": torch.float64, "direction": "in"}
        g = gcnmpi.torch.open(folder / "one-way.graph", name, self_loops=False, **options)
        check_layers(comm, g, whole)
        check_norms(comm, g, whole)
        check_plan(comm, g)
        with_loops = gcnmpi.torch.open(folder / "one-way.graph", name, order="none", **options)
        check_loops(with_loops, whole)
        assert (with_loops.ids[1:] > with_loops.ids[:-1]).all()
        count += 1
    g = gcnmpi.torch.open(folder / "parallel.graph", name, **options)
    for what, words in {
        "edge_attr": "parallel",
        "edge_ids": "parallel",
        "typed_edges": "no rel",
    }.items():
        with pytest.raises(ValueError, match=words):
            getattr(g, what)
    if comm.rank == 0:
        print(f"{count} partitions agree")
    return 0


if __name__ == "__main__":
    run(main)
