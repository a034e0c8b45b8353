"""A GCN on a graph that is spread over ranks: PyTorch Geometric's layer, and the native product.

mpirun -n 4 python examples/gcn.py cora.graph --partition hp-4
"""

import torch
import torch_geometric.nn
from training import train

OPTIONS = {"normalize": "sym", "self_loops": True}  # M is what gcn_norm makes


class GCNConv(torch_geometric.nn.GCNConv):
    """PyTorch Geometric's layer with its names of weights; M·h takes the place of its messages."""

    def forward(self, h, g):
        return g.aggregate(self.lin(h)) + self.bias


class Net(torch.nn.Module):
    def __init__(self, g, hidden=16):
        super().__init__()
        self.first = GCNConv(g.num_features, hidden)
        self.last = GCNConv(hidden, g.num_classes)

    def forward(self, g, epoch=0):
        h = self.first(g.x, g).relu()
        h = g.dropout(h, 0.5, epoch, layer=1, training=self.training)
        return self.last(h, g)


if __name__ == "__main__":
    train(Net, OPTIONS, __doc__)
