"""SUMMA on paper: cuts, stages, messages of tiles, and volumes of all ranks together."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refuses

from gcnmpi.core.volume import NOTHING
from gcnmpi.layout.place import Place
from gcnmpi.options.scheme import SCHEMES, SummaOptions
from gcnmpi.schemes.forecast import Facts, Sparse
from gcnmpi.schemes.summa_forecast import SummaForecast
from gcnmpi.schemes.tiles import message_bytes, pack, unpack

GRIDS = [(1, 1, 1), (2, 2, 1), (4, 2, 1), (3, 4, 1), (2, 3, 2), (2, 2, 2), (1, 1, 5), (5, 1, 3)]
FACTS = Facts(n=101, entries=1203, symmetric=False, folds=True, depth=2, itemsize=4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(5, 9), (1, 70_000), (70_000, 3), (0, 4), (4, 0)])
def test_a_tile_travels_in_the_bytes_that_are_predicted(shape, dtype):
    density = min(1, 2e5 / max(1, math.prod(shape))) * 0.6
    tile = sp.random_array(shape, density=density, rng=1, format="csr")
    message = pack(tile, dtype)
    assert message.nbytes == message_bytes(*shape, tile.nnz, np.dtype(dtype).itemsize)
    if tile.nnz:
        got = unpack(message, *shape, tile.nnz, dtype)
        assert (got.dtype, (got != tile.astype(dtype)).nnz) == (dtype, 0)
    # Column numbers take two bytes where they fit.
    entries = 8 * 10**6
    assert message_bytes(7, 2**16, entries, 4) == 6 * entries + 8 * 4
    assert message_bytes(7, 2**16 + 1, entries, 4) == 8 * entries + 8 * 4
    assert message_bytes(10**6, 10**6, 0, 4) == 0
    assert message_bytes(1, 2**33, 2**33, 4) == 12 * 2**33 + 2 * 8


@pytest.mark.parametrize("grid", GRIDS)
def test_what_is_received_was_sent_and_work_is_that_of_one_rank(grid):
    forecast = SummaForecast(grid, 2, FACTS)
    ranks = range(math.prod(grid))
    for product, *sizes in (
        ("aggregate", 7), ("aggregate_t", 3), ("combine", 7, 3), ("combine_t", 7, 3),
        ("combine_t", 3, 9), ("weight_grad", 7, 3), ("weight_grad", 2, 9), ("row_max", 11),
        ("row_argmax", 11),
    ):  # fmt: skip
        total = sum((forecast.volume(rank, product, 1, *sizes) for rank in ranks), NOTHING)
        assert total.sent == total.received or product.startswith("row_")
        assert (total.sent > 0) == (total.messages > 0)
        parts = [part for rank in ranks for part in forecast.work(rank, product, 1, *sizes)]
        sparse = [part.entries * part.width for part in parts if isinstance(part, Sparse)]
        dense = [p.rows * p.inner * p.width for p in parts if not isinstance(p, Sparse)]
        if product.startswith("row_"):
            assert not parts
        elif product.startswith("agg"):
            assert sum(sparse + dense) == pytest.approx(sizes[0] * FACTS.entries, rel=0.1)
        else:
            assert sum(sparse + dense) == FACTS.n * sizes[0] * sizes[1]
    shapes = [forecast.shape(rank, Place(1), 7) for rank in ranks]
    assert sum(rows * columns for rows, columns in shapes) == FACTS.n * 7
    assert set(forecast.ranks()) <= set(ranks)


@pytest.mark.parametrize("grid", [(32, 32, 1), (16, 16, 16), (8, 8, 8)])
def test_volumes_are_those_of_the_paper(grid):
    """Words received in M·H: nnz/√P + nf/√P, or nnz/P^⅔ + 2nf/P^⅔; (g − 1)/g of each."""
    n, degree, f = 2**20, 32, 64
    facts = dataclasses.replace(FACTS, n=n, entries=n * degree)
    p, _, layers = grid
    share = (p - 1) / p
    # An entry is a value and a column number of 2 bytes: 1.5 words.
    sparse = 1.5 * n * degree / (p * layers)
    words = share * (sparse + n * f / (p * layers) + (n * f / p**2 if layers > 1 else 0))
    received = SummaForecast(grid, 0, facts).volume(p, "aggregate", 1, f).received / 4
    assert words <= received <= words + 1.01 * n  # row pointers: 4 bytes a row and stage at most
    partial = SummaForecast(grid, 0, facts).volume(p, "combine", 1, f, f).received / 4
    assert partial == pytest.approx(share * n * f / (p * layers))
    # The result travels where it is narrower, forward; and T or G where they are.
    for product in ("combine", "combine_t", "weight_grad"):
        narrow = SummaForecast(grid, 0, facts).volume(p, product, 1, f, 32).received / 4
        assert narrow == pytest.approx(share * n * 32 / (p * layers))


def test_options_that_do_not_fit():
    for name, good, bad in (("summa", "3x2", "2x3x1"), ("split3d", "1x3x2", "6")):
        entry = SCHEMES.get(name)
        assert entry.parts(SummaOptions(name=name, grid=good), 6) == 0
        assert good in [variant.grid for variant in entry.variants(SummaOptions(name=name), 6)]
        refuses("6 ranks", entry.parts, SummaOptions(name=name, grid=bad), 6)
        refuses("8 ranks", entry.parts, SummaOptions(name=name, grid=good), 8)
        double = SummaOptions(name=name, permutation="double")
        refuses("one order of the vertices", entry.parts, double, 6)
