"""Rows of vertices and rows of entries, of every kernel, against loops over the entries."""

import functools

import numpy as np
import pytest
import scipy.sparse as sp
from kernel_cases import DTYPES, IN_TURN, give, junk, near, needs_native, same_bits

from gcnmpi.core import rng
from gcnmpi.core.functions import REDUCTIONS
from gcnmpi.kernels.epilogues import Activation, ActivationBackward
from gcnmpi.kernels.interface.arcs import LEAST_VARIANCE, Reduction, Taken
from gcnmpi.options.kernel import KERNELS

SHAPES = [(9, 12), (12, 5), (40, 40), (1, 1), (0, 4), (4, 0), (0, 0)]
WIDTHS = [0, 1, 2, 3, 4, 8, 64, 65]
SIZES = [((9, 23), width) for width in WIDTHS] + [(shape, 3) for shape in SHAPES]
HEADS = [(1, 0), (1, 1), (1, 3), (3, 1), (4, 2), (1, 65), (3, 8), (4, 16), (3, 64), (2, 32)]
CASES = [((9, 23), heads) for heads in HEADS] + [(shape, (3, 5)) for shape in SHAPES]
WAYS = ["source", "target", "both"]
TOGETHER = [*((kind,) for kind in REDUCTIONS), ("max", "sum"), ("min", "std"), REDUCTIONS]
TOGETHER += [("std", "mean", "max", "min"), ("max", "min")]
of_sizes = pytest.mark.parametrize(("shape", "width"), SIZES, ids=str)
of_heads = pytest.mark.parametrize(("shape", "heads"), CASES, ids=str)
together = pytest.mark.parametrize("kinds", TOGETHER, ids=" ".join)


class Entries:
    """The rows and columns of entries, some of them of one arc, in the order of a pattern."""

    def __init__(self, random, shape, density=0.4):
        self.shape = shape
        copies = (random.random(shape) < density).astype(int)
        copies *= random.integers(1, 4, shape)
        copies[shape[0] // 2 :: 5] = 0
        copies[:, shape[1] // 3 :: 7] = 0
        self.order = random.permutation(10 * shape[1])[: shape[1]].astype(np.int64)
        by_order = np.argsort(self.order)
        listed = [(i, j) for i in range(shape[0]) for j in by_order for _ in range(copies[i, j])]
        self.rows, self.columns = np.array(listed, int).reshape(-1, 2).T
        self.count = len(listed)
        self.starts = np.searchsorted(self.rows, np.arange(shape[0] + 1))

    def pattern(self, kernel, random):
        """Of a matrix whose rows have their entries in any order."""
        mixed = random.permutation(self.count)
        mixed = mixed[np.argsort(self.rows[mixed], kind="stable")]
        values = np.ones(self.count)
        matrix = sp.csr_array((values, self.columns[mixed], self.starts), shape=self.shape)
        return kernel.pattern(matrix, self.order)

    def by_rows(self):
        """The entries of each row that has some."""
        slices = map(slice, self.starts[:-1], self.starts[1:])
        return [(i, s) for i, s in enumerate(slices) if s.start < s.stop]


def numbers(random, kernel, *shape):
    """Random ones that the kernel's dtype has, in float64."""
    return random.standard_normal(shape).astype(kernel.dtype).astype(np.float64)


def split(x, heads):
    return x.reshape(len(x), heads, x.shape[1] // heads)


def entries_of(kernel, random, shape):
    entries = Entries(random, shape)
    return entries, entries.pattern(kernel, random)


# Rows of both ends of an entry.


def ends(random, kernel, entries, width, way):
    """Source and target, of which one may be missing, and their sum for each entry."""
    source = numbers(random, kernel, entries.shape[1], width) if way != "target" else None
    target = numbers(random, kernel, entries.shape[0], width) if way != "source" else None
    total = np.zeros((entries.count, width))
    if source is not None:
        total += source[entries.columns]
    if target is not None:
        total += target[entries.rows]
    return source, target, total


def taken(kernel, pattern, source, target, width, epilogue=None):
    out = junk(kernel, pattern.entries, width)
    given = [None if x is None else give(kernel, x) for x in (source, target)]
    kernel.take(Taken(pattern, *given, out, epilogue))
    return out


@IN_TURN
@pytest.mark.parametrize("way", WAYS)
@of_sizes
def test_rows_of_both_ends(kernel, random, shape, width, way):
    entries, pattern = entries_of(kernel, random, shape)
    source, target, total = ends(random, kernel, entries, width, way)
    near(kernel, taken(kernel, pattern, source, target, width), total)


ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.2 * x),
}


@IN_TURN
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ACTIVATIONS)
@pytest.mark.parametrize("width", [1, 3, 8, 65])
def test_what_follows_rows_of_both_ends(kernel, random, width, kind, way):
    entries, pattern = entries_of(kernel, random, (9, 23))
    source, target, total = ends(random, kernel, entries, width, way)
    bias, plus = numbers(random, kernel, width), numbers(random, kernel, entries.count, width)
    keys = rng.row_keys(3, 2, 7, np.arange(entries.count)), rng.column_keys(np.arange(width))
    hashes, scratch = np.empty((2, entries.count, width), np.uint32)
    rng.hash_block(*keys, hashes, scratch)
    kept = (hashes >= rng.threshold(0.4)) / 0.6
    activate, more = ACTIVATIONS[kind], {"slope": 0.2, "plus": give(kernel, plus)}
    resident = [kernel.resident(keys[0], np.uint64), kernel.resident(keys[1], np.uint32)]
    for epilogue, expected in (
        (Activation(give(kernel, bias), kind, slope=0.2), activate(total + bias)),
        (Activation(None, kind, *resident, 0.4, slope=0.2), activate(total) * kept),
        (
            Activation(give(kernel, bias), kind, *resident, 0.4, **more),
            activate(total + plus + bias) * kept,
        ),
    ):
        near(kernel, taken(kernel, pattern, source, target, width, epilogue), expected, 4)


def test_a_gradient_may_follow_rows_of_both_ends(kernel, random):
    entries, pattern = entries_of(kernel, random, (9, 23))
    source, target, total = ends(random, kernel, entries, 5, "both")
    output = numbers(random, kernel, entries.count, 5)
    epilogue = ActivationBackward(give(kernel, output), "leaky_relu", slope=0.2, scale=2.0)
    expected = 2 * total * np.where(output > 0, 1, 0.2)
    near(kernel, taken(kernel, pattern, source, target, 5, epilogue), expected)


@of_sizes
def test_sums_of_the_entries_of_a_column(kernel, random, shape, width):
    entries, pattern = entries_of(kernel, random, shape)
    x, out = numbers(random, kernel, entries.count, width), junk(kernel, shape[1], width)
    expected = np.zeros((shape[1], width))
    np.add.at(expected, entries.columns, x)
    kernel.sum_sources(pattern, give(kernel, x), out)
    near(kernel, out, expected, 4)


# Reductions.


def deviation(x):
    variance = ((x - x.mean(axis=0)) ** 2).mean(axis=0)
    return np.sqrt(np.where(variance > LEAST_VARIANCE, variance, 0))


FUNCTIONS = {
    "sum": lambda x: x.sum(axis=0),
    "mean": lambda x: x.mean(axis=0),
    "max": lambda x: x.max(axis=0),
    "min": lambda x: x.min(axis=0),
    "std": deviation,
}


def slopes(kind, x, grad):
    """The gradient of x, the entries of a row, from that of a reduction."""
    dx, number = np.zeros_like(x), np.arange(x.shape[1])
    if kind == "max":
        dx[x.argmax(axis=0), number] = grad
    elif kind == "min":
        dx[x.argmin(axis=0), number] = grad
    elif kind == "std":
        std = deviation(x)
        slope = np.divide(grad, std * len(x), out=np.zeros_like(grad), where=std > 0)
        dx[...] = (x - x.mean(axis=0)) * slope
    else:
        dx[...] = grad if kind == "sum" else grad / len(x)
    return dx


@IN_TURN
@together
@of_sizes
def test_reductions_and_their_gradients(kernel, random, shape, width, kinds):
    entries, pattern = entries_of(kernel, random, shape)
    x = np.round(2 * random.standard_normal((entries.count, width)))  # many are equal
    grad = numbers(random, kernel, shape[0], len(kinds) * width)
    expected, dx = np.zeros(grad.shape), np.zeros(x.shape)
    for number, kind in enumerate(kinds):
        own = slice(number * width, (number + 1) * width)
        for i, of_row in entries.by_rows():
            expected[i, own] = FUNCTIONS[kind](x[of_row])
            dx[of_row] += slopes(kind, x[of_row], grad[i, own])
    out, back = junk(kernel, *grad.shape), junk(kernel, *x.shape)
    reduction = Reduction(pattern, kinds, give(kernel, x), out)
    kernel.reduce_targets(reduction)
    near(kernel, out, expected, 4)
    kernel.reduce_targets_backward(reduction, give(kernel, grad), back)
    near(kernel, back, dx, 4)


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_gradients_of_reductions_are_differences(make, random, kind):
    kernel, step = make(np.float64), 1e-6
    entries, pattern = entries_of(kernel, random, (7, 9))
    x, grad = numbers(random, kernel, entries.count, 3), numbers(random, kernel, 7, 3)

    def value(x):
        out = junk(kernel, 7, 3)
        reduction = Reduction(pattern, (kind,), give(kernel, x), out)
        kernel.reduce_targets(reduction)
        return np.sum(grad * kernel.to_host(out)), reduction

    dx = junk(kernel, *x.shape)
    kernel.reduce_targets_backward(value(x)[1], give(kernel, grad), dx)
    np.testing.assert_allclose(kernel.to_host(dx), differences(value, x, step), atol=1e-6)


def differences(value, x, step):
    """Central ones of the first of what ``value`` returns."""
    found = np.empty(x.shape)
    for place in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[place] += step
        down[place] -= step
        found[place] = (value(up)[0] - value(down)[0]) / (2 * step)
    return found


def test_small_deviations_are_none(kernel):
    pattern = kernel.pattern(sp.csr_array(np.ones((2, 3))), np.arange(3))
    x = np.array([5, 5, 5, 5, 5, 5.003])[:, np.newaxis]
    out, dx = junk(kernel, 2, 1), junk(kernel, 6, 1)
    reduction = Reduction(pattern, ("std",), give(kernel, x), out)
    kernel.reduce_targets(reduction)
    near(kernel, out, np.zeros((2, 1)))
    kernel.reduce_targets_backward(reduction, give(kernel, np.ones((2, 1))), dx)
    near(kernel, dx, np.zeros((6, 1)))


def test_a_deviation_about_a_large_mean_keeps_its_digits(kernel):
    """Which the mean of squares less the square of the mean would lose."""
    pattern = kernel.pattern(sp.csr_array(np.ones((1, 4))), np.arange(4))
    x = 4096 + np.array([-0.25, 0.25, -0.5, 0.5])[:, np.newaxis]
    out = junk(kernel, 1, 1)
    kernel.reduce_targets(Reduction(pattern, ("std",), give(kernel, x), out))
    near(kernel, out, np.array([[x.std()]]))


@pytest.mark.parametrize("kind", ["max", "min"])
def test_extremes_pass_nan_on(kernel, kind):
    pattern = kernel.pattern(sp.csr_array(np.ones((2, 3))), np.arange(3))
    x = np.array([1, np.nan, 2, 3, 2, 4])[:, np.newaxis]
    out = junk(kernel, 2, 1)
    kernel.reduce_targets(Reduction(pattern, (kind,), give(kernel, x), out))
    near(kernel, out, np.array([[np.nan], [4 if kind == "max" else 2]]))


# Softmax.


def softmax(entries, x):
    out = np.zeros(x.shape)
    for _, of_row in entries.by_rows():
        weights = np.exp(x[of_row] - x[of_row].max(axis=0, initial=-np.inf))
        out[of_row] = weights / weights.sum(axis=0)
    return out


@IN_TURN
@pytest.mark.parametrize("in_place", [False, True], ids=["apart", "in place"])
@of_sizes
def test_softmax_of_the_entries_of_a_row(kernel, random, shape, width, in_place):
    entries, pattern = entries_of(kernel, random, shape)
    x, grad = numbers(random, kernel, entries.count, width), numbers(random, kernel, 1, width)
    grad = np.repeat(grad, entries.count, axis=0) + numbers(random, kernel, entries.count, width)
    grad = grad.astype(kernel.dtype).astype(np.float64)
    mine = give(kernel, x)
    out = mine if in_place else junk(kernel, *x.shape)
    kernel.softmax_targets(pattern, mine, out)
    y, dx = softmax(entries, x), np.zeros(x.shape)
    near(kernel, out, y)
    for _, of_row in entries.by_rows():
        along = (y[of_row] * grad[of_row]).sum(axis=0)
        dx[of_row] = y[of_row] * (grad[of_row] - along)
    mine = give(kernel, grad)
    back = mine if in_place else junk(kernel, *x.shape)
    kernel.softmax_targets_backward(pattern, out, mine, back)
    near(kernel, back, dx, 4)


@pytest.mark.parametrize("width", [1, 3, 4, 9])
def test_gradients_of_softmax_are_differences(make, random, width):
    kernel = make(np.float64)
    entries, pattern = entries_of(kernel, random, (5, 6))
    x, grad = (numbers(random, kernel, entries.count, width) for _ in range(2))

    def value(x):
        out = junk(kernel, *x.shape)
        kernel.softmax_targets(pattern, give(kernel, x), out)
        return np.sum(grad * kernel.to_host(out)), out

    dx = junk(kernel, *x.shape)
    kernel.softmax_targets_backward(pattern, value(x)[1], give(kernel, grad), dx)
    np.testing.assert_allclose(kernel.to_host(dx), differences(value, x, 1e-6), atol=1e-8)


@pytest.mark.parametrize("width", [1, 5])
def test_a_softmax_of_large_numbers_does_not_overflow(kernel, width):
    pattern = kernel.pattern(sp.csr_array(np.ones((2, 3))), np.arange(3))
    x = np.repeat([[800.0], [-900.0], [799.0], [-5e3], [-5e3], [-9e3]], width, axis=1)
    out = junk(kernel, 6, width)
    kernel.softmax_targets(pattern, give(kernel, x), out)
    e = np.exp(-1)
    expected = np.array([1 / (1 + e), 0, e / (1 + e), 0.5, 0.5, 0])[:, np.newaxis]
    near(kernel, out, np.repeat(expected, width, axis=1))


# Products with values of entries, for each head.


@of_heads
def test_products_with_values_of_entries(kernel, random, shape, heads):
    (heads, c), (rows, columns) = heads, shape
    entries, pattern = entries_of(kernel, random, shape)
    values = numbers(random, kernel, entries.count, heads)
    x, y = (numbers(random, kernel, n, heads * c) for n in (columns, rows))
    out, back = np.zeros((rows, heads, c)), np.zeros((columns, heads, c))
    np.add.at(out, entries.rows, values[:, :, np.newaxis] * split(x, heads)[entries.columns])
    np.add.at(back, entries.columns, values[:, :, np.newaxis] * split(y, heads)[entries.rows])
    dots = np.einsum("ehc,ehc->eh", split(y, heads)[entries.rows], split(x, heads)[entries.columns])
    mine, theirs, weights = give(kernel, x), give(kernel, y), give(kernel, values)
    found = junk(kernel, *y.shape), junk(kernel, *x.shape), junk(kernel, *values.shape)
    kernel.spmm_values(pattern, weights, mine, found[0])
    kernel.spmm_values_t(pattern, weights, theirs, found[1])
    kernel.sddmm(pattern, theirs, mine, found[2])
    for one, expected in zip(
        found, (out.reshape(y.shape), back.reshape(x.shape), dots), strict=True
    ):
        near(kernel, one, expected, 10)


@of_heads
def test_dots_and_multiples_of_heads(kernel, random, shape, heads):
    (heads, c), rows = heads, shape[0]
    x, y = (numbers(random, kernel, rows, heads * c) for _ in range(2))
    values, out = numbers(random, kernel, rows, heads), junk(kernel, rows, heads)
    kernel.row_dots(give(kernel, x), give(kernel, y), out)
    near(kernel, out, np.einsum("mhc,mhc->mh", split(x, heads), split(y, heads)), 10)
    expected = (values[:, :, np.newaxis] * split(x, heads)).reshape(x.shape)
    mine, apart = give(kernel, x), junk(kernel, *x.shape)
    for result in (apart, mine):  # the last one in place
        kernel.scale_heads(give(kernel, values), mine, result)
        near(kernel, result, expected)


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_operations_and_their_adjoints(make, random, heads):
    (heads, c), kernel = heads, make(np.float64)
    entries, pattern = entries_of(kernel, random, (9, 23))
    rows, columns, width = 9, 23, heads * c
    source, target, x, values = (
        numbers(random, kernel, *size)
        for size in (
            (columns, width),
            (rows, width),
            (entries.count, width),
            (entries.count, heads),
        )
    )

    def run(operation, size, *given):
        out = junk(kernel, *size)
        operation(*(give(kernel, a) for a in given), out)
        return kernel.to_host(out)

    def on_pattern(name, size, *given):
        return run(lambda *arrays: getattr(kernel, name)(pattern, *arrays), size, *given)

    def summed(x, out):
        kernel.reduce_targets(Reduction(pattern, ("sum",), x, out))

    for source_of, target_of, adjoint in (
        (source, None, on_pattern("sum_sources", source.shape, x)),
        (None, target, run(summed, target.shape, x)),
    ):
        ahead = kernel.to_host(taken(kernel, pattern, source_of, target_of, width))
        given = target_of if source_of is None else source_of
        assert np.sum(ahead * x) == pytest.approx(np.sum(given * adjoint))
    product = on_pattern("spmm_values", target.shape, values, source)
    back = on_pattern("spmm_values_t", source.shape, values, target)
    dots = on_pattern("sddmm", values.shape, target, source)
    assert np.sum(product * target) == pytest.approx(np.sum(back * source))
    assert np.sum(product * target) == pytest.approx(np.sum(dots * values))


# All of them: rows of larger buffers, more entries, threads.


def all_results(kernel, pattern, heads, c, random, wide=False):
    """Of every operation; with ``wide``, each array is some columns of a wider one."""
    rows, columns, entries, width = pattern.rows, pattern.columns, pattern.entries, heads * c

    def array(*size):
        if not wide:
            return give(kernel, random.standard_normal(size))
        inner = random.standard_normal(size)
        return give(kernel, np.hstack([inner, inner, inner]))[:, size[1] : 2 * size[1]]

    x, source, target = array(entries, width), array(columns, width), array(rows, width)
    values, plus, found = array(entries, heads), array(entries, width), []

    def result(*size):
        found.append(array(*size))
        return found[-1]

    kernel.take(Taken(pattern, source, target, result(entries, width), Activation(plus=plus)))
    kernel.sum_sources(pattern, x, result(columns, width))
    for kinds in (("sum",), ("max", "min"), REDUCTIONS):
        reduction = Reduction(pattern, kinds, x, result(rows, len(kinds) * width))
        kernel.reduce_targets(reduction)
        grad = array(rows, len(kinds) * width)
        kernel.reduce_targets_backward(reduction, grad, result(entries, width))
    for one, other in ((x, plus), (values, array(entries, heads))):
        kernel.softmax_targets(pattern, one, result(*one.shape))
        kernel.softmax_targets_backward(pattern, found[-1], other, result(*one.shape))
    kernel.spmm_values(pattern, values, source, result(rows, width))
    kernel.spmm_values_t(pattern, values, target, result(columns, width))
    kernel.sddmm(pattern, target, source, result(entries, heads))
    kernel.row_dots(x, plus, result(entries, heads))
    kernel.scale_heads(values, x, result(entries, width))
    return [kernel.to_host(one) for one in found]


@pytest.mark.parametrize("heads", [(1, 1), (4, 1), (3, 5), (4, 16), (1, 65)], ids=str)
def test_rows_may_be_columns_of_wider_arrays(kernel, random, heads):
    pattern = entries_of(kernel, random, (9, 23))[1]
    seeds = (np.random.default_rng(1) for _ in range(2))
    whole, parts = (
        all_results(kernel, pattern, *heads, seed, wide=wide)
        for seed, wide in zip(seeds, (False, True), strict=True)
    )
    for found, expected in zip(parts, whole, strict=True):
        near(kernel, found, expected)


def large(random):
    """Entries with long rows and a long column; some arcs occur twice."""
    places = random.integers(0, (300, 500), (9000, 2)).T
    dense = sp.coo_array((np.ones(9000), places), shape=(300, 500)).toarray()
    dense[7], dense[:, 11], dense[40:60], dense[:, 20:30] = 1, 1, 0, 0
    rows, columns = np.nonzero(dense)
    again = np.sort(np.concatenate((np.arange(len(rows)), random.integers(0, len(rows), 900))))
    starts = np.searchsorted(rows[again], np.arange(301))
    return sp.csr_array((np.ones(len(again)), columns[again], starts), shape=(300, 500))


def results_of_large(kernel, heads):
    random = np.random.default_rng(3)
    pattern = kernel.pattern(large(random), random.permutation(500))
    return all_results(kernel, pattern, *heads, np.random.default_rng(1))


@functools.cache
def expected_of_large(heads):
    """The same for all kernels: the reference is slow."""
    return results_of_large(KERNELS.get("scipy")(np.float64), heads)


@pytest.mark.parametrize("heads", [(1, 1), (4, 8), (3, 7), (1, 100)], ids=str)
def test_many_entries_as_the_reference_has_them(kernel, heads):
    for mine, expected in zip(
        results_of_large(kernel, heads), expected_of_large(heads), strict=True
    ):
        near(kernel, mine, expected, 20)


@needs_native
@DTYPES
def test_the_bits_do_not_depend_on_threads(random, dtype):
    matrix, order = large(random), random.permutation(500)
    found = []
    for threads in (1, 2, 3):
        kernel, seed = KERNELS.get("native")(dtype, threads), np.random.default_rng(1)
        pattern = kernel.pattern(matrix, order)
        found.append(
            [a for h in ((3, 17), (4, 16)) for a in all_results(kernel, pattern, *h, seed)]
        )
    same_bits(found)


@needs_native
def test_arrays_that_do_not_fit_are_refused(random):
    kernel = KERNELS.get("native")(np.float32)
    pattern = entries_of(kernel, random, (9, 23))[1]
    n, zeros = pattern.entries, kernel.zeros
    for call in (
        lambda: kernel.take(Taken(pattern, zeros(9, 4), None, zeros(n, 4))),
        lambda: kernel.take(Taken(pattern, None, zeros(23, 4), zeros(n, 4))),
        lambda: kernel.take(Taken(pattern, zeros(23, 4), zeros(9, 5), zeros(n, 4))),
        lambda: kernel.take(Taken(pattern, zeros(23, 4), None, zeros(n + 1, 4))),
        lambda: kernel.sum_sources(pattern, zeros(n, 4), zeros(9, 4)),
        lambda: kernel.sum_sources(pattern, zeros(n - 1, 4), zeros(23, 4)),
        lambda: kernel.reduce_targets(Reduction(pattern, ("sum",), zeros(n, 4), zeros(9, 8))),
        lambda: kernel.reduce_targets(Reduction(pattern, ("sum",), zeros(n, 4), zeros(23, 4))),
        lambda: kernel.softmax_targets(pattern, zeros(n, 4), zeros(n, 3)),
        lambda: kernel.softmax_targets(pattern, zeros(9, 4), zeros(9, 4)),
        lambda: kernel.spmm_values(pattern, zeros(n, 3), zeros(23, 4), zeros(9, 4)),
        lambda: kernel.spmm_values(pattern, zeros(n, 2), zeros(9, 4), zeros(9, 4)),
        lambda: kernel.spmm_values_t(pattern, zeros(n, 2), zeros(23, 4), zeros(9, 4)),
        lambda: kernel.sddmm(pattern, zeros(23, 4), zeros(9, 4), zeros(n, 2)),
        lambda: kernel.sddmm(pattern, zeros(9, 4), zeros(23, 4), zeros(n, 3)),
        lambda: kernel.row_dots(zeros(5, 4), zeros(6, 4), zeros(5, 2)),
        lambda: kernel.scale_heads(zeros(5, 2), zeros(6, 4), zeros(6, 4)),
    ):
        with pytest.raises(ValueError, match=r"fit|differ|rows|shape"):
            call()
