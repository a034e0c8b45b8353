"""CompGCN (Vashishth, Sanyal, Nitin and Talukdar 2020): messages composed with relations.

Time grows with groups × columns + vertices × columns in × columns out, where a group is
the arcs of one relation into one vertex.

In files: as its authors' program: not transposed ``w_out``, with reverses ``w_in``, ``w_loop`` (d,
e), ``loop_rel`` (types, d), ``bias``, and ``w_rel`` of all layers but the last; ``init_rel``, or
``rel_wt`` and ``rel_basis``.
"""

from __future__ import annotations

from collections.abc import Callable

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.stack import Layer, stack
from gcnmpi.options.model import CompgcnOptions
from partition.graph.relations import Schema


def build(
    model: CompgcnOptions, features: int, classes: int, arcs: int, on: str, schema: Schema
) -> Network:
    """A stack of layers, each of which also has a vector of every relation, z(r).

    For the arcs of relations, for those of their reverses and for the vertex itself, the mean of
    φ(xⱼ, z(r)) times a weight of this direction, added up (equations 2 and 3); then z(r) times a
    weight for the next layer (equation 6). The first z(r) are trained, or sums of ``model.bases``
    vectors that are (equation 5). A vertex itself has a vector of its type in each layer, as the
    loop of the authors' program has one, whose type is the only one.

    The paper adds up all arcs, which grows with the degree; the authors' program divides by the
    roots of both ends' degrees in this direction, and so leaves out neighbours that no arc of the
    direction leads to. A mean over the arcs of a direction has neither trouble, and is equal to
    theirs where degrees are.

    φ is linear in xⱼ: it is applied to the mean of the arcs of one relation into a vertex, of which
    there are fewer than arcs, and weights to the sums of vertices. The rows of x are sent once for
    all relations.
    """
    vectors: list[int] = []

    def convolve(b: Builder, x: int, layer: Layer) -> int:
        name, k, inner = layer.name, layer.k, b.width(x)
        compose = COMPOSITIONS[model.composition]

        def product(rows: int, weight: str) -> int:
            return b.product(rows, layer.width, f"{name}.{weight}", k)

        means = b.mean_by_relation(x)
        z = _vectors(b, model, means, vectors[-1] if vectors else None, inner, k)
        vectors.append(z)
        if model.composition == "sub":
            z = b.scale_heads(b.weight_of_groups(), z)
        loop = b.row_by_kind(x, inner, f"{name}.loop_rel", k, "glorot")
        terms = [product(compose(b, x, loop), "w_loop")]
        of_groups = compose(b, means, z)
        for turned in sorted({*b.schema.turned}):
            way = "w_in" if turned else "w_out"
            terms.append(product(b.mean_by_direction(of_groups, turned), way))
        y = b.sum(terms)
        return b.bias(y, f"{name}.bias", k) if model.bias else y

    return stack(model, features, classes, convolve, schema=schema)


def _vectors(
    b: Builder, model: CompgcnOptions, like: int, before: int | None, width: int, k: int
) -> int:
    """z(r) of layer k for each row of ``like``, from those of the layer before."""
    if before is not None:
        return b.row_times(before, like, width, f"convs.{k - 2}.w_rel", k - 1)
    if not model.bases:
        return b.row_by_kind(like, width, "init_rel", k, "glorot")
    mix = b.row_by_kind(like, model.bases, "rel_wt", k, "glorot")
    return b.row_times(mix, like, width, "rel_basis", k)


COMPOSITIONS: dict[str, Callable[[Builder, int, int], int]] = {
    "sub": lambda b, x, z: b.add(x, b.scale(z, -1.0)),
    "mult": Builder.multiply,
}
