"""Which rank sends which rows to which rank: arrays, computed once when a graph is loaded.

Rank r owns the rows ``own`` of every dense matrix and needs, for its rows of M, the rows ``halo``
of others. Locally, rows are numbered own first, in an order of the rank's own, then halo in (owner,
global id) order, so that what each neighbour sends is one contiguous slice:

>>> import numpy as np
>>> own, halo = np.array([0, 2]), np.array([1, 4])
>>> local_numbers(own, halo, np.array([2, 4, 0])).tolist()
[1, 3, 0]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gcnmpi.kernels.rows import Places


@dataclass(frozen=True)
class Plan:
    """One rank's side of the exchange of rows.

    Attributes
    ----------
    own : (nown,) integers
        Global ids of the rows of this rank, in any order.
    halo : (nhalo,) integers
        Global ids of the rows of others that it needs, in (owner, id) order.
    recv_peers, recv_offsets : (p,) and (p + 1,) int64
        Rows ``recv_offsets[i]:recv_offsets[i + 1]`` of the halo come from rank ``recv_peers[i]``.
    send_peers, send_offsets, send_rows : (q,), (q + 1,) and (nsend,) int64
        Own rows (local numbers) ``send_rows[send_offsets[i]:send_offsets[i + 1]]`` go to rank
        ``send_peers[i]``, in the order of its halo. No ``send_rows``: a matrix makes what is sent
        (:mod:`gcnmpi.halo.mixed`).
    """

    own: np.ndarray
    halo: np.ndarray
    recv_peers: np.ndarray
    recv_offsets: np.ndarray
    send_peers: np.ndarray
    send_offsets: np.ndarray
    send_rows: np.ndarray

    @property
    def nown(self) -> int:
        """Rows of this rank."""
        return len(self.own)

    @property
    def nhalo(self) -> int:
        """Rows received in an expand (and sent in a fold)."""
        return len(self.halo)

    @property
    def nsend(self) -> int:
        """Rows sent in an expand (and received in a fold)."""
        return int(self.send_offsets[-1])


def make_plan(
    own: np.ndarray,
    halo: np.ndarray,
    owners: np.ndarray,
    asked: np.ndarray,
    asked_counts: np.ndarray,
) -> Plan:
    """The plan of one rank, once every rank has told the owners of its halo what it needs.

    Parameters
    ----------
    owners : (nhalo,) integers
        Owner of every row of the halo.
    asked : (nsend,) integers
        Global ids that others asked for, grouped by asking rank.
    asked_counts : (P,) integers
        How many of them each rank asked for.
    """
    send_rows = local_numbers(own, own[:0], asked).astype(np.int64)
    return plan_of(own, halo, owners, send_rows, asked_counts)


def plan_of(
    own: np.ndarray,
    halo: np.ndarray,
    owners: np.ndarray,
    send_rows: np.ndarray,
    asked_counts: np.ndarray,
) -> Plan:
    """The plan of one rank, where it is known which own rows (local numbers) others asked for."""
    send_peers, send_offsets = _groups(asked_counts)
    recv_peers, recv_offsets = _groups(np.bincount(owners, minlength=len(asked_counts)))
    return Plan(own, halo, recv_peers, recv_offsets, send_peers, send_offsets, send_rows)


def local_numbers(own: np.ndarray, halo: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Local numbers of global ids that are all in own or halo; ValueError if one is not."""
    return Places(np.concatenate((own, halo))).all_of(ids)


def _groups(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    peers = np.flatnonzero(counts)
    return peers, np.concatenate(([0], np.cumsum(counts[peers]))).astype(np.int64)
