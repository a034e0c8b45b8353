"""The network and the aggregation matrix that a configuration asks for."""

from __future__ import annotations

from dataclasses import replace

from gcnmpi.nn.network import Network
from gcnmpi.options.config import Config, GraphConfig
from gcnmpi.options.model import MATRICES, NETWORKS, ModelConfig
from gcnmpi.options.own_code import called, is_own
from partition.errors import UserError


def network_of(model: ModelConfig, features: int, classes: int) -> Network:
    """The network of that name, for features and classes of a graph.

    A UserError if it cannot be built of what ``model`` says.
    """
    build = NETWORKS.get(model.name)
    if not is_own(model.name):
        return build(model, features, classes)
    made = called(model.name, lambda: build(model, features, classes))
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
