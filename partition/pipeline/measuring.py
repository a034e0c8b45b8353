"""The measurements of every partition that is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from partition.graph.graph import DIRECTIONS, Graph
from partition.graph.metrics import (
    Metrics,
    NodeTraffic,
    exchange_matrix,
    measure,
    measure_mixed,
    measure_mixed_both,
    node_traffic,
)
from partition.graph.store import Manifest, StoredGraph
from partition.signals import at_once

if TYPE_CHECKING:
    from partition.refinement.objective import Objective

# The time that measuring takes, of rows and mixed, in both directions; and the most of a time
# limit that is kept for it.
SECONDS_PER_ARC, MOST_SHARE = 0.8e-6, 0.3


@at_once()
def measure_both(
    graph: Graph, manifest: Manifest, parts: np.ndarray, k: int, mixed: bool = False
) -> dict[str, Metrics]:
    """The metrics in both directions, of the exchange of rows or the mixed one.

    There is one measurement where the pattern is symmetric.
    """
    how = measure_mixed if mixed else measure
    if manifest.symmetric_pattern:
        metrics = how(graph, parts, k, "in")
        return {"in": metrics, "out": replace(metrics, direction="out")}
    if mixed:
        return measure_mixed_both(graph, parts, k)
    return {direction: how(graph, parts, k, direction) for direction in DIRECTIONS}


@at_once()
def measure_relations(stored: StoredGraph, parts: np.ndarray, k: int) -> dict[str, Metrics]:
    """The metrics of the mixed exchange by relation in both directions; nothing without any."""
    if not stored.manifest.relations:
        return {}
    return measure_mixed_both(stored.graph, parts, k, by_relation=True)


@dataclass(frozen=True)
class Figures:
    """Figures of a stored partition: metrics of both exchanges and traffic of nodes, by direction.

    ``nodes`` is empty where parts are not mapped to nodes, ``by_relation`` where there are no
    relations.
    """

    metrics: dict[str, Metrics]
    mixed: dict[str, Metrics]
    by_relation: dict[str, Metrics]
    nodes: dict[str, NodeTraffic]

    def of(self, exchange: str, direction: str) -> Metrics:
        """The metrics of an exchange."""
        return (self.mixed if exchange == "mixed" else self.metrics)[direction]


def figures_of(
    stored: StoredGraph, parts: np.ndarray, k: int, ranks_per_node: int | None = None,
    working: Callable[[str], None] = lambda stage: None,
) -> Figures:  # fmt: skip
    """Measure a partition that is to be stored."""
    graph, manifest = stored.merged, stored.manifest
    working("measuring rows")
    metrics = measure_both(graph, manifest, parts, k)
    working("measuring the mixed exchange")
    mixed = measure_both(graph, manifest, parts, k, mixed=True)
    by_relation = measure_relations(stored, parts, k)
    nodes = measure_nodes(graph, manifest, parts, k, ranks_per_node)
    return Figures(metrics, mixed, by_relation, nodes)


def measured(objective: Objective) -> Callable[..., Metrics]:
    """The measurement of the exchange that a refinement is for."""
    return measure_mixed if objective.exchange == "mixed" else measure


@at_once()
def measure_nodes(
    graph: Graph, manifest: Manifest, parts: np.ndarray, k: int, ranks_per_node: int | None
) -> dict[str, NodeTraffic]:
    """Traffic between nodes in both directions; nothing without ``ranks_per_node``."""
    if ranks_per_node is None:
        return {}
    traffic: dict[str, NodeTraffic] = {}
    for direction in DIRECTIONS:
        if direction == "out" and manifest.symmetric_pattern:
            traffic["out"] = traffic["in"]
        else:
            exchange = exchange_matrix(graph, parts, k, direction)
            traffic[direction] = node_traffic(exchange, ranks_per_node)
    return traffic


def measuring_share(manifest: Manifest, time_limit: float | None) -> float:
    """The share of a time limit that is kept for measuring what was made."""
    if time_limit is None:
        return 0.0
    return min(MOST_SHARE, SECONDS_PER_ARC * manifest.nnz / time_limit)
