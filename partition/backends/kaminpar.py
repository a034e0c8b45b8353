"""KaMinPar (Gottesbüren, Heuer, Sanders, Schulz, Seemaier): deep multilevel graph partitioning."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import kaminpar
import numpy as np

from partition.backends import HUGE, Option, Tool
from partition.errors import UserError
from partition.models.graph import GraphModel

PRESETS = ("default", "eco", "strong", "fast", "terapart", "largek")
AUTOMATIC = "auto"
# The first word of a ParHIP file: no weights of edges, weights of vertices, 64 bits everywhere.
PARHIP = 1


def partition(
    model: GraphModel, k: int, *, imbalance: float, seed: int, preset: str, threads: int
) -> np.ndarray:
    """Partition the symmetrised graph for few cut edges.

    The library takes graphs from files alone; ``terapart`` keeps them compressed in memory.
    """
    kaminpar.reseed(seed)
    with tempfile.NamedTemporaryFile(suffix=".parhip") as file:
        _write(Path(file.name), model)
        graph = kaminpar.load_graph(
            file.name, kaminpar.GraphFileFormat.PARHIP, compress=preset == "terapart"
        )
    solver = kaminpar.KaMinPar(threads, kaminpar.context_by_name(preset))
    return np.array(solver.compute_partition(graph, k, eps=imbalance), dtype=np.int32)


def settle(options: dict[str, Any], arcs: int) -> dict[str, Any]:
    """The preset decided: a UserError if the number of threads is none."""
    if options["threads"] < 1:
        raise UserError(f"threads = {options['threads']}: it takes at least one")
    preset = options["preset"]
    if preset == AUTOMATIC:
        preset = "terapart" if arcs > HUGE else "eco"
    return {**options, "preset": preset}


def _write(path: Path, model: GraphModel) -> None:
    """The graph as ParHIP's binary format has it: where neighbours begin, in bytes of the file."""
    n, arcs = len(model.weights), len(model.indices)
    head = np.array([PARHIP, n, arcs], np.uint64)
    with path.open("wb") as file:
        head.tofile(file)
        begin = head.nbytes + 8 * (n + 1)
        (begin + 8 * np.asarray(model.indptr, np.uint64)).tofile(file)
        for first in range(0, arcs, 1 << 22):
            np.asarray(model.indices[first : first + (1 << 22)], np.uint64).tofile(file)
        np.asarray(model.weights, np.int64).tofile(file)


TOOL = Tool(
    partition,
    options={
        "preset": Option(
            AUTOMATIC,
            f"how much effort; {AUTOMATIC}: eco, or terapart beyond {HUGE:,} arcs",
            (AUTOMATIC, *PRESETS),
        ),
        "threads": Option(1, "number of threads; with several, the parts differ from run to run"),
    },
    distribution="kaminpar",
    deterministic=lambda options: options["threads"] == 1,
    settle=settle,
)
