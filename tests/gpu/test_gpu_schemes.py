"""Every scheme with the kernel "cupy", ranks sharing a GPU where they are more.

The kernel's own tests are in tests/unit/test_kernels.py, which takes every kernel that works.
"""

import sys

import numpy as np
import pytest
import scipy.sparse as sp
from test_schemes import check_schemes

from gcnmpi.options.kernel import KERNELS


@pytest.mark.parametrize("cuda_aware", ["no", "auto"])
@pytest.mark.parametrize("nranks", [1, 2])
def test_schemes_equal_the_serial_run(verified, schemes_folder, nranks, cuda_aware):
    settings = ["kernel=cupy", f"comm.cuda_aware={cuda_aware}"]
    check_schemes(verified, schemes_folder, nranks, settings)


@pytest.mark.parametrize("nranks", [1, 2, 4])
def test_nccl_sums_where_each_rank_has_a_gpu(verified, schemes_folder, nranks):
    kernel = KERNELS.get("cupy")
    if kernel(np.float32).network() is None:
        pytest.skip("CuPy finds no NCCL: pip install nvidia-nccl-cu12")
    devices = sys.modules[kernel.__module__].DEVICES
    if devices < nranks:
        pytest.skip(f"{nranks} ranks need a GPU each, and there are {devices}")
    settings = ["kernel=cupy", "comm.nccl=yes"]
    check_schemes(verified, schemes_folder, nranks, settings)


def test_the_same_product_gives_the_same_bits(random_matrix):
    kernel = KERNELS.get("cupy")(np.float32)
    matrix, x = kernel.sparse(random_matrix), kernel.empty(random_matrix.shape[1], 24)
    kernel.copy(kernel.from_host(np.random.default_rng(1).standard_normal(x.shape)), x)
    results, sums, out = set(), set(), kernel.empty(random_matrix.shape[0], 24)
    total = kernel.empty(24)
    for _ in range(20):  # without what cuSPARSE knows of the matrix, and with it
        kernel.spmm(matrix, x, out)
        results.add(kernel.to_host(out).tobytes())
        kernel.column_sum(out, total)
        sums.add(kernel.to_host(total).tobytes())
    assert len(results) == len(sums) == 1


@pytest.fixture
def random_matrix():
    """Rows from empty to long."""
    random = np.random.default_rng(0)
    row = (5000 * random.random(100_000) ** 3).astype(np.int64)
    column = random.integers(0, 3000, len(row))
    matrix = sp.coo_array((random.standard_normal(len(row)), (row, column)), shape=(5001, 3000))
    return matrix.tocsr()
