"""Features whose rows are divided by their sums, where nothing is read before it is needed."""

from __future__ import annotations

from typing import Any

import numpy as np


class RowNormalised:
    """An (n, width) array on disk, read with each row divided by its sum, as numbers of a dtype.

    As of an array, a slice is another view: nothing is read before rows are picked by numbers.
    """

    def __init__(self, features: np.ndarray, dtype: np.dtype, columns: slice = slice(None)) -> None:
        self._columns, self.dtype, self.ndim = columns, dtype, 2
        self.shape = (len(features), len(range(*columns.indices(features.shape[1]))))
        self.base, self.flags = features, features.flags

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, key: Any) -> Any:
        rows, columns = key if isinstance(key, tuple) else (key, self._columns)
        if isinstance(rows, slice):
            return RowNormalised(self.base[rows], self.dtype, columns)
        return row_normalised(self.base[rows])[:, columns].astype(self.dtype)


def row_normalised(features: np.ndarray) -> np.ndarray:
    """Each row divided by its sum in float64; a row that sums to 0 becomes 0."""
    rows = features.astype(np.float64)
    sums = rows.sum(axis=1, keepdims=True)
    np.divide(rows, sums, out=rows, where=sums != 0)
    rows[sums[:, 0] == 0] = 0
    return rows
