"""KaHyPar (Schlag et al.): direct k-way hypergraph partitioning. GPL, so an optional extra."""

import kahypar
import numpy as np

from partition.backends import Option, Tool, settings_file
from partition.models.descriptions import HypergraphModel
from partition.registry import Settings

_PRESETS: dict[str, Settings] = {
    "default": {"r-type": "kway_fm_km1"},
    # Flows are where its quality and most of its time come from; without them it moves single
    # vertices.
    "quality": {
        "r-type": "kway_fm_hyperflow_cutter_km1",
        "r-flow-execution-policy": "exponential",
        "r-hfc-size-constraint": "mf-style",
        "r-hfc-scaling": 16,
        "r-hfc-distance-based-piercing": "true",
        "r-hfc-mbc": "true",
    },
}


def _partition(
    model: HypergraphModel, k: int, *, imbalance: float, seed: int, preset: str
) -> np.ndarray:
    """Partition the hypergraph for connectivity−1."""
    n, nets = len(model.weights), model.nets
    if model.indptr[-1] == nets:  # no net has two pins, and it would crash
        return np.arange(n, dtype=np.int32) % k
    hypergraph = kahypar.Hypergraph(
        n, nets, model.indptr, model.pins, k, model.net_costs(), model.weights
    )
    context = kahypar.Context()
    with settings_file("kahypar.ini", _PRESETS[preset]) as file:
        context.loadINIconfiguration(file)
    context.setK(k)
    context.setEpsilon(imbalance)
    context.setSeed(seed)
    context.suppressOutput(True)
    kahypar.partition(hypergraph, context)
    return np.array([hypergraph.blockID(i) for i in range(n)], dtype=np.int32)


TOOL = Tool(
    _partition,
    options={"preset": Option("default", "quality adds flow-based refinement", tuple(_PRESETS))},
    distribution="kahypar",
)
