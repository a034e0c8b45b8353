"""Trains with epochs as CUDA graphs and without, and prints what differs, as JSON.

Arguments: graph, a JSON list of lists of settings. On the stand-in for CuPy, on one rank. For each
list: why it can be no graph, or that losses, metrics and weights are the same to the bit; what
CUDA would say if it were captured regardless; and how often the device is told something.
"""

import dataclasses
import json
import sys

import numpy as np
from cupy.queue import counts

from gcnmpi.core.config import load_config
from gcnmpi.mpi.comm import run
from gcnmpi.nn.schedules import LearningRate
from gcnmpi.run.captured import obstacle
from gcnmpi.run.evaluation import Evaluation
from gcnmpi.run.problem import open_problem
from gcnmpi.run.step import Step
from partition.errors import UserError

EPOCHS = 6


def trained(comm, graph, settings, captured):
    """Loss and metrics of each epoch, the weights, and the launches of the last epoch."""
    config = load_config(None, ["kernel=cupy", f"train.epochs={EPOCHS}", *settings])
    problem = open_problem(comm, graph, None, config)
    why = obstacle(problem.config, problem.program, comm.size)
    gpu = dataclasses.replace(problem.config.gpu, graph="yes" if captured else "no")
    config = dataclasses.replace(problem.config, gpu=gpu)
    problem = dataclasses.replace(problem, config=config)
    step = Step(problem)
    evaluation = Evaluation(problem, step.model, step.targets)
    curve, counted, rate = [], {}, LearningRate(config.train)
    for epoch in range(1, EPOCHS + 1):
        for name, call in (("epoch", lambda: step(epoch, rate(epoch))), ("evaluation", evaluation)):  # noqa: B023
            before = dict(counts)
            curve.append(call())
            counted[name] = {key: counts[key] - before[key] for key in counts}
    weights = problem.kernel.to_host(step.model.parameters.flat)
    return why, curve, weights, counted


def main(comm):
    graph, cases = sys.argv[1], json.loads(sys.argv[2])
    found = []
    for settings in cases:
        why, curve, weights, before = trained(comm, graph, settings, captured=False)
        case = {"why": why and why.message, "before": before, "said": None}
        try:
            _, again, repeated, case["counted"] = trained(comm, graph, settings, captured=True)
            case["same"] = curve == again and np.array_equal(weights, repeated)
        except UserError as error:
            case["said"] = error.message
        found.append(case)
    print(json.dumps(found))
    return 0


run(main)
