"""Under mpirun: gcnmpi.torch on small graphs, against the whole matrix in every process.

Directed graphs with isolated vertices, uneven and empty parts, both directions and dtypes: expand,
products, batch norm, dropout, sums over ranks, rows to files. Usage: torch_cases.py FOLDER
"""

import copy
import dataclasses
import gc
import pickle
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from products import N, assignments, random_graph

import gcnmpi.torch
from gcnmpi.core import rng
from gcnmpi.mpi import comm as mpi
from gcnmpi.mpi.process import run
from partition.errors import UserError
from partition.graph.aggregation import aggregation_matrix
from partition.graph.store import open_graph, read_partition, write_partition

sys.path.append(str(Path(__file__).parents[2]))
from stored_graphs import store, store_parts

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}


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

    def whole(self, *shape):
        """A random matrix of all vertices."""
        return torch.from_numpy(self.random.standard_normal((self.g.n, *shape))).to(self.dtype)

    def own(self, whole):
        return whole[self.g.ids].clone()

    def local(self, whole):
        return whole[torch.cat((self.g.ids, self.g.halo_ids))]

    def total(self, pieces):
        """Sums over ranks of what they have for all vertices."""
        return sum(torch.from_numpy(piece) for piece in self.comm.allgather(pieces.numpy()))

    def sum(self, value):
        return self.comm.allreduce(float(value))

    def close(self, found, expected, factor=1.0):
        scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
        torch.testing.assert_close(found, expected, rtol=0, atol=factor * scale * self.tolerance)


def check_matrix(case):
    """edge_index and edge_weight are the own rows of M."""
    g = case.g
    local = torch.cat((g.ids, g.halo_ids))
    source, target = g.edge_index
    rows = torch.zeros((g.num_own, g.n), dtype=case.dtype)
    rows.index_put_((target, local[source]), g.edge_weight, accumulate=True)
    case.close(rows, case.matrix[g.ids])
    assert (target[1:] >= target[:-1]).all()
    assert case.sum(g.num_own) == g.n
    assert len(g.edge_weight) == g.edge_index.shape[1]
    case.close(g.x, case.own(torch.from_numpy(case.stored.graph.features[:]).to(case.dtype)))


def check_expand(case):
    """Rows of others, in any shape; the gradient adds what ranks have for each other's rows."""
    g = case.g
    for shape in ((5,), (), (2, 3), (0,), (1,)):
        whole, weights = case.whole(*shape), case.whole(*shape)
        h = case.own(whole).requires_grad_()
        expanded = g.expand(h)
        case.close(expanded, case.local(whole), 0)
        y = case.local(weights) * (1 + g.rank)
        (expanded * y).sum().backward()
        # ⟨expand x, y⟩ = ⟨x, expandᵀ y⟩
        left, right = case.sum((expanded * y).sum()), case.sum((h * h.grad).sum())
        assert abs(left - right) <= case.tolerance * max(1, abs(left)) * 10
        share = torch.zeros_like(weights)
        share[torch.cat((g.ids, g.halo_ids))] = y
        case.close(h.grad, case.total(share)[g.ids])
    wide = case.whole(8)
    case.close(g.expand(case.own(wide)[:, ::2]), case.local(wide)[:, ::2], 0)
    case.close(g.expand(case.own(wide).T.contiguous().T), case.local(wide), 0)
    with torch.no_grad():
        assert g.expand(case.own(wide).requires_grad_()).grad_fn is None


def check_live(case):
    """Several results of one width at a time, used twice, and their memory used again."""
    g, first, second = case.g, case.whole(4), case.whole(4)
    h1, h2 = case.own(first).requires_grad_(), case.own(second).requires_grad_()
    a, b, c = g.expand(h1), g.expand(h2), g.expand(h1)
    for found, whole in ((a, first), (b, second), (c, first)):
        case.close(found, case.local(whole), 0)
    (a * b + a.square() * c + b).sum().backward()
    w1, w2 = (w.clone().requires_grad_() for w in (first, second))
    part = torch.zeros_like(w1)
    part[torch.cat((g.ids, g.halo_ids))] = 1
    ((w1 * w2 + w1.square() * w1 + w2) * case.total(part)).sum().backward()
    case.close(h1.grad, w1.grad[g.ids], 10)
    case.close(h2.grad, w2.grad[g.ids], 10)
    if g.size == 1:
        assert a is h1
        return
    with torch.no_grad():
        kept = g.expand(h1)[:1]  # a view keeps the memory
        other = g.expand(h2)
        assert kept.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()
        place = other.data_ptr()
        del other
        gc.collect()
        places = {g.expand(h2).data_ptr() for _ in range(5)}
        assert place in places or not len(case.local(first))
        case.close(kept, case.local(first)[:1], 0)


def check_products(case):
    """M·h, its gradient, and the gradient of that."""
    g = case.g
    for shape in ((6,), (2, 2), ()):
        whole, weights = case.whole(*shape), case.whole(*shape)
        h = case.own(whole).requires_grad_()
        out = g.aggregate(h)
        expected = torch.einsum("ij,j...->i...", case.matrix, whole)
        case.close(out, expected[g.ids], 10)
        (out * case.own(weights)).sum().backward()
        back = torch.einsum("ji,j...->i...", case.matrix, weights)
        case.close(h.grad, back[g.ids], 10)
        # The same by a sum over the edges.
        mine = case.own(whole)
        flat = mine.flatten(1) if mine.ndim > 1 else mine[:, None]
        source, target = g.edge_index
        messages = g.edge_weight[:, None] * g.expand(flat)[source]
        by_edges = torch.zeros_like(flat).index_add(0, target, messages)
        case.close(by_edges.reshape(out.shape), expected[g.ids], 10)


def check_adjoints(case):
    """Gradients of gradients on several ranks: the fold's gradient is the expand."""
    g, whole = case.g, case.whole(3)
    y = case.local(case.whole(3)).requires_grad_()
    h = case.own(whole).requires_grad_()
    for function, grad in ((g.expand, y), (g.aggregate, case.own(case.whole(3)).requires_grad_())):
        out = function(h)
        if out is h:
            continue
        (back,) = torch.autograd.grad(out, h, grad, create_graph=True)
        (again,) = torch.autograd.grad(back, grad, case.own(whole))
        case.close(again, function(case.own(whole)), 10)


def check_fetch(case):
    """Rows of any vertices, and their gradients where they come from."""
    g, random = case.g, np.random.default_rng(case.g.rank)
    for shape, width in (((4 + 3 * g.rank,), (5,)), ((2 * g.rank,), ()), ((2, 3), (2, 2))):
        ids = torch.from_numpy(random.integers(0, g.n, shape))
        whole = case.whole(*width)
        kept, h = g.rows_of(ids), case.own(whole).requires_grad_()
        total = torch.zeros_like(whole)
        for fetch in (kept, kept, lambda h, ids=ids: g.fetch(h, ids)):
            found = fetch(h)
            case.close(found, whole[ids], 0)
            y = torch.from_numpy(random.standard_normal(found.shape)).to(case.dtype)
            (found * y).sum().backward()
            share = torch.zeros_like(whole).index_add(0, ids.flatten(), y.flatten(0, ids.ndim - 1))
            total += case.total(share)
        case.close(h.grad, total[g.ids], 10)
        others = np.setdiff1d(ids.numpy(), g.ids.numpy())
        assert kept.num_received == len(others)
    last = 0 if g.rank else g.n  # on one rank only
    refused(UserError, "the graph has no vertex", g.fetch, h, torch.tensor([0, last]))
    refused(UserError, "int64", g.rows_of, torch.zeros(1))
    refused(ValueError, "own rows", kept, torch.cat((h, h[:0], torch.zeros(1, 2, 2))))


def check_collective(case):
    """Functions of all rows, and of groups of them; one group is empty, and some rows are equal."""
    g, c, groups = case.g, case.g.collective, 4
    whole = case.whole(3).mul(2).round()
    index = torch.arange(g.n) % (groups - 1)
    hot = torch.nn.functional.one_hot(index, groups).to(case.dtype)
    counts = hot.sum(0)[:, None]

    def largest_of_groups(w):
        return torch.stack([w[index == k].amax(0) for k in range(groups - 1)] + [0 * w[0]])

    def softmax_by_group(w):
        masks = [(index == k)[:, None] for k in range(groups - 1)]
        return sum(some * torch.where(some, w, -torch.inf).softmax(0) for some in masks)

    pooled = {"index": index[g.ids], "size": groups}
    for ours, theirs in (
        (c.sum, lambda w: w.sum(0)),
        (c.mean, lambda w: w.mean(0)),
        (c.max, lambda w: w.amax(0)),
        (c.softmax, lambda w: w.softmax(0)),
        (lambda h: c.sum(h, **pooled), lambda w: hot.T @ w),
        (lambda h: c.mean(h, **pooled), lambda w: hot.T @ w / counts.clamp(min=1)),
        (lambda h: c.max(h, **pooled), largest_of_groups),
        (lambda h: c.softmax(h, **pooled), softmax_by_group),
        (lambda h: c.add(h.T @ h), lambda w: w.T @ w),
    ):
        h, w = case.own(whole).requires_grad_(), whole.clone().requires_grad_()
        found, expected = ours(h), theirs(w)
        y = case.whole(*expected.shape[1:])[: len(expected)]
        (expected * y).sum().backward()
        of_rows = len(expected) == g.n and expected.ndim == 2
        case.close(found, expected[g.ids] if of_rows else expected, 10)
        share = (found * case.own(y)).sum() if of_rows else (found * y).sum() / g.size
        share.backward()
        case.close(h.grad, w.grad[g.ids], 100)


def check_batch_norm(case):
    """torch.nn.BatchNorm1d of all rows, in training and after it."""
    g, width = case.g, 5
    for momentum, affine in ((0.1, True), (None, False)):
        ours = g.batch_norm(width, momentum=momentum, affine=affine)
        theirs = torch.nn.BatchNorm1d(width, momentum=momentum, affine=affine).to(case.dtype)
        for module in (ours, theirs) if affine else ():
            torch.nn.init.ones_(module.bias)
            with torch.no_grad():
                module.weight.copy_(torch.linspace(0.5, 2, width))
        for step in range(3):
            whole = case.whole(width) * 3 + 10 * step
            weights = case.whole(width)
            h, w = case.own(whole).requires_grad_(), whole.clone().requires_grad_()
            ours.zero_grad()
            theirs.zero_grad()
            out, expected = ours(h), theirs(w)
            case.close(out, expected[g.ids], 100)
            (out * case.own(weights)).sum().backward()
            (expected * weights).sum().backward()
            g.all_reduce_gradients(ours)
            case.close(h.grad, w.grad[g.ids], 100)
            for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
                case.close(one.grad, other.grad, 100)
        assert ours.state_dict().keys() == theirs.state_dict().keys()
        for name, value in theirs.state_dict().items():
            if value.is_floating_point():
                case.close(ours.state_dict()[name], value, 100)
            assert value.shape == ours.state_dict()[name].shape
        # Numbers that are equal but for rounding errors: the bias, to the bit, and no gradient.
        equal = 1 + torch.finfo(case.dtype).eps * case.whole(width).round().clamp(-1, 1)
        h = case.own(equal).requires_grad_()
        out = copy.deepcopy(ours)(h)
        assert (out == (ours.bias if affine else 0)).all()
        (out * case.own(case.whole(width))).sum().backward()
        assert not h.grad.any()
        twin = copy.deepcopy(ours).eval()
        case.close(twin(case.own(whole)), theirs.eval()(whole)[g.ids], 100)
        out = ours(case.own(whole).requires_grad_())
        refused(RuntimeError, "twice", grad_of_grad, out)
        refused(TypeError, "state_dict", pickle.dumps, ours)
        refused(ValueError, "columns", ours, case.own(case.whole(width + 1)))


def grad_of_grad(out):
    """Of the leaf that a result of one function comes of."""
    leaf = out.grad_fn.next_functions[0][0].variable
    (first,) = torch.autograd.grad(out.square().sum(), leaf, create_graph=True)
    first.sum().backward()


def check_dropout(case):
    """The masks of gcnmpi train, the same for halo rows as for their owner's."""
    g, whole = case.g, case.whole(7)
    keys = rng.row_keys(0, 4, 2, np.arange(g.n))
    hashes, scratch = np.empty((2, g.n, 7), np.uint32)
    rng.hash_block(keys, rng.column_keys(np.arange(7)), hashes, scratch)
    mask = torch.from_numpy(hashes >= rng.threshold(0.4)).to(case.dtype) / 0.6
    h = case.own(whole).requires_grad_()
    dropped = g.dropout(h, 0.4, epoch=4, layer=2)
    case.close(dropped, case.own(whole * mask))
    dropped.sum().backward()
    case.close(h.grad, case.own(mask))
    case.close(g.dropout(g.expand(h), 0.4, 4, 2), g.expand(g.dropout(h, 0.4, 4, 2)), 0)
    assert g.dropout(h, 0.4, 4, 2, training=False) is h
    refused(ValueError, "below 1", g.dropout, h, 1.0, 1, 1)


def check_sums(case):
    """Means, gradients and broadcasts of a model."""
    g = case.g
    losses = case.whole()
    mine = case.own(losses).requires_grad_()
    mean = g.mean(mine)
    assert mean.dtype == case.dtype
    case.close(mean, losses.mean())
    mean.backward()
    case.close(mine.grad, torch.full_like(mine, 1 / g.n))
    case.close(g.mean(mine.sum(), g.num_own), losses.mean())
    refused(ValueError, "loss of each row", g.mean, mine.sum())
    refused(ValueError, "no rank", g.mean, mine[:0])

    torch.manual_seed(g.rank)
    net = torch.nn.ModuleDict(
        {name: torch.nn.Linear(3, 2) for name in ("used", "unused", "by_one")}
    ).to(case.dtype)
    net.register_buffer("count", torch.tensor(g.rank))
    g.broadcast(net)
    for value in net.state_dict().values():
        first = case.comm.bcast(value.numpy())
        assert np.array_equal(first, value.numpy())
    assert net.count == 0

    for _ in range(2):  # the second time in the buffer of the first
        net.zero_grad()
        features = torch.from_numpy(case.stored.graph.features[:]).to(case.dtype)
        net["used"](case.own(features)).square().sum().backward()
        if g.rank == 0:
            net["by_one"](features).sum().backward()
        g.all_reduce_gradients(net)
    serial = copy.deepcopy(net)
    serial.zero_grad()
    serial["used"](features).square().sum().backward()
    serial["by_one"](features).sum().backward()
    for name in ("used", "by_one"):
        for one, other in zip(net[name].parameters(), serial[name].parameters(), strict=True):
            case.close(one.grad, other.grad, 10)
    assert all(p.grad is None for p in net["unused"].parameters())

    if g.size > 1:
        unlike = torch.nn.Linear(3, 2 + (g.rank == 1))
        refused(Exception, "another model", g.broadcast, unlike)
    refused(Exception, "does not know its shape", g.broadcast, torch.nn.LazyLinear(2))


def check_rows(case, folder):
    """Rows to files and back, in the order of the graph."""
    g, whole = case.g, case.whole(2, 3)
    path = folder / f"rows-{g.size}.npy"
    g.write(case.own(whole), path)
    assert np.array_equal(np.load(path), whole.numpy())
    mapped = np.load(path, mmap_mode="r")
    case.close(g.load(mapped), case.own(whole), 0)
    together = g.gather(case.own(whole))
    if g.rank == 0:
        case.close(together, whole, 0)
    else:
        assert together is None
    refused(Exception, "written are .npy", g.write, case.own(whole), folder / "rows.csv")
    refused(Exception, "rows, and the graph", g.load, mapped[:5])
    case.comm.Barrier()


def check_metrics(case):
    """Metrics of all rows in a mask that have a label."""
    g, logits = case.g, case.whole(3)
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
    refused(Exception, "did you mean 'accuracy'", g.metrics, case.own(logits), ("acuracy",))


def check_bytes(case):
    """An expand and a fold send the bytes of the plan."""
    g = case.g
    if g.size == 1:
        return
    h = case.own(case.whole(4)).requires_grad_()
    before = g.traffic
    out = g.expand(h)
    there = g.traffic
    out.sum().backward()
    back = g.traffic
    row = 4 * h.element_size()
    assert there.received - before.received == g.num_halo * row == back.sent - there.sent
    assert case.sum(there.sent - before.sent) == case.sum(g.num_halo * row)


def check_calls_are_the_same(case):
    """A call that not all ranks make is one line, which names the lines of both."""
    g = case.g
    if g.size == 1:
        return
    h = case.own(case.whole(4)).requires_grad_()

    def uneven():
        return g.mean(h[:, 0]) if g.rank == 1 else g.expand(h)

    with pytest.raises(UserError, match=r"rank 0 makes an expand of 4 at .*g\.mean\(h"):
        uneven()
    refused(UserError, "rank 1 makes an expand of 3 at", g.expand, h[:, : 4 - (g.rank == 1)])
    loss = (g.expand(h) if g.rank == 0 else g.expand(h.detach()) + h[:1].sum()).sum()

    def one_way():
        loss.backward()
        g.collective.sum(h)

    gradient = r"gradient of an expand of 4 at .*loss\.backward.* a sum over ranks of 4 at .*sum\(h"
    with pytest.raises(UserError, match=gradient):
        one_way()


def readers(case):
    """On how many ranks each own row is, in bfloat16."""
    count = torch.ones(case.g.num_own)
    rows = torch.from_numpy(case.g.plan.send_rows.astype(np.int64))
    return count.index_add(0, rows, torch.ones(len(rows))).to(torch.bfloat16)


def check_half_precision(case):
    """Results of autocast are exchanged in the dtype of the graph, and come back in their own."""
    g, whole = case.g, case.whole(4).to(torch.bfloat16)
    for half in (torch.bfloat16, torch.float16):
        h = case.own(whole).to(half).requires_grad_()
        expanded, summed = g.expand(h), g.aggregate(h)
        assert expanded.dtype == summed.dtype == half
        assert torch.equal(expanded, case.local(whole).to(half))
        expected = (case.matrix @ whole.to(case.dtype)).to(half)
        assert torch.allclose(summed, expected[g.ids], rtol=0.02, atol=0.02)
        assert g.dropout(h, 0.5, 1, 1).dtype == g.batch_norm(4)(h).dtype == half
        assert g.batch_norm(4).eval()(h).dtype == half
        loss = g.mean(summed.square().sum(1) + g.aggregate(expanded[: g.num_own]).sum(1))
        assert loss.dtype == half
        loss.backward()
        assert h.grad.dtype == half
    assert g.metrics(summed[:, :3]).keys() == {"train_accuracy", "val_accuracy"}
    h, before = case.own(whole).requires_grad_(), g.traffic
    g.expand(h).sum().backward()  # rows travel as they are, there and back
    sent = g.plan.nsend + g.num_halo if g.size > 1 else 0
    assert g.traffic.sent - before.sent == sent * 4 * 2
    assert torch.equal(h.grad[:, 0], readers(case))
    together = g.gather(case.own(whole))
    if g.rank == 0:
        assert torch.equal(together, whole.to(case.dtype))
    refused(TypeError, "torch.func", torch.func.grad(lambda h: g.expand(h).sum()), case.own(whole))


def check_mistakes(case):
    """Tensors that cannot be exchanged."""
    g, h = case.g, case.own(case.whole(2))
    refused(ValueError, "own rows", g.expand, torch.cat((h, h[:0], torch.zeros(1, 2))))
    refused(ValueError, "own rows", g.aggregate, torch.tensor(1.0))
    other = torch.float32 if case.dtype == torch.float64 else torch.float64
    refused(TypeError, "opened with dtype", g.expand, h.to(other))
    refused(TypeError, "the device of the graph, cpu", g.expand, h.to("meta"))
    refused(TypeError, "the device of the graph, cpu", g.expand, h.to_sparse())
    refused(TypeError, "state_dict", pickle.dumps, g)
    assert copy.deepcopy(g) is g


def check_agreement(opened, comm):
    """Ranks whose weights differ stop at the first call that compares them, all of them."""
    features = opened().x.shape[1]

    def model(seed=0):
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(features, 4), torch.nn.Linear(4, 2))

    def step(g, net, summed, lr=0.1):
        optimizer = torch.optim.SGD(net.parameters(), lr)
        optimizer.zero_grad()
        out = g.aggregate(net(g.x))
        loss = g.mean(out.square().sum(1) + out.sum(1) * (1 + g.ids % 5))
        loss.backward()
        if summed:
            g.all_reduce_gradients(net)
        optimizer.step()
        return out

    def stops(words, function, *arguments):
        if comm.size > 1:
            refused(UserError, words, function, *arguments)
        else:
            function(*arguments)

    # A sum of gradients that was forgotten is noticed at the second step, or by metrics.
    call, start = "call g.all_reduce_gradients(net) between", "start from the same ones"
    g, net = opened(), model()
    step(g, net, False)
    stops(call, step, g, net, False)
    g, net = opened(), model()
    for _ in range(9):
        step(g, net, True)
    step(g, net, False)
    with torch.no_grad():
        stops(start, g.metrics, torch.zeros(g.num_own, 3))
    # Other weights at the start, which a broadcast makes the same.
    g, net = opened(), model(seed=comm.rank)
    stops(call, step, g, net, True)
    g.broadcast(net)
    step(opened(), net, True)
    # A second model, whose gradients nobody sums.
    g, first, second = opened(), model(), model(1)
    for net, summed in ((first, True), (second, False), (second, False)):
        step(g, net, summed)
    stops(start, step, g, first, True)
    # Whoever wants weights of a rank's own has them; so do vertices and entries.
    g, net = opened(check_weights=False), model(seed=comm.rank)
    for _ in range(3):
        step(g, net, False)
    g, net = opened(), model()
    own = torch.nn.Parameter(torch.randn(g.num_own, 2))
    arcs = torch.nn.Parameter(torch.randn(len(g.edge_weight)))
    for _ in range(4):
        by_arcs = torch.zeros(g.num_own).index_add(0, g.edge_index[1], arcs)
        g.mean(g.aggregate(net(g.x) + own).sum(1) + by_arcs)
    # A rank whose loss has no weights, and ranks that use other ones of several.
    for _ in range(2):
        g.mean(net(g.x).sum(1) if comm.rank else torch.zeros(g.num_own))
    g, nets = opened(), [model(), torch.nn.Linear(features, 2)]
    for _ in range(2):
        g.mean(nets[comm.rank % 2](g.x).sum(1))
    # Rounding is none, and numbers that are not finite are nobody's.
    g, net = opened(), model()
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


def refused(kind, words, function, *arguments):
    with pytest.raises(kind, match=re.escape(words)):
        function(*arguments)


CHECKS = (
    check_matrix, check_expand, check_live, check_products, check_adjoints, check_fetch,
    check_collective, check_batch_norm, check_dropout, check_sums, check_metrics, check_bytes,
    check_calls_are_the_same, check_half_precision, check_mistakes,
)  # fmt: skip


def prepare(folder: Path, k: int) -> None:
    """Graphs with labels and two masks, and their partitions."""
    for kind in ("directed", "symmetric"):
        random = np.random.default_rng(5)
        labels = random.integers(-1, 3, N).astype(np.int32)
        masks = {name: random.random(N) < 0.5 for name in ("train", "val")}
        graph = dataclasses.replace(random_graph(kind), labels=labels, masks=masks)
        path = store(folder / f"{kind}-{k}.graph", graph)
        for name, parts in assignments(k).items() if k > 1 else ():
            store_parts(path, name, parts, k)
            for called, exchange in OTHER_NAMES.get(name, {}).items():
                one = read_partition(path, name)
                options = {"exchange": exchange}
                write_partition(path, dataclasses.replace(one, name=called, options=options))


# Other names of the same parts, as made for an exchange: alone, and in a pair.
OTHER_NAMES = {
    "random": {"lone": "mixed", "pair-rows": "rows"}, "uneven": {"pair-mixed": "mixed"},
}  # fmt: skip


def check_pair(comm, path):
    """Whole rows are sent: of a pair the one for rows is taken, and no other without a word."""
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
        with pytest.raises(UserError, match=words) as found:
            gcnmpi.torch.open(path, **options)
        assert found.value.agreed


def main(comm) -> int:
    folder, done = Path(sys.argv[1]), 0
    mpi.from_root(comm, lambda: prepare(folder, comm.size))
    warnings.simplefilter("ignore")  # of partitions for another direction, and of few cores
    directed, several = folder / f"directed-{comm.size}.graph", comm.size > 1
    if several:
        check_pair(comm, directed)
    of_all = {"direction": "out", "normalize": "row", "self_loops": False, "dtype": torch.float32}
    for kind, name, options in (
        ("directed", "random", {}),
        ("directed", "uneven", of_all),
        ("directed", "empty", {"normalize": "none", "exchange": "mixed"}),
        ("symmetric", "empty", of_all),
        ("symmetric", "uneven", {"normalize": "none", "exchange": "mixed"}),
    ):
        path = folder / f"{kind}-{comm.size}.graph"
        case = Case(comm, path, name if several else None, **options)
        for check in CHECKS:
            check(case)
        check_rows(case, folder)
        done += 1

    def opened(**options):
        return gcnmpi.torch.open(directed, "random" if several else None, **options)

    for check in (check_agreement, check_models, check_compiled):
        check(opened, comm)
        done += 1
    if comm.rank == 0:
        print(f"{done} cases agree")
    return 0


if __name__ == "__main__":
    run(main)
