"""Loss, gradients and logits of a distributed run, for ``compare.py``.

Usage: mpirun -n P python tests/differential/engine.py GRAPH FOLDER …

Each FOLDER holds ``config.json`` and ``weights.npz``, parameters by their names; ``results.npz`` is
written into it: "loss", "logits" of an evaluation after one epoch's running moments (of link
prediction, the rows of vertices), and the gradient of every parameter.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi.mpi.process import run
from gcnmpi.options.config import from_table
from gcnmpi.proof.verify import _whole
from gcnmpi.run.problem import open_problem
from gcnmpi.run.step import Step
from partition.graph.store import list_partitions, read_partition


def main(comm: Any) -> int:
    """All folders, one after the other."""
    graph, *folders = sys.argv[1:]
    fitting = [n for n in list_partitions(graph) if read_partition(graph, n).k == comm.size]
    partition = fitting[0] if comm.size > 1 else None
    for folder in map(Path, folders):
        problem = open_problem(comm, graph, partition, from_table(_read(folder)))
        step = Step(problem)
        model = step.model
        with np.load(folder / "weights.npz") as weights:
            model.load_state(dict(weights))
        loss, flat = step.gradient(1)
        gradient = {f"gradient {n}": np.array(a) for n, a in model.whole(flat).items()}
        logits = problem.runtime.kernel.to_host(model.forward())
        logits = _whole(problem, model.place, logits, model.widths[-1])
        if comm.rank == 0:
            np.savez(folder / "results.npz", loss=loss, logits=logits, **gradient)
    return 0


def _read(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


if __name__ == "__main__":
    run(main)
