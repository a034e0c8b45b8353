"""Distributed products and data movement, under 1 to 4 ranks."""

import pytest


@pytest.mark.parametrize(("nranks", "cases"), [(1, 160), (2, 160), (3, 160), (4, 54), (7, 18)])
def test_products_rows_and_bytes_agree_with_the_serial_matrix(mpirun, tmp_path, nranks, cases):
    done = mpirun(nranks, "products.py", tmp_path, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{cases} cases agree" in done.stdout
