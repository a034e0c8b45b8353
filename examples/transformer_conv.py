"""TransformerConv with an exact batch norm, on a graph that is spread over ranks.

mpirun -n 4 python examples/transformer_conv.py cora.graph --partition hp-4
"""

import torch
from torch_geometric.nn import TransformerConv
from training import train

OPTIONS = {"self_loops": False}  # the layer has a weight of its own for the vertex itself


class Net(torch.nn.Module):
    def __init__(self, g, hidden=8, heads=4):
        super().__init__()
        self.first = TransformerConv(g.num_features, hidden, heads, beta=True)
        self.norm = g.batch_norm(hidden * heads)
        self.last = TransformerConv(hidden * heads, g.num_classes, concat=False)

    def forward(self, g, epoch=0):
        h = self.first((g.expand(g.x), g.x), g.edge_index)
        h = self.norm(h).relu()
        h = g.dropout(h, 0.5, epoch, layer=1, training=self.training)
        return self.last((g.expand(h), h), g.edge_index)


if __name__ == "__main__":
    train(Net, OPTIONS, __doc__)
