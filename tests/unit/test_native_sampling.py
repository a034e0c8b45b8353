"""Compiled sampling keeps what the definition in NumPy keeps."""

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refuses
from small_graphs import random_graph

from gcnmpi.schemes import sampling
from partition.graph.aggregation import aggregation_matrix
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
    entries = sampling.Entries(matrix, order.astype(np.int64))
    for place in ((1, 0, 0), (2, 7, 0)):
        made = (of(sampler, place, rows) for of in (entries.kept, entries.kept_in_numpy))
        shape = {"shape": (len(rows), n)}
        found, expected = (sp.csr_array(kept[::-1], **shape).sorted_indices() for kept in made)
        np.testing.assert_array_equal(found.indptr, expected.indptr)
        np.testing.assert_array_equal(found.indices, expected.indices)
        np.testing.assert_array_equal(found.data, expected.data)
        assert found.nnz > len(rows)
        assert (fanout < 0 or fanout == 40) or found.nnz < matrix.nnz


def test_columns_without_a_number(monkeypatch):
    columns = np.array([5, 2, 7, 2, 9, 0, 5, 8], np.int32)
    number = np.array([-1, -1, -1, 4, -1, -1, -1, 0, -1, -1], np.int32)
    mine, others = sampling.without_number(columns, number, 6)
    assert (mine.tolist(), others.tolist()) == ([5, 2, 0], [8, 9])
    assert (number >= 0).sum() == 2
    monkeypatch.setattr(sampling, "_native", None)
    mine, others = sampling.without_number(columns, number, 6)
    assert (sorted(mine.tolist()), others.tolist()) == ([0, 2, 5], [8, 9])


def test_what_does_not_fit_is_refused():
    native = sampling._native
    starts, columns, values = np.array([0, 2]), np.array([0, 5]), np.ones(2)
    ids, rows, small = np.arange(3), np.array([0]), np.array([0, 2])
    for changed in (
        (starts, columns, values, ids, rows),  # column 5 has no id
        (starts, columns[:1], values[:1], ids, rows),
        (starts, small, values, ids, np.array([1])),
        (starts, small, values, ids, np.array([-1])),
        (starts[:0], columns, values, ids, rows),
        (starts, small, values[:1], ids, rows),
    ):
        refuses(r"id|row", native.sample, *changed, 1, 0, False, error=ValueError)
    number = columns.astype(np.int32), np.full(2, -1, np.int32), 1
    refuses("number", native.without_number, *number, error=ValueError)
