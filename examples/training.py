"""The training of some examples, as a run; gatv2.py, to be read first, has a loop written out."""

import argparse

import torch
import torch.nn.functional as F

import gcnmpi.torch


def train(net_class, options, description, lr=0.01):
    """Train on the graph that the command line names; ``options`` are those of ``open``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("graph")
    parser.add_argument("--partition")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--out", help="folder of the run")  # gcnmpi submit gives one, too
    args = parser.parse_args()

    g = gcnmpi.torch.open(args.graph, args.partition, feature_norm="row", **options)
    torch.manual_seed(0)  # the same weights on all ranks
    net = net_class(g)
    optimizer = torch.optim.Adam(net.parameters(), lr=lr, weight_decay=5e-4)
    with g.run(args.out, net, optimizer, config={"lr": lr}, progress=False) as run:
        for epoch in run.epochs(args.epochs):
            net.train()
            optimizer.zero_grad()
            out, mask = net(g, epoch), g.train_mask
            loss = g.mean(F.cross_entropy(out[mask], g.y[mask], reduction="none"))
            loss.backward()
            g.all_reduce_gradients(net)
            optimizer.step()
            found = {}
            if epoch % 20 == 0 or epoch == args.epochs:
                net.eval()
                with torch.no_grad():
                    found = g.metrics(net(g))
                if g.rank == 0:
                    print(f"epoch {epoch}: loss {loss:.4f}, {found}")
            run.log(epoch, loss=loss, **found)
