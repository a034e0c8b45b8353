"""GINE (Hu et al. 2020): MLP((1 + ε)·x + Σ relu(xⱼ + e·W + b)), GIN with features of arcs.

In files: ``nn.lins.0.weight``, ``nn.lins.1.weight``, their ``.bias``; ``eps`` (1); ``lin.…`` for
features of arcs.
"""

from __future__ import annotations

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.gin import itself, multilayer
from gcnmpi.nn.networks.gin import matrix as matrix
from gcnmpi.nn.networks.stack import Layer, stack
from gcnmpi.options.model import GinOptions


def build(model: GinOptions, features: int, classes: int, arcs: int) -> Network:
    """A stack of layers as PyTorch Geometric's ``GINEConv``, with an MLP of two layers each."""

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        arcs, k = b.arc_features(), layer.k
        of_arcs = b.linear(arcs, b.width(x), f"{layer.name}.lin", bias=model.bias, layer=k)
        message = b.activate(b.add(of_arcs, b.source(x)), "relu")
        total = b.add(b.reduce(message, "sum"), itself(b, model, x, layer))
        return multilayer(b, model, total, layer)

    return stack(model, features, classes, convolve, arcs)
