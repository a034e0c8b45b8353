"""Simple graph convolution (Wu et al. 2019): Mᴷ·H⁰·W + b.

In files: ``convs.0.lin.weight`` (e, d), ``convs.0.lin.bias`` (e).
"""

from __future__ import annotations

from gcnmpi.nn.network import Builder, Network
from gcnmpi.options.model import HopsOptions

HOPS = 2  # of the paper


def build(model: HopsOptions, features: int, classes: int) -> Network:
    """One layer as PyTorch Geometric's ``SGConv``."""
    b = Builder(features)
    x = b.drop(b.input, model.input_dropout, 0)
    for _ in range(model.hops or HOPS):
        x = b.aggregate(x)
    b.output(b.linear(x, classes, "convs.0.lin", bias=model.bias, layer=1))
    return b.build()
