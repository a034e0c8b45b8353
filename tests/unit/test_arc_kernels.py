"""Rows of vertices, of entries and of kinds, of every kernel, against loops over them."""

import numpy as np
import pytest
import scipy.sparse as sp
from kernel_cases import DTYPES, draw, give, junk, kept, natively, near, needs_native, same_bits
from refusals import refuses
from test_norms import formula

from gcnmpi.core import rng
from gcnmpi.core.functions import REDUCTIONS
from gcnmpi.kernels.epilogues import KINDS, Activation
from gcnmpi.kernels.interface.arcs import LEAST_VARIANCE, Reduction, Taken
from gcnmpi.kernels.interface.kinds import KindProduct, kinds_of
from gcnmpi.options.kernel import KERNELS

SHAPES = [(9, 12), (12, 5), (40, 40), (1, 1), (0, 4), (4, 0), (0, 0)]

LARGE = (300, 200)  # for several threads
SIZES = [((9, 23), width) for width in (0, 1, 2, 3, 4, 8, 64, 65)]
SIZES += [(shape, 3) for shape in (*SHAPES, LARGE)]

HEADS = [(1, 0), (1, 1), (1, 3), (3, 1), (4, 2), (1, 65), (3, 8), (4, 16), (3, 64), (2, 32)]

CASES = [((9, 23), heads) for heads in HEADS] + [(s, (3, 5)) for s in (*SHAPES, LARGE)]

TOGETHER = [*((kind,) for kind in REDUCTIONS), ("max", "sum"), REDUCTIONS, REDUCTIONS[::-1]]


class Entries:
    """The rows and columns of entries, some of them of one arc, in the order of a pattern."""

    def __init__(self, random, shape, density=0.4):
        self.shape = shape
        copies = (random.random(shape) < (density if shape != LARGE else 0.1)).astype(int)
        copies *= random.integers(1, 4, shape)
        copies[7:8] = 1  # a long row
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


def split(x, heads):
    return x.reshape(len(x), heads, x.shape[1] // heads)


def entries_of(kernel, random, shape):
    entries = Entries(random, shape)
    return entries, entries.pattern(kernel, random)


# Operations: sizes of what is given and of the result, how they are called, and what they are. "s"
# are rows of columns, "t" of rows, "e" of entries, and "h" has a number of each head for an entry.


def added(places, x, count):
    out = np.zeros((count, x.shape[1]))
    np.add.at(out, places, x)
    return out


def softmax(n, x):
    out = np.zeros(x.shape)
    for _, of_row in n.by_rows():
        weights = np.exp(x[of_row] - x[of_row].max(axis=0, initial=-np.inf))
        out[of_row] = weights / weights.sum(axis=0)
    return out


def softmax_back(n, y, grad):
    along = added(n.rows, y * grad, n.shape[0])
    return y * (grad - along[n.rows])


def weighed(values, x):
    return (values[:, :, np.newaxis] * split(x, values.shape[1])).reshape(x.shape)


def dots(x, y, heads):
    return np.einsum("ehc,ehc->eh", split(x, heads), split(y, heads))


OPERATIONS = {
    "source": ("s", "e", lambda k, p, x, out: k.take(Taken(p, x, None, out)),
               lambda n, x: x[n.columns]),
    "target": ("t", "e", lambda k, p, x, out: k.take(Taken(p, None, x, out)),
               lambda n, x: x[n.rows]),
    "both": ("st", "e", lambda k, p, x, y, out: k.take(Taken(p, x, y, out)),
             lambda n, x, y: x[n.columns] + y[n.rows]),
    "both and more": ("ste", "e",
                      lambda k, p, x, y, z, out: k.take(Taken(p, x, y, out, Activation(plus=z))),
                      lambda n, x, y, z: np.maximum(x[n.columns] + y[n.rows] + z, 0)),
    "sum of sources": ("e", "s", lambda k, p, x, out: k.sum_sources(p, x, out),
                       lambda n, x: added(n.columns, x, n.shape[1])),
    "softmax": ("e", "e", lambda k, p, x, out: k.softmax_targets(p, x, out), softmax),
    "softmax of heads": ("h", "h", lambda k, p, x, out: k.softmax_targets(p, x, out), softmax),
    "softmax back": ("ee", "e", lambda k, p, y, g, out: k.softmax_targets_backward(p, y, g, out),
                     softmax_back),
    "softmax of heads back": ("hh", "h",
                              lambda k, p, y, g, out: k.softmax_targets_backward(p, y, g, out),
                              softmax_back),
    "product": ("hs", "t", lambda k, p, v, x, out: k.spmm_values(p, v, x, out),
                lambda n, v, x: added(n.rows, weighed(v, x[n.columns]), n.shape[0])),
    "product back": ("ht", "s", lambda k, p, v, x, out: k.spmm_values_t(p, v, x, out),
                     lambda n, v, x: added(n.columns, weighed(v, x[n.rows]), n.shape[1])),
    "dots of ends": ("ts", "h", lambda k, p, y, x, out: k.sddmm(p, y, x, out),
                     lambda n, y, x: dots(y[n.rows], x[n.columns], n.heads)),
    "dots of rows": ("ee", "h", lambda k, p, x, y, out: k.row_dots(x, y, out),
                     lambda n, x, y: dots(x, y, n.heads)),
    "multiples": ("he", "e", lambda k, p, v, x, out: k.scale_heads(v, x, out),
                  lambda n, v, x: weighed(v, x)),
}  # fmt: skip

IN_PLACE = ("softmax", "softmax back", "multiples")  # over the last of what is given


def sizes_of(pattern, letters, heads, c):
    sizes = {"s": (pattern.columns, heads * c), "t": (pattern.rows, heads * c),
             "e": (pattern.entries, heads * c), "h": (pattern.entries, heads)}  # fmt: skip
    return [sizes[letter] for letter in letters]


def result_of(kernel, pattern, name, heads, arrays, wide=False, in_place=False):
    """With ``wide``, each array is some columns of a wider one."""

    def mine(array):
        if not wide:
            return give(kernel, array)
        return give(kernel, np.hstack([array] * 3))[:, array.shape[1] : 2 * array.shape[1]]

    given, (size,) = [*map(mine, arrays)], sizes_of(pattern, OPERATIONS[name][1], *heads)
    out = given[-1] if in_place else mine(np.full(size, 3.5))
    OPERATIONS[name][2](kernel, pattern, *given, out)
    return out


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(("shape", "heads"), CASES, ids=str)
def test_operations_are_loops_over_the_entries(kernel, random, shape, heads, name):
    entries, pattern = entries_of(kernel, random, shape)
    entries.heads = heads[0]
    sizes = sizes_of(pattern, OPERATIONS[name][0], *heads)
    arrays = [draw(random, kernel, *size) for size in sizes]
    expected = OPERATIONS[name][3](entries, *arrays)
    of = kernel, pattern, name, heads, arrays
    near(kernel, result_of(*of), expected, 10)
    near(kernel, result_of(*of, wide=True), expected, 10)
    if name in IN_PLACE:
        near(kernel, result_of(*of, in_place=True), expected, 10)


# Epilogues of rows of both ends.


@pytest.mark.parametrize("way", ["source", "target", "both"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, 3, 8, 65])
def test_what_follows_rows_of_both_ends(kernel, random, width, kind, way):
    entries, pattern = entries_of(kernel, random, (9, 23))
    source, target = (draw(random, kernel, n, width) for n in (23, 9))
    total = source[entries.columns] * (way != "target") + target[entries.rows] * (way != "source")
    given = (give(kernel, source) if way != "target" else None,
             give(kernel, target) if way != "source" else None)  # fmt: skip
    bias, plus = draw(random, kernel, width), draw(random, kernel, entries.count, width)
    keys = rng.row_keys(3, 2, 7, np.arange(entries.count)), rng.column_keys(np.arange(width))
    mask, more = kept(*keys, 0.4), {"slope": 0.2, "plus": give(kernel, plus)}
    keys, out = map(kernel.resident, keys, (np.uint64, np.uint32)), junk(kernel, *plus.shape)
    keys, mine = tuple(keys), give(kernel, bias)
    for epilogue, expected in (
        (Activation(mine, kind, slope=0.2), formula(kind, total + bias)[0]),
        (Activation(None, kind, *keys, 0.4, slope=0.2), formula(kind, total)[0] * mask),
        (Activation(mine, kind, *keys, 0.4, **more), formula(kind, total + plus + bias)[0] * mask),
    ):
        kernel.take(Taken(pattern, *given, out, epilogue))
        near(kernel, out, expected, 4)


def test_reductions_of_special_numbers(kernel):
    """Of two rows of three: small deviations are none, large means cost no digits, NaN stays."""
    pattern = kernel.pattern(sp.csr_array(np.ones((2, 3))), np.arange(3))
    large = 4096 + np.array([-0.25, 0.25, -0.5, 0.5, 0.25, -0.5])
    for kind, x, expected in (
        ("std", [5, 5, 5, 5, 5, 5.003], [0, 0]),
        ("std", large, large.reshape(2, 3).std(axis=1)),
        ("max", [1, np.nan, 2, 3, 2, 4], [np.nan, 4]),
        ("min", [1, np.nan, 2, 3, 2, 4], [np.nan, 2]),
    ):
        given, out, dx = give(kernel, np.reshape(x, (6, 1))), junk(kernel, 2, 1), junk(kernel, 6, 1)
        reduction = Reduction(pattern, (kind,), given, out)
        kernel.reduce_targets(reduction)
        near(kernel, out, np.reshape(expected, (2, 1)))
        if np.array_equal(expected, [0, 0]):
            kernel.reduce_targets_backward(reduction, give(kernel, np.ones((2, 1))), dx)
            near(kernel, dx, np.zeros((6, 1)))
    e = np.exp(-1)
    softmax = np.reshape([1 / (1 + e), 0, e / (1 + e), 0.5, 0.5, 0], (6, 1))
    for width in (1, 5):  # of numbers whose exponentials overflow
        x = np.repeat(np.reshape([800.0, -900.0, 799.0, -5e3, -5e3, -9e3], (6, 1)), width, axis=1)
        out = junk(kernel, 6, width)
        kernel.softmax_targets(pattern, give(kernel, x), out)
        near(kernel, out, np.repeat(softmax, width, axis=1))


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


@pytest.mark.parametrize("kinds", TOGETHER, ids=" ".join)
@pytest.mark.parametrize(("shape", "width"), SIZES, ids=str)
def test_reductions_and_their_gradients(kernel, random, shape, width, kinds):
    entries, pattern = entries_of(kernel, random, shape)
    x = np.round(2 * random.standard_normal((entries.count, width)))  # many are equal
    grad = draw(random, kernel, shape[0], len(kinds) * width)
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


@natively
def test_the_bits_do_not_depend_on_threads(dtype):
    for heads in ((3, 17), (4, 16)):
        found = []
        for threads in (1, 2, 3):
            kernel, random = KERNELS.get("native")(dtype, threads), np.random.default_rng(3)
            _, pattern = entries_of(kernel, random, LARGE)
            for name, (letters, *_) in OPERATIONS.items():
                arrays = [random.standard_normal(s) for s in sizes_of(pattern, letters, *heads)]
                found.append(result_of(kernel, pattern, name, heads, arrays))
            shape = pattern.entries, heads[0] * heads[1]
            x, dx = give(kernel, random.standard_normal(shape)), junk(kernel, *shape)
            out = junk(kernel, LARGE[0], len(REDUCTIONS) * shape[1])
            reduction = Reduction(pattern, tuple(REDUCTIONS), x, out)
            kernel.reduce_targets(reduction)
            kernel.reduce_targets_backward(reduction, give(kernel, random.random(out.shape)), dx)
            found += [out, dx]
        each = len(found) // 3
        same_bits([found[:each], found[each : 2 * each], found[2 * each :]])


@needs_native
def test_arrays_that_do_not_fit_are_refused(random):
    kernel = KERNELS.get("native")(np.float32)
    pattern = entries_of(kernel, random, (9, 23))[1]
    n, zeros = pattern.entries, kernel.zeros
    for call in (
        lambda: kernel.take(Taken(pattern, zeros(9, 4), None, zeros(n, 4))),
        lambda: kernel.take(Taken(pattern, zeros(23, 4), zeros(9, 5), zeros(n, 4))),
        lambda: kernel.sum_sources(pattern, zeros(n, 4), zeros(9, 4)),
        lambda: kernel.reduce_targets(Reduction(pattern, ("sum",), zeros(n, 4), zeros(9, 8))),
        lambda: kernel.softmax_targets(pattern, zeros(n, 4), zeros(n, 3)),
        lambda: kernel.spmm_values(pattern, zeros(n, 3), zeros(23, 4), zeros(9, 4)),
        lambda: kernel.spmm_values_t(pattern, zeros(n, 2), zeros(23, 4), zeros(9, 4)),
        lambda: kernel.sddmm(pattern, zeros(9, 4), zeros(23, 4), zeros(n, 3)),
        lambda: kernel.row_dots(zeros(5, 4), zeros(6, 4), zeros(5, 2)),
        lambda: kernel.scale_heads(zeros(5, 2), zeros(6, 4), zeros(6, 4)),
    ):
        refuses(r"fit|differ|rows|shape", call, error=ValueError)


# Products with the weight of the kind of each row.


# Rows, kinds, columns, columns of the result, blocks.
OF_KINDS = [
    (0, 3, 4, 2, 1), (1, 1, 1, 1, 1), (40, 3, 5, 7, 1), (40, 50, 8, 16, 1), (40, 3, 0, 2, 1),
    (40, 3, 2, 0, 1), (300, 4, 17, 33, 1), (40, 3, 6, 9, 3), (90, 2, 24, 8, 2), (64, 5, 9, 65, 1),
]  # fmt: skip


class Case:
    """Rows of which most are of kind 1, if there is one, and none of the last of several."""

    def __init__(self, random, size, dtype):
        rows, count, self.inner, self.width, self.blocks = size
        self.block = self.inner // self.blocks, self.width // self.blocks
        self.kinds = random.integers(0, max(1, count - 1), rows)
        self.kinds[: rows // 2] = min(1, count - 1)
        random.shuffle(self.kinds)
        self.count, shape = count, (count * self.inner, self.width // self.blocks)
        of_rows = (rows, self.inner), (rows, self.width)
        made = (random.standard_normal(each).astype(dtype) for each in (*of_rows, shape))
        self.x, self.y, self.weights = (array.astype(np.float64) for array in made)

    def whole(self, kind, weights):
        """The matrix of a kind, (inner, width), with zeros beside its blocks."""
        found, (i, o) = np.zeros((self.inner, self.width)), self.block
        for b in range(self.blocks):
            rows = slice(kind * self.inner + b * i, kind * self.inner + (b + 1) * i)
            found[b * i : (b + 1) * i, b * o : (b + 1) * o] = weights[rows]
        return found

    def product(self, kernel, x, weights, out):
        kinds = kinds_of(self.kinds, self.count, kernel.resident)
        return KindProduct(kinds, x, weights, out, self.blocks)


def results_of(case, kernel):
    """The product, its adjoint, and the gradient of the weights."""
    x, y, weights = (give(kernel, each) for each in (case.x, case.y, case.weights))
    out, back, gradient = (junk(kernel, *each.shape) for each in (y, x, weights))
    kernel.multiply_kinds(case.product(kernel, x, weights, out))
    kernel.multiply_kinds_t(case.product(kernel, back, weights, y))
    kernel.kinds_gradient(case.product(kernel, x, gradient, y))
    return out, back, gradient


@pytest.mark.parametrize("size", OF_KINDS, ids=str)
@pytest.mark.parametrize("at_once", [1 << 20, 16])  # rows of a kind that are brought together
def test_rows_times_the_weight_of_their_kind(kernel, random, monkeypatch, size, at_once):
    monkeypatch.setattr("gcnmpi.kernels.kinds.AT_ONCE", at_once)
    case = Case(random, size, kernel.dtype)
    whole = [case.whole(kind, case.weights) for kind in case.kinds]
    rows = [x @ weight for x, weight in zip(case.x, whole, strict=True)]
    back = [y @ weight.T for y, weight in zip(case.y, whole, strict=True)]
    gradient, (i, o) = np.zeros(case.weights.shape), case.block
    for x, y, kind in zip(case.x, case.y, case.kinds, strict=True):
        for b in range(case.blocks):
            of_kind = slice(kind * case.inner + b * i, kind * case.inner + (b + 1) * i)
            gradient[of_kind] += np.outer(x[b * i : (b + 1) * i], y[b * o : (b + 1) * o])
    found = results_of(case, kernel)
    near(kernel, found[0], np.reshape(rows, case.y.shape))
    near(kernel, found[1], np.reshape(back, case.x.shape))
    near(kernel, found[2], gradient, 10)


@needs_native
@DTYPES
def test_bits_depend_on_no_number_of_threads(dtype):
    case = Case(np.random.default_rng(2), (20_000, 7, 24, 40, 1), dtype)
    same_bits([results_of(case, KERNELS.get("native")(dtype, threads)) for threads in (1, 2, 3)])


@needs_native
def test_kinds_that_do_not_fit_are_refused():
    kernel = KERNELS.get("native")(np.float64)
    case = Case(np.random.default_rng(3), (9, 3, 4, 6, 2), np.float64)
    wrong = case.product(kernel, case.x, case.weights[1:], case.y)
    refuses("not the weights of the kinds", kernel.multiply_kinds, wrong, error=ValueError)
    case.kinds = case.kinds[1:]
    wrong = case.product(kernel, case.x, case.weights, case.y)
    refuses("not the kinds of the rows", kernel.multiply_kinds, wrong, error=ValueError)
