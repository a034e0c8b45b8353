"""Input of partitioning tools: a graph or a hypergraph made from the pattern of M.

Every model has ``weights``: the entries of each row of M, the arithmetic that a vertex brings.
"""

from partition.models.graph import GraphModel, RowModel
from partition.models.hypergraph import HypergraphModel

Description = RowModel | GraphModel | HypergraphModel
