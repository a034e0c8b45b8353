"""Loading, what of it needs no ranks."""

import numpy as np
import pytest
from traced import takes_less_than

from gcnmpi.kernels.rows import permute_rows
from gcnmpi.layout.loading import RowNormalised, row_normalised


@pytest.mark.parametrize("shape", [(0,), (1,), (99,), (0, 3), (7, 0), (99, 1), (99, 16), (99, 35)])
def test_rows_change_places(shape):
    random = np.random.default_rng(0)
    first, rows = random.permutation(shape[0]), random.standard_normal(shape)
    expected = rows[first]
    permute_rows(rows, first)
    assert np.array_equal(rows, expected)


def test_rows_change_places_without_a_copy_of_them():
    rows = np.ones((1000, 800))
    first = np.random.default_rng(0).permutation(1000)
    assert takes_less_than(rows.nbytes / 8, lambda: permute_rows(rows, first))


def test_normalised_rows_are_read_where_they_are_picked():
    features = np.arange(60, dtype=np.float32).reshape(10, 6)
    expected = row_normalised(features).astype(np.float32)
    view = RowNormalised(features, np.dtype(np.float32))
    picked = np.array([3, 0, 2])
    assert np.array_equal(view[picked], expected[picked])
    assert np.array_equal(view[2:8, 1:4][picked], expected[2:8, 1:4][picked])
    assert np.array_equal(view[2:8, 1:4][1:5][picked], expected[3:7, 1:4][picked])
    assert view[2:8, 1:4].shape == (6, 3)
    assert view[picked].dtype == np.float32
