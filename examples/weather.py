"""Weather on a grid, forecast over a coarser mesh: samples that groups of ranks share.

    python examples/weather.py weather.graph --make 12
    gcn-partition add weather.graph --model gp -k 2
    mpirun -n 4 python examples/weather.py weather.graph --partition gp-2 --groups 2

The first line makes a globe of 12·24 points with samples of a wind that carries two columns along.
Encoder, processor and decoder are as in Lam et al. 2023 (GraphCast): arcs lead from the points of
the grid to a mesh, within the mesh, near and far, and back to the grid. All samples of a group lie
beside each other, so one message serves them. The lines that one process would not have are marked
with "# ranks". Making the graph takes PyTorch Geometric.
"""

import argparse

import numpy as np
import torch

import gcnmpi.torch

OPTIONS = {"normalize": "none", "self_loops": False}
ENCODE, PROCESS, DECODE = (
    ("grid", "above", "mesh"), ("mesh", "beside", "mesh"), ("mesh", "below", "grid"),
)  # fmt: skip
HISTORY = 2


class Layer(torch.nn.Module):
    """The mean of messages along the arcs of a relation, added to the rows of its targets."""

    def __init__(self, width):
        super().__init__()
        linear, silu = torch.nn.Linear, torch.nn.SiLU()
        self.message = torch.nn.Sequential(linear(2 * width, width), silu, linear(width, width))
        self.update = torch.nn.Sequential(linear(2 * width, width), silu, linear(width, width))

    def forward(self, g, relation, h):
        """Rows (vertices, samples, width) of each type."""
        kind, _, to = relation
        source, target = g[relation].edge_index
        whole, into = g.expand({kind: h[kind]})[kind], h[to]  # ranks
        messages = self.message(torch.cat([whole[source], into[target]], 2))
        sums = torch.zeros_like(into).index_add(0, target, messages)
        degree = torch.zeros(len(into), 1, 1).index_add(0, target, torch.ones(len(target), 1, 1))
        change = self.update(torch.cat([into, sums / degree.clamp(min=1)], 2))
        return {**h, to: into + change}


class Net(torch.nn.Module):
    """The change of the state of each point of the grid."""

    def __init__(self, g, columns, width=16, steps=2):
        super().__init__()
        inputs = HISTORY * columns + g["grid"].x.shape[1]
        self.grid = torch.nn.Linear(inputs, width, bias=False)  # which the norm would take off
        self.mesh = torch.nn.Linear(g["mesh"].x.shape[1], width)
        self.norm = g.batch_norm(width)  # ranks
        self.layers = torch.nn.ModuleList(Layer(width) for _ in range(steps + 2))
        self.last = torch.nn.Linear(width, columns)

    def forward(self, g, states):
        """``states`` (own points, samples, HISTORY · columns)."""
        count = states.shape[1]
        where = {name: g[name].x[:, None].expand(-1, count, -1) for name in ("grid", "mesh")}
        points = self.grid(torch.cat([states, where["grid"]], 2))
        points = self.norm(points.flatten(0, 1)).view(points.shape)
        h = {"grid": points, "mesh": self.mesh(where["mesh"])}
        relations = [ENCODE, *[PROCESS] * (len(self.layers) - 2), DECODE]
        for layer, relation in zip(self.layers, relations, strict=True):
            h = layer(g, relation, h)
        return self.last(h["grid"])


def of_grid(g, samples, steps):
    """States (own points, samples, columns) of the grid; unknown ones are the mean."""
    return torch.nan_to_num(samples.states(steps)[g["grid"].rows])


def loss_of(g, net, samples, mine):
    """The mean squared error of the samples of a step, of which these are the group's own."""
    total, count = torch.zeros(()), 0
    if mine:  # in the last step of an evaluation, a group may have none
        before = [of_grid(g, samples, [t - i for t in mine]) for i in reversed(range(HISTORY))]
        after = of_grid(g, samples, [t + 1 for t in mine])
        errors = before[-1] + net(g, torch.cat(before, 2)) - after
        total, count = errors.square().sum(), errors.numel()
    return g.mean(total, count)  # ranks


def train(g, epochs, batch, name="weather"):
    """The loss of each epoch on samples to train on, and that of the ones to validate on."""
    samples = g.samples(name, history=HISTORY)
    torch.manual_seed(0)  # the same weights on all ranks
    net = Net(g, samples.columns)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005)
    for epoch in range(1, epochs + 1):
        losses = []
        for mine in samples.mine("train", batch, epoch):
            optimizer.zero_grad()
            loss = loss_of(g, net, samples, mine)
            loss.backward()
            g.all_reduce_gradients(net)  # ranks
            optimizer.step()
            losses.append(float(loss.detach()))
        net.eval()
        with torch.no_grad():
            held = [float(loss_of(g, net, samples, mine)) for mine in samples.mine("val", batch)]
        net.train()
        yield sum(losses) / len(losses), sum(held) / len(held)


def make(path, rows, steps=120):
    """A globe as a graph of two types, with samples of it, whose array is returned."""
    from torch_geometric.data import HeteroData

    def points(rows):
        at = np.stack(np.meshgrid(np.arange(rows), np.arange(2 * rows), indexing="ij"), -1)
        north, east = (np.pi * (at.reshape(-1, 2) + 0.5) / rows).T
        return np.stack([np.sin(north) * np.cos(east), np.sin(north) * np.sin(east), np.cos(north)])

    grid, mesh = points(rows).T, points(max(2, rows // 3)).T

    def near(a, b, count):
        """Arcs from so many of the points b nearest to each of a: (2, arcs)."""
        found = np.argsort(-(a @ b.T), axis=1, kind="stable")[:, :count]
        return np.stack([found.ravel(), np.repeat(np.arange(len(a)), count)])

    far = np.random.default_rng(0).permuted(np.tile(np.arange(len(mesh)), (2, 1)), axis=1)
    beside = np.unique(np.hstack([near(mesh, mesh, 7), far]), axis=1)
    arcs = near(grid, mesh, 1)[::-1], beside[:, beside[0] != beside[1]], near(grid, mesh, 3)
    data = HeteroData()
    for name, where in (("grid", grid), ("mesh", mesh)):
        data[name].x = torch.tensor(where, dtype=torch.float32)
    for relation, ends in zip((ENCODE, PROCESS, DECODE), arcs, strict=True):
        data[relation].edge_index = torch.tensor(ends.copy())
    graph = gcnmpi.graph.from_object(data, folder=path)

    random, state, found = np.random.default_rng(1), np.zeros((rows, 2 * rows, 2)), []
    for _ in range(steps):
        carried = np.stack([np.roll(state[..., 0], 1, 1), np.roll(state[..., 1], -1, 1)], -1)
        noise = random.normal(size=state.shape)
        for axis in [0, 1] * rows:  # which makes it smooth
            noise = (np.roll(noise, 1, axis) + noise + np.roll(noise, -1, axis)) / 3
        state = 0.85 * carried + 0.1 * carried[..., ::-1] + noise
        found.append(state.reshape(-1, 2))
    states = np.full((steps, graph.n, 2), np.nan, np.float32)
    states[:, : len(grid)] = found  # types follow each other; nothing is known of the mesh
    graph.add_samples(states, name="weather")
    return states


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("graph")
    parser.add_argument("--make", type=int, metavar="N", help="make the graph, of N·2N points")
    parser.add_argument("--partition")
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8, help="samples of a step")
    args = parser.parse_args()
    if args.make:
        make(args.graph, args.make)
        return

    g = gcnmpi.torch.open(args.graph, args.partition, groups=args.groups, **OPTIONS)  # ranks
    for epoch, (loss, held) in enumerate(train(g, args.epochs, args.batch), 1):
        if g.rank == 0 and (epoch % 5 == 0 or epoch == args.epochs):  # ranks
            print(f"epoch {epoch}: loss {loss:.8f}, val {held:.8f}")


if __name__ == "__main__":
    main()
