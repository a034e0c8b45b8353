"""Every scheme with the kernel "cupy", ranks sharing a GPU where they are more; and CUDA graphs.

The kernel's own tests are in tests/unit/test_kernels.py, which takes every kernel that works.
"""

import json
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from axes import NETWORKS, VARIANTS, settings_of
from test_schemes import check_schemes

from gcnmpi.options.kernel import KERNELS

ALL = [*NETWORKS, *VARIANTS]


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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_graphs_give_the_curve_of_launches(mpirun, schemes_folder, dtype):
    cases = [[*settings_of(name), f"dtype={dtype}"] for name in ALL]
    words = ["repeat_epochs.py", schemes_folder / "directed.graph", json.dumps(cases)]
    done = mpirun(1, *words, timeout=300)
    found = dict(zip(ALL, json.loads(done.stdout), strict=True))
    captured = {name: case for name, case in found.items() if case["why"] is None}
    assert len(captured) > len(ALL) / 2
    for name, case in captured.items():
        assert case["said"] is None, name
        assert case["from_host"] < (1e-3 if dtype == "float32" else 1e-9), name
        # To the bit, unless cuBLAS chooses another algorithm in a graph.
        assert case["same"] or case["apart"] < (1e-5 if dtype == "float32" else 1e-12), name


@pytest.mark.parametrize("nranks", [1, 2])
def test_pytorch_on_devices_trains_as_on_the_host(mpirun, tmp_path, nranks):
    if not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("PyTorch finds no GPU")
    mpirun(nranks, "torch_devices.py", tmp_path, "persistent", timeout=200)
