"""Under mpirun: heterogeneous layers of PyTorch Geometric on a part, against the whole graph.

Usage: torch_typed.py FOLDER PARTITION, of a graph with types.
"""

import copy
import sys
from pathlib import Path

import numpy as np
import torch
from torch_geometric.nn import GATConv, HeteroConv, HGTConv, RGCNConv, SAGEConv

import gcnmpi
import gcnmpi.torch
from gcnmpi.mpi.process import run
from partition.graph.graph import arcs as arcs_of
from partition.graph.sampling import by_relation, make_sampler
from partition.graph.store import open_graph

sys.path.append(str(Path(__file__).parents[2]))
from refusals import refuses

WIDTH = 4


def layers(data):
    """A layer of each kind, on features as wide as each type's."""
    torch.manual_seed(0)
    wide = {name: x.shape[1] for name, x in data.x_dict.items()}
    kinds = [one for one in data.edge_types if {one[0], one[2]} <= wide.keys()]

    def of(layer):
        return {one: layer((wide[one[0]], wide[one[2]])) for one in kinds}

    schema = list(wide), kinds
    return [
        HeteroConv(of(lambda widths: SAGEConv(widths, WIDTH))),
        HeteroConv(of(lambda widths: GATConv(widths, WIDTH, heads=2, add_self_loops=False))),
        HGTConv(wide, WIDTH, schema, heads=2),
    ]


def check(g, data, layer):
    """Output, gradients of weights and of inputs are those of the whole graph."""
    one, kinds = copy.deepcopy(layer), data.edge_types
    ends = {kind: data[kind].edge_index for kind in kinds}
    given = {name: x.double().requires_grad_() for name, x in data.x_dict.items()}
    some = {kind: ends[kind] for kind in kinds if {kind[0], kind[2]} <= given.keys()}
    expected = {name: out for name, out in one(given, some).items() if out is not None}
    mine = {name: x.clone().requires_grad_() for name, x in g.x_dict.items()}
    assert mine.keys() == given.keys()
    arcs = {kind: found for kind, found in g.edge_index_dict.items() if kind in some}
    outs = layer(g.expand(mine), arcs).items()
    found = g.own({name: out for name, out in outs if out is not None})
    assert found.keys() == expected.keys()
    total, loss = 0.0, 0.0
    for name in sorted(expected):
        torch.testing.assert_close(found[name], expected[name][g[name].ids], rtol=0, atol=1e-12)
        total = total + expected[name].square().mean(dim=1).mean()
        loss = loss + g.mean(found[name].square().mean(dim=1))
    total.backward()
    loss.backward()
    g.all_reduce_gradients(layer)
    for ours, theirs in zip(layer.parameters(), one.parameters(), strict=True):
        if theirs.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-12)
    for name, x in given.items():
        torch.testing.assert_close(mine[name].grad, x.grad[g[name].ids], rtol=0, atol=1e-12)


def kept(graph, sampler, first, epoch, batch):
    """The arcs that each layer of a batch keeps, that of the seeds first, and their values."""
    column, row, relation = arcs_of(graph), np.array(graph.indices), np.array(graph.arc_type)
    order = np.lexsort((column, relation, row))
    column, row, relation = (of[order].astype(np.int64) for of in (column, row, relation))
    unit = row * len(graph.relations) + relation
    for hop in range(len(sampler.fanouts)):
        some = np.flatnonzero(np.isin(row, first))
        ends = row[some], relation[some], column[some]
        here, factors = sampler.arcs((epoch, batch, hop), *ends)
        found = some[here]
        yield order[found], factors / np.bincount(unit)[unit[found]]
        first = np.union1d(first, column[found])


def check_batches(comm, g, graph):
    """Blocks have the arcs that the sampler says; all arcs give what the whole graph gives."""
    torch.manual_seed(1)
    x = torch.rand(graph.n, 3).double()
    convs = [RGCNConv(3, 3, len(graph.relations)).double() for _ in range(2)]
    ends = (arcs_of(graph), graph.indices, graph.arc_type)
    source, target, kinds = (torch.from_numpy(np.array(of, np.int64)) for of in ends)
    edges = torch.stack((source, target))
    expected = convs[1](convs[0](x, edges, kinds).relu(), edges, kinds)
    for batch in g.batches("neighbor", "100%", [-1, -1], epoch=1, relations=True):
        h = x[batch.ids]
        for k, (conv, block) in enumerate(zip(convs, batch, strict=True)):
            h = conv((block.expand(h), block.targets(h)), *block.typed_edges)
            h = h if k else h.relu()
        ids = batch.ids[: batch.num_seeds]
        torch.testing.assert_close(h, expected[ids], rtol=0, atol=1e-12)
    seeds = np.sort(np.concatenate(comm.allgather(g.ids[g.train_mask].numpy())))
    some = {str(one): [2, 1] for one in graph.relations} | {"author,writes,paper": [0, -1]}
    given = {(*one.split(","),): own for one, own in some.items()}
    text = "; ".join(f"{one}={','.join(map(str, own))}" for one, own in some.items())
    sampler = make_sampler("labor", len(seeds), 5, 0, "9,9")
    sampler = by_relation(sampler, graph.n, graph.relations, text, "")
    for number, batch in enumerate(g.batches("labor", 5, given, epoch=2)):
        first = seeds[sampler.members(2, number)]
        layers = kept(graph, sampler, first, 2, number)
        for block, (numbers, values) in zip(list(batch)[::-1], layers, strict=True):
            ids, (u, v) = block.ids, block.edge_index
            mine = block.edge_ids
            assert (source[mine] == ids[u]).all()
            assert (target[mine] == ids[v]).all()
            assert (kinds[mine] == block.edge_type).all()
            assert (block.node_type.numpy() == graph.vertex_types.of(ids.numpy())).all()
            every = [np.concatenate(comm.allgather(of.numpy())) for of in (mine, block.edge_weight)]
            order, wanted = np.argsort(every[0]), np.argsort(numbers)
            np.testing.assert_array_equal(every[0][order], numbers[wanted])
            np.testing.assert_allclose(every[1][order], values[wanted], rtol=1e-12)
    one = "neighbor", 5, {"author,writes,paper": [1]}
    refuses("lack the relation", g.batches, *one, epoch=1)
    block = next(iter(g.batches("neighbor", 5, [2], epoch=1)))[0]
    refuses("relations=True", getattr, block, "edge_type", error=ValueError)


def check_rows(g, data):
    """Features, classes and masks of each type are those of the ``HeteroData``."""
    for name in data.node_types:
        of = g[name]
        if "x" in data[name]:
            torch.testing.assert_close(of.x, data[name].x[of.ids].double())
        else:
            assert of.x is None
        if "y" in data[name]:
            assert (of.y == data[name].y[of.ids]).all()
            assert (of.train_mask == data[name].train_mask[of.ids]).all()
            assert of.masks.keys() == {"train", "val"}
            assert of.test_mask is None
    refuses("unknown vertex type 'papr'", g.__getitem__, "papr")
    refuses("relation of the graph", g.__getitem__, ("author", "wrties", "paper"))
    more = {"paper": torch.zeros(1000, 3)}
    refuses("own rows of type 'paper'", g.expand, more, error=ValueError)


def check_traffic(g, names):
    """An exchange for all types of one width, of rows of these only."""
    before = g.traffic
    rows = {name: torch.zeros(g[name].num_own, 3, dtype=g.dtype) for name in names}
    g.expand(rows)
    received = g.traffic.received - before.received
    assert received == 3 * 8 * sum(g[name].num_halo for name in names)
    assert g.traffic.messages - before.messages <= g.size - 1


def main(comm):
    folder, partition = sys.argv[1:]
    data = gcnmpi.graph.open(folder).to_pyg()
    g = gcnmpi.torch.open(
        folder, partition, normalize="none", dtype=torch.float64, self_loops=False, direction="in"
    )
    check_rows(g, data)
    check_traffic(g, ["paper"])
    check_traffic(g, ["author", "paper"])
    check_batches(comm, g, open_graph(folder).graph)
    for layer in layers(data):
        check(g, data, layer.double())
    return 0


if __name__ == "__main__":
    run(main)
