"""The cover behind the mixed exchange, against all covers of small graphs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partition.graph import cover
from partition.graph.cover import summed_entries

FEW = 11  # vertices of a pair; it has 2^FEW subsets


@st.composite
def entries(draw):
    """(rows, columns, row parts, column parts): entries of M, each once, in any order."""
    n = draw(st.integers(1, 12))
    parts = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    vertex = st.integers(0, n - 1)
    pairs = draw(st.lists(st.tuples(vertex, vertex), max_size=40, unique=True))
    if draw(st.booleans()):  # a hub
        hub = draw(vertex)
        pairs = list(dict.fromkeys([*pairs, *((hub, j) for j in range(n))]))
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
    names, parts = np.array(random.sample(range(1000), 12)), np.array(random.sample(range(9), 4))
    row, column, receiver, sender = (array[order] for array in case)
    with pytest.MonkeyPatch.context() as patch:  # whether keys are sorted or marked
        patch.setattr(cover, "SPARSE", sparse)
        again = summed_entries(names[row], names[column], parts[receiver], parts[sender])
    np.testing.assert_array_equal(again, summed[order])
    for part in range(4):  # what one rank knows: the pairs that it is one end of
        mine = (case[2] == part) | (case[3] == part)
        alone = summed_entries(*(array[mine].astype(np.int32) for array in case))
        np.testing.assert_array_equal(alone, summed[mine])


def test_long_paths():
    """Alternating paths as long as the graph: the columns at both ends have no mate."""
    m = 20_000
    rows = np.repeat(np.arange(m), 2)
    columns = np.repeat(np.arange(m + 1), 2)[1:-1]
    receiver, sender = np.zeros(2 * m, int), np.ones(2 * m, int)
    assert summed_entries(rows, columns, receiver, sender).all()
    assert not summed_entries(columns, rows, receiver, sender).any()
