"""Graph attention network (Veličković et al. 2018): attention over x·W, several heads, + b.

Σ α·x·W + b, α the softmax over neighbours of leaky_relu(a₁·Wxⱼ + a₂·Wxᵢ), for each head.

In files: as ``GATConv``: ``lin.weight``, ``att_src``, ``att_dst`` (1, K, e/K), ``bias``; for
features of arcs ``lin_edge.weight``, ``att_edge``.
"""

from __future__ import annotations

from gcnmpi.nn.network import ATTENTION_STREAM, Builder, Network
from gcnmpi.nn.networks.stack import Layer, stack
from gcnmpi.options.model import ArcOptions, AttentionOptions, ConcatOptions
from partition.errors import UserError


def matrix(model: AttentionOptions) -> tuple[str, bool]:
    """The pattern of the neighbours and of the vertex itself; attention gives the values."""
    return "none", True


def build(model: AttentionOptions, features: int, classes: int, arcs: int) -> Network:
    """A stack of layers as PyTorch Geometric's ``GATConv``, with features of arcs or without."""

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        heads, columns = heads_of(model, layer)
        x = b.linear(x, columns, f"{layer.name}.lin", init="glorot", layer=layer.k)
        if model.arc_features:
            x = _attend_arcs(b, model, x, layer, heads)
        else:
            x = b.attend(x, layer.name, heads, model.negative_slope, model.attention_dropout)
        return after_attention(b, model, x, layer, heads)

    return stack(model, features, classes, convolve, width_of_arcs(model, arcs))


def _attend_arcs(b: Builder, model: AttentionOptions, x: int, layer: Layer, heads: int) -> int:
    """Attention whose scores have a term of each arc's features."""
    name, k = layer.name, layer.k
    whole, of_arcs = b.expand(x), arcs_multiplied(b, b.width(x), layer)
    source, target, arc = (
        b.head_dots(rows, f"{name}.{vector}", heads, k)
        for rows, vector in ((whole, "att_src"), (x, "att_dst"), (of_arcs, "att_edge"))
    )
    scores = b.sum([b.source(source), b.target(target), arc])
    scores = b.activate(scores, "leaky_relu", slope=model.negative_slope)
    return attended(b, model, scores, x, k)


def width_of_arcs(model: ArcOptions, arcs: int) -> int:
    """Width of the features of arcs, if the network is to read them."""
    return arcs if model.arc_features else 0


def arcs_multiplied(b: Builder, columns: int, layer: Layer) -> int:
    """Features of arcs times a weight; a self-loop has the mean of the other arcs' features."""
    name, k = f"{layer.name}.lin_edge", layer.k
    return b.linear(b.arc_features("mean"), columns, name, init="glorot", layer=k)


def attended(b: Builder, model: AttentionOptions, scores: int, x: int, k: int) -> int:
    """The sum of neighbours' rows, weighed by the softmax of scores of arcs and heads."""
    attention = b.drop(b.softmax(scores), model.attention_dropout, ATTENTION_STREAM + k)
    return b.weighed_sum(attention, x)


def heads_of(model: ConcatOptions, layer: Layer) -> tuple[int, int]:
    """Heads of a layer, and columns of all of them together.

    Hidden layers are as wide as ``model.hidden`` says, all heads together where they are
    concatenated; those of the layer that gives the logits are averaged.
    """
    if layer.last:
        return model.out_heads, model.out_heads * layer.width
    if not model.concat:
        return model.heads, model.heads * layer.width
    if layer.width % model.heads:
        raise UserError(
            f"model.hidden: {layer.width} columns of layer {layer.k} are not a multiple of "
            f"model.heads = {model.heads}",
            "a width is that of all heads together",
        )
    return model.heads, layer.width


def after_attention(b: Builder, model: ConcatOptions, x: int, layer: Layer, heads: int) -> int:
    """The mean of the heads where they are not concatenated, and the bias."""
    if heads > 1 and (layer.last or not model.concat):
        x = b.mean_of_heads(x, heads)
    return b.bias(x, f"{layer.name}.bias", layer.k) if model.bias else x
