"""Distributed products and data movement, under 1 to 4 ranks."""

import pytest


@pytest.mark.parametrize(("nranks", "cases"), [(1, 32), (2, 53), (3, 54), (4, 32), (7, 17)])
def test_products_rows_and_bytes_agree_with_the_serial_matrix(run_cases, tmp_path, nranks, cases):
    assert run_cases("products", nranks, [tmp_path]) == [cases]
