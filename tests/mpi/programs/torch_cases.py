"""Under mpirun: gcnmpi.torch on small graphs, against the whole matrix in every process.

Directed graphs with isolated vertices, uneven and empty parts, both directions and dtypes: expand,
products, norms, dropout, sums over ranks, rows to files. Usage: torch_cases.py FOLDER
"""

import copy
import dataclasses
import gc
import os
import pickle
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from mpi4py import MPI
from products import N, assignments, random_graph

import gcnmpi.torch
from gcnmpi.core import rng
from gcnmpi.mpi import comm as mpi
from gcnmpi.mpi.process import run
from partition.errors import UserError
from partition.graph.aggregation import aggregation_matrix
from partition.graph.graph import ArcData, arcs
from partition.graph.store import open_graph, read_partition, write_partition

sys.path.append(str(Path(__file__).parents[2]))
from refusals import refuses
from stored_graphs import store, store_parts

COLUMNS = 3
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}


def refused(kind, words, function, *arguments):
    refuses(re.escape(words), function, *arguments, error=kind)


class Case:
    """An opened graph, its whole matrix, and numbers that are the same for every rank."""

    def __init__(self, comm, path, partition, **options):
        self.comm, self.options = comm, {"dtype": torch.float64, "normalize": "sym", **options}
        self.g = gcnmpi.torch.open(path, partition, **self.options)
        self.dtype, self.tolerance = self.options["dtype"], TOLERANCE[self.options["dtype"]]
        self.stored = open_graph(path)
        self.random = np.random.default_rng(3)
        direction, loops = self.options.get("direction", "in"), self.options.get("self_loops", True)
        matrix = aggregation_matrix(self.stored.graph, direction, loops, self.options["normalize"])
        self.matrix = torch.from_numpy(matrix.toarray()).to(self.dtype)
        self.here = torch.cat((self.g.ids, self.g.halo_ids))

    def drawn(self, *shape):
        return torch.from_numpy(self.random.standard_normal(shape)).to(self.dtype)

    def whole(self, *shape):
        """A random matrix of all vertices."""
        return self.drawn(self.g.n, *shape)

    def own(self, whole):
        return whole[self.g.ids].clone()

    def total(self, pieces):
        """Sums over ranks of what they have for all vertices."""
        return sum(torch.from_numpy(piece) for piece in self.comm.allgather(pieces.numpy()))

    def sum(self, value):
        return self.comm.allreduce(float(value))

    def close(self, found, expected, factor=1.0):
        scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
        torch.testing.assert_close(found, expected, rtol=0, atol=factor * scale * self.tolerance)

    def same(self, ours, theirs, whole, rows=None, exact=False):
        """A function of own rows gives some rows of one of all rows; gradients are alike, too.

        Without ``rows`` all ranks have the same result. Each rank weighs its results otherwise.
        """
        g = self.g
        h, w = self.own(whole).requires_grad_(), whole.clone().requires_grad_()
        found, expected = ours(h), theirs(w)
        y = self.drawn(*expected.shape)
        if rows is None:
            mine, share, total = expected, y / g.size, y
        else:
            mine, share = expected[rows], (1 + g.rank) * y[rows]
            flat = share.detach().flatten(0, rows.ndim - 1)
            total = self.total(torch.zeros_like(y).index_add(0, rows.flatten(), flat))
        self.close(found, mine, 0 if exact else 100)
        found.backward(share)
        expected.backward(total)
        self.close(h.grad, w.grad[g.ids], 100)
        if isinstance(ours, torch.nn.Module):
            g.all_reduce_gradients(ours)
            for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
                self.close(one.grad, other.grad, 100)
            ours.zero_grad(), theirs.zero_grad()
        return found


def check_matrix(case):
    """edge_index and edge_weight are the own rows of M."""
    g = case.g
    source, target = g.edge_index
    rows = torch.zeros((g.num_own, g.n), dtype=case.dtype)
    rows.index_put_((target, case.here[source]), g.edge_weight, accumulate=True)
    case.close(rows, case.matrix[g.ids])
    assert (target[1:] >= target[:-1]).all()
    assert case.sum(g.num_own) == g.n
    assert len(g.edge_weight) == g.edge_index.shape[1]
    case.close(g.x, case.own(torch.from_numpy(case.stored.graph.features[:]).to(case.dtype)))
    # Numbers and features of stored arcs; self-loops that were added have none.
    graph, (source, target) = case.stored.graph, (case.here.numpy()[ends] for ends in g.edge_index)
    ends = (arcs(graph), graph.indices)
    ends = ends if case.options.get("direction") != "out" else ends[::-1]
    stored = {pair: number for number, pair in enumerate(zip(*ends, strict=True))}
    numbers = [stored.get(pair, -1) for pair in zip(source, target, strict=True)]
    assert g.edge_ids.tolist() == numbers
    rows = np.vstack([graph.arc_data.features, np.zeros((1, COLUMNS))])
    np.testing.assert_array_equal(g.edge_attr, rows[numbers])


def check_exchanges(case):
    """Rows of halos and of any vertices, products: in any shape, several at a time."""
    g, (source, target) = case.g, case.g.edge_index

    def live(h):
        a, b, c = g.expand(h), g.expand(2 * h), g.expand(h)
        return a * b + a.square() * c + b

    def by_edges(h):
        messages = g.edge_weight[:, None] * g.expand(h)[source]
        return torch.zeros_like(h).index_add(0, target, messages)

    def product(w):
        return torch.einsum("ij,j...->i...", case.matrix, w)

    for shape in ((5,), (), (2, 3), (0,), (1,)):
        case.same(g.expand, lambda w: w, case.whole(*shape), case.here, exact=True)
        case.same(g.aggregate, product, case.whole(*shape), g.ids)
    case.same(by_edges, product, case.whole(4), g.ids)
    case.same(live, lambda w: 2 * w * w + w**3 + 2 * w, case.whole(4), case.here)
    random = np.random.default_rng(g.rank)
    for shape, width in (((4 + 3 * g.rank,), (5,)), ((2 * g.rank,), ()), ((2, 3), (2, 2))):
        ids = torch.from_numpy(random.integers(0, g.n, shape))
        kept = g.rows_of(ids)
        for fetch in (kept, kept, lambda h, ids=ids: g.fetch(h, ids)):
            case.same(fetch, lambda w: w, case.whole(*width), ids, exact=True)
        assert kept.num_received == len(np.setdiff1d(ids.numpy(), g.ids.numpy()))
    wide = case.whole(8)
    case.close(g.expand(case.own(wide)[:, ::2]), wide[case.here][:, ::2], 0)
    case.close(g.expand(case.own(wide).T.contiguous().T), wide[case.here], 0)
    with torch.no_grad():
        assert g.expand(case.own(wide).requires_grad_()).grad_fn is None


def check_plan(case):
    """The exchanges of docs/pytorch.md, from the plan alone, bring what ``expand`` brings."""
    g, comm = case.g, case.comm
    text = (Path(__file__).parents[3] / "docs" / "pytorch.md").read_text(encoding="utf-8")
    section = text.partition("## The exchange as arrays\n")[2].partition("\n### ")[0]
    names = {"np": np, "torch": torch, "MPI": MPI, "dist": torch.distributed, "comm": comm, "g": g}
    with_mpi, with_torch = re.findall(r"```py\n(.*?)```", section, re.DOTALL)
    for code in (with_mpi, with_torch) if g.size > 1 else ():
        exec(code, names)
        np.testing.assert_array_equal(names.pop("whole"), g.expand(g.x))
    np.testing.assert_array_equal(g.plan.own, g.ids)
    np.testing.assert_array_equal(g.plan.halo, g.halo_ids)
    if case.options.get("order") == "none":
        assert (g.ids[1:] > g.ids[:-1]).all()


def check_memory(case):
    """A view of a result keeps its memory; that of others is used again; bytes are the plan's."""
    g, first = case.g, case.whole(4)
    h = case.own(first).requires_grad_()
    if g.size == 1:
        assert g.expand(h) is h
        return
    with torch.no_grad():
        kept, other = g.expand(h)[:1], g.expand(2 * h)
        assert kept.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()
        place = other.data_ptr()
        del other
        gc.collect()
        places = {g.expand(2 * h).data_ptr() for _ in range(5)}
        assert place in places or not len(case.here)
        case.close(kept, first[case.here][:1], 0)
    before = g.traffic
    out = g.expand(h)
    there = g.traffic
    out.sum().backward()
    row = 4 * h.element_size()
    assert there.received - before.received == g.num_halo * row == g.traffic.sent - there.sent
    assert case.sum(there.sent - before.sent) == case.sum(g.num_halo * row)


def check_collective(case):
    """Functions of all rows, and of groups of them; one group is empty, and some rows are equal."""
    g, c, groups = case.g, case.g.collective, 4
    whole = case.whole(3).mul(2).round()
    index = torch.arange(g.n) % (groups - 1)
    hot = torch.nn.functional.one_hot(index, groups).to(case.dtype)
    counts = hot.sum(0)[:, None].clamp(min=1)

    def largest_of_groups(w):
        return torch.stack([w[index == k].amax(0) for k in range(groups - 1)] + [0 * w[0]])

    def softmax_by_group(w):
        masks = [(index == k)[:, None] for k in range(groups - 1)]
        return sum(some * torch.where(some, w, -torch.inf).softmax(0) for some in masks)

    pooled = {"index": index[g.ids], "size": groups}
    for ours, theirs, rows in (
        (c.sum, lambda w: w.sum(0), None),
        (c.mean, lambda w: w.mean(0), None),
        (c.max, lambda w: w.amax(0), None),
        (c.softmax, lambda w: w.softmax(0), g.ids),
        (lambda h: c.sum(h, **pooled), lambda w: hot.T @ w, None),
        (lambda h: c.mean(h, **pooled), lambda w: hot.T @ w / counts, None),
        (lambda h: c.max(h, **pooled), largest_of_groups, None),
        (lambda h: c.softmax(h, **pooled), softmax_by_group, g.ids),
        (lambda h: c.add(h.T @ h), lambda w: w.T @ w, None),
    ):
        case.same(ours, theirs, whole, rows)


def check_norms(case):
    """torch.nn.BatchNorm1d of all rows, in training and after it; norms of PyTorch Geometric."""
    g, width = case.g, 5
    for momentum, affine in ((0.1, True), (None, False)):
        ours = g.batch_norm(width, momentum=momentum, affine=affine)
        theirs = torch.nn.BatchNorm1d(width, momentum=momentum, affine=affine).to(case.dtype)
        for module in (ours, theirs) if affine else ():
            torch.nn.init.ones_(module.bias)
            with torch.no_grad():
                module.weight.copy_(torch.linspace(0.5, 2, width))
        for step in range(3):
            case.same(ours, theirs, whole := case.whole(width) * 3 + 10 * step, g.ids)
        assert ours.state_dict().keys() == theirs.state_dict().keys()
        for name, value in theirs.state_dict().items():
            case.close(ours.state_dict()[name].to(case.dtype), value.to(case.dtype), 100)
        # Numbers that are equal but for rounding errors: the bias, to the bit, and no gradient.
        equal = 1 + torch.finfo(case.dtype).eps * case.whole(width).round().clamp(-1, 1)
        h = case.own(equal).requires_grad_()
        out = copy.deepcopy(ours)(h)
        assert (out == (ours.bias if affine else 0)).all()
        (out * case.own(case.whole(width))).sum().backward()
        assert not h.grad.any()
        twin = copy.deepcopy(ours).eval()
        case.close(twin(case.own(whole)), theirs.eval()(whole)[g.ids], 100)
        out = ours(h)
        (first,) = torch.autograd.grad(out.square().sum(), h, create_graph=True)
        refused(RuntimeError, "twice", first.sum().backward)
        refused(TypeError, "state_dict", pickle.dumps, ours)
        refused(ValueError, "columns", ours, case.own(case.whole(width + 1)))
    try:
        from torch_geometric.nn import GraphNorm, LayerNorm, MeanSubtractionNorm, PairNorm
    except ImportError:
        return
    groups = torch.arange(g.n) % 3
    for kind, theirs in (
        ("graph", GraphNorm(width)),
        ("pair", PairNorm()),
        ("mean", MeanSubtractionNorm()),
        ("layer", LayerNorm(width, mode="graph")),
    ):
        theirs, ours = theirs.to(case.dtype), g.norm(kind, width)
        with torch.no_grad():
            for number, parameter in enumerate(theirs.parameters()):
                parameter += torch.linspace(0, 1 + number, width)
        ours.load_state_dict(theirs.state_dict())
        case.same(ours, theirs, case.whole(width), g.ids)
        case.same(
            lambda h, norm=ours: norm(h, groups[g.ids], 3),
            lambda w, norm=theirs: norm(w, groups, 3), case.whole(width), g.ids,
        )  # fmt: skip


def mask_of(place, shape, p):
    """Dropout of all vertices by seed, epoch and layer: 0, or by how much a number is larger."""
    hashes, scratch = np.empty((2, *shape), np.uint32)
    keys = rng.row_keys(*place, np.arange(shape[0]))
    rng.hash_block(keys, rng.column_keys(np.arange(shape[1])), hashes, scratch)
    return torch.from_numpy((hashes >= rng.threshold(p)) / (1 - p))


def check_dropout(case):
    """The masks of gcnmpi train, the same for halo rows as for their owner's."""
    g, whole = case.g, case.whole(7)
    mask = mask_of((0, 4, 2), whole.shape, 0.4).to(case.dtype)
    case.same(lambda h: g.dropout(h, 0.4, epoch=4, layer=2), lambda w: w * mask, whole, g.ids)
    h = case.own(whole)
    case.close(g.dropout(g.expand(h), 0.4, 4, 2), g.expand(g.dropout(h, 0.4, 4, 2)), 0)
    assert g.dropout(h, 0.4, 4, 2, training=False) is h
    refused(ValueError, "below 1", g.dropout, h, 1.0, 1, 1)


def check_sums(case):
    """Means, gradients and broadcasts of a model."""
    g = case.g
    losses = case.whole()
    mine = case.own(losses).requires_grad_()
    mean = g.mean(mine)
    mean.backward()
    case.close(mean, losses.mean())
    case.close(mine.grad, torch.full_like(mine, 1 / g.n))
    case.close(g.mean(mine.sum(), g.num_own), losses.mean())
    refused(ValueError, "loss of each row", g.mean, mine.sum())
    refused(ValueError, "no rank", g.mean, mine[:0])

    torch.manual_seed(g.rank)
    net = torch.nn.ModuleDict({n: torch.nn.Linear(3, 2) for n in ("used", "unused", "by_one")})
    net.to(case.dtype).register_buffer("count", torch.tensor(g.rank))
    g.broadcast(net)
    for value in net.state_dict().values():
        assert np.array_equal(case.comm.bcast(value.numpy()), value.numpy())
    assert net.count == 0
    features = torch.from_numpy(case.stored.graph.features[:]).to(case.dtype)
    for _ in range(2):  # the second time in the buffer of the first
        net.zero_grad()
        net["used"](case.own(features)).square().sum().backward()
        if g.rank == 0:
            net["by_one"](features).sum().backward()
        g.all_reduce_gradients(net)
    serial = copy.deepcopy(net)
    serial.zero_grad()
    (serial["used"](features).square().sum() + serial["by_one"](features).sum()).backward()
    for name in ("used", "by_one"):
        for one, other in zip(net[name].parameters(), serial[name].parameters(), strict=True):
            case.close(one.grad, other.grad, 10)
    assert all(p.grad is None for p in net["unused"].parameters())
    if g.size > 1:
        unlike = torch.nn.Linear(3, 2 + (g.rank == 1))
        refused(UserError, "another model", g.broadcast, unlike)
    refused(UserError, "does not know its shape", g.broadcast, torch.nn.LazyLinear(2))


def check_rows(case, folder):
    """Rows to files and back, in the order of the graph; metrics of rows that have a label."""
    g, whole, path = case.g, case.whole(2, 3), folder / f"rows-{case.g.size}.npy"
    g.write(case.own(whole), path)
    assert np.array_equal(np.load(path), whole.numpy())
    mapped = np.load(path, mmap_mode="r")
    case.close(g.load(mapped), case.own(whole), 0)
    for given in (whole, whole.bfloat16()):
        together = g.gather(case.own(given))
        assert (together is None) == (g.rank > 0)
        assert g.rank > 0 or torch.equal(together, given.to(whole.dtype))
    refused(UserError, "written are .npy", g.write, case.own(whole), folder / "rows.csv")
    refused(UserError, "rows, and the graph", g.load, mapped[:5])
    case.comm.Barrier()

    logits = case.whole(3)
    labels = torch.from_numpy(case.stored.graph.labels.astype(np.int64))
    case.close(g.y, case.own(labels), 0)
    found = g.metrics(case.own(logits), ("accuracy", "f1_macro"))
    for name, mask in case.stored.graph.masks.items():
        some = torch.from_numpy(np.array(mask)) & (labels >= 0)
        right = (logits.argmax(1) == labels)[some].double().mean()
        assert found[f"{name}_accuracy"] == float(right)
        assert torch.equal(g.masks[name], case.own(some))
    assert found.keys() == {f"{m}_{n}" for m in ("train", "val") for n in ("accuracy", "f1_macro")}
    assert g.test_mask is None
    refused(UserError, "did you mean 'accuracy'", g.metrics, case.own(logits), ("acuracy",))


def check_half_precision(case):
    """Results of autocast are exchanged in the dtype of the graph, and come back in their own."""
    g, whole = case.g, case.whole(4).to(torch.bfloat16)
    for half in (torch.bfloat16, torch.float16):
        h = case.own(whole).to(half).requires_grad_()
        expanded, summed = g.expand(h), g.aggregate(h)
        assert torch.equal(expanded, whole[case.here].to(half))
        expected = (case.matrix @ whole.to(case.dtype)).to(half)
        torch.testing.assert_close(summed, expected[g.ids], rtol=0.02, atol=0.02)
        loss = g.mean(summed.square().sum(1) + g.aggregate(expanded[: g.num_own]).sum(1))
        loss.backward()
        norm = g.batch_norm(4)
        results = g.dropout(h, 0.5, 1, 1), norm(h), norm.eval()(h), loss, h.grad
        assert {one.dtype for one in results} == {half}
    assert g.metrics(summed[:, :3]).keys() == {"train_accuracy", "val_accuracy"}
    h, before = case.own(whole).requires_grad_(), g.traffic
    g.expand(h).sum().backward()  # rows travel as they are, there and back
    sent = g.plan.nsend + g.num_halo if g.size > 1 else 0
    assert g.traffic.sent - before.sent == sent * 4 * 2
    on_ranks = case.total(torch.zeros(g.n).index_add(0, case.here, torch.ones(len(case.here))))
    assert torch.equal(h.grad[:, 0], on_ranks[g.ids].to(torch.bfloat16))
    refused(TypeError, "torch.func", torch.func.grad(lambda h: g.expand(h).sum()), case.own(whole))


def check_mistakes(case):
    """Tensors that cannot be exchanged; calls that not all ranks make name the lines of both."""
    g, h = case.g, case.own(case.whole(2))
    other = torch.float32 if case.dtype == torch.float64 else torch.float64
    last = 0 if g.rank else g.n  # on one rank only
    more = torch.cat((h, h[:0], torch.zeros(1, 2, dtype=h.dtype)))
    for kind, words, function, *given in (
        (ValueError, "own rows", g.expand, more),
        (ValueError, "own rows", g.aggregate, torch.tensor(1.0)),
        (ValueError, "own rows", g.rows_of(g.ids[:1]), more),
        (UserError, "the graph has no vertex", g.fetch, h, torch.tensor([0, last])),
        (UserError, "int64", g.rows_of, torch.zeros(1)),
        (TypeError, "opened with dtype", g.expand, h.to(other)),
        (TypeError, "the device of the graph, cpu", g.expand, h.to("meta")),
        (TypeError, "the device of the graph, cpu", g.expand, h.to_sparse()),
        (TypeError, "state_dict", pickle.dumps, g),
    ):
        refused(kind, words, function, *given)
    assert copy.deepcopy(g) is g
    if g.size == 1:
        return
    h = case.own(case.whole(4)).requires_grad_()

    def uneven():
        return g.mean(h[:, 0]) if g.rank == 1 else g.expand(h)

    refuses(r"rank 0 makes an expand of 4 at .*g\.mean\(h", uneven)
    refused(UserError, "rank 1 makes an expand of 3 at", g.expand, h[:, : 4 - (g.rank == 1)])
    loss = (g.expand(h) if g.rank == 0 else g.expand(h.detach()) + h[:1].sum()).sum()

    def one_way():
        loss.backward()
        g.collective.sum(h)

    gradient = r"gradient of an expand of 4 at .*loss\.backward.* a sum over ranks of 4 at .*sum\(h"
    refuses(gradient, one_way)


def check_agreement(opened, comm):
    """Ranks whose weights differ stop at the first call that compares them, all of them."""
    features = opened().x.shape[1]

    def start(seed=0, **options):
        torch.manual_seed(seed)
        layers = torch.nn.Linear(features, 4), torch.nn.Linear(4, 2)
        return opened(**options), torch.nn.Sequential(*layers)

    def step(g, net, summed=True):
        net.zero_grad()
        out = g.aggregate(net(g.x))
        loss = g.mean(out.square().sum(1) + out.sum(1) * (1 + g.ids % 5))
        loss.backward()
        if summed:
            g.all_reduce_gradients(net)
        torch.optim.SGD(net.parameters(), 0.1).step()

    def stops(words, function, *arguments):
        if comm.size > 1:
            refused(UserError, words, function, *arguments)
        else:
            function(*arguments)

    # A sum of gradients that was forgotten is noticed at the second step, or by metrics.
    call, begin = "call g.all_reduce_gradients(net) between", "start from the same ones"
    g, net = start()
    step(g, net, False)
    stops(call, step, g, net, False)
    g, net = start()
    for number in range(10):
        step(g, net, number < 9)
    stops(begin, g.metrics, torch.zeros(g.num_own, 3))
    # Other weights at the start, which a broadcast makes the same.
    g, net = start(seed=comm.rank)
    stops(call, step, g, net)
    g.broadcast(net)
    step(opened(), net)
    # A second model, whose gradients nobody sums.
    (g, first), (_, second) = start(), start(1)
    for net, summed in ((first, True), (second, False), (second, False)):
        step(g, net, summed)
    stops(begin, step, g, first)
    # Whoever wants weights of a rank's own has them; so do vertices and entries.
    g, net = start(seed=comm.rank, check_weights=False)
    for _ in range(3):
        step(g, net, False)
    g, net = start()
    own = torch.nn.Parameter(torch.randn(g.num_own, 2))
    arcs = torch.nn.Parameter(torch.randn(len(g.edge_weight)))
    for _ in range(4):
        by_arcs = torch.zeros(g.num_own).index_add(0, g.edge_index[1], arcs)
        g.mean(g.aggregate(net(g.x) + own).sum(1) + by_arcs)
    # A rank whose loss has no weights, and ranks that use other ones of several.
    for _ in range(2):
        g.mean(net(g.x).sum(1) if comm.rank else torch.zeros(g.num_own))
    g, net = start()
    nets = net, torch.nn.Linear(features, 2)
    for _ in range(2):
        g.mean(nets[comm.rank % 2](g.x).sum(1))
    # Rounding is none, and numbers that are not finite are nobody's.
    g, net = start()
    with torch.no_grad():
        net[0].weight *= 1 + comm.rank * 1e-7
        net[1].weight[0, 0] = torch.nan
    g.mean(net(g.x).sum(1))
    stops("rank 1 has another weight or buffer '0.weight' than rank 0", g.check, net)


def check_models(opened, comm):
    """Modules that see one rank's rows are named, and every weight and buffer is compared."""
    g, nn = opened(), torch.nn
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Dropout(0), nn.LayerNorm(3),
        nn.ModuleDict({"inner": nn.Softmax(0)}), nn.Softmax(1), g.batch_norm(3),
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        lines = g.check(net)
    assert [line.partition(" ")[0] for line in lines] == ["1:", "2:", "5.inner:"]
    assert "g.batch_norm" in lines[0]
    assert [str(one.message) for one in told] == (lines if comm.rank == 0 else [])
    assert g.check(nn.Linear(2, 2).bfloat16().requires_grad_(False)) == []
    net[7].running_mean += comm.rank
    if comm.size > 1:
        refused(UserError, "'7.running_mean'", g.check, net)


def check_compiled(opened, comm):
    """torch.compile leaves what communicates to Python, forward and backward."""
    g = opened()

    def network():
        torch.manual_seed(0)
        linear = torch.nn.Linear(g.x.shape[1], 4), torch.nn.Linear(4, 3)
        return torch.nn.ModuleList([*linear, g.batch_norm(4)])

    def step(net, epoch):
        net.zero_grad()
        h = g.dropout(net[2](net[0](g.x).relu()), 0.5, epoch, layer=1)
        source, target = g.edge_index
        h = torch.zeros_like(h).index_add(0, target, g.expand(h)[source])
        out = g.aggregate(net[1](h))
        g.mean(out.square().sum(1)).backward()
        g.all_reduce_gradients(net)
        return out

    plain, traced = network(), network()
    compiled = torch.compile(step, backend="eager")
    # Many functions of a graph meet the compiler, and none of them too often.
    strict = {"fail_on_recompile_limit_hit": True} if torch.__version__ > "2.7" else {}
    with torch._dynamo.config.patch(**strict):
        for epoch in range(2):
            step(plain, epoch)
            found = g.metrics(compiled(traced, epoch))
            assert found.keys() == {"train_accuracy", "val_accuracy"}
    for one, other in zip(plain.parameters(), traced.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-6)


CHECKS = (
    check_matrix, check_exchanges, check_plan, check_memory, check_collective, check_norms,
    check_dropout, check_sums, check_half_precision, check_mistakes,
)  # fmt: skip
# Other names of the same parts, as made for an exchange: alone, and in a pair.
OTHER_NAMES = {
    "random": {"lone": "mixed", "pair-rows": "rows"}, "uneven": {"pair-mixed": "mixed"},
}  # fmt: skip


def prepare(folder: Path, k: int) -> None:
    """Graphs with labels and two masks, and their partitions."""
    for kind in ("directed", "symmetric"):
        random = np.random.default_rng(5)
        labels = random.integers(-1, 3, N).astype(np.int32)
        masks = {name: random.random(N) < 0.5 for name in ("train", "val")}
        graph = random_graph(kind)
        of_arcs = ArcData(random.standard_normal((graph.nnz, COLUMNS)).astype(np.float32))
        graph = dataclasses.replace(graph, labels=labels, masks=masks, arc_data=of_arcs)
        path = store(folder / f"{kind}-{k}.graph", graph)
        store(folder / f"parallel-{kind}-{k}.graph", dataclasses.replace(graph, parallel=True), k)
        for name, parts in assignments(k).items() if k > 1 else ():
            store_parts(path, name, parts, k)
            for called, exchange in OTHER_NAMES.get(name, {}).items():
                one = read_partition(path, name)
                options = {"exchange": exchange}
                write_partition(path, dataclasses.replace(one, name=called, options=options))


def check_opening(comm, folder, path):
    """Whole rows are sent: of a pair the one for rows is taken, and no other without a word.

    Edges of a graph with parallel arcs have no numbers.
    """
    stored = {name: read_partition(path, name) for name in ("pair-rows", "pair-mixed")}
    for options, taken in (({}, "pair-rows"), ({"exchange": "mixed"}, "pair-mixed")):
        own = gcnmpi.torch.open(path, "pair", **options).ids
        assert sorted(own.tolist()) == np.flatnonzero(stored[taken].parts == comm.rank).tolist()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gcnmpi.torch.open(path, "lone")
    told = [str(w.message) for w in caught if "made for the mixed exchange" in str(w.message)]
    assert len(told) == (comm.rank == 0)
    assert all("--exchange rows" in line for line in told)
    for words, options in (
        ("ranks need a partition", {}),
        ("graph.normalize", {"normalize": "symm"}),
        ("dtype is torch.float32 or torch.float64", {"dtype": torch.int64}),
    ):
        assert refuses(words, gcnmpi.torch.open, path, **options).agreed
    g = gcnmpi.torch.open(folder / f"parallel-directed-{comm.size}.graph", f"rp-{comm.size}")
    for what, words in {"edge_attr": "par", "edge_ids": "par", "typed_edges": "no rel"}.items():
        refuses(words, getattr, g, what, error=ValueError)


def main(comm) -> int:
    folder, several = Path(sys.argv[1]), comm.size > 1
    mpi.from_root(comm, lambda: prepare(folder, comm.size))
    warnings.simplefilter("ignore")  # of partitions for another direction, and of few cores
    directed = folder / f"directed-{comm.size}.graph"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    file = f"file://{folder / f'gloo-{comm.size}'}"
    torch.distributed.init_process_group("gloo", file, rank=comm.rank, world_size=comm.size)
    if several:
        check_opening(comm, folder, directed)
    of_all = {"direction": "out", "normalize": "row", "self_loops": False, "dtype": torch.float32}
    cases = (
        ("directed", "random", {"order": "none"}),
        ("directed", "uneven", of_all),
        ("directed", "empty", {"normalize": "none", "exchange": "mixed"}),
        ("symmetric", "empty", of_all),
        ("symmetric", "uneven", {"normalize": "none", "exchange": "mixed"}),
    )
    for kind, name, options in cases:
        path = folder / f"{kind}-{comm.size}.graph"
        case = Case(comm, path, name if several else None, **options)
        for check in CHECKS:
            check(case)
        check_rows(case, folder)

    def opened(**options):
        return gcnmpi.torch.open(directed, "random" if several else None, **options)

    for check in (check_agreement, check_models, check_compiled):
        check(opened, comm)
    return 0


if __name__ == "__main__":
    run(main)
