"""Norms, activations and entry-wise arithmetic of every kernel, against plain formulas."""

import numpy as np
import pytest
import scipy.sparse as sp
from kernel_cases import DTYPES, give, having, junk, near, needs_native, same_bits
from scipy.special import erfc

from gcnmpi.core import rng
from gcnmpi.core.functions import FUNCTIONS
from gcnmpi.kernels.epilogues import KINDS, Activation, ActivationBackward, Product
from gcnmpi.kernels.interface.norms import ColumnNorm, Rows, RunningMoments
from gcnmpi.options.kernel import KERNELS

SHAPES = [(1, 1), (7, 3), (50, 17), (300, 64), (9, 100), (0, 4), (5, 0)]
STEP = 1e-30


def normal(random, kernel, *shape):
    """Random numbers that the kernel's dtype has."""
    return random.standard_normal(shape).astype(kernel.dtype).astype(np.float64)


# Over the columns of a row.


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_of_rows(kernel, random, shape):
    x, mean = normal(random, kernel, *shape) + 2, normal(random, kernel, shape[0], 1)
    mine = give(kernel, x)
    near(kernel, kernel.row_sum(mine), x.sum(axis=1, keepdims=True))
    near(kernel, kernel.row_square_sum(mine, None), (x**2).sum(axis=1, keepdims=True))
    squares = ((x - mean) ** 2).sum(axis=1, keepdims=True)
    near(kernel, kernel.row_square_sum(mine, give(kernel, mean)), squares)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_normalised(kernel, random, shape, weighted, centred):
    rows, width = shape
    x, grad, mean = (normal(random, kernel, *s) for s in (shape, shape, (rows, 1)))
    weight, bias = normal(random, kernel, width), normal(random, kernel, width)
    rstd, centre, along = (normal(random, kernel, rows, 1) for _ in range(3))
    (m, c), (w, b) = (mean, centre) if centred else (0, 0), (weight, bias) if weighted else (1, 0)
    hat, mine = (x - m) * rstd, {n: give(kernel, a) for n, a in locals().items() if n in NAMES}
    scale = mine["weight"] if weighted else None
    shift = mine["bias"] if weighted else None
    about = mine["mean"] if centred else None
    out = junk(kernel, *shape)
    of = Rows(mine["x"], about, mine["rstd"], scale)
    kernel.normalise_rows(of, shift, out)
    near(kernel, out, hat * w + b)
    sums = kernel.normalise_rows_sums(of, mine["grad"])
    expected = np.stack([(grad * w).sum(axis=1), (grad * w * hat).sum(axis=1)], axis=1)
    near(kernel, sums, expected, 4)
    back, middle = junk(kernel, *shape), mine["centre"] if centred else None
    kernel.normalise_rows_backward(of, mine["grad"], middle, mine["along"], back)
    near(kernel, back, rstd * (grad * w - c - hat * along), 4)
    dweight, dbias = junk(kernel, width), junk(kernel, width)
    kernel.normalised_column_sums(of, mine["grad"], dweight, dbias)
    near(kernel, dweight, (grad * hat).sum(axis=0), 4)
    near(kernel, dbias, grad.sum(axis=0), 4)


NAMES = {"x", "grad", "mean", "weight", "bias", "rstd", "centre", "along"}


def layer_norm(x, weight, bias, eps):
    mean = x.sum(axis=1, keepdims=True) / x.shape[1]
    variance = ((x - mean) ** 2).sum(axis=1, keepdims=True) / x.shape[1]
    return (x - mean) / np.sqrt(variance + eps) * weight + bias, mean, 1 / np.sqrt(variance + eps)


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (5, 17), (3, 64), (0, 4)])
def test_layer_norm_and_its_gradients(kernel, random, shape):
    rows, width = shape
    x, grad = normal(random, kernel, *shape), normal(random, kernel, *shape)
    weight, bias = normal(random, kernel, width), normal(random, kernel, width)
    out, mean, rstd = junk(kernel, *shape), junk(kernel, rows, 1), junk(kernel, rows, 1)
    mine = [give(kernel, a) for a in (x, weight, bias)]
    of = Rows(mine[0], mean, rstd, mine[1])
    kernel.layer_norm(of, mine[2], 1e-5, out)
    for found, expected in zip((out, mean, rstd), layer_norm(x, weight, bias, 1e-5), strict=True):
        near(kernel, found, expected, 50)
    expected = []
    for k, array in enumerate((x, weight, bias)):
        expected.append(np.zeros(array.shape))
        for place in np.ndindex(array.shape):
            moved = [a.astype(complex) for a in (x, weight, bias)]
            moved[k][place] += 1j * STEP
            expected[k][place] = np.sum(grad * layer_norm(*moved, 1e-5)[0].imag) / STEP
    results = [junk(kernel, *a.shape) for a in (x, weight, bias)]
    kernel.layer_norm_backward(of, give(kernel, grad), *results)
    if width > 1:  # of one column, everything cancels
        near(kernel, results[0], expected[0], 50)
    near(kernel, results[1], expected[1], 50)
    near(kernel, results[2], expected[2], 50)


# Over the rows of a column.


@pytest.mark.parametrize(("rows", "width"), [(1, 5), (2, 5), (50, 17), (300, 64), (9, 100)])
def test_moments_make_a_batch_norm(kernel, random, rows, width):
    """Against the definition in float64: value, running moments, and the gradient."""
    eps, momentum = 1e-3, 0.3
    x, grad = (normal(random, kernel, rows, width) for _ in range(2))
    weight, bias, mean, variance = (normal(random, kernel, width) for _ in range(4))
    variance = variance**2 + 1
    x[:, 3] = x[0, 3]  # whose variance is 0
    running = [give(kernel, mean), give(kernel, variance)]
    moments = kernel.from_host64(np.stack([x.mean(axis=0) + 0.1, np.full(width, 3.5)]))
    sums = kernel.from_host64(np.full((2, width), 3.5))
    mine, back, w, b = (give(kernel, array) for array in (x, grad, weight, bias))
    out, vectors = junk(kernel, rows, width), junk(kernel, 3, width)
    of = ColumnNorm(moments, eps, w, b)

    kernel.column_moments(mine, moments[0], sums)
    kernel.move_moments(sums, rows, RunningMoments(*running, momentum), moments)
    kernel.moment_factors(of, False, *vectors[:2])
    kernel.scale_columns(mine, *vectors[:2], out)
    spread = x.var(axis=0)
    rstd = 1 / np.sqrt(spread + eps)
    hat = (x - x.mean(axis=0)) * rstd
    near(kernel, out, hat * weight + bias, 100)
    near(kernel, moments, np.stack([x.mean(axis=0), rstd]), 100)
    near(kernel, running[0], (1 - momentum) * mean + momentum * x.mean(axis=0), 4)
    unbiased = spread * rows / max(1, rows - 1)
    near(kernel, running[1], (1 - momentum) * variance + momentum * unbiased, 4)

    own = junk(kernel, 2, width)
    kernel.copy(moments, own)
    kernel.column_grad_sums(mine, own[0], own[1], back, sums)
    kernel.moment_slopes(of, sums, rows, vectors)
    kernel.scale_columns_backward(back, mine, vectors, out)
    along = (grad * hat).mean(axis=0)
    near(kernel, out, weight * rstd * (grad - grad.mean(axis=0) - hat * along), 300)


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 1e6, 1e-300])
def test_a_column_of_equal_numbers_becomes_the_bias(kernel, random, value):
    """Equal but for rounding errors; next to it one that differs by little more than these."""
    rows, last = 50, np.finfo(kernel.dtype).eps
    noise = 1 + 2 * last * random.integers(-1, 2, rows)
    little = 1 + 2.0 ** (-18 if kernel.dtype == np.float32 else -35) * (np.arange(rows) % 2)
    x = np.stack([value * noise, little], axis=1)
    weight, bias, mean, variance = (normal(random, kernel, 2) for _ in range(4))
    mine, w, b = (give(kernel, array) for array in (x, weight, bias))
    running = [give(kernel, mean), give(kernel, variance)]
    sums = kernel.from_host64(np.zeros((2, 2)))
    kernel.column_moments(mine[:1], kernel.from_host64(np.zeros(2)), sums)
    moments = kernel.from_host64(np.array(kernel.to_host(sums), np.float64))
    kernel.column_moments(mine, moments[0], sums)
    kernel.move_moments(sums, rows, RunningMoments(*running, 0.1), moments)
    spread = np.asarray(kernel.to_host(moments))[1]
    assert spread[0] == 0 < spread[1]
    near(kernel, running[1], [0.9 * variance[0], 0.9 * variance[1]], 4)
    scale, shift, out = junk(kernel, 2), junk(kernel, 2), junk(kernel, rows, 2)
    of = ColumnNorm(moments, 1e-5, w, b)
    kernel.moment_factors(of, True, scale, shift)
    kernel.scale_columns(mine, scale, shift, out)
    found = kernel.to_host(out)
    assert (found[:, 0] == bias[0].astype(kernel.dtype)).all()
    assert len(set(found[:, 1])) == 2
    slopes = junk(kernel, 3, 2)
    kernel.moment_slopes(of, sums, rows, slopes)
    assert kernel.to_host(slopes)[:, 0].tolist() == [0, 0, 0]


def test_the_gradient_of_two_rows_keeps_its_digits(kernel):
    x, grad, eps = np.array([[3.0], [7.0]]), np.array([[0.25], [0.75]]), 1e-5
    moments = kernel.from_host64(np.array([[5.0], [1 / np.sqrt(4 + eps)]]))
    sums = kernel.from_host64(np.array([[1.0], [1 / np.sqrt(4 + eps)]]))
    slopes, out, one = junk(kernel, 3, 1), junk(kernel, 2, 1), give(kernel, np.ones(1))
    kernel.moment_slopes(ColumnNorm(moments, eps, one, one), sums, 2, slopes)
    kernel.scale_columns_backward(give(kernel, grad), give(kernel, x), slopes, out)
    expected = np.array([[-0.25], [0.25]]) * eps / (4 + eps) ** 1.5
    np.testing.assert_allclose(kernel.to_host(out), expected, rtol=1e-6)


# Entry by entry.


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_and_products_of_entries(kernel, random, shape):
    x, y = normal(random, kernel, *shape), normal(random, kernel, *shape)
    mine, other, out = give(kernel, x), give(kernel, y), junk(kernel, *shape)
    kernel.add(mine, other, out)
    near(kernel, out, x + y)
    kernel.scale(mine, 0.3, out)
    near(kernel, out, 0.3 * x)
    kernel.axpy(other, -1.7, out)
    near(kernel, out, 0.3 * x - 1.7 * y)
    assert kernel.dot(mine, other) == pytest.approx((x * y).sum(), abs=1e-9)
    number = junk(kernel, 1)
    kernel.dot_to(mine, other, number)
    near(kernel, number, [(x * y).sum()], 4)
    kernel.scale(mine, 0.3, out, number)
    near(kernel, out, (0.3 + (x * y).sum()) * x, 4 * (1 + abs((x * y).sum())))
    kernel.add(mine, other, mine)
    near(kernel, mine, x + y)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_first_of_equals_is_the_largest(kernel, random, shape, count):
    xs = np.round(random.standard_normal((count, *shape)))
    grad, mine, out = normal(random, kernel, *shape), [give(kernel, x) for x in xs], None
    out = junk(kernel, *shape)
    kernel.maximum(mine, out)
    near(kernel, out, xs.max(axis=0))
    for i in range(count):
        back = junk(kernel, *shape)
        kernel.maximum_backward(give(kernel, grad), out, mine, i, back)
        near(kernel, back, grad * (xs.argmax(axis=0) == i))


def formula(kind, x, slope=0.2):
    """An activation f and its derivative f′."""
    if kind == "gelu":
        share = 0.5 * erfc(-x / np.sqrt(2))
        return x * share, share + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
    if kind == "sigmoid":
        value = np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-abs(x)))
        return value, np.exp(-abs(x)) / (1 + np.exp(-abs(x))) ** 2
    if kind == "tanh":
        return np.tanh(x), 1 / np.cosh(np.clip(x, -300, 300)) ** 2
    one, below = np.ones_like(x), np.minimum(x, 0)
    negative = {
        "none": (x, one), "relu": (0 * x, 0 * x), "elu": (np.expm1(below), np.exp(below)),
        "leaky_relu": (slope * x, slope * one),
    }  # fmt: skip
    return np.where(x > 0, (x, one), negative[kind])


def test_a_function_that_no_kernel_has_a_version_of(kernel, random, monkeypatch):
    softplus = (lambda x: np.log1p(np.exp(x)), lambda x: np.exp(x) / (np.exp(x) + 1))
    monkeypatch.setitem(FUNCTIONS, "softplus", softplus)
    x, grad, out = normal(random, kernel, 5, 7), normal(random, kernel, 5, 7), junk(kernel, 5, 7)
    kernel.function("softplus", give(kernel, x), out)
    near(kernel, out, np.log1p(np.exp(x)))
    kernel.function_backward("softplus", give(kernel, x), give(kernel, grad), out)
    near(kernel, out, grad / (1 + np.exp(-x)))


def values(kernel):
    """From the tails of all functions, and about where formulas change."""
    some = np.concatenate([np.linspace(-45, 45, 1801), np.linspace(-1.5, 1.5, 301), [1e-9, -1e-9]])
    some = np.concatenate([some, [1e4, -1e4, 0.0]]).astype(kernel.dtype).astype(np.float64)
    return some[: len(some) // 7 * 7].reshape(-1, 7)


@pytest.mark.parametrize("kind", ["gelu", "sigmoid", "tanh", "elu", "leaky_relu"])
def test_activations_and_their_derivatives(kernel, random, kind):
    x = values(kernel)
    grad = normal(random, kernel, *x.shape)
    f, derivative = formula(kind, x)
    mine, back, out = give(kernel, x), give(kernel, grad), junk(kernel, *x.shape)
    if kind in FUNCTIONS:
        kernel.function(kind, mine, out)
        near(kernel, kernel.to_host(out) / np.maximum(1, abs(x)), f / np.maximum(1, abs(x)))
        kernel.function_backward(kind, mine, back, out)
        near(kernel, out, grad * derivative)
    elif kind == "elu":
        kernel.elu(mine, out)
        near(kernel, kernel.to_host(out) / np.maximum(1, abs(x)), f / np.maximum(1, abs(x)))
    else:
        kernel.leaky(mine, 0.2, out)
        near(kernel, out, f)
        slope, of_slope = give(kernel, np.array([0.2])), junk(kernel, 1)
        kernel.prelu(mine, slope, out)
        near(kernel, out, f)
        kernel.prelu_backward(mine, back, slope, out, of_slope)
        near(kernel, out, grad * derivative)
        expected = (grad * np.minimum(x, 0)).sum()
        assert float(kernel.to_host(of_slope)[0]) == pytest.approx(expected, rel=1e-6)
        kernel.prelu_backward(mine, back, slope, back, of_slope)
        near(kernel, back, grad * derivative)


@pytest.mark.parametrize("length", [1, 70, 5000])
@having("shorten")
def test_gradients_are_shortened_where_they_are(kernel, random, length):
    x = normal(random, kernel, length)
    own = np.sqrt((x**2).sum())
    for longest, expected in ((own / 3, x * own / 3 / (own + 1e-6)), (own * 2, x)):
        mine = give(kernel, x)
        kernel.shorten(mine, longest, 1e-6)
        near(kernel, mine, expected, 4)


@pytest.mark.parametrize("shape", [(1, 6), (9, 12), (5, 64), (0, 4)])
@pytest.mark.parametrize("heads", [1, 2])
def test_the_mean_of_heads(kernel, random, shape, heads):
    x = normal(random, kernel, *shape)
    parts = x.reshape(shape[0], heads, shape[1] // heads)
    out, back = junk(kernel, shape[0], shape[1] // heads), junk(kernel, *shape)
    kernel.mean_of_heads(give(kernel, x), heads, out)
    near(kernel, out, parts.mean(axis=1))
    kernel.mean_of_heads_backward(out, heads, back)
    near(kernel, back, np.tile(parts.mean(axis=1) / heads, heads))


# Epilogues.


def kept(keys, columns, p):
    hashes, scratch = np.empty((2, len(keys), len(columns)), np.uint32)
    rng.hash_block(keys, columns, hashes, scratch)
    return (hashes >= rng.threshold(p)) / (1 - p)


@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "inner"),
    [((6, 1), 5), ((40, 17), 5), ((9, 64), 5), ((0, 3), 5), ((50, 8), 100), ((50, 200), 100)],
)
def test_epilogues_after_every_product(kernel, random, shape, inner, kind, biased, p):
    """Of narrow factors too, and of 100 × 200 weights, which are too many to be kept at hand."""
    rows, width = shape
    keys, columns = rng.row_keys(1, 2, 3, np.arange(rows)), rng.column_keys(np.arange(width))
    a, b = normal(random, kernel, rows, inner), normal(random, kernel, inner, width)
    bias, before = normal(random, kernel, width), normal(random, kernel, *shape)
    mask = kept(keys, columns, p) if p else 1.0
    epilogue = Activation(give(kernel, bias) if biased else None, kind,
                      keys if p else None, columns, p, slope=0.2)  # fmt: skip

    def expected(z):
        z = z + bias if biased else z
        f, derivative = formula(kind, z)
        return f * mask, derivative * mask

    mine, other = give(kernel, a), give(kernel, b)
    matrix = kernel.sparse(sp.csr_array(a))
    for accumulate in (False, True):
        z = a @ b + (before if accumulate else 0)
        outs = [give(kernel, before) for _ in range(4)]
        kernel.gemm_then(Product(mine, other, outs[0], False, epilogue, accumulate))
        turned = give(kernel, np.ascontiguousarray(b.T))
        kernel.gemm_then(Product(mine, turned, outs[1], True, epilogue, accumulate))
        kernel.spmm_then(matrix, other, outs[2], accumulate, epilogue)
        kernel.spmm(matrix, other, outs[3], accumulate)
        kernel.follow(outs[3], epilogue)
        for out in outs:
            near(kernel, out, expected(z)[0], 4)
    scale, grad = 1 / (1 - p), normal(random, kernel, *shape)
    output = None if kind == "none" else outs[0]  # of dropout alone there is none
    back = ActivationBackward(output, kind, scale, keys if p else None, columns, p, slope=0.2)
    product = a @ b
    for apply in (
        lambda out: kernel.gemm_then(Product(mine, other, out, epilogue=back)),
        lambda out: kernel.spmm_then(matrix, other, out, False, back),
    ):
        out = give(kernel, grad)
        apply(out)
        near(kernel, out, product * expected(z)[1], 4)
    out = give(kernel, grad)
    kernel.follow(out, back)
    near(kernel, out, grad * expected(z)[1], 4)


@needs_native
@DTYPES
def test_the_bits_do_not_depend_on_threads(random, dtype):
    x, grad = random.standard_normal((2, 5000, 33)).astype(dtype)
    column, row = random.standard_normal(33).astype(dtype), np.ones((5000, 1), dtype)
    found, before = [], (x, grad, column)
    for threads in (1, 2, 3):
        kernel = KERNELS.get("native")(dtype, threads)
        x, grad, column = (give(kernel, array) for array in before)  # where kernels have them
        sums, moments = [kernel.empty(33) for _ in range(4)], np.empty((2, 2, 33))
        mine, other = kernel.empty(5000, 33), kernel.empty(5000, 33)
        kernel.column_moments(x, column.astype(np.float64), moments[0])
        kernel.column_grad_sums(x, column, column, grad, moments[1])
        kernel.normalised_column_sums(Rows(x, row, row), grad, *sums[:2])
        kernel.layer_norm_backward(Rows(x, row, row, column), grad, mine, *sums[2:])
        number, slope = kernel.empty(1), np.array([0.1], dtype)
        kernel.prelu_backward(x, grad, slope, other, number)
        found.append([*sums, moments, mine, number, np.array(kernel.dot(x, grad))])
    same_bits(found)
