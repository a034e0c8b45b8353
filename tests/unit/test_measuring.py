"""Parts of measurements: turns, medians, the cache model, records, samples of phases."""

import numpy as np
import scipy.sparse as sp

from gcnmpi.bench.movement import csr_bytes, movement
from gcnmpi.bench.rounds import Spread, ratios, spread


def test_bytes_of_a_product():
    matrix = sp.random_array((300, 200), density=0.05, format="csr", rng=1)
    touched = len(np.unique(matrix.indices))
    streamed = csr_bytes(300, matrix.nnz, 4) + 300 * 64
    assert csr_bytes(300, matrix.nnz, 4) == matrix.nnz * 8 + 301 * 8
    everything = movement(matrix, 16, 4, 1e9)
    assert everything.compulsory == everything.cached == streamed + touched * 64
    assert everything.gathered == streamed + matrix.nnz * 64
    nothing = movement(matrix, 16, 4, 0)
    assert nothing.cached == nothing.gathered
    assert nothing.missed == 1
    # Four rows of 4 columns share a line; a row of 20 columns takes two.
    assert movement(matrix, 4, 4, 1e9).missed == len(np.unique(matrix.indices // 4)) / matrix.nnz
    wide = movement(matrix, 20, 4, 1e9)
    assert wide.cached - wide.compulsory == touched * (128 - 80)


def test_medians_and_ratios_of_a_round():
    assert spread([4, 1, 2, 3, 5]) == Spread(3, 2, 4)
    assert spread([7]) == Spread(7, 7, 7)
    found = ratios({"a": [1, 10, 2], "b": [2, 20, 5]}, "a")
    assert found["a"] == Spread(1, 1, 1)
    assert found["b"].median == 2  # the slow round of both does not count
