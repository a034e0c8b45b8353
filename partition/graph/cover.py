"""Which entries of M a row serves, and which a partial sum: the fewest rows on the wire.

An entry (i, j) of M whose row i lives on part r and whose row j of H lives on part s can be served
in two ways. Part s sends row j, which serves all entries of column j on r; or part s computes the
partial sum of row i over its own columns and sends that, which serves all entries of row i on s.
For a pair (s, r) these entries are the edges of a bipartite graph between columns and rows, and the
rows and sums that are sent are a vertex cover of it. The smallest one has as many vertices as a
largest matching has edges (Kőnig 1931). Sending only rows, or only sums, is a cover too, so never
smaller.
"""

import numpy as np

from partition.graph.graph import distinct, index_dtype
from partition.graph.sparse import sp

_LEAST_SHARE = 64  # leaves are taken off while that removes more than one in so many
_Numbered = tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]
SPARSE = 32  # of fewer numbers than one in so many it is quicker to sort them than to mark them


def summed_entries(
    rows: np.ndarray, columns: np.ndarray, row_parts: np.ndarray, column_parts: np.ndarray
) -> np.ndarray:
    """Which entries partial sums serve, so that every pair of parts sends as little as it can.

    Part s sends part r the rows j of the pair's entries that are not marked, and the partial sums
    of the rows i of those that are: the distinct ones of both are together a minimum vertex cover.

    All minimum covers of a pair have the same size: which one is taken decides where work is done,
    but not how much any part sends. It is the one of most rows of H and fewest partial sums: a row
    can leave at once and is not added where it arrives. An entry whose row *and* column are in the
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
    left, of_left = numbered(np.asarray(columns)[cut], np.asarray(row_parts)[cut])
    right, of_right = numbered(np.asarray(rows)[cut], np.asarray(column_parts)[cut])
    summed[cut] = ~rows_in_cover(left, right, len(of_left[0]), len(of_right[0]))[left]
    return summed


def rows_in_cover(left: np.ndarray, right: np.ndarray, nleft: int, nright: int) -> np.ndarray:
    """The left vertices of the minimum vertex cover that has most of them.

    With the two sides exchanged it is the cover of the transposed entries, where rows are sums and
    sums are rows.

    Parameters
    ----------
    left, right : (m,) integers
        Ends of the edges of a bipartite graph, 0..nleft−1 and 0..nright−1; each edge once.

    Returns
    -------
    (nleft,) bool

    Notes
    -----
    Leaves go first, as in the matching of Karp and Sipser (1981), all of a side at a time. The only
    neighbour of a right leaf is in the cover. The only neighbour v of a left leaf is in a minimum
    cover too, but the leaf can take its place if all other neighbours of v are in the cover: this
    is decided at the end, in the opposite order. Where few entries serve a row or a sum, which is
    so in most graphs, hardly any edges are left for the search of a largest matching.
    """
    covered = np.zeros(nleft, bool)
    undecided: list[tuple[np.ndarray, np.ndarray]] = []
    enough = (len(left) + nleft + nright) // _LEAST_SHARE
    before = len(left) + enough + 1
    while before - len(left) > enough:
        before = len(left)
        covered[left[_leaves(right, nright)]] = True
        edges = ~covered[left]
        left, right = left[edges], right[edges]
        shed = np.zeros(nright, bool)
        shed[right[_leaves(left, nleft)]] = True
        edges = shed[right]
        undecided.append((left[edges], right[edges]))
        np.logical_not(edges, out=edges)
        left, right = left[edges], right[edges]
    if len(left):
        covered |= _by_matching(left, right, nleft, nright)
    while undecided:
        left, right = undecided.pop()
        without = ~covered[left]
        left, right = left[without], right[without]
        covered[left[_leaves(right, nright)]] = True  # the leaf itself is all that is left
    return covered


def different(keys: np.ndarray, bound: int) -> np.ndarray:
    """The different ones among integers 0 … bound − 1, increasing: sorted or marked."""
    if bound > SPARSE * len(keys):
        return distinct(keys)
    found = np.zeros(bound, bool)
    found[keys] = True
    return np.flatnonzero(found)


def numbered(major: np.ndarray, minor: np.ndarray) -> _Numbered:
    """Numbers for the different pairs (major, minor), in their order; and the pair of each number.

    They are integers from 0 on; the numbers are (m,) integers, the pairs two (count,) int64.
    """
    factor = int(minor.max(initial=0)) + 1
    keys = major.astype(np.int64)
    keys *= factor
    keys += minor
    bound = int(keys.max(initial=-1)) + 1
    found = different(keys, bound)
    if bound > SPARSE * len(keys):
        number = np.searchsorted(found, keys)
    else:
        place = np.empty(bound, index_dtype(bound))
        place[found] = np.arange(len(found), dtype=place.dtype)
        number = place[keys]
    return number.astype(index_dtype(bound), copy=False), np.divmod(found, factor)


def _leaves(ends: np.ndarray, n: int) -> np.ndarray:
    """Which edges are the only ones of their ends, numbers below n: (m,) bool."""
    return (np.bincount(ends, minlength=n) == 1)[ends]


def _by_matching(left: np.ndarray, right: np.ndarray, nleft: int, nright: int) -> np.ndarray:
    """The result of :func:`rows_in_cover`, by a largest matching (Hopcroft and Karp 1973).

    A left vertex is in no such cover if and only if an alternating path joins it to a left vertex
    that a largest matching leaves alone: then every minimum cover has its neighbours instead. Left
    vertices without edges are not in it.
    """
    from scipy.sparse import csgraph  # takes 0.2 s, which most small graphs are spared

    ones = np.ones(len(left), np.int8)
    graph = sp.coo_array((ones, (left, right)), shape=(nleft, nright)).tocsr()
    mate = csgraph.maximum_bipartite_matching(graph, perm_type="column")  # of left; −1: none
    # Steps from left to left: along an edge, back along the matching; and from a source, the last
    # vertex, to those without a mate. All neighbours of vertices that are reached are matched.
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
