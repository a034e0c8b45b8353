"""The tensor-parallel 3D scheme on paper: who holds what, and what it moves."""

from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest
from refusals import refuses
from stored_graphs import graph_of

from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.layout.place import Place
from gcnmpi.layout.tiling import Ordering, block_balance
from gcnmpi.options.scheme import Tensor3DOptions
from gcnmpi.schemes.forecast import Dense, Facts, Span, Sparse
from gcnmpi.schemes.tensor3d import ENTRY, parts_needed
from gcnmpi.schemes.tensor3d_forecast import make_forecast
from partition.graph.aggregation import aggregation_matrix

N = 23
PARTS = [5, 0, 7, 1, 2, 8]
WIDTHS = {
    "aggregate": (7,), "aggregate_t": (7,), "combine": (7, 4), "combine_t": (7, 4),
    "weight_grad": (7, 4), "row_max": (6,), "row_argmax": (6,), "expand_input": (7,),
}  # fmt: skip


def forecast(grid, parts=None, depth=4, symmetric=False, **options):
    facts = Facts(N, 100, symmetric, False, depth, 8, None if parts is None else {"rows": parts})
    size = prod(int(word) for word in grid.split("x"))
    return make_forecast(Tensor3DOptions(name="tensor3d", grid=grid, **options), size, facts)


@pytest.mark.parametrize("grid", ["1x1x1", "2x3x2", "4x1x2", "1x1x5", "3x3x1"])
@pytest.mark.parametrize("parts", [None, PARTS])
def test_what_is_sent_is_received_and_the_busiest_ranks_are_known(grid, parts):
    sketch = forecast(grid, parts)
    ranks = range(prod(sketch.grid))
    for k, (name, sizes) in product((1, 2, 3), WIDTHS.items()):
        if name != "expand_input" or k == 1:
            volumes = [sketch.volume(rank, name, k, *sizes) for rank in ranks]
            total = sum(volumes, NOTHING)
            assert total.sent == total.received
            moved = [found.sent + found.received for found in volumes]
            assert max(moved) == max(moved[rank] for rank in sketch.ranks())
    rows = [sketch.shape(rank, Place(1), 7) for rank in ranks]
    assert max(rows) == max(rows[rank] for rank in sketch.ranks())
    assert len(sketch.ranks()) <= 8


def test_tiles_kept_are_as_many_as_the_paper_says():
    for permutation, depth, tiles in (
        ("single", 2, 2), ("single", 5, 3), ("double", 3, 3), ("auto", 5, 5), ("double", 9, 6),
    ):  # fmt: skip
        sketch = forecast("2x3x4", depth=depth, permutation=permutation)
        found = sketch.tiles(rank=21)
        assert [len({*kind}) for kind in zip(*found, strict=True)] == [tiles, tiles]
        for k, (tile, transposed) in enumerate(found, start=1):
            assert tile.rows == sketch.rows(21, Place(k))
            assert tile.columns == sketch.rows(21, Place(k - 1)) == transposed.rows
            assert tile.rows.ordering != tile.columns.ordering or sketch.permutation == "single"
    # Equal ones are kept once: M and Mᵀ, each in two orders if rows and columns differ in it.
    for permutation, symmetric, entries in (
        ("single", False, 200), ("single", True, 100), ("double", False, 400), ("double", True, 200)
    ):  # fmt: skip
        sketch = forecast("1x1x1", permutation=permutation, symmetric=symmetric)
        assert sketch.entries(0) == entries
    # On the diagonal of an even grid, a tile of a symmetric matrix is its own transpose.
    sketch = forecast("2x2x2", permutation="none", symmetric=True)
    assert [len({tile for pair in sketch.tiles(r) for tile in pair}) > 1 for r in (0, 1)] == [0, 1]


def test_volumes_and_work_by_hand():
    # Rank 0 of x = 2, y = 3, z = 2 has 11 of 23 rows along x and z, 2 of 7 columns along y.
    sketch = forecast("2x3x2", permutation="none")
    assert sketch.shape(0, Place(0), 7) == (11, 2)
    # The block of W is 2 × 2 numbers, of which this rank has 2; the result 11 × 2, over three.
    reduced = 2 * 2 * 11 * 2 * 8 // 3
    for name, volume in {
        "aggregate": Volume(11 * 2 * 8, 11 * 2 * 8, 2),
        "combine": Volume(16 + reduced, 16 + reduced, 1 + 4),
        "weight_grad": Volume(16, 16, 1),
        # Half of 11 rows, rounded down, of the piece of H⁰.
        "expand_input": Volume(5 * 2 * 8, 6 * 2 * 8, 1),
        # Columns of H¹ are cut along x.
        "row_max": Volume(48, 48, 2), "row_argmax": Volume(96, 96, 4),
    }.items():  # fmt: skip
        assert sketch.volume(0, name, 1, *WIDTHS[name]) == volume
    for blocks, messages in ((4, 8), (40, 22)):
        chunked = replace(sketch, row_blocks=blocks)
        assert chunked.volume(0, "aggregate", 1, 7) == Volume(11 * 2 * 8, 11 * 2 * 8, messages)
        assert chunked.volume(0, "combine", 1, 7, 4) == sketch.volume(0, "combine", 1, 7, 4)
    entries = round(100 * 11 * 11 / N**2)
    assert sketch.work(0, "aggregate", 1, 7) == [Sparse(11, 11, entries, 2)]
    assert sketch.work(0, "combine", 1, 7, 4) == [Dense(11, 2, 2)]
    assert sketch.work(0, "weight_grad", 1, 7, 4) == [Dense(2, 11, 2)]
    # y is innermost, then x, then z: sections of a node are filled in this order.
    assert sketch.span("aggregate", 1) == [Span(2, 3)]
    assert sketch.span("combine", 1) == [Span(2, 6), Span(3, 1)]
    assert sketch.span("weight_grad", 1) == sketch.span("row_max", 2) == [Span(2, 6)]
    assert sketch.buffers(0, "combine", 1, 7, 4) == 4 * 8
    turned = replace(sketch, transpose_grad=True)
    assert turned.buffers(0, "weight_grad", 1, 7, 4) == 2 * 4 * 8


def test_grids():
    found = {(one.grid, one.chunks) for one in ENTRY.variants(Tensor3DOptions(chunks=3), 4)}
    assert found == {(g, 3) for g in ("1x1x4", "1x4x1", "4x1x1", "1x2x2", "2x1x2", "2x2x1")}
    assert forecast("2x3x4").grid == (4, 2, 3)
    for grid in ("2x2", "2x2x2x1", "2xax2", "2x2x3"):
        refuses(r"scheme\.grid", parts_needed, Tensor3DOptions(grid=grid), 8)
    assert parts_needed(Tensor3DOptions(), 8) == 0


@pytest.mark.parametrize("loops", [True, False])
def test_balance_of_blocks(loops):
    rng = np.random.default_rng(1)
    dense = rng.random((N, N)) < 0.2
    graph = graph_of(dense)
    matrix = aggregation_matrix(graph, "out", loops, "none").toarray() != 0
    orders = [Ordering(N, rng.permutation(N)) for _ in range(2)]
    axes = zip(orders, (3, 5), np.nonzero(matrix), strict=True)
    at = [np.searchsorted(o.cuts(parts), o.positions(ends), "right") - 1 for o, parts, ends in axes]
    expected = np.bincount(np.ravel_multi_index(at, (3, 5)), minlength=15)
    assert block_balance(graph, *orders, 3, 5, loops) == expected.max() / expected.mean()
