"""Graph transformer (Shi et al. 2021): attention by products of queries and keys.

In files: as ``TransformerConv``: ``lin_key.…``, ``lin_query.…``, ``lin_value.…``, ``lin_skip.…``,
``lin_beta.weight`` (1, 3e).
"""

from __future__ import annotations

from math import sqrt

from gcnmpi.nn.network import ATTENTION_STREAM, Builder, Network
from gcnmpi.nn.networks.gat import heads_of, width_of_arcs
from gcnmpi.nn.networks.stack import Layer, stack
from gcnmpi.options.model import TransformerOptions


def build(model: TransformerOptions, features: int, classes: int, arcs: int) -> Network:
    """A stack of layers as PyTorch Geometric's ``TransformerConv``.

    Σ α·(W₃·xⱼ + e) with α the softmax over the neighbours of (W₁·xᵢ)·(W₂·xⱼ + e)/√columns, for each
    head; e = W₄·(features of the arc), or nothing. Then the vertex itself, W₅·xᵢ: added, or mixed
    in by a gate. The rows of x are sent, once for keys and values.
    """

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        (heads, columns), k = heads_of(model, layer), layer.k

        def linear(x: int, width: int, name: str) -> int:
            return b.linear(x, width, f"{layer.name}.{name}", bias=model.bias, layer=k)

        key, value = (linear(b.expand(x), columns, name) for name in ("lin_key", "lin_value"))
        query = b.scale(linear(x, columns, "lin_query"), 1 / sqrt(columns // heads))
        scores = b.end_dots(query, key, heads)
        if model.arc_features:
            of_arcs = b.linear(b.arc_features(), columns, f"{layer.name}.lin_edge", layer=k)
            scores = b.add(scores, b.row_dots(b.target(query), of_arcs, heads))
        attention = b.drop(b.softmax(scores), model.attention_dropout, ATTENTION_STREAM + k)
        y = b.weighed_sum(attention, value)
        if model.arc_features:
            y = b.add(y, b.reduce(b.scale_heads(attention, of_arcs), "sum"))
        if b.width(y) != layer.width:
            y = b.mean_of_heads(y, heads)
        if not model.root_weight:
            b.unread(f"{layer.name}.lin_skip.weight", layer.width, b.width(x))
            if model.bias:
                b.unread(f"{layer.name}.lin_skip.bias", layer.width)
            return y
        root = linear(x, layer.width, "lin_skip")
        if not model.beta:
            return b.add(y, root)
        more = b.add(root, b.scale(y, -1.0))
        parts = y, root, b.scale(more, -1.0)
        gate = b.activate(b.linear_of_all(parts, 1, f"{layer.name}.lin_beta"), "sigmoid")
        return b.add(y, b.scale_heads(gate, more))

    return stack(model, features, classes, convolve, width_of_arcs(model, arcs))
