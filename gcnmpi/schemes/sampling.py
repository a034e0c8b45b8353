"""Which entries of M the rows of a mini-batch keep: compiled, where there is a compiler.

Host work, whatever kernel computes. Both ways keep the same entries, with the same factors.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gcnmpi.kernels.rows import _native
from gcnmpi.layout.loading import OwnRows, load_parts
from gcnmpi.mpi.comm import Comm, agreed
from gcnmpi.options.train import TrainConfig, batches_of
from partition.graph.graph import chunks, index_dtype
from partition.graph.sampling import Rule, Sampler, pointers, segments
from partition.graph.store import StoredGraph, member, read_partition

BY_ID_AT_ONCE = 1 << 18  # entries that are sorted by id at once; of one row, if it has more
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


class Entries:
    """A rank's rows of M, (own, own + halo), of which batches keep some entries.

    Own rows are the first columns; ``ids`` has the global id of every column, int64.
    """

    def __init__(self, matrix: sp.csr_array, ids: np.ndarray) -> None:
        self.matrix, self.ids = matrix, ids
        self._by_id: tuple[np.ndarray, np.ndarray] | None = None

    def kept(self, sampler: Sampler, place: tuple[int, int, int], rows: np.ndarray) -> Rows:
        """The entries of some rows that a layer of a batch keeps.

        Parameters
        ----------
        place : (epoch, batch, hop)
            As :meth:`partition.graph.sampling.Sampler.entries` takes them.
        rows : (m,) int64
            Some rows, in any order.

        Returns
        -------
        indptr : (m + 1,) int64
        columns : (kept,) int32
        values : (kept,) array
            Of M, times a factor that makes up for entries that are not kept.
        """
        rule = sampler.rule(place)
        if rule is None or _native is None:
            return self.kept_in_numpy(sampler, place, rows)
        matrix = self.matrix
        columns, values = matrix.indices, matrix.data
        if draws_by_id(rule):
            if self._by_id is None:
                self._by_id = _by_id(matrix, self.ids)
            columns, values = self._by_id
        arrays = matrix.indptr, columns, values, self.ids, rows
        return _native.sample(*arrays, rule.fanout, rule.base, rule.shared)

    def kept_in_numpy(
        self, sampler: Sampler, place: tuple[int, int, int], rows: np.ndarray
    ) -> Rows:
        """The same for any sampler; entries of a row may come in another order."""
        matrix, ids = self.matrix, self.ids
        entry, counts = segments(matrix.indptr, rows)
        which = np.repeat(np.arange(len(rows)), counts)
        kept, factor = sampler.entries(place, ids[rows[which]], ids[matrix.indices[entry]])
        values = (matrix.data[entry[kept]] * factor).astype(matrix.dtype, copy=False)
        sizes = np.bincount(which[kept], minlength=len(rows))
        return pointers(sizes), matrix.indices[entry[kept]].astype(np.int32), values


def draws_by_id(rule: Rule | None) -> bool:
    """Whether entries are drawn by their place in a row, so that rows have to be sorted by id."""
    return _native is not None and rule is not None and rule.fanout >= 0 and not rule.shared


def without_number(
    columns: np.ndarray, number: np.ndarray, own: int
) -> tuple[np.ndarray, np.ndarray]:
    """The columns (int32, each as often as it comes) whose number is below 0, each once.

    First the own ones, below ``own``, in an order that depends on ``columns`` only; then others,
    increasing.
    """
    if _native is not None:
        return _native.without_number(columns, number, own)
    found = np.unique(columns[number[columns] < 0]).astype(np.int64)
    return found[found < own], found[found >= own]


class RowsByBatch:
    """Which rows are in each batch to begin with, found once an epoch for all of them.

    ``candidates``, (m,) int64, has the number of each row among those that the sampler draws from;
    −1: none of them.
    """

    def __init__(self, sampler: Sampler, candidates: np.ndarray) -> None:
        self._sampler, self._candidates = sampler, candidates
        self._epoch = -1
        self._order = self._starts = np.zeros(0, np.int64)

    def of(self, epoch: int, batch: int) -> np.ndarray:
        """The rows of a batch of an epoch, by number, increasing."""
        if self._epoch != epoch:
            self._sort(epoch)
        return self._order[self._starts[batch] : self._starts[batch + 1]]

    def _sort(self, epoch: int) -> None:
        """All rows by the batch that they are in; increasing in each."""
        batches = self._sampler.batches
        numbers = self._sampler.batch_of(epoch, np.maximum(self._candidates, 0))
        numbers[self._candidates < 0] = batches
        # Few bits, so that NumPy sorts by digits.
        self._order = np.argsort(numbers.astype(np.min_scalar_type(batches)), kind="stable")
        self._starts = np.concatenate(([0], np.cumsum(np.bincount(numbers, minlength=batches + 1))))
        self._epoch = epoch


def numbered(
    comm: Comm, rows: OwnRows, chosen: np.ndarray, max_bytes: float
) -> tuple[np.ndarray, int]:
    """The number of each own row among the chosen ones, in the order of the graph; how many.

    ``chosen`` is (nown,) bool. −1 for rows that are none of them. All ranks call it together.
    """
    flags = rows.original(comm, chosen[:, np.newaxis], 1, max_bytes)[:, 0]
    counts = comm.allgather(int(np.count_nonzero(flags)))
    numbers = np.where(flags, np.cumsum(flags, dtype=np.int64) - 1 + sum(counts[: comm.rank]), -1)
    return rows.bring(comm, numbers, max_bytes), sum(counts)


def clusters_of(comm: Comm, stored: StoredGraph, train: TrainConfig) -> np.ndarray | None:
    """The part of every vertex in the partition that the sampler draws clusters from.

    None for samplers of other kinds. All ranks call it together.
    """
    batches = batches_of(train)
    if batches is None or not batches.clusters:
        return None
    with agreed(comm):
        finer = read_partition(stored.path, member(stored.path, batches.clusters), parts=False)
    return load_parts(comm, stored, finer)


def _by_id(matrix: sp.csr_array, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns and values of the entries of each row by increasing id, that of the diagonal last."""
    last = int(ids.max(initial=-1)) + 1
    ids = ids.astype(index_dtype(last + 1))
    columns, values = np.empty_like(matrix.indices), np.empty_like(matrix.data)
    for first, end in chunks(matrix.indptr.astype(np.int64), BY_ID_AT_ONCE):
        starts = matrix.indptr[first : end + 1]
        some = slice(starts[0], starts[-1])
        here = matrix.indices[some]
        keys, rows = ids[here], np.repeat(np.arange(first, end), np.diff(starts))
        keys[here == rows] = last
        entries = np.arange(len(keys), dtype=index_dtype(len(keys)))
        by_id = sp.csr_array((entries, keys, starts - starts[0]), shape=(end - first, last + 1))
        by_id.sort_indices()
        columns[some], values[some] = here[by_id.data], matrix.data[some][by_id.data]
    return columns, values
