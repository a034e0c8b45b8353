"""Relational graph convolutional network (Schlichtkrull et al. 2018).

Time grows with groups × columns in × columns out + arcs × columns in, where a group is
the arcs of one relation into one vertex.

In files: as ``RGCNConv``: ``weight`` (relations, d, e), or (bases, d, e) with ``comp``, or
(relations, blocks, d / blocks, e / blocks); ``root`` (d, e), ``bias``.
"""

from __future__ import annotations

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.stack import Layer, stack
from gcnmpi.options.model import ModelConfig, RelationOptions
from partition.errors import UserError
from partition.graph.relations import Schema


def matrix(model: ModelConfig) -> tuple[str, bool]:
    """The arcs of the graph."""
    return "none", False


def build(
    model: RelationOptions, features: int, classes: int, arcs: int, on: str, schema: Schema
) -> Network:
    """A stack of layers as PyTorch Geometric's ``RGCNConv``.

    Σ over relations r of the mean over the neighbours by arcs of r of W(r)·xⱼ, + W·xᵢ + b
    (equation 2). The rows of x are sent, once for all relations; means are multiplied, of which
    there are fewer than arcs.
    """
    if model.bases and model.blocks > 1:
        raise UserError("model.bases and model.blocks exclude each other", "leave one of them out")

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        name, width, k = layer.name, layer.width, layer.k
        y, bases, blocks = b.mean_by_relation(x), model.bases, model.blocks
        y = b.linear_by_kind(y, width, name, k, bases=bases, blocks=blocks)
        y = b.reduce(y, "sum")
        if model.root_weight:
            y = b.add(y, b.product(x, width, f"{name}.root", k))
        return b.bias(y, f"{name}.bias", k) if model.bias else y

    return stack(model, features, classes, convolve, schema=schema)
