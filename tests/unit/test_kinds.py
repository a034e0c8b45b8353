"""Products with the weight of each row's kind, of every kernel, against loops over the rows."""

import numpy as np
import pytest
from kernel_cases import DTYPES, give, junk, near, needs_native, same_bits

from gcnmpi.kernels.interface.kinds import KindProduct, kinds_of
from gcnmpi.options.kernel import KERNELS

# Rows, kinds, columns, columns of the result, blocks.
SIZES = [
    (0, 3, 4, 2, 1), (1, 1, 1, 1, 1), (40, 3, 5, 7, 1), (40, 50, 8, 16, 1), (40, 3, 0, 2, 1),
    (40, 3, 2, 0, 1), (300, 4, 17, 33, 1), (40, 3, 6, 9, 3), (90, 2, 24, 8, 2), (64, 5, 9, 65, 1),
]  # fmt: skip
of_sizes = pytest.mark.parametrize("size", SIZES, ids=str)


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


@of_sizes
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
def test_what_does_not_fit_is_refused():
    kernel = KERNELS.get("native")(np.float64)
    case = Case(np.random.default_rng(3), (9, 3, 4, 6, 2), np.float64)
    with pytest.raises(ValueError, match="not the weights of the kinds"):
        kernel.multiply_kinds(case.product(kernel, case.x, case.weights[1:], case.y))
    case.kinds = case.kinds[1:]
    with pytest.raises(ValueError, match="not the kinds of the rows"):
        kernel.multiply_kinds(case.product(kernel, case.x, case.weights, case.y))
