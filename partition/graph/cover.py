"""Which entries of M a row serves, and which a partial sum: the fewest rows on the wire.

An entry (i, j) of M whose row i lives on part r and whose row j of H lives on part s can be served
in two ways. Part s sends row j, which serves all entries of column j on r; or part s computes the
partial sum of row i over its own columns and sends that, which serves all entries of row i on s.
For a pair (s, r) these entries are the edges of a bipartite graph between columns and rows, and
what is sent is a vertex cover of it. The smallest one has as many vertices as a largest matching
has edges (Kőnig 1931). Sending only rows, or only sums, is a cover too, so never smaller.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse import csgraph

SPARSE = 32  # of fewer numbers than one in so many it is quicker to sort them than to mark them


def summed_entries(
    rows: np.ndarray, columns: np.ndarray, row_parts: np.ndarray, column_parts: np.ndarray
) -> np.ndarray:
    """Which entries partial sums serve, so that every pair of parts sends as little as it can.

    Part s sends part r the rows j of the pair's entries that are not marked, and the partial sums
    of the rows i of those that are: the distinct ones of both are together a minimum vertex cover.

    Of several minimum covers, the one of most rows of H and fewest partial sums is taken: a row can
    leave at once and is not added where it arrives. An entry whose row *and* column are in the
    cover is served by the row of H. There is one such cover (Dulmage and Mendelsohn 1958), so the
    result depends on neither the order of the entries nor how rows, columns and parts are
    numbered. The entries of a pair alone decide on them: both ends of an exchange, who know
    different pairs beside their common one, agree without a message.

    Parameters
    ----------
    rows, columns : (m,) integers
        Entries (i, j) of M, each once, in any order; numbers from 0 on.
    row_parts, column_parts : (m,) integers
        The part that owns row i of M, r, and the one that owns row j of H, s. Entries with r = s
        are allowed: nothing is sent for them, and they are not marked.

    Returns
    -------
    (m,) bool
        True: by the partial sum of row i, computed by s. False: by row j, multiplied by r.
    """
    cut = np.flatnonzero(np.asarray(row_parts) != np.asarray(column_parts))
    summed = np.zeros(len(rows), bool)
    if not len(cut):
        return summed
    # All pairs in one bipartite graph: a column once for each part that needs it, a row once for
    # each part that has columns of it. So each of its components lies within a pair.
    left, nleft = _numbered(np.asarray(columns)[cut], np.asarray(row_parts)[cut])
    right, nright = _numbered(np.asarray(rows)[cut], np.asarray(column_parts)[cut])
    covered = _rows_in_cover(left, right, nleft, nright)
    summed[cut] = ~covered[left]
    return summed


def _rows_in_cover(left: np.ndarray, right: np.ndarray, nleft: int, nright: int) -> np.ndarray:
    """The left vertices of the minimum vertex cover that has most of them: (nleft,) bool.

    A left vertex is in no such cover if and only if an alternating path joins it to a left vertex
    that a largest matching leaves alone: then every minimum cover has its neighbours instead.
    """
    ones = np.ones(len(left), np.int8)
    graph = sp.coo_array((ones, (left, right)), shape=(nleft, nright)).tocsr()
    mate = csgraph.maximum_bipartite_matching(graph, perm_type="column")  # of left; −1: none
    # Steps from left to left: along an edge, back along the matching; and from a source, the last
    # vertex, to those without a mate. All neighbours of what is reached are matched.
    partner = np.full(nright, -1, mate.dtype)
    partner[mate[mate >= 0]] = np.flatnonzero(mate >= 0)
    alone = np.flatnonzero(mate < 0)
    target = partner[graph.indices]
    steps = sp.csr_array(
        (
            np.ones(graph.nnz + len(alone), np.int8),
            np.concatenate([np.where(target < 0, nleft, target), alone]),
            np.append(graph.indptr, graph.nnz + len(alone)),
        ),
        shape=(nleft + 1, nleft + 1),
    )
    reached = csgraph.breadth_first_order(steps, nleft, return_predecessors=False)
    covered = np.ones(nleft + 1, bool)
    covered[reached] = False
    return covered[:nleft]


def _numbered(major: np.ndarray, minor: np.ndarray) -> tuple[np.ndarray, int]:
    """Numbers 0..count−1 for the different pairs (major, minor), in their order; and the count."""
    keys = major.astype(np.int64) * (int(minor.max()) + 1) + minor
    bound = int(keys.max()) + 1
    if bound > SPARSE * len(keys):
        distinct, number = np.unique(keys, return_inverse=True)
        return number, len(distinct)
    found = np.zeros(bound, bool)
    found[keys] = True
    number = np.cumsum(found, dtype=np.int64) - 1
    return number[keys], int(number[-1]) + 1
