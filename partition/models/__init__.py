"""Input of partitioning tools: a graph or a hypergraph made from the pattern of M."""
