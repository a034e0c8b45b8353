"""GATv2 (Brody, Alon and Yahav 2022): attention that ranks neighbours for each vertex.

Σ α·x·W + b, α the softmax over neighbours of a·leaky_relu(W₁xⱼ + W₂xᵢ), for each head.

In files: as ``GATv2Conv``: ``lin_l.…``, ``lin_r.…``, ``att``, ``bias``; for features of arcs
``lin_edge.weight``.
"""

from __future__ import annotations

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.gat import (
    after_attention,
    arcs_multiplied,
    attended,
    heads_of,
    width_of_arcs,
)
from gcnmpi.nn.networks.stack import Layer, stack
from gcnmpi.options.model import AttentionOptions


def build(model: AttentionOptions, features: int, classes: int, arcs: int) -> Network:
    """A stack of layers as PyTorch Geometric's ``GATv2Conv``."""

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        (heads, columns), name = heads_of(model, layer), layer.name
        source, target = (
            b.linear(x, columns, f"{name}.{side}", bias=model.bias, init="glorot", layer=k)
            for side, k in (("lin_l", layer.k), ("lin_r", layer.k))
        )
        slope, p = model.negative_slope, model.attention_dropout
        if not model.arc_features:
            x = b.attend_v2(source, target, name, heads, slope, p)
            return after_attention(b, model, x, layer, heads)
        of_arcs = arcs_multiplied(b, columns, layer)
        sums = b.sum([b.source(source), b.target(target), of_arcs])
        sums = b.activate(sums, "leaky_relu", slope=slope)
        scores = b.head_dots(sums, f"{name}.att", heads, layer.k)
        x = attended(b, model, scores, source, layer.k)
        return after_attention(b, model, x, layer, heads)

    return stack(model, features, classes, convolve, width_of_arcs(model, arcs))
