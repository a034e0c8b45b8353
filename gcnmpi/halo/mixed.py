"""The mixed exchange: for each pair of ranks a row or a partial sum, whichever takes fewer.

An entry (i, j) of M whose row i is rank r's and whose row j of H is rank s's is served by row j,
which s sends and r multiplies, or by the partial sum of row i over columns of s, which s computes
and r adds. Which, :func:`partition.graph.cover.rows_in_cover` says: for each pair of ranks the
fewest rows are sent, never more than if all were rows of H (hybrid aggregation of SuperGNN, ICS
2025; semi-2D partitioning of Kayaaslan, Aykanat and Uçar, 2018).

A sum travels like a row: r has a place for it in its halo, behind the rows of H that come from s,
and a 1 in the column of that place. The rows that s sends are a sparse matrix times its own rows of
H, with a single 1 in those of its rows that stand for rows of H. So the adjoint is the transpose of
both matrices, and the roles of rows and sums are swapped without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gcnmpi.halo.plan import Plan, plan_of
from gcnmpi.kernels.rows import entry_rows
from gcnmpi.layout.pattern import EntryPattern
from gcnmpi.mpi.comm import Comm, redistribute
from partition.graph.cover import rows_in_cover


def mixed(
    comm: Comm,
    plan: Plan,
    owners: np.ndarray,
    rows: np.ndarray,
    matrices: Sequence[sp.csr_array],
    max_bytes: float,
) -> tuple[Plan, list[sp.csr_array], list[sp.csr_array]]:
    """The exchange of fewest rows, in place of the one of rows of H only.

    Parameters
    ----------
    plan : Plan
        Of rows only.
    owners : (nhalo,) integers
        Owner of every row of its halo.
    rows : (rows,) integers
        The vertex of each of the rank's rows of M: its own ones; or of each of its groups of arcs,
        where M has a row for each.
    matrices : sequence of (rows, nown + nhalo) csr_array
        The rank's rows of M, of Mᵀ …: the same entries with other values.

    Returns
    -------
    plan : Plan
        Its halo has places for rows and sums; of a sum, ``halo`` has the vertex it is part of. It
        has no ``send_rows``.
    matrices : list of (rows, nown + nhalo) csr_array
        What own and received rows are multiplied by, for each matrix.
    packings : list of (nsend, nown) csr_array
        What own rows are multiplied by to give those that are sent, for each matrix.
    """
    entries = _halo_entries(matrices[0], plan, owners)
    as_row = rows_in_cover(entries.column, entries.sum, plan.nhalo, len(entries.sum_row))
    summed = ~as_row[entries.column]
    sent_rows = np.flatnonzero(as_row)
    sums = np.flatnonzero(np.bincount(entries.sum[summed], minlength=len(entries.sum_row)))

    # The new halo: of each owner the rows, then the sums, by vertex.
    ids = np.concatenate([plan.halo[sent_rows], rows[entries.sum_row[sums]]])
    of = np.concatenate([owners[sent_rows], entries.sum_owner[sums]])
    order = np.lexsort((ids, np.arange(len(ids)) >= len(sent_rows), of))
    place = np.empty(len(order), entries.column.dtype)
    place[order] = np.arange(len(order))
    place_of_row = np.empty_like(place, shape=plan.nhalo)
    place_of_sum = np.empty_like(place, shape=len(entries.sum_row))
    place_of_row[sent_rows] = place[: len(sent_rows)]
    place_of_sum[sums] = place[len(sent_rows) :]
    counts = np.bincount(of, minlength=comm.size).astype(np.int64)
    sent = np.empty_like(counts)
    comm.Alltoall(counts, sent)
    new = plan_of(plan.own, ids[order], of[order], np.zeros(0, np.int64), sent)

    # Each owner learns what its packed rows are made of: places among those of the pair, columns
    # as places among the rows that it would send, and values. A row of H is one entry, 1.
    number = np.concatenate([place[: len(sent_rows)], place_of_sum[entries.sum[summed]]])
    asked = np.concatenate([sent_rows.astype(place.dtype), entries.column[summed]])
    towards = owners[asked]
    number -= (np.cumsum(counts) - counts)[towards].astype(number.dtype)
    asked -= _begins(plan.recv_peers, plan.recv_offsets, comm.size)[towards].astype(asked.dtype)
    ones = np.ones(len(sent_rows), matrices[0].dtype)
    values = [np.concatenate([ones, m.data[entries.where[summed]]]) for m in matrices]
    received, items = redistribute(comm, towards, [number, asked, *values], max_bytes)
    del number, asked, towards, values
    packed_row = received[0] + np.repeat(np.cumsum(sent) - sent, items)
    would = np.repeat(_begins(plan.send_peers, plan.send_offsets, comm.size), items)
    packed_column = plan.send_rows[received[1] + would]
    pattern = EntryPattern.of(packed_row, packed_column, (new.nsend, plan.nown))
    packings = [pattern.matrix(data) for data in received[2:]]
    del received, packed_row, packed_column, would, pattern

    # The own rows keep the other entries, and a 1 for each sum that arrives.
    first, nown = matrices[0], plan.nown
    kept = np.ones(first.nnz, bool)
    kept[entries.where[summed]] = False
    column = first.indices.copy()
    column[entries.where] = nown + place_of_row[entries.column]
    row = entry_rows(first.indptr)
    row = np.concatenate([row[kept], entries.sum_row[sums]])
    column = np.concatenate([column[kept], nown + place_of_sum[sums]])
    del entries
    pattern = EntryPattern.of(row, column, (len(rows), nown + new.nhalo))
    del row, column
    ones = np.ones(len(sums), first.dtype)
    return new, [pattern.matrix(np.append(m.data[kept], ones)) for m in matrices], packings


@dataclass(frozen=True)
class _HaloEntries:
    """The m entries of M in columns of the halo, by row and owner of the column.

    ``where`` is the place of each among all entries, ``column`` 0..nhalo−1, and ``sum`` the number
    of the partial sum that could serve it. Each sum is of a row, ``sum_row``, over the columns of
    one owner, ``sum_owner``.
    """

    where: np.ndarray
    column: np.ndarray
    sum: np.ndarray
    sum_row: np.ndarray
    sum_owner: np.ndarray


def _halo_entries(matrix: sp.csr_array, plan: Plan, owners: np.ndarray) -> _HaloEntries:
    where = np.flatnonzero(matrix.indices >= plan.nown)
    column = matrix.indices[where] - plan.nown
    row = entry_rows(matrix.indptr)[where]
    # Columns increase within a row, and owners with columns.
    owner = owners[column]
    begins = np.ones(len(row), bool)
    begins[1:] = (row[1:] != row[:-1]) | (owner[1:] != owner[:-1])
    number = np.cumsum(begins, dtype=column.dtype)
    number -= 1
    return _HaloEntries(where, column, number, row[begins], owner[begins])


def _begins(peers: np.ndarray, offsets: np.ndarray, size: int) -> np.ndarray:
    """Where the rows of each rank begin, (size,) int64; 0 for those without."""
    begins = np.zeros(size, np.int64)
    begins[peers] = offsets[:-1]
    return begins
