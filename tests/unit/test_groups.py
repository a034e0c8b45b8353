"""Groups of arcs of one relation into a vertex: patterns, slices, how many there are."""

import numpy as np
import pytest
import scipy.sparse as sp

from gcnmpi.halo.patterns import Patterns
from gcnmpi.kernels.interface.arcs import Reduction, Taken
from gcnmpi.layout.entries import Groups
from gcnmpi.layout.place import Incidence, Space
from gcnmpi.options.kernel import KERNELS
from partition.graph.graph import Graph
from partition.graph.relations import Relation, VertexTypes
from partition.graph.typed import group_count

N, COLUMNS, RELATIONS, WIDTH, HEADS = 40, 55, 6, 8, 2
ARCS, GROUPED, GROUPS = Incidence


class Grouped:
    """Random entries in the order of row, relation and column, and matrices around them."""

    def __init__(self, kernel, seed=5):
        random = np.random.default_rng(seed)
        counts = random.integers(0, 9, N)
        counts[[0, 3, N - 1]] = 0
        rows = np.repeat(np.arange(N), counts)
        relations, columns = (random.integers(0, m, len(rows)) for m in (RELATIONS, COLUMNS))
        order = np.lexsort((columns, relations, rows))
        self.rows, self.relations, self.columns = rows, relations[order], columns[order]
        found = np.stack((self.rows, self.relations), axis=1)
        of_groups, first = np.unique(found, axis=0, return_index=True)
        self.group = np.searchsorted(first, np.arange(len(rows)), side="right") - 1
        starts = np.append(first, len(rows))
        groups = Groups(of_groups[:, 0], of_groups[:, 1], starts, len(of_groups))
        shape, offsets = (N, COLUMNS), np.append(0, np.cumsum(counts))
        ones = np.ones(len(rows), np.int8)
        matrix = sp.csr_array((ones, self.columns, offsets), shape=shape)
        self.kernel, self.groups = KERNELS.get(kernel)(np.float64), groups
        self.patterns = Patterns(self.kernel, matrix, random.permutation(COLUMNS), groups)
        self.x = random.normal(size=(COLUMNS, WIDTH))
        self.values = random.normal(size=(len(rows), HEADS))
        self.of_groups = random.normal(size=(len(of_groups), WIDTH))
        self.own = random.normal(size=(N, WIDTH))

    def sums(self, rows, to, count):
        """The sums of rows with the same number of ``to``."""
        out = np.zeros((count, rows.shape[1]))
        np.add.at(out, to, rows)
        return out

    @property
    def wide(self):
        return np.repeat(self.values, WIDTH // HEADS, axis=1)


@pytest.fixture(params=["scipy", "native"])
def grouped(request):
    return Grouped(request.param)


def test_sums_of_groups_and_their_adjoint(grouped):
    g, kernel = grouped, grouped.kernel
    out = np.empty_like(g.of_groups)
    kernel.spmm_values(g.patterns.of(GROUPED), g.values, g.x, out)
    assert out == pytest.approx(g.sums(g.wide * g.x[g.columns], g.group, len(out)), abs=1e-12)
    back = np.empty_like(g.x)
    kernel.spmm_values_t(g.patterns.of(GROUPED), g.values, g.of_groups, back)
    assert np.vdot(out, g.of_groups) == pytest.approx(np.vdot(back, g.x), rel=1e-12)


def test_rows_of_vertices_groups_and_arcs_lead_to_each_other(grouped):
    g, kernel = grouped, grouped.kernel
    vertex = np.asarray(g.groups.rows)
    out = np.empty_like(g.own)
    kernel.reduce_targets(Reduction(g.patterns.of(GROUPS), ("sum",), g.of_groups, out))
    assert out == pytest.approx(g.sums(g.of_groups, vertex, N), abs=1e-12)
    taken = np.empty_like(g.of_groups)
    kernel.take(Taken(g.patterns.of(GROUPS), None, g.own, taken))
    assert np.array_equal(taken, g.own[vertex])
    of_arcs = np.empty((len(g.rows), WIDTH))
    kernel.take(Taken(g.patterns.of(GROUPED), g.x, g.of_groups, of_arcs))
    assert of_arcs == pytest.approx(g.x[g.columns] + g.of_groups[g.group], abs=1e-12)
    kernel.take(Taken(g.patterns.of(ARCS), g.x, g.own, of_arcs))
    assert of_arcs == pytest.approx(g.x[g.columns] + g.own[g.rows], abs=1e-12)


def test_slices_have_the_rows_of_all_spaces_one_after_the_other(grouped):
    g, kernel = grouped, grouped.kernel
    slices = g.patterns.slices(20, (ARCS, GROUPED, GROUPS))
    assert len(slices) > 3
    sums, out = np.full_like(g.of_groups, np.nan), np.full_like(g.own, np.nan)
    for one in slices:
        of_groups, entries = one.rows[Space.GROUPS], one.rows[Space.ENTRIES]
        grouped = one.patterns[GROUPED]
        kernel.spmm_values(grouped, g.values[entries], g.x, sums[of_groups])
        reduction = Reduction(
            one.patterns[GROUPS], ("sum",), sums[of_groups], out[one.rows[Space.OWN]]
        )
        kernel.reduce_targets(reduction)
        assert one.count(Space.ENTRIES) == one.patterns[ARCS].entries == grouped.entries
    assert out == pytest.approx(g.sums(g.wide * g.x[g.columns], g.rows, N), abs=1e-12)


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
