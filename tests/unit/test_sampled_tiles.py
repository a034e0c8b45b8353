"""Batches cut out of tiles: the subgraphs that vertices induce, and products without bias."""

import numpy as np
import pytest
import scipy.sparse as sp
from small_graphs import random_graph

from gcnmpi.schemes.sampled_tiles import HeldTile, TileCutter
from partition.graph.aggregation import aggregation_matrix
from partition.graph.sampling import make_sampler

N, SIZE = 28, 7
CLUSTERS = np.random.default_rng(5).integers(0, 12, N)
SAMPLERS = {
    "vertex": make_sampler("vertex", N, SIZE, 0),
    "cluster": make_sampler("cluster", N, 4, 0, clusters=CLUSTERS),
}


@pytest.fixture(scope="module")
def matrix():
    """A directed M with a full diagonal, and other values everywhere."""
    pattern = sp.csr_array(aggregation_matrix(random_graph(N, 150), "in"))
    pattern.data = np.random.default_rng(1).uniform(0.2, 1.5, pattern.nnz)
    assert (pattern != pattern.T).nnz
    return pattern


def tiles(matrix, order, cuts):
    """Tiles of a matrix in an order of its vertices, and their sides."""
    blocks = np.split(order, cuts)
    sides = {(name, i): ids for name in ("rows", "columns") for i, ids in enumerate(blocks)}
    return sides, [
        HeldTile(sp.csr_array(matrix[rows][:, columns]), ("rows", i), ("columns", j))
        for i, rows in enumerate(blocks)
        for j, columns in enumerate(blocks)
    ]


@pytest.mark.parametrize("name", SAMPLERS)
def test_tiles_of_a_batch_are_the_tiles_of_the_induced_subgraph(matrix, name):
    sampler, order = SAMPLERS[name], np.random.default_rng(2).permutation(N)
    sides, held = tiles(matrix, order, [4, 4, 17])  # one block is empty
    cutter = TileCutter(sides, sampler)
    for epoch, batch in ((1, 0), (1, sampler.batches - 1), (2, 1)):
        part = cutter.cut(held, epoch, batch)
        inside = sampler.contains(epoch, batch, np.arange(N))
        row, column = matrix.nonzero()
        kept, factor = sampler.entries(epoch, batch, 0, row, column)
        values = np.zeros(matrix.nnz)
        values[kept] = matrix.data[kept] * factor
        expected = sp.csr_array((values, matrix.indices, matrix.indptr), matrix.shape).toarray()
        total = 0
        for tile, cut in zip(held, part.tiles, strict=True):
            rows, columns = (sides[side][part.chosen[side]] for side in (tile.rows, tile.columns))
            assert sorted(rows) == sorted(sides[tile.rows][inside[sides[tile.rows]]])
            np.testing.assert_array_equal(cut.toarray(), expected[np.ix_(rows, columns)])
            total += cut.nnz
        assert total == np.count_nonzero(expected[inside])


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_mean_of_the_products_of_batches_is_the_product(matrix, name):
    sampler, x = SAMPLERS[name], np.random.default_rng(3).standard_normal(N)
    sides, (tile,) = tiles(matrix, np.arange(N), [])
    cutter = TileCutter(sides, sampler)
    sums, squares, counts = np.zeros((3, N))
    for number in range(10_000):
        # Each vertex is in one batch of an epoch, and epochs are independent.
        epoch, batch = divmod(number, sampler.batches)
        part = cutter.cut([tile], 1 + epoch, batch)
        rows, columns = part.chosen[tile.rows], part.chosen[tile.columns]
        product = part.tiles[0] @ x[columns]
        sums[rows] += product
        squares[rows] += product**2
        counts[rows] += 1
    mean = sums / counts
    error = np.sqrt((squares / counts - mean**2) / counts)
    some = error > 0  # isolated vertices have no neighbours to draw
    z = (mean - matrix @ x)[some] / error[some]
    assert np.abs(z).max() < 4
    assert np.sqrt(np.mean(z**2)) < 1.5
    np.testing.assert_allclose(mean[~some], (matrix @ x)[~some])
