"""The only definition of communication volume, messages and balance of a partition.

Row i of M and row i of every dense matrix live on ``parts[i]``. Row j of H is needed by every
part that owns a row of M with an entry in column j; in one *expand* its owner sends it once to
each of them but itself. A *fold* goes the other way: what a part sends in it is what it
receives in the expand. The trainer counts the bytes that it hands to MPI, and they equal
``rows × width × itemsize`` of the figures here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from partition.graph.graph import Graph, chunks, columns, row_sizes, training_vertices

SPARSE = 32  # of fewer numbers than one in so many it is quicker to sort them than to mark them


@dataclass(frozen=True)
class Metrics:
    """What one exchange of rows costs under a partition; lists have one number per part.

    Attributes
    ----------
    k : int
        Number of parts.
    direction : {"in", "out"}
        The direction of M.
    rows : list of int
        Rows owned.
    nnz : list of int
        Entries of the owned rows of M, with its full diagonal: the arithmetic of one product.
    send_rows, recv_rows : list of int
        Rows sent and received in one expand.
    send_messages, recv_messages : list of int
        Parts that rows are sent to, and received from, in one expand.
    train : list of int, optional
        Training vertices owned: those of the mask, or all labelled ones where there is none;
        None for a graph without labels.
    """

    k: int
    direction: str
    rows: list[int]
    nnz: list[int]
    send_rows: list[int]
    recv_rows: list[int]
    send_messages: list[int]
    recv_messages: list[int]
    train: list[int] | None = None

    @property
    def volume(self) -> int:
        """Rows sent by all parts together: Σ over columns of λ−1."""
        return sum(self.send_rows)

    @property
    def messages(self) -> int:
        """Messages sent by all parts together."""
        return sum(self.send_messages)

    @property
    def imbalance(self) -> float:
        """Largest part of the entries of M over the average part, less 1."""
        return _excess(self.nnz)

    @property
    def row_imbalance(self) -> float:
        """Largest part of the rows over the average part, less 1."""
        return _excess(self.rows)

    @property
    def train_imbalance(self) -> float | None:
        """Largest part of the training vertices over the average part, less 1, where known."""
        return None if self.train is None else _excess(self.train)

    def summary(self) -> dict[str, float]:
        """The figures that partitions are compared by: totals, averages and maxima of an expand."""
        return {
            "volume": self.volume,
            "volume_avg": self.volume / self.k,
            "max_send": max(self.send_rows),
            "max_recv": max(self.recv_rows),
            "messages": self.messages,
            "messages_avg": self.messages / self.k,
            "max_send_messages": max(self.send_messages),
            "max_recv_messages": max(self.recv_messages),
            "imbalance": self.imbalance,
            "row_imbalance": self.row_imbalance,
        } | ({} if self.train is None else {"train_imbalance": _excess(self.train)})


@dataclass(frozen=True)
class NodeTraffic:
    """What one exchange of rows moves between nodes and inside them; lists: one number per node.

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

    ranks_per_node: int
    send_rows: list[int]
    recv_rows: list[int]
    inside_rows: list[int]
    send_messages: list[int]

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

    The columns of M are taken in chunks, so that beside the pattern by columns (which is the
    graph itself for "in") the memory is bounded; nothing is of size n × k or k × k but the set
    of the messages themselves.

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
    parts = np.asarray(parts)
    if parts.shape != (graph.n,):
        raise ValueError(f"{parts.shape} parts for {graph.n} vertices")
    if graph.n and not 0 <= parts.min() <= parts.max() < k:
        raise ValueError(f"a part number is outside 0..{k - 1}")

    exchange = exchange_matrix(graph, parts, k, direction)
    train = training_vertices(graph)
    # The entries of each part, by a bincount whose float64 weights are exact below 2^53.
    nnz = np.bincount(parts, weights=row_sizes(graph, direction), minlength=k)
    return Metrics(
        k=k,
        direction=direction,
        rows=np.bincount(parts, minlength=k).tolist(),
        nnz=nnz.astype(np.int64).tolist(),
        send_rows=exchange.sum(axis=1).tolist(),
        recv_rows=exchange.sum(axis=0).tolist(),
        send_messages=np.diff(exchange.indptr).tolist(),
        recv_messages=np.bincount(exchange.indices, minlength=k).tolist(),
        train=None if train is None else np.bincount(parts[train], minlength=k).tolist(),
    )


def exchange_matrix(graph: Graph, parts: np.ndarray, k: int, direction: str = "in") -> sp.csr_array:
    """Rows that each part sends to each other one in an expand: (k, k) int64, sparse.

    Its entries are the messages, its sum is the volume; a fold moves its transpose.
    """
    indptr, rows = columns(graph, direction)
    parts = np.asarray(parts)
    return pattern_exchange(indptr, rows, parts, parts, k)


def pattern_exchange(
    indptr: np.ndarray, rows: np.ndarray, owners: np.ndarray, parts: np.ndarray, k: int
) -> sp.csr_array:
    """What :func:`exchange_matrix` counts, for any set of entries: of M, or of a mini-batch.

    Parameters
    ----------
    indptr : (m + 1,) integers
    rows : integers
        ``rows[indptr[c]:indptr[c+1]]`` are the rows with an entry in column c. The owner of a
        column never sends it to itself, so it makes no difference whether the diagonal is there.
    owners : (m,) integers
        The part that owns the row of H which column c reads.
    parts : (n,) integers
        The part that owns each row.
    """
    exchange = sp.csr_array((k, k), dtype=np.int64)
    if k == 1:
        return exchange
    for first, last in chunks(indptr):
        # One key per distinct (column, part that needs it), the owner's own needs left out.
        column = np.repeat(np.arange(first, last), np.diff(indptr[first : last + 1]))
        owner, needer = owners[column], parts[rows[indptr[first] : indptr[last]]]
        away = owner != needer
        keys = _distinct((column[away] - first) * k + needer[away], (last - first) * k)
        sender, receiver = owners[first + keys // k], keys % k
        ones = np.ones(len(keys), dtype=np.int64)
        exchange += sp.coo_array((ones, (sender, receiver)), shape=(k, k)).tocsr()
    exchange.sort_indices()
    return exchange


def node_traffic(exchange: sp.csr_array, ranks_per_node: int) -> NodeTraffic:
    """Traffic between nodes of R parts each, from :func:`exchange_matrix`.

    Raises
    ------
    ValueError
        If R < 1.
    """
    if ranks_per_node < 1:
        raise ValueError(f"{ranks_per_node} ranks per node")
    k = exchange.shape[0]
    nodes = -(-k // ranks_per_node)
    pairs = exchange.tocoo()
    sender, receiver = pairs.coords[0] // ranks_per_node, pairs.coords[1] // ranks_per_node
    inside = sender == receiver
    rows = np.zeros((3, nodes), dtype=np.int64)
    np.add.at(rows[0], sender[~inside], pairs.data[~inside])
    np.add.at(rows[1], receiver[~inside], pairs.data[~inside])
    np.add.at(rows[2], sender[inside], pairs.data[inside])
    send, recv, within = rows.tolist()
    messages = np.bincount(sender[~inside], minlength=nodes).tolist()
    return NodeTraffic(ranks_per_node, send, recv, within, messages)


def _distinct(keys: np.ndarray, bound: int) -> np.ndarray:
    """The different ones of numbers below ``bound``, in order."""
    if bound > SPARSE * len(keys):
        return np.unique(keys)
    found = np.zeros(bound, dtype=bool)
    found[keys] = True
    return np.flatnonzero(found)


def _excess(loads: list[int]) -> float:
    total = sum(loads)
    return max(loads) * len(loads) / total - 1.0 if total else 0.0
