"""Link prediction with a decoder of one's own, in PyTorch, on any number of ranks.

    gcn-partition pairs G.graph --split 0.85,0.05,0.10
    mpirun -n 2 python examples/links.py G.graph --partition hp-2

The network and the loop are as for one process; lines that end with "ranks" are what is changed.
The decoder weighs how far the rows of both vertices are apart, and their product.
"""

import argparse

import torch
import torch.nn.functional as F

import gcnmpi.torch


class Net(torch.nn.Module):
    """Two graph convolutions, and a score of pairs."""

    def __init__(self, g, hidden=64):
        super().__init__()
        self.first = torch.nn.Linear(g.num_features, hidden)
        self.last = torch.nn.Linear(hidden, hidden)
        self.score = torch.nn.Linear(2 * hidden, 1)

    def forward(self, g, epoch=0):
        h = self.first(g.aggregate(g.x)).relu()  # ranks
        h = g.dropout(h, 0.5, epoch, layer=1, training=self.training)  # ranks
        return self.last(g.aggregate(h))  # ranks

    def scores(self, a, b):
        """One number a pair, of the rows of both vertices."""
        return self.score(torch.cat((a * b, (a - b).abs()), dim=1))[:, 0]


OPTIONS = {"pairs": "links"}


def loss_of(g, net, batch=None, epoch=1):
    """The loss of a batch of pairs; without one, of all pairs."""
    batch = batch or next(g.pairs("uniform,1").batches(epoch))  # ranks
    scores = net.scores(*batch.rows(net(g, epoch)))  # ranks
    wanted = batch.positive.to(scores.dtype)
    losses = F.binary_cross_entropy_with_logits(scores, wanted, reduction="none")
    return g.mean(losses[batch.counts])  # ranks


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graph")
    parser.add_argument("--partition")
    parser.add_argument("--epochs", type=int, default=30)
    args = parser.parse_args()

    g = gcnmpi.torch.open(args.graph, args.partition, **OPTIONS)  # ranks
    pairs = g.pairs("uniform,1", batch=4096)  # ranks
    validated = pairs.held_out("val")  # ranks
    torch.manual_seed(0)
    net = Net(g)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for epoch in range(1, args.epochs + 1):
        net.train()
        for batch in pairs.batches(epoch):  # ranks
            optimizer.zero_grad()
            loss = loss_of(g, net, batch, epoch)
            loss.backward()
            g.all_reduce_gradients(net)  # ranks
            optimizer.step()
        net.eval()
        with torch.no_grad():
            scores = net.scores(*validated.rows(net(g)))
            right = ((scores > 0) == validated.positive).to(scores.dtype)
            accuracy = g.mean(right)  # ranks
        if g.rank == 0 and epoch % 10 == 0:  # ranks
            print(f"epoch {epoch}: loss {loss:.4f}, {accuracy:.4f} of the validation pairs right")


if __name__ == "__main__":
    main()
