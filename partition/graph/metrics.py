"""The only definition of communication volume, messages and balance of a partition.

Row i of M and row i of every dense matrix live on ``parts[i]``. Row j of H is needed by every
part that owns a row of M with an entry in column j; in one *expand* its owner sends it once to
each of them but itself. A *fold* goes the other way: a part sends in it the rows that
it receives in the expand. In a *mixed* exchange partial sums of rows of M travel too, where that
makes fewer rows (``partition.graph.cover``). The trainer counts the bytes that it hands to MPI,
and they equal ``rows × width × itemsize`` of the figures here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from partition.graph import graph as graphs
from partition.graph.aggregation import column_pieces
from partition.graph.cover import different, numbered, rows_in_cover
from partition.graph.graph import Graph, chunks, index_dtype
from partition.graph.sampling import Pattern, Sampler, Side, pointers, segments
from partition.graph.sparse import sp
from partition.records import Count, Positive


@dataclass(frozen=True)
class Metrics:
    """The costs of one exchange under a partition; lists have one number per part.

    Rows sent are rows of H, and in a mixed exchange also partial sums of rows of M. The adjoint
    exchange has senders and receivers swapped, and the same entries on each part.

    Attributes
    ----------
    k : int
        Number of parts.
    direction : {"in", "out"}
        The direction of M.
    rows : list of int
        Rows owned.
    nnz : list of int
        Entries of M that the part multiplies, its full diagonal among them: those of the owned
        rows; in a mixed exchange without those that others sum up for it, and with those that
        it sums up for others.
    send_rows, recv_rows : list of int
        Rows sent and received in one expand, or in the mixed exchange that takes its place.
    send_messages, recv_messages : list of int
        Parts that rows are sent to, and received from. The same for rows and mixed.
    train : list of int, optional
        Training vertices owned: those of the mask, or all labelled ones where there is none;
        None for a graph without labels.
    types : mapping of str to list of int, optional
        Of a heterogeneous graph, the vertices of each type owned.
    send_sums, recv_sums : list of int, optional
        How many of the rows sent, and received, are partial sums; None for an exchange of rows.
    """

    k: int
    direction: str
    rows: list[Count]
    nnz: list[Count]
    send_rows: list[Count]
    recv_rows: list[Count]
    send_messages: list[Count]
    recv_messages: list[Count]
    train: list[Count] | None = None
    send_sums: list[Count] | None = None
    recv_sums: list[Count] | None = None
    types: Mapping[str, list[Count]] | None = None

    def __getitem__(self, name: str) -> list[int]:
        """A list by its name, as scripts read it: ``partition.metrics["in"]["send_rows"]``."""
        found: list[int] = vars(self)[name]
        return found

    def stored(self) -> dict[str, object]:
        """The figures as a file has them: those of types only where there are types."""
        return {name: each for name, each in vars(self).items() if each or name != "types"}

    @property
    def exchange(self) -> str:
        """Which exchange this is: "rows", or "mixed"."""
        return "rows" if self.send_sums is None else "mixed"

    @property
    def volume(self) -> int:
        """Rows sent by all parts together; if they are all rows of H, Σ over columns of λ−1."""
        return sum(self.send_rows)

    @property
    def messages(self) -> int:
        """Messages sent by all parts together."""
        return sum(self.send_messages)

    @property
    def work(self) -> list[int]:
        """Rows that each part adds up in one product: its entries, and the sums that arrive."""
        sums = self.recv_sums or [0] * self.k
        return [nnz + more for nnz, more in zip(self.nnz, sums, strict=True)]

    @property
    def imbalance(self) -> float:
        """Largest part of the work over the average part, less 1."""
        return _excess(self.work)

    @property
    def row_imbalance(self) -> float:
        """Largest part of the rows over the average part, less 1."""
        return _excess(self.rows)

    def summary(self) -> dict[str, float]:
        """The figures that partitions are compared by: totals, averages and maxima of an expand."""
        found: dict[str, float] = {}
        for name, figures in (("volume", "rows"), ("messages", "messages")):
            sent, received = self[f"send_{figures}"], self[f"recv_{figures}"]
            of = "" if name == "volume" else "_messages"
            found |= {name: sum(sent), f"{name}_avg": sum(sent) / self.k}
            found |= {f"max_send{of}": max(sent), f"max_recv{of}": max(received)}
        found |= {"imbalance": self.imbalance, "row_imbalance": self.row_imbalance}
        if self.train is not None:
            found["train_imbalance"] = _excess(self.train)
        if self.types:
            found["type_imbalance"] = max(map(_excess, self.types.values()))
        return found if self.send_sums is None else found | {"sums": sum(self.send_sums)}


@dataclass(frozen=True)
class NodeTraffic:
    """The rows that one exchange moves between nodes and inside them; lists: one number per node.

    Node b holds the parts b·R … b·R+R−1, as mpirun fills nodes. A row that several parts of
    another node need is sent to each of them, and counted as often.

    Attributes
    ----------
    ranks_per_node : int
        R; the last node may hold fewer.
    send_rows, recv_rows : list of int
        Rows sent to other nodes, and received from them, in one expand.
    inside_rows : list of int
        Rows that the parts of a node send each other.
    send_messages : list of int
        Messages, one for each pair of parts, to other nodes.
    """

    ranks_per_node: Positive
    send_rows: list[Count]
    recv_rows: list[Count]
    inside_rows: list[Count]
    send_messages: list[Count]

    def summary(self) -> dict[str, float]:
        """Totals and maxima; ``inter_volume + intra_volume`` is the volume of the partition."""
        return {
            "inter_volume": sum(self.send_rows),
            "intra_volume": sum(self.inside_rows),
            "max_node_send": max(self.send_rows),
            "max_node_recv": max(self.recv_rows),
            "inter_messages": sum(self.send_messages),
        }


def measure(graph: Graph, parts: np.ndarray, k: int, direction: str = "in") -> Metrics:
    """Volume, messages and balance of a partition, exactly.

    The columns of M are taken in pieces, so that beside numbers for each vertex the memory is
    bounded; nothing is of size n × k or k × k but the set of the messages themselves.

    Parameters
    ----------
    parts : (n,) integers
        Part of each vertex, 0..k−1.
    k : int
        Number of parts, empty ones included.
    direction : {"in", "out"}
        The direction of M.

    Raises
    ------
    ValueError
        If ``parts`` is not n numbers in 0..k−1.
    """
    parts = _checked_parts(graph, parts, k)
    exchange = exchange_matrix(graph, parts, k, direction)
    entries = _row_entries(graph, parts, k, direction)
    return metrics_of(exchange, direction, parts, entries, **vertex_counts(graph, parts, k))


def vertex_counts(graph: Graph, parts: np.ndarray, k: int) -> dict[str, Any]:
    """The training vertices, and the vertices of each type, of each part: fields of Metrics."""
    train, types = graphs.training_rows(graph), graph.vertex_types

    def count(some: np.ndarray) -> list[int]:
        return list(np.bincount(some, minlength=k).tolist())

    ranges = {} if types is None else {name: types.range(name) for name in types.names}
    counts = {name: count(parts[own.start : own.stop]) for name, own in ranges.items() if own}
    return {"train": None if train is None else count(parts[train]), "types": counts or None}


def metrics_of(
    exchange: sp.csr_array, direction: str, owners: np.ndarray, nnz: np.ndarray, **more: Any
) -> Metrics:
    """Metrics from the rows that each part sends to each other one, and the owner of each row."""
    k = exchange.shape[0]
    return Metrics(
        k=k,
        direction=direction,
        rows=np.bincount(owners, minlength=k).tolist(),
        nnz=nnz.tolist(),
        send_rows=exchange.sum(axis=1).tolist(),
        recv_rows=exchange.sum(axis=0).tolist(),
        send_messages=np.diff(exchange.indptr).tolist(),
        recv_messages=np.bincount(exchange.indices, minlength=k).tolist(),
        **more,
    )


def _row_entries(graph: Graph, parts: np.ndarray, k: int, direction: str) -> np.ndarray:
    """Entries of M in the rows of each part, (k,) int64: float64 weights are exact below 2^53."""
    return np.bincount(parts, graphs.row_sizes(graph, direction), k).astype(np.int64)


def exchange_matrix(graph: Graph, parts: np.ndarray, k: int, direction: str = "in") -> sp.csr_array:
    """Rows that each part sends to each other one in an expand: (k, k) int64, sparse.

    Its entries are the messages, its sum is the volume; a fold moves its transpose.
    """
    parts = np.asarray(parts)
    exchange = sp.csr_array((k, k), dtype=np.int64)
    for first, last, indptr, rows in column_pieces(graph, direction) if k > 1 else ():
        exchange += pattern_exchange(indptr, rows, parts[first:last], parts, k)
    exchange.sort_indices()
    return exchange


def pattern_exchange(
    indptr: np.ndarray, rows: np.ndarray, owners: np.ndarray, parts: np.ndarray, k: int
) -> sp.csr_array:
    """The count of :func:`exchange_matrix`, for any set of entries: of M, or of a mini-batch.

    ``rows[indptr[c]:indptr[c+1]]`` are the rows with an entry in column c. ``owners[c]`` is the
    part that owns the row of H which column c reads, ``parts`` the part that owns each row. The
    owner of a column never sends it to itself, so it makes no difference whether the diagonal is
    there.
    """
    exchange = sp.csr_array((k, k), dtype=np.int64)
    for first, last in chunks(indptr) if k > 1 else ():
        # One key per distinct (column, part that needs it), the owner's own needs left out.
        column = np.repeat(np.arange(last - first), np.diff(indptr[first : last + 1]))
        owner, needer = owners[first:last][column], parts[rows[indptr[first] : indptr[last]]]
        away = owner != needer
        keys = different(column[away] * k + needer[away], (last - first) * k)
        exchange += _matrix(owners[first + keys // k], keys % k, k)
    exchange.sort_indices()
    return exchange


def node_traffic(exchange: sp.csr_array, ranks_per_node: int) -> NodeTraffic:
    """Traffic between nodes of R parts each, R ≥ 1, from :func:`exchange_matrix`."""
    if ranks_per_node < 1:
        raise ValueError(f"{ranks_per_node} ranks per node")
    nodes, pairs = -(-exchange.shape[0] // ranks_per_node), exchange.tocoo()
    sender, receiver = (ends // ranks_per_node for ends in pairs.coords)
    inside = sender == receiver
    rows = np.zeros((3, nodes), dtype=np.int64)
    for at, ends, some in ((0, sender, ~inside), (1, receiver, ~inside), (2, sender, inside)):
        np.add.at(rows[at], ends[some], pairs.data[some])
    messages = np.bincount(sender[~inside], minlength=nodes).tolist()
    send, recv, within = rows.tolist()
    return NodeTraffic(ranks_per_node, send, recv, within, messages)


def _checked_parts(graph: Graph, parts: np.ndarray, k: int) -> np.ndarray:
    """The parts, if there is a number in 0..k−1 for each vertex; else a ValueError."""
    parts = np.asarray(parts)
    if parts.shape != (graph.n,) or (graph.n and not 0 <= parts.min() <= parts.max() < k):
        raise ValueError(f"{parts.shape} parts for {graph.n} vertices, or one outside 0..{k - 1}")
    return parts


def _matrix(sender: np.ndarray, receiver: np.ndarray, k: int) -> sp.csr_array:
    """How many there are for each pair of parts: (k, k) int64."""
    ones = np.ones(len(sender), np.int64)
    return sp.coo_array((ones, (sender, receiver)), shape=(k, k)).tocsr()


def _excess(loads: list[int]) -> float:
    total = sum(loads)
    return max(loads) * len(loads) / total - 1.0 if total else 0.0


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
    graph: Graph, parts: np.ndarray, k: int, directions: Sequence[str] = graphs.DIRECTIONS,
    by_relation: bool = False,
) -> dict[str, Metrics]:  # fmt: skip
    """:func:`measure_mixed` in both directions, in less time than one after the other."""
    parts = _checked_parts(graph, parts, k)
    count = _entries_by_relation if by_relation else _row_entries
    kinds = len(graph.relations) if by_relation else 1
    counts = {way: MixedCounts(k, count(graph, parts, k, way)) for way in directions}
    members = np.argsort(parts, kind="stable").astype(index_dtype(graph.n))
    entries = np.append(0, np.cumsum(np.diff(graph.indptr)[members]))
    bounds = np.searchsorted(parts[members], np.arange(k + 1))
    for first, last in chunks(entries[bounds], AT_ONCE) if k > 1 else ():
        # All pairs of parts with the sources of arcs in one of a few parts; of a part with many
        # arcs, the pairs with a few others at a time.
        begin, end = bounds[first], bounds[last]
        if begin == end:
            continue
        ranges = chunks(entries[begin : end + 1], AT_ONCE)
        some = (members[begin + low : begin + high] for low, high in ranges)
        cut = [_cut_arcs(graph, parts, vertices, by_relation) for vertices in some]
        source, target, kind = (np.concatenate(each) for each in zip(*cut, strict=True))
        ends = np.append(0, np.cumsum(np.bincount(parts[target], minlength=k)))
        for low, high in chunks(ends, AT_ONCE):
            now = (parts[target] >= low) & (parts[target] < high)
            here, of = (source[now], target[now]), kind[now]
            for way, found in counts.items():
                column, row = here if way == "in" else here[::-1]
                found.add(column, row.astype(np.int64) * kinds + of, parts[column], parts[row])
    return {way: found.metrics(way, parts) for way, found in counts.items()}


def _cut_arcs(
    graph: Graph, parts: np.ndarray, vertices: np.ndarray, by_relation: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ends of the arcs that leave some vertices for other parts, and their relations, or 0."""
    place, sizes = segments(np.asarray(graph.indptr), vertices)
    source, target = np.repeat(vertices, sizes), np.asarray(graph.indices)[place]
    cut = parts[source] != parts[target]
    if not by_relation:
        return source[cut], target[cut], np.zeros(np.count_nonzero(cut), np.uint8)
    relation = np.asarray(graph.arc_type)[place]
    cut &= graphs.first_of_equals(source, target, relation)
    return source[cut], target[cut], relation[cut]


def _entries_by_relation(graph: Graph, parts: np.ndarray, k: int, direction: str) -> np.ndarray:
    """The same of the matrix of means by relation."""
    found, relations = np.zeros(k, np.int64), np.asarray(graph.arc_type)
    for first, last, source, target in graphs.arc_pieces(graph):
        relation = relations[graph.indptr[first] : graph.indptr[last]]
        first_of = graphs.first_of_equals(source, target, relation)
        row = (target if direction == "in" else source)[first_of]
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
        self.rows += _matrix(home[by_row], receiver[by_row], self.k)
        self.sums += _matrix(sender[sent], owner[sent], self.k)
        for ends, sign in ((sender, 1), (owner, -1)):
            moved = np.bincount(ends, weights=summed, minlength=self.k)
            self.nnz += sign * moved.astype(np.int64)

    def metrics(self, direction: str, parts: np.ndarray) -> Metrics:
        """The counts of all covers together, as metrics of a partition."""
        sent, received = (self.sums.sum(axis=axis).tolist() for axis in (1, 0))
        every = (self.rows + self.sums).tocsr()
        return metrics_of(every, direction, parts, self.nnz, send_sums=sent, recv_sums=received)


_OBSERVED = 16  # batches in which it is observed how often rows are read
_EPOCH = 1 << 31  # their first one: no run gets there
_INDEX_BYTES = 4  # of a column's number in a sparse row


@dataclass(frozen=True)
class Drawn:
    """A mini-batch of the whole graph.

    Attributes
    ----------
    first : (m,) integers
        The vertices that it begins with, increasing: its seeds, or all that are in it.
    patterns : list of Pattern
        The entries of M of each layer, that of the seeds first; one, where all layers are alike.
    """

    first: np.ndarray
    patterns: list[Pattern]

    @property
    def computed(self) -> list[np.ndarray]:
        """The rows that each layer computes: those that the layer after it reads."""
        return [self.first, *(pattern.columns for pattern in self.patterns[:-1])]


def draw_batch(
    sampler: Sampler, side: Side, epoch: int, batch: int, seeds: np.ndarray | None = None
) -> Drawn:
    """Draw a mini-batch, of the :func:`partition.graph.sampling.sides` of a graph for its sampler.

    The sampler draws its seeds among ``seeds``, increasing vertices; without them, among all.
    """
    first = sampler.members(epoch, batch)
    patterns = sampler.patterns(side, epoch, batch, seeds)
    return Drawn(first if seeds is None else seeds[first], patterns)


def _pairs_of(pattern: Pattern, parts: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows each part reads of others: numbers vertex·k + part, increasing, each once.

    And, for each entry of the pattern, the place of its own, −1 where it is of the part itself.
    """
    column = np.repeat(pattern.columns, np.diff(pattern.indptr))
    reader = parts[pattern.rows]
    away = parts[column] != reader
    pairs, place = np.unique(column[away].astype(np.int64) * k + reader[away], return_inverse=True)
    places = np.full(len(column), -1)
    places[away] = place
    return pairs, places


def measure_batch(
    drawn: Drawn, parts: np.ndarray, k: int, direction: str, kept: np.ndarray | None = None
) -> list[Metrics]:
    """The costs of each layer of a mini-batch under a partition, that of the seeds first.

    ``rows`` of a result are the rows that the layer reads without a message: by their owners, and
    those of :func:`kept_pairs` that parts keep; ``nnz`` its entries,
    with the diagonal of each row that it computes, or its arcs, where they have relations.
    """
    found = []
    for pattern, computed in zip(drawn.patterns, drawn.computed, strict=True):
        sent, more = pattern, np.zeros(0, np.int64)
        if kept is not None and pattern is drawn.patterns[-1]:
            sent, more = _without(pattern, computed, parts, k, kept)
        owners = parts[sent.columns]
        exchange = pattern_exchange(sent.indptr, sent.rows, owners, parts, k)
        column = np.repeat(pattern.columns, np.diff(pattern.indptr))
        worked = pattern.rows
        if pattern.groups is None:
            worked = np.concatenate((worked[worked != column], computed))
        nnz = np.bincount(parts[worked], minlength=k)
        found.append(metrics_of(exchange, direction, np.concatenate((owners, more)), nnz))
    return found


def _without(
    pattern: Pattern, computed: np.ndarray, parts: np.ndarray, k: int, kept: np.ndarray
) -> tuple[Pattern, np.ndarray]:
    """A pattern without the entries of rows that are kept, and for each of these rows its part.

    Columns remain that an entry or ``computed`` has.
    """
    pairs, place = _pairs_of(pattern, parts, k)
    here = np.isin(pairs, kept, assume_unique=True)
    # One number more, which stands for the place −1.
    remains = np.append(~here, True)[place]
    column = np.repeat(np.arange(len(pattern.columns)), np.diff(pattern.indptr))[remains]
    sizes = np.bincount(column, minlength=len(pattern.columns))
    needed = (sizes > 0) | np.isin(pattern.columns, computed)
    left = Pattern(pattern.columns[needed], pointers(sizes[needed]), pattern.rows[remains])
    return left, pairs[here] % k


def observed(sampler: Sampler) -> list[tuple[int, int]]:
    """Epoch and number of each batch that is observed."""
    return [(_EPOCH + i // sampler.batches, i % sampler.batches) for i in range(_OBSERVED)]


def row_bytes(width: int, entries: int, n: int, itemsize: int) -> float:
    """Bytes of a row of ``width`` features, of numbers of ``itemsize`` bytes.

    If the features are a sparse matrix, ``entries`` are those of all n rows, and a row is taken to
    have as many as the mean; otherwise they are 0.
    """
    return entries / n * (itemsize + _INDEX_BYTES) if entries else width * itemsize


def rows_within(megabytes: float, width: int, entries: int, n: int, itemsize: int) -> int:
    """How many rows of features so many MB (2²⁰ bytes) hold; arguments as of `row_bytes`."""
    return int(megabytes * 2**20 / max(row_bytes(width, entries, n, itemsize), 1))


def most_used(uses: np.ndarray, ids: np.ndarray, rows: int) -> np.ndarray:
    """Places, increasing, of the rows that are used most: at most ``rows``, and used at all.

    Of rows that are used equally, that with the smaller global id in ``ids`` is taken.
    """
    used = np.flatnonzero(uses)
    order = np.lexsort((ids[used], -uses[used]))
    return np.sort(used[order[:rows]])


def observe(sampler: Sampler, side: Side, seeds: np.ndarray | None) -> list[Drawn]:
    """Draw the batches that are observed; arguments as of :func:`draw_batch`."""
    return [draw_batch(sampler, side, *place, seeds) for place in observed(sampler)]


def kept_pairs(batches: Sequence[Drawn], parts: np.ndarray, k: int, rows: int) -> np.ndarray:
    """The rows that each of k parts keeps, at most ``rows``: increasing numbers vertex·k + part."""
    every = [_pairs_of(batch.patterns[-1], parts, k)[0] for batch in batches]
    pairs, uses = np.unique(np.concatenate(every), return_counts=True)
    vertices, part = np.divmod(pairs, k)
    of_parts = [np.flatnonzero(part == number) for number in range(k)]
    kept = [mine[most_used(uses[mine], vertices[mine], rows)] for mine in of_parts]
    return np.sort(pairs[np.concatenate(kept)])
