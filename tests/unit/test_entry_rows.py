"""Rows made of entries: compiled code and NumPy give the same; their orders, and their groups."""

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refuses
from traced import takes_less_than

from gcnmpi.kernels import rows
from gcnmpi.kernels.scaled import ScaledPattern, scales
from gcnmpi.layout import row_order
from gcnmpi.layout.entries import parts_of
from gcnmpi.layout.loading import RowNormalised, row_normalised
from gcnmpi.options.kernel import KERNELS
from gcnmpi.options.scheme import ROW_ORDERS
from partition.graph.aggregation import from_coordinates, normalised
from partition.graph.graph import Graph, group_count
from partition.graph.relations import Relation, VertexTypes

WAYS = ["numpy", "compiled"] if rows._native is not None else ["numpy"]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(rows, "_native", None)
    return request.param


def matrix(random, count, width, density=0.2):
    found = sp.random_array((count, width), density=density, rng=random, format="csr")
    found.sort_indices()
    return found


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("spread", [2, 1000])  # in a table, or in a hash table
def test_numbers_are_found_and_gathered(way, random, dtype, spread):
    numbers = random.permutation(spread * 500)[:500].astype(dtype)
    some = random.integers(-5, spread * 500 + 5, 3000).astype(dtype)
    expected = [list(numbers).index(x) if x in numbers else -1 for x in some]
    places = rows.Places(numbers)
    assert places.of(some).tolist() == expected
    assert places.all_of(numbers[::-1]).tolist() == list(range(500))[::-1]
    strange = np.array([spread * 500 + 1], dtype)
    refuses("neither owns nor receives", places.all_of, strange, error=ValueError)
    assert rows.Places(numbers[:0]).of(some).tolist() == [-1] * len(some)
    refuses("not distinct", rows.Places, np.append(numbers, numbers[:1]), error=ValueError)
    some, distinct = abs(some), rows.Distinct(dtype)
    assert distinct.numbers().tolist() == []
    for piece in (some[:0], some[:2000], some[5:15], some[1500:]):
        distinct.add(piece)
    assert distinct.numbers().tolist() == np.unique(some).tolist()
    table = random.integers(0, 9, 50).astype(np.int32)
    assert rows.looked_up(table, some % 50).tolist() == table[some % 50].tolist()
    refuses(".", rows.looked_up, table, np.array([50], dtype), error=IndexError)


@pytest.mark.parametrize("groups", [1, 3, 300])
@pytest.mark.parametrize("shape", [(), (3,), (2, 4), (0,)])
def test_items_in_the_order_of_their_groups(way, random, groups, shape):
    of = random.integers(0, groups, 500)
    found = rows.Grouped(of, groups)
    order = np.argsort(of, kind="stable")
    assert found.counts.tolist() == np.bincount(of, minlength=groups).tolist()
    for dtype in (np.int16, np.float32, np.int64):
        items = random.integers(0, 99, (500, *shape)).astype(dtype)
        items.flags.writeable = False
        assert found.take(items).tolist() == items[order].tolist()
        assert found.take(items[::-1]).tolist() == items[::-1][order].tolist()
    assert rows.Grouped(of[:0], groups).take(of[:0]).tolist() == []


def test_what_is_noted_of_entries(way, random):
    row = random.integers(0, 20, 400).astype(np.int32)
    column = random.integers(-10, 20, 400).astype(np.int32)
    lengths, column_lengths = np.ones((2, 20), np.int64)
    lonely = np.ones(20, bool)
    inside, far = rows.note_entries(row, column, lengths, column_lengths, lonely, 3.5)
    there = column >= 0
    assert inside == there.sum()
    assert far == (np.abs(row - column)[there] >= 3.5).sum()
    assert lengths.tolist() == (1 + np.bincount(row, minlength=20)).tolist()
    assert column_lengths.tolist() == (1 + np.bincount(column[there], minlength=20)).tolist()
    assert lonely.tolist() == [not ((row == i) & (column == i)).any() for i in range(20)]


@pytest.mark.parametrize("weighted", [False, True])
def test_entries_are_counted_placed_and_sorted(way, random, weighted):
    expected = matrix(random, 60, 40)
    row = np.repeat(np.arange(60, dtype=np.int32), np.diff(expected.indptr))
    order = random.permutation(expected.nnz)
    row, column, value = row[order], expected.indices[order], expected.data[order]
    counts = np.zeros(60, np.int64)
    rows.count_entries(row, counts)
    rows.count_entries(np.full(3, -1, np.int32), counts)
    starts = np.append(0, np.cumsum(counts))
    assert starts.tolist() == expected.indptr.tolist()
    out, following = np.empty(len(row), np.int32), starts[:-1].copy()
    values = np.empty(len(row)) if weighted else None
    for piece in (slice(0, 100), slice(100, None)):
        given = value[piece] if weighted else None
        rows.place_entries(row[piece], column[piece], given, following, starts[1:], out, values)
    assert following.tolist() == starts[1:].tolist()
    rows.sort_rows(starts, out, values, threads=2)
    assert out.tolist() == expected.indices.tolist()
    if weighted:
        assert values.tolist() == expected.data.tolist()
    again = row[:1], column[:1], None, following, starts[1:], out, None
    refuses(".", rows.place_entries, *again, error=IndexError)


def test_the_transpose_and_rows_that_change_places(way, random):
    given = matrix(random, 30, 50)
    starts = given.indptr.astype(np.int64)
    out_starts, out = rows.transposed(starts, given.indices, 50)
    back = rows.places_by_columns(given.indices, out_starts, back=True)
    found = sp.csr_array((given.data[back], out, out_starts), shape=(50, 30))
    assert (found != given.T).nnz == 0
    places = rows.places_by_columns(given.indices, out_starts)
    assert back[places].tolist() == list(range(given.nnz))
    for shape in [(0,), (40,), (40, 3), (400, 33), (99, 1), (0, 4), (7, 0)]:
        given, first = random.random(shape), random.permutation(shape[0])
        expected = given[first]
        rows.permute_rows(given, first)
        assert given.tolist() == expected.tolist()


@pytest.mark.parametrize("symmetric", [False, True])
def test_an_order_by_bandwidth_has_each_row_once(way, random, symmetric):
    given = matrix(random, 50, 50, 0.05)
    given = sp.csr_array(given + given.T) if symmetric else given
    pattern = sp.hstack([given, matrix(random, 50, 20)], format="csr")  # and columns of others
    starts = pattern.indptr.astype(np.int64)
    found = rows.bandwidth_order(starts, pattern.indices.astype(np.int32), 50, symmetric)
    assert sorted(found) == list(range(50))


@pytest.mark.parametrize("normalize", ["sym", "row", "none"])
def test_numbers_of_rows_and_columns_give_the_values(random, normalize):
    degree = np.append(random.integers(1, 9, 30), [0, 0]).astype(np.float64)
    left, right = (np.ones(32) if one is None else one for one in scales(degree, normalize))
    row, column = np.divmod(np.arange(32 * 32), 32)
    values = normalised(np.ones(32 * 32), degree[row], degree[column], normalize)
    there = degree[row] > 0  # rows without a degree have no entries
    np.testing.assert_allclose((left[row] * right[column])[there], values[there], rtol=1e-15)


@pytest.mark.skipif(rows._native is None, reason="the native kernel is not built")
def test_products_without_values(random):
    """Of all entries, of those of own columns and of others, of some rows, and transposed."""
    given = matrix(random, 25, 40)
    left, right = random.random(25), random.random(40)
    given.data = left[np.repeat(np.arange(25), np.diff(given.indptr))] * right[given.indices]
    whole = ScaledPattern.of(given.indptr.astype(np.int64), given.indices, 40, left, right)
    kernel, x, y = KERNELS.get("native")(np.float64), *map(random.random, ((40, 11), (25, 11)))
    scaled, found, back = right[:, np.newaxis] * x, kernel.empty(25, 11), kernel.empty(40, 11)
    for own in (0, 13, 40):
        first, others = whole.halves(own)
        assert first.nnz + others.nnz == whole.nnz == given.nnz
        kernel.spmm(kernel.sparse(first), scaled[:own].copy(), found)
        kernel.spmm(kernel.sparse(others), scaled[own:].copy(), found, accumulate=True)
        kernel.spmm(kernel.sparse(whole.rows(5, 9)), scaled, found[5:9])
        np.testing.assert_allclose(found, given @ x, rtol=1e-12)
    turned = whole.transposed()
    kernel.spmm(kernel.sparse(turned), turned.right[:, np.newaxis] * y, back)
    np.testing.assert_allclose(back, given.T @ y, rtol=1e-12)
    assert (whole.pattern() != (given != 0)).nnz == 0


# Orders of rows, and groups of arcs of one relation into a vertex.


def shuffled_path(count):
    """The entries of a path through all rows in a random order."""
    place = np.random.default_rng(0).permutation(count).astype(np.int32)
    return place[:-1], place[1:]


def block_of(row, column, count):
    """The block of entries at some rows and columns."""
    matrix = from_coordinates(row, column, np.ones(len(row), bool), (count, count))
    lengths = (np.bincount(of, minlength=count) for of in (row, column))
    far = 2 * np.count_nonzero(np.abs(row - column) >= row_order.FAR * count) >= max(len(row), 1)
    pattern = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    return row_order.Block(*lengths, far, pattern=pattern)


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
    ends = np.random.default_rng(3).integers(0, 1300, (2, 9000))
    row, column = ends[:, abs(ends[0] - ends[1]) < 100]
    first = ROW_ORDERS.get("auto")(block_of(row, column, 1300))
    lengths = np.bincount(row, minlength=1300)
    for start in range(0, 1300, row_order.WINDOW):
        window = first[start : start + row_order.WINDOW]
        assert sorted(window) == list(range(start, min(start + row_order.WINDOW, 1300)))
        assert np.all(np.diff(lengths[window]) <= 0)


def test_hubs_come_first():
    row, column = np.array([0, 1, 2, 4, 4]), np.array([3, 3, 3, 1, 0])
    assert row_order.by_degree(block_of(row, column, 6)).tolist() == [3, 0, 1, 4, 2, 5]


@pytest.mark.parametrize("at_once", [1 << 22, 3000], ids=["counted", "of some vertices"])
@pytest.mark.parametrize("direction", ["in", "out"])
def test_groups_are_counted(direction, at_once, monkeypatch):
    monkeypatch.setattr("partition.graph.graph.COUNTED_AT_ONCE", at_once)
    random = np.random.default_rng(2)
    n, arcs = 2000, 12_000
    source, target = np.sort(random.integers(0, n, arcs)), random.integers(0, n, arcs)
    kinds = random.integers(0, 3, arcs).astype(np.uint8)
    typed = {"vertex_types": VertexTypes.of_counts({"a": n}), "arc_type": kinds,
             "relations": tuple(Relation("a", name, "a") for name in "xyz")}  # fmt: skip
    starts = np.searchsorted(source, np.arange(n + 1))
    graph = Graph(starts, target.astype(np.int32), **typed)
    end = target if direction == "in" else source
    exact = len(np.unique(end * 3 + kinds))
    slack = 0 if at_once > arcs else 0.15
    assert group_count(graph, direction) == pytest.approx(exact, rel=slack or 1e-12)


def test_a_group_has_its_part_of_the_arcs_that_come_its_way():
    turned, starts = np.array([False, True, False, True]), np.array([0, 1, 3, 6, 8])
    found = parts_of(np.array([0, 0, 0, 1]), turned, starts)
    assert found.tolist() == [1 / 4, 1, 3 / 4, 1]


def test_rows_change_places_without_a_copy_of_them():
    given = np.ones((1000, 800))
    first = np.random.default_rng(0).permutation(1000)
    assert takes_less_than(given.nbytes / 8, lambda: rows.permute_rows(given, first))


def test_normalised_rows_are_read_where_they_are_picked():
    features = np.arange(60, dtype=np.float32).reshape(10, 6)
    expected = row_normalised(features).astype(np.float32)
    view = RowNormalised(features, np.dtype(np.float32))
    picked = np.array([3, 0, 2])
    assert np.array_equal(view[picked], expected[picked])
    assert np.array_equal(view[2:8, 1:4][picked], expected[2:8, 1:4][picked])
    assert np.array_equal(view[2:8, 1:4][1:5][picked], expected[3:7, 1:4][picked])
    assert (view[2:8, 1:4].shape, view[picked].dtype) == ((6, 3), np.float32)
