"""Under mpirun: gcnmpi.torch on devices against itself on the host, without a device.

tests/fake has to be on PYTHONPATH. Losses, gradients and results of the functions of a graph agree
to 1e-10; how often an epoch waits is told. Usage: torch_devices.py FOLDER TRANSPORT [DEVICE]
"""

import itertools
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import torch_gpu
from cupy.queue import counts
from torch_cases import prepare, refused

import gcnmpi.torch
from gcnmpi.mpi import comm as mpi
from gcnmpi.mpi.process import run
from partition.errors import UserError

TOLERANCE = 1e-10


class Gcn(torch.nn.Module):
    """The product by the kernel, a batch norm and dropout."""

    def __init__(self, g):
        super().__init__()
        self.first = torch.nn.Linear(3, 8, bias=False, dtype=g.dtype)
        self.norm = g.batch_norm(8)
        self.second = torch.nn.Linear(8, 3, dtype=g.dtype)

    def forward(self, g, epoch):
        h = self.norm(g.aggregate(self.first(g.x))).relu()
        return g.aggregate(self.second(g.dropout(h, 0.5, epoch, layer=1)))


class Plain(torch.nn.Module):
    """The same without the norm, which has to know how many rows there are."""

    def __init__(self, g):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Linear(n, m, dtype=g.dtype) for n, m in ((3, 8), (8, 3))
        )

    def forward(self, g, epoch):
        h = g.aggregate(self.layers[0](g.x)).relu()
        return g.aggregate(self.layers[1](g.dropout(h, 0.5, epoch, layer=1)))


class Attention(torch.nn.Module):
    """Attention over edges in plain PyTorch, rows of any vertices, and functions of all rows."""

    def __init__(self, g):
        super().__init__()
        self.lin = torch.nn.Linear(3, 4, dtype=g.dtype)
        self.score = torch.nn.Parameter(torch.linspace(-1, 1, 4, dtype=g.dtype))
        self.out = torch.nn.Linear(4, 3, dtype=g.dtype)
        self.norm = g.norm("graph", 4)

    def forward(self, g, epoch):
        h = self.lin(g.x)
        whole, (source, target) = g.expand(h), g.edge_index
        power = ((whole[source] + h[target]).tanh() @ self.score).exp() * g.edge_weight.abs()
        sums = h.new_zeros(g.num_own).index_add(0, target, power)
        messages = whole[source] * (power / sums[target].clamp(min=1e-9))[:, None]
        h = self.norm(torch.zeros_like(h).index_add(0, target, messages))
        others = g.fetch(h, (g.ids + 7) % g.n)
        pooled = g.collective.mean(h) + g.collective.max(h)
        return self.out(h + others * g.collective.softmax(h[:, :1]) + pooled)


def trained(net, g, epochs=3):
    """Losses and gradients of each epoch, on the host, and what an evaluation finds."""
    optimizer, found = torch.optim.SGD(net.parameters(), lr=0.1), []
    rows = g.train_mask.nonzero()[:, 0]
    for epoch in range(1, epochs + 1):
        optimizer.zero_grad()
        out = net(g, epoch)
        losses = F.cross_entropy(out.index_select(0, rows), g.y[rows], reduction="none")
        loss = g.mean(losses)
        loss.backward()
        g.all_reduce_gradients(net)
        optimizer.step()
        found += [loss.detach().cpu(), *(p.grad.cpu() for p in net.parameters())]
    g.check(net)
    return found, g.metrics(out), g.gather(out)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE)


def compare(host, device):
    """Networks in training, and what a graph has."""
    for make in (Gcn, Plain, Attention):
        results = []
        for g in (host, device):
            torch.manual_seed(2)
            net = make(g).to(g.device)
            assert all(p.device == g.device for p in net.parameters())
            results.append(trained(net, g))
        (expected, metrics, rows), (found, metrics_found, rows_found) = results
        for one, other in zip(found, expected, strict=True):
            close(one, other)
        assert metrics_found == metrics
        if host.rank == 0:
            close(rows_found, rows)
    names = "x", "y", "train_mask", "ids", "halo_ids", "edge_index", "edge_weight", "edge_ids"
    for name in names:
        tensor = getattr(device, name)
        assert tensor.device == device.device, name
        assert torch.equal(tensor.cpu(), getattr(host, name)), name


def mistakes(host, device):
    """A tensor of the host, and a model that was left there."""
    refused(TypeError, "on the device of the graph, gpu:0", device.aggregate, host.x)
    refused(UserError, "on the device of the graph, gpu:0", device.broadcast, torch.nn.Linear(3, 3))


def more(host, device, folder):
    """Second derivatives, half rows, live results, mini-batches, files."""
    results = []
    for g in (host, device):
        found = []
        h = g.x.detach().clone().requires_grad_()
        y = g.aggregate(g.expand(h)[: g.num_own].square())
        (first,) = torch.autograd.grad(g.mean(y.square().sum(1)), h, create_graph=True)
        (second,) = torch.autograd.grad(g.mean(first.square().sum(1)), h)
        found += [y, first, second, g.expand(h.to(torch.bfloat16)).double()]
        a, b = g.expand(h.detach()), g.expand(2 * h.detach())
        kept = a[-1:].clone(), a[-1:]
        del a
        g.expand(3 * h.detach())
        found += [b, *kept]
        g.write(y, folder / "y.npy")
        found += [torch.from_numpy(np.load(folder / "y.npy"))]
        lin = torch.nn.Linear(3, 3, dtype=g.dtype).to(g.device)
        with torch.no_grad():
            for place, p in enumerate(lin.parameters()):
                p.fill_(0.1 + g.rank + place)
        g.broadcast(lin)
        found += list(lin.parameters())
        for batch in g.batches("neighbor", 16, [3, -1], epoch=1):
            h = batch.x
            for k, block in enumerate(batch.blocks):
                found += [block.edge_index, block.edge_weight, block.expand(h)]
                h = block.dropout(block.aggregate(h) @ lin.weight, 0.5, layer=k)
            found += [h, batch.mean(h[batch.seeds].sum(1))]
        results.append([one.detach().cpu() for one in found])
    for one, other in zip(*results, strict=True):
        close(one, other)


def recorded(g, out, epochs):
    """The losses of a run with checkpoints, which goes on if there is one."""
    torch.manual_seed(2)
    net, found = Gcn(g).to(g.device), []
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    with g.run(out, net, optimizer, progress=False) as going:
        for epoch in going.epochs(epochs):
            optimizer.zero_grad()
            rows = net(g, epoch)[g.train_mask]
            loss = g.mean(F.cross_entropy(rows, g.y[g.train_mask], reduction="none"))
            loss.backward()
            g.all_reduce_gradients(net)
            optimizer.step()
            going.log(epoch, loss=loss)
            found.append(loss.detach().cpu())
    return found


def whole_programs(host, device, folder, given):
    """Runs that go on, and what compares ranks with one process."""
    expected = recorded(host, folder / "host", 4)
    first, *rest = (recorded(device, folder / "device", epochs) for epochs in (2, 4))
    close([*first, *rest[0]], expected)
    assert gcnmpi.torch.verify(Attention, *given, device="gpu", epochs=1).ranks == host.size


def waits(g):
    """How often the host waits for the device, and copies go between them, in an epoch."""
    torch.manual_seed(2)
    net = Plain(g).to(g.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    rows = g.train_mask.nonzero()[:, 0]
    labels = g.y[rows]
    for epoch in range(1, 7):
        if epoch == 6:  # which compares no weights
            before = dict(counts)
        optimizer.zero_grad()
        out = net(g, epoch)
        loss = g.mean(F.cross_entropy(out.index_select(0, rows), labels, reduction="none"))
        loss.backward()
        g.all_reduce_gradients(net)
        optimizer.step()
    float(loss.detach())
    return {name: counts[name] - before[name] for name in counts}


def main(comm) -> int:
    folder, transport = Path(sys.argv[1]), sys.argv[2]
    mpi.from_root(comm, lambda: prepare(folder, comm.size))
    warnings.simplefilter("ignore")
    if sys.argv[3:]:  # one that is not there
        gcnmpi.torch.open(folder / f"directed-{comm.size}.graph", "random", device=sys.argv[3])
    for kind, name in itertools.product(("symmetric", "directed"), ("empty", "random")):
        given = folder / f"{kind}-{comm.size}.graph", name if comm.size > 1 else None
        host = gcnmpi.torch.open(*given, dtype=torch.float64)
        device = gcnmpi.torch.open(*given, dtype=torch.float64, device="gpu", transport=transport)
        assert device.device == torch_gpu.GPU
        assert device.x.device == torch_gpu.GPU
        compare(host, device)
        more(host, device, folder)
        mistakes(host, device)
    whole_programs(host, device, folder, given)
    counted = waits(device)
    if comm.rank == 0:
        print(json.dumps(counted))
    return 0


if __name__ == "__main__":
    run(main)
