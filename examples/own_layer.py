"""A layer of one's own, in PyTorch alone, on a graph that is spread over ranks.

mpirun -n 4 python examples/own_layer.py cora.graph --partition hp-4
"""

import torch
from training import train

OPTIONS = {"self_loops": False}


class GatedLayer(torch.nn.Module):
    """Sums σ(A·h_i + B·h_j) ∘ V·h_j over the neighbours j of i, and adds S·h_i.

    Bresson and Laurent 2017. B·h and V·h are what other ranks need, so they are sent, once and side
    by side, and not h.
    """

    def __init__(self, d_in, d_out):
        super().__init__()
        self.of_target = torch.nn.Linear(d_in, 2 * d_out)
        self.of_source = torch.nn.Linear(d_in, 2 * d_out, bias=False)

    def forward(self, g, h):
        source, target = g.edge_index
        gate, out = self.of_target(h).chunk(2, dim=1)
        keys, values = g.expand(self.of_source(h)).chunk(2, dim=1)
        messages = torch.sigmoid(gate[target] + keys[source]) * values[source]
        return out.index_add(0, target, messages)


class Net(torch.nn.Module):
    def __init__(self, g, hidden=16):
        super().__init__()
        self.first = GatedLayer(g.num_features, hidden)
        self.last = GatedLayer(hidden, g.num_classes)

    def forward(self, g, epoch=0):
        h = self.first(g, g.x).relu()
        h = g.dropout(h, 0.5, epoch, layer=1, training=self.training)
        return self.last(g, h)


if __name__ == "__main__":
    train(Net, OPTIONS, __doc__)
