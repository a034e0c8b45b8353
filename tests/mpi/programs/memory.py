"""Under mpirun: the peak memory of schemes, and what the cost model says of it.

Usage: memory.py CASES.json

CASES.json holds a list of {"graph", "partition", "settings"}; rank 0 prints a list of
{"peak", "forecast"}, bytes of the rank that has most. Both with what the process had before.
"""

import dataclasses
import gc
import json
import sys
from pathlib import Path

import scipy.sparse.csgraph  # noqa: F401  the first cover would load it: of the process, not of a run

from gcnmpi.core.config import load_config
from gcnmpi.core.resident import forget_peak, peak_bytes, resident_bytes
from gcnmpi.mpi import comm as mpi
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.memory import memory
from gcnmpi.planner.ranking import Candidate, Setting
from gcnmpi.run.evaluation import Evaluation
from gcnmpi.run.problem import open_problem
from gcnmpi.run.step import Step


def main(comm):
    results = []
    for case in json.loads(Path(sys.argv[1]).read_text()):
        gc.collect()
        forget_peak()
        before = mpi.maximum(comm, resident_bytes())
        config = load_config(None, ("threads=1", *case["settings"]))
        problem = open_problem(comm, case["graph"], case["partition"], config)
        step = Step(problem)
        step(1)
        Evaluation(problem, step.model, step.targets)()
        peak = mpi.maximum(comm, peak_bytes())
        machine = dataclasses.replace(Machine(), process_bytes=before)
        setting = Setting(problem.stored, problem.config, machine, comm.size)
        candidate = Candidate(problem.config.scheme, {}, 0, problem.partition)
        forecast = memory(setting.case(candidate, comm.size))
        results.append({"peak": peak, "forecast": forecast})
        del problem, step
    if comm.rank == 0:
        print(json.dumps(results))
    return 0


if __name__ == "__main__":
    mpi.run(main)
