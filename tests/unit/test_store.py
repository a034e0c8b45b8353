"""The graph folder: what goes in comes out, and what is damaged is refused by name."""

import errno
import itertools
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import numpy as np
import pytest
from command_line import run
from refusals import raising, refuses
from small_graphs import from_arcs, make_folder, random_graph
from stored_graphs import change_array, change_json
from traced import takes_less_than

from partition.errors import UserError
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
from partition.records import read_npz


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
    facts = asdict(graph)
    assert facts.pop("class_names") is None
    assert not facts.pop("parallel")
    for name in ("vertex_types", "relations", "arc_type", "type_features"):
        assert not facts.pop(name)
    facts |= facts.pop("masks") | graph.arc_data.columns()
    return {name: found for name, found in facts.items() if name != "arc_data"}


def test_round_trip(folder):
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
    assert manifest.id == content_id(full_graph())
    assert isinstance(opened.graph.features, np.memmap)


def test_the_plainest_graphs(tmp_path):
    for name, graph in {
        "bare": from_arcs(3, [(0, 1)]),
        "edgeless": from_arcs(3, []),
        "empty": Graph(np.zeros(1, np.int64), np.empty(0, np.int32)),
    }.items():
        path = tmp_path / f"{name}.graph"
        write_graph(path, graph, source={})
        opened = open_graph(path)
        assert (opened.graph.n, opened.graph.nnz) == (graph.n, graph.nnz)
        assert opened.graph.features is opened.graph.labels is opened.graph.weights is None


def test_the_id_is_that_of_the_structure():
    graph = full_graph()
    assert content_id(replace(graph, features=None, labels=None)) == content_id(graph)
    assert content_id(replace(graph, weights=graph.weights * 2)) != content_id(graph)
    assert content_id(random_graph(12, 40, seed=1)) != content_id(random_graph(12, 40))
    # Nothing but isolated vertices: only n tells them apart.
    assert content_id(from_arcs(3, [])) != content_id(from_arcs(4, []))


def test_the_data_id_is_that_of_what_belongs_to_the_vertices():
    graph = full_graph()
    first = data_id(graph)
    assert data_id(replace(graph, weights=None)) == first
    for change in (
        {"features": graph.features + 1}, {"features": graph.features.reshape(6, 6)},
        {"features": None}, {"labels": graph.labels[::-1]}, {"ids": None},
        {"class_names": ("a", "b", "c", "d")}, {"masks": {"train": graph.masks["train"]}},
        {"masks": {"train": graph.masks["train"], "val": graph.masks["test"]}},
        {"masks": {"train": graph.masks["test"], "test": graph.masks["train"]}},
    ):  # fmt: skip
        assert data_id(replace(graph, **change)) != first, change
    wide = np.arange(600_000, dtype=np.float32).reshape(2, -1)  # of more bytes than a chunk
    assert data_id(replace(from_arcs(2, []), features=wide)) != data_id(
        replace(from_arcs(2, []), features=wide[::-1])
    )


def test_a_folder_of_version_1_is_read(folder):
    file = folder / "manifest.json"
    assert json.loads(file.read_text())["data_id"] == data_id(full_graph())
    change_json(file, "data_id", version=1)
    assert open_graph(folder).manifest.data_id == ""


@pytest.mark.parametrize(
    ("name", "at", "value", "message"),
    [
        ("indices", 3, -1, r"indices.npy has a vertex outside 0\.\.11"),
        ("indices", 3, 2 * 10**9, r"indices.npy has a vertex outside 0\.\.11"),
        ("indices", 1, 0, "the targets of a vertex in indices.npy do not increase"),
        ("indptr", 5, 10**12, "indptr.npy does not increase"),
        ("indptr", 5, -3, "indptr.npy does not increase"),
        ("indptr", 0, 1, "indptr.npy goes from 1 to"),
        ("indptr", 12, 1, "indptr.npy goes from 0 to 1"),
        ("weights", 2, np.nan, "weights.npy has a weight that is not finite"),
        ("labels", 2, 400, r"labels.npy has a label outside -1\.\.3"),
        ("labels", 2, -2, r"labels.npy has a label outside -1\.\.3"),
    ],
)
@pytest.mark.parametrize("at_once", [1 << 20, 3])
def test_numbers_that_no_graph_has_are_refused(
    folder, monkeypatch, name, at, value, message, at_once
):
    monkeypatch.setattr(graph_module, "_STEP", at_once)
    assert open_graph(folder).graph.indptr[1] > 2
    change_array(folder, name, at, value)
    refuses(message, open_graph, folder)
    refuses(message, add_partition, folder, "gp", 2)


def test_texts_out_of_files_do_not_steer_terminals(folder):
    write_partition(folder, partition_of(folder, tool="\x1b[2Jx", options={"\x07": ["\x9b1m"]}))
    found = read_partition(folder, "p")
    assert (found.tool, found.options) == (r"\x1b[2Jx", {r"\x07": [r"\x9b1m"]})


@pytest.mark.parametrize("name", ["manifest.json", "indices.npy", "partitions/p.npz",
                                  "partitions/p.json"])  # fmt: skip
def test_pipes_are_not_waited_for(folder, name):
    write_partition(folder, partition_of(folder))
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(UserError, match="it is not a regular file"):
        open_graph(folder) and read_partition(folder, "p")


def test_a_description_of_any_length_is_refused(folder):
    write_partition(folder, partition_of(folder))
    for name in ("manifest.json", "partitions/p.json"):
        os.truncate(folder / name, 1 << 40)
        refuses("is damaged: it is longer than", read_partition, folder, "p")
        (folder / name).write_text((folder / name).open().read(20_000).rstrip("\0"))


def test_a_part_vector_out_of_proportion_is_refused(folder):
    write_partition(folder, partition_of(folder))
    np.savez_compressed(folder / "partitions" / "p.npz", parts=np.zeros(10**7, np.int32))

    def refused():
        refuses("parts is of shape", read_partition, folder, "p")

    assert takes_less_than(1 << 20, refused)


def test_partitions_behind_a_link_out_of_the_folder_are_refused(folder, tmp_path):
    inside, outside = folder / "partitions", tmp_path / "elsewhere"
    inside.rename(outside)
    before = sorted(outside.iterdir())
    for target in (outside, tmp_path / "gone", ".."):
        inside.symlink_to(target)
        for use in (
            lambda: list_partitions(folder),
            lambda: has_partition(folder, "hp-3"),
            lambda: read_partition(folder, "hp-3"),
            lambda: remove_partition(folder, "hp-3"),
            lambda: partition_lock(folder, "hp-3", "a test").__enter__(),
        ):
            refuses("partitions is a link that leads out of", use)
        inside.unlink()
    assert sorted(outside.iterdir()) == before
    outside.rename(folder / "kept")
    inside.symlink_to("kept")
    assert list_partitions(folder) == [path.stem for path in before if path.suffix == ".json"]


@pytest.mark.parametrize("name", ["features.npy", "partitions/secret.npz", "manifest.json"])
def test_what_a_link_points_to_is_not_shown(folder, tmp_path, name):
    (tmp_path / "secret").write_text("hunter2: a secret\n")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "secret")
    with pytest.raises(UserError) as found:
        read_npz(folder / name) if name.endswith("npz") else open_graph(folder)
    assert "hunter2" not in str(found.value)


def test_a_map_that_finds_no_addresses_is_not_damage(folder, monkeypatch):
    full = raising(OSError(errno.ENOMEM, "Cannot allocate memory"))
    monkeypatch.setattr(np, "memmap", full)
    refuses(r"cannot map .*indptr\.npy of [\d,]+ bytes", open_graph, folder, error=MemoryError)


@pytest.mark.parametrize("name", ["indptr", "indices", "weights", "features", "labels", "ids"])
def test_a_truncated_array_is_refused(folder, name):
    file = folder / f"{name}.npy"
    file.write_bytes(file.read_bytes()[:-5])
    refuses(rf"{name}\.npy is damaged or truncated", open_graph, folder)


@pytest.mark.parametrize("name", ["indptr", "indices", "features", "train_mask"])
def test_a_missing_array_is_refused(folder, name):
    (folder / f"{name}.npy").unlink()
    refuses(rf"{name}\.npy is missing", open_graph, folder)


def test_an_array_of_another_shape_or_type_is_refused(folder):
    np.save(folder / "labels.npy", np.zeros(11, np.int32))
    refuses(r"holds int32 \(11,\), the manifest asks for \(12,\)", open_graph, folder)
    np.save(folder / "labels.npy", np.zeros(12))
    refuses("holds float64", open_graph, folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "has format version 99, this program reads 1, 2, 3"),
        ({"format": "else"}, "does not describe a graph"),
        ({"n": 13}, "the manifest asks for"),
        ({"n": None}, "is damaged: n cannot be None"),
        ({"n": -12}, "is damaged: n cannot be -12"),
        ({"n": True}, "is damaged: n cannot be True"),
        ({"nnz": 10**30}, "is damaged: nnz cannot be 1000"),
        ({"n": 2**40}, "the manifest asks for"),
        ({"classes": 2**60}, "is damaged: classes cannot be"),
        ({"classes": 1}, r"is damaged: labels.npy has a label outside -1..0"),
        ({"direction": "sideways"}, "is damaged: direction cannot be 'sideways'"),
        ({"directed": "\x1b[2J" * 99}, r"is damaged: directed cannot be '\\\\x1b"),
        ({"source": None}, "is damaged: source cannot be None"),
        ({"colour": "red"}, "is damaged: it has an unknown field 'colour'"),
        ({"masks": ["train", "9" * 999]}, "is damaged: masks does not hold what it should"),
        ({"masks": ["../../elsewhere"]}, "is damaged: masks does not hold what it should"),
        ({"masks": [["train"]]}, "is damaged: masks does not hold what it should"),
        ({"masks": ["train", "train"]}, "is damaged: masks does not hold what it should"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(folder, change, message):
    change_json(folder / "manifest.json", **change)
    refuses(message, open_graph, folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "gcnmpi-graph", "version": 1}'])
def test_a_manifest_that_is_none_is_refused(folder, text):
    (folder / "manifest.json").write_text(text)
    refuses(r"manifest\.json", open_graph, folder)


def test_no_graph_folder(tmp_path):
    refuses("there is no graph folder", open_graph, tmp_path / "none.graph")
    (tmp_path / "other.graph").mkdir()
    refuses(r"has no manifest\.json", open_graph, tmp_path / "other.graph")
    with pytest.raises(UserError, match="is not a graph folder and is not replaced"):
        write_graph(tmp_path / "other.graph", full_graph(), source={}, overwrite=True)
    refuses(r"ends in \.graph", write_graph, tmp_path / "graph", full_graph(), source={})


def test_a_failure_while_writing_leaves_no_folder(tmp_path, monkeypatch):
    path = tmp_path / "g.graph"
    saves = []

    def fail(file, array, **kwargs):
        saves.append(file)
        if len(saves) == 3:
            raise OSError(28, "No space left on device")
        np.lib.format.write_array(file, array)

    monkeypatch.setattr(store.np, "save", fail)
    refuses("No space left on device", write_graph, path, full_graph(), source={})
    assert list(tmp_path.iterdir()) == []


def test_a_failed_replacement_leaves_the_old_folder(folder, monkeypatch):
    monkeypatch.setattr(store.np, "save", raising(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_graph(folder, random_graph(5, 5), source={}, overwrite=True)
    monkeypatch.undo()
    assert open_graph(folder).graph.n == 12
    assert [file.name for file in folder.parent.iterdir()] == ["g.graph"]


def test_overwriting(folder):
    refuses("is there already", write_graph, folder, random_graph(5, 5), source={})
    write_partition(folder, partition_of(folder))
    write_graph(folder, random_graph(5, 5), source={}, overwrite=True)
    assert open_graph(folder).graph.n == 5
    assert list_partitions(folder) == []


def test_partitions_of_the_same_arcs_are_kept(folder):
    before = write_partition(folder, partition_of(folder, metrics=measured(folder)))
    write_partition(folder, partition_of(folder, "damaged"))
    (folder / "partitions" / "damaged.npz").write_bytes(b"")
    labels = np.zeros(12, np.int32)
    train = {"train": np.arange(12) < 5}
    other = replace(full_graph(), features=None, labels=labels, masks=train)
    write_graph(folder, other, source={}, overwrite=True)
    assert open_graph(folder).graph.features is None
    assert list_partitions(folder) == ["p"]
    kept = read_partition(folder, "p")
    np.testing.assert_array_equal(kept.parts, before.parts)
    assert before.metrics["in"].train == [2, 1, 1]
    assert kept.metrics["in"] == replace(before.metrics["in"], train=[2, 2, 1])  # of the new mask


def test_a_graph_in_use_is_not_replaced_and_its_partition_not_removed(folder):
    write_partition(folder, partition_of(folder))
    with partition_lock(folder, "p", "gcnmpi train", exclusive=False):
        with pytest.raises(UserError, match=r"g\.graph is in use: gcnmpi train"):
            write_graph(folder, full_graph(), source={}, overwrite=True)
        refuses("in use: gcnmpi train p ", remove_partition, folder, "p")
        with (
            partition_lock(folder, "q", "gcn-partition add"),
            pytest.raises(UserError, match="in use: gcn-partition add q "),
            partition_lock(folder, "q", "gcn-partition add"),
        ):
            pass
    remove_partition(folder, "p")
    write_graph(folder, full_graph(), source={}, overwrite=True)
    assert sorted(os.listdir(folder.parent)) == ["g.graph"]
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


def test_writers_of_one_name_never_disagree(folder):
    """One writes again and again while another reads: it finds one whole partition or none."""
    vectors = [np.arange(12, dtype=np.int32) % 3, np.arange(12, dtype=np.int32)[::-1] % 3]
    made = [write_partition(folder, partition_of(folder, "p", parts=vectors[0], seed=0))]
    made += [write_partition(folder, partition_of(folder, "q", parts=vectors[1], seed=1))]

    def write(number):
        for _ in range(10):
            again = replace(made[number], name="p")
            write_partition(folder, again, overwrite=True)

    with ThreadPoolExecutor() as pool:
        writers = [pool.submit(write, number) for number in (0, 1, 0, 1)]
        while not all(writer.done() for writer in writers):
            try:
                found = read_partition(folder, "p")
            except UserError as error:
                assert "'p'" in error.message or "p.json" in error.message  # noqa: PT017
                assert "does not hold" not in error.message  # noqa: PT017
            else:
                assert found.id == made[found.seed].id
        for writer in writers:
            writer.result()
    assert read_partition(folder, "p").parts.tolist() in [v.tolist() for v in vectors]


def test_partition_round_trip(folder):
    made = partition_of(folder, seed=3, options={"a": 1}, metrics=measured(folder), seconds=0.5)
    stored = write_partition(folder, made)
    assert has_partition(folder, "p")
    found = read_partition(folder, "p")
    np.testing.assert_array_equal(found.parts, made.parts)
    assert found.parts.dtype == np.int32
    assert replace(found, parts=None) == replace(stored, parts=None)
    assert len(read_partition(folder, "p", parts=False).parts) == 0
    assert len(stored.id) == 32
    assert np.load(folder / "partitions" / "p.npz")["parts"].tolist() == made.parts.tolist()


def test_the_id_of_a_partition_is_that_of_its_parts(folder):
    first = write_partition(folder, partition_of(folder, "a"))
    wide = partition_of(folder, "b", parts=first.parts.astype(np.int64))
    assert write_partition(folder, wide).id == first.id
    other = partition_of(folder, "c", parts=first.parts[::-1])
    assert write_partition(folder, other).id != first.id


def test_partitions_are_listed_and_removed(folder):
    for name in ("b-2", "a"):
        write_partition(folder, partition_of(folder, name))
    assert list_partitions(folder) == ["a", "b-2"]
    refuses("has a partition 'a' already", write_partition, folder, partition_of(folder, "a"))
    write_partition(folder, partition_of(folder, "a", k=4), overwrite=True)
    assert read_partition(folder, "a").k == 4
    remove_partition(folder, "a")
    assert list_partitions(folder) == ["b-2"]
    assert not has_partition(folder, "a")
    refuses("unknown partition", remove_partition, folder, "a")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "-k", "a b", "a" * 300])
def test_malformed_names(folder, name):
    refuses("is not a valid name for a partition", has_partition, folder, name)


def test_unknown_partition(folder):
    refuses("has no partition 'hp-4', nor any other", read_partition, folder, "hp-4")
    write_partition(folder, partition_of(folder, "hp-3"))
    refuses("did you mean 'hp-3'", read_partition, folder, "hp-4")


def test_a_partition_of_another_graph_is_refused(folder, tmp_path):
    write_partition(folder, partition_of(folder))
    other = make_folder(tmp_path / "other.graph", random_graph(12, 40, seed=9))
    for suffix in ("json", "npz"):
        data = (folder / "partitions" / f"p.{suffix}").read_bytes()
        (other / "partitions" / f"p.{suffix}").write_bytes(data)
    refuses("was made for another graph", read_partition, other, "p")


def test_damaged_partitions_are_refused(folder):
    write_partition(folder, partition_of(folder))
    vector, description = (folder / "partitions" / f"p.{suffix}" for suffix in ("npz", "json"))
    metrics = asdict(measured(folder)["in"])
    good, facts = vector.read_bytes(), json.loads(description.read_text())

    vector.write_bytes(good[: len(good) // 2])
    refuses("damaged", read_partition, folder, "p")
    vector.unlink()
    refuses("cannot read", read_partition, folder, "p")
    np.savez(vector, parts=np.zeros(11, np.int32))
    refuses(r"parts is of shape \(11,\), not \(12,\)", read_partition, folder, "p")
    np.savez(vector, parts=np.full(12, 3, np.int32))
    refuses(r"part number outside 0\.\.2", read_partition, folder, "p")
    vector.write_bytes(good)
    for change in ({"version": 2}, {"format": "x"}):
        description.write_text(json.dumps(facts | change))
        refuses("is not a version 1 partition", read_partition, folder, "p")
    for change in (
        {"colour": "red"}, {"k": float("inf")}, {"k": 10**30}, {"k": 0}, {"k": None}, {"k": True},
        {"seed": "x"}, {"imbalance": float("nan")}, {"options": []}, {"metrics": {"up": {}}},
        {"metrics": {"in": 3}}, {"metrics": {"in": {"k": 3}}}, {"metrics": {"in": metrics}},
        {"metrics": {"in": metrics | {"k": 4}, "out": metrics}},
        {"metrics": {"in": metrics, "out": metrics | {"rows": [1, 2]}}},
        {"nodes": {"in": {"ranks_per_node": 0}}}, {"mixed": {"in": metrics, "out": metrics}},
        {"metrics": {"in": metrics, "out": metrics | {"nnz": ["a", "b", "c"]}}},
        {"options": {"balance": 3}}, {"options": {"ranks_per_node": 0}},
        {"history": [{"step": "a", "seconds": 1, "volume": 3}]}, {"history": [{"seconds": 0.5}]},
        {"nodes": 7}, {"history": [1]}, {"seconds": None}, {"id": 5},
        {"deterministic": 1}, {"direction": "up"}, {"graph_id": None}, {"tool": ["a"]},
    ):  # fmt: skip
        description.write_text(json.dumps(facts | change))
        refuses("is damaged", read_partition, folder, "p")
    description.write_text(json.dumps({key: facts[key] for key in facts if key != "graph_id"}))
    refuses("is damaged: graph_id is missing", read_partition, folder, "p")
    description.write_text(json.dumps(facts))
    # A name of a file inside, said to be UTF-8, that is not.
    names = good.replace(b"parts.npy", b"p\xff\xferts.npy"[:9])
    flagged = bytearray(names)
    for signature, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        flagged[names.index(signature) + place + 1] |= 8
    vector.write_bytes(flagged)
    refuses("damaged", read_partition, folder, "p")


def test_a_failure_while_writing_a_partition_leaves_none(folder, monkeypatch):
    monkeypatch.setattr(os, "replace", raising(OSError(28, "No space left on device")))
    refuses("No space left", write_partition, folder, partition_of(folder))
    assert list((folder / "partitions").iterdir()) == []


def test_parts_of_another_partition_are_refused(folder):
    partition = partition_of(folder)
    write_partition(folder, partition)
    other = replace(partition, name="q", parts=partition.parts[::-1].copy())
    write_partition(folder, other)
    files = folder / "partitions"
    (files / "p.npz").write_bytes((files / "q.npz").read_bytes())
    refuses(r"does not hold the parts that p\.json describes", read_partition, folder, "p")


def undirected_graph():
    return from_arcs(5, [(0, 1), (1, 0), (1, 2), (2, 1), (3, 3), (4, 0), (0, 4)])


LIES = {
    "flipped feature": (
        lambda f: change_array(f, "features", (5, 1), 9.0),
        "features.npy does not",
    ),
    "flipped target": (lambda f: change_array(f, "targets", (5, 1), 9.0), "targets.npy does not"),
    "other weight": (lambda f: change_array(f, "weights", 3, 9.0), "weights.npy does not"),
    "other label": (lambda f: change_array(f, "labels", 3, 0), "labels.npy does not"),
    "other id": (lambda f: change_array(f, "ids", 3, 1), "ids.npy does not"),
    "an id twice": (lambda f: change_array(f, "ids", 3, 0), "there twice"),
    "masks that meet": (lambda f: change_array(f, "test_mask", 0, True), "1 vertices in common"),
    "not finite": (lambda f: change_array(f, "features", 0, np.nan), "not all finite"),
    "a file more": (lambda f: np.save(f / "val_mask.npy", np.zeros(12, bool)), "knows of none"),
    "classes": (lambda f: change_json(f / "manifest.json", classes=7), "says 7 classes"),
    "old, flipped": (
        lambda f: (
            change_json(f / "manifest.json", sums={}),
            change_array(f, "features", (5, 1), 9.0),
        ),
        "not those of data_id",
    ),
    "old, other arc": (
        lambda f: (change_json(f / "manifest.json", sums={}), change_array(f, "weights", 3, 9.0)),
        "not those that the manifest has the id of",
    ),
    "symmetric": (
        lambda f: change_json(
            f / "manifest.json", directed=False, symmetric_pattern=True, symmetric_values=True
        ),
        "says symmetric_pattern = True",
    ),
    "metrics": (
        lambda f: change_json(
            f / "partitions" / "p.json",
            metrics={
                direction: asdict(replace(each, send_rows=[9, 9, 9]))
                for direction, each in measured(f).items()
            },
        ),
        "metrics of direction 'in': send_rows",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_check_finds_what_a_folder_lies_about(folder, lie):
    tell, says = LIES[lie]
    write_partition(folder, partition_of(folder, metrics=measured(folder)))
    assert [finding for finding in check_folder(folder) if finding.wrong] == []
    tell(folder)
    wrong = [finding.wrong for finding in check_folder(folder) if finding.wrong]
    assert any(says in text for text in wrong), wrong


def test_the_command_check(folder):
    assert "content ids" in run("check", folder).stdout
    change_array(folder, "features", (5, 1), 9.0)
    (line, hint) = run("check", folder, code=2).stderr.splitlines()
    assert "features.npy does not hold what the manifest says (and 1 more)" in line
    assert "import the graph again" in hint
    rows = json.loads(run("check", folder, "--json", code=2).stdout)
    assert [row["wrong"] is None for row in rows].count(False) == 2


@pytest.mark.parametrize("lie", ["other weight", "other label", "flipped target"])
def test_opening_compares_what_it_reads_with_the_checksums(folder, lie):
    LIES[lie][0](folder)
    refused = refuses(LIES[lie][1], open_graph, folder)
    assert f"gcn-partition check {folder}" in refused.hint


@pytest.mark.parametrize("at_once", [1 << 15, 2])
def test_symmetry_is_looked_at(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(content, "AT_ONCE", at_once)
    graph, path = undirected_graph(), tmp_path / "g.graph"
    weights = np.arange(graph.nnz, dtype=float)
    write_graph(path, graph, source={})
    assert open_graph(path).manifest.symmetric_values
    zeros = np.where(np.arange(graph.nnz) % 2, -0.0, 0.0)  # which are equal
    write_graph(path, replace(graph, weights=zeros), source={}, overwrite=True)
    assert open_graph(path).manifest.symmetric_values
    write_graph(path, replace(graph, weights=weights), source={}, overwrite=True)
    assert not open_graph(path).manifest.symmetric_values
    change_json(path / "manifest.json", symmetric_values=True)
    refuses("no reverse of equal weight", open_graph, path)
    write_graph(path, from_arcs(3, [(0, 1), (1, 2), (2, 0)]), source={}, overwrite=True)
    change_json(path / "manifest.json", directed=False, symmetric_pattern=True)
    refuses("no reverse of equal weight", open_graph, path)


@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<i8", "?", "<u2", "<U3", ">f4"])
@pytest.mark.parametrize("shape", [(0,), (7,), (90,), (40, 3)])
def test_a_checksum_is_the_sum_of_those_of_its_pieces(monkeypatch, dtype, shape):
    monkeypatch.setattr(content, "AT_ONCE", 16)
    random = np.random.default_rng(0)
    array = random.integers(0, 100, shape).astype(dtype)
    n, whole = shape[0], content.part_of_sum(array, 0, shape[0])
    for cuts in ([0, n], [0, n // 3, n // 2, n], list(range(n + 1))):
        parts = [content.part_of_sum(array, *ends) for ends in itertools.pairwise(cuts)]
        assert sum(parts) % 2**64 == whole
    if n:
        swapped = array.copy()
        swapped[[0, n - 1]] = array[[n - 1, 0]]
        assert (content.part_of_sum(swapped, 0, n) == whole) == np.array_equal(swapped, array)


def test_two_flipped_signs_do_not_cancel():
    features = np.ones((6, 4), np.float32)
    whole = content.part_of_sum(features, 0, 6)
    features[[1, 2], 3] *= -1
    assert content.part_of_sum(features, 0, 6) != whole
