"""Rows in pieces, as the GPU kernel goes through them."""

import itertools

import numpy as np
import pytest
from kernel_cases import give, junk, near
from test_neighbours import backward, dropping, graph, inputs, matrix_of

pytest.importorskip("cupy")

from gcnmpi.core.functions import REDUCTIONS
from gcnmpi.kernels.cuda import pieces
from gcnmpi.kernels.interface.arcs import Reduction
from gcnmpi.options.kernel import KERNELS

SHORT = 3


@pytest.mark.parametrize("most", [2, SHORT, 128])
@pytest.mark.parametrize("rows", [0, 1, 3000])
def test_every_entry_is_in_one_piece(monkeypatch, random, most, rows):
    monkeypatch.setattr(pieces, "PIECE", most)
    lengths = random.integers(0, 9, rows)
    lengths[1::700] = (129, 300, 128, 20_000, 1)[: len(lengths[1::700])]
    starts = np.append(7, 7 + np.cumsum(lengths))
    values = random.integers(0, 99, starts[-1])
    numbers, scratch, sums = values, np.zeros(0, int), np.zeros(rows, int)
    done = []
    for found, open_, base in pieces.cut(starts):
        assert base == len(scratch)
        assert found["length"].max(initial=0) <= most
        assert (np.diff(found["length"][open_ : open_ + 50]) <= 0).all()  # of one window
        ends = found["start"] + found["length"]
        states = np.array([numbers[a:b].sum() for a, b in zip(found["start"], ends, strict=True)])
        sums[found["row"][open_:]] = states[open_:]
        done += found["row"][open_:].tolist()
        scratch = numbers = np.append(scratch, states[:open_])
    assert sorted(done) == list(range(rows))
    assert np.array_equal(sums, [values[a:b].sum() for a, b in itertools.pairwise(starts)])


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("heads", [(1, 1), (2, 3), (2, 8)], ids=str)
def test_attention_by_short_pieces(monkeypatch, random, heads, version):
    """Many levels of them."""
    kernel, (heads, c), shape = KERNELS.get("cupy")(np.float64), heads, (30, 90)
    dense, order = graph(random, *shape)
    dense[4], dense[:, 5] = True, True
    arrays = inputs(random, kernel, shape, heads, c, version)
    grad = random.standard_normal((shape[0], heads * c))
    matrix, drop = matrix_of(dense, random), dropping(order, shape[0], heads)[0]
    case = arrays, grad, heads, version, drop
    expected = backward(kernel, kernel.pattern(matrix, order), *case)
    monkeypatch.setattr(pieces, "PIECE", SHORT)
    pattern = kernel.pattern(matrix, order)
    assert len(pattern.by_rows.levels) == 5
    for mine, wanted in zip(backward(kernel, pattern, *case), expected, strict=True):
        near(kernel, mine, kernel.to_host(wanted))


@pytest.mark.parametrize("width", [3, 8])
def test_maxima_and_products_by_short_pieces(monkeypatch, random, width):
    kernel, shape = KERNELS.get("cupy")(np.float64), (30, 90)
    dense, order = graph(random, *shape)
    dense[4], dense[:, 5] = True, True
    x = np.round(2 * random.standard_normal((shape[1], width)))  # many are equal
    grad, matrix = random.standard_normal((shape[0], width)), matrix_of(dense, random)

    def results():
        pattern = kernel.pattern(matrix, order)
        out, again, back = junk(kernel, 30, width), junk(kernel, 30, width), junk(kernel, 90, width)
        arg = kernel.from_host(np.full((30, width), 9, np.int32))
        kernel.max_aggregate(pattern, give(kernel, x), out, arg)
        kernel.max_aggregate_backward(pattern, give(kernel, grad), arg, back)
        kernel.spmm(kernel.sparse(matrix), give(kernel, x), again, True)
        return [kernel.to_host(one).astype(float) for one in (out, arg, back, again)]

    expected = results()
    monkeypatch.setattr(pieces, "PIECE", SHORT)
    for mine, wanted in zip(results(), expected, strict=True):
        near(kernel, mine, wanted)


def test_functions_of_entries_by_short_pieces(monkeypatch, random):
    kernel, width = KERNELS.get("cupy")(np.float64), 3
    dense, order = graph(random, 30, 90)
    dense[4] = True
    matrix, kinds = matrix_of(dense, random), tuple(REDUCTIONS)
    x, y = np.round(2 * random.standard_normal((2, matrix.nnz, width)))  # many are equal
    x[matrix.indptr[4] + 7, 1] = np.nan
    grad = random.standard_normal((30, width * len(kinds)))

    def results():
        pattern, given = kernel.pattern(matrix, order), give(kernel, x)
        out, dx = junk(kernel, *grad.shape), junk(kernel, *x.shape)
        soft, back = junk(kernel, *x.shape), junk(kernel, *x.shape)
        of = Reduction(pattern, kinds, given, out)
        kernel.reduce_targets(of)
        kernel.reduce_targets_backward(of, give(kernel, grad), dx)
        kernel.softmax_targets(pattern, given, soft)
        kernel.softmax_targets_backward(pattern, soft, give(kernel, y), back)
        return [kernel.to_host(one) for one in (out, dx, soft, back)]

    expected = results()
    monkeypatch.setattr(pieces, "PIECE", SHORT)
    for mine, wanted in zip(results(), expected, strict=True):
        assert 0 < np.isnan(wanted).sum() < 100
        near(kernel, mine, np.asarray(wanted))
