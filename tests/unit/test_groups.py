"""Groups of arcs of one relation into a vertex: patterns, slices, how many there are."""

import numpy as np
import pytest
import scipy.sparse as sp
from kernel_cases import TYPES, all_near, give, junk, near

from gcnmpi.halo.patterns import Patterns
from gcnmpi.kernels.interface.arcs import Reduction, Taken
from gcnmpi.layout.entries import Groups, parts_of
from gcnmpi.layout.place import Incidence, Space
from partition.graph.graph import Graph
from partition.graph.relations import Relation, VertexTypes
from partition.graph.typed import group_count

N, COLUMNS, RELATIONS, WIDTH, HEADS = 40, 55, 6, 8, 2
ARCS, GROUPED, GROUPS = Incidence
of_both = pytest.mark.parametrize("kernel", TYPES, ids=["float32", "float64"], indirect=True)


class Grouped:
    """Random entries in the order of row, relation and column, and matrices around them."""

    def __init__(self, kernel):
        random = np.random.default_rng(5)
        counts = random.integers(0, 9, N)
        counts[[0, 3, N - 1]] = 0
        self.rows = np.repeat(np.arange(N), counts)
        relations, columns = (random.integers(0, m, counts.sum()) for m in (RELATIONS, COLUMNS))
        order = np.lexsort((columns, relations, self.rows))
        relations, self.columns = relations[order], columns[order]
        found = np.stack((self.rows, relations), axis=1)
        of_groups, first = np.unique(found, axis=0, return_index=True)
        self.group = np.searchsorted(first, np.arange(len(self.rows)), side="right") - 1
        self.vertex, starts = of_groups[:, 0], np.append(first, len(self.rows))
        parts = parts_of(self.vertex, of_groups[:, 1] % 2 == 1, starts)
        groups = Groups(*of_groups.T, starts, len(of_groups), parts)
        shape, offsets = (N, COLUMNS), np.append(0, np.cumsum(counts))
        ones = np.ones(len(self.rows), np.int8)
        matrix = sp.csr_array((ones, self.columns, offsets), shape=shape)
        self.kernel = kernel
        self.patterns = Patterns(kernel, matrix, random.permutation(COLUMNS), groups)
        self.x = random.normal(size=(COLUMNS, WIDTH))
        self.values = random.normal(size=(len(self.rows), HEADS))
        self.of_groups = random.normal(size=(len(of_groups), WIDTH))
        self.own = random.normal(size=(N, WIDTH))
        wide = np.repeat(self.values, WIDTH // HEADS, axis=1)
        self.weighed = wide * self.x[self.columns]
        self.back = np.zeros((COLUMNS, WIDTH))
        np.add.at(self.back, self.columns, wide * self.of_groups[self.group])

    def mine(self, *names):
        """The kernel's arrays of some of these."""
        return [give(self.kernel, getattr(self, name)) for name in names]


def sums(rows, to, count):
    """The sums of rows with the same number of ``to``."""
    out = np.zeros((count, rows.shape[1]))
    np.add.at(out, to, rows)
    return out


@of_both
def test_sums_of_groups_and_their_adjoint(kernel):
    g = Grouped(kernel)
    pattern = g.patterns.of(GROUPED)
    values, x, of_groups, own = g.mine("values", "x", "of_groups", "own")
    out, back = junk(kernel, *g.of_groups.shape), junk(kernel, *g.x.shape)
    kernel.spmm_values(pattern, values, x, out)
    kernel.spmm_values_t(pattern, values, of_groups, back)
    all_near(kernel, (out, back), (sums(g.weighed, g.group, len(g.of_groups)), g.back), 10)
    # Rows of vertices, groups and arcs lead to each other.
    patterns, out = g.patterns, junk(kernel, *g.own.shape)
    kernel.reduce_targets(Reduction(patterns.of(GROUPS), ("sum",), of_groups, out))
    near(kernel, out, sums(g.of_groups, g.vertex, N), 10)
    for incidence, given, expected in (
        (GROUPS, (None, own), g.own[g.vertex]),
        (GROUPED, (x, of_groups), g.x[g.columns] + g.of_groups[g.group]),
        (ARCS, (x, own), g.x[g.columns] + g.own[g.rows]),
    ):
        taken = junk(kernel, *expected.shape)
        kernel.take(Taken(patterns.of(incidence), *given, taken))
        near(kernel, taken, expected)


@of_both
def test_slices_have_the_rows_of_all_spaces_one_after_the_other(kernel):
    g = Grouped(kernel)
    values, x = g.mine("values", "x")
    slices = g.patterns.slices(20, (ARCS, GROUPED, GROUPS))
    assert len(slices) > 3 or kernel.name == "cupy"  # which takes all rows at once
    of_groups, out = junk(kernel, *g.of_groups.shape), junk(kernel, *g.own.shape)
    for one in slices:
        here, entries = of_groups[one.rows[Space.GROUPS]], one.rows[Space.ENTRIES]
        kernel.spmm_values(one.patterns[GROUPED], values[entries], x, here)
        own = out[one.rows[Space.OWN]]
        kernel.reduce_targets(Reduction(one.patterns[GROUPS], ("sum",), here, own))
        counts = {one.patterns[of].entries for of in (ARCS, GROUPED)}
        assert counts == {one.count(Space.ENTRIES)}
    near(kernel, out, sums(g.weighed, g.rows, N), 10)


@pytest.mark.parametrize("at_once", [1 << 22, 3000], ids=["counted", "of some vertices"])
@pytest.mark.parametrize("direction", ["in", "out"])
def test_groups_are_counted(direction, at_once, monkeypatch):
    monkeypatch.setattr("partition.graph.typed.COUNTED_AT_ONCE", at_once)
    random = np.random.default_rng(2)
    n, arcs = 2000, 12_000
    source, target = np.sort(random.integers(0, n, arcs)), random.integers(0, n, arcs)
    kinds = random.integers(0, 3, arcs).astype(np.uint8)
    graph = Graph(
        np.searchsorted(source, np.arange(n + 1)),
        target.astype(np.int32),
        vertex_types=VertexTypes.of_counts({"a": n}),
        relations=tuple(Relation("a", name, "a") for name in "xyz"),
        arc_type=kinds,
    )
    end = target if direction == "in" else source
    exact = len(np.unique(end * 3 + kinds))
    slack = 0 if at_once > arcs else 0.15
    assert group_count(graph, direction) == pytest.approx(exact, rel=slack or 1e-12)


def test_a_group_has_its_part_of_the_arcs_that_come_its_way():
    turned, starts = np.array([False, True, False, True]), np.array([0, 1, 3, 6, 8])
    found = parts_of(np.array([0, 0, 0, 1]), turned, starts)
    assert found.tolist() == [1 / 4, 1, 3 / 4, 1]
