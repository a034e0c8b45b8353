"""A MeshGraphNet of one's own, in PyTorch alone, on a mesh that is spread over ranks.

    mpirun -n 4 python examples/meshgraphnet.py plate.graph --partition gp-vol-4

plate.graph is that of docs/meshes.md; any graph with features of arcs and numbers to predict will
do. The lines that one process would not have are marked with "# ranks".
"""

import argparse

import torch
import torch.nn.functional as F

import gcnmpi.torch

OPTIONS = {"normalize": "none", "self_loops": False}  # the arcs of the mesh, and no others


def perceptron(d_in, width, d_out):
    layers = [torch.nn.Linear(d_in, width), torch.nn.ReLU(), torch.nn.Linear(width, d_out)]
    return torch.nn.Sequential(*layers)


class Block(torch.nn.Module):
    """Sanchez-Gonzalez et al. 2020, Pfaff et al. 2021: states of arcs, then of vertices."""

    def __init__(self, width):
        super().__init__()
        self.of_arcs = perceptron(3 * width, width, width)
        self.of_vertices = perceptron(2 * width, width, width)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))

    def forward(self, g, h, e):
        source, target = g.edge_index
        ends = g.expand(h)[source], h[target]  # ranks
        e = e + self.norms[0](self.of_arcs(torch.cat([e, *ends], 1)))
        sums = torch.zeros_like(h).index_add(0, target, e)
        return h + self.norms[1](self.of_vertices(torch.cat([h, sums], 1))), e


class Net(torch.nn.Module):
    def __init__(self, g, width=16, blocks=4):
        super().__init__()
        self.vertices = perceptron(g.num_features, width, width)
        self.arcs = perceptron(g.edge_attr.shape[1], width, width)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(blocks))
        self.last = perceptron(width, width, g.num_classes)

    def forward(self, g):
        h, e = self.vertices(g.x), self.arcs(g.edge_attr)
        for block in self.blocks:
            h, e = block(g, h, e)
        return self.last(h)


def loss_of(g, net):
    out, mask = net(g), g.train_mask
    return g.mean(F.mse_loss(out[mask], g.y[mask], reduction="none").mean(1))  # ranks


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graph")
    parser.add_argument("--partition")
    parser.add_argument("--epochs", type=int, default=100)
    args = parser.parse_args()

    g = gcnmpi.torch.open(args.graph, args.partition, **OPTIONS)  # ranks
    torch.manual_seed(0)  # the same weights on all ranks
    net = Net(g)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005)
    for epoch in range(1, args.epochs + 1):
        optimizer.zero_grad()
        loss = loss_of(g, net)
        loss.backward()
        g.all_reduce_gradients(net)  # ranks
        optimizer.step()
        if epoch % 20 == 0 or epoch == args.epochs:
            with torch.no_grad():
                found = g.metrics(net(g), ["rmse"])  # ranks
            if g.rank == 0:  # ranks
                print(f"epoch {epoch}: loss {loss:.8f}, {found}")


if __name__ == "__main__":
    main()
