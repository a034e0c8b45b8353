"""METIS (Karypis and Kumar), through pymetis: multilevel k-way graph partitioning."""

import numpy as np
import pymetis

from partition.backends import Option, Tool
from partition.models.descriptions import GraphModel

_OBJECTIVES = {"cut": pymetis.ObjType.CUT, "vol": pymetis.ObjType.VOL}


def _partition(
    model: GraphModel, k: int, *, imbalance: float, seed: int, objective: str, passes: int
) -> np.ndarray:
    """Partition the symmetrised graph by k-way refinement.

    The objective is the number of edges cut, or METIS' own communication volume, which equals
    ours on a symmetric pattern. Recursive bisection is not used: on soc-Slashdot0902, k = 16,
    its total is as good but its busiest part sends a tenth more.
    """
    options = pymetis.Options(
        objtype=int(_OBJECTIVES[objective]),
        seed=seed + (seed > 0),  # it calls srand, to which 0 and 1 are one seed
        niter=passes,
        ufactor=max(1, round(1000 * imbalance)),  # in thousandths
    )
    # 64-bit integers are what the wheels are built with; others would be copied one by one.
    neighbours = pymetis.CSRAdjacency(
        np.asarray(model.indptr, dtype=np.int64), np.asarray(model.indices, dtype=np.int64)
    )
    weights = np.asarray(model.weights, dtype=np.int64)
    costs = None if model.costs is None else np.asarray(model.costs, dtype=np.int64)
    result = pymetis.part_graph(
        k, adjacency=neighbours, vweights=weights, eweights=costs, recursive=False, options=options
    )
    return np.asarray(result.vertex_part, dtype=np.int32)


TOOL = Tool(
    _partition,
    options={
        "objective": Option("cut", "edges cut, or communication volume", tuple(_OBJECTIVES)),
        # 10 as METIS itself, which then spends half of its time in them on large graphs.
        "passes": Option(0, "over the vertices of a level, at most", least=0, by_size=(10, 1)),
    },
    distribution="pymetis",
    memory=lambda options, n, ends: 150 * ends + 100 * n,
)
