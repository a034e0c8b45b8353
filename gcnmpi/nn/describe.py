"""The network and the aggregation matrix that a configuration asks for."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature

from gcnmpi.nn.network import Network
from gcnmpi.options.config import Config, GraphConfig
from gcnmpi.options.model import MATRICES, NETWORKS, ModelConfig
from gcnmpi.options.own_code import called, is_own
from partition.errors import UserError


def network_of(model: ModelConfig, features: int, classes: int, arcs: int = 0) -> Network:
    """The network of that name, for features and classes of a graph, and the features of its arcs.

    A UserError if it cannot be built of what ``model`` says.
    """
    build = NETWORKS.get(model.name)
    widths = [features, classes]
    if len(signature(build).parameters) > 3:
        widths.append(arcs)
    if not is_own(model.name):
        return build(model, *widths)
    made = called(model.name, lambda: build(model, *widths))
    if not isinstance(made, Network):
        raise UserError(
            f"{model.name} gives a {type(made).__name__}, not a network",
            "its last line is return b.build(), or return stack(…)",
        )
    return made


def matrix_of(model: ModelConfig) -> tuple[str, bool] | None:
    """``graph.normalize`` and ``graph.self_loops`` that the network is defined with, if any."""
    if is_own(model.name):
        fixed = getattr(NETWORKS.get(model.name), "matrix", None)
        return None if fixed is None else called(model.name, lambda: fixed(model))
    return MATRICES.get(model.name)(model) if model.name in MATRICES else None


def graph_of(config: Config) -> GraphConfig:
    """``[graph]`` with what the network fixes of it."""
    fixed = matrix_of(config.model)
    if fixed is None:
        return config.graph
    return replace(config.graph, normalize=fixed[0], self_loops=fixed[1])
