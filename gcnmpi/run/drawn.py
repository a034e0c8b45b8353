"""Sizes of a run's first mini-batches on all ranks, for the forecast of its memory."""

from __future__ import annotations

import numpy as np

from gcnmpi.run.minibatch import BatchStep
from gcnmpi.run.problem import Problem
from gcnmpi.schemes.sampled import Batch
from gcnmpi.schemes.sampled_forecast import BatchSizes
from partition.graph.metrics import Metrics

DRAWN = 2


def drawn_sizes(problem: Problem, step: BatchStep) -> list[BatchSizes]:
    """Draw some batches again, as the run will; all ranks call it together. Empty but on rank 0."""
    batches = step.first(DRAWN)
    every = problem.comm.gather([_figures(batch, step.row_sizes) for batch in batches], root=0)
    if every is None:
        return []
    k, direction = problem.comm.size, problem.direction
    found = []
    for number, batch in enumerate(batches):
        # Of each figure, for each layer, a list of numbers of the ranks.
        figures = np.array([rank[number] for rank in every]).transpose(1, 2, 0).tolist()
        *of_layers, looked_at, first = figures
        layers = [Metrics(k, direction, *layer) for layer in zip(*of_layers, strict=True)]
        found.append(BatchSizes(first[0], layers, looked_at, batch.layered))
    return found


def _figures(batch: Batch, row_sizes: np.ndarray) -> list[list[int]]:
    """What a rank has of a batch: a list for each figure, with a number for each layer."""
    plans = [layer.plan for layer in batch.layers]
    computed = batch.counts[: len(plans)]
    return [
        list(batch.counts[1:]) if batch.layered else list(batch.counts),
        [layer.matrix.nnz for layer in batch.layers],
        [plan.nsend for plan in plans],
        [plan.nhalo for plan in plans],
        [len(plan.send_peers) for plan in plans],
        [len(plan.recv_peers) for plan in plans],
        [int(row_sizes[batch.rows[:count]].sum()) for count in computed],
        [batch.counts[0]] * len(plans),
    ]
