"""The compiled kernel: each instruction set this CPU runs against NumPy and the reference."""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from axes import covering
from kernel_cases import TYPES, same_bits
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


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_threads_wait_for_a_short_time_unless_the_user_says_how(given, spins):
    clean = {name: value for name, value in os.environ.items() if name not in OF_USERS}
    show = "import os, gcnmpi.kernels.rows; print(os.environ.get('GOMP_SPINCOUNT'))"
    how = {"env": {**clean, **given, "OMP_DISPLAY_ENV": "verbose"}, "capture_output": True}
    run = subprocess.run([sys.executable, "-c", show], **how, text=True, check=True)
    if "GOMP_SPINCOUNT" not in run.stderr:
        pytest.skip("built without GNU's OpenMP")
    assert run.stdout == f"{given.get('GOMP_SPINCOUNT')}\n"  # the process is as it was
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


def test_what_does_not_fit_is_refused(dtype, random):
    assert targets()[-1] == "generic"
    refuses("target", NativeKernel, dtype, target="mmx", error=ValueError)
    kernel = NativeKernel(dtype)
    matrix, zeros = kernel.sparse(sparse(random, 50, 40)), kernel.zeros
    x, other = zeros(40, 6), np.float64 if dtype == np.float32 else np.float32
    for bad_x, bad_out, error in (
        (x[1:], zeros(50, 6), ValueError), (x, zeros(49, 6), ValueError),
        (x, zeros(50, 5), ValueError), (x[:, ::2], zeros(50, 3), ValueError),
        (x.astype(other), zeros(50, 6), TypeError), (x, np.zeros((50, 6), other), TypeError),
    ):  # fmt: skip
        refuses(".", kernel.spmm, matrix, bad_x, bad_out, error=error)
    x, weight, out = zeros(6, 4), zeros(4, 3), zeros(6, 3)
    rows, columns = np.zeros(6, "u8"), np.zeros(3, "u4")
    one = kernel.sparse(sp.csr_array(np.eye(6)))
    says = {"message": r"a .* for each|shapes differ", "error": ValueError}
    for epilogue in (
        Activation(zeros(4)),
        *(Activation(None, "relu", *of, 0.5) for of in ((rows[:5], columns), (rows, columns[:2]))),
        *(ActivationBackward(zeros(*shape), scale=1.0) for shape in ((6, 2), (5, 3))),
    ):
        refuses(call=kernel.gemm_then, **says, of=Product(x, weight, out, epilogue=epilogue))
        then = lambda e=epilogue: kernel.spmm_then(one, zeros(6, 3), out, False, e)  # noqa: E731
        refuses(call=then, **says)
    refuses(call=lambda: kernel.gemm_and_sums(x, out, weight, zeros(4)), **says)
    refuses("no activation 'tanh' after a product", Activation, None, "tanh", error=ValueError)
    refuses("a slope of -1: the sign", Activation, slope=-1, error=ValueError)


def test_numbers_that_are_none_stay_and_are_seen(target, dtype, random):
    """A loss that diverges; and no subnormal numbers, which are slow."""
    kernel, one = NativeKernel(dtype, 1, target), np.zeros(1, np.int32)
    logits, grad = np.array([[1e30, -1e30, 0]], dtype), np.empty((1, 3), dtype)
    kernel.softmax_cross_entropy(logits, one, 1.0, grad)
    assert grad.tolist() == [[0, 0, 0]]
    for bad, place in ((np.nan, 0), (np.nan, 8), (np.inf, 0), (np.inf, 8)):
        logits, grad = big(random, dtype, 3, 9), np.empty((3, 9), dtype)
        logits[1, place] = bad
        assert np.isnan(kernel.softmax_cross_entropy(logits, np.repeat(one, 3), 1.0, grad))
    labels = np.full(3, 9, np.int32)
    refuses("label", kernel.softmax_cross_entropy, logits, labels, 1.0, grad, error=ValueError)
    x = np.array([[np.nan, -1.0, np.inf]], dtype)
    kernel.follow(x, Activation())
    np.testing.assert_array_equal(x, [[np.nan, 0, np.inf]])


def big(random, dtype, *shape):
    return random.standard_normal(shape).astype(dtype)


def test_any_number_of_threads_gives_the_same_bits(target, dtype, random):
    n, width = 6000, 33
    matrix = sp.random_array((n, n), density=2e-3, rng=random, format="csr")
    x, bias, small = (big(random, dtype, *shape) for shape in ((n, width), (width,), (width, 9)))
    keys = rng.row_keys(1, 2, 3, np.arange(n)), rng.column_keys(np.arange(width))
    labels, results = (np.arange(n) % 10 - 1).astype(np.int32), []
    for threads in (1, 2, 3):
        kernel = NativeKernel(dtype, threads, target)
        out, following, sums = kernel.empty(n, width), kernel.empty(n, width), kernel.empty(width)
        product, then = kernel.sparse(matrix), Activation(bias, "relu", *keys, 0.4)
        kernel.spmm(product, x, out)
        kernel.follow(out, then)
        kernel.spmm_then(product, x, following, False, then)
        assert following.tobytes() == out.tobytes()  # in one pass or in two
        kernel.column_sum(out, sums)
        taken = out[::-1].copy()
        kernel.follow(taken, ActivationBackward(out, scale=2.0))
        param, moments = x.ravel().copy(), (kernel.zeros(n * width), kernel.zeros(n * width))
        kernel.adam_step(AdamStep(param, taken.ravel(), moments, 0.1, (0.9, 0.99), 1e-8, 3))
        weights, biases = kernel.empty(width, width), kernel.empty(width)
        logits, grad = (kernel.empty(n, 9) for _ in range(2))
        kernel.gemm_and_sums(x, taken, weights, biases)
        kernel.gemm_then(Product(x, small, logits, epilogue=Activation(bias[:9], kind="none")))
        loss = np.array(kernel.softmax_cross_entropy(logits, labels, 0.1, grad))
        results.append([out, sums, taken, param, weights, biases, logits, loss, grad])
    same_bits(results)


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
    widths = zip(wide, (2, 1, 3), (inner, columns, inner), strict=True)
    x, g, z = (whole[:rows, first : first + width] for whole, first, width in widths)
    weight = big(random, dtype, inner, columns)
    a, b, out = (x, g, weight) if ta else (g, weight, z) if tb else (x, weight, g)
    before, given = [array.copy() for array in wide], out.copy()
    left, right = (m.astype(np.float64) for m in (a.T if ta else a, b.T if tb else b))
    expected = accumulate * out.astype(np.float64) + left @ right
    kernel.gemm(a, b, out, ta=ta, tb=tb, accumulate=bool(accumulate))
    tolerance = TOLERANCE[dtype] * (left.shape[1] + 1) ** 0.5
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=tolerance)
    out[...] = given
    assert all(map(np.array_equal, wide, before))
