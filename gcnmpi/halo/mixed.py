"""The mixed exchange: for each pair of ranks a row or a partial sum, whichever takes fewer.

An entry (i, j) of M whose row i is rank r's and whose row j of H is rank s's is served by row j,
which s sends and r multiplies, or by the partial sum of row i over columns of s, which s computes
and r adds. Which, :func:`partition.graph.cover.summed_entries` says: for each pair of ranks the
fewest rows are sent, never more than if all were rows of H (hybrid aggregation of SuperGNN, ICS
2025; semi-2D partitioning of Kayaaslan, Aykanat and Uçar, 2018).

A sum travels like a row: r has a place for it in its halo, behind the rows of H that come from s,
and a 1 in the column of that place. What s sends is a sparse matrix times its own rows of H, with
a single 1 in the rows for rows of H. So the adjoint is the transpose of both matrices, and the
roles of rows and sums are swapped without a word.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from gcnmpi.halo.plan import Plan, local_numbers
from gcnmpi.mpi.comm import Comm, redistribute
from partition.graph.cover import summed_entries
from partition.graph.graph import from_coordinates


def mixed(
    comm: Comm,
    plan: Plan,
    owners: np.ndarray,
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
    matrices : sequence of (nown, nown + nhalo) csr_array
        The rank's rows of M, of Mᵀ …: the same entries with other values.
    max_bytes : float
        Bound of the buffer in which entries are sent.

    Returns
    -------
    plan : Plan
        Its halo has places for rows and sums; of a sum, ``halo`` has the vertex it is part of. It
        has no ``send_rows``.
    matrices : list of (nown, nown + nhalo) csr_array
        What own and received rows are multiplied by, for each matrix.
    packings : list of (nsend, nown) csr_array
        What own rows are multiplied by to give those that are sent, for each matrix.
    """
    first, nown = matrices[0], plan.nown
    row = np.repeat(np.arange(nown), np.diff(first.indptr))
    cut = np.flatnonzero(first.indices >= nown)
    column = first.indices[cut] - nown
    owner = owners[column].astype(np.int64)
    here = np.full(len(cut), comm.rank)
    summed = summed_entries(plan.own[row[cut]], plan.halo[column], here, owner)

    # The new halo: of each owner the rows, then the sums, by vertex.
    rows = np.unique(column[~summed])
    keys, sum_of = np.unique(owner[summed] * nown + row[cut[summed]], return_inverse=True)
    sum_owners, sum_rows = np.divmod(keys, max(1, nown))
    ids = np.concatenate([plan.halo[rows], plan.own[sum_rows]])
    of = np.concatenate([owners[rows], sum_owners])
    order = np.lexsort((ids, np.arange(len(ids)) >= len(rows), of))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    counts = np.bincount(of, minlength=comm.size).astype(np.int64)
    sent = np.empty_like(counts)
    comm.Alltoall(counts, sent)
    recv_peers, send_peers = np.flatnonzero(counts), np.flatnonzero(sent)
    begin, send_begin = np.cumsum(counts) - counts, np.cumsum(sent) - sent
    new = Plan(
        own=plan.own,
        halo=ids[order],
        recv_peers=recv_peers,
        recv_offsets=np.append(begin[recv_peers], len(order)),
        send_peers=send_peers,
        send_offsets=np.append(send_begin[send_peers], sent.sum()),
        send_rows=np.zeros(0, np.int64),
    )

    # Each owner learns what its packed rows are made of: places among those of the pair, columns
    # and values. A row of H is one entry, 1.
    number = np.concatenate([place[: len(rows)], place[len(rows) :][sum_of]])
    towards = np.concatenate([owners[rows], owner[summed]])
    vertex = np.concatenate([plan.halo[rows], plan.halo[column[summed]]])
    ones = np.ones(len(rows), first.dtype)
    values = [np.concatenate([ones, m.data[cut[summed]]]) for m in matrices]
    received, asked = redistribute(
        comm, towards, [number - begin[towards], vertex, *values], max_bytes
    )
    packed_row = received[0] + np.repeat(send_begin, asked)
    packed_column = local_numbers(plan.own, plan.own[:0], received[1])

    kept = np.ones(first.nnz, bool)
    kept[cut[summed]] = False
    new_column = first.indices.astype(np.int64)
    new_column[cut[~summed]] = nown + place[np.searchsorted(rows, column[~summed])]
    new_row = np.concatenate([row[kept], sum_rows])
    new_column = np.concatenate([new_column[kept], nown + place[len(rows) :]])
    added = np.ones(len(keys), first.dtype)
    shape, packed_shape = (nown, nown + new.nhalo), (new.nsend, nown)
    multiplied, packings = [], []
    for matrix, packed in zip(matrices, received[2:], strict=True):
        data = np.concatenate([matrix.data[kept], added])
        multiplied.append(from_coordinates(new_row, new_column, data, shape))
        packings.append(from_coordinates(packed_row, packed_column, packed, packed_shape))
    return new, multiplied, packings
