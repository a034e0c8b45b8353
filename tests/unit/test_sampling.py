"""Samplers: who is in a batch is decided by hashes alone, fairly; batches cut out of tiles.

Arcs that have relations: each relation into a vertex is thinned out by itself.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from small_graphs import random_graph

from gcnmpi.layout.entries import EntryRows, Groups, parts_of
from gcnmpi.options.train import TrainConfig, sampler_of
from gcnmpi.schemes import sampling
from gcnmpi.schemes.sampling_arcs import ArcEntries
from partition.graph.aggregation import aggregation_matrix
from partition.graph.hashing import AT_ONCE, key, mixed, permuted
from partition.graph.metrics import rows_within
from partition.graph.relations import Relation
from partition.graph.sampling import (
    SAMPLERS,
    batch_size,
    fanouts_of_relations,
    make_sampler,
    parse_fanouts,
    sides,
)

DIRECTIONS = ["in", "out"]


@settings(max_examples=60)
@given(st.integers(1, 3000) | st.just(3 * AT_ONCE + 7), st.integers(0, 2**64 - 1))
def test_a_keyed_permutation_and_its_inverse(n, number):
    places = permuted(np.arange(n), n, number)
    assert np.array_equal(np.sort(places), np.arange(n))
    assert np.array_equal(permuted(places, n, number, inverse=True), np.arange(n))
    some = np.unique([0, n // 2, min(n, AT_ONCE) - 1, n - 1])
    assert np.array_equal(places[some], permuted(some, n, number))


def test_permutations_are_the_same_in_every_version():
    """Runs that earlier versions have begun go on with the same batches."""
    assert permuted(np.arange(8), 8, key(5)).tolist() == [0, 5, 7, 4, 6, 2, 3, 1]
    assert make_sampler("vertex", 100, 4, seed=3).members(1, 2).tolist() == [31, 46, 65, 72]


@pytest.mark.parametrize(("n", "size"), [(10, 3), (64, 8), (1000, 60), (7, 7), (1, 1)])
def test_every_vertex_is_in_one_batch_of_an_epoch(n, size):
    sampler = make_sampler("vertex", n, size, seed=3)
    batches = [sampler.members(2, t) for t in range(sampler.batches)]
    assert [len(batch) for batch in batches[:-1]] == [size] * (sampler.batches - 1)
    assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(n))
    some = np.random.default_rng(0).permutation(n)[:77]  # membership is decided vertex by vertex
    for t, batch in enumerate(batches):
        assert np.array_equal(some[sampler.contains(2, t, some)], some[np.isin(some, batch)])


def floyd(row, size, count, base):
    """Floyd's draws for one row: ``count`` numbers below ``size``."""
    chosen = set()
    for last in range(size - count, size):
        code = mixed(mixed(np.array([row]), base) ^ np.uint64(last), base)
        drawn = (int(code[0]) >> 32) * (last + 1) >> 32
        chosen.add(last if drawn in chosen else drawn)
    return chosen


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("fanouts", [(2, 3), (1,), (-1, 2), (100, 100)])
def test_a_neighbour_batch_row_by_row(direction, fanouts):
    graph = random_graph(80, 900, seed=2)
    sampler = make_sampler("neighbor", 80, 6, 11, fanouts)
    patterns = sampler.patterns(sides(graph, direction, sampler.side), 1, 2)
    dense = aggregation_matrix(graph, direction, self_loops=False, normalize="none").toarray() != 0
    frontier = sampler.members(1, 2)
    for hop, (fanout, pattern) in enumerate(zip(fanouts, patterns, strict=True)):
        found = {int(v): set() for v in frontier}
        for j, column in enumerate(pattern.columns.tolist()):
            for row in pattern.rows[pattern.indptr[j] : pattern.indptr[j + 1]].tolist():
                found[row].add(column)
        for v in frontier.tolist():
            others = np.flatnonzero(dense[v])
            loop = {v} & set(others.tolist())
            others = others[others != v]
            chosen = range(len(others))
            if 0 <= fanout < len(others):
                chosen = floyd(v, len(others), fanout, key(11, 1, 2, hop))
            assert found[v] == set(others[list(chosen)].tolist()) | loop
        frontier = pattern.columns
        assert set().union(*found.values()) <= set(frontier.tolist())


@pytest.mark.parametrize("fanout", [1, 3, 8, -1])
def test_labor_keeps_a_column_for_all_rows_of_one_length_or_for_none(fanout):
    sampler = make_sampler("labor", 60, 10, 5, (fanout,))
    row, column = np.repeat(np.arange(20), 40), np.tile(np.arange(20, 60), 20)
    kept = np.array([sampler.kept((epoch, 0, 0), row, column) for epoch in range(500)])
    by_row = kept.reshape(500, 20, 40)
    assert (by_row == by_row[:, :1]).all()
    mean = 40 if fanout < 0 else fanout
    assert abs(by_row[:, 0].sum(1).mean() - mean) <= 4 * np.sqrt(mean * (1 - mean / 40) / 500)
    short = sampler.kept((0, 0, 0), np.zeros(3, int), np.array([0, 5, 9]))
    assert short[0]  # the diagonal
    assert short.all() or fanout == 1


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_the_mean_of_sampled_products_is_the_product(name):
    graph = random_graph(40, 300, seed=3)
    matrix = aggregation_matrix(graph, "in", normalize="row").tocsr()
    x = np.random.default_rng(0).standard_normal(40)
    fanouts = (2,) if name in ("neighbor", "labor") else ""
    sampler = make_sampler(name, 40, 9, 1, fanouts, clusters=np.arange(40) // 3)
    row, column = np.repeat(np.arange(40), np.diff(matrix.indptr)), matrix.indices
    sums, squares, counts = np.zeros((3, 40))
    for epoch in range(800):
        inside = sampler.contains(epoch, 0, np.arange(40))
        present = np.ones(40, bool) if sampler.layered else inside
        kept, factor = sampler.entries((epoch, 0, 0), row, column)
        values = matrix.data[kept] * factor * x[column[kept]]
        product = np.bincount(row[kept], values, minlength=40)[present]
        sums[present] += product
        squares[present] += product**2
        counts += present
    mean = sums / counts
    error = np.sqrt(np.maximum(squares / counts - mean**2, 0) / counts)
    assert (np.abs(mean - matrix @ x) <= 4.5 * error + 1e-12).all()
    assert error.max() > 0


def test_clusters():
    clusters = np.arange(30) % 6
    sampler = make_sampler("cluster", 30, 2, 0, clusters=clusters)
    assert (sampler.n, sampler.batches, sampler.count(2)) == (6, 3, 2)
    batches = [sampler.members(4, t) for t in range(3)]
    assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(30))
    for t, batch in enumerate(batches):
        assert len(np.unique(clusters[batch])) == 2
        assert np.array_equal(np.flatnonzero(sampler.contains(4, t, np.arange(30))), batch)
    refuses("needs a partition into clusters", make_sampler, "cluster", 30, 2, 0)
    refuses("a batch of 7", make_sampler, "cluster", 30, 7, 0, clusters=clusters)


VERTEX, NEIGHBOR = ("vertex", 10), ("neighbor", 10, 2, 0)
MISTAKES = [
    (("vertx", 10, 2, 0), "unknown sampler 'vertx'"),
    ((*VERTEX, 0, 0), r"a batch of 0 vertices \(0\): it is drawn from 10"),
    ((*VERTEX, 11, 0), "a batch of 11 vertices"),
    ((*VERTEX, "many", 0), "neither a number of vertices nor a share"),
    ((*VERTEX, 2, -1), "seed -1"), ((*VERTEX, 2, 0, "3"), "the sampler 'vertex' has no fan-outs"),
    ((*NEIGHBOR, "3,,2"), "fan-outs '3,,2'"), ((*NEIGHBOR, "0"), "fan-outs '0'"),
    ((*NEIGHBOR, (2, -2)), "fan-outs"),
]  # fmt: skip


def test_sizes_fanouts_and_mistakes_in_them():
    assert batch_size("20", 100) == batch_size(20, 100) == 20
    assert (batch_size("6%", 1000), batch_size("12.5 %", 8), batch_size("1%", 8)) == (60, 1, 1)
    assert (parse_fanouts("10, 5,-1"), parse_fanouts("")) == ((10, 5, -1), ())
    assert make_sampler("neighbor", 9, 2, 0).fanouts == (10, 10)
    assert rows_within(1.5, 16, 0, 9, 4) == 1.5 * 2**20 / 64  # dense rows within megabytes
    assert rows_within(1, 16, 18, 9, 4) == 2**20 // 16  # two entries a row
    for arguments, message in MISTAKES:
        refuses(message, make_sampler, *arguments)


# Compiled sampling keeps what the definition in NumPy keeps


@pytest.fixture
def native():
    return pytest.importorskip("gcnmpi.kernels._native")


@pytest.mark.parametrize("name", ["neighbor", "labor"])
@pytest.mark.parametrize("fanout", [1, 2, 5, 40, -1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_entries_and_factors_are_those_of_numpy(native, name, fanout, dtype):
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
        for part in ("indptr", "indices", "data"):
            np.testing.assert_array_equal(getattr(found, part), getattr(expected, part))
        assert found.nnz > len(rows)
        assert (fanout < 0 or fanout == 40) or found.nnz < matrix.nnz


def test_columns_without_a_number(native, monkeypatch):
    columns = np.array([5, 2, 7, 2, 9, 0, 5, 8], np.int32)
    number = np.array([-1, -1, -1, 4, -1, -1, -1, 0, -1, -1], np.int32)
    mine, others = sampling.without_number(columns, number, 6)
    assert (mine.tolist(), others.tolist()) == ([5, 2, 0], [8, 9])
    assert (number >= 0).sum() == 2
    monkeypatch.setattr(sampling, "_native", None)
    mine, others = sampling.without_number(columns, number, 6)
    assert (sorted(mine.tolist()), others.tolist()) == ([0, 2, 5], [8, 9])


def test_what_does_not_fit_is_refused(native):
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


# Arcs that have relations.

N, OWN, COUNT = 90, 60, 3
RELATIONS = tuple(Relation("v", name, "v") for name in ("few", "many", "none"))
SHARES = 0.05, 0.4, 0.1


def arcs_of(seed=0):
    """The arcs into own rows 0 … OWN − 1, of vertices in another order, loops and parallel ones."""
    random = np.random.default_rng(seed)
    ids = random.permutation(N)
    there = np.stack([random.random((OWN, N)) < share for share in SHARES])
    relation, row, column = np.nonzero(there)
    order = np.lexsort((ids[column], relation, row))
    row, relation, column = row[order], relation[order], column[order]
    begins = np.append(True, (row[1:] != row[:-1]) | (relation[1:] != relation[:-1]))
    starts = np.append(np.flatnonzero(begins), len(row))
    of_groups = row[starts[:-1]], relation[starts[:-1]]
    parts = parts_of(of_groups[0], of_groups[1] == 2, starts)
    groups = Groups(ids[of_groups[0]], of_groups[1], starts, len(starts) - 1, parts)
    of_rows = np.append(0, np.cumsum(np.bincount(row, minlength=OWN)))
    every = EntryRows(ids, of_rows, column.astype(np.int32), np.zeros(len(row), np.int64), groups)
    return ArcEntries(every, N, np.dtype(np.float64)), row, relation, column


def sampler(name, fanouts="4", own=""):
    """Of one layer, for the three relations."""
    words = f"{name},7,{fanouts}" if fanouts else f"{name},20"
    return sampler_of(TrainConfig(batches=words, fanouts=own), N, N, relations=RELATIONS)


@pytest.mark.parametrize("name", ["neighbor", "labor", "vertex"])
@pytest.mark.parametrize("own", ["", "many=2; none=0", "few=-1;many=1"])
def test_compiled_and_in_numpy_are_the_same_arcs(monkeypatch, name, own):
    entries, row, relation, column = arcs_of()
    own, fanouts = (own, "4") if name != "vertex" else ("", "")
    drawing = sampler(name, fanouts, own)
    rows = np.random.default_rng(1).permutation(OWN)[:40]
    for place in ((1, 0, 0), (3, 2, 0)):
        found = []
        for native in (sampling._native, None):
            monkeypatch.setattr(sampling, "_native", native)
            (starts, columns, values), arcs = entries.kept(drawing, place, rows)
            order = np.lexsort((arcs.some, np.repeat(np.arange(40), np.diff(starts))))
            found.append((starts, columns[order], values[order], arcs.some[order]))
            # Groups are those of the rows, in their order, and none is empty.
            assert (np.diff(arcs.groups.starts) > 0).all()
            where = np.repeat(arcs.groups.rows, np.diff(arcs.groups.starts))
            of_rows = np.repeat(rows, np.diff(starts))
            expected = relation, entries.ids[row], column, row
            for one, other in zip((arcs.relations, where, columns, of_rows), expected, strict=True):
                np.testing.assert_array_equal(one, other[arcs.some])
        for one, other in zip(*found, strict=True):
            np.testing.assert_array_equal(one, other)


DRAWN = {
    "neighbor": ("neighbor", "3"), "labor": ("labor", "3", "few=1"), "vertex": ("vertex", ""),
    "everything": ("labor", "-1"),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
def test_the_mean_of_sampled_means_is_that_of_each_relation(name):
    (entries, row, relation, column), drawing = arcs_of(), sampler(*DRAWN[name])
    x = np.random.default_rng(2).standard_normal(N)
    shape = OWN, COUNT

    def means(values, some):
        ends = row[some], relation[some]
        return sp.coo_array((values * x[column[some]], ends), shape=shape).toarray()

    sizes = sp.coo_array((np.ones(len(row)), (row, relation)), shape=shape).toarray()
    whole = means(1 / sizes[row, relation], np.arange(len(row)))
    sums, squares, counts = np.zeros((3, *shape))
    for epoch in range(1 if name == "everything" else 300):
        inside = np.arange(OWN)
        if not drawing.layered:
            inside = np.flatnonzero(drawing.contains(epoch, 0, entries.ids[:OWN]))
        (_, _, values), arcs = entries.kept(drawing, (epoch, 0, 0), inside)
        product = means(values, arcs.some)
        sums += product
        squares += product**2
        counts[inside] += 1
    mean = sums / counts
    error = np.sqrt(np.maximum(squares / counts - mean**2, 0) / counts)
    assert (np.abs(mean - whole) <= 5 * error + 1e-12).all()
    assert (error.max() > 0) == (name != "everything")


def test_fan_outs_are_read():
    relations = (*RELATIONS, Relation("w", "few", "v"))
    found = fanouts_of_relations("v,few,v=1,2; many=-1;none=0", (5, 4), relations, "train.fanouts")
    assert found == ((1, 2), (-1, -1), (0, 0), (5, 4))
    assert fanouts_of_relations("", (5, 4), relations, "train.fanouts") == ()
    for text, says in {
        "few=1": "2 relations are called 'few'", "many=some": "numbers of neighbours",
        "many": "gives no 2 numbers", "many=1,2,3": "gives no 2 numbers",
        "mayn=1": "unknown relation of train.fanouts 'mayn'",
    }.items():  # fmt: skip
        refuses(says, fanouts_of_relations, text, (5, 4), relations, "train.fanouts")
