"""Loading, what of it needs no ranks."""

import doctest

import numpy as np
import pytest

from gcnmpi import loading


def test_the_example_of_permute():
    failed, attempted = doctest.testmod(loading)
    assert attempted > 0
    assert not failed


@pytest.mark.parametrize("window", [1, 2, 7, 100, 40_000])
@pytest.mark.parametrize("count", [0, 1, 99, 40_000])
def test_rows_change_places_in_windows_of_any_size(window, count):
    random = np.random.default_rng(window)
    first = np.lexsort((random.random(count), np.arange(count) // window))
    rows = random.standard_normal((count, 2))
    expected = rows[first]
    loading.permute(rows, first)
    assert np.array_equal(rows, expected)
