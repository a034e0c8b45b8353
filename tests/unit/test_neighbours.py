"""Maximum and attention of every kernel, against dense matrices and complex steps."""

import numpy as np
import pytest
import scipy.sparse as sp
from kernel_cases import DTYPES, give, junk, near, needs_native, same_bits
from refusals import refuses

from gcnmpi.core import rng
from gcnmpi.kernels.interface.kernel import AttentionDropout
from gcnmpi.kernels.interface.neighbours import (
    Attention,
    AttentionBackward,
    AttentionV2,
    AttentionV2Backward,
)
from gcnmpi.options.kernel import KERNELS

STEP = 1e-30
SLOPE = 0.2
P = 0.4


def rounded(kernel, array):
    """The numbers as the kernel has them, in float64."""
    return np.asarray(array).astype(kernel.dtype).astype(np.float64)


def graph(random, rows, columns, density=0.3):
    """Directed, with rows and columns that are empty; the order of columns is not the local one."""
    dense = random.random((rows, columns)) < density
    dense[rows // 2 :: 5] = False
    dense[:, columns // 3 :: 7] = False
    return dense, random.permutation(10 * columns)[:columns].astype(np.int64)


def matrix_of(dense, random):
    """Entries of a row in any order."""
    rows, columns = np.nonzero(dense)
    mixed = random.permutation(len(rows))
    rows, columns = rows[mixed], columns[mixed]
    stable = np.argsort(rows, kind="stable")
    starts = np.concatenate(([0], np.cumsum(dense.sum(axis=1))))
    values = random.standard_normal(len(rows))
    return sp.csr_array((values, columns[stable], starts), shape=dense.shape)


SHAPES = [(9, 12), (12, 5), (1, 1), (40, 40), (0, 4), (4, 0), (0, 0)]
HEADS = [(1, 1), (1, 3), (3, 1), (1, 17), (3, 5), (8, 8), (4, 16), (1, 64), (2, 32), (15, 2)]
CASES = [((40, 40), heads) for heads in HEADS]
CASES += [(shape, heads) for shape in SHAPES if shape != (40, 40) for heads in ((1, 7), (3, 5))]
CASES += [((9, 12), (33, 8))]  # more than a block of threads for a row
GRADIENTS = [
    ((7, 9), (1, 1)),
    ((9, 6), (1, 3)),
    ((7, 9), (3, 1)),
    ((9, 6), (3, 5)),
    ((7, 9), (2, 8)),
]
GRADIENTS += [((1, 1), (1, 3)), ((3, 0), (3, 1))]


def test_a_pattern_with_a_column_out_of_range_is_refused(kernel, random):
    matrix = matrix_of(np.ones((3, 4), bool), random)
    matrix.indices[2] = 4
    refuses("indices", kernel.pattern, matrix, np.arange(4), error=ValueError)
    with pytest.raises(ValueError, match="3 global numbers for 4 columns"):
        kernel.pattern(matrix_of(np.ones((3, 4), bool), random), np.arange(3))


# Maximum.


@pytest.mark.parametrize("width", [1, 3, 17, 64, 100])
@pytest.mark.parametrize("shape", SHAPES)
def test_maximum_and_its_gradient(kernel, random, shape, width):
    dense, order = graph(random, *shape)
    x = np.round(2 * random.standard_normal((shape[1], width)))  # many are equal
    grad = rounded(kernel, random.standard_normal((shape[0], width)))
    out, back = np.zeros((shape[0], width)), np.zeros((shape[1], width))
    arg = np.full((shape[0], width), -1)
    for i in range(shape[0]):
        columns = sorted(np.flatnonzero(dense[i]), key=lambda j: order[j])
        for c in range(width if columns else 0):
            j = max(columns, key=lambda j: x[j, c])  # the first of equals
            out[i, c], arg[i, c] = x[j, c], j
            back[j, c] += grad[i, c]
    pattern = kernel.pattern(matrix_of(dense, random), order)
    mine, places = junk(kernel, *out.shape), kernel.from_host(np.full(out.shape, 9, np.int32))
    kernel.max_aggregate(pattern, give(kernel, x), mine, places)
    near(kernel, mine, out)
    assert np.array_equal(kernel.to_host(places), arg)
    mine = junk(kernel, *back.shape)
    kernel.max_aggregate_backward(pattern, give(kernel, grad), places, mine)
    near(kernel, mine, back)


def test_a_maximum_passes_nan_on(kernel):
    dense = np.array([[1, 1, 0], [0, 1, 1]], bool)
    pattern = kernel.pattern(sp.csr_array(dense.astype(float)), np.arange(3))
    for x in ([[np.nan], [1.0], [-np.inf]], [[1.0], [np.nan], [2.0]]):
        out, arg = kernel.empty(2, 1), kernel.from_host(np.zeros((2, 1), np.int32))
        kernel.max_aggregate(pattern, give(kernel, x), out, arg)
        expected = [[np.nan], [np.maximum(x[1][0], x[2][0])]]
        near(kernel, out, np.array(expected))


# Attention. Expected values come from dense matrices, derivatives from complex steps.


def leaky(z):
    return np.where(z.real > 0, z, SLOPE * z)


def weighted(dense, e, x, kept):
    """Of e (rows, columns, heads), in real or complex numbers."""
    heads = e.shape[2]
    parts = x.reshape(len(x), heads, x.shape[1] // heads)
    e = np.where(dense[:, :, None], e, -np.inf)
    highest = np.where(dense.any(axis=1)[:, None], e.real.max(axis=1, initial=-np.inf), 0)
    weights = np.where(dense[:, :, None], np.exp(e - highest[:, None]), 0)
    total = weights.sum(axis=1)
    alpha = kept * weights / np.where(dense.any(axis=1)[:, None], total, 1)[:, None]
    return np.einsum("ijh,jhc->ihc", alpha, parts).reshape(len(dense), x.shape[1]), highest, total


def v1(dense, x, t, s, kept):
    return weighted(dense, leaky(s[:, None] + t[None]), x, kept)


def v2(dense, x1, x2, vector, kept):
    z = leaky(x1[None] + x2[:, None]) * vector
    heads = kept.shape[2]
    return weighted(
        dense, z.reshape(*z.shape[:2], heads, z.shape[2] // heads).sum(axis=3), x1, kept
    )


def gradients(function, dense, arrays, kept, grad):
    """Of sum(grad · y), a number of each array at a time."""
    found = []
    for k, array in enumerate(arrays):
        mine = np.zeros(array.shape)
        for place in np.ndindex(array.shape):
            moved = [a.astype(complex) for a in arrays]
            moved[k][place] += 1j * STEP
            mine[place] = np.sum(grad * function(dense, *moved, kept)[0].imag) / STEP
        found.append(mine)
    return found


def dropping(order, rows, heads):
    """Keys of an epoch, and 1 / (1 − p) or 0 for every row, column and head."""
    keys = rng.row_keys(3, 2, 7, np.arange(rows) * 3)
    numbers = rng.column_keys((order[:, None] * heads + np.arange(heads)).ravel())
    hashes, scratch = np.empty((2, rows, len(numbers)), np.uint32)
    rng.hash_block(keys, numbers, hashes, scratch)
    kept = (hashes >= rng.threshold(P)).reshape(rows, len(order), heads) / (1 - P)
    return AttentionDropout(keys, numbers, P), kept


def inputs(random, kernel, shape, heads, c, version):
    (rows, columns), width = shape, heads * c
    sizes = [(columns, width), (columns, heads), (rows, heads)]
    if version == 2:
        sizes = [(columns, width), (rows, width), (width,)]
    return [rounded(kernel, random.standard_normal(size)) for size in sizes]


@pytest.mark.parametrize("drop", [False, True], ids=["whole", "dropped"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("shape", "heads"), CASES, ids=str)
def test_attention(kernel, random, shape, heads, version, drop):
    heads, c = heads
    dense, order = graph(random, *shape)
    arrays = inputs(random, kernel, shape, heads, c, version)
    dropout, kept = dropping(order, shape[0], heads) if drop else (None, np.ones((1, 1, heads)))
    expected = (v1 if version == 1 else v2)(dense, *arrays, kept)
    pattern = kernel.pattern(matrix_of(dense, random), order)
    out = junk(kernel, shape[0], heads * c)
    shift, total = junk(kernel, shape[0], heads), junk(kernel, shape[0], heads)
    given = [give(kernel, a) for a in arrays]
    if version == 1:
        kernel.attend(attention(pattern, given, dropout, out, shift, total))
    else:
        scratch = junk(kernel, pattern.entries, heads)
        kernel.attend_v2(attention_v2(pattern, given, dropout, out, shift, total, scratch))
    for found, wanted in zip((out, shift, total), expected, strict=True):
        near(kernel, found, wanted, 4)


@pytest.mark.parametrize("drop", [False, True], ids=["whole", "dropped"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("shape", "heads"), GRADIENTS, ids=str)
def test_gradients_of_attention(kernel, random, shape, heads, version, drop):
    heads, c = heads
    dense, order = graph(random, *shape, 0.5)
    arrays = inputs(random, kernel, shape, heads, c, version)
    dropout, kept = dropping(order, shape[0], heads) if drop else (None, np.ones((1, 1, heads)))
    grad = rounded(kernel, random.standard_normal((shape[0], heads * c)))
    function = v1 if version == 1 else v2
    expected = gradients(function, dense, arrays, kept, grad)
    if version == 2:
        expected[2] += 2  # added to
    found = backward(kernel, kernel.pattern(matrix_of(dense, random), order), arrays, grad,
                     heads, version, dropout)  # fmt: skip
    for mine, wanted in zip(found, expected, strict=True):
        near(kernel, mine, wanted, 20)


def attention(pattern, given, dropout, out, shift, total):
    x, t, s = given
    return Attention(pattern, x, SLOPE, dropout, out, shift, total, t, s)


def attention_v2(pattern, given, dropout, out, shift, total, scratch):
    x, target, vector = given
    return AttentionV2(pattern, x, SLOPE, dropout, out, shift, total, target, vector, scratch)


def backward(kernel, pattern, arrays, grad, heads, version, dropout, roomy=True):
    """All gradients, after the forward pass."""
    rows, width = grad.shape
    y, shift, total = (junk(kernel, rows, n) for n in (width, heads, heads))
    scratch = junk(kernel, pattern.scratch_rows if roomy else pattern.entries, heads)
    given, back = [give(kernel, a) for a in arrays], give(kernel, grad)
    results = [junk(kernel, *a.shape) for a in arrays]
    if version == 1:
        forward = attention(pattern, given, dropout, y, shift, total)
        kernel.attend(forward)
        kernel.attend_backward(AttentionBackward(forward, back, *results, scratch))
    else:
        results[2] = give(kernel, np.full(width, 2.0))
        forward = attention_v2(pattern, given, dropout, y, shift, total, scratch)
        kernel.attend_v2(forward)
        kernel.attend_v2_backward(AttentionV2Backward(forward, back, *results))
    return results


@pytest.mark.parametrize("drop", [False, True], ids=["whole", "dropped"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_gradients_are_those_of_the_reference(kernel, random, heads, version, drop):
    """Larger ones: many rows for each thread, and rows of more than a block of entries."""
    heads, c = heads
    shape = (150, 1500)
    dense, order = graph(random, *shape, 0.02)
    dense[7], dense[:, 11] = True, True
    arrays = inputs(random, kernel, shape, heads, c, version)
    dropout = dropping(order, shape[0], heads)[0] if drop else None
    grad = rounded(kernel, random.standard_normal((shape[0], heads * c)))
    matrix, reference = matrix_of(dense, random), KERNELS.get("scipy")(np.float64)
    case = arrays, grad, heads, version, dropout
    expected = backward(reference, reference.pattern(matrix, order), *case)
    found = backward(kernel, kernel.pattern(matrix, order), *case, roomy=not drop)
    for mine, wanted in zip(found, expected, strict=True):
        near(kernel, mine, wanted, 20)


def test_large_scores_do_not_overflow(kernel):
    pattern = kernel.pattern(sp.csr_array(np.ones((2, 3))), np.arange(3))
    t, s = np.array([[800.0], [-900.0], [799.0]]), np.array([[500.0], [-5000.0]])
    x, out = np.array([[1.0], [2.0], [4.0]]), kernel.empty(2, 1)
    shift, total = kernel.empty(2, 1), kernel.empty(2, 1)
    arrays = [give(kernel, a) for a in (x, t, s)]
    kernel.attend(attention(pattern, arrays, None, out, shift, total))
    expected = v1(np.ones((2, 3), bool), x, t, s, np.ones((1, 1, 1)))
    near(kernel, out, expected[0], 20)


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_scores_of_vertices_and_their_gradients(kernel, random, heads):
    (heads, c), m = heads, 21
    x, vector = random.standard_normal((m, heads * c)), random.standard_normal(heads * c)
    dout, before = random.standard_normal((m, heads)), random.standard_normal((m, heads * c))
    out, dx, dvector = junk(kernel, m, heads), give(kernel, before), junk(kernel, heads * c)
    mine = [give(kernel, a) for a in (x, vector)]
    kernel.head_dots(*mine, out)
    products = (x * vector).reshape(m, heads, c)
    near(kernel, out, products.sum(axis=2), 4)
    back = np.repeat(dout, c, axis=1)
    kernel.head_dots_backward(*mine, give(kernel, dout), dx, dvector)
    near(kernel, dx, before + back * vector)
    near(kernel, dvector, 3.5 + (back * x).sum(axis=0), 4)


@needs_native
@DTYPES
def test_the_bits_do_not_depend_on_threads(random, dtype):
    shape, (heads, c) = (700, 600), (3, 17)
    dense, order = graph(random, *shape, 0.05)
    dense[:, 5] = True
    matrix, found = matrix_of(dense, random), []
    grad = random.standard_normal((shape[0], heads * c))
    for threads in (1, 2, 3):
        kernel = KERNELS.get("native")(dtype, threads)
        pattern, results = kernel.pattern(matrix, order), []
        for version in (1, 2):
            arrays = inputs(np.random.default_rng(1), kernel, shape, heads, c, version)
            dropout = dropping(order, shape[0], heads)[0]
            results += backward(kernel, pattern, arrays, grad, heads, version, dropout)
        arg = np.empty(grad.shape, np.int32)
        out, back = kernel.empty(*grad.shape), kernel.empty(shape[1], heads * c)
        kernel.max_aggregate(pattern, give(kernel, arrays[0]), out, arg)
        kernel.max_aggregate_backward(pattern, give(kernel, grad), arg, back)
        found.append([*results, out, arg, back])
    same_bits(found)
