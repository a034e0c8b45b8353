"""Pairs for link prediction from files of other programs: OGB, PyTorch Geometric, tables."""

import gzip
import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import as_json, refused, run
from ogb_folders import write_text
from refusals import refuses
from small_graphs import from_arcs, make_folder
from tensor_files import instance, named, tensor, write_torch

from partition.graph.links import read_pairs, write_pairs
from partition.graph.store import open_graph
from partition.importing.links import pairs_of

N = 30
RNG = np.random.default_rng(3)
_ALL = RNG.permutation([(u, v) for u in range(N) for v in range(u)])
PAIRS = {"train": _ALL[:40], "val": _ALL[40:47], "test": _ALL[47:60]}
NEGATIVES = {"val": _ALL[60:70], "test": _ALL[70:85]}
THEIRS = {"train": "train", "val": "valid", "test": "test"}
MASKS = ("train", "val", "test")


@pytest.fixture
def path(tmp_path):
    arcs = [tuple(pair) for pair in PAIRS["train"].tolist()]
    return make_folder(tmp_path / "g.graph", from_arcs(N, [*arcs, *((v, u) for u, v in arcs)]))


def write_numpy(file, content):
    """A dict of arrays as torch.save writes it."""
    write_torch(file, content, {})


def write_old(file, content):
    """The same before torch 1.6: pickles one behind the other."""
    head = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True, "type_sizes": {"int": 4}})
    parts = (*head, content, [])
    file.write_bytes(b"".join(pickle.dumps(part, protocol=2) for part in parts))


def write_tensors(file, content):
    """A dict of tensors, as torch.save writes it."""
    arrays = {name: np.ascontiguousarray(array) for name, array in content.items()}
    tensors = {name: tensor(name, array) for name, array in arrays.items()}
    write_torch(file, tensors, {name: array.tobytes() for name, array in arrays.items()})


def of_mask(mask):
    found = {"edge": PAIRS[mask]}
    if mask == "train":
        return found | {"weight": np.ones(40), "year": np.full(40, 2001)}
    return found | {"edge_neg": NEGATIVES[mask]}


def write_split(folder, write, of=of_mask):
    folder.mkdir(parents=True)
    for mask, name in THEIRS.items():
        write(folder / f"{name}.pt", of(mask))
    return folder


def same(found, kind, expected):
    held = getattr(found, kind)
    assert held.keys() == expected.keys()
    for mask, array in expected.items():
        np.testing.assert_array_equal(held[mask], array)


@pytest.mark.parametrize("write", [write_numpy, write_old, write_tensors])
def test_a_split_of_ogb(tmp_path, path, write):
    root = tmp_path / "ogbl"
    folder = write_split(root / "split" / "time", write)
    for given in (folder, root):
        assert "not read: 'weight', 'year'" in run("pairs", path, "--from", given, "--force").stderr
        found = read_pairs(path, "links")
        same(found, "positives", PAIRS)
        same(found, "negatives", NEGATIVES)
        assert (found.directed, found.seed, found.made) == (False, None, f"from {given.name}")
    # The graph comes from the same folder.
    write_text(root, N, PAIRS["train"])
    graph = tmp_path / "ogbl.graph"
    assert "split/time" in run("import", root, graph, "--undirected").stdout
    assert as_json("pairs", graph, "--from", root)["arcs"] == {"train": 40, "val": 0, "test": 0}
    write(folder / "train.pt", {"edge": PAIRS["train"], "edge_neg": PAIRS["train"][:39]})
    told = run("pairs", graph, "--from", folder, "--force").stderr
    assert "39 negatives to train on, for 40 pairs: left out" in told
    assert read_pairs(graph, "links").negatives.keys() == {"val", "test"}


def test_triples_and_sources_with_candidates_of_their_own(tmp_path, path):
    relations = {mask: RNG.integers(0, 4, len(PAIRS[mask])) for mask in MASKS}
    relations["train"][0] = 3
    drawn = {mask: RNG.integers(0, N, (2, len(PAIRS[mask]), 5)) for mask in ("val", "test")}

    def citation(mask):
        source, target = PAIRS[mask].T
        more = {"target_node_neg": drawn[mask][1]} if mask in drawn else {}
        return {"source_node": source, "target_node": target} | more

    def wikikg(mask):
        head, tail = PAIRS[mask].T
        found = {"head": head, "relation": relations[mask], "tail": tail}
        more = (
            dict(zip(("head_neg", "tail_neg"), drawn[mask], strict=True)) if mask in drawn else {}
        )
        return found | more

    write_split(tmp_path / "citation", write_old, citation)
    run("pairs", path, "--from", tmp_path / "citation", "--directed")
    found = read_pairs(path, "links")
    same(found, "positives", PAIRS)
    same(found, "candidates", {mask: tail for mask, (_, tail) in drawn.items()})
    assert (found.replaced, found.directed) == ("second", True)
    (tmp_path / "kg").mkdir()
    write_numpy(tmp_path / "kg" / "split_dict.pt", {THEIRS[mask]: wikikg(mask) for mask in MASKS})
    assert as_json("pairs", path, "--from", tmp_path / "kg", "--force")["relations"] == 4
    found = read_pairs(path, "links")
    same(found, "relations", relations)
    same(found, "candidates", {m: np.hstack([tail, head]) for m, (head, tail) in drawn.items()})
    assert found.replaced == "both"
    typed = lambda mask: wikikg(mask) | {"head_type": np.ones(1)}  # noqa: E731
    write_split(tmp_path / "types", write_numpy, typed)
    text = refused("pairs", path, "--from", tmp_path / "types", "--force")
    assert "vertices of several types" in text


def labelled(mask, split=False, relations=False):
    """The fields that RandomLinkSplit adds to a graph."""
    negatives = PAIRS["train"][::-1] if mask == "train" else NEGATIVES[mask]
    positive = np.arange(len(PAIRS[mask])) % 3 + 1 if relations else np.ones(len(PAIRS[mask]))
    none = np.zeros(len(negatives), positive.dtype)
    if not split:
        index = np.concatenate([PAIRS[mask], negatives]).T.copy()
        return {"edge_label_index": index, "edge_label": np.append(positive, none)}
    fields = {"pos_edge_label_index": PAIRS[mask].T.copy(), "pos_edge_label": positive}
    return fields | {"neg_edge_label_index": negatives.T.copy(), "neg_edge_label": none}


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("relations", [False, True])
def test_graphs_of_random_link_split(tmp_path, path, split, relations):
    module, storages, parts = "torch_geometric.data", {}, []
    for mask in MASKS:
        fields = labelled(mask, split, relations)
        tensors = {name: tensor(f"{mask}-{name}", array) for name, array in fields.items()}
        storages |= {f"{mask}-{name}": array.tobytes() for name, array in fields.items()}
        state = {"_store": instance(f"{module}.storage", "GlobalStorage", {"_mapping": tensors})}
        parts.append(instance(f"{module}.data", "Data", state))
    write_torch(tmp_path / "split.pt", tuple(parts), storages)
    run("pairs", path, "--from", tmp_path / "split.pt")

    def data(mask):
        fields = labelled(mask, split, relations) | {"num_nodes": N}
        return SimpleNamespace(to_dict=lambda: fields)

    graph_id = open_graph(path).manifest.id
    objects = pairs_of(*map(data, MASKS), graph_id=graph_id, directed=False)
    for found in (read_pairs(path, "links"), objects):
        same(found, "positives", PAIRS)
        same(found, "negatives", {"train": PAIRS["train"][::-1], **NEGATIVES})
        kinds = {mask: np.arange(len(PAIRS[mask])) % 3 for mask in MASKS} if relations else {}
        same(found, "relations", kinds)
    assert write_pairs(path, objects, force=True).id == read_pairs(path, "links").id


def write_list(file, columns, names=None):
    """Columns in a file of the kind that its name says."""
    if file.suffix == ".npy":
        np.save(file, np.column_stack(columns))
    elif file.suffix == ".parquet":
        pq.write_table(pa.table(list(columns), names=names or ["source", "target"]), file)
    else:
        mark = "\t" if file.suffix == ".txt" else ","
        lines = [names] * (file.suffix != ".txt" and names is not None)
        lines += zip(*columns, strict=True)
        raw = "".join(mark.join(map(str, line)) + "\n" for line in lines).encode()
        file.write_bytes(gzip.compress(raw) if file.suffix == ".gz" else raw)


@pytest.mark.parametrize("suffix", ["npy", "parquet", "csv", "csv.gz"])
def test_lists_of_pairs_and_ids(tmp_path, path, suffix):
    ids, folder = RNG.permutation(N) + 100, tmp_path / "folder"
    folder.mkdir()
    for mask in MASKS:
        write_list(folder / f"{mask}.{suffix}", ids[PAIRS[mask]].T)
    for mask in NEGATIVES:
        write_list(tmp_path / f"{mask}-negatives.{suffix}", ids[NEGATIVES[mask]].T)
    candidates = RNG.integers(0, N, (len(PAIRS["test"]), 4))
    np.save(tmp_path / "candidates.npy", ids[candidates])
    graph = make_folder(tmp_path / "ids.graph", replace(open_graph(path).graph, ids=ids))
    words = [f"--{mask}={folder}/{mask}.{suffix}" for mask in MASKS]
    words += [f"--{mask}-negatives={tmp_path}/{mask}-negatives.{suffix}" for mask in NEGATIVES]
    run("pairs", graph, *words, "--test-candidates", tmp_path / "candidates.npy")
    found = read_pairs(graph, "links")
    same(found, "positives", PAIRS)
    same(found, "negatives", NEGATIVES)
    same(found, "candidates", {"test": candidates})
    assert found.made == f"from train.{suffix}"
    # The same in a folder; the first vertex has no such number without ids.
    run("pairs", graph, "--from", folder, "--name", "again")
    same(read_pairs(graph, "again"), "positives", PAIRS)
    assert "names a vertex outside 0..29" in refused("pairs", path, "--from", folder)
    write_list(folder / f"train.{suffix}", np.append(ids[PAIRS["train"]], [[99, ids[0]]], 0).T)
    told = refused("pairs", graph, "--from", folder, "--force")
    assert "train names the vertex 99, which the graph does not have" in told


@pytest.mark.parametrize("suffix", ["txt", "parquet", "npy"])
def test_triples_of_texts(tmp_path, path, suffix):
    names, folder = np.array([f"city {i}" for i in range(N)]), tmp_path / "triples"
    graph = make_folder(tmp_path / "t.graph", replace(from_arcs(N, [(0, 1)]), ids=names))
    kinds = np.array(["borders", "near", "rules"])
    relations = {mask: np.arange(len(PAIRS[mask])) % 3 for mask in MASKS}
    folder.mkdir()
    for mask in MASKS:
        head, tail = names[PAIRS[mask]].T
        columns = [head, kinds[relations[mask]], tail]
        write_list(folder / f"{THEIRS[mask]}.{suffix}", columns, ["h", "r", "t"])
        rows = [relations[mask], *PAIRS[mask].T]
        write_list(tmp_path / f"{mask}.csv", rows, ["kind", "first", "second"])
    words = "--from", folder, "--columns", "source,relation,target"
    assert as_json("pairs", graph, *words)["relations"] == 3
    words = [f"--{mask}={tmp_path}/{mask}.csv" for mask in MASKS]
    run("pairs", path, *words, "--columns", "relation,source,target")  # numbers, under a header
    for of, called in ((graph, tuple(kinds)), (path, ())):
        found = read_pairs(of, "links")
        same(found, "positives", PAIRS)
        same(found, "relations", relations)
        assert found.relation_names == called


def test_pairs_to_train_on_that_are_held_out_or_join_a_vertex_to_itself(tmp_path, path):
    train = np.concatenate([[[4, 4]], PAIRS["train"], PAIRS["test"][:2, ::-1]])
    negatives = np.column_stack([np.arange(len(train)), np.zeros(len(train), int)]) % N
    leaking = {"edge": train, "edge_neg": negatives}
    of = lambda mask: leaking if mask == "train" else of_mask(mask)  # noqa: E731
    write_split(tmp_path / "split", write_numpy, of)
    text = refused("pairs", path, "--from", tmp_path / "split")
    assert "2 pairs to train on are also in test" in text
    assert "--drop-held-out" in text
    result = run("pairs", path, "--from", tmp_path / "split", "--drop-held-out")
    assert "1 pairs to train on of a vertex with itself: left out" in result.stderr
    assert "2 pairs are also held out" in result.stderr
    found = read_pairs(path, "links")
    same(found, "positives", PAIRS)
    np.testing.assert_array_equal(found.negatives["train"], negatives[1:-2])


def test_what_is_refused(tmp_path, path):
    split = write_split(tmp_path / "split", write_numpy)
    short = write_split(tmp_path / "short", write_numpy)
    (short / "valid.pt").unlink()
    for name in "ab":
        (tmp_path / "many" / "split" / name).mkdir(parents=True)
    write_numpy(tmp_path / "other.pt", {"x": np.zeros(3)})
    write_torch(tmp_path / "evil.pt", {"edge": named("os", "system")}, {})
    (tmp_path / "cut.pt").write_bytes(b"\x80\x02K\x01.")
    np.save(tmp_path / "wide.npy", np.zeros((4, 3), int))
    np.savez(tmp_path / "train.npz", train=PAIRS["train"])
    (tmp_path / "words.csv").write_text("a,b\nc,d\n")
    for told, *words in (
        ("--seed draws pairs", "--from", split, "--seed", 1),
        ("are for pairs that are read", "--columns", "source,target"),
        ("there are no pairs of val", "--train", split / "train.pt"),
        ("there is no file", "--from", tmp_path / "none.pt"),
        ("holds the pairs of 1 masks, not of 3", "--from", split / "train.pt"),
        ("it is not clear which files", "--from", short),
        ("holds a, b, not one split", "--from", tmp_path / "many"),
        ("holds no pairs that are known", "--train", tmp_path / "other.pt"),
        ("names os.system", "--train", tmp_path / "evil.pt"),
        ("is not a file of torch", "--train", tmp_path / "cut.pt"),
        ("pairs are ids in the shape (m, 2)", "--train", tmp_path / "wide.npy"),
        ("--from takes an .npz", "--train", tmp_path / "train.npz"),
        ("there are no pairs of val", "--from", tmp_path / "train.npz"),
        ("vertices are 0..29, not", *(f"--{mask}={tmp_path}/words.csv" for mask in MASKS)),
    ):
        assert told in refused("pairs", path, *words)
    refuses("has no edge_label_index", pairs_of, 1, 2, 3, graph_id="", directed=False)


def test_an_npz_of_all_masks(tmp_path, path):
    candidates = RNG.integers(0, N, (len(PAIRS["val"]), 3))
    arrays = {"train": PAIRS["train"], "valid": PAIRS["val"], "test": PAIRS["test"].T}
    arrays |= {"test_negatives": NEGATIVES["test"], "valid_candidates": candidates}
    np.savez(tmp_path / "all.npz", other=np.zeros(3), **arrays)
    assert "not read: 'other'" in run("pairs", path, "--from", tmp_path / "all.npz").stderr
    found = read_pairs(path, "links")
    same(found, "positives", PAIRS)
    same(found, "negatives", {"test": NEGATIVES["test"]})
    same(found, "candidates", {"val": candidates})
