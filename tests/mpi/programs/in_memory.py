"""Under mpirun: arrays that training must not change or send, looked at in memory.

A case (see cases.py) is a graph and a partition.
"""

import numpy as np

from gcnmpi.options.config import from_table
from gcnmpi.run.evaluation import Evaluation
from gcnmpi.run.problem import load_features, open_problem
from gcnmpi.run.step import Step


def of_case(comm, case: list[str]) -> None:
    path, partition = case
    table = {"model": {"dropout": 0.5, "input_dropout": 0.5}, "dtype": "float64"}
    problem = open_problem(comm, path, partition, from_table(table))
    step = Step(problem)
    model, targets, features = step.model, step.targets, load_features(problem)
    initial, logits = model.whole(model.parameters.flat.copy()), model.forward().copy()
    before = [targets.labels.copy(), *(mask.copy() for mask in targets.masks.values())]
    for epoch in range(1, 6):
        step(epoch)
        Evaluation(problem, model, targets)()
    for old, new in zip(before, (targets.labels, *targets.masks.values()), strict=True):
        np.testing.assert_array_equal(new, old)
    np.testing.assert_array_equal(load_features(problem), features)
    # The weights are one and the same on every rank.
    weights = comm.allgather(model.parameters.flat)
    assert all(np.array_equal(weights[0], other) for other in weights)
    # With the initial ones the logits are again what they were: the input has not changed.
    assert not np.array_equal(model.forward(), logits)
    model.load_state(initial)
    np.testing.assert_array_equal(model.forward(), logits)
