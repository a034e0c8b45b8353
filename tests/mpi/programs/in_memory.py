"""Under mpirun: what training must not change, and what must not travel, looked at in memory.

Usage: in_memory.py G.graph PARTITION
"""

import pickle
import sys
from pathlib import Path

import numpy as np

from gcnmpi.core.config import from_table
from gcnmpi.mpi import comm as mpi
from gcnmpi.run import problem as problems
from gcnmpi.run.problem import load_features, open_problem
from gcnmpi.run.trainer import Step, evaluate


def main(comm) -> int:
    table = {"model": {"dropout": 0.5, "input_dropout": 0.5}, "dtype": "float64"}
    problem = open_problem(comm, sys.argv[1], sys.argv[2], from_table(table))
    step = Step(problem)
    targets, input_before = step.targets, step.model._input.copy()
    before = [targets.labels.copy(), *(mask.copy() for mask in targets.masks.values())]
    for epoch in range(1, 6):
        step(epoch)
        evaluate(problem, step.model, targets)
    for old, new in zip(before, (targets.labels, *targets.masks.values()), strict=True):
        np.testing.assert_array_equal(new, old)
    np.testing.assert_array_equal(step.model._input, input_before)
    np.testing.assert_array_equal(load_features(problem), input_before)
    # The weights are one and the same on every rank.
    weights = comm.allgather(step.model.parameters.flat)
    assert all(np.array_equal(weights[0], other) for other in weights)
    # What rank 0 tells the others before loading is a description, no array of the graph.
    told = pickle.dumps(
        problems._check(Path(sys.argv[1]), sys.argv[2], comm.size, 1, problem.config)
    )
    assert len(told) < 5000, len(told)
    if comm.rank == 0:
        print("nothing changed")
    return 0


if __name__ == "__main__":
    mpi.run(main)
