"""GraphSAGE (Hamilton, Ying and Leskovec 2017): aggregate(x)·W₁ + b + x·W₂.

The mean, the sum or another function of neighbours, or several of them side by side.

In files: ``lin_l.weight`` (e, d) and ``.bias``, of the neighbours; ``lin_r.weight``, of the vertex
itself.
"""

from __future__ import annotations

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.stack import Layer, stack
from gcnmpi.options.model import SageOptions


def matrix(model: SageOptions) -> tuple[str, bool]:
    """The mean of the neighbours, or their sum; the vertex itself has the root weight."""
    return ("row" if model.aggregation == "mean" else "none"), model.include_self


def build(model: SageOptions, features: int, classes: int) -> Network:
    """A stack of layers as PyTorch Geometric's ``SAGEConv``, with one aggregation or several."""

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        width, k = layer.width, layer.k
        if model.aggregation in ("mean", "sum"):
            y = b.aggregate(x)
        elif model.aggregation == "max":
            y = b.max_aggregate(x)
        else:
            y = b.reduce(b.source(x), *model.aggregation.split("+"))
        y = b.linear(y, width, f"{layer.name}.lin_l", bias=model.bias, layer=k)
        if model.root_weight:
            y = b.add(y, b.linear(x, width, f"{layer.name}.lin_r", layer=k))
        return b.normalize(y) if model.normalize_output else y

    return stack(model, features, classes, convolve)
