"""Energy and forces of atoms that are spread over ranks: a gradient that is trained.

    python examples/forces.py atoms.graph --make 6
    gcn-partition add atoms.graph --model gp -k 4
    mpirun -n 4 python examples/forces.py atoms.graph --partition gp-4

The first line makes a crystal of 6·6·6 shaken atoms, with Morse's potential between near ones. The
energy is a sum over atoms, a force is the gradient of it by a position, and both are learned: so
the loss is differentiated through a gradient, and rows travel four times in each layer. The lines
that one process would not have are marked with "# ranks".
"""

import argparse

import numpy as np
import torch

import gcnmpi.torch

OPTIONS = {"normalize": "none", "self_loops": False}  # pairs of near atoms
REACH = 1.7  # of atoms, where neighbours in a crystal are about 1 apart


class Layer(torch.nn.Module):
    """Schütt et al. 2018: rows of neighbours times a filter of the distance."""

    def __init__(self, width, functions):
        super().__init__()
        linear, silu = torch.nn.Linear, torch.nn.SiLU()
        self.filter = torch.nn.Sequential(linear(functions, width), silu, linear(width, width))
        self.first = linear(width, width, bias=False)
        self.last = torch.nn.Sequential(linear(width, width), silu, linear(width, width))

    def forward(self, g, h, near):
        source, target = g.edge_index
        messages = g.expand(self.first(h))[source] * self.filter(near)  # ranks
        return h + self.last(torch.zeros_like(h).index_add(0, target, messages * near[:, :1]))


class Net(torch.nn.Module):
    """The energy of each own atom at these positions (atoms, 3)."""

    def __init__(self, g, width=16, functions=12, layers=2):
        super().__init__()
        self.atom = torch.nn.Parameter(torch.randn(1, width))
        self.layers = torch.nn.ModuleList(Layer(width, functions) for _ in range(layers))
        self.last = torch.nn.Sequential(
            torch.nn.Linear(width, width), torch.nn.SiLU(), torch.nn.Linear(width, 1)
        )
        self.register_buffer("middles", torch.linspace(0.5, REACH, functions - 1))

    def forward(self, g, positions):
        source, target = g.edge_index
        ways = g.expand(positions)[source] - positions[target]  # ranks
        lengths = ways.square().sum(1, keepdim=True).sqrt()
        cut = (1 + torch.cos(np.pi / REACH * lengths.clamp(max=REACH))) / 2
        near = torch.cat([cut, cut * torch.exp(-20 * (lengths - self.middles) ** 2)], 1)
        h = self.atom.expand(len(positions), -1)
        for layer in self.layers:
            h = layer(g, h, near)
        return self.last(h)[:, 0]


def errors(g, net):
    """Mean square errors of the energy of all atoms, per atom, and of the forces on them."""
    positions = g.x.clone().requires_grad_()
    energies = net(g, positions)
    forces = -torch.autograd.grad(energies.sum(), positions, create_graph=True)[0]
    energy = g.mean(energies - g.y[:, 0])  # ranks
    return energy**2, g.mean((forces - g.y[:, 1:]).square().mean(1))  # ranks


def loss_of(g, net):
    return sum(errors(g, net))


def make(path, side):
    """A graph folder of atoms: positions, and for each atom its energy and the force on it."""
    random = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(*[np.arange(side)] * 3), axis=-1).reshape(-1, 3)
    positions = (grid + random.uniform(-0.12, 0.12, grid.shape)).astype(np.float32)
    ways = positions[:, None].astype(np.float64) - positions
    lengths = np.linalg.norm(ways, axis=2)
    ends = np.nonzero((lengths > 0) & (lengths < REACH))
    ways, lengths = ways[ends], lengths[ends]
    away = np.exp(2 * (1 - lengths))
    energies = np.bincount(ends[0], (away**2 - 2 * away) / 2, len(grid))
    pushes = (4 * away * (away - 1) / lengths)[:, None] * ways
    forces = np.stack([np.bincount(ends[0], push, len(grid)) for push in pushes.T], axis=1)
    targets = np.column_stack([energies, forces])
    gcnmpi.graph.from_arrays(np.stack(ends), x=positions, targets=targets, folder=path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("graph")
    parser.add_argument("--make", type=int, metavar="N", help="make the graph, of N·N·N atoms")
    parser.add_argument("--partition")
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    if args.make:
        make(args.graph, args.make)
        return

    torch.set_default_dtype(torch.float64)
    g = gcnmpi.torch.open(args.graph, args.partition, dtype=torch.float64, **OPTIONS)  # ranks
    torch.manual_seed(0)  # the same weights on all ranks
    net = Net(g)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005)
    for epoch in range(1, args.epochs + 1):
        optimizer.zero_grad()
        loss_of(g, net).backward()
        g.all_reduce_gradients(net)  # ranks
        optimizer.step()
        if epoch % 20 == 0 or epoch == args.epochs:
            energy, force = (float(error.detach()) ** 0.5 for error in errors(g, net))
            if g.rank == 0:  # ranks
                print(f"epoch {epoch}: error of energy {energy:.6f} an atom, of forces {force:.6f}")


if __name__ == "__main__":
    main()
