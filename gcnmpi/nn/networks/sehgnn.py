"""SeHGNN (Yang et al. 2023): means along metapaths, made once, and layers on all of them.

Time grows with metapaths × vertices of the type × columns.

In files: ``lins.0.…`` for each metapath in the order of ``gcnmpi info G.graph --program``,
``mlp.0.…`` on all of them, ``mlp.1.…``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.stack import BRANCH_STREAM, between
from gcnmpi.options.model import SehgnnOptions
from partition.errors import UserError
from partition.graph.relations import Schema, needs_relations

HOPS = 2
MOST = 1000
"""So many metapaths may there be: each has a weight of its own, and rows that are kept."""


def build(
    model: SehgnnOptions, features: int, classes: int, arcs: int, on: str, schema: Schema
) -> Network:
    """Branches ``lins.k`` of a metapath each, and layers ``mlp.k`` on all of them.

    A metapath is a list of up to ``model.hops`` relations, the last of which is into the type
    ``model.target``. Its value is the mean over neighbours by each of them in turn of the features
    at its beginning (section 4.1; means by relation, as there). Each has a linear layer, norm,
    activation and dropout; a multilayer perceptron of all together gives the logits of the
    vertices of that type, which others have 0 for. The attention between metapaths of section 4.2
    is left out.
    """
    if not model.hidden:
        raise UserError("a sehgnn has a hidden layer", "such as model.hidden = 64")
    b = Builder(features, arcs, schema)
    target = _target(needs_relations(b.schema), model.target)
    x = b.drop(b.input, model.input_dropout, 0)
    branches, hidden = [], model.hidden
    for at, metapath in enumerate(_metapaths(b, x, model.hops or HOPS, target)):
        if at == MOST:
            raise UserError(
                f"there are more than {MOST:,} metapaths of up to {model.hops or HOPS} relations",
                "fewer model.hops",
            )
        y = b.linear(metapath, hidden[0], f"lins.{at}", bias=model.bias, layer=1)
        branches.append(between(b, model, y, at + 1, BRANCH_STREAM + at))
    if not branches:
        raise UserError(
            f"no metapath of up to {model.hops or HOPS} relations leads from features to "
            f"{b.schema.types[target]}",
            "more model.hops, or --reverse when the graph is imported",
        )
    first, *others = *hidden[1:], classes
    y = b.linear_of_all(branches, first, "mlp.0", bias=model.bias)
    for k, width in enumerate(others, start=1):
        y = between(b, model, y, len(branches) + k, k)
        y = b.linear(y, width, f"mlp.{k}", bias=model.bias)
    b.output(b.spread(y, target))
    return b.build()


def _target(schema: Schema, name: str) -> int:
    """The number of the type of vertices that results are wanted of."""
    types = schema.types
    if not name and len(types) > 1:
        raise UserError(
            f"model.target is not given, and the graph has {len(types)} types of vertices",
            f"model.target = {' or '.join(types)}",
        )
    return schema.number_of(name or types[0])


def _metapaths(b: Builder, x: int, hops: int, target: int) -> Iterator[int]:
    """The features that vertices of the type ``target`` get by each metapath."""
    schema, first = b.schema, 0
    near = [{target}]  # types from which it is so many relations to the target, or less
    for _ in range(hops):
        near.append(near[-1] | {schema.ends[r][0] for t in near[-1] for r in schema.into[t]})
    if not schema.features:
        yield from _from(b, x, near[hops], near)
    for name, width in schema.features:
        own = {schema.number_of(name)} & near[hops]
        yield from _from(b, b.columns(x, first, width), own, near)
        first += width


def _from(b: Builder, x: int, types: Collection[int], near: list[set[int]]) -> Iterator[int]:
    """The metapaths that begin with rows of x, which are those of vertices of some types.

    Several metapaths to different types are rows of one matrix.
    """
    *nearer, _ = near
    (target,) = near[0]
    if target in types:
        yield b.pick(x, target)
    if not nearer:
        return
    ends, into = b.schema.ends, b.schema.into
    by_type = {t: [r for r in into[t] if ends[r][0] in types] for t in sorted(nearer[-1])}
    for place in range(max(map(len, by_type.values()))):
        which = {t: found[place] for t, found in by_type.items() if place < len(found)}
        if len(nearer) == 1:
            yield b.mean_of(x, [*which.values()], target)
        else:
            yield from _from(b, b.mean_of(x, [*which.values()]), which.keys(), nearer)
