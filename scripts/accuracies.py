#!/usr/bin/env python3
"""Test accuracy of a configuration over seeds: mean, standard deviation, and that of each seed.

Usage: mpirun -n P python scripts/accuracies.py GRAPH CONFIG [--partition NAME] [--seeds 10]
       [--first 0] [--set KEY=VALUE …]

The accuracy of a seed is that of the first epoch with the highest validation accuracy.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from gcnmpi.core.config import load_config
from gcnmpi.mpi import comm as mpi
from gcnmpi.run.problem import open_problem
from gcnmpi.run.trainer import train


def main(comm: Any) -> int:
    """Train with each seed and print the accuracies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graph")
    parser.add_argument("config")
    parser.add_argument("--partition")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--set", action="append", default=[])
    asked = parser.parse_args()
    found = []
    for seed in range(asked.first, asked.first + asked.seeds):
        config = load_config(asked.config, [*asked.set, f"train.seed={seed}"])
        result = train(open_problem(comm, asked.graph, asked.partition, config))
        best = result.epochs[result.best.epoch - 1]
        found.append(100 * (best.of("test", "accuracy") or 0.0))
        if comm.rank == 0:
            print(f"seed {seed}: {found[-1]:.1f} (epoch {best.epoch})", flush=True)
    if comm.rank == 0:
        mean, spread = statistics.mean(found), statistics.pstdev(found)
        print(f"{' '.join([asked.config, *asked.set])}: {mean:.2f} ± {spread:.2f}")
    return 0


if __name__ == "__main__":
    mpi.run(main)
