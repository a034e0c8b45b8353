"""Under mpirun: the peak memory of schemes, and the forecast of the cost model.

Cases (see cases.py): {"graph", "partition", "settings"}, and "infer" where nothing is trained, or
the "method" of a propagation and the file "out" that it writes → {"before", "peak", "forecast"},
bytes of the rank that has most: what the process had before is in the others too.
"""

import dataclasses
import gc
from pathlib import Path

import numpy as np
import scipy.sparse.csgraph  # noqa: F401  the first cover would load it: of the process, not of a run

from gcnmpi.core.resident import forget_peak, peak_bytes, resident_bytes, return_freed_memory
from gcnmpi.mpi import comm as mpi
from gcnmpi.nn.evaluator import evaluate
from gcnmpi.options.config import load_config
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.memory import evaluation_memory
from gcnmpi.planner.ranking import Candidate, Setting
from gcnmpi.propagation.running import propagate
from gcnmpi.propagation.settings import PropagateRequest
from gcnmpi.run.problem import load_features, open_problem
from gcnmpi.run.step import Step


def train(problem):
    step = Step(problem)
    step(1)
    step.work.evaluation()()
    if problem.source.stored.pairs is not None:
        step(2)  # what evaluations take stays


def infer(problem):
    network, program = problem.network, problem.program
    weights = {name: np.ones(p.shape) for name, p in network.parameters.items()}
    evaluate(
        problem.scheme, problem.runtime.kernel, network, program, problem.source.stored.graph.n,
        weights, [load_features(problem)], len(program.outputs), {},
    )  # fmt: skip


def of_case(comm, case):
    gc.collect()
    return_freed_memory()
    forget_peak()
    before = mpi.maximum(comm, resident_bytes())
    if "method" in case:
        asked = PropagateRequest.read(
            None, ("threads=1", *case["settings"]), method=case["method"],
            graph=Path(case["graph"]), partition=case["partition"], out=Path(case["out"]),
        )  # fmt: skip
        done = propagate(comm, asked)
        return {"before": before, "peak": mpi.maximum(comm, peak_bytes()), "forecast": done.memory}
    config, trains = load_config(None, ("threads=1", *case["settings"])), "infer" not in case
    problem = open_problem(comm, case["graph"], case["partition"], config, trains=trains)
    (train if trains else infer)(problem)
    peak = mpi.maximum(comm, peak_bytes())
    machine = dataclasses.replace(Machine(), process_bytes=before)
    setting = Setting(problem.source.stored, problem.config, machine, comm.size)
    candidate = Candidate(problem.config.scheme, {}, 0, problem.source.partition)
    if trains:
        forecast = setting.memory(candidate, comm.size)
    else:
        depth = len(problem.program.outputs)
        forecast = evaluation_memory(setting.case(candidate, comm.size, False), depth)
    return {"before": before, "peak": peak, "forecast": forecast}
