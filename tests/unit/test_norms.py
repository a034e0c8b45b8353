"""Norms, activations and entry-wise arithmetic of every kernel, against plain formulas."""

import numpy as np
import pytest
import scipy.sparse as sp
from kernel_cases import all_near, draw, give, having, junk, kept, natively, near, same_bits, slopes
from scipy.special import erfc, expit

from gcnmpi.core import rng
from gcnmpi.core.functions import FUNCTIONS
from gcnmpi.kernels.epilogues import KINDS, Activation, ActivationBackward, Product
from gcnmpi.kernels.interface.norms import ColumnNorm, Rows, RunningMoments
from gcnmpi.options.kernel import KERNELS

SHAPES = [(1, 1), (7, 3), (50, 17), (300, 64), (9, 100), (0, 4), (5, 0)]


def of_rows(centred, weighted):
    """Norms of rows with and without a mean and a weight, as operations below."""

    def call(k, x, grad, mean, rstd, centre, along, w, b, out, sums, back, *of_columns):
        of = Rows(x, mean if centred else None, rstd, w if weighted else None)
        k.normalise_rows(of, b if weighted else None, out)
        k.copy(k.normalise_rows_sums(of, grad), sums)
        k.normalise_rows_backward(of, grad, centre if centred else None, along, back)
        k.normalised_column_sums(of, grad, *of_columns)

    def formula(x, grad, mean, rstd, centre, along, w, b):
        mean, centre = (mean, centre) if centred else (0, 0)
        w, b = (w, b) if weighted else (1, 0)
        hat, g = (x - mean) * rstd, grad * w
        sums = np.stack([g.sum(axis=1), (g * hat).sum(axis=1)], axis=1)
        back = rstd * (g - centre - hat * along)
        return hat * w + b, sums, back, (grad * hat).sum(axis=0), grad.sum(axis=0)

    return "xxrrrrcc", "x2xcc", call, formula


def scaled(k, x, y, out, number):
    """By 0.3 and the number that a product gives."""
    k.dot_to(x, y, number)
    k.scale(x, 0.3, out, number)


# Operation → what is read and written, how it is called, and its formula: "x" has all rows and
# columns, "r" a number of each row and "2" two, "c" a number of each column, and "n" is one number.
OPERATIONS = {
    "row sum": ("x", "r", lambda k, x, out: k.copy(k.row_sum(x), out),
                lambda x: [x.sum(axis=1, keepdims=True)]),
    "squares": ("x", "r", lambda k, x, out: k.copy(k.row_square_sum(x, None), out),
                lambda x: [(x**2).sum(axis=1, keepdims=True)]),
    "squares about": ("xr", "r", lambda k, x, mean, out: k.copy(k.row_square_sum(x, mean), out),
                      lambda x, mean: [((x - mean) ** 2).sum(axis=1, keepdims=True)]),
    "column sum": ("x", "c", lambda k, x, out: k.column_sum(x, out), lambda x: [x.sum(axis=0)]),
    "norm": of_rows(False, False),
    "weighted norm": of_rows(False, True),
    "centred norm": of_rows(True, False),
    "centred, weighted norm": of_rows(True, True),
    "add": ("xx", "x", lambda k, x, y, out: k.add(x, y, out), lambda x, y: [x + y]),
    "add in place": ("xx", "x", lambda k, x, y, out: (k.copy(x, out), k.add(out, y, out)),
                     lambda x, y: [x + y]),
    "axpy": ("xx", "x", lambda k, x, y, out: (k.copy(x, out), k.axpy(y, -1.7, out)),
             lambda x, y: [x - 1.7 * y]),
    "scale": ("x", "x", lambda k, x, out: k.scale(x, 0.3, out), lambda x: [0.3 * x]),
    "scale by a number": ("xx", "xn", scaled,
                          lambda x, y: [(0.3 + (x * y).sum()) * x, [(x * y).sum()]]),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_their_formulas(kernel, random, name):
    reads, writes, call, formula = OPERATIONS[name]
    for rows, width in SHAPES:
        sizes = {"x": (rows, width), "r": (rows, 1), "2": (rows, 2), "c": (width,), "n": (1,)}
        given = [draw(random, kernel, *sizes[letter]) for letter in reads]
        outs = [junk(kernel, *sizes[letter]) for letter in writes]
        call(kernel, *(give(kernel, array) for array in given), *outs)
        all_near(kernel, outs, formula(*given), 20)
        if name == "axpy":
            x, y = given
            found = kernel.dot(give(kernel, x), give(kernel, y))
            assert found == pytest.approx((x * y).sum(), abs=1e-9)


def layer_norm(x, weight, bias):
    mean = x.sum(axis=1, keepdims=True) / x.shape[1]
    rstd = (((x - mean) ** 2).sum(axis=1, keepdims=True) / x.shape[1] + 1e-5) ** -0.5
    return (x - mean) * rstd * weight + bias, mean, rstd


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (5, 17), (3, 64), (0, 4)])
def test_layer_norm_and_its_gradients(kernel, random, shape):
    rows, width = shape
    arrays = [draw(random, kernel, *size) for size in (shape, (width,), (width,))]
    grad, found = draw(random, kernel, *shape), [junk(kernel, rows, n) for n in (width, 1, 1)]
    x, weight, bias = (give(kernel, a) for a in arrays)
    of = Rows(x, *found[1:], weight)
    kernel.layer_norm(of, bias, 1e-5, found[0])
    all_near(kernel, found, layer_norm(*arrays), 50)
    expected = slopes(lambda *moved: layer_norm(*moved)[0], arrays, grad)
    results = [junk(kernel, *a.shape) for a in arrays]
    kernel.layer_norm_backward(of, give(kernel, grad), *results)
    first = width == 1  # of one column, everything cancels
    all_near(kernel, results[first:], expected[first:], 50)


# Over the rows of a column.


@pytest.mark.parametrize(("rows", "width"), [(1, 5), (2, 5), (50, 17), (300, 64), (9, 100)])
def test_moments_make_a_batch_norm(kernel, random, rows, width):
    """Against the definition in float64: value, running moments, and the gradient."""
    eps, momentum = 1e-3, 0.3
    x, grad = (draw(random, kernel, rows, width) for _ in range(2))
    weight, bias, mean, variance = (draw(random, kernel, width) for _ in range(4))
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
    unbiased = spread * rows / max(1, rows - 1)
    moved = [(mean, x.mean(axis=0)), (variance, unbiased)]
    all_near(kernel, running, [(1 - momentum) * old + momentum * new for old, new in moved], 4)

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
    weight, bias, mean, variance = (draw(random, kernel, 2) for _ in range(4))
    x = np.stack([value * noise, little], axis=1)
    mine, w, b = (give(kernel, array) for array in (x, weight, bias))
    running = [give(kernel, mean), give(kernel, variance)]
    sums = kernel.from_host64(np.zeros((2, 2)))
    kernel.column_moments(mine[:1], kernel.from_host64(np.zeros(2)), sums)
    moments = kernel.from_host64(np.array(kernel.to_host(sums), np.float64))
    kernel.column_moments(mine, moments[0], sums)
    kernel.move_moments(sums, rows, RunningMoments(*running, 0.1), moments)
    spread = np.asarray(kernel.to_host(moments))[1]
    assert spread[0] == 0 < spread[1]
    near(kernel, running[1], 0.9 * variance, 4)
    scale, shift, out, changes = (junk(kernel, *s) for s in ((2,), (2,), (rows, 2), (3, 2)))
    of = ColumnNorm(moments, 1e-5, w, b)
    kernel.moment_factors(of, True, scale, shift)
    kernel.scale_columns(mine, scale, shift, out)
    found = kernel.to_host(out)
    assert (found[:, 0] == bias[0].astype(kernel.dtype)).all()
    assert len(set(found[:, 1])) == 2
    kernel.moment_slopes(of, sums, rows, changes)
    assert kernel.to_host(changes)[:, 0].tolist() == [0, 0, 0]


def test_the_gradient_of_two_rows_keeps_its_digits(kernel):
    x, grad, eps = np.array([[3.0], [7.0]]), np.array([[0.25], [0.75]]), 1e-5
    moments = kernel.from_host64(np.array([[5.0], [1 / np.sqrt(4 + eps)]]))
    sums = kernel.from_host64(np.array([[1.0], [1 / np.sqrt(4 + eps)]]))
    changes, out, one = junk(kernel, 3, 1), junk(kernel, 2, 1), give(kernel, np.ones(1))
    kernel.moment_slopes(ColumnNorm(moments, eps, one, one), sums, 2, changes)
    kernel.scale_columns_backward(give(kernel, grad), give(kernel, x), changes, out)
    expected = 0.25 * eps / (4 + eps) ** 1.5
    np.testing.assert_allclose(kernel.to_host(out), [[-expected], [expected]], rtol=1e-6)


# Entry by entry.


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_first_of_equals_is_the_largest(kernel, random, count):
    for shape in SHAPES:
        xs = np.round(random.standard_normal((count, *shape)))
        grad, mine = draw(random, kernel, *shape), [give(kernel, x) for x in xs]
        out = junk(kernel, *shape)
        kernel.maximum(mine, out)
        near(kernel, out, xs.max(axis=0))
        for i in range(count):
            back = junk(kernel, *shape)
            kernel.maximum_backward(give(kernel, grad), out, mine, i, back)
            near(kernel, back, grad * (xs.argmax(axis=0) == i))
        xs[-1, :1, :1] = np.nan  # a loss that diverges is seen
        kernel.maximum([give(kernel, x) for x in xs], out)
        near(kernel, out, xs.max(axis=0))


def formula(kind, x, slope=0.2):
    """An activation f and its derivative f′."""
    if kind == "gelu":
        share = 0.5 * erfc(-x / np.sqrt(2))
        return x * share, share + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
    if kind == "sigmoid":
        return expit(x), expit(x) * expit(-x)
    if kind == "tanh":
        return np.tanh(x), 1 / np.cosh(np.clip(x, -300, 300)) ** 2
    if kind == "softplus":
        return np.log1p(np.exp(x)), expit(x)
    one, below = np.ones_like(x), np.minimum(x, 0)
    negative = {
        "none": (x, one), "relu": (0 * x, 0 * x), "elu": (np.expm1(below), np.exp(below)),
        "leaky_relu": (slope * x, slope * one),
    }  # fmt: skip
    return np.where(x > 0, (x, one), negative[kind])


def values(kernel):
    """From the tails of all functions, and about where formulas change."""
    ranges = np.linspace(-45, 45, 1801), np.linspace(-1.5, 1.5, 301)
    some = np.concatenate([*ranges, [1e-9, -1e-9, 1e4, -1e4, 0.0]])
    return some[: len(some) // 7 * 7].reshape(-1, 7).astype(kernel.dtype).astype(np.float64)


@pytest.mark.parametrize("kind", [*FUNCTIONS, "softplus", "elu", "leaky_relu"])
def test_activations_and_their_derivatives(kernel, random, monkeypatch, kind):
    """Softplus stands for a function that no kernel has a version of."""
    softplus = (lambda x: np.log1p(np.exp(x)), lambda x: np.exp(x) / (np.exp(x) + 1))
    monkeypatch.setitem(FUNCTIONS, "softplus", softplus)
    x = values(kernel) if kind != "softplus" else draw(random, kernel, 5, 7)
    grad = draw(random, kernel, *x.shape)
    f, derivative = formula(kind, x)
    mine, back, out = give(kernel, x), give(kernel, grad), junk(kernel, *x.shape)
    most = np.maximum(1, abs(x))
    if kind in FUNCTIONS:
        kernel.function(kind, mine, out)
        near(kernel, kernel.to_host(out) / most, f / most)
        kernel.function_backward(kind, mine, back, out)
        near(kernel, out, grad * derivative)
    elif kind == "elu":
        kernel.elu(mine, out)
        near(kernel, kernel.to_host(out) / most, f / most)
    else:
        kernel.leaky(mine, 0.2, out)
        near(kernel, out, f)
        slope, of_slope = give(kernel, np.array([0.2])), junk(kernel, 1)
        kernel.prelu(mine, slope, out)
        near(kernel, out, f)
        expected = (grad * np.minimum(x, 0)).sum()
        for result in (out, back):  # also in place
            kernel.prelu_backward(mine, back, slope, result, of_slope)
            near(kernel, result, grad * derivative)
            assert float(kernel.to_host(of_slope)[0]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("length", [1, 70, 5000])
@having("shorten")
def test_gradients_are_shortened_where_they_are(kernel, random, length):
    x = draw(random, kernel, length)
    own = np.sqrt((x**2).sum())
    for longest, expected in ((own / 3, x * own / 3 / (own + 1e-6)), (own * 2, x)):
        mine = give(kernel, x)
        kernel.shorten(mine, longest, 1e-6)
        near(kernel, mine, expected, 4)


@pytest.mark.parametrize("shape", [(1, 6), (9, 12), (5, 64), (0, 4)])
@pytest.mark.parametrize("heads", [1, 2])
def test_the_mean_of_heads(kernel, random, shape, heads):
    x = draw(random, kernel, *shape)
    mean = x.reshape(shape[0], heads, shape[1] // heads).mean(axis=1)
    out, back = junk(kernel, *mean.shape), junk(kernel, *shape)
    kernel.mean_of_heads(give(kernel, x), heads, out)
    kernel.mean_of_heads_backward(out, heads, back)
    all_near(kernel, (out, back), (mean, np.tile(mean / heads, heads)))


# Epilogues.


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
    a, b = draw(random, kernel, rows, inner), draw(random, kernel, inner, width)
    bias, plus = draw(random, kernel, width), draw(random, kernel, *shape)
    before = draw(random, kernel, *shape)
    mask, keys = kept(keys, columns, p) if p else 1.0, keys if p else None
    mine, other, added = give(kernel, a), give(kernel, b), give(kernel, plus)
    turned, matrix = give(kernel, np.ascontiguousarray(b.T)), kernel.sparse(sp.csr_array(a))

    def expected(z):
        f, derivative = formula(kind, z + bias if biased else z)
        return f * mask, derivative * mask

    for accumulate in (False, True):
        for more in (None, added):
            epilogue = Activation(give(kernel, bias) if biased else None, kind, keys, columns, p,
                                  slope=0.2, plus=more)  # fmt: skip
            z = a @ b + (before if accumulate else 0)
            outs = [give(kernel, before) for _ in range(4)]
            kernel.gemm_then(Product(mine, other, outs[0], False, epilogue, accumulate))
            kernel.gemm_then(Product(mine, turned, outs[1], True, epilogue, accumulate))
            kernel.spmm_then(matrix, other, outs[2], accumulate, epilogue)
            kernel.spmm(matrix, other, outs[3], accumulate)
            kernel.follow(outs[3], epilogue)
            value, derivative = expected(z if more is None else z + plus)
            all_near(kernel, outs, [value] * 4, 4)
    grad, scale = draw(random, kernel, *shape), 1 / (1 - p)
    output = None if kind == "none" else outs[0]  # of dropout alone there is none
    for more in (None, added):
        back = ActivationBackward(output, kind, scale, keys, columns, p, slope=0.2, plus=more)
        outs, product = [give(kernel, grad) for _ in range(3)], a @ b
        kernel.gemm_then(Product(mine, other, outs[0], epilogue=back))
        kernel.spmm_then(matrix, other, outs[1], False, back)
        kernel.follow(outs[2], back)
        sums = [one if more is None else one + plus for one in (product, product, grad)]
        all_near(kernel, outs, [one * derivative for one in sums], 4)


@natively
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
