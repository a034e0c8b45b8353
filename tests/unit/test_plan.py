"""Plans of all ranks together, made without MPI, and exchanges carried out by hand."""

import numpy as np
import pytest

from gcnmpi.layout import row_order
from gcnmpi.layout.entries import parts_of
from gcnmpi.layout.row_order import Block
from gcnmpi.options.scheme import ROW_ORDERS
from partition.graph.aggregation import from_coordinates
from partition.graph.graph import Graph
from partition.graph.relations import Relation, VertexTypes
from partition.graph.typed import group_count

# Orders of rows: permutations, near the diagonal where that is asked for.


def shuffled_path(count):
    """The entries of a path through all rows in a random order."""
    place = np.random.default_rng(0).permutation(count).astype(np.int32)
    return place[:-1], place[1:]


def block_of(row, column, count):
    """The block of entries at some rows and columns."""
    matrix = from_coordinates(row, column, np.ones(len(row), bool), (count, count))
    lengths = (np.bincount(of, minlength=count) for of in (row, column))
    far = 2 * np.count_nonzero(np.abs(row - column) >= row_order.FAR * count) >= max(len(row), 1)
    return Block(
        *lengths, far, pattern=(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32))
    )


def bandwidth(row, column, first):
    place = np.argsort(first)
    return np.abs(place[row] - place[column]).max()


@pytest.mark.parametrize("name", list(ROW_ORDERS))
def test_every_row_comes_once(name):
    for count, narcs in ((0, 0), (1, 0), (5, 0), (50, 80)):
        row, column = np.random.default_rng(1).integers(0, max(1, count), (2, narcs))
        found = ROW_ORDERS.get(name)(block_of(row.astype(np.int32), column.astype(np.int32), count))
        assert found is None or sorted(found) == list(range(count))


@pytest.mark.parametrize(("name", "most"), [("auto", row_order.WINDOW), ("rcm", 1)])
def test_a_shuffled_path_is_put_in_order(name, most):
    row, column = shuffled_path(5000)
    assert bandwidth(row, column, ROW_ORDERS.get(name)(block_of(row, column, 5000))) <= most


def test_an_order_that_means_something_is_kept_but_in_windows():
    path, window = (np.arange(1499), np.arange(1, 1500)), row_order.WINDOW
    assert ROW_ORDERS.get("none")(block_of(*shuffled_path(300), 300)) is None
    first = ROW_ORDERS.get("auto")(block_of(*path, 1500))
    # Each row has an entry, but the last; each column, but the first, which its window ends with.
    assert first.tolist() == [*range(1, window), 0, *range(window, 1500)]


def test_rows_of_one_length_stand_together_in_windows():
    row, column = np.random.default_rng(3).integers(0, 1300, (2, 9000))
    near = np.abs(row - column) < 100
    row, column = row[near], column[near]
    first = ROW_ORDERS.get("auto")(block_of(row, column, 1300))
    lengths = np.bincount(row, minlength=1300)
    for start in range(0, 1300, row_order.WINDOW):
        rows = first[start : start + row_order.WINDOW]
        assert sorted(rows) == list(range(start, min(start + row_order.WINDOW, 1300)))
        assert np.all(np.diff(lengths[rows]) <= 0)


def test_hubs_come_first():
    row, column = np.array([0, 1, 2, 4, 4]), np.array([3, 3, 3, 1, 0])
    assert row_order.by_degree(block_of(row, column, 6)).tolist() == [3, 0, 1, 4, 2, 5]


# Groups of arcs of one relation into a vertex.


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
