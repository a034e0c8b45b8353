"""Rows in pieces, as the GPU kernel goes through them."""

import itertools

import numpy as np
import pytest
from kernel_cases import all_near, give, junk
from test_neighbours import dropping, graph, inputs, matrix_of, results

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


@pytest.mark.parametrize("width", [1, 3, 8])
def test_short_pieces_give_what_whole_rows_do(monkeypatch, random, width):
    """Many levels of them: attention, maxima, products and functions of entries."""
    kernel = KERNELS.get("cupy")(np.float64)
    dense, order = graph(random, 30, 90)
    dense[4], dense[:, 5] = True, True
    matrix, kinds = matrix_of(dense, random), tuple(REDUCTIONS)
    grad = random.standard_normal((30, width * len(kinds)))
    x = np.round(2 * random.standard_normal((90, width)))  # many are equal
    y, z = np.round(2 * random.standard_normal((2, matrix.nnz, width)))
    y[matrix.indptr[4] + 7, 0] = np.nan
    heads = 2 if width % 2 == 0 else 1
    arrays = [inputs(random, kernel, (30, 90), heads, width // heads, way) for way in (1, 2)]
    drop = dropping(order, 30, heads)[0]

    def everything():
        pattern, found = kernel.pattern(matrix, order), []
        for version, given in enumerate(arrays, 1):
            found += results(kernel, pattern, given, grad[:, :width], heads, version, drop)
        arg, mine = kernel.from_host(np.full((30, width), 9, np.int32)), give(kernel, y)
        outs = [junk(kernel, rows, width) for rows in (30, 30, 90, *[matrix.nnz] * 3)]
        out, again, back, soft, soft_back, dy = outs
        kernel.max_aggregate(pattern, give(kernel, x), out, arg)
        kernel.max_aggregate_backward(pattern, give(kernel, grad[:, :width]), arg, back)
        kernel.spmm(kernel.sparse(matrix), give(kernel, x), again, True)
        kernel.softmax_targets(pattern, mine, soft)
        kernel.softmax_targets_backward(pattern, soft, give(kernel, z), soft_back)
        of = Reduction(pattern, kinds, mine, junk(kernel, *grad.shape))
        kernel.reduce_targets(of)
        kernel.reduce_targets_backward(of, give(kernel, grad), dy)
        found = [kernel.to_host(one).astype(float) for one in (*found, arg, of.out, *outs)]
        return found, len(pattern.by_rows.levels)

    expected, _ = everything()
    monkeypatch.setattr(pieces, "PIECE", SHORT)
    found, levels = everything()
    assert levels == 5
    all_near(kernel, found, expected)
