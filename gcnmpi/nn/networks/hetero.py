"""A convolution for each relation (Zhang et al. 2019, PyTorch Geometric's ``HeteroConv``).

Time grows as that of ``rgcn`` with ``sage``, as that of ``rgat`` with attention.

In files: not transposed, stacked by relation and type: ``sage`` ``lin_l.weight`` (relations, d, e),
``lin_r.weight`` (types, d, e); ``gat`` ``lin_src.weight``, ``lin_dst.weight``, ``att_src``,
``att_dst`` (relations, e); ``gatv2`` ``lin_l.…``, ``lin_r.…``, ``att``; ``bias`` (types, e).
"""

from __future__ import annotations

from gcnmpi.layout.place import Space
from gcnmpi.nn.network import ATTENTION_STREAM, Builder, Network
from gcnmpi.nn.networks.gat import heads_of
from gcnmpi.nn.networks.stack import Layer, stack
from gcnmpi.options.model import HeteroOptions
from partition.graph.relations import Schema


def build(
    model: HeteroOptions, features: int, classes: int, arcs: int, on: str, schema: Schema
) -> Network:
    """A stack of layers as ``HeteroConv`` of ``SAGEConv``, ``GATConv`` or ``GATv2Conv``.

    Each relation has a convolution of its own. Their results are added up, or averaged: over all
    relations into a type, also those that no arc of a vertex is of. The weights that they give to
    the vertex itself, and their biases, count whatever the relation: there is one of each for a
    type of vertices, the sum or the mean of those of the relations into it. A maximum would need
    one of each relation's for every vertex, and is left out.
    """

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        y = CONVOLUTIONS[model.convolution](b, model, x, layer)
        if model.relation_reduction == "mean":
            y = b.scale_by_kind(y, [1 / max(1, len(into)) for into in b.schema.into])
        if model.convolution == "sage" and model.root_weight:
            root, k = f"{layer.name}.lin_r", layer.k
            y = b.add(y, b.linear_by_kind(x, layer.width, root, k, init="uniform"))
        if not model.bias:
            return y
        return b.add(y, b.row_by_kind(y, layer.width, f"{layer.name}.bias", layer.k))

    return stack(model, features, classes, convolve, schema=schema)


def _sage(b: Builder, model: HeteroOptions, x: int, layer: Layer) -> int:
    """The sum over relations of the mean of neighbours times a weight of the relation's.

    Or of other functions of the neighbours.
    """
    name, k, kinds = f"{layer.name}.lin_l", layer.k, model.aggregation.split("+")
    if kinds == ["mean"]:
        of_groups = b.mean_by_relation(x)
    else:
        of_groups = b.reduce(b.source(x), *kinds, to=Space.GROUPS)
    return b.reduce(b.linear_by_kind(of_groups, layer.width, name, k, init="uniform"), "sum")


def _gat(b: Builder, model: HeteroOptions, x: int, layer: Layer) -> int:
    """Attention over the arcs of each relation, in heads as those of a GAT."""
    (heads, columns), k, name = heads_of(model, layer), layer.k, layer.name
    source = b.linear_by_kind(b.source(x), columns, f"{name}.lin_src", k)
    target = b.linear_by_kind(b.target(x, Space.GROUPS), columns, f"{name}.lin_dst", k)
    of_source = _scores(b, source, f"{name}.att_src", heads, k)
    of_target = _scores(b, target, f"{name}.att_dst", heads, k)
    scores = b.add(of_source, b.target(of_target))
    scores = b.activate(scores, "leaky_relu", slope=model.negative_slope)
    return _attended(b, model, scores, source, layer)


def _gatv2(b: Builder, model: HeteroOptions, x: int, layer: Layer) -> int:
    """The same with scores as those of a GATv2."""
    (heads, columns), k, name = heads_of(model, layer), layer.k, layer.name
    rows, bias = (b.source(x), b.target(x, Space.GROUPS)), model.bias
    source, target = (
        b.linear_by_kind(of_end, columns, f"{name}.{end}", k, bias=bias)
        for of_end, end in zip(rows, ("lin_l", "lin_r"), strict=True)
    )
    sums = b.add(source, b.target(target))
    sums = b.activate(sums, "leaky_relu", slope=model.negative_slope)
    return _attended(b, model, _scores(b, sums, f"{name}.att", heads, k), source, layer)


def _scores(b: Builder, x: int, name: str, heads: int, k: int) -> int:
    """For each row and head the dot product with a vector of the relation's."""
    width = b.width(x)
    return b.row_dots(x, b.row_by_kind(x, width, name, k, fan_in=width), heads)


def _attended(b: Builder, model: HeteroOptions, scores: int, source: int, layer: Layer) -> int:
    """Rows of arcs, weighed by a softmax within each relation, and added up."""
    attention = b.softmax(scores, Space.GROUPS)
    attention = b.drop(attention, model.attention_dropout, ATTENTION_STREAM + layer.k)
    y = b.reduce(b.scale_heads(attention, source), "sum")
    return y if b.width(y) == layer.width else b.mean_of_heads(y, b.width(scores))


CONVOLUTIONS = {"sage": _sage, "gat": _gat, "gatv2": _gatv2}
