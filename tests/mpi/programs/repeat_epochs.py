"""Trains with epochs as CUDA graphs and without, and prints what differs, as JSON.

Arguments: graph, a JSON list of lists of settings. On one rank. For each list: why there can be no
graph; else whether losses, metrics and weights are the same to the bit, and how far apart losses
are; how far they are from those of the kernel "scipy". On the stand-in for CuPy also how often the
device is told something, and what CUDA says to that for which there can be no graph.
"""

import dataclasses
import json
import sys

import numpy as np

from gcnmpi.mpi.process import run
from gcnmpi.nn.schedules import LearningRate
from gcnmpi.options.config import load_config
from gcnmpi.run.cuda_graph import why_not
from gcnmpi.run.problem import open_problem
from gcnmpi.run.step import Step
from partition.errors import UserError

try:
    from cupy.queue import counts
except ImportError:  # on a device
    counts = {}
EPOCHS = 6


def opened(comm, graph, settings, kernel="cupy"):
    """A problem that was not asked for graphs, and why it can have none."""
    own = [word for word in settings if kernel == "cupy" or not word.startswith("gpu.")]
    config = load_config(None, [f"kernel={kernel}", f"train.epochs={EPOCHS}", *own])
    problem = open_problem(comm, graph, None, config)
    why = why_not(problem.config, comm.size)
    return problem, why and why.message


def trained(problem, graph):
    """Losses, metrics, the weights, and what the device was told in the last epoch."""
    gpu = dataclasses.replace(problem.config.gpu, graph=graph)
    config = dataclasses.replace(problem.config, gpu=gpu)
    problem = dataclasses.replace(problem, config=config)
    step = Step(problem)
    evaluation = step.work.evaluation()
    losses, metrics, told, rate = [], [], {}, LearningRate(config.train)
    for epoch in range(1, EPOCHS + 1):
        before = dict(counts)
        losses.append(step(epoch, rate(epoch)))
        between = dict(counts)
        metrics.append(evaluation())
        told = {
            "epoch": {key: between[key] - before[key] for key in counts},
            "evaluation": {key: counts[key] - between[key] for key in counts},
        }
    return losses, metrics, problem.runtime.kernel.to_host(step.model.parameters.flat), told


def apart(losses, others):
    """The largest relative difference."""
    return float(np.max(np.abs(np.array(losses) / others - 1)))


def main(comm):
    graph, cases = sys.argv[1], json.loads(sys.argv[2])
    found = []
    for settings in cases:
        problem, why = opened(comm, graph, settings)
        case = {"why": why, "said": None}
        if why is None or counts:
            losses, metrics, weights, case["before"] = trained(problem, "no")
            on_host, *_ = trained(opened(comm, graph, settings, "scipy")[0], "no")
            case["from_host"] = apart(losses, on_host)
            try:
                again, others, repeated, case["after"] = trained(problem, "yes")
                case["apart"] = apart(again, losses)
                case["same"] = losses == again and metrics == others
                case["same"] &= np.array_equal(weights, repeated)
            except UserError as error:
                case["said"] = error.message
        found.append(case)
    print(json.dumps(found))
    return 0


run(main)
