"""KaHyPar (Schlag et al.): direct k-way hypergraph partitioning. GPL, so an optional extra."""

from __future__ import annotations

import kahypar
import numpy as np

from partition.backends import Option, Tool, settings_file
from partition.models.hypergraph import HypergraphModel

# Flows are where its quality and most of its time come from; without them it moves single vertices.
COARSENING: dict[str, str | float] = {
    "c-type": "ml_style",
    "c-s": 1,
    "c-t": 160,
    "c-rating-score": "heavy_edge",
    "c-rating-use-communities": "true",
    "c-rating-heavy_node_penalty": "no_penalty",
    "c-rating-acceptance-criterion": "best_prefer_unmatched",
    "c-fixed-vertex-acceptance-criterion": "fixed_vertex_allowed",
}
SETTINGS: dict[str, str | float] = {
    "mode": "direct",
    "objective": "km1",
    "seed": -1,
    "cmaxnet": 1000,
    "vcycles": 0,
    # Preparation: similar vertices merged, communities, very large nets left out.
    "p-use-sparsifier": "true",
    "p-sparsifier-min-median-he-size": 28,
    "p-sparsifier-max-hyperedge-size": 1200,
    "p-sparsifier-max-cluster-size": 10,
    "p-sparsifier-min-cluster-size": 2,
    "p-sparsifier-num-hash-func": 5,
    "p-sparsifier-combined-num-hash-func": 100,
    "p-detect-communities": "true",
    "p-detect-communities-in-ip": "true",
    "p-reuse-communities": "false",
    "p-max-louvain-pass-iterations": 100,
    "p-min-eps-improvement": 0.0001,
    "p-louvain-edge-weight": "hybrid",
    "p-large-he-threshold": 1000,
    "p-smallest-maxnet-threshold": 50000,
    "p-maxnet-removal-factor": 0.01,
    # Coarsening, and recursive bisection of the coarsest hypergraph.
    **COARSENING,
    **{f"i-{key}": value for key, value in COARSENING.items()},
    "i-mode": "recursive",
    "i-technique": "multi",
    "i-c-t": 150,
    "i-algo": "pool",
    "i-runs": 20,
    "i-bp-algorithm": "worst_fit",
    "i-bp-heuristic-prepacking": "false",
    "i-bp-early-restart": "true",
    "i-bp-late-restart": "true",
    "i-r-type": "twoway_fm",
    "i-r-runs": -1,
    "i-r-fm-stop": "simple",
    "i-r-fm-stop-i": 50,
    # Refinement.
    "r-runs": -1,
    "r-fm-stop": "adaptive_opt",
    "r-fm-stop-alpha": 1,
    "r-fm-stop-i": 350,
}
FLOWS: dict[str, str | float] = {
    "r-flow-execution-policy": "exponential",
    "r-hfc-size-constraint": "mf-style",
    "r-hfc-scaling": 16,
    "r-hfc-distance-based-piercing": "true",
    "r-hfc-mbc": "true",
}
PRESETS: dict[str, dict[str, str | float]] = {
    "default": {"r-type": "kway_fm_km1"},
    "quality": {"r-type": "kway_fm_hyperflow_cutter_km1", **FLOWS},
}


def partition(
    model: HypergraphModel, k: int, *, imbalance: float, seed: int, preset: str
) -> np.ndarray:
    """Partition the hypergraph for connectivity−1."""
    n = len(model.weights)
    nets = model.nets
    if model.indptr[-1] == nets:  # no net has two pins, and it would crash
        return np.arange(n, dtype=np.int32) % k
    hypergraph = kahypar.Hypergraph(
        n, nets, model.indptr, model.pins, k, model.net_costs(), model.weights
    )
    context = kahypar.Context()
    with settings_file(SETTINGS | PRESETS[preset]) as file:
        context.loadINIconfiguration(file)
    context.setK(k)
    context.setEpsilon(imbalance)
    context.setSeed(seed)
    context.suppressOutput(True)
    kahypar.partition(hypergraph, context)
    return np.array([hypergraph.blockID(i) for i in range(n)], dtype=np.int32)


TOOL = Tool(
    partition,
    options={"preset": Option("default", "quality adds flow-based refinement", tuple(PRESETS))},
    distribution="kahypar",
)
