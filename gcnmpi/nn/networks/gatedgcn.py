"""Gated graph convolution (Bresson and Laurent 2018): a gate on every arc and column.

In files: ``lin_key.…``, ``lin_query.…``, ``lin_value.…`` (e, d + columns of arcs), with a bias
whatever ``model.bias`` is; ``lin_skip.weight``, ``bias``.
"""

from __future__ import annotations

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.gat import width_of_arcs
from gcnmpi.nn.networks.stack import Layer, stack
from gcnmpi.options.model import GatedOptions


def build(model: GatedOptions, features: int, classes: int, arcs: int) -> Network:
    """A stack of layers as PyTorch Geometric's ``ResGatedGraphConv``.

    Σ σ(W₁·[xᵢ | e] + W₂·[xⱼ | e]) ⊙ W₃·[xⱼ | e] + W₄·xᵢ + b, with e the features of the arc, or
    without. The first three products have biases of their own, whatever ``model.bias`` says. The
    rows of x are sent, once for gates and values.
    """

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        of_arcs = [b.arc_features()] if model.arc_features else []

        def linear(end: int, name: str) -> int:
            parts = [end, *of_arcs]
            return b.linear_of_all(parts, layer.width, f"{layer.name}.{name}", bias=True)

        key, query = linear(b.target(x), "lin_key"), linear(b.source(x), "lin_query")
        gate = b.activate(b.add(key, query), "sigmoid")
        y = b.reduce(b.multiply(gate, linear(b.source(x), "lin_value")), "sum")
        if model.root_weight:
            y = b.add(y, b.linear(x, layer.width, f"{layer.name}.lin_skip", layer=layer.k))
        return b.bias(y, f"{layer.name}.bias", layer.k) if model.bias else y

    return stack(model, features, classes, convolve, width_of_arcs(model, arcs))
