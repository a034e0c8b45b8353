"""GATv2 on a graph that is spread over ranks: a module of PyTorch Geometric, unchanged layers.

    mpirun -n 4 python examples/gatv2.py cora.graph --partition hp-4 --save gatv2.pt

The lines that one process would not have are marked with "# ranks".
"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.nn import GATv2Conv

import gcnmpi.torch

OPTIONS = {"self_loops": True}  # in edge_index, and so not to be added by the layers


class Net(torch.nn.Module):
    def __init__(self, g, hidden=8, heads=8):
        super().__init__()
        self.first = GATv2Conv(g.num_features, hidden, heads, add_self_loops=False)
        self.last = GATv2Conv(hidden * heads, g.num_classes, add_self_loops=False)

    def forward(self, g, epoch=0):
        h = g.dropout(g.x, 0.6, epoch, layer=0, training=self.training)  # ranks
        h = F.elu(self.first((g.expand(h), h), g.edge_index))  # ranks
        h = g.dropout(h, 0.6, epoch, layer=1, training=self.training)  # ranks
        return self.last((g.expand(h), h), g.edge_index)  # ranks


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graph")
    parser.add_argument("--partition")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--save", metavar="FILE.pt", help="write the weights")
    args = parser.parse_args()

    g = gcnmpi.torch.open(args.graph, args.partition, feature_norm="row", **OPTIONS)  # ranks
    torch.manual_seed(0)  # the same weights on all ranks
    net = Net(g)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005, weight_decay=5e-4)
    for epoch in range(1, args.epochs + 1):
        net.train()
        optimizer.zero_grad()
        out = net(g, epoch)
        mask = g.train_mask
        loss = g.mean(F.cross_entropy(out[mask], g.y[mask], reduction="none"))  # ranks
        loss.backward()
        g.all_reduce_gradients(net)  # ranks
        optimizer.step()
        if epoch % 20 == 0 or epoch == args.epochs:
            net.eval()
            with torch.no_grad():
                found = g.metrics(net(g))  # ranks
            if g.rank == 0:  # ranks
                print(f"epoch {epoch}: loss {loss:.4f}, {found}")
    if args.save and g.rank == 0:  # ranks
        torch.save(net.state_dict(), args.save)


if __name__ == "__main__":
    main()
