"""Inference with the weights that gatv2.py saved, on a graph that is spread over ranks.

    mpirun -n 4 python examples/inference.py cora.graph gatv2.pt logits.npy --partition hp-4

The number of ranks, and the graph, may be others than in training.
"""

import argparse

import torch
from gatv2 import OPTIONS, Net

import gcnmpi.torch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graph")
    parser.add_argument("weights", help="FILE.pt that gatv2.py --save wrote")
    parser.add_argument("out", help="FILE.npy for the logits, in the order of the graph")
    parser.add_argument("--partition")
    args = parser.parse_args()

    g = gcnmpi.torch.open(args.graph, args.partition, feature_norm="row", **OPTIONS)
    net = Net(g).eval()
    net.load_state_dict(torch.load(args.weights, weights_only=True))
    with torch.no_grad():
        logits = net(g)
    g.write(logits, args.out)
    if g.y is not None:
        found = g.metrics(logits, ("accuracy", "f1_macro"))
        if g.rank == 0:
            print(found)


if __name__ == "__main__":
    main()
