"""Which pieces of a network's parameters a rank has, and how whole ones get there."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.nn.network import Network
from gcnmpi.nn.optim import Parameters
from gcnmpi.nn.program import Program
from gcnmpi.schemes.interface import Scheme

Shapes = dict[str, tuple[int, ...]]


def shapes_of(scheme: Scheme, network: Network, program: Program) -> tuple[Shapes, Shapes]:
    """Shapes of what this rank has a piece of, and of what it has whole."""
    weights: Shapes = {}
    vectors: Shapes = {}
    for name, parameter in network.parameters.items():
        if parameter.is_weight:
            k = program.weight_layers[name]
            weights[name] = scheme.weight_shape(k, *parameter.shape)
        else:
            vectors[name] = parameter.shape
    return (weights, vectors) if scheme.sharded else ({}, weights | vectors)


def fill(
    scheme: Scheme,
    kernel: Kernel,
    network: Network,
    program: Program,
    parameters: Parameters,
    flat: Array,
    whole: Mapping[str, np.ndarray],
) -> None:
    """Whole parameters, or moments of them, into ``flat``, which is laid out as ``parameters``."""
    for name, parameter in network.parameters.items():
        piece = whole[name]
        if parameter.is_weight:
            piece = scheme.shard(program.weight_layers[name], piece)
        view = parameters[name]
        target = flat[parameters.slices[name]].reshape(view.shape)
        kernel.copy(kernel.from_host(piece), target)
