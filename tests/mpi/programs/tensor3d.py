"""Under mpirun: properties of the tensor-parallel 3D scheme that ``verify`` cannot see.

Ties of predictions, and bits that do not depend on time.
A case (see cases.py) is a graph, on 4 ranks.
"""

import time
from unittest import mock

import numpy as np

from gcnmpi.layout.place import Place
from gcnmpi.options.config import from_table
from gcnmpi.run.problem import open_problem
from gcnmpi.run.step import Step


def opened(comm, path, **options):
    model = {"dropout": 0.3, "input_dropout": 0.2, "hidden": [7]}
    table = {"dtype": "float64", "kernel": "scipy", "model": model}
    return open_problem(
        comm, path, None, from_table(table | {"scheme": {"name": "tensor3d", **options}})
    )


def ties_go_to_the_lowest_class(comm, path):
    """Columns of H² are cut along z: three columns on four ranks leave one rank without any."""
    scheme = opened(comm, path, grid="1x1x4").scheme
    rows = np.array([[0, 0, 0], [1, 2, 2], [-3, -4, -3], [0, 0, 5], [-np.inf] * 3])
    columns = scheme.block(Place(2), 3).columns
    assert scheme.block(Place(2), 3).counts_rows == (comm.rank == 0)
    found = scheme.row_argmax(2, np.ascontiguousarray(rows[:, columns]), 3)
    np.testing.assert_array_equal(found, [0, 1, 0, 2, 0])
    picked = scheme.row_pick(2, rows[:4, columns], np.array([2, 0, 1, 2]), 3)
    np.testing.assert_array_equal(picked[:, 0], [0, 1, -4, 5])


def bits_do_not_depend_on_time(comm, path):
    """Late ranks and row blocks change nothing; copies stay equal."""
    runs = []
    for late in (False, True):
        problem = opened(comm, path, grid="2x2x1", chunks=3)
        delays = np.random.default_rng(comm.rank)
        multiply = problem.runtime.kernel.spmm

        def slow(*arguments, late=late, delays=delays, multiply=multiply):
            time.sleep(delays.uniform(0, 0.004) * late)
            multiply(*arguments)

        step = Step(problem)
        with mock.patch.object(problem.runtime.kernel, "spmm", slow):
            losses = [step(epoch) for epoch in range(1, 6)]
            logits = step.model.forward()
        runs.append([np.array(losses), logits.copy(), step.model.parameters.flat.copy()])
    for first, second in zip(*runs, strict=True):
        np.testing.assert_array_equal(first, second)
    block = problem.scheme.block(Place(2), logits.shape[1])
    pieces = {}
    for rows, columns, piece in comm.allgather((tuple(block.rows), block.columns.start, logits)):
        np.testing.assert_array_equal(piece, pieces.setdefault((rows, columns), piece))
    assert len(pieces) == 2  # H² is cut along y and z, and copied along x


def of_case(comm, path: str) -> None:
    ties_go_to_the_lowest_class(comm, path)
    bits_do_not_depend_on_time(comm, path)
