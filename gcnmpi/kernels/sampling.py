"""Which entries of M the rows of a mini-batch keep: compiled, where there is a compiler.

Host work, whatever kernel computes. Both ways keep the same entries, with the same factors.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from partition.graph.sampling import Sampler, segments

try:
    import gcnmpi.kernels._native as _native
except ImportError:  # the kernel "native" says why
    _native = None  # type: ignore[assignment]


def sampled_entries(
    sampler: Sampler,
    place: tuple[int, int, int],
    matrix: sp.csr_array,
    ids: np.ndarray,
    rows: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The entries of some rows that a layer of a batch keeps.

    Parameters
    ----------
    place : (epoch, batch, hop)
        As :meth:`partition.graph.sampling.Sampler.entries` takes them.
    matrix : (own, own + halo) csr_array
        Own rows are its first columns.
    ids : (own + halo,) int64
        Global id of every column.
    rows : (m,) int64
        Some of its rows, increasing.

    Returns
    -------
    row, entry : (kept,) int64
        The row of each, and where it is in the matrix.
    factor : (kept,) float64
        By what its value is multiplied.
    """
    rule = sampler.rule(*place)
    if rule is not None and _native is not None:
        starts, columns = matrix.indptr, matrix.indices
        numbers = rule.fanout, rule.base, rule.shared
        return _native.sample(starts, columns, ids, rows, *numbers)
    return entries_in_numpy(sampler, place, matrix, ids, rows)


def entries_in_numpy(
    sampler: Sampler,
    place: tuple[int, int, int],
    matrix: sp.csr_array,
    ids: np.ndarray,
    rows: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same for any sampler."""
    entry, counts = segments(matrix.indptr, rows)
    row = np.repeat(rows, counts)
    kept, factor = sampler.entries(*place, ids[row], ids[matrix.indices[entry]])
    return row[kept], entry[kept], factor
