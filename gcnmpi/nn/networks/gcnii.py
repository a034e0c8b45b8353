"""GCNII (Chen et al. 2020): deep, each layer with the first one and an identity mixed in.

In files: ``lins.0.…`` (first), ``convs.0.weight1`` (e, e), not transposed, ``lins.1.…`` (last).
"""

from __future__ import annotations

from math import log

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.stack import BEFORE_STREAM, Layer, layers
from gcnmpi.options.model import GcniiOptions
from partition.errors import UserError


def build(model: GcniiOptions, features: int, classes: int) -> Network:
    """Layers as PyTorch Geometric's ``GCN2Conv`` with shared weights, between two linear ones.

    y = (1 − α)·M·x + α·x₀; layer k gives (1 − β)·y + β·y·W with β = log(θ/k + 1).
    """
    if len(set(model.hidden)) != 1:
        raise UserError("a gcnii has hidden layers, all of one width", "such as model.hidden = 64")
    b = Builder(features)
    x = b.drop(b.input, model.input_dropout, 0)
    x = b.linear(x, model.hidden[0], "lins.0", bias=model.bias)
    first = b.activate(x, model.activation, "act.weight")
    share = b.scale(first, model.alpha)

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        beta = log(model.theta / layer.k + 1)
        x = b.add(b.scale(b.aggregate(x), 1 - model.alpha), share)
        product = b.product(x, b.width(x), f"{layer.name}.weight1", layer.k)
        return b.add(b.scale(x, 1 - beta), b.scale(product, beta))

    x = b.drop(first, model.dropout, BEFORE_STREAM)
    b.output(layers(b, x, model, classes, convolve, model.jk, "lins.1"))
    return b.build()
