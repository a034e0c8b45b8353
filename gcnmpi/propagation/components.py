"""Connected components: the smallest number of a vertex spreads to all that it reaches.

Every round, a vertex takes the smallest number among its own and its neighbours'. There are as many
rounds as the longest shortest path from such a vertex: few in social networks and on the web, many
in road networks and meshes.
"""

from __future__ import annotations

import numpy as np

from gcnmpi.mpi.comm import agreed
from gcnmpi.propagation.checks import needs_symmetry
from gcnmpi.propagation.interface import Held, Holds, Matrix, Method, NoOptions, Outcome
from gcnmpi.propagation.space import Space
from partition.errors import UserError
from partition.graph.store import StoredGraph

_EXACT = {"float32": 2**24, "float64": 2**53}  # integers below are exact


def check(stored: StoredGraph, options: NoOptions) -> None:
    """Refuse a graph with an arc that has no reverse."""
    needs_symmetry(stored, "components takes arcs both ways", values=False)


def run(space: Space, options: NoOptions) -> Outcome:
    """The smallest vertex of the component of each vertex, (n,) int64."""
    n, mine = space.n, space.counted
    with agreed(space.comm):
        if n >= _EXACT[space.dtype.name]:
            raise UserError(f"{n} vertices have no exact numbers in {space.dtype}", "dtype=float64")
    # Maxima of what is larger for smaller vertices: 0 is nobody's.
    x, rounds, changed = (n - space.vertices).astype(space.dtype), 0, 1.0
    while changed:
        following = space.largest_neighbour(x)
        changed = float(space.total(float(np.sum(following[mine] != x[mine]))))
        x, rounds = following, rounds + 1
        space.progress("round", rounds, n, f"{changed:.0f} vertices changed")
    smallest = n - x.astype(np.int64)
    count = space.total(float(np.sum(smallest[mine] == space.vertices[mine])))
    return Outcome(smallest, column="component", notes=(f"{count:.0f} components",))


def holds(stored: StoredGraph, options: NoOptions) -> Holds:
    """Numbers before and after a round, places of maxima, and numbers that are compared."""
    return Holds(1, (Held(doubles=4, product=1),), itemsize=8)


METHOD = Method(
    NoOptions, Matrix("none", True, fixed=True), run, holds, check, dtype="float64", rows=True
)
