"""Under mpirun: ties of predictions by the tensor-parallel 3D scheme, which ``verify`` rarely sees.

Columns of H² are cut along z: three columns on four ranks leave one rank without any. A case (see
cases.py) is a graph, on 4 ranks.
"""

import numpy as np

from gcnmpi.layout.place import Place
from gcnmpi.options.config import from_table
from gcnmpi.run.problem import open_problem


def of_case(comm, path: str) -> None:
    table = {"dtype": "float64", "scheme": {"name": "tensor3d", "grid": "1x1x4"}}
    scheme = open_problem(comm, path, None, from_table(table)).scheme
    rows = np.array([[0, 0, 0], [1, 2, 2], [-3, -4, -3], [0, 0, 5], [-np.inf] * 3])
    columns = scheme.block(Place(2), 3).columns
    assert scheme.block(Place(2), 3).counts_rows == (comm.rank == 0)
    found = scheme.row_argmax(2, np.ascontiguousarray(rows[:, columns]), 3)
    np.testing.assert_array_equal(found, [0, 1, 0, 2, 0])
    picked = scheme.row_pick(2, rows[:4, columns], np.array([2, 0, 1, 2]), 3)
    np.testing.assert_array_equal(picked[:, 0], [0, 1, -4, 5])
