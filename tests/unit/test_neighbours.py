"""Maximum and attention of every kernel, against dense matrices and complex steps."""

import numpy as np
import pytest
import scipy.sparse as sp
from kernel_cases import all_near, draw, give, junk, kept, natively, near, same_bits, slopes
from refusals import refuses

from gcnmpi.core import rng
from gcnmpi.kernels.interface import neighbours as interface
from gcnmpi.kernels.interface.kernel import AttentionDropout
from gcnmpi.options.kernel import KERNELS

SLOPE, P = 0.2, 0.4


def graph(random, rows, columns, density=0.3):
    """Directed, with rows and columns that are empty; the order of columns is not the local one."""
    dense = random.random((rows, columns)) < density
    dense[rows // 2 :: 5] = False
    dense[:, columns // 3 :: 7] = False
    return dense, random.permutation(10 * columns)[:columns].astype(np.int64)


def matrix_of(dense, random):
    """Entries of a row in any order."""
    rows, columns = random.permutation(np.argwhere(dense)).T
    stable = np.argsort(rows, kind="stable")
    starts = np.append(0, np.cumsum(dense.sum(axis=1)))
    values = random.standard_normal(len(rows))
    return sp.csr_array((values, columns[stable], starts), shape=dense.shape)


SHAPES = [(9, 12), (12, 5), (1, 1), (40, 40), (0, 4), (4, 0), (0, 0)]
HEADS = [(1, 1), (1, 3), (3, 1), (1, 17), (3, 5), (8, 8), (4, 16), (1, 64), (2, 32), (15, 2)]
LARGE = (150, 1500)  # many rows for each thread, and rows of more than a block of entries
CASES = [(shape, heads) for shape in ((40, 40), LARGE) for heads in HEADS]
CASES += [(shape, heads) for shape in SHAPES if shape != (40, 40) for heads in ((1, 7), (3, 5))]
CASES += [((9, 12), (33, 8))]  # more than a block of threads for a row
SMALL = [((7, 9), (1, 1)), ((9, 6), (1, 3)), ((7, 9), (3, 1)), ((9, 6), (3, 5)), ((7, 9), (2, 8))]
SMALL += [((1, 1), (1, 3)), ((3, 0), (3, 1))]


def test_a_pattern_with_a_column_out_of_range_is_refused(kernel, random):
    matrix = matrix_of(np.ones((3, 4), bool), random)
    for count, column, says in ((3, 2, "3 global numbers for 4 columns"), (4, 4, "indices")):
        matrix.indices[2] = column
        refuses(says, kernel.pattern, matrix, np.arange(count), error=ValueError)


# Maximum.


@pytest.mark.parametrize("width", [1, 3, 17, 64, 100])
@pytest.mark.parametrize("shape", SHAPES)
def test_maximum_and_its_gradient(kernel, random, shape, width):
    dense, order = graph(random, *shape)
    x = np.round(2 * random.standard_normal((shape[1], width)))  # many are equal
    grad = draw(random, kernel, shape[0], width)
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
    pattern = kernel.pattern(sp.csr_array(np.array([[1, 1, 0], [0, 1, 1]], float)), np.arange(3))
    for x in ([[np.nan], [1.0], [-np.inf]], [[1.0], [np.nan], [2.0]]):
        out, arg = kernel.empty(2, 1), kernel.from_host(np.zeros((2, 1), np.int32))
        kernel.max_aggregate(pattern, give(kernel, x), out, arg)
        near(kernel, out, np.array([[np.nan], [np.maximum(x[1][0], x[2][0])]]))


# Attention. Expected values come from dense matrices, derivatives from complex steps.


def leaky(z):
    return np.where(z.real > 0, z, SLOPE * z)


def attended(version, dense, arrays, kept):
    """Of numbers e (rows, columns, heads) for each entry, real or complex."""
    heads = kept.shape[2]
    if version == 1:
        x, t, s = arrays
        e = leaky(s[:, None] + t[None])
    else:
        x, target, vector = arrays
        e = leaky(x[None] + target[:, None]) * vector
        e = e.reshape(*e.shape[:2], heads, e.shape[2] // heads).sum(axis=3)
    parts = x.reshape(len(x), heads, x.shape[1] // heads)
    e = np.where(dense[:, :, None], e, -np.inf)
    highest = np.where(dense.any(axis=1)[:, None], e.real.max(axis=1, initial=-np.inf), 0)
    weights = np.where(dense[:, :, None], np.exp(e - highest[:, None]), 0)
    total = weights.sum(axis=1)
    alpha = kept * weights / np.where(dense.any(axis=1)[:, None], total, 1)[:, None]
    return np.einsum("ijh,jhc->ihc", alpha, parts).reshape(len(dense), x.shape[1]), highest, total


def dropping(order, rows, heads):
    """Keys of an epoch, and 1 / (1 − p) or 0 for every row, column and head."""
    keys = rng.row_keys(3, 2, 7, np.arange(rows) * 3)
    numbers = rng.column_keys((order[:, None] * heads + np.arange(heads)).ravel())
    mask = kept(keys, numbers, P).reshape(rows, len(order), heads)
    return AttentionDropout(keys, numbers, P), mask


def inputs(random, kernel, shape, heads, c, version):
    (rows, columns), width = shape, heads * c
    others = [(columns, heads), (rows, heads)] if version == 1 else [(rows, width), (width,)]
    return [draw(random, kernel, *size) for size in ((columns, width), *others)]


def results(kernel, pattern, arrays, grad, heads, version, dropout, roomy=True):
    """The result, highest scores, sums of weights, and all gradients."""
    rows, width = grad.shape
    found = [junk(kernel, rows, n) for n in (width, heads, heads)]
    (x, *others), back = [give(kernel, a) for a in arrays], give(kernel, grad)
    of, gradients = (pattern, x, SLOPE, dropout, *found), [junk(kernel, *a.shape) for a in arrays]
    if version == 1:
        forward = interface.Attention(*of, *others)
        kernel.attend(forward)
        scratch = junk(kernel, pattern.scratch_rows if roomy else pattern.entries, heads)
        kernel.attend_backward(interface.AttentionBackward(forward, back, *gradients, scratch))
    else:
        forward = interface.AttentionV2(*of, *others, junk(kernel, pattern.entries, heads))
        kernel.attend_v2(forward)
        kernel.attend_v2_backward(interface.AttentionV2Backward(forward, back, *gradients))
    return [*found, *gradients]


@pytest.mark.parametrize("drop", [False, True], ids=["whole", "dropped"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("shape", "heads"), [*CASES, *SMALL], ids=str)
def test_attention_and_its_gradients(kernel, random, shape, heads, version, drop):
    """Gradients of small ones by a step of each number, all of large ones by the reference."""
    small, (heads, c) = (shape, heads) in SMALL, heads
    dense, order = graph(random, *shape, 0.5 if small else 0.02 if shape == LARGE else 0.3)
    if shape == LARGE:
        dense[7], dense[:, 11] = True, True
    arrays = inputs(random, kernel, shape, heads, c, version)
    dropout, mask = dropping(order, shape[0], heads) if drop else (None, np.ones((1, 1, heads)))
    grad = draw(random, kernel, shape[0], heads * c)
    matrix, given = matrix_of(dense, random), (arrays, grad, heads, version, dropout)
    if shape == LARGE:
        reference = KERNELS.get("scipy")(np.float64)
        expected = results(reference, reference.pattern(matrix, order), *given)
    else:
        expected = [*attended(version, dense, arrays, mask)]
    if small:
        expected += slopes(lambda *a: attended(version, dense, a, mask)[0], arrays, grad)
        if version == 2:
            expected[-1] += 3.5  # added to
    found = results(kernel, kernel.pattern(matrix, order), *given, roomy=not drop)
    all_near(kernel, found[: len(expected)], expected, 20)


def test_large_scores_do_not_overflow(kernel):
    pattern = kernel.pattern(sp.csr_array(np.ones((2, 3))), np.arange(3))
    t, s = np.array([[800.0], [-900.0], [799.0]]), np.array([[500.0], [-5000.0]])
    arrays = np.array([[1.0], [2.0], [4.0]]), t, s
    found = results(kernel, pattern, arrays, np.ones((2, 1)), 1, 1, None)
    near(kernel, found[0], attended(1, np.ones((2, 3), bool), arrays, np.ones((1, 1, 1)))[0], 20)


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_scores_of_vertices_and_their_gradients(kernel, random, heads):
    (heads, c), m = heads, 21
    x, vector = random.standard_normal((m, heads * c)), random.standard_normal(heads * c)
    dout, before = random.standard_normal((m, heads)), random.standard_normal((m, heads * c))
    out, dx, dvector = junk(kernel, m, heads), give(kernel, before), junk(kernel, heads * c)
    mine, back = [give(kernel, a) for a in (x, vector)], np.repeat(dout, c, axis=1)
    kernel.head_dots(*mine, out)
    kernel.head_dots_backward(*mine, give(kernel, dout), dx, dvector)
    expected = (x * vector).reshape(m, heads, c).sum(axis=2), before + back * vector
    all_near(kernel, (out, dx, dvector), (*expected, 3.5 + (back * x).sum(axis=0)), 4)


@natively
def test_the_bits_do_not_depend_on_threads(random, dtype):
    shape, (heads, c) = (700, 600), (3, 17)
    dense, order = graph(random, *shape, 0.05)
    dense[:, 5] = True
    matrix, found = matrix_of(dense, random), []
    grad = random.standard_normal((shape[0], heads * c))
    for threads in (1, 2, 3):
        kernel = KERNELS.get("native")(dtype, threads)
        pattern, mine = kernel.pattern(matrix, order), []
        for version in (1, 2):
            arrays = inputs(np.random.default_rng(1), kernel, shape, heads, c, version)
            dropout = dropping(order, shape[0], heads)[0]
            mine += results(kernel, pattern, arrays, grad, heads, version, dropout)
        arg = np.empty(grad.shape, np.int32)
        out, back = kernel.empty(*grad.shape), kernel.empty(shape[1], heads * c)
        kernel.max_aggregate(pattern, give(kernel, arrays[0]), out, arg)
        kernel.max_aggregate_backward(pattern, give(kernel, grad), arg, back)
        found.append([*mine, out, arg, back])
    same_bits(found)
