"""APPNP (Gasteiger, Bojchevski and Günnemann 2019): an MLP, then personalised PageRank.

In files: ``lins.0.weight``, ``lins.0.bias``.
"""

from __future__ import annotations

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.mlp import linear
from gcnmpi.nn.networks.stack import layers
from gcnmpi.options.model import AppnpOptions

HOPS = 10  # of the paper


def build(model: AppnpOptions, features: int, classes: int) -> Network:
    """z = MLP(H⁰); x₀ = z; x ← (1 − α)·M·x + α·z, as PyTorch Geometric's ``APPNP``."""
    b = Builder(features)
    x = b.drop(b.input, model.input_dropout, 0)
    x = layers(b, x, model, classes, linear(model))
    start = b.scale(x, model.alpha)
    for _ in range(model.hops or HOPS):
        x = b.add(b.scale(b.aggregate(x), 1 - model.alpha), start)
    b.output(x)
    return b.build()
