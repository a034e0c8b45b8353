"""Relational graph attention network (Busbridge, Sherburn, Cavallo and Hammerla 2019).

Time grows with arcs × columns in × columns out.

In files: as ``RGATConv``: ``weight`` (relations, d, e), or (bases, d, e) with ``comp``, or
(relations, blocks, d / blocks, e / blocks); ``bias``; ``q``, ``k`` (e, heads); PyTorch Geometric
calls its arrays of bases ``basis`` and ``att``.
"""

from __future__ import annotations

from gcnmpi.layout.place import Space
from gcnmpi.nn.network import ATTENTION_STREAM, Builder, Network
from gcnmpi.nn.networks.gat import after_attention, heads_of
from gcnmpi.nn.networks.stack import Layer, stack
from gcnmpi.options.model import RgatOptions
from partition.graph.relations import Schema


def build(
    model: RgatOptions, features: int, classes: int, arcs: int, on: str, schema: Schema
) -> Network:
    """A stack of layers as PyTorch Geometric's ``RGATConv`` with additive attention.

    Rows of both ends times the weight W(r) of the relation, scores leaky_relu(q(W(r)·xᵢ) +
    k(W(r)·xⱼ)) by head, one softmax over all arcs into a vertex (ARGAT) or over those of each
    relation (WIRGAT; ``model.softmax``). W(r)·xᵢ is made once for each group of arcs, W(r)·xⱼ for
    each arc, slice by slice.
    """
    within = Space.GROUPS if model.softmax == "relation" else Space.OWN

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        (heads, columns), k, name = heads_of(model, layer), layer.k, layer.name
        bases, blocks = model.bases, model.blocks
        source = b.linear_by_kind(b.source(x), columns, name, k, bases=bases, blocks=blocks)
        target = b.linear_again(source, b.target(x, Space.GROUPS))
        query = b.product(target, heads, f"{name}.q", k)
        scores = b.add(b.product(source, heads, f"{name}.k", k), b.target(query))
        scores = b.activate(scores, "leaky_relu", slope=model.negative_slope)
        attention = b.softmax(scores, within)
        attention = b.drop(attention, model.attention_dropout, ATTENTION_STREAM + k)
        y = b.reduce(b.scale_heads(attention, source), "sum")
        return after_attention(b, model, y, layer, heads)

    return stack(model, features, classes, convolve, schema=schema)
