"""Parts of measurements: medians and ratios of rounds, and the bytes that a product moves."""

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from gcnmpi.bench.rounds import Spread, ratios, spread


def test_bytes_of_a_product(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    from movement import csr_bytes, movement

    matrix = sp.random_array((300, 200), density=0.05, format="csr", rng=1)
    touched, streamed = len(np.unique(matrix.indices)), matrix.nnz * 8 + 301 * 8 + 300 * 64
    assert csr_bytes(300, matrix.nnz, 4) + 300 * 64 == streamed
    everything, nothing = movement(matrix, 16, 4, 1e9), movement(matrix, 16, 4, 0)
    assert everything.compulsory == everything.cached == streamed + touched * 64
    assert everything.gathered == nothing.cached == nothing.gathered == streamed + matrix.nnz * 64


def test_medians_and_ratios_of_a_round():
    assert [spread([4, 1, 2, 3, 5]), spread([7])] == [Spread(3, 2, 4), Spread(7, 7, 7)]
    found = ratios({"a": [1, 10, 2], "b": [2, 20, 5]}, "a")
    assert (found["a"], found["b"].median) == (Spread(1, 1, 1), 2)  # one slow round does not count
