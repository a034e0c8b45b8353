"""Graph isomorphism network (Xu et al. 2019): MLP((1 + ε)·x + A·x).

Two linear layers with an activation between them.

In files: ``nn.lins.0.weight``, ``nn.lins.1.weight``, their ``.bias``; ``eps`` (1).
"""

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
        root = itself(b, model, x, layer)
        return multilayer(b, model, b.add(b.aggregate(x), root), layer)

    return stack(model, features, classes, convolve)


def itself(b: Builder, model: GinOptions, x: int, layer: Layer) -> int:
    """(1 + ε)·x, with the trained or given ε of a layer."""
    epsilon = f"{layer.name}.eps"
    if model.train_eps:
        return b.scale(x, 1.0, epsilon, model.eps)
    b.constant(epsilon, model.eps)
    return b.scale(x, 1.0 + model.eps) if model.eps else x


def multilayer(b: Builder, model: GinOptions, x: int, layer: Layer) -> int:
    """Two linear layers on the sum of neighbours and the vertex itself."""
    mlp, width, k = f"{layer.name}.nn", layer.width, layer.k
    x = b.linear(x, width, f"{mlp}.lins.0", bias=model.bias, layer=k)
    x = normalized(b, model.norm, x, f"{mlp}.norms.0")
    x = b.activate(x, model.activation, f"{mlp}.act.weight")
    return b.linear(x, width, f"{mlp}.lins.1", bias=model.bias, layer=k)
