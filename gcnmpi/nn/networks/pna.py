"""Principal neighbourhood aggregation (Corso et al. 2020): several functions of all messages.

In files: as ``PNAConv``; the mean degrees are ``aggr_module.avg_deg_lin``, ``.avg_deg_log`` (1).
"""

from __future__ import annotations

from collections.abc import Sequence

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.gat import width_of_arcs
from gcnmpi.nn.networks.stack import Layer, stack
from gcnmpi.options.model import PnaOptions
from partition.errors import UserError


def build(model: PnaOptions, features: int, classes: int, arcs: int) -> Network:
    """A stack of layers as PyTorch Geometric's ``PNAConv``.

    Messages MLP([xᵢ | xⱼ | e]) are aggregated by several functions, each result scaled by several
    functions of the degree; [x | all of them] goes through another MLP, and the towers through a
    linear layer.
    """
    aggregators, scalers = model.aggregators.split("+"), model.scalers.split("+")

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        if layer.width % model.towers:
            raise UserError(
                f"model.towers: {layer.width} columns of layer {layer.k} are not a multiple of "
                f"model.towers = {model.towers}",
                "model.linear_after = true leaves the logits to a linear layer",
            )
        name, d_in = layer.name, b.width(x)
        of_arcs = []
        if model.arc_features:
            encoder = f"{name}.edge_encoder"
            of_arcs = [b.linear(b.arc_features(), d_in, encoder, bias=model.bias, layer=layer.k)]
        towers = []
        for tower in range(model.towers):
            parts = [b.target(x), b.source(x), *of_arcs]
            message = _perceptron(
                b, model, parts, d_in, model.pre_layers, f"{name}.pre_nns.{tower}"
            )
            y = b.reduce(message, *aggregators)
            parts = [b.scale_by_degree(y, kind, f"{name}.aggr_module") for kind in scalers]
            width, post = layer.width // model.towers, f"{name}.post_nns.{tower}"
            towers.append(_perceptron(b, model, [x, *parts], width, model.post_layers, post))
        return b.linear_of_all(towers, layer.width, f"{name}.lin", bias=model.bias)

    return stack(model, features, classes, convolve, width_of_arcs(model, arcs))


def _perceptron(
    b: Builder, model: PnaOptions, parts: Sequence[int], width: int, count: int, name: str
) -> int:
    """Linear layers, and ReLU between them."""
    x = b.linear_of_all(parts, width, f"{name}.0", bias=model.bias)
    for number in range(1, count):
        x = b.linear(b.activate(x, "relu"), width, f"{name}.{2 * number}", bias=model.bias)
    return x
