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

from partition.graph import Graph, chunks, columns, row_sizes


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
    """

    k: int
    direction: str
    rows: list[int]
    nnz: list[int]
    send_rows: list[int]
    recv_rows: list[int]
    send_messages: list[int]
    recv_messages: list[int]

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

    send, recv = np.zeros(k, np.int64), np.zeros(k, np.int64)
    channels = np.empty(0, np.int64)
    if k > 1:
        indptr, rows = columns(graph, direction)
        for first, last in chunks(indptr):
            # One key per distinct (column, part that needs it), the owner's own needs left out.
            column = np.repeat(np.arange(first, last), np.diff(indptr[first : last + 1]))
            owner, needer = parts[column], parts[rows[indptr[first] : indptr[last]]]
            away = owner != needer
            keys = np.unique((column[away] - first) * k + needer[away])
            sender, receiver = parts[first + keys // k].astype(np.int64), keys % k
            send += np.bincount(sender, minlength=k)
            recv += np.bincount(receiver, minlength=k)
            channels = np.union1d(channels, sender * k + receiver)

    # The entries of each part, by a bincount whose float64 weights are exact below 2^53.
    nnz = np.bincount(parts, weights=row_sizes(graph, direction), minlength=k)
    return Metrics(
        k=k,
        direction=direction,
        rows=np.bincount(parts, minlength=k).tolist(),
        nnz=nnz.astype(np.int64).tolist(),
        send_rows=send.tolist(),
        recv_rows=recv.tolist(),
        send_messages=np.bincount(channels // k, minlength=k).tolist(),
        recv_messages=np.bincount(channels % k, minlength=k).tolist(),
    )


def _excess(loads: list[int]) -> float:
    total = sum(loads)
    return max(loads) * len(loads) / total - 1.0 if total else 0.0
