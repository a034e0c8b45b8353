"""Multi-layer perceptron: what the features alone are worth; nothing is aggregated.

In files: ``lins.0.weight``, ``lins.0.bias``.
"""

from __future__ import annotations

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.stack import Convolve, Layer, layers
from gcnmpi.options.model import JumpOptions, ModelConfig


def build(model: JumpOptions, features: int, classes: int) -> Network:
    """A stack of linear layers with the names of PyTorch Geometric's ``MLP``."""
    b = Builder(features)
    x = b.drop(b.input, model.input_dropout, 0)
    b.output(layers(b, x, model, classes, linear(model), model.jk))
    return b.build()


def linear(model: ModelConfig) -> Convolve:
    """A linear layer in place of a convolution."""

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        return b.linear(x, layer.width, f"lins.{layer.k - 1}", bias=model.bias, layer=layer.k)

    return convolve
