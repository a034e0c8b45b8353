"""Volume, messages, balance and covers against slow oracles made of Python sets."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import refuses
from small_graphs import arcs_in, from_arcs, partitioned_graphs

from partition.graph import cover
from partition.graph import graph as graph_module
from partition.graph.aggregation import aggregation_matrix
from partition.graph.cover import summed_entries
from partition.graph.graph import Graph
from partition.graph.metrics import Metrics, measure, measure_mixed
from partition.records import to_json


def oracle(graph, parts, k, direction):
    """The definition, word by word: who needs which row, as sets."""
    matrix = aggregation_matrix(graph, direction, normalize="none")
    needs = {p: set() for p in range(k)}
    nnz = [0] * k
    for i in range(graph.n):
        row = matrix.indices[matrix.indptr[i] : matrix.indptr[i + 1]].tolist()
        nnz[parts[i]] += len(row)
        needs[parts[i]].update(j for j in row if parts[j] != parts[i])
    sent = {(int(parts[j]), p, j) for p in range(k) for j in needs[p]}
    return metrics_of(parts, k, direction, nnz, sent)


def metrics_of(parts, k, direction, nnz, sent, **more):
    """The figures of distinct (sender, receiver, name of what is sent)."""
    rows, pairs = [int((parts == p).sum()) for p in range(k)], {(s, r) for s, r, _ in sent}
    (send_rows, recv_rows), (out, back) = (counted(k, of) for of in (sent, pairs))
    return Metrics(k, direction, rows, nnz, send_rows, recv_rows, out, back, **more)


def counted(k, sent):
    """How many of them each part sends, and receives."""
    return [[sum(one[end] == p for one in sent) for p in range(k)] for end in (0, 1)]


WAYS = st.sampled_from(["in", "out"])


@settings(max_examples=200)
@given(partitioned_graphs(), WAYS, st.integers(1, 50), st.sampled_from([0, 1, 1000]))
def test_measure_equals_the_definition(case, direction, limit, sparse):
    graph, parts, k = case
    with pytest.MonkeyPatch.context() as patch:  # chunks of any size give the same figures
        chunks = graph_module.chunks
        patch.setattr("partition.graph.metrics.chunks", lambda indptr: chunks(indptr, limit))
        patch.setattr("partition.graph.cover.SPARSE", sparse)  # whether they are sorted or marked
        assert measure(graph, parts, k, direction) == oracle(graph, parts, k, direction)


def mixed_oracle(graph, parts, k, direction):
    """The costs of the mixed exchange of M."""
    matrix = aggregation_matrix(graph, direction, normalize="none").tocoo()
    row, column = (index.astype(np.int64) for index in matrix.coords)
    return mixed_costs(row, column, parts[row], parts, k, direction)


def mixed_costs(row, column, owner, parts, k, direction):
    """Who sends which rows and which sums to whom, as sets, from the cover of each entry."""
    summed = summed_entries(row, column, owner, parts[column])
    rows, sums, nnz = set(), set(), [0] * k
    entries = row.tolist(), column.tolist(), owner.tolist(), summed
    for i, j, r, mark in zip(*entries, strict=True):
        s = int(parts[j])
        nnz[s if mark else r] += 1
        if s != r:
            (sums if mark else rows).add((s, r, i if mark else j))
    sent = rows | {(s, r, -1 - i) for s, r, i in sums}
    of_sums = dict(zip(("send_sums", "recv_sums"), counted(k, sums), strict=True))
    return metrics_of(parts, k, direction, nnz, sent, **of_sums)


@settings(max_examples=100)
@given(partitioned_graphs(), WAYS, st.integers(1, 50))
def test_the_mixed_exchange_equals_the_definition(case, direction, limit):
    graph, parts, k = case
    with pytest.MonkeyPatch.context() as patch:  # pairs are taken together or one by one
        patch.setattr("partition.graph.metrics.AT_ONCE", limit)
        mixed = measure_mixed(graph, parts, k, direction)
    assert mixed == mixed_oracle(graph, parts, k, direction)
    rows = measure(graph, parts, k, direction)
    assert mixed.volume <= rows.volume
    assert mixed.send_messages == rows.send_messages
    assert sum(mixed.nnz) == sum(rows.nnz)
    other = measure_mixed(graph, parts, k, "out" if direction == "in" else "in")
    assert (mixed.send_rows, mixed.recv_rows) == (other.recv_rows, other.send_rows)


def test_a_hub_with_sources_and_targets():
    # 0, 1, 2 → 6 → 3, 4, 5: part 0 adds up for the hub its three rows, the hub's part adds the sum.
    graph = from_arcs(7, [(0, 6), (1, 6), (2, 6), (6, 3), (6, 4), (6, 5)])
    mixed = measure_mixed(graph, np.array([0, 0, 0, 1, 1, 1, 2]), 3, "in")
    assert (mixed.summary()["volume"], mixed.summary()["sums"], mixed.messages) == (2, 1, 2)
    assert (mixed.nnz, mixed.recv_sums, mixed.work) == ([6, 6, 1], [0, 0, 1], [6, 6, 2])
    assert mixed.imbalance == pytest.approx(6 * 3 / 14 - 1)


def test_summary_and_json():
    graph = from_arcs(4, [(0, 1), (1, 2), (2, 3), (3, 0)])
    metrics = measure(graph, np.array([0, 0, 1, 1]), 2)
    expected = {"volume": 2, "volume_avg": 1, "max_send": 1, "max_recv": 1, "messages": 2}
    assert metrics.summary().items() >= (expected | {"imbalance": 0}).items()
    assert Metrics(**json.loads(json.dumps(asdict(metrics), default=to_json))) == metrics
    empty = Graph(np.zeros(1, np.int64), np.empty(0, np.int32))
    assert measure(empty, np.empty(0, np.int32), 2).imbalance == 0
    for parts, told in (([0, 0], "4 vertices"), ([0, 1, 2, 0], "out"), ([0, -1, 0, 0], "out")):
        refuses(told, measure, graph, np.array(parts), 2, error=ValueError)


def test_training_vertices_are_counted():
    graph, parts = from_arcs(5, [(0, 1), (1, 2)]), np.array([0, 0, 1, 1, 1])
    assert measure(graph, parts, 2).train is None
    labelled = replace(graph, labels=np.array([0, 1, -1, 0, 0], np.int32))
    assert measure(labelled, parts, 2).train == [2, 2]
    masked = replace(labelled, masks={"train": np.array([True, True, False, True, False])})
    assert measure(masked, parts, 2).train == [2, 1]
    assert measure(masked, parts, 2).summary()["train_imbalance"] == pytest.approx(1 / 3)


# The cover behind the mixed exchange, against all covers of small graphs

FEW = 11  # vertices of a pair; it has 2^FEW subsets


@st.composite
def entries(draw):
    """(rows, columns, row parts, column parts): entries of M, each once, in any order."""
    graph, parts, _ = draw(partitioned_graphs())
    pairs = draw(st.permutations(arcs_in(graph)))
    if draw(st.booleans()):  # a hub
        hub = draw(st.integers(0, graph.n - 1))
        pairs = list(dict.fromkeys([*pairs, *((hub, j) for j in range(graph.n))]))
    row, column = np.array(pairs, np.int64).reshape(-1, 2).T
    return row, column, parts[row], parts[column]


def by_pair(case, summed):
    """The entries of each ordered pair of parts, and which of them sums serve."""
    pairs = {}
    for i, j, r, s, mark in zip(*case, summed, strict=True):
        if r != s:
            pairs.setdefault((int(s), int(r)), []).append((int(i), int(j), bool(mark)))
    return pairs


def minimum_covers(edges):
    """All minimum vertex covers, as sets of ("row", i) and ("column", j), by brute force."""
    edges = [(("row", i), ("column", j)) for i, j in edges]
    names = sorted({name for edge in edges for name in edge})
    subsets = np.arange(2 ** len(names))
    covers = np.ones(len(subsets), bool)
    for i, j in edges:
        covers &= (subsets >> names.index(i) | subsets >> names.index(j)) & 1 > 0
    sizes = (subsets[:, np.newaxis] >> np.arange(len(names)) & 1).sum(axis=1)
    least = np.flatnonzero(covers & (sizes == sizes[covers].min()))
    return [{name for place, name in enumerate(names) if subset >> place & 1} for subset in least]


@settings(max_examples=100)
@given(entries())
@example((*np.indices((2, 2)).reshape(2, -1), np.zeros(4, int), np.ones(4, int)))  # no leaves
def test_the_cover_is_the_smallest_and_of_those_the_one_of_most_rows(case):
    summed = summed_entries(*case)
    assert not summed[case[2] == case[3]].any()
    for pair in by_pair(case, summed).values():
        edges = [(i, j) for i, j, _ in pair]
        if len({i for i, _ in edges}) + len({j for _, j in edges}) > FEW:
            continue
        sent = {("row", i) for i, _, mark in pair if mark}
        sent |= {("column", j) for _, j, mark in pair if not mark}
        covers = minimum_covers(edges)
        assert sent in covers
        columns = [{name for name in cover if name[0] == "column"} for cover in covers]
        most = max(map(len, columns))
        assert sum(len(names) == most for names in columns) == 1
        assert {name for name in sent if name[0] == "column"} == max(columns, key=len)


@settings(max_examples=50)
@given(entries(), st.randoms(use_true_random=False), st.sampled_from([0, 32, 10**9]))
def test_order_numbering_and_other_pairs_do_not_matter(case, random, sparse):
    summed = summed_entries(*case)
    order = np.array(random.sample(range(len(summed)), len(summed)), np.int64)
    names, parts = np.array(random.sample(range(1000), 12)), np.array(random.sample(range(9), 6))
    row, column, receiver, sender = (array[order] for array in case)
    with pytest.MonkeyPatch.context() as patch:  # whether keys are sorted or marked
        patch.setattr(cover, "SPARSE", sparse)
        again = summed_entries(names[row], names[column], parts[receiver], parts[sender])
    np.testing.assert_array_equal(again, summed[order])
    for part in range(6):  # what one rank knows: the pairs that it is one end of
        mine = (case[2] == part) | (case[3] == part)
        alone = summed_entries(*(array[mine].astype(np.int32) for array in case))
        np.testing.assert_array_equal(alone, summed[mine])
