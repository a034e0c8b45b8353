"""Prints what the device was given to do, and how often the host waited, in an epoch of a run.

Arguments: graph, partition (or "-"), settings. On the stand-in for CuPy.
"""

import json
import sys

from cupy.queue import counts

from gcnmpi.mpi.process import run
from gcnmpi.options.config import load_config
from gcnmpi.run.problem import open_problem
from gcnmpi.run.step import Step


def main(comm):
    graph, partition, *settings = sys.argv[1:]
    config = load_config(None, settings)
    problem = open_problem(comm, graph, None if partition == "-" else partition, config)
    step = Step(problem)
    evaluation = step.work.evaluation()
    for epoch in (1, 2):  # the first one prepares what the others use
        counted = {}
        for name, call in (("epoch", lambda: step(epoch)), ("evaluation", evaluation)):  # noqa: B023
            before = dict(counts)
            call()
            counted[name] = {key: counts[key] - before[key] for key in counts}
    if comm.rank == 0:
        print(json.dumps(counted))
    return 0


run(main)
