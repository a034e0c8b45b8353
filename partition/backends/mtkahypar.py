"""Mt-KaHyPar (Gottesbüren, Heuer, Maas, Sanders): multi-threaded hypergraph partitioning."""

from __future__ import annotations

import os

import mtkahypar
import numpy as np

from partition.backends import Option, Tool
from partition.errors import UserError
from partition.models import HypergraphModel

PRESETS = {
    "deterministic": mtkahypar.PresetType.DETERMINISTIC,
    "deterministic-quality": mtkahypar.PresetType.DETERMINISTIC_QUALITY,
    "default": mtkahypar.PresetType.DEFAULT,
    "quality": mtkahypar.PresetType.QUALITY,
    "highest-quality": mtkahypar.PresetType.HIGHEST_QUALITY,
    "large-k": mtkahypar.PresetType.LARGE_K,
}


def partition(
    model: HypergraphModel, k: int, *, imbalance: float, seed: int, preset: str, threads: int
) -> np.ndarray:
    """Partition the hypergraph for connectivity−1.

    Raises
    ------
    UserError
        If the hypergraph has more pins than the tool's 32-bit numbers count.
    """
    n = len(model.weights)
    if model.indptr[-1] >= 2**31 or model.weights.sum() >= 2**31:
        raise UserError(
            f"Mt-KaHyPar counts in 32 bits: {model.indptr[-1]} pins are too many",
            "use --model gp",
        )
    mtk = mtkahypar.initialize(threads or len(os.sched_getaffinity(0)), print_warnings=False)
    mtkahypar.set_seed(seed)
    context = mtk.context_from_preset(PRESETS[preset])
    context.set_partitioning_parameters(k, imbalance, mtkahypar.Objective.KM1)
    context.logging = False
    costs = np.ones(n, dtype=np.int64)
    hypergraph = mtk.create_hypergraph(context, n, n, _Nets(model), model.weights, costs)
    return np.array(hypergraph.partition(context).get_partition(), dtype=np.int32)


class _Nets:
    """The nets as a sequence whose items are made when asked for: no lists of all pins."""

    def __init__(self, model: HypergraphModel) -> None:
        self._indptr, self._pins = model.indptr, model.pins

    def __len__(self) -> int:
        return len(self._indptr) - 1

    def __getitem__(self, j: int) -> list[int]:
        return self._pins[self._indptr[j] : self._indptr[j + 1]].tolist()


TOOL = Tool(
    partition,
    options={
        "preset": Option("deterministic", "effort of Mt-KaHyPar", tuple(PRESETS)),
        "threads": Option(0, "threads of Mt-KaHyPar; 0: all cores of this process"),
    },
    distribution="mtkahypar",
    deterministic=lambda options: options["preset"].startswith("deterministic"),
)
