"""Graph convolutional network (Kipf and Welling 2017): M·x·W + b.

In files: ``convs.0.lin.weight`` (e, d), ``convs.0.bias`` (e).
"""

from __future__ import annotations

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.stack import Layer, stack
from gcnmpi.options.model import ConvolutionOptions


def build(model: ConvolutionOptions, features: int, classes: int) -> Network:
    """A stack of layers as PyTorch Geometric's ``GCNConv``."""

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        x = b.aggregate(x)
        x = b.linear(x, layer.width, f"{layer.name}.lin", init="glorot", layer=layer.k)
        return b.bias(x, f"{layer.name}.bias", layer.k) if model.bias else x

    return stack(model, features, classes, convolve)
