"""Core numbers: the largest k such that a vertex is in a subgraph of degrees of k and more.

By peeling (Batagelj and Zaveršnik 2003, An O(m) algorithm for cores decomposition of networks):
vertices of at most k neighbours among those that are left go, all of a round together, and then k
rises to the lowest degree that is left. A product counts the neighbours.
"""

from __future__ import annotations

import numpy as np

from gcnmpi.mpi.comm import maximum
from gcnmpi.propagation.checks import needs_symmetry
from gcnmpi.propagation.interface import Held, Holds, Matrix, Method, NoOptions, Outcome
from gcnmpi.propagation.space import Space
from partition.errors import UserError
from partition.graph.store import StoredGraph


def check(stored: StoredGraph, options: NoOptions) -> None:
    """Refuse arcs that are not edges, and those with weights."""
    needs_symmetry(stored, "core-numbers takes arcs both ways")
    if stored.manifest.valued:
        raise UserError(
            f"{stored.path} has weights or parallel arcs, and core-numbers counts neighbours"
        )


def run(space: Space, options: NoOptions) -> Outcome:
    """Core numbers, (n,) int64; loops do not count."""
    cores = np.zeros(len(space.vertices), np.int64)
    left, lowest, rounds = np.ones(len(cores), bool), 0, 0
    while True:
        alive = left.astype(space.dtype)
        # Every vertex of M has a loop, which is taken off.
        degrees = np.where(left, space.multiply(alive) - alive, np.inf)
        least = -maximum(space.comm, -degrees.min(initial=np.inf))
        if least == np.inf:
            return Outcome(cores, column="core", notes=(f"{rounds} rounds",))
        lowest, rounds = max(lowest, int(least)), rounds + 1
        gone = degrees <= lowest
        cores[gone], left[gone] = lowest, False
        space.progress("round", rounds, space.n, f"core {lowest}")


def holds(stored: StoredGraph, options: NoOptions) -> Holds:
    """Core numbers, degrees, the vertices that are left, and a product."""
    return Holds(1, (Held(doubles=3, numbers=3, product=1),), itemsize=8)


METHOD = Method(NoOptions, Matrix("none", True, fixed=True), run, holds, check)
