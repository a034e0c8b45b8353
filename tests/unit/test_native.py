"""The compiled kernel: each instruction set this CPU runs against NumPy and the reference."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from axes import covering
from kernel_cases import TYPES
from refusals import refuses

from gcnmpi.core import rng
from gcnmpi.kernels.epilogues import Activation, ActivationBackward, Product
from gcnmpi.kernels.host import dense
from gcnmpi.kernels.host.scipy_ import SciPyKernel
from gcnmpi.kernels.interface.dense import AdamStep
from gcnmpi.kernels.threads import OF_USERS
from gcnmpi.options.kernel import KERNELS

missing = KERNELS.available()["native"]
if missing is not None:
    pytest.skip(missing, allow_module_level=True)

from gcnmpi.kernels.native.kernel import NativeKernel, targets  # noqa: E402

TOLERANCE = {np.float32: 2e-5, np.float64: 1e-13}


@pytest.fixture(params=targets())
def target(request):
    return request.param


@pytest.fixture(params=TYPES, ids=["float32", "float64"])
def dtype(request):
    return request.param


LOADING = """
import os, sys
import gcnmpi.kernels.rows
sys.exit(os.environ.get("GOMP_SPINCOUNT", "") != sys.argv[1])
"""


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_threads_wait_for_a_short_time_unless_the_user_says_how(given, spins):
    clean = {name: value for name, value in os.environ.items() if name not in OF_USERS}
    run = subprocess.run(
        [sys.executable, "-c", LOADING, given.get("GOMP_SPINCOUNT", "")],
        env={**clean, **given, "OMP_DISPLAY_ENV": "verbose"}, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    if "GOMP_SPINCOUNT" not in run.stderr:
        pytest.skip("built without GNU's OpenMP")
    assert (f"GOMP_SPINCOUNT = '{spins}'" in run.stderr) == (spins is not None)


@pytest.mark.parametrize("shape", [(70, 9, 33), (9, 70, 50), (1, 5, 1), (0, 3, 4), (40, 0, 3)])
def test_large_products_are_divided_among_threads(monkeypatch, shape, dtype):
    monkeypatch.setattr(dense, "_THREAD_WORTH", 1)
    kernel, random = SciPyKernel(dtype, 3), np.random.default_rng(0)
    rows, common, columns = shape
    a, b = (random.random(size).astype(dtype) for size in ((rows, common), (common, columns)))
    for left, right, ta, tb in ((a, b, 0, 0), (a.T.copy(), b, 1, 0), (a, b.T.copy(), 0, 1)):
        out = np.full((rows, columns), np.nan, dtype)
        kernel.gemm(left, right, out, bool(ta), bool(tb))
        np.testing.assert_allclose(out, a @ b, rtol=TOLERANCE[dtype])
        kernel.gemm(left, right, out, bool(ta), bool(tb), accumulate=True)
        np.testing.assert_allclose(out, 2 * (a @ b), rtol=TOLERANCE[dtype])
    held = [library.num_threads for library in kernel._blas]
    kernel.gemm(a, b, out)
    assert [library.num_threads for library in kernel._blas] == held


def sparse(random, rows, columns, density=0.1):
    """With empty rows, rows of one entry and a row with many."""
    dense = np.where(random.random((rows, columns)) < density, random.random((rows, columns)), 0)
    dense[::3] = 0
    dense[4] = random.random(columns)
    return sp.csr_array(dense)


def test_the_baseline_always_works():
    assert targets()[-1] == "generic"
    refuses("target", NativeKernel, np.float32, target="mmx", error=ValueError)


def compiled(kernel, matrix, index, **changes):
    """The arrays of a CSR matrix as the compiled products take them, some of them changed."""
    starts, columns = matrix.indptr.astype(np.int64), matrix.indices.astype(index)
    arrays = {"begins": starts[:-1], "ends": starts[1:], "values": matrix.data.astype(kernel.dtype)}
    begins, ends, values = ({**arrays, **changes}[name] for name in arrays)
    begins, ends = (np.ascontiguousarray(a, np.int64) for a in (begins, ends))
    either = (columns, None) if index is np.int32 else (None, columns)
    return kernel._sparse.of(begins, ends, *either, values, None, 0, matrix.shape[1])


def test_long_indices_give_the_same_bits(target, dtype, random):
    kernel = NativeKernel(dtype, 1, target)
    matrix = sparse(random, 50, 40)
    short = kernel.sparse(matrix)
    long = replace(short, compiled=compiled(kernel, matrix, np.int64))
    x = random.standard_normal((40, 21)).astype(dtype)
    outs = [kernel.empty(50, 21) for _ in range(2)]
    for matrix, out in zip((short, long), outs, strict=True):
        kernel.spmm(matrix, x, out)
    assert outs[0].tobytes() == outs[1].tobytes()


def test_arrays_that_do_not_fit_are_refused(dtype, random):
    kernel = NativeKernel(dtype)
    matrix, x = kernel.sparse(sparse(random, 50, 40)), kernel.zeros(40, 6)
    other = np.float64 if dtype == np.float32 else np.float32
    for bad_x, bad_out, error in (
        (x[1:], kernel.zeros(50, 6), ValueError),
        (x, kernel.zeros(49, 6), ValueError),
        (x, kernel.zeros(50, 5), ValueError),
        (x[:, ::2], kernel.zeros(50, 3), ValueError),
        (x.astype(other), kernel.zeros(50, 6), TypeError),
        (x, np.zeros((50, 6), other), TypeError),
    ):
        with pytest.raises(error):
            kernel.spmm(matrix, bad_x, bad_out)


def test_two_python_threads_use_one_kernel(target, dtype, random):
    """The scratch memory of a product is not shared by threads."""
    kernel, shapes = NativeKernel(dtype, 2, target), [(3000, 70, 60), (2000, 100, 90)]
    arrays = [[big(random, dtype, n, a), big(random, dtype, a, b)] for n, a, b in shapes]

    def products(x, weight):
        out, grad = kernel.empty(len(x), weight.shape[1]), kernel.empty(*weight.shape)
        sums = kernel.empty(weight.shape[1])
        found = []
        for _ in range(20):
            kernel.gemm(x, weight, out)
            kernel.gemm_and_sums(x, out, grad, sums)
            found.append(out.tobytes() + grad.tobytes() + sums.tobytes())
        return found

    expected = [products(*pair)[0] for pair in arrays]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(products, *zip(*arrays, strict=True)))
    for mine, once in zip(found, expected, strict=True):
        assert set(mine) == {once}


def big(random, dtype, *shape):
    return random.standard_normal(shape).astype(dtype)


def test_any_number_of_threads_gives_the_same_bits(target, dtype, random):
    n, width = 6000, 33
    matrix = sp.random_array((n, n), density=2e-3, rng=random, format="csr")
    x, bias = big(random, dtype, n, width), big(random, dtype, width)
    rows, columns = rng.row_keys(1, 2, 3, np.arange(n)), rng.column_keys(np.arange(width))
    results = []
    for threads in (1, 2, 3):
        kernel = NativeKernel(dtype, threads, target)
        out, sums = kernel.empty(n, width), kernel.empty(width)
        kernel.spmm(kernel.sparse(matrix), x, out)
        kernel.follow(out, Activation(bias, "relu", rows, columns, 0.4))
        kernel.column_sum(out, sums)
        taken = out[::-1].copy()
        kernel.follow(taken, ActivationBackward(out, scale=2.0))
        param, moments = x.ravel().copy(), (kernel.zeros(n * width), kernel.zeros(n * width))
        kernel.adam_step(AdamStep(param, taken.ravel(), moments, 0.1, (0.9, 0.99), 1e-8, 3))
        weights, small = kernel.empty(width, width), big(np.random.default_rng(1), dtype, width, 9)
        biases, following = kernel.empty(width), kernel.empty(n, width)
        kernel.gemm_and_sums(x, taken, weights, biases)
        kernel.spmm_then(
            kernel.sparse(matrix), x, following, False, Activation(bias, "relu", rows, columns, 0.4)
        )
        logits = kernel.empty(n, 9)
        then = Activation(bias[:9], kind="none")
        kernel.gemm_then(Product(x, small, logits, epilogue=then))
        labels, grad = (np.arange(n) % 10 - 1).astype(np.int32), kernel.empty(n, 9)
        loss = np.array(kernel.softmax_cross_entropy(logits, labels, 0.1, grad))
        found = (out, sums, taken, param, weights, biases, logits, loss, grad)
        results.append([a.tobytes() for a in found])
        assert following.tobytes() == out.tobytes()  # in one pass or in two
    assert results[0] == results[1] == results[2]


def test_what_follows_must_fit(target, dtype):
    kernel = NativeKernel(dtype, 1, target)
    x, weight, out = kernel.zeros(6, 4), kernel.zeros(4, 3), kernel.zeros(6, 3)
    matrix, keys = kernel.sparse(sp.csr_array(np.eye(6))), (np.zeros(6, "u8"), np.zeros(3, "u4"))
    for epilogue in (
        Activation(kernel.zeros(4)),
        Activation(None, "relu", keys[0][:5], keys[1], 0.5),
        Activation(None, "relu", keys[0], keys[1][:2], 0.5),
        ActivationBackward(kernel.zeros(6, 2), scale=1.0),
        ActivationBackward(kernel.zeros(5, 3), scale=1.0),
    ):
        with pytest.raises(ValueError, match=r"a .* for each|shapes differ"):
            kernel.gemm_then(Product(x, weight, out, epilogue=epilogue))
        with pytest.raises(ValueError, match=r"a .* for each|shapes differ"):
            kernel.spmm_then(matrix, kernel.zeros(6, 3), out, False, epilogue)
    with pytest.raises(ValueError, match=r"a .* for each|shapes differ"):
        kernel.gemm_and_sums(x, out, weight, kernel.zeros(4))


SHAPES = [(0, 3, 2), (1, 1, 1), (5, 0, 3), (5, 3, 0), (7, 5, 8), (50, 6, 16), (333, 17, 33)]
SHAPES += [(100, 64, 64), (1000, 41, 7), (70, 13, 130), (40, 300, 16), (4000, 30, 25)]


@pytest.mark.parametrize(
    ("target", "dtype", "shape", "turned", "accumulate"),
    covering(targets(), TYPES, SHAPES, [(False, False), (False, True), (True, False)], [0, 1]),
)
def test_dense_products_with_a_narrow_side(random, target, dtype, shape, turned, accumulate):
    """Of columns of wider matrices too: what lies between them is not touched."""
    rows, inner, columns = shape
    ta, tb = turned
    kernel = NativeKernel(dtype, 2, target)
    wide = [big(random, dtype, rows + 3, width + 5) for width in (inner, columns, inner)]
    x, g, weight = wide[0][:rows, 2 : 2 + inner], wide[1][:rows, 1 : 1 + columns], None
    if ta:
        a, b, out = x, g, big(random, dtype, inner, columns)
    elif tb:
        weight = big(random, dtype, inner, columns)
        a, b, out = g, weight, wide[2][:rows, 3 : 3 + inner]
    else:
        weight = big(random, dtype, inner, columns)
        a, b, out = x, weight, wide[1][:rows, 1 : 1 + columns]
    before = [array.copy() for array in wide]
    expected = out.astype(np.float64) if accumulate else np.zeros(out.shape)
    left, right = (m.astype(np.float64) for m in (a.T if ta else a, b.T if tb else b))
    expected = expected + left @ right
    kernel.gemm(a, b, out, ta=ta, tb=tb, accumulate=bool(accumulate))
    terms = left.shape[1] + 1
    tolerance = TOLERANCE[dtype] * terms**0.5
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=tolerance)
    out[...] = 0
    for array, was in zip(wide, before, strict=True):
        if np.shares_memory(array, out):
            mine = np.zeros(array.shape, bool)
            start = 3 if tb else 1
            mine[:rows, start : start + out.shape[1]] = True
            np.testing.assert_array_equal(array[~mine], was[~mine])


def test_what_is_hopeless_has_no_gradient(target, dtype):
    kernel, grad = NativeKernel(dtype, 1, target), np.empty((1, 3), dtype)
    logits = np.array([[1e30, -1e30, 0]], dtype)
    kernel.softmax_cross_entropy(logits, np.zeros(1, np.int32), 1.0, grad)
    assert grad.tolist() == [[0, 0, 0]]  # and no subnormal numbers, which are slow


def test_a_loss_of_no_number_is_none(target, dtype, random):
    kernel = NativeKernel(dtype, 1, target)
    for bad in (np.nan, np.inf):
        for place in (0, 8):
            logits = big(random, dtype, 3, 9)
            logits[1, place] = bad
            loss = kernel.softmax_cross_entropy(
                logits, np.zeros(3, np.int32), 1.0, np.empty_like(logits)
            )
            assert np.isnan(loss)
    with pytest.raises(ValueError, match="label"):
        kernel.softmax_cross_entropy(logits, np.full(3, 9, np.int32), 1.0, np.empty_like(logits))


def test_a_number_that_is_none_stays_one(target, dtype):
    """A loss that diverges must be seen."""
    kernel, x = NativeKernel(dtype, 1, target), np.array([[np.nan, -1.0, np.inf]], dtype)
    kernel.follow(x, Activation())
    assert np.isnan(x[0, 0])
    assert x[0, 1:].tolist() == [0, np.inf]
