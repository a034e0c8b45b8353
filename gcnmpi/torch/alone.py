"""Modules that give something else on each number of ranks, because they see one rank's rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from gcnmpi.torch.ranks import user_level

_POOLS = "pools the rows of one rank: use g.collective, or g.gather"
_CHOOSES = "chooses among the rows of one rank"
_CENTRED = "takes the moments of one rank's rows: use g.batch_norm(width)"
SHARED = "takes the sum of one rank's rows: use g.collective.softmax"
OF_ROWS = "takes the moments of one rank's rows: use g.norm('{}', width)"
HOPS = (
    "needs rows beyond those of neighbours: use g.aggregate once for each hop, or a layer and a "
    "g.expand for each"
)
DEGREES = (
    "takes degrees from edges, which lead to own rows only: use g.aggregate, or {}=False with "
    "g.edge_weight"
)
_ATTENDS = "lets the rows of one rank attend to each other, if they are its sequence"
RANDOM = "draws other random numbers on each number of ranks: use g.dropout(h, p, epoch, layer)"
ATTENTION = "draws other random numbers on each number of ranks, with dropout above 0"
LAYERS = "exchanges no rows between its layers: write them out, with a g.expand for each"

Rule = tuple[str, Callable[[Any], bool]]


def _always(_: object) -> bool:
    return True


def _has(name: str, *values: object) -> Callable[[object], bool]:
    return lambda module: getattr(module, name, None) in values


# Name of a class, or of one that it inherits from, → what is told, and where that is so.
_TORCH: dict[str, Rule] = {
    "_BatchNorm": (_CENTRED, _always),
    "_DropoutNd": (RANDOM, lambda module: module.p > 0),
    "RReLU": ("draws other slopes on each number of ranks: use LeakyReLU", _always),
    "Softmax": (SHARED, _has("dim", 0)),
    "LogSoftmax": (SHARED, _has("dim", 0)),
    "MultiheadAttention": (_ATTENDS, _always),
}
_PYG: dict[str, Rule] = {
    **dict.fromkeys(
        ("BatchNorm", "HeteroBatchNorm", "InstanceNorm", "DiffGroupNorm"), (_CENTRED, _always),
    ),
    "GraphNorm": (OF_ROWS.format("graph"), _always),
    "PairNorm": (OF_ROWS.format("pair"), _always),
    "MeanSubtractionNorm": (OF_ROWS.format("mean"), _always),
    "LayerNorm": (OF_ROWS.format("layer") + ", or mode='node'", _has("mode", "graph")),
    "GraphSizeNorm": ("divides by the number of one rank's rows: use h / g.n**0.5", _always),
    "Aggregation": (_POOLS, _always),
    **dict.fromkeys(
        ("TopKPooling", "SAGPooling", "EdgePooling", "ClusterPooling", "ASAPooling", "PANPooling",
         "MemPooling", "SelectTopK", "DynamicEdgeConv", "GravNetConv", "XConv", "KNNIndex"),
        (_CHOOSES, _always),
    ),
    "WLConv": ("numbers the colours of each rank on its own", _always),
    **dict.fromkeys(
        ("ChebConv", "GatedGraphConv", "TAGConv", "ARMAConv", "SGConv", "SSGConv", "APPNP",
         "MixHopConv", "DirGNNConv", "HypergraphConv", "LabelPropagation"), (HOPS, _always),
    ),
    **dict.fromkeys(
        ("GCNConv", "GCN2Conv", "LGConv", "FAConv", "PDNConv", "DNAConv"),
        (DEGREES.format("normalize"), lambda module: module.normalize),
    ),
    "EGConv": (DEGREES.partition(",")[0] + ": leave symnorm out",
               lambda module: "symnorm" in module.aggregators),
    "AntiSymmetricConv": (HOPS, lambda module: module.num_iters > 1),
    **dict.fromkeys(
        ("GPSConv", "PerformerAttention", "SGFormerAttention", "PolynormerAttention"),
        (_ATTENDS.partition(",")[0], _always),
    ),
}  # fmt: skip
RULES = {"torch": _TORCH, "torch_geometric": _PYG}


def alone(model: torch.nn.Module) -> Iterator[str]:
    """A line for each module of a model that sees one rank's rows where it should see all."""
    return _within("", model, False)


def _within(path: str, module: torch.nn.Module, of_layer: bool) -> Iterator[str]:
    told = None if of_layer and _is(module, "Aggregation") else _told(module)
    if told:
        yield f"{path or 'the model'}: {type(module).__name__} {told}"
        return
    within = _is(module, "MessagePassing")
    for name, child in module.named_children():
        yield from _within(f"{path}.{name}" if path else name, child, within or of_layer)


def _told(module: torch.nn.Module) -> str | None:
    forward = getattr(type(module).forward, "__module__", "")
    if forward.partition(".")[0] not in RULES:
        return None  # a layer with a forward pass of the user's own
    for kind in type(module).__mro__:
        rules = RULES.get(kind.__module__.partition(".")[0], {})
        told, applies = rules.get(kind.__name__, ("", _always))
        if told and applies(module):
            return told
    if _is(module, "MessagePassing"):
        dropout = getattr(module, "dropout", 0.0)
        return ATTENTION if isinstance(dropout, float) and dropout > 0 else None
    if type(module).__module__.startswith("torch_geometric.nn.models."):
        layers = sum(_is(part, "MessagePassing") for part in module.modules())
        return LAYERS if layers > 1 else None
    return None


def _is(module: torch.nn.Module, name: str) -> bool:
    return any(
        kind.__name__ == name and kind.__module__.startswith("torch_geometric")
        for kind in type(module).__mro__
    )


def warned(model: torch.nn.Module, rank: int) -> list[str]:
    """The lines of :func:`alone`; rank 0 warns of them, at the line of the user's program."""
    lines = list(alone(model))
    for line in lines if rank == 0 else ():
        warnings.warn(line, stacklevel=user_level())
    return lines
