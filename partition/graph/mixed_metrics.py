"""The costs of the mixed exchange under a partition: rows and partial sums, the fewest of both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from partition.graph.cover import numbered, rows_in_cover
from partition.graph.graph import DIRECTIONS, Graph, arc_pieces, chunks, index_dtype
from partition.graph.metrics import Metrics, checked_parts, metrics_of, row_entries
from partition.graph.sampling import segments
from partition.graph.sparse import sp

AT_ONCE = 1 << 20  # entries whose cover is computed at once; of one pair, if it has more


def measure_mixed(
    graph: Graph, parts: np.ndarray, k: int, direction: str = "in", by_relation: bool = False
) -> Metrics:
    """As :func:`measure` for an exchange of rows, the costs of the mixed one: the fewest rows.

    Every pair of parts uses the cover of :func:`partition.graph.cover.summed_entries`. Covers are
    computed for a few pairs at a time, in bounded memory beside the cut arcs of one part. Training
    vertices are not counted again.

    With ``by_relation``, M has a row for each vertex and relation with arcs into it ("out": out of
    it), and no diagonal: it is the matrix of means by relation, whose rows each may travel as a sum
    while a row of H serves all relations. The graph is that of the folder, with ``arc_type``.
    """
    return measure_mixed_both(graph, parts, k, (direction,), by_relation)[direction]


def measure_mixed_both(
    graph: Graph,
    parts: np.ndarray,
    k: int,
    directions: Sequence[str] = DIRECTIONS,
    by_relation: bool = False,
) -> dict[str, Metrics]:
    """:func:`measure_mixed` in both directions, in less time than one after the other."""
    parts = checked_parts(graph, parts, k)
    count_entries = _entries_by_relation if by_relation else row_entries
    kinds = len(graph.relations) if by_relation else 1
    counts = {
        direction: MixedCounts(k, count_entries(graph, parts, k, direction))
        for direction in directions
    }
    members = np.argsort(parts, kind="stable").astype(index_dtype(graph.n))
    entries = np.append(0, np.cumsum(np.diff(graph.indptr)[members]))
    bounds = np.searchsorted(parts[members], np.arange(k + 1))
    for first, last in chunks(entries[bounds], AT_ONCE) if k > 1 else ():
        # All pairs of parts with the sources of arcs in one of a few parts; of a part with many
        # arcs, the pairs with a few others at a time.
        begin, end = bounds[first], bounds[last]
        if begin == end:
            continue
        cut = [
            _cut_arcs(graph, parts, members[begin + low : begin + high], by_relation)
            for low, high in chunks(entries[begin : end + 1], AT_ONCE)
        ]
        source, target, kind = (np.concatenate(each) for each in zip(*cut, strict=True))
        ends = np.append(0, np.cumsum(np.bincount(parts[target], minlength=k)))
        for low, high in chunks(ends, AT_ONCE):
            some = (parts[target] >= low) & (parts[target] < high)
            here, of = (source[some], target[some]), kind[some]
            for direction, count in counts.items():
                column, row = here if direction == "in" else here[::-1]
                count.add(column, row.astype(np.int64) * kinds + of, parts[column], parts[row])
    return {direction: count.metrics(direction, parts) for direction, count in counts.items()}


def _cut_arcs(
    graph: Graph, parts: np.ndarray, vertices: np.ndarray, by_relation: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ends of the arcs that leave some vertices for other parts, and their relations, or 0."""
    place, sizes = segments(np.asarray(graph.indptr), vertices)
    source, target = np.repeat(vertices, sizes), np.asarray(graph.indices)[place]
    cut = parts[source] != parts[target]
    if not by_relation:
        return source[cut], target[cut], np.zeros(np.count_nonzero(cut), np.uint8)
    relation = _relations(graph)[place]
    cut &= _first_of_equals(source, target, relation)
    return source[cut], target[cut], relation[cut]


def _relations(graph: Graph) -> np.ndarray:
    assert graph.arc_type is not None, "arcs are of no relations"
    return np.asarray(graph.arc_type)


def _first_of_equals(*columns: np.ndarray) -> np.ndarray:
    """Where rows of several columns differ from the row before."""
    differs = (column[1:] != column[:-1] for column in columns)
    return np.append(True, np.logical_or.reduce([*differs]))[: len(columns[0])]


def _entries_by_relation(graph: Graph, parts: np.ndarray, k: int, direction: str) -> np.ndarray:
    """The same of the matrix of means by relation."""
    found, relations = np.zeros(k, np.int64), _relations(graph)
    for first, last, source, target in arc_pieces(graph):
        relation = relations[graph.indptr[first] : graph.indptr[last]]
        row = (target if direction == "in" else source)[_first_of_equals(source, target, relation)]
        found += np.bincount(parts[row], minlength=k)
    return found


class MixedCounts:
    """Counts of the mixed exchange in one direction, cover after cover.

    Attributes
    ----------
    k : int
        Number of parts.
    nnz : (k,) int64
        Entries that each part multiplies: first those of its rows, and after covers were added,
        with those that it sums up for others.
    rows, sums : (k, k) sparse int64
        Rows of H, and partial sums, that each part sends to each other one.
    """

    def __init__(self, k: int, nnz: np.ndarray) -> None:
        self.k, self.nnz = k, nnz
        self.rows, self.sums = (sp.csr_array((k, k), dtype=np.int64) for _ in range(2))

    def add(
        self, columns: np.ndarray, rows: np.ndarray, senders: np.ndarray, owners: np.ndarray
    ) -> None:
        """Count the cover of some pairs of parts, all of whose entries are here.

        Of each entry its column and row of M, (m,) integers, the part that has its row of H and
        sends, and the part that owns its row of M.
        """
        left, (_, receiver) = numbered(columns, owners)
        right, (_, sender) = numbered(rows, senders)
        home, owner = np.empty_like(receiver), np.empty_like(sender)
        home[left], owner[right] = senders, owners
        by_row = rows_in_cover(left, right, len(receiver), len(sender))
        right = right[~by_row[left]]
        summed = np.bincount(right, minlength=len(sender))  # entries of each partial sum
        sent = summed > 0
        self.rows += self._pairs(home[by_row], receiver[by_row])
        self.sums += self._pairs(sender[sent], owner[sent])
        for ends, sign in ((sender, 1), (owner, -1)):
            moved = np.bincount(ends, weights=summed, minlength=self.k)
            self.nnz += sign * moved.astype(np.int64)

    def metrics(self, direction: str, parts: np.ndarray) -> Metrics:
        """The counts of all covers together, as metrics of a partition."""
        return metrics_of(
            (self.rows + self.sums).tocsr(),
            direction,
            parts,
            self.nnz,
            send_sums=self.sums.sum(axis=1).tolist(),
            recv_sums=self.sums.sum(axis=0).tolist(),
        )

    def _pairs(self, sender: np.ndarray, receiver: np.ndarray) -> sp.csr_array:
        ones = np.ones(len(sender), np.int64)
        return sp.coo_array((ones, (sender, receiver)), shape=(self.k, self.k)).tocsr()
