"""The tensor-parallel 3D scheme on paper: who holds what, and what it moves."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from refusals import refuses

from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.layout.place import Place
from gcnmpi.layout.tiling import Ordering, block_balance
from gcnmpi.options.scheme import Tensor3DOptions
from gcnmpi.schemes.forecast import Dense, Facts, Span, Sparse
from gcnmpi.schemes.tensor3d import ENTRY, parts_needed
from gcnmpi.schemes.tensor3d_forecast import make_forecast
from partition.graph.aggregation import aggregation_matrix
from partition.graph.graph import Graph

N = 23
GRIDS = ("1x1x1", "2x3x2", "4x1x2", "1x1x5", "3x3x1")
PARTS = [5, 0, 7, 1, 2, 8]
PLACES = [Place(0)] + [Place(k, aggregated) for k in range(1, 7) for aggregated in (False, True)]
WIDTHS = {
    "aggregate": (7,), "aggregate_t": (7,), "combine": (7, 4), "combine_t": (7, 4),
    "weight_grad": (7, 4), "expand_input": (7,), "row_max": (6,), "row_argmax": (6,),
}  # fmt: skip


def forecast(grid, parts=None, depth=4, symmetric=False, **options):
    facts = Facts(N, 100, symmetric, False, depth, 8, None if parts is None else {"rows": parts})
    size = int(np.prod([int(word) for word in grid.split("x")]))
    return make_forecast(Tensor3DOptions(name="tensor3d", grid=grid, **options), size, facts), size


OUTLINES = [(grid, parts) for grid in GRIDS for parts in (None, PARTS)]


@pytest.mark.parametrize(("grid", "parts"), OUTLINES)
def test_every_copy_of_a_matrix_is_whole(grid, parts):
    sketch, size = forecast(grid, parts)
    for place, width in product(PLACES, (7, 1)):
        holders = sketch.holders(place)
        seen = np.zeros((holders.shape[2], N, width), int)
        for rank in range(size):
            i, j, copy = sketch.coordinates(rank, place)
            assert holders[i, j, copy] == rank
            rows, columns = sketch.rows(rank, place), sketch.columns(rank, place, width)
            seen[copy, rows.start : rows.stop, columns] += 1
            assert (
                sketch.shape(rank, place, width)
                == seen[copy, rows.start : rows.stop, columns].shape
            )
        assert (seen == 1).all()


@pytest.mark.parametrize(("grid", "parts"), OUTLINES)
def test_every_weight_and_trained_feature_is_on_one_rank(grid, parts):
    sketch, size = forecast(grid, parts)
    for k, (d_in, d_out) in product((1, 2, 3, 4), ((7, 4), (1, 5), (2, 1))):
        seen = np.zeros((d_in, d_out), int)
        for rank in range(size):
            piece = sketch.weight(rank, k, d_in, d_out)
            block = np.zeros(piece.shape, int).reshape(-1)
            block[piece.flat] = 1
            seen[piece.rows, piece.columns] += block.reshape(piece.shape)
            assert sketch.weight_numbers(rank, k, d_in, d_out) == block.sum()
        assert (seen == 1).all()
    seen = np.zeros((N, 7), int)
    for rank in range(size):
        rows, mine = sketch.rows(rank, Place(0)), sketch.input_rows(rank)
        columns = sketch.columns(rank, Place(0), 7)
        seen[rows.start + mine.start : rows.start + mine.stop, columns] += 1
    assert (seen == 1).all()


def test_tiles_kept_are_as_many_as_the_paper_says():
    for permutation, depth, tiles in (
        ("single", 2, 2),
        ("single", 5, 3),
        ("double", 3, 3),
        ("auto", 5, 5),
        ("double", 9, 6),
    ):
        sketch, _ = forecast("2x3x4", depth=depth, permutation=permutation)
        found = sketch.tiles(rank=21)
        assert (
            len({tile for tile, _ in found})
            == len({transposed for _, transposed in found})
            == tiles
        )
        for k, (tile, transposed) in enumerate(found, start=1):
            assert tile.rows == sketch.rows(21, Place(k))
            assert tile.columns == sketch.rows(21, Place(k - 1)) == transposed.rows
            assert tile.rows.ordering != tile.columns.ordering or sketch.permutation == "single"


def test_equal_tiles_are_kept_once():
    assert forecast("1x1x1", permutation="single")[0].entries(0) == 200
    assert forecast("1x1x1", permutation="single", symmetric=True)[0].entries(0) == 100
    # Rows and columns differ in order: M and Mᵀ, each in two orders, or one the other's transpose.
    assert forecast("1x1x1", permutation="double")[0].entries(0) == 400
    assert forecast("1x1x1", permutation="double", symmetric=True)[0].entries(0) == 200
    # On the diagonal of an even grid, a tile of a symmetric matrix is its own transpose.
    sketch, _ = forecast("2x2x2", permutation="none", symmetric=True)
    assert len({tile for pair in sketch.tiles(0) for tile in pair}) == 1
    assert len({tile for pair in sketch.tiles(1) for tile in pair}) > 1


def test_volumes_by_hand():
    # Rank 0 of x = 2, y = 3, z = 2 has 11 of 23 rows along x and z, 2 of 7 columns along y.
    sketch, _ = forecast("2x3x2", permutation="none")
    assert sketch.shape(0, Place(0), 7) == (11, 2)
    assert sketch.volume(0, "aggregate", 1, 7) == Volume(11 * 2 * 8, 11 * 2 * 8, 2)
    # The block of W is 2 × 2 numbers, of which this rank has 2; the result 11 × 2, over three.
    reduced = 2 * 2 * 11 * 2 * 8 // 3
    assert sketch.volume(0, "combine", 1, 7, 4) == Volume(16 + reduced, 16 + reduced, 1 + 4)
    assert sketch.volume(0, "weight_grad", 1, 7, 4) == Volume(16, 16, 1)
    # Half of 11 rows, rounded down, of the piece of H⁰.
    assert sketch.volume(0, "expand_input", 1, 7) == Volume(5 * 2 * 8, 6 * 2 * 8, 1)
    # Columns of H¹ are cut along x.
    assert sketch.volume(0, "row_max", 1, 6) == Volume(48, 48, 2)
    assert sketch.volume(0, "row_argmax", 1, 6) == Volume(96, 96, 4)
    chunked = replace(sketch, row_blocks=4)
    assert chunked.volume(0, "aggregate", 1, 7) == Volume(11 * 2 * 8, 11 * 2 * 8, 8)
    assert replace(sketch, row_blocks=40).volume(0, "aggregate", 1, 7).messages == 22
    assert chunked.volume(0, "combine", 1, 7, 4) == sketch.volume(0, "combine", 1, 7, 4)


@pytest.mark.parametrize(("grid", "parts"), OUTLINES)
def test_what_is_sent_is_received_and_the_busiest_ranks_are_known(grid, parts):
    sketch, size = forecast(grid, parts)
    for k, (name, sizes) in product((1, 2, 3), WIDTHS.items()):
        if name == "expand_input" and k > 1:
            continue
        volumes = [sketch.volume(rank, name, k, *sizes) for rank in range(size)]
        total = sum(volumes, NOTHING)
        assert total.sent == total.received
        moved = [found.sent + found.received for found in volumes]
        assert max(moved) == max(moved[rank] for rank in sketch.ranks())
    rows = [sketch.shape(rank, Place(1), 7) for rank in range(size)]
    assert max(rows) == max(rows[rank] for rank in sketch.ranks())
    assert len(sketch.ranks()) <= 8


def test_work_spans_and_buffers():
    sketch, _ = forecast("2x3x2", permutation="none")
    entries = round(100 * 11 * 11 / N**2)
    assert sketch.work(0, "aggregate", 1, 7) == [Sparse(11, 11, entries, 2)]
    assert sketch.work(0, "combine", 1, 7, 4) == [Dense(11, 2, 2)]
    assert sketch.work(0, "weight_grad", 1, 7, 4) == [Dense(2, 11, 2)]
    # y is innermost, then x, then z: sections of a node are filled in this order.
    assert sketch.span("aggregate", 1) == [Span(2, 3)]
    assert sketch.span("combine", 1) == [Span(2, 6), Span(3, 1)]
    assert sketch.span("weight_grad", 1) == [Span(2, 6)]
    assert sketch.span("row_max", 2) == [Span(2, 6)]
    assert sketch.buffers(0, "combine", 1, 7, 4) == 4 * 8
    turned = replace(sketch, transpose_grad=True)
    assert turned.buffers(0, "weight_grad", 1, 7, 4) == 2 * 4 * 8


def test_grids():
    found = {config.grid for config in ENTRY.variants(Tensor3DOptions(chunks=3), 4)}
    assert found == {"1x1x4", "1x4x1", "4x1x1", "1x2x2", "2x1x2", "2x2x1"}
    assert {config.chunks for config in ENTRY.variants(Tensor3DOptions(chunks=3), 4)} == {3}
    assert forecast("2x3x4")[0].grid == (4, 2, 3)
    for grid in ("2x2", "2x2x2x1", "2xax2", "2x2x3"):
        refuses(r"scheme\.grid", parts_needed, Tensor3DOptions(grid=grid), 8)
    assert parts_needed(Tensor3DOptions(), 8) == 0


@pytest.mark.parametrize("loops", [True, False])
def test_balance_of_blocks(loops):
    rng = np.random.default_rng(1)
    dense = rng.random((N, N)) < 0.2
    indptr = np.concatenate(([0], np.cumsum(dense.sum(axis=1))))
    graph = Graph(indptr, np.nonzero(dense)[1].astype(np.int32))
    matrix = aggregation_matrix(graph, "out", loops, "none").toarray() != 0
    rows, columns = rng.permutation(N), rng.permutation(N)
    expected = np.zeros((3, 5))
    row_cuts, column_cuts = Ordering(N).cuts(3), Ordering(N).cuts(5)
    for i, j in zip(*np.nonzero(matrix), strict=True):
        row = np.searchsorted(row_cuts, rows[i], side="right") - 1
        expected[row, np.searchsorted(column_cuts, columns[j], side="right") - 1] += 1
    found = block_balance(graph, Ordering(N, rows), Ordering(N, columns), 3, 5, loops)
    assert found == expected.max() / expected.mean()
