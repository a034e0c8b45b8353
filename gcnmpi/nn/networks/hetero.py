"""A convolution for each relation (Zhang et al. 2019, PyTorch Geometric's ``HeteroConv``)."""

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
    """A stack of layers as ``HeteroConv`` of ``SAGEConv``, or of ``GATConv``, which it sums up.

    Each relation has a convolution of its own. The weights that they give to the vertex itself, and
    their biases, are added whatever the relation: there is one of each for a type of vertices, the
    sum of those of the relations into it.
    """

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        y = CONVOLUTIONS[model.convolution](b, model, x, layer)
        if model.convolution == "sage" and model.root_weight:
            root, k = f"{layer.name}.lin_r", layer.k
            y = b.add(y, b.linear_by_kind(x, layer.width, root, k, init="uniform"))
        if not model.bias:
            return y
        return b.add(y, b.row_by_kind(y, layer.width, f"{layer.name}.bias", layer.k))

    return stack(model, features, classes, convolve, schema=schema)


def _sage(b: Builder, model: HeteroOptions, x: int, layer: Layer) -> int:
    """The sum over relations of the mean of neighbours times a weight of the relation's."""
    name, k = f"{layer.name}.lin_l", layer.k
    means = b.mean_by_relation(x)
    return b.reduce(b.linear_by_kind(means, layer.width, name, k, init="uniform"), "sum")


def _gat(b: Builder, model: HeteroOptions, x: int, layer: Layer) -> int:
    """Attention over the arcs of each relation, in heads as those of a GAT."""
    (heads, columns), k, name = heads_of(model, layer), layer.k, layer.name
    source = b.linear_by_kind(b.source(x), columns, f"{name}.lin_src", k)
    target = b.linear_by_kind(b.target(x, Space.GROUPS), columns, f"{name}.lin_dst", k)

    def scores(x: int, vector: str) -> int:
        vectors = b.row_by_kind(x, columns, f"{name}.{vector}", k, fan_in=columns)
        return b.row_dots(x, vectors, heads)

    of_arcs = b.add(scores(source, "att_src"), b.target(scores(target, "att_dst")))
    of_arcs = b.activate(of_arcs, "leaky_relu", slope=model.negative_slope)
    attention = b.softmax(of_arcs, Space.GROUPS)
    attention = b.drop(attention, model.attention_dropout, ATTENTION_STREAM + k)
    y = b.reduce(b.scale_heads(attention, source), "sum")
    return y if b.width(y) == layer.width else b.mean_of_heads(y, heads)


CONVOLUTIONS = {"sage": _sage, "gat": _gat}
