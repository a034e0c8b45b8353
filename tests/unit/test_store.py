"""The graph folder and all that it holds: what goes in comes out, what is damaged is refused."""

import errno
import functools
import json
import os
import shutil
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from command_line import as_json, refused, run
from hypothesis import given
from hypothesis import strategies as st
from refusals import raising, refuses
from small_graphs import from_arcs, make_folder, random_graph
from stored_graphs import change_array, change_json
from traced import takes_less_than

import gcnmpi
from gcnmpi.options.config import from_table
from gcnmpi.options.frames import frames_of
from gcnmpi.options.task import SAMPLES, TASKS
from gcnmpi.run.samples.reading import OwnSteps
from partition import PYTHON
from partition.graph import graph as graph_module
from partition.graph import manifest, store
from partition.graph.graph import (
    Graph,
    SparseRows,
    check_rows,
    kept_form,
    known_rows,
    of_split,
    training_rows,
)
from partition.graph.manifest import content_id, data_id
from partition.graph.metrics import measure
from partition.graph.samples import list_samples, read_samples, write_samples
from partition.graph.store import list_partitions, open_graph, read_partition, write_graph
from partition.graph.vertex_pairs import read_pairs, write_pairs
from partition.importing.assemble import attach_files
from partition.importing.data_files import RandomSplit, VertexFiles, attach, draw_masks
from partition.pipeline.adding import add_partition
from partition.pipeline.checking import check_folder


def full_graph(n=12):
    rng, plain = np.random.default_rng(0), random_graph(n, 40)
    weights, features = rng.random(plain.nnz), rng.random((n, 3)).astype(np.float32)
    labels, ids = rng.integers(-1, 4, n).astype(np.int32), np.arange(n, dtype=np.int64) * 7
    masks = {"train": np.arange(n) < 4, "test": np.arange(n) >= 8}
    more = {"ids": ids, "targets": rng.random((n, 2)).astype(np.float32)}
    return Graph(plain.indptr, plain.indices, weights, features, labels, masks, **more)


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path / "g.graph", full_graph(), direction="out")


def partition_of(path, name="p", **changes):
    manifest = open_graph(path).manifest
    parts = np.arange(manifest.n, dtype=np.int32) % 3
    plain = store.Partition(name, parts, 3, manifest.id, "rp", "random", "1", "in")
    return replace(plain, **changes)


def measured(path):
    graph = open_graph(path).graph
    parts = np.arange(graph.n, dtype=np.int32) % 3
    return {direction: measure(graph, parts, 3, direction) for direction in ("in", "out")}


def saved(path, array):
    np.save(path, array)
    return path


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
    assert (manifest.direction, manifest.directed, manifest.weighted) == ("out", True, True)
    assert (manifest.id, manifest.data_id) == (content_id(full_graph()), data_id(full_graph()))
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
    turned = {"train": masks["test"], "test": masks["train"]}
    for change in (
        *({"features": rows} for rows in (graph.features + 1, graph.features.reshape(6, 6), None)),
        *({"masks": some} for some in ({"train": masks["train"]}, turned)),
        *({"labels": graph.labels[::-1]}, {"ids": None}, {"class_names": tuple("abcd")}),
    ):
        assert data_id(replace(graph, **change)) != first, change
    wide = np.arange(600_000, dtype=np.float32).reshape(2, -1)  # of more bytes than a chunk
    ids = {data_id(replace(from_arcs(2, []), features=rows)) for rows in (wide, wide[::-1])}
    assert len(ids) == 2


NUMBERS = [
    *(("indices", 3, v, r"indices.npy has a vertex outside 0\.\.11") for v in (12, -1)),
    ("indices", 1, 0, "the targets of a vertex in indices.npy do not increase"),
    ("indptr", 5, 10**12, "indptr.npy does not increase"),
    ("indptr", 0, 1, "indptr.npy goes from 1 to"),
    ("indptr", 12, 1, "indptr.npy goes from 0 to 1"),
    ("weights", 2, np.nan, "weights.npy has a weight that is not finite"),
    *(("labels", 2, label, r"labels.npy has a label outside -1\.\.3") for label in (4, -2)),
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
    texts = {"tool": "\x1b[2Jx", "options": {"\x07": ["\x9b1m"]}}
    store.write_partition(folder, partition_of(folder, **texts))
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
    for labels in (np.zeros(11, np.int32), np.zeros(12)):
        np.save(folder / "labels.npy", labels)
        refuses(rf"labels.npy holds {labels.dtype}", open_graph, folder)
    # A map that finds no addresses is not damage.
    monkeypatch.setattr(np, "memmap", raising(OSError(errno.ENOMEM, "Cannot allocate memory")))
    refuses(r"cannot map .*indptr\.npy of [\d,]+ bytes", open_graph, folder, error=MemoryError)


DAMAGED = r"is damaged: .*`\$\.{}"
MANIFESTS = [
    ({"version": 99}, "has format version 99, this program reads 1, 2, 3"),
    ({"format": "else"}, "does not describe a graph"), ({"n": 2**40}, "the manifest asks for"),
    ({"n": None}, DAMAGED.format("n")), ({"nnz": 10**30}, DAMAGED.format("nnz")),
    ({"classes": 2**60}, DAMAGED.format("classes")),
    ({"classes": 1}, r"is damaged: labels.npy has a label outside -1..0"),
    ({"direction": "sideways"}, DAMAGED.format("direction")),
    ({"directed": "\x1b[2J" * 99}, DAMAGED.format("directed")),
    ({"source": None}, DAMAGED.format("source")),
    ({"directed": True, "symmetric_pattern": True}, "contradict each other"),
    ({"sums": {"indptr": "0" * 32}}, "contradicts itself about"),
    ({"colour": "red"}, "is damaged: it has an unknown field 'colour'"),
    ({"masks": ["../../elsewhere"]}, DAMAGED.format("masks")),
    ({"masks": ["train", "train"]}, "is damaged: masks"),
]  # fmt: skip


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
    refuses("No space left", store.write_partition, folder, partition_of(folder))
    assert list((folder / "partitions").iterdir()) == []
    monkeypatch.undo()
    assert open_graph(folder).graph.n == 12
    assert [file.name for file in folder.parent.iterdir()] == ["g.graph"]


def test_partitions_of_the_same_arcs_are_kept(folder):
    before = store.write_partition(folder, partition_of(folder, metrics=measured(folder)))
    store.write_partition(folder, partition_of(folder, "damaged"))
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
    store.write_partition(folder, partition_of(folder))
    again = {"source": {}, "overwrite": True}
    with store.partition_lock(folder, "p", "gcnmpi train", exclusive=False):
        refuses(r"g\.graph is in use: gcnmpi train", write_graph, folder, full_graph(), **again)
        refuses("in use: gcnmpi train p ", store.remove_partition, folder, "p")
        with store.partition_lock(folder, "q", "gcn-partition add"):
            lock = store.partition_lock(folder, "q", "gcn-partition add")
            refuses("in use: gcn-partition add q ", lock.__enter__)
    store.remove_partition(folder, "p")
    write_graph(folder, full_graph(), **again)
    assert sorted(os.listdir(folder.parent)) == ["g.graph"]
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


def test_partitions_are_written_listed_and_removed(folder):
    made = partition_of(folder, seed=3, options={"a": 1}, metrics=measured(folder), seconds=0.5)
    stored, found = store.write_partition(folder, made), read_partition(folder, "p")
    np.testing.assert_array_equal(found.parts, made.parts)
    assert (found.parts.dtype, len(stored.id)) == (np.int32, 32)
    assert replace(found, parts=None) == replace(stored, parts=None)
    assert len(read_partition(folder, "p", parts=False).parts) == 0
    # The id is that of the parts.
    wide = partition_of(folder, "b-2", parts=made.parts.astype(np.int64))
    assert store.write_partition(folder, wide).id == stored.id
    other = partition_of(folder, "c", parts=made.parts[::-1])
    assert store.write_partition(folder, other).id != stored.id
    refuses("has a partition 'c' already", store.write_partition, folder, other)
    foreign = replace(other, name="d", graph_id="0" * 32)
    refuses("another graph", store.write_partition, folder, foreign)
    store.write_partition(folder, partition_of(folder, "c", k=4), overwrite=True)
    assert (read_partition(folder, "c").k, list_partitions(folder)) == (4, ["b-2", "c", "p"])
    store.remove_partition(folder, "c")
    assert list_partitions(folder) == ["b-2", "p"]
    for name in ("", "../x", "a/b", ".hidden", "-k", "a b", "a" * 300):
        refuses("is not a valid name for a partition", store.has_partition, folder, name)
    refuses("unknown partition", store.remove_partition, folder, "c")
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
    store.write_partition(folder, partition_of(folder))
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
    wrong = {"k": 4}, {"rows": [1, 2]}, {"nnz": ["a", "b", "c"]}
    pairs = [{"in": figures}, *({"in": figures, "out": figures | each} for each in wrong)]
    changes = [*CHANGES, {"mixed": {"in": figures, "out": figures}}, {"version": 2}, {"format": 0}]
    for change in (*changes, *({"metrics": pair} for pair in pairs)):
        description.write_text(json.dumps(facts | change))
        refuses("is damaged|is not a version 1 partition", read_partition, folder, "p")
    description.write_text(json.dumps({key: facts[key] for key in facts if key != "graph_id"}))
    refuses("is damaged: .*graph_id", read_partition, folder, "p")


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
    "labels.npy does not": [array("labels", 3, 0)], "ids.npy does not": [array("ids", 3, 1)],
    "there twice": [array("ids", 3, 0)], "1 vertices in common": [array("test_mask", 0, True)],
    "not all finite": [array("features", 0, np.nan)],
    "knows of none": [lambda folder: np.save(folder / "val_mask.npy", np.zeros(12, bool))],
    "says 7 classes": [facts(classes=7)],
    "not those of data_id": [facts(sums={}), array("features", (5, 1), 9.0)],
    "not those that the manifest has the id of": [facts(sums={}), array("weights", 3, 9.0)],
    "says symmetric_pattern = True": [facts(**SYMMETRIC)],
    "metrics of direction 'in': send_rows": [send_rows],
}  # fmt: skip


@pytest.mark.parametrize("says", LIES)
def test_a_check_finds_what_a_folder_lies_about(folder, says):
    store.write_partition(folder, partition_of(folder, metrics=measured(folder)))
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
    monkeypatch.setattr(manifest, "AT_ONCE", at_once)
    pairs = [(0, 1), (1, 0), (1, 2), (2, 1), (3, 3), (4, 0), (0, 4)]
    graph, path = from_arcs(5, pairs), tmp_path / "g.graph"
    weights = np.arange(graph.nnz, dtype=float)
    zeros = np.where(np.arange(graph.nnz) % 2, -0.0, 0.0)  # which are equal
    for some, symmetric in ((None, True), (zeros, True), (weights, False)):
        write_graph(path, replace(graph, weights=some), source={}, overwrite=True)
        assert open_graph(path).manifest.symmetric_values == symmetric
    change_json(path / "manifest.json", symmetric_values=True)
    refuses("no reverse of equal weight", open_graph, path)
    write_graph(path, from_arcs(3, [(0, 1), (1, 2), (2, 0)]), source={}, overwrite=True)
    change_json(path / "manifest.json", directed=False, symmetric_pattern=True)
    refuses("no reverse of equal weight", open_graph, path)


# Files of an earlier version, as they were stored then

STORED = Path(__file__).parent / "stored"


@pytest.mark.parametrize("version", sorted(path.name for path in STORED.iterdir()))
def test_files_of_an_earlier_version_give_the_same_numbers(version, tmp_path):
    folder = shutil.copytree(STORED / version, tmp_path / "stored")
    for graph in folder.glob("*.graph"):
        run("check", graph)
        for partition in graph.glob("partitions/*.json"):
            assert read_partition(graph, partition.stem).k == 2
    out = tmp_path / "found.npy"
    words = ["infer", folder / "directed.graph", "--weights", folder / "weights.npz", "--out", out]
    subprocess.run([*PYTHON, "gcnmpi", *words, "--set", "dtype=float64"], check=True)
    np.testing.assert_allclose(np.load(out), np.load(folder / "logits.npy"), rtol=1e-12)


@pytest.mark.parametrize("path", sorted((STORED.parent / "folders").iterdir()), ids=str)
def test_folders_are_what_they_were_and_are_written_so_again(path, tmp_path):
    assert [finding for finding in check_folder(path) if finding.wrong] == []
    opened, again = open_graph(path), tmp_path / path.name
    write_graph(again, opened.graph, source=opened.manifest.source)
    store.write_partition(again, read_partition(path, "rp-2"))
    write_pairs(again, read_pairs(path, "links"))
    of = read_samples(path, "steps")
    write_samples(again, of.name, of.states, of.targets, ranges=of.ranges, made=of.made)
    for file in (*again.rglob("*.npy"), *again.rglob("*.json")):
        assert file.read_bytes() == (path / file.relative_to(again)).read_bytes(), file


# Masks that are drawn at random, at import and afterwards

N = 1000
LABELS = np.random.default_rng(0).integers(-1, 5, N).astype(np.int32)
GRAPH = replace(from_arcs(N, [(0, 1)]), labels=LABELS)
KNOWN, SEEDS = LABELS >= 0, st.integers(0, 2**64 - 1)


def sizes(masks):
    return {name: np.count_nonzero(mask, axis=0).tolist() for name, mask in masks.items()}


def test_some_of_each_class():
    labels = LABELS.copy()
    labels[np.flatnonzero(labels == 4)[7:]] = -1
    graph = replace(GRAPH, labels=labels)
    masks = draw_masks(graph, RandomSplit("per-class:20,100,300", splits=2, seed=3))
    for column in range(2):
        chosen = labels[masks["train"][:, column]]
        assert np.bincount(chosen).tolist() == [20, 20, 20, 20, 7]
    assert sizes(masks) == {"train": [87, 87], "val": [100, 100], "test": [300, 300]}
    assert not (sum(mask.astype(int) for mask in masks.values()) > 1).any()
    assert not masks["test"][labels < 0].any()


def test_it_depends_on_seed_split_and_id_only():
    rule = "random:0.5,0.25,0.25"
    kinds = {"splits": 5, "seed": 1}, {"splits": 2, "seed": 1}, {"seed": 2}
    masks, again, other = (draw_masks(GRAPH, RandomSplit(rule, **kind)) for kind in kinds)
    for name, mask in masks.items():
        np.testing.assert_array_equal(mask[:, :2], again[name])
        assert (mask[:, 0] != other[name]).any()
    order = np.random.default_rng(5).permutation(N)
    for ids in (order, 7 * order + 3, np.char.zfill(order.astype(str), 4)):
        moved = replace(GRAPH, labels=LABELS[order], ids=ids)
        for name, mask in draw_masks(moved, RandomSplit(rule, splits=5, seed=1)).items():
            np.testing.assert_array_equal(mask, masks[name][order])


@given(st.integers(1, 60), st.tuples(*[st.integers(1, 33)] * 3), st.integers(1, 3), SEEDS)
def test_masks_never_overlap(n, shares, splits, seed):
    targets = np.pad(np.ones((n, 1), np.float32), ((0, 3), (1, 0)), constant_values=np.nan)
    graph = replace(from_arcs(n + 3, []), targets=targets)  # of three vertices nothing is known
    split = RandomSplit("random:" + ",".join(f"0.{share:02}" for share in shares), splits, seed)
    if n * min(shares) < 100:
        refuses("no vertex is left for", draw_masks, graph, split)
        return
    masks = draw_masks(graph, split)
    assert list(sizes(masks).values()) == [
        n * share // 100 if splits == 1 else [n * share // 100] * splits for share in shares
    ]
    assert max(sum(mask.astype(int) for mask in masks.values()).ravel()) == 1
    assert not any(mask[n:].any() for mask in masks.values())


RULES = {
    **dict.fromkeys(("", "0.6,0.2,0.2", "random:0.6,0.2", "random:0.6,0.2,-0.2"), "is not a rule"),
    **dict.fromkeys(("random:1e999999999,0,0", "random:nan,0,0"), "is not a rule"),
    "per-class:0.5,1,1": "is not a rule",
    "random:0.6,0.3,0.2": "add up to 1.1",
    "random:0,0.5,0.5": "no vertex to train on",
    "per-class:0,10,10": "no vertex to train on",
}


def test_malformed_rules_are_refused():
    usual = "random:0.6,0.2,0.2"
    for rule, says in RULES.items():
        refuses(says, RandomSplit, rule)
    for splits, seed, says in ((0, 0, "0 splits"), (10**9, 0, "splits"), (1, -1, "seed -1")):
        refuses(says, RandomSplit, usual, splits, seed)
    many = RandomSplit("per-class:20,400,400")
    refuses("800 vertices are to validate and test, but", draw_masks, GRAPH, many)
    for rule, says in ((usual, "needs a graph with labels"), (many.rule, "with classes")):
        refuses(says, draw_masks, replace(GRAPH, labels=None), RandomSplit(rule))


def test_drawn_masks_replace_those_of_files_and_the_other_way_round(tmp_path):
    folder = tmp_path / "g.graph"
    write_graph(folder, GRAPH, source={"file": "g.txt"})
    np.save(tmp_path / "train.npy", KNOWN)
    run("attach", folder, "--train-mask", tmp_path / "train.npy")
    words = ["--split", "per-class:20,100,300", "--splits", 2, "--seed", 4]
    facts = as_json("attach", folder, *words)
    split = {"rule": "per-class:20,100,300", "splits": 2, "seed": 4}
    assert facts["manifest"]["source"] == {"file": "g.txt", "split": split}
    assert facts["summary"]["masks"] == {"train": 100, "val": 100, "test": 300}
    stored = open_graph(folder).graph
    for name, mask in draw_masks(GRAPH, RandomSplit("per-class:20,100,300", 2, 4)).items():
        np.testing.assert_array_equal(stored.masks[name], mask)
    run("attach", folder, "--split", "random:0.6,0.2,0.2")
    assert open_graph(folder).graph.splits == 1
    file = "--train-mask", tmp_path / "train.npy"
    assert "does not go with files of masks" in refused("attach", folder, *words, *file)
    assert "but not how" in refused("attach", folder, "--splits", 2)


# Targets and several splits: how they are read, checked and shown

NAN = np.nan
SIX = 6
PLAIN = from_arcs(SIX, [(0, 1), (1, 2), (4, 5)])
TARGETS = np.array([[1, 0], [0, NAN], [NAN, NAN], [1, 1], [0, 0], [NAN, 1]])


def test_targets_are_kept_as_float32_where_that_loses_nothing(tmp_path):
    for dtype in (np.float64, np.float32, bool, np.int64):
        values = np.nan_to_num(TARGETS).astype(dtype)
        graph = attach(PLAIN, VertexFiles(targets=saved(tmp_path / "t.npy", values)))
        assert graph.targets.dtype == np.float32
        np.testing.assert_array_equal(graph.targets, values)
    values = np.array([0.1, NAN, 3, 4, 5, 1e300])  # all digits, and a vector is a column
    graph = attach(PLAIN, VertexFiles(targets=saved(tmp_path / "t.npy", values)))
    assert graph.targets.dtype == np.float64
    np.testing.assert_array_equal(graph.targets[:, 0], values)
    (tmp_path / "t.csv").write_text("id,a,b\n5,nan,1\n4,0,0\n3,1,1\n2,nan,nan\n1,0,nan\n0,1,0\n")
    np.savez(tmp_path / "t.npz", y=TARGETS, other=np.zeros(3))
    for name in ("t.csv", "t.npz"):
        graph = attach(PLAIN, VertexFiles(targets=tmp_path / name))
        np.testing.assert_array_equal(graph.targets, TARGETS)


def test_other_targets_are_refused(tmp_path):
    for values, says in (
        (np.zeros(5), "has 5 rows, the graph has 6 vertices"),
        (np.full((6, 2), np.inf), "target 0 of vertex 0 is infinite"),
        (np.array(["a"] * 6), "targets are rows of numbers"),
        (np.zeros((6, 2, 2)), "targets are rows of numbers"),
    ):
        refuses(says, attach, PLAIN, VertexFiles(targets=saved(tmp_path / "t.npy", values)))
    caught = refuses(".", attach, PLAIN, VertexFiles(labels=saved(tmp_path / "l.npy", TARGETS)))
    assert "--targets" in caught.hint


def test_a_folder_keeps_targets_and_splits(tmp_path):
    train = np.zeros((SIX, 3), bool)
    train[[0, 1, 3], [0, 1, 2]] = True
    test = np.arange(SIX) == 5
    masks = {"train": train.astype(int), "test": test}
    masks = {name: saved(tmp_path / f"{name}.npy", mask) for name, mask in masks.items()}
    targets = saved(tmp_path / "t.npy", TARGETS)
    graph = attach(PLAIN, VertexFiles(targets=targets, masks=masks))
    manifest = write_graph(tmp_path / "g.graph", graph, source={})
    assert (manifest.targets, manifest.splits, manifest.classes) == (2, 3, 0)
    stored = open_graph(tmp_path / "g.graph").graph
    np.testing.assert_array_equal(stored.targets, TARGETS)
    np.testing.assert_array_equal(stored.masks["train"], train)
    for split in range(3):
        masks = of_split(stored, split).masks
        np.testing.assert_array_equal(masks["train"], train[:, split])
        np.testing.assert_array_equal(masks["test"], test)
    for split in (3, -1):
        refuses(rf"no split {split}: the masks have 3", of_split, stored, split)
    assert known_rows(stored).tolist() == [True, True, False, True, True, True]
    assert np.flatnonzero(training_rows(stored)).tolist() == [0]
    # All of it is in the hash.
    for change in ({"targets": TARGETS + 1}, {"masks": {**graph.masks, "train": ~train}}):
        assert data_id(replace(graph, **change)) != manifest.data_id
    for damaged, says in ((TARGETS + np.inf, "that is infinite"), (TARGETS[:, :1], "asks for")):
        saved(tmp_path / "g.graph" / "targets.npy", damaged)
        refuses(says, open_graph, tmp_path / "g.graph")


def test_a_mask_of_each_split_in_a_file_of_its_own(tmp_path):
    masks = [np.arange(SIX) == k for k in range(3)]
    for k, mask in enumerate(masks):
        np.save(tmp_path / f"m-{k}.npy", mask)
    np.save(tmp_path / "m-5.npy", masks[0])  # there is no 3 and no 4
    labels = saved(tmp_path / "l.npy", np.arange(SIX) % 2)
    graph = attach(PLAIN, VertexFiles(labels=labels, masks={"train": tmp_path / "m-*.npy"}))
    np.testing.assert_array_equal(graph.masks["train"], np.stack(masks, axis=1))
    np.save(tmp_path / "m-1.npy", np.zeros((SIX, 2), bool))
    for name, says in (("x", r"there is no .*x-0.npy"), ("m", "is one of several files")):
        masks = {"train": tmp_path / f"{name}-*.npy"}
        refuses(says, attach, PLAIN, VertexFiles(labels=labels, masks=masks))


def test_masks_of_splits_are_checked(tmp_path):
    targets, eye = saved(tmp_path / "t.npy", TARGETS), np.eye(SIX, 2, dtype=bool)
    none = np.zeros((SIX, 2), bool)
    for train, val, says in (
        (np.full((SIX, 2), 2), none, "several splits holds bool, or 0 and 1"),
        (eye, np.zeros((SIX, 3), bool), "numbers of splits: train 2, val 3"),
        (eye, eye, "of split 0 have 1 vertices in"),
        (np.tile(np.arange(SIX) == 2, (2, 1)).T, none, "has vertex 2, which has no label"),
    ):
        named = {"train": train, "val": val}.items()
        files = {name: saved(tmp_path / f"{name}.npy", mask) for name, mask in named}
        refuses(says, attach, PLAIN, VertexFiles(targets=targets, masks=files))


# Features that are kept as CSR: what they read like, when they are, what is refused


def random_rows(n=50, width=200, filled=0.03):
    random = np.random.default_rng(2)
    values = random.standard_normal((n, width)).astype(np.float32)
    dense = np.where(random.random((n, width)) < filled, values, np.float32(0))
    dense[7] = dense[0] = dense[-1] = 0
    return dense


def test_it_reads_like_the_dense_array():
    dense = random_rows()
    sparse = kept_form(dense, "sparse")
    for name in ("shape", "dtype", "ndim", "size", "nbytes"):
        assert getattr(sparse, name) == getattr(dense, name)
    np.testing.assert_array_equal(np.asarray(sparse), dense)
    assert sparse.tobytes() == dense.tobytes()
    assert np.asarray(sparse, np.float64).dtype == np.float64
    picked = np.array([3, 0, 49, 3])
    for rows in (slice(None), slice(10, 20), slice(48, 99), slice(5, 5), slice(30, 10)):
        np.testing.assert_array_equal(np.asarray(sparse[rows]), dense[rows])
        np.testing.assert_array_equal(np.asarray(sparse[rows, 10:60]), dense[rows, 10:60])
        np.testing.assert_array_equal(np.asarray(sparse[rows][2:7]), dense[rows][2:7])
    np.testing.assert_array_equal(sparse[picked], dense[picked])
    np.testing.assert_array_equal(sparse[10:20, 5:9][np.array([4, 1])], dense[10:20, 5:9][[4, 1]])
    np.testing.assert_array_equal(sparse[dense[:, 1] == 0], dense[dense[:, 1] == 0])


def test_what_is_kept_sparse(monkeypatch):
    for filled, least, sparse in ((0.03, 0, 1), (0.2, 0, 0), (0.03, 1 << 20, 0), (0.0, 0, 0)):
        monkeypatch.setattr("partition.graph.graph.LEAST_BYTES", least)
        dense = random_rows(filled=filled)
        assert isinstance(kept_form(dense), SparseRows) == sparse
        assert isinstance(kept_form(dense, "sparse"), SparseRows) == bool(filled)
        for form in (dense, kept_form(random_rows(), "sparse")):
            assert isinstance(kept_form(form, "dense"), np.ndarray)
        assert isinstance(kept_form(kept_form(random_rows(), "sparse")), SparseRows)
    assert kept_form(None) is None


def graph_with(features):
    return replace(from_arcs(len(features), [(0, 1)]), features=features)


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_folder_keeps_them_in_their_form_and_gives_them_back(tmp_path, monkeypatch, form):
    monkeypatch.setattr("partition.graph.graph.LEAST_BYTES", 0)  # they are worth being sparse
    dense = random_rows()
    graph = replace(graph_with(dense), labels=np.zeros(50, np.int32))
    path = make_folder(tmp_path / "g.graph", graph, keep_features=form)
    np.save(tmp_path / "train.npy", np.array([1, 5]))
    attach_files(path, masks={"train": tmp_path / "train.npy"})
    stored = open_graph(path)
    entries = np.count_nonzero(dense) if form == "sparse" else 0
    assert stored.manifest.feature_entries == entries
    assert stored.graph.masks["train"].nonzero()[0].tolist() == [1, 5]
    assert isinstance(stored.graph.features, SparseRows) == (form == "sparse")
    np.testing.assert_array_equal(np.asarray(stored.graph.features), dense)


def test_damage_is_found(tmp_path):
    path = make_folder(tmp_path / "g.graph", graph_with(random_rows()), keep_features="sparse")
    for part, value, says in (
        ("indptr", 10**6, "goes from"),
        *(("indices", column, "outside of them") for column in (200, -1)),
    ):
        good = np.load(path / f"features_{part}.npy")
        change_array(path, f"features_{part}", -1, value)
        assert says in run("check", path, code=2).output
        np.save(path / f"features_{part}.npy", good)
    rows = kept_form(random_rows(), "sparse")
    assert check_rows(rows, 0, 50) is None
    row = int(np.flatnonzero(np.diff(rows.indptr) > 1)[0])
    rows.indices[rows.indptr[row]] = rows.indices[rows.indptr[row] + 1]
    assert "do not rise" in check_rows(rows, 0, 50)


# Sets of samples: what they may be made of, and mistakes in one line

FIVE, STEPS = 5, 20


@pytest.fixture
def graph(tmp_path):
    return make_folder(tmp_path / "g.graph", from_arcs(FIVE, []))


@pytest.fixture
def states():
    return np.random.default_rng(0).normal(size=(STEPS, FIVE, 2))


MISTAKES = [
    ({"ranges": {"train": (0, 9)}}, "ranges are lists of (start, stop)"),
    ({"ranges": {"train": [(0, 9)], "dev": [(9, 12)]}}, "unknown mask of ranges 'dev'"),
    ({"ranges": {"train": [(0, 9), (8, 12)]}}, "step 8 is twice in train"),
    ({"ranges": {"train": [(0, 9)], "val": [(8, 12)]}}, "step 8 is in train and in val"),
    *(({"ranges": {"train": [(9, i)]}}, f"9:{i} of train is not within the 20") for i in (9, 21)),
    ({"ranges": {"val": [(0, 9)]}}, "no step to train on"),
    ({"states": np.ones((STEPS, FIVE), bool)}, "states are bool, no numbers"),
    ({"states": "states.npy"}, "no numbers"),
    ({"states": np.ones((0, FIVE, 1))}, "not (steps, 5, columns)"),
    ({"targets": np.ones((STEPS - 1, FIVE, 1))}, "not (20, 5, columns)"),
    ({"states": np.full((STEPS, FIVE, 1), np.inf)}, "states of step 0 have an infinite number"),
    ({"name": "a/b"}, "'a/b' is not a valid name for samples"),
]


def test_mistakes_leave_nothing_behind(graph, states):
    add = gcnmpi.graph.open(graph).add_samples
    for some, says in MISTAKES:
        assert says in refuses(".", add, **{"states": states} | some).message
    assert list_samples(graph) == []


def test_links_are_files_that_ranks_can_read(graph, states, tmp_path):
    """They read rows at places in the file, which are others in Fortran order."""
    for name, some in (("c", states), ("f", np.asfortranarray(states)), ("i", states.astype(int))):
        file = saved(tmp_path / f"{name}.npy", some)
        run("samples", graph, "--states", file, "--name", name, "--link")
        found = read_samples(graph, name, check=True)
        assert (found.folder / "states.npy").samefile(file) == (name == "c")
        assert found.states.flags.c_contiguous
        np.testing.assert_array_equal(found.states, some)


def test_the_command_tells_mistakes_in_one_line(graph, states, tmp_path):
    file = saved(tmp_path / "s.npy", states)
    for words, says in (
        (["--name", "../x"], "is not a valid name for samples"),
        (["--train", "0:9", "--split", "0.5,0.2,0.3"], "exclude each other"),
        (["--train", ":9"], "--train takes ranges of steps"),
        (["--split", "7,1,2"], "three shares that add up to 1"),
    ):
        assert says in refused("samples", graph, "--states", file, *words)
    run("samples", graph, "--states", file, "--split", "0.5,0.2,0.3")
    assert read_samples(graph, "samples").ranges["test"] == [(14, 20)]


def test_rows_of_a_graph_with_ids_are_of_vertices_that_are_said(tmp_path):
    ids = [773869, 767541, 767542]  # of the sensors, in the order of the arrays
    path = make_folder(tmp_path / "g.graph", replace(from_arcs(3, []), ids=np.sort(ids)))
    (tmp_path / "ids.txt").write_text("".join(f"{name}\n" for name in ids))
    values = np.arange(60.0).reshape(10, 3, 2)
    file = saved(tmp_path / "s.npy", values)
    assert "767541, 767542, 773869" in refused("samples", path, "--states", file)
    made = gcnmpi.graph.open(path)
    refuses("--ids", made.add_samples, states=values)
    for said, order in ((tmp_path / "ids.txt", [1, 2, 0]), ("sorted", [0, 1, 2])):
        wanted = values[:, order]
        words = ("--states", file, "--targets", file, "--ids", said, "--force", "--link")
        run("samples", path, *words)
        found = read_samples(path, "samples", check=True)
        np.testing.assert_array_equal(found.states, wanted)
        np.testing.assert_array_equal(found.targets, wanted)
    refuses("no vertex 9", made.add_samples, states=values, ids=[9, 767541, 767542])


def test_samples_begin_with_their_history_and_columns_have_scales(graph):
    equal, states = np.array([0.1, 0.7, 1 / 3, 1e9 / 3, 2 / 7]), np.empty((20, FIVE, 6))
    states[:, :, 0] = np.arange(20.0)[:, None] + np.arange(FIVE)
    states[:, :, 1:] = equal
    made = gcnmpi.graph.open(graph).add_samples(states, ranges={"train": [(0, 5), (10, 20)]})
    assert made.anchors("train", 3, 2).tolist() == [2, 12, 13, 14, 15, 16, 17]
    assert made.anchors("train", 3, 3).tolist() == [12, 13, 14, 15, 16]
    mean, deviation = made.scales()
    train = states[[*range(5), *range(10, 20)], :, 0]
    np.testing.assert_allclose(mean, [train.mean(), *equal])
    np.testing.assert_allclose(deviation, [train.std(), *[1] * 5])  # of equal numbers it is 1


# Frames over time: their columns, and what options of them do not go together


def task_of(**options):
    return from_table({"task": {"name": "samples", **options}}).task


def test_options_that_do_not_go_together_are_one_line(graph):
    for options, told in (
        ({"horizon": 2, "rollout": 2}, "one frame at once"),
        ({"rollout_gradient": "last"}, "applied once"),
        ({"on": "arcs"}, "vertices"),
        ({"history": 0}, "task.history"),
    ):
        refuses(told, task_of, **options)
    refuses("a frame has 2 columns", frames_of, task_of(predicted=3), 0, 2)
    refuses("has no samples", TASKS.get(SAMPLES).examples, open_graph(graph), task_of())


def test_a_file_of_states_that_is_cut_off_or_gone_is_said(tmp_path):
    file = tmp_path / "states.npy"
    np.save(file, np.arange(60.0).reshape(5, 4, 3))
    array, rows = np.load(file, mmap_mode="r"), np.array([3, 0])
    steps = OwnSteps(file, array, rows)
    np.testing.assert_array_equal(steps.read(4), array[4, rows])
    os.truncate(file, file.stat().st_size - 8)
    refuses("ends within step 4", steps.read, 4)
    file.unlink()
    refuses("cannot read", OwnSteps, file, array, rows)
