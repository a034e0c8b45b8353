"""Under mpirun on 4 ranks: losses of examples/weather.py are the same for all groups and ranks.

Also the order of samples, own rows of steps, dropout and a run of several groups. Usage:
torch_samples.py EXAMPLES FOLDER
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import torch

import gcnmpi.torch
from gcnmpi.mpi import comm as mpi
from gcnmpi.mpi.process import run
from gcnmpi.run.record import read_run
from partition.errors import UserError
from partition.graph.hashing import key, permuted
from partition.graph.samples import read_samples, write_samples

sys.path.append(str(Path(__file__).parents[2]))
from refusals import refuses
from stored_graphs import with_uneven_parts

GROUPED = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 3))  # groups, ranks of each
ROWS, EPOCHS, BATCH = 5, 2, 8
RANGES = {"train": [(0, 12), (12, 30)], "val": [(30, 39)], "test": [(39, 40)]}


def prepare(path, states):
    targets = np.random.default_rng(0).standard_normal((*states.shape[:2], 1))
    write_samples(path, "weather", states, None, RANGES, made="drawn", force=True)
    write_samples(path, "targets", states, targets, RANGES, made="drawn")
    with_uneven_parts(path, (2, 3), mixed=False)


def check_steps(g, path):
    """Own rows of steps, and each sample of an epoch in one group, in the order of training."""
    found, samples = read_samples(path, "weather"), g.samples("weather", history=2)
    plain = g.samples("targets", standardize=False)
    of_steps = torch.tensor(found.states[[3, 5]][:, g.ids]).movedim(0, 1).double()
    torch.testing.assert_close(plain.states([3, 5]), of_steps, equal_nan=True)
    mean, deviation = samples.scales()
    scaled = samples.states(7) * deviation + mean
    torch.testing.assert_close(scaled, plain.states(7), equal_nan=True)
    targets = read_samples(path, "targets").targets
    torch.testing.assert_close(plain.targets(9), torch.tensor(targets[9][g.ids]))
    assert plain.states([]).shape == (g.num_own, 0, 2)
    anchors = np.array([*range(1, 11), *range(13, 29)])
    assert samples.anchors("train") == anchors.tolist()
    order = anchors[permuted(np.arange(26), 26, key(0, 0x53414D50, 2))]
    mine = list(samples.mine("train", BATCH, 2))
    of_group = dict(g._ranks.every.comm.allgather((g.group, mine)))
    steps = [[t for i in sorted(of_group) for t in of_group[i][k]] for k in range(len(mine))]
    assert steps == [order[k * BATCH :][:BATCH].tolist() for k in range(26 // BATCH)]
    held = g._ranks.every.comm.allgather((g.group, list(samples.mine("val", 4))))
    assert sorted(t for k in dict(held).values() for some in k for t in some) == [*range(31, 38)]


def curve(example, g):
    """Losses to train and to validate on, and a loss with dropout by place in the step."""
    found = [number for both in example.train(g, EPOCHS, BATCH) for number in both]
    ones, here = torch.ones(g.num_own, 3), BATCH // g.groups
    dropped = [g.dropout(ones, 0.5, 1, 1, sample=g.group * here + i) for i in range(here)]
    factor = torch.arange(3 * g.n, dtype=g.dtype).view(-1, 3)[g.ids]
    places = torch.arange(g.group * here, (g.group + 1) * here, dtype=g.dtype)
    weighed = torch.stack(
        [(d * factor).mean(1) * (1 + p) for d, p in zip(dropped, places, strict=True)]
    )
    return [*found, float(g.mean(weighed.flatten()))]


def check_run(comm, g, folder):
    """A run of several groups writes one record, and goes on."""
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    samples = g.samples("targets")
    for epochs in (2, 3):
        with g.run(folder / "run", net, optimizer, progress=False) as of:
            for epoch in of.epochs(epochs):
                total = torch.zeros(())
                for mine in samples.mine("train", 4, epoch):
                    optimizer.zero_grad()
                    out = net(torch.nan_to_num(samples.states(mine)))
                    loss = g.mean((out - samples.targets(mine)).square().flatten())
                    loss.backward()
                    g.all_reduce_gradients(net)
                    optimizer.step()
                    total = total + loss.detach()
                of.log(epoch, loss=total)
    record = mpi.from_root(comm, lambda: read_run(folder / "run"))
    assert (record.start["ranks"], record.start["groups"], len(record.epochs)) == (4, 2, 3)
    assert g.check(net) == []


def mistakes(path):
    g = gcnmpi.torch.open(path, groups=4, dtype=torch.float64)
    samples = g.samples("weather")
    says = {
        "groups=3 does not divide 4 ranks": lambda: gcnmpi.torch.open(path, groups=3),
        "unknown set of samples": lambda: g.samples("sea"),
        "cannot share the 6 samples": lambda: next(samples.mine("train", 6, 1)),
        "fewer than a step": lambda: next(samples.mine("train", 80, 1)),
        "have no targets": lambda: samples.targets(1),
    }
    for text, call in says.items():
        assert getattr(refuses(text, call, error=(UserError, ValueError)), "agreed", True)


def main(comm) -> int:
    sys.path.insert(0, sys.argv[1])
    folder, example = Path(sys.argv[2]), __import__("weather")
    path = folder / "weather.graph"
    warnings.simplefilter("ignore")  # of few cores
    torch.set_default_dtype(torch.float64)
    states = example.make(path, ROWS, steps=40)
    mpi.from_root(comm, lambda: prepare(path, states))
    curves = []
    for groups, size in GROUPED:
        here = comm.rank < groups * size
        few = comm.Split(not here, comm.rank)
        if not here:
            continue
        parts = f"uneven-{size}" if size > 1 else None
        options = {"dtype": torch.float64, "groups": groups, "comm": few, "threads": 1}
        g = gcnmpi.torch.open(path, parts, **options, **example.OPTIONS)
        assert (g.groups, g.size) == (groups, groups * size)
        check_steps(g, path)
        curves.append(curve(example, g))
        if (groups, size) == (2, 2):
            check_run(comm, g, folder)
    mistakes(path)
    if comm.rank == 0:
        worst = np.abs(np.array(curves[1:]) - curves[0]).max()
        assert worst < 1e-10 * np.abs(curves[0]).max(), curves
    return 0


if __name__ == "__main__":
    run(main)
