"""KaMinPar (Gottesbüren, Heuer, Sanders, Schulz, Seemaier): deep multilevel graph partitioning."""

import tempfile
from pathlib import Path

import kaminpar
import numpy as np

from partition.backends import Option, Tool
from partition.models.descriptions import GraphModel
from partition.resident import let_go

_PRESETS = (
    "default", "eco", "strong", "fast", "terapart", "terapart-eco", "largek", "largek-eco",
    "largek-strong",
)  # fmt: skip
# The first word of a ParHIP file: no weights of edges, weights of vertices, and 64 bits everywhere,
# or numbers of vertices in 32.
_PARHIP, _NARROW = 1, 8


def _partition(
    model: GraphModel, k: int, *, imbalance: float, seed: int, preset: str, threads: int
) -> np.ndarray:
    """Partition the symmetrised graph for few cut edges.

    The library takes graphs from files alone; ``terapart`` keeps them compressed in memory.
    """
    kaminpar.reseed(seed)
    with tempfile.NamedTemporaryFile(suffix=".parhip") as file:
        _write(Path(file.name), model)
        let_go(model.indices)
        graph = kaminpar.load_graph(
            file.name, kaminpar.GraphFileFormat.PARHIP, compress=preset.startswith("terapart")
        )
    solver = kaminpar.KaMinPar(threads, kaminpar.context_by_name(preset))
    return np.array(solver.compute_partition(graph, k, eps=imbalance), dtype=np.int32)


def _write(path: Path, model: GraphModel) -> None:
    """The graph as ParHIP's binary format has it: where neighbours begin, in bytes of the file."""
    n, arcs = len(model.weights), len(model.indices)
    narrow = n < 2**32
    number = np.dtype(np.uint32 if narrow else np.uint64)
    head = np.array([_PARHIP | (_NARROW if narrow else 0), n, arcs], np.uint64)
    with path.open("wb") as file:
        head.tofile(file)
        begin = head.nbytes + 8 * (n + 1)
        (begin + number.itemsize * np.asarray(model.indptr, np.uint64)).tofile(file)
        for first in range(0, arcs, 1 << 22):
            np.asarray(model.indices[first : first + (1 << 22)], number).tofile(file)
        np.asarray(model.weights, np.int64).tofile(file)


TOOL = Tool(
    _partition,
    options={
        "preset": Option(
            "auto", "how much effort", ("auto", *_PRESETS), by_size=("eco", "terapart")
        ),
        "threads": Option(
            1, "number of threads; with several, the parts differ from run to run", least=1
        ),
    },
    distribution="kaminpar",
    deterministic=lambda options: options["threads"] == 1,
    # Coarser graphs have 16 bytes for each end of an edge, and there are several of them at once.
    memory=lambda options, n, ends: (
        (46 if options["preset"] == "terapart" else 54) * ends + 330 * n
    ),
)
