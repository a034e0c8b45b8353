"""MeshGraphNet (Pfaff et al. 2021): blocks of messages add to states of vertices and of arcs.

In files: as PhysicsNeMo's: ``node_encoder.model.0.…``, ``edge_encoder…``,
``processor.processor_layers.0.edge_mlp.model.0.…``, ``….1.node_mlp…`` for each block,
``node_decoder…``; columns of the first weights are [e | xⱼ | xᵢ] and [Σ e | x].
"""

from __future__ import annotations

from collections.abc import Sequence

from gcnmpi.nn.network import Builder, Network
from gcnmpi.options.model import MeshOptions
from partition.errors import UserError
from partition.graph.graph import ARCS, VERTICES


def build(
    model: MeshOptions, features: int, classes: int, arcs: int, on: str = VERTICES
) -> Network:
    """Encoders, a block for each hidden layer and a decoder, with the names of PhysicsNeMo's.

    A block gives e ← e + MLP([e | xⱼ | xᵢ]), then x ← x + MLP([Σ e | x]). Without features of arcs,
    e begins with the first block. Logits of arcs are MLP([e | xⱼ | xᵢ]) of the last states, as of
    the interaction networks that classify arcs of particle tracks (Exa.TrkX).
    """
    if len(set(model.hidden)) != 1:
        raise UserError(
            "an mgn has hidden layers, all of one width",
            "--set model.hidden=128 --set model.layers=15 for 15 blocks",
        )
    b = Builder(features, arcs)
    width, *_ = model.hidden
    x = b.drop(b.input, model.input_dropout, 0)
    x = _perceptron(b, model, [x], width, "node_encoder")
    of_arcs = [_perceptron(b, model, [b.arc_features()], width, "edge_encoder")] if arcs else []
    for k in range(1, len(model.hidden) + 1):
        edge, node = (f"processor.processor_layers.{2 * k - 2 + i}" for i in range(2))
        parts = [*of_arcs, b.source(x), b.target(x)]
        of_arcs.append(_perceptron(b, model, parts, width, f"{edge}.edge_mlp"))
        of_arcs = [b.sum(of_arcs)]
        parts = [b.reduce(of_arcs[0], model.reduction), x]
        change = _perceptron(b, model, parts, width, f"{node}.node_mlp")
        x = b.add(x, b.drop(change, model.dropout, k))
        b.output(x)
    last, name = [x], "node_decoder"
    if on == ARCS:
        last, name = [*of_arcs, b.source(x), b.target(x)], "edge_decoder"
    b.output(_perceptron(b, model, last, classes, name, norm=False))
    return b.build()


def _perceptron(
    b: Builder, model: MeshOptions, parts: Sequence[int], width: int, name: str, norm: bool = True
) -> int:
    """Hidden layers as wide as the states, a linear one, and the norm of each row."""
    x = b.linear_of_all(parts, model.hidden[0], f"{name}.model.0", bias=model.bias)
    for number in range(1, 2 * model.mlp_layers, 2):
        x = b.activate(x, model.activation, f"{name}.model.{number}.weight")
        last = number == 2 * model.mlp_layers - 1
        columns = width if last else model.hidden[0]
        x = b.linear(x, columns, f"{name}.model.{number + 1}", bias=model.bias)
    return b.layer_norm(x, f"{name}.model.{2 * model.mlp_layers + 1}") if norm else x
