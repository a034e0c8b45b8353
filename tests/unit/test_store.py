"""The graph folder: what goes in comes out, and what is damaged is refused by name."""

import errno
import functools
import json
import os
from dataclasses import asdict, replace

import numpy as np
import pytest
from command_line import run
from refusals import raising, refuses
from small_graphs import from_arcs, make_folder, random_graph
from stored_graphs import change_array, change_json
from traced import takes_less_than

from partition.graph import content, store
from partition.graph import graph as graph_module
from partition.graph.content import content_id, data_id
from partition.graph.graph import Graph
from partition.graph.metrics import measure
from partition.graph.store import (
    Partition,
    has_partition,
    list_partitions,
    open_graph,
    partition_lock,
    read_partition,
    remove_partition,
    write_graph,
    write_partition,
)
from partition.pipeline.adding import add_partition
from partition.pipeline.checking import check_folder


def full_graph(n=12):
    rng = np.random.default_rng(0)
    plain = random_graph(n, 40)
    return Graph(
        plain.indptr,
        plain.indices,
        weights=rng.random(plain.nnz),
        features=rng.random((n, 3)).astype(np.float32),
        labels=rng.integers(-1, 4, n).astype(np.int32),
        masks={"train": np.arange(n) < 4, "test": np.arange(n) >= 8},
        ids=np.arange(n, dtype=np.int64) * 7,
        targets=rng.random((n, 2)).astype(np.float32),
    )


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "g.graph"
    write_graph(path, full_graph(), source={"format": "test"}, direction="out")
    return path


def partition_of(path, name="p", **changes):
    manifest = open_graph(path).manifest
    parts = np.arange(manifest.n, dtype=np.int32) % 3
    plain = Partition(name, parts, 3, manifest.id, "rp", "random", "1", "in")
    return replace(plain, **changes)


def measured(path):
    graph = open_graph(path).graph
    parts = np.arange(graph.n, dtype=np.int32) % 3
    return {direction: measure(graph, parts, 3, direction) for direction in ("in", "out")}


def arrays(graph):
    """All arrays of a graph, which has no types."""
    names = ("indptr", "indices", "weights", "features", "labels", "ids", "targets")
    return {name: getattr(graph, name) for name in names} | dict(graph.masks)


def test_round_trip(folder, tmp_path):
    opened = open_graph(folder)
    found, expected = arrays(opened.graph), arrays(full_graph())
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    manifest = opened.manifest
    assert (manifest.n, manifest.nnz) == (opened.graph.n, opened.graph.nnz)
    assert (manifest.direction, manifest.directed, manifest.weighted) == ("out", True, True)
    assert (manifest.features, manifest.masks) == (3, ("train", "test"))
    assert manifest.source == {"format": "test"}
    assert (manifest.id, manifest.data_id) == (content_id(full_graph()), data_id(full_graph()))
    assert isinstance(opened.graph.features, np.memmap)
    change_json(folder / "manifest.json", "data_id", version=1)
    assert open_graph(folder).manifest.data_id == ""
    empty = Graph(np.zeros(1, np.int64), np.empty(0, np.int32))
    for number, graph in enumerate((from_arcs(3, [(0, 1)]), from_arcs(3, []), empty)):
        opened = open_graph(make_folder(tmp_path / f"{number}.graph", graph)).graph
        assert (opened.n, opened.nnz) == (graph.n, graph.nnz)
        assert opened.features is opened.labels is opened.weights is None


def test_ids_are_those_of_the_structure_and_of_what_belongs_to_the_vertices():
    graph = full_graph()
    first, masks = data_id(graph), graph.masks
    assert content_id(replace(graph, features=None, labels=None)) == content_id(graph)
    assert content_id(replace(graph, weights=graph.weights * 2)) != content_id(graph)
    assert content_id(random_graph(12, 40, seed=1)) != content_id(random_graph(12, 40))
    assert content_id(from_arcs(3, [])) != content_id(from_arcs(4, []))  # only n is another
    assert data_id(replace(graph, weights=None)) == first
    for change in (
        {"features": graph.features + 1}, {"features": graph.features.reshape(6, 6)},
        {"features": None}, {"labels": graph.labels[::-1]}, {"ids": None},
        {"class_names": ("a", "b", "c", "d")}, {"masks": {"train": masks["train"]}},
        {"masks": {"train": masks["train"], "val": masks["test"]}},
        {"masks": {"train": masks["test"], "test": masks["train"]}},
    ):  # fmt: skip
        assert data_id(replace(graph, **change)) != first, change
    wide = np.arange(600_000, dtype=np.float32).reshape(2, -1)  # of more bytes than a chunk
    ids = {data_id(replace(from_arcs(2, []), features=rows)) for rows in (wide, wide[::-1])}
    assert len(ids) == 2


NUMBERS = [
    ("indices", 3, -1, r"indices.npy has a vertex outside 0\.\.11"),
    ("indices", 3, 12, r"indices.npy has a vertex outside 0\.\.11"),
    ("indices", 1, 0, "the targets of a vertex in indices.npy do not increase"),
    ("indptr", 5, 10**12, "indptr.npy does not increase"),
    ("indptr", 5, -3, "indptr.npy does not increase"),
    ("indptr", 0, 1, "indptr.npy goes from 1 to"),
    ("indptr", 12, 1, "indptr.npy goes from 0 to 1"),
    ("weights", 2, np.nan, "weights.npy has a weight that is not finite"),
    ("labels", 2, 4, r"labels.npy has a label outside -1\.\.3"),
    ("labels", 2, -2, r"labels.npy has a label outside -1\.\.3"),
]


@pytest.mark.parametrize("at_once", [1 << 20, 3])
def test_numbers_that_no_graph_has_are_refused(folder, monkeypatch, at_once):
    monkeypatch.setattr(graph_module, "_STEP", at_once)
    for name, at, value, message in NUMBERS:
        good = (folder / f"{name}.npy").read_bytes()
        change_array(folder, name, at, value)
        refuses(message, open_graph, folder)
        refuses(message, add_partition, folder, "gp", 2)
        (folder / f"{name}.npy").write_bytes(good)


def test_files_of_any_length_or_kind_are_refused(folder):
    write_partition(folder, partition_of(folder, tool="\x1b[2Jx", options={"\x07": ["\x9b1m"]}))
    found = read_partition(folder, "p")  # texts do not steer terminals
    assert (found.tool, found.options) == (r"\x1b[2Jx", {r"\x07": [r"\x9b1m"]})
    for name in ("manifest.json", "partitions/p.json"):
        file = folder / name
        good = file.read_bytes()
        os.truncate(file, (1 << 28) + 1)
        refuses("is damaged: it is longer than", read_partition, folder, "p")
        file.unlink()
        os.mkfifo(file)
        refuses("it is not a regular file", read_partition, folder, "p")
        file.unlink()
        file.write_bytes(good)
    np.savez_compressed(folder / "partitions" / "p.npz", parts=np.zeros(10**7, np.int32))
    read = functools.partial(refuses, "parts is of shape", read_partition, folder, "p")
    assert takes_less_than(1 << 20, read)


def test_arrays_that_are_truncated_missing_or_of_another_kind_are_refused(folder, monkeypatch):
    for name in ("indptr", "indices", "weights", "features", "labels", "train_mask"):
        file = folder / f"{name}.npy"
        good = file.read_bytes()
        file.write_bytes(good[:-5])
        refuses(rf"{name}\.npy is damaged or truncated", open_graph, folder)
        file.unlink()
        refuses(rf"{name}\.npy is missing", open_graph, folder)
        file.write_bytes(good)
    for labels, message in (
        (np.zeros(11, np.int32), r"holds int32 \(11,\), the manifest asks for \(12,\)"),
        (np.zeros(12), "holds float64"),
    ):
        np.save(folder / "labels.npy", labels)
        refuses(message, open_graph, folder)
    # A map that finds no addresses is not damage.
    monkeypatch.setattr(np, "memmap", raising(OSError(errno.ENOMEM, "Cannot allocate memory")))
    refuses(r"cannot map .*indptr\.npy of [\d,]+ bytes", open_graph, folder, error=MemoryError)


DAMAGED = "is damaged: {} cannot be"
MANIFESTS = [
    ({"version": 99}, "has format version 99, this program reads 1, 2, 3"),
    ({"format": "else"}, "does not describe a graph"),
    ({"n": 13}, "the manifest asks for"),
    ({"n": 2**40}, "the manifest asks for"),
    ({"n": None}, DAMAGED.format("n")),
    ({"n": -12}, DAMAGED.format("n")),
    ({"n": True}, DAMAGED.format("n")),
    ({"nnz": 10**30}, DAMAGED.format("nnz")),
    ({"classes": 2**60}, DAMAGED.format("classes")),
    ({"classes": 1}, r"is damaged: labels.npy has a label outside -1..0"),
    ({"direction": "sideways"}, DAMAGED.format("direction")),
    ({"directed": "\x1b[2J" * 99}, r"is damaged: directed cannot be '\\\\x1b"),
    ({"source": None}, DAMAGED.format("source")),
    ({"colour": "red"}, "is damaged: it has an unknown field 'colour'"),
    ({"masks": ["../../elsewhere"]}, "is damaged: masks does not hold what it should"),
    ({"masks": [["train"]]}, "is damaged: masks does not hold what it should"),
    ({"masks": ["train", "train"]}, "is damaged: masks does not hold what it should"),
]


def test_a_manifest_that_does_not_fit_or_is_none_is_refused(folder):
    good = (folder / "manifest.json").read_text()
    for change, message in MANIFESTS:
        change_json(folder / "manifest.json", **change)
        refuses(message, open_graph, folder)
        (folder / "manifest.json").write_text(good)
    for text in ("", "{", "[]", '{"format": "gcnmpi-graph", "version": 1}'):
        (folder / "manifest.json").write_text(text)
        refuses(r"manifest\.json", open_graph, folder)
    other = folder.with_name("other.graph")
    refuses("there is no graph folder", open_graph, other)
    other.mkdir()
    refuses(r"has no manifest\.json", open_graph, other)
    again = {"source": {}, "overwrite": True}
    refuses("is not a graph folder and is not repl", write_graph, other, full_graph(), **again)
    refuses(r"ends in \.graph", write_graph, folder.with_name("graph"), full_graph(), source={})


def test_a_failure_while_writing_leaves_what_was_there(folder, monkeypatch):
    path, saves = folder.with_name("new.graph"), []

    def fail(file, array, **kwargs):
        saves.append(file)
        if len(saves) == 3:
            raise OSError(28, "No space left on device")
        np.lib.format.write_array(file, array)

    monkeypatch.setattr(store.np, "save", fail)
    refuses("No space left on device", write_graph, path, full_graph(), source={})
    monkeypatch.setattr(store.np, "save", raising(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_graph(folder, random_graph(5, 5), source={}, overwrite=True)
    monkeypatch.setattr(os, "replace", raising(OSError(28, "No space left on device")))
    refuses("No space left", write_partition, folder, partition_of(folder))
    assert list((folder / "partitions").iterdir()) == []
    monkeypatch.undo()
    assert open_graph(folder).graph.n == 12
    assert [file.name for file in folder.parent.iterdir()] == ["g.graph"]


def test_partitions_of_the_same_arcs_are_kept(folder):
    before = write_partition(folder, partition_of(folder, metrics=measured(folder)))
    write_partition(folder, partition_of(folder, "damaged"))
    (folder / "partitions" / "damaged.npz").write_bytes(b"")
    labels = np.zeros(12, np.int32)
    train = {"train": np.arange(12) < 5}
    other = replace(full_graph(), features=None, labels=labels, masks=train)
    refuses("is there already", write_graph, folder, other, source={})
    write_graph(folder, other, source={}, overwrite=True)
    assert open_graph(folder).graph.features is None
    assert list_partitions(folder) == ["p"]
    kept = read_partition(folder, "p")
    np.testing.assert_array_equal(kept.parts, before.parts)
    assert before.metrics["in"].train == [2, 1, 1]
    assert kept.metrics["in"] == replace(before.metrics["in"], train=[2, 2, 1])  # of the new mask
    write_graph(folder, random_graph(5, 5), source={}, overwrite=True)
    assert (open_graph(folder).graph.n, list_partitions(folder)) == (5, [])


def test_a_graph_in_use_is_not_replaced_and_its_partition_not_removed(folder):
    write_partition(folder, partition_of(folder))
    again = {"source": {}, "overwrite": True}
    with partition_lock(folder, "p", "gcnmpi train", exclusive=False):
        refuses(r"g\.graph is in use: gcnmpi train", write_graph, folder, full_graph(), **again)
        refuses("in use: gcnmpi train p ", remove_partition, folder, "p")
        with partition_lock(folder, "q", "gcn-partition add"):
            lock = partition_lock(folder, "q", "gcn-partition add")
            refuses("in use: gcn-partition add q ", lock.__enter__)
    remove_partition(folder, "p")
    write_graph(folder, full_graph(), **again)
    assert sorted(os.listdir(folder.parent)) == ["g.graph"]
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


def test_partitions_are_written_listed_and_removed(folder):
    made = partition_of(folder, seed=3, options={"a": 1}, metrics=measured(folder), seconds=0.5)
    stored = write_partition(folder, made)
    assert has_partition(folder, "p")
    found = read_partition(folder, "p")
    np.testing.assert_array_equal(found.parts, made.parts)
    assert (found.parts.dtype, len(stored.id)) == (np.int32, 32)
    assert replace(found, parts=None) == replace(stored, parts=None)
    assert len(read_partition(folder, "p", parts=False).parts) == 0
    assert np.load(folder / "partitions" / "p.npz")["parts"].tolist() == made.parts.tolist()
    # The id is that of the parts.
    wide = partition_of(folder, "b-2", parts=made.parts.astype(np.int64))
    assert write_partition(folder, wide).id == stored.id
    other = partition_of(folder, "c", parts=made.parts[::-1])
    assert write_partition(folder, other).id != stored.id
    refuses("has a partition 'c' already", write_partition, folder, other)
    refuses("another graph", write_partition, folder, replace(other, name="d", graph_id="0" * 32))
    write_partition(folder, partition_of(folder, "c", k=4), overwrite=True)
    assert read_partition(folder, "c").k == 4
    assert list_partitions(folder) == ["b-2", "c", "p"]
    remove_partition(folder, "c")
    assert (list_partitions(folder), has_partition(folder, "c")) == (["b-2", "p"], False)
    for name in ("", "../x", "a/b", ".hidden", "-k", "a b", "a" * 300):
        refuses("is not a valid name for a partition", has_partition, folder, name)
    refuses("unknown partition", remove_partition, folder, "c")
    refuses("did you mean 'b-2'", read_partition, folder, "b-4")


CHANGES = [
    {"colour": "red"}, {"k": float("inf")}, {"k": 10**30}, {"k": 0}, {"k": None}, {"k": True},
    {"seed": "x"}, {"imbalance": float("nan")}, {"options": []}, {"metrics": {"up": {}}},
    {"metrics": {"in": 3}}, {"metrics": {"in": {"k": 3}}}, {"options": {"balance": 3}},
    {"nodes": {"in": {"ranks_per_node": 0}}}, {"options": {"ranks_per_node": 0}},
    {"history": [{"step": "a", "seconds": 1, "volume": 3}]}, {"history": [{"seconds": 0.5}]},
    {"nodes": 7}, {"history": [1]}, {"seconds": None}, {"id": 5}, {"deterministic": 1},
    {"direction": "up"}, {"graph_id": None}, {"tool": ["a"]},
]  # fmt: skip


def test_damaged_partitions_are_refused(folder, tmp_path):
    write_partition(folder, partition_of(folder))
    vector, description = (folder / "partitions" / f"p.{suffix}" for suffix in ("npz", "json"))
    figures = asdict(measured(folder)["in"])
    good, facts = vector.read_bytes(), json.loads(description.read_text())
    other = make_folder(tmp_path / "other.graph", random_graph(12, 40, seed=9))
    for file in (vector, description):
        (other / "partitions" / file.name).write_bytes(file.read_bytes())
    refuses("was made for another graph", read_partition, other, "p")

    vector.write_bytes(good[: len(good) // 2])
    refuses("damaged", read_partition, folder, "p")
    vector.unlink()
    refuses("cannot read", read_partition, folder, "p")
    for parts, says in (
        (np.zeros(11, np.int32), r"parts is of shape \(11,\), not \(12,\)"),
        (np.full(12, 3, np.int32), r"part number outside 0\.\.2"),
        (np.arange(12, dtype=np.int32)[::-1] % 3, r"not hold the parts that p\.json describes"),
    ):
        np.savez(vector, parts=parts)
        refuses(says, read_partition, folder, "p")
    vector.write_bytes(good)
    wrong = [
        {"in": figures},
        {"in": figures | {"k": 4}, "out": figures},
        {"in": figures, "out": figures | {"rows": [1, 2]}},
        {"in": figures, "out": figures | {"nnz": ["a", "b", "c"]}},
    ]
    changes = [*CHANGES, {"mixed": {"in": figures, "out": figures}}]
    for change in (*changes, *({"metrics": each} for each in wrong), {"version": 2}, {"format": 0}):
        description.write_text(json.dumps(facts | change))
        refuses("is damaged|is not a version 1 partition", read_partition, folder, "p")
    description.write_text(json.dumps({key: facts[key] for key in facts if key != "graph_id"}))
    refuses("is damaged: graph_id is missing", read_partition, folder, "p")


def array(*change):
    return lambda folder: change_array(folder, *change)


def facts(**changes):
    return lambda folder: change_json(folder / "manifest.json", **changes)


def send_rows(folder):
    wrong = {of: asdict(replace(m, send_rows=[9, 9, 9])) for of, m in measured(folder).items()}
    change_json(folder / "partitions" / "p.json", metrics=wrong)


SYMMETRIC = {"directed": False, "symmetric_pattern": True, "symmetric_values": True}
LIES = {
    "features.npy does not": [array("features", (5, 1), 9.0)],
    "targets.npy does not": [array("targets", (5, 1), 9.0)],
    "weights.npy does not": [array("weights", 3, 9.0)],
    "labels.npy does not": [array("labels", 3, 0)],
    "ids.npy does not": [array("ids", 3, 1)],
    "there twice": [array("ids", 3, 0)],
    "1 vertices in common": [array("test_mask", 0, True)],
    "not all finite": [array("features", 0, np.nan)],
    "knows of none": [lambda folder: np.save(folder / "val_mask.npy", np.zeros(12, bool))],
    "says 7 classes": [facts(classes=7)],
    "not those of data_id": [facts(sums={}), array("features", (5, 1), 9.0)],
    "not those that the manifest has the id of": [facts(sums={}), array("weights", 3, 9.0)],
    "says symmetric_pattern = True": [facts(**SYMMETRIC)],
    "metrics of direction 'in': send_rows": [send_rows],
}


@pytest.mark.parametrize("says", LIES)
def test_a_check_finds_what_a_folder_lies_about(folder, says):
    write_partition(folder, partition_of(folder, metrics=measured(folder)))
    assert [finding for finding in check_folder(folder) if finding.wrong] == []
    assert "content ids" in run("check", folder).stdout
    for tell in LIES[says]:
        tell(folder)
    wrong = [finding.wrong for finding in check_folder(folder) if finding.wrong]
    assert any(says in text for text in wrong), wrong
    assert run("check", folder, code=2).stderr
    if says[:7] in ("targets", "weights", "labels."):  # which are read when it is opened
        assert f"gcn-partition check {folder}" in refuses(says, open_graph, folder).hint


@pytest.mark.parametrize("at_once", [1 << 15, 2])
def test_symmetry_is_looked_at(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(content, "AT_ONCE", at_once)
    pairs = [(0, 1), (1, 0), (1, 2), (2, 1), (3, 3), (4, 0), (0, 4)]
    graph, path = from_arcs(5, pairs), tmp_path / "g.graph"
    weights = np.arange(graph.nnz, dtype=float)
    zeros = np.where(np.arange(graph.nnz) % 2, -0.0, 0.0)  # which are equal
    for given, symmetric in ((None, True), (zeros, True), (weights, False)):
        write_graph(path, replace(graph, weights=given), source={}, overwrite=True)
        assert open_graph(path).manifest.symmetric_values == symmetric
    change_json(path / "manifest.json", symmetric_values=True)
    refuses("no reverse of equal weight", open_graph, path)
    write_graph(path, from_arcs(3, [(0, 1), (1, 2), (2, 0)]), source={}, overwrite=True)
    change_json(path / "manifest.json", directed=False, symmetric_pattern=True)
    refuses("no reverse of equal weight", open_graph, path)
