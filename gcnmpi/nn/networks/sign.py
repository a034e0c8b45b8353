"""SIGN (Frasca et al. 2020): linear layers on H⁰, M·H⁰, M²·H⁰ …, and one on all of them.

In files: ``lins.0.…`` to ``lins.K.…`` for each power of M, ``lin.…``.
"""

from __future__ import annotations

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.stack import BRANCH_STREAM, between
from gcnmpi.options.model import SignOptions
from partition.errors import UserError

HOPS = 3


def build(model: SignOptions, features: int, classes: int) -> Network:
    """Branches ``lins.k`` and the classifier ``lin``, as PyTorch Geometric's example has it."""
    if len(model.hidden) != 1:
        raise UserError("a sign has one hidden layer", "such as model.hidden = 64")
    b = Builder(features)
    power = b.drop(b.input, model.input_dropout, 0)
    branches = []
    for k in range((model.hops or HOPS) + 1):
        power = b.aggregate(power) if k else power
        x = b.linear(power, model.hidden[0], f"lins.{k}", bias=model.bias, layer=1)
        branches.append(between(b, model, x, k + 1, BRANCH_STREAM + k))
    b.output(b.linear_of_all(branches, classes, "lin", bias=model.bias))
    return b.build()
