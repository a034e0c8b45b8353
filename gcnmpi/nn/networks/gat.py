"""Graph attention network (Veličković et al. 2018): attention over x·W, several heads, + b."""

from __future__ import annotations

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.stack import Layer, stack
from gcnmpi.options.model import AttentionOptions
from partition.errors import UserError


def matrix(model: AttentionOptions) -> tuple[str, bool]:
    """The pattern of the neighbours and of the vertex itself; attention gives the values."""
    return "none", True


def build(model: AttentionOptions, features: int, classes: int) -> Network:
    """A stack of layers as PyTorch Geometric's ``GATConv``."""

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        heads, columns = heads_of(model, layer)
        x = b.linear(x, columns, f"{layer.name}.lin", init="glorot", layer=layer.k)
        x = b.attend(x, layer.name, heads, model.negative_slope, model.attention_dropout)
        return after_attention(b, model, x, layer, heads)

    return stack(model, features, classes, convolve)


def heads_of(model: AttentionOptions, layer: Layer) -> tuple[int, int]:
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


def after_attention(b: Builder, model: AttentionOptions, x: int, layer: Layer, heads: int) -> int:
    """The mean of the heads where they are not concatenated, and the bias."""
    if heads > 1 and (layer.last or not model.concat):
        x = b.mean_of_heads(x, heads)
    return b.bias(x, f"{layer.name}.bias", layer.k) if model.bias else x
