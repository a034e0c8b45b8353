"""GATv2 (Brody, Alon and Yahav 2022): attention that ranks neighbours for each vertex."""

from __future__ import annotations

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.gat import after_attention, heads_of
from gcnmpi.nn.networks.stack import Layer, stack
from gcnmpi.options.model import AttentionOptions


def build(model: AttentionOptions, features: int, classes: int) -> Network:
    """A stack of layers as PyTorch Geometric's ``GATv2Conv``."""

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        heads, columns = heads_of(model, layer)
        source, target = (
            b.linear(x, columns, f"{layer.name}.{side}", bias=model.bias, init="glorot", layer=k)
            for side, k in (("lin_l", layer.k), ("lin_r", layer.k))
        )
        slope, p = model.negative_slope, model.attention_dropout
        x = b.attend_v2(source, target, layer.name, heads, slope, p)
        return after_attention(b, model, x, layer, heads)

    return stack(model, features, classes, convolve)
