"""The compiled kernel: each instruction set this CPU runs against NumPy and the reference."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from gcnmpi import rng
from gcnmpi.kernels import KERNELS
from gcnmpi.kernels.scipy_ import SciPyKernel

missing = KERNELS.available()["native"]
if missing is not None:
    pytest.skip(missing, allow_module_level=True)

from gcnmpi.kernels.native import NativeKernel, targets  # noqa: E402

WIDTHS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 41, 63, 64, 65, 71, 96, 128, 129, 200, 256, 300]
TOLERANCE = {np.float32: 2e-5, np.float64: 1e-13}


@pytest.fixture(params=targets())
def target(request):
    return request.param


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture
def random():
    return np.random.default_rng(5)


def sparse(random, rows, columns, density=0.1):
    """With empty rows, rows of one entry and a row with many."""
    dense = np.where(random.random((rows, columns)) < density, random.random((rows, columns)), 0)
    dense[::3] = 0
    dense[4] = random.random(columns)
    return sp.csr_array(dense)


def test_the_baseline_always_works():
    assert targets()[-1] == "generic"
    with pytest.raises(ValueError, match="target"):
        NativeKernel(np.float32, target="mmx")


@pytest.mark.parametrize("width", WIDTHS)
def test_products_of_every_width(target, dtype, random, width):
    kernel, matrix = NativeKernel(dtype, 1, target), sparse(random, 50, 40)
    x, before = (random.standard_normal((n, width)).astype(dtype) for n in (40, 50))
    out, expected = before.copy(), matrix @ x.astype(np.float64)
    tolerance = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    kernel.spmm(kernel.sparse(matrix), x, out)
    np.testing.assert_allclose(out, expected, **tolerance)
    out[...] = before
    kernel.spmm(kernel.sparse(matrix), x, out, accumulate=True)
    np.testing.assert_allclose(out, before + expected, **tolerance)


@pytest.mark.parametrize("width", [3, 16, 70])
def test_columns_of_wider_matrices(target, dtype, random, width):
    """Rows that are contiguous but apart; what lies between them is not touched."""
    kernel, matrix = NativeKernel(dtype, 2, target), sparse(random, 50, 40)
    x, out = (random.standard_normal((n, 100)).astype(dtype) for n in (40, 50))
    expected = out.copy()
    inner = slice(11, 11 + width)
    expected[:, inner] = matrix @ x[:, inner].astype(np.float64)
    kernel.spmm(kernel.sparse(matrix), x[:, inner], out[:, inner])
    np.testing.assert_allclose(out, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_long_indices_give_the_same_bits(target, dtype, random):
    kernel = NativeKernel(dtype, 1, target)
    short = kernel.sparse(sparse(random, 50, 40))
    long = type(short)(short.starts, short.indices.astype(np.int64), short.values, short.columns)
    x = random.standard_normal((40, 21)).astype(dtype)
    outs = [kernel.empty(50, 21) for _ in range(2)]
    for matrix, out in zip((short, long), outs, strict=True):
        kernel.spmm(matrix, x, out)
    assert short.indices.dtype == np.int32
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
        kernel.activate(out, bias, rows, columns, 0.4)
        kernel.column_sum(out, sums)
        taken = kernel.empty(n, width)
        kernel.take_rows(out, np.arange(n)[::-1].copy(), taken)
        kernel.relu_backward(taken, out, 2.0)
        param, moments = x.ravel().copy(), (kernel.zeros(n * width), kernel.zeros(n * width))
        kernel.adam_step(param, taken.ravel(), moments, 0.1, (0.9, 0.99), 1e-8, 3)
        results.append([a.tobytes() for a in (out, sums, taken, param)])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (3, 0), (4, 7), (5000, 19)])
def test_dense_operations_as_the_reference_has_them(target, dtype, random, shape):
    mine, reference = NativeKernel(dtype, 2, target), SciPyKernel(dtype)
    rows, columns = rng.row_keys(3, 1, 4, np.arange(shape[0])), rng.column_keys(np.arange(shape[1]))
    x, grad, bias = (
        big(random, dtype, *shape),
        big(random, dtype, *shape),
        big(random, dtype, shape[1]),
    )
    chosen = random.integers(0, max(1, shape[0]), 2 * shape[0])
    found = []
    for kernel in (mine, reference):
        out, back = x.copy(), grad.copy()
        kernel.activate(out, bias, rows, columns, 0.3)
        plain = x.copy()
        kernel.activate(plain, None, None, columns, 0.3)
        kernel.relu_backward(back, out, 1.7)
        dropped, taken = np.empty_like(x), kernel.empty(2 * shape[0], shape[1])
        kernel.dropout(x, rows, columns, 0.6, dropped)
        kernel.take_rows(x, chosen, taken)
        turned = kernel.empty_columnwise(2 * shape[0], shape[1])
        kernel.take_rows(x, chosen, turned)
        found.append((out, plain, back, dropped, taken, turned))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)  # the same decisions and roundings


@pytest.mark.parametrize("shape", [(0, 3), (7, 1), (5000, 130), (100_000, 3)])
def test_column_sums(target, dtype, random, shape):
    kernel, x = NativeKernel(dtype, 2, target), big(random, dtype, *shape)
    out = kernel.empty(shape[1])
    kernel.column_sum(x, out)
    expected = x.sum(axis=0, dtype=np.float64)
    np.testing.assert_allclose(out, expected, rtol=1e-6 if dtype == np.float32 else 1e-11)


def test_a_number_that_is_none_stays_one(target, dtype):
    """A loss that diverges must be seen."""
    kernel, x = NativeKernel(dtype, 1, target), np.array([[np.nan, -1.0, np.inf]], dtype)
    kernel.relu(x)
    assert np.isnan(x[0, 0])
    assert x[0, 1:].tolist() == [0, np.inf]


def test_steps_of_many_weights(target, dtype, random):
    n, tolerance = 40_001, TOLERANCE[dtype]
    grads, start = [big(random, dtype, n) for _ in range(3)], big(random, dtype, n)
    found = []
    for kernel in (NativeKernel(dtype, 2, target), SciPyKernel(dtype)):
        plain, pushed, adam = start.copy(), start.copy(), start.copy()
        velocity, moments = kernel.zeros(n), (kernel.zeros(n), kernel.zeros(n))
        for step, grad in enumerate(grads, start=1):
            kernel.sgd_step(plain, grad.copy(), None, 0.1, 0.0)
            kernel.sgd_step(pushed, grad.copy(), velocity, 0.1, 0.9)
            kernel.adam_step(adam, grad.copy(), moments, 0.1, (0.9, 0.999), 1e-8, step)
        found.append((plain, pushed, velocity, adam, *moments))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def test_nothing_is_allocated(dtype, random):
    n, width = 5000, 40
    kernel = NativeKernel(dtype, 2)
    matrix = kernel.sparse(sp.random_array((n, n), density=1e-3, rng=random, format="csr"))
    x, out, bias = kernel.zeros(n, width), kernel.zeros(n, width), kernel.zeros(width)
    rows, columns = rng.row_keys(1, 2, 3, np.arange(n)), rng.column_keys(np.arange(width))
    flat, moments = kernel.zeros(n), (kernel.zeros(n), kernel.zeros(n))
    tracemalloc.start()
    try:
        kernel.spmm(matrix, x, out)
        kernel.spmm(matrix, x, out, accumulate=True)
        kernel.activate(out, bias, rows, columns, 0.5)
        kernel.relu_backward(x, out, 2.0)
        kernel.column_sum(x, bias)
        kernel.take_rows(x, matrix.starts[:n] % n, out)
        kernel.adam_step(flat, flat, moments, 0.1, (0.9, 0.999), 1e-8, 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * n * 8 + 20_000  # the argument of take_rows; a matrix is 20 times as much
