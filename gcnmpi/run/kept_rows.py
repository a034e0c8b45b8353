"""Input rows of others that a rank keeps, since mini-batches read them often.

A rank computes with them as with its own, in the layer that reads the inputs: what that layer makes
of a row is made wherever the row is kept, and the gradient there is of what its own rows read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.layout.loading import load_sparse
from gcnmpi.mpi.comm import redistribute
from gcnmpi.nn.sparse_input import SparseInput
from gcnmpi.run.problem import Problem
from gcnmpi.schemes.sampled import Batch, Cutter
from partition.graph.graph import SparseRows
from partition.graph.metrics import most_used, rows_within


@dataclass(frozen=True)
class KeptRows:
    """Some rows of H⁰ that others own."""

    places: np.ndarray  # (kept,) int64: where they are in the halo of the rank, increasing
    features: Array | SparseInput  # the rows, in this order

    @property
    def bytes(self) -> int:
        """Memory that the kept rows take."""
        if isinstance(self.features, SparseInput):
            return self.features.bytes
        return int(self.features.size) * self.features.dtype.itemsize

    def take_rows(self, kernel: Kernel, halo: np.ndarray, out: Array) -> None:
        """out = the rows, dense ones, at some places in the halo."""
        if len(halo):
            features = cast(Array, self.features)
            kernel.take_rows(features, np.searchsorted(self.places, halo), out)

    def sparse_rows(self, halo: np.ndarray) -> tuple[SparseInput, np.ndarray]:
        """All rows, sparse ones, and the numbers of those at some places in the halo."""
        assert isinstance(self.features, SparseInput)
        return self.features, np.searchsorted(self.places, halo)


def keep_rows(
    problem: Problem,
    halo: np.ndarray,
    cutter: Cutter,
    batches: Iterable[Batch],
    features: Array | SparseInput,
) -> KeptRows:
    """Keep what batches read most, within ``train.cache_mb``; all ranks call it together.

    Parameters
    ----------
    halo : integers
        Global ids of the rank's halo.
    cutter : Cutter
        Of the batches.
    batches : iterable of Batch
        Those that are observed.
    features : array or SparseInput
        Own rows of H⁰.
    """
    manifest, itemsize = problem.source.stored.manifest, problem.runtime.kernel.dtype.itemsize
    sizes = manifest.inputs, manifest.feature_entries, manifest.n, itemsize
    order = np.argsort(halo)
    uses = np.zeros(len(halo), np.int64)
    for batch in batches:
        read = batch.layers[-1].plan.halo
        uses[order[np.searchsorted(halo, read, sorter=order)]] += 1
    places = most_used(uses, halo, rows_within(problem.config.train.cache_mb, *sizes))
    with problem.runtime.phases.as_one("load"):
        if isinstance(features, SparseInput):
            return KeptRows(places, _sparse(problem, halo[places]))
        return KeptRows(places, _dense(problem, *cutter.owners_of(places), features))


def _sparse(problem: Problem, ids: np.ndarray) -> SparseInput:
    kernel, found = problem.runtime.kernel, problem.source.stored.graph.features
    assert isinstance(found, SparseRows)
    max_bytes = problem.config.loading.max_bytes
    normalised = problem.config.graph.feature_norm == "row"
    matrix = load_sparse(problem.runtime.comm, found, ids, max_bytes, normalised, kernel.dtype)
    return SparseInput(kernel, problem.runtime.phases, matrix, None)


def _dense(problem: Problem, owners: np.ndarray, there: np.ndarray, features: Array) -> Array:
    comm, max_bytes = problem.runtime.comm, problem.config.loading.max_bytes
    (asked,), counts = redistribute(comm, owners, [there], max_bytes)
    asking = np.repeat(np.arange(comm.size), counts)
    # Owners increase along the halo, so the rows come in the order in which they were asked for.
    wanted = _Taken(problem.runtime.kernel, features, asked)
    (rows,), _ = redistribute(comm, asking, [cast(np.ndarray, wanted)], max_bytes)
    return problem.runtime.kernel.from_host(rows)


@dataclass(frozen=True)
class _Taken:
    """Rows of a matrix of a kernel, which are taken as they are read."""

    kernel: Kernel
    matrix: Array
    rows: np.ndarray

    @property
    def dtype(self) -> np.dtype:
        return self.kernel.dtype

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), self.matrix.shape[1]

    @property
    def flags(self) -> Any:
        return self.rows.flags

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, some: slice) -> np.ndarray:
        rows = self.rows[some]
        taken = self.kernel.empty(len(rows), self.matrix.shape[1])
        self.kernel.take_rows(self.matrix, rows, taken)
        return self.kernel.to_host(taken)
