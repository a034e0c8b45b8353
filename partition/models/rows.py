"""The rows of M alone: the model of tools that do not look at the arcs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from partition.graph.graph import Graph, row_sizes


@dataclass(frozen=True)
class RowModel:
    """Rows and nothing between them, for tools that do not look at the arcs.

    Attributes
    ----------
    weights : (n,) int64
    """

    weights: np.ndarray


def row_model(graph: Graph, direction: str = "in") -> RowModel:
    """The rows of M with their weights alone."""
    return RowModel(row_sizes(graph, direction))
