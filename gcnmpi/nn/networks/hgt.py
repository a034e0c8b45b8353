"""Heterogeneous graph transformer (Hu, Dong, Wang and Sun 2020).

Time grows with groups (the arcs of one relation into one vertex) and arcs.

In files: not transposed: ``k_lin.…``, ``v_lin.…``, ``q_lin.…``, ``out_lin.…`` (types, d, e);
``q_rel.weight``, ``v_rel.weight`` (relations, K, e / K, e / K), ``p_rel`` (relations, K), ``skip``
(types, 1).
"""

from __future__ import annotations

from math import sqrt

from gcnmpi.layout.place import Space
from gcnmpi.nn.network import ATTENTION_STREAM, Builder, Network
from gcnmpi.nn.networks.stack import Layer, stack
from gcnmpi.options.model import ScoreOptions
from partition.errors import UserError
from partition.graph.relations import Schema


def build(
    model: ScoreOptions, features: int, classes: int, arcs: int, on: str, schema: Schema
) -> Network:
    """A stack of layers as PyTorch Geometric's ``HGTConv``.

    Keys, values and queries by the type of a vertex, (k·A(r))·q scores by relation and head, one
    softmax over all arcs into a vertex, messages v·B(r) (equations 3 to 5). A is applied to the
    query, once for each relation into a vertex, and B to the weighed sums of values: to groups of
    arcs, not to arcs. The rows of x are sent, once for keys, values and all relations.
    """

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        k, width, heads = layer.k, layer.width, model.out_heads if layer.last else model.heads
        if width % heads:
            raise UserError(
                f"{heads} heads do not divide a layer of {width} columns",
                "the heads of a layer share its columns: see model.heads and model.out_heads",
            )

        def linear(x: int, name: str) -> int:
            return b.linear_by_kind(x, width, f"{layer.name}.{name}", k, bias=True, init="uniform")

        whole = b.expand(x)
        key, value = linear(whole, "k_lin"), linear(whole, "v_lin")
        query = b.target(linear(x, "q_lin"), Space.GROUPS)
        query = b.linear_by_kind(query, width, f"{layer.name}.q_rel", k, blocks=heads)
        prior = b.row_by_kind(query, heads, f"{layer.name}.p_rel", k, "1")
        query = b.scale(b.scale_heads(prior, query), 1 / sqrt(width // heads))
        attention = b.softmax(b.end_dots(query, key, heads))
        attention = b.drop(attention, model.attention_dropout, ATTENTION_STREAM + k)
        y = b.weighed_sum(attention, value, Space.GROUPS)
        y = b.reduce(b.linear_by_kind(y, width, f"{layer.name}.v_rel", k, blocks=heads), "sum")
        y = linear(b.activate(y, "gelu"), "out_lin")
        if b.width(x) != width:
            return y
        gate = b.activate(b.row_by_kind(x, 1, f"{layer.name}.skip", k, "1"), "sigmoid")
        return b.add(x, b.scale_heads(gate, b.add(y, b.scale(x, -1.0))))

    return stack(model, features, classes, convolve, schema=schema)
