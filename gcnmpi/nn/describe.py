"""The network and the aggregation matrix that a configuration asks for."""

from __future__ import annotations

from dataclasses import replace

from gcnmpi.core.config import Config, GraphConfig
from gcnmpi.core.model_config import ModelConfig
from gcnmpi.nn.network import Network
from gcnmpi.nn.networks import MATRICES, NETWORKS


def network_of(model: ModelConfig, features: int, classes: int) -> Network:
    """The network of that name, for features and classes of a graph.

    Raises
    ------
    UserError
        If it cannot be built of what ``model`` says.
    """
    return NETWORKS.get(model.name)(model, features, classes)


def matrix_of(model: ModelConfig) -> tuple[str, bool] | None:
    """``graph.normalize`` and ``graph.self_loops`` that the network is defined with, if any."""
    return MATRICES.get(model.name)(model) if model.name in MATRICES else None


def graph_of(config: Config) -> GraphConfig:
    """``[graph]`` with what the network fixes of it."""
    fixed = matrix_of(config.model)
    if fixed is None:
        return config.graph
    return replace(config.graph, normalize=fixed[0], self_loops=fixed[1])
