"""Compiled sampling keeps what the definition in NumPy keeps."""

import numpy as np
import pytest
import scipy.sparse as sp
from small_graphs import random_graph

from gcnmpi.kernels import sampling
from partition.graph.graph import aggregation_matrix
from partition.graph.sampling import make_sampler

pytest.importorskip("gcnmpi.kernels._native")


@pytest.mark.parametrize("name", ["neighbor", "labor"])
@pytest.mark.parametrize("fanout", [1, 2, 5, 40, -1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_entries_and_factors_are_those_of_numpy(name, fanout, dtype):
    n, own = 300, 200
    graph = random_graph(n, 6000, seed=fanout + 2)
    order = np.random.default_rng(1).permutation(n)
    whole = aggregation_matrix(graph, "in", normalize="row").tocsr()[order][:, order]
    matrix = sp.csr_array(whole[:own])
    matrix.indices, matrix.indptr = matrix.indices.astype(dtype), matrix.indptr.astype(dtype)
    sampler = make_sampler(name, n, 20, 3, (fanout,))
    rows = np.flatnonzero(np.random.default_rng(2).random(own) < 0.7)
    for place in ((1, 0, 0), (2, 7, 0)):
        given = sampler, place, matrix, order.astype(np.int64), rows
        found, expected = sampling.sampled_entries(*given), sampling.entries_in_numpy(*given)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        assert len(found[0]) > len(rows)
        assert (fanout < 0 or fanout == 40) or len(found[0]) < matrix.nnz


def test_what_does_not_fit_is_refused():
    native = sampling._native
    starts, columns = np.array([0, 2]), np.array([0, 5])
    ids, rows = np.arange(3), np.array([0])
    for changed in (
        (starts, columns, ids, rows),  # column 5 has no id
        (starts, columns[:1], ids, rows),
        (starts, columns % 3, ids, np.array([1])),
        (starts, columns % 3, ids, np.array([-1])),
        (starts[:0], columns, ids, rows),
    ):
        with pytest.raises(ValueError, match=r"id|row"):
            native.sample(*changed, 1, 0, False)
