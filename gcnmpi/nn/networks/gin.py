"""Graph isomorphism network (Xu et al. 2019): MLP((1 + ε)·x + A·x)."""

from __future__ import annotations

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.stack import Layer, normalized, stack
from gcnmpi.options.model import GinOptions


def matrix(model: GinOptions) -> tuple[str, bool]:
    """The sum of the neighbours."""
    return "none", False


def build(model: GinOptions, features: int, classes: int) -> Network:
    """A stack of layers as PyTorch Geometric's ``GINConv``, with an MLP of two layers each."""

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        mlp, epsilon, width, k = f"{layer.name}.nn", f"{layer.name}.eps", layer.width, layer.k
        if model.train_eps:
            root = b.scale(x, 1.0, epsilon, model.eps)
        else:
            b.constant(epsilon, model.eps)
            root = b.scale(x, 1.0 + model.eps) if model.eps else x
        x = b.add(b.aggregate(x), root)
        x = b.linear(x, width, f"{mlp}.lins.0", bias=model.bias, layer=k)
        x = normalized(b, model.norm, x, f"{mlp}.norms.0")
        x = b.activate(x, model.activation, f"{mlp}.act.weight")
        return b.linear(x, width, f"{mlp}.lins.1", bias=model.bias, layer=k)

    return stack(model, features, classes, convolve)
