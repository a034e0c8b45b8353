"""Graphs that are sorted in files: the same folder as the one that is made in memory."""

import gzip
import itertools

import numpy as np
import pytest
from command_line import refused, run
from refusals import refuses

from partition.graph.store import open_graph
from partition.importing import on_disk, spools
from partition.importing.arcs import Settling
from partition.importing.assemble import build_graph, import_graph
from partition.importing.readers import Layout, Reading, open_stream, read_source

RULES = list(itertools.product(("merge", "sum"), ("keep", "drop"), (False, True)))


@pytest.fixture(params=[4, 50, 10**6])
def few(request, monkeypatch):
    """So many arcs are sorted at a time; more, where a vertex has more."""
    monkeypatch.setattr(on_disk, "arcs_at_once", lambda memory, n: request.param)
    monkeypatch.setattr(on_disk, "FEWEST_ARCS", 16)
    return request.param


def same_graph(folder, source, layout=None, **rules):
    """Build a graph in memory and in files; whether both are the same, to the bit."""
    layout = layout or Layout()
    graph, facts = build_graph(read_source(source, layout=layout), **rules)
    with spools.scratch_folder(folder / "g.graph") as scratch:
        stream = open_stream(source, "auto", layout, Reading(spools.allocate_in(scratch)))
        other, other_facts = on_disk.build_on_disk(stream, scratch, 1e9, Settling(**rules))
        assert facts == other_facts
        found, others = columns_of(graph), columns_of(other)
        assert found.keys() == others.keys()
        for name, column in found.items():
            assert column.dtype == others[name].dtype
            np.testing.assert_array_equal(column, others[name])
    return graph


def columns_of(graph):
    """All arrays of a graph, by name."""
    names = ("indptr", "indices", "weights", "ids")
    found = {name: getattr(graph, name) for name in names if getattr(graph, name) is not None}
    data = graph.arc_data
    return found if data is None else found | data.columns() | {"names": np.array(data.class_names)}


def write_list(path, random, kind, rows):
    """A list of arcs with copies, loops and vertices without arcs; of 0 rows, a ring."""
    span = {"small": (0, 40), "gaps": (-500, 500), "wide": (-(2**62), 2**62)}[kind]
    ids = np.unique(random.integers(*span, 40))
    ends = np.stack([ids, np.roll(ids, 1)], 1)
    if rows:
        ends = ids[random.integers(0, len(ids), (rows, 2))]
        ends = np.append(ends, ends[:7], axis=0)
        ends[:3, 1] = ends[:3, 0]
    columns = [ends[:, 0].tolist(), ends[:, 1].tolist()]
    if path.name.startswith("weighted"):
        columns.append((random.standard_normal(len(ends)) * 1e3).tolist())
    separator = "," if path.suffix == ".csv" else " "
    rows = zip(*columns, strict=True)
    text = "".join(separator.join(map(repr, row)) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return ids


@pytest.mark.parametrize("name", ["plain.txt", "plain.csv", "weighted.txt.gz"])
@pytest.mark.parametrize("kind", ["small", "gaps", "wide"])
def test_lists_of_arcs(tmp_path, few, name, kind):
    random = np.random.default_rng(len(name) + len(kind))
    ids = write_list(tmp_path / name, random, kind, {4: 0, 50: 40}.get(few, 400))
    listed = tmp_path / "ids.txt"
    listed.write_text("".join(f"{i}\n" for i in random.permutation(ids).tolist()))
    layouts = [Layout(), Layout(ids=listed)]
    if kind == "gaps":
        layouts.append(Layout(vertices=f"{ids.min() - 3}..{ids.max() + 2}"))
    for layout in layouts:
        for rules in random.permutation(np.array(RULES, object))[:3]:
            named = dict(zip(("duplicates", "self_loops", "undirected"), rules, strict=True))
            same_graph(tmp_path, tmp_path / name, layout, **named)


@pytest.mark.parametrize("duplicates", ["sum", "merge"])
def test_sums_of_many_copies_have_the_same_bits(tmp_path, monkeypatch, duplicates):
    monkeypatch.setattr(on_disk, "arcs_at_once", lambda memory, n: 700)
    random = np.random.default_rng(1)
    rows = np.column_stack([random.integers(0, 3, (1500, 2)), random.standard_normal(1500)])
    np.savetxt(tmp_path / "e.txt", rows, ["%d", "%d", "%.17g"])
    for undirected in (False, True):
        same_graph(tmp_path, tmp_path / "e.txt", duplicates=duplicates, undirected=undirected)


def test_arrays_of_arcs(tmp_path, few):
    random = np.random.default_rng(2)
    order = random.permutation(40)
    np.save(tmp_path / "e.npy", np.stack([order, np.roll(order, 3)]) + 5)
    for layout in (Layout(), Layout(vertices="0..99")):
        same_graph(tmp_path, tmp_path / "e.npy", layout, undirected=few != 4)


REFUSED = {
    "error": ({"duplicates": "error"}, "0 1\n1 2\n0 1\n1 2\n", "the arc 0 -> 1 .* 2 such copies"),
    "times": ({}, "0 1 1000\n1 2 7\n", "whole numbers from 7 to 1000"),
    "numbers": ({}, "0 1 2\n1 2 3\n2 4 5\n", "the numbers of the lines"),
    "vertices": ({"layout": Layout(vertices="2")}, "0 1\n1 2\n", "there is a vertex 2"),
    "texts": ({}, "a b\nb c\nc a\n", "these are texts"),
    "a bad line": ({}, "0 1\n1 x\n", "line 2: '1 x'"),
    "infinite": ({}, "0 1 1\n1 2 inf\n", "not a finite number"),
}


def test_what_is_refused_in_memory_is_refused_on_disk(tmp_path):
    for options, text, message in REFUSED.values():
        (tmp_path / "e.txt").write_text(text)
        out = tmp_path / "g.graph"
        refuses(message, import_graph, tmp_path / "e.txt", out, memory=1e9, **options)
        assert [path.name for path in tmp_path.iterdir()] == ["e.txt"]


def test_too_little_memory_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.txt").write_text("0 1\n0 2\n0 3\n1 2\n")
    head = "%%MatrixMarket matrix coordinate pattern general\n"
    (tmp_path / "e.mtx").write_text(head + "2 2 1\n1 2\n")
    for file, size, *says in (
        ("e.txt", "100MB", "0.1GB is too little: 4 vertices", "give --memory 0.33GB or more"),
        ("e.txt", "0.32GB", "is too little"),
        ("e.txt", "x", "is not a size"),
        ("e.mtx", "1G", "read as a whole"),
    ):
        message = refused("import", file, "g.graph", "--memory", size)
        assert all(part in message for part in says)
    monkeypatch.setattr(on_disk, "arcs_at_once", lambda memory, n: 2)
    message = refused("import", "e.txt", "g.graph", "--memory", "1G")
    assert "vertex 0 has 3 arcs, which are sorted at once" in message
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    run("import", "e.txt", "g.graph", "--memory", "0.4G", "--vertices", 9)
    assert open_graph("g.graph").graph.n == 9
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.mtx", "e.txt", "g.graph"]


def test_the_disk_has_room_for_an_array_before_anything_is_written_to_it(tmp_path):
    array = spools.allocate_in(tmp_path)("x", (1000, 100), np.dtype(np.float64))
    assert array.shape == (1000, 100)
    assert not array.any()
    assert (tmp_path / "x").stat().st_blocks * 512 >= array.nbytes  # else SIGBUS on a full disk
