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
    tensors = {name: tensor(name, np.ascontiguousarray(a)) for name, a in content.items()}
    write_torch(
        file, tensors, {name: np.ascontiguousarray(a).tobytes() for name, a in content.items()}
    )


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
    folder = write_split(tmp_path / "ogbl" / "split" / "time", write)
    for given in (folder, tmp_path / "ogbl"):
        result = run("pairs", path, "--from", given, "--force")
        assert "not read: 'weight', 'year'" in result.stderr
        found = read_pairs(path, "links")
        same(found, "positives", PAIRS)
        same(found, "negatives", NEGATIVES)
        assert not found.directed
        assert found.seed is None
        assert found.made == f"from {given.name}"


def test_a_folder_of_ogb_with_pairs_is_imported_and_then_its_split(tmp_path):
    write_text(tmp_path / "ogbl", N, PAIRS["train"])
    write_split(tmp_path / "ogbl" / "split" / "time", write_numpy)
    graph = tmp_path / "ogbl.graph"
    assert "split/time" in run("import", tmp_path / "ogbl", graph, "--undirected").stdout
    facts = as_json("pairs", graph, "--from", tmp_path / "ogbl")
    assert facts["positives"] == {"train": 40, "val": 7, "test": 13}
    assert facts["arcs"] == {"train": 40, "val": 0, "test": 0}


def test_sources_with_candidates_of_their_own(tmp_path, path):
    candidates = {mask: RNG.integers(0, N, (len(PAIRS[mask]), 5)) for mask in ("val", "test")}

    def citation(mask):
        source, target = PAIRS[mask].T
        more = {"target_node_neg": candidates[mask]} if mask in candidates else {}
        return {"source_node": source, "target_node": target} | more

    write_split(tmp_path / "citation", write_old, citation)
    run("pairs", path, "--from", tmp_path / "citation", "--directed")
    found = read_pairs(path, "links")
    same(found, "positives", PAIRS)
    same(found, "candidates", candidates)
    assert (found.replaced, found.directed) == ("second", True)


def test_triples_with_candidates_of_both_ends(tmp_path, path):
    relations = {mask: RNG.integers(0, 4, len(PAIRS[mask])) for mask in MASKS}
    relations["train"][0] = 3
    negatives = {mask: RNG.integers(0, N, (2, len(PAIRS[mask]), 5)) for mask in ("val", "test")}

    def wikikg(mask):
        head, tail = PAIRS[mask].T
        found = {"head": head, "relation": relations[mask], "tail": tail}
        if mask != "train":
            found |= {"head_neg": negatives[mask][0], "tail_neg": negatives[mask][1]}
        return found

    content = {THEIRS[mask]: wikikg(mask) for mask in MASKS}
    (tmp_path / "kg").mkdir()
    write_numpy(tmp_path / "kg" / "split_dict.pt", content)
    assert as_json("pairs", path, "--from", tmp_path / "kg")["relations"] == 4
    found = read_pairs(path, "links")
    same(found, "relations", relations)
    both = {mask: np.hstack([tail, head]) for mask, (head, tail) in negatives.items()}
    same(found, "candidates", both)
    assert found.replaced == "both"
    write_numpy(
        tmp_path / "types.pt", {m: wikikg("val") | {"head_type": 1} for m in THEIRS.values()}
    )
    write_split(
        tmp_path / "types", write_numpy, lambda mask: wikikg(mask) | {"head_type": np.ones(1)}
    )
    text = refused("pairs", path, "--from", tmp_path / "types", "--force")
    assert "vertices of several types" in text


def labelled(mask, split=False, relations=False):
    """The fields that RandomLinkSplit adds to a graph."""
    negatives = PAIRS["train"][::-1] if mask == "train" else NEGATIVES[mask]
    positive = np.arange(len(PAIRS[mask])) % 3 + 1 if relations else np.ones(len(PAIRS[mask]))
    if split:
        return {
            "pos_edge_label_index": PAIRS[mask].T.copy(),
            "pos_edge_label": positive,
            "neg_edge_label_index": negatives.T.copy(),
            "neg_edge_label": np.zeros(len(negatives), positive.dtype),
        }
    label = np.append(positive, np.zeros(len(negatives), positive.dtype))
    return {
        "edge_label_index": np.concatenate([PAIRS[mask], negatives]).T.copy(),
        "edge_label": label,
    }


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("relations", [False, True])
def test_graphs_of_random_link_split(tmp_path, path, split, relations):
    module, storages, parts = "torch_geometric.data", {}, []
    for mask in MASKS:
        fields = labelled(mask, split, relations)
        tensors = {name: tensor(f"{mask}-{name}", array) for name, array in fields.items()}
        storages |= {f"{mask}-{name}": array.tobytes() for name, array in fields.items()}
        kind = instance(f"{module}.storage", "AttrType", None)
        store = {
            "_mapping": tensors,
            "_cached_attr": instance("collections", "defaultdict", {kind: set()}),
        }
        state = {"_store": instance(f"{module}.storage", "GlobalStorage", store)}
        parts.append(instance(f"{module}.data", "Data", state))
    write_torch(tmp_path / "split.pt", tuple(parts), storages)
    run("pairs", path, "--from", tmp_path / "split.pt")
    expected = {"train": PAIRS["train"][::-1], **NEGATIVES}
    relation = {mask: np.arange(len(PAIRS[mask])) % 3 for mask in MASKS} if relations else {}

    def data(mask):
        fields = labelled(mask, split, relations) | {"num_nodes": N}
        return SimpleNamespace(to_dict=lambda: fields)

    graph_id = open_graph(path).manifest.id
    objects = pairs_of(*map(data, MASKS), graph_id=graph_id, directed=False)
    for found in (read_pairs(path, "links"), objects):
        same(found, "positives", PAIRS)
        same(found, "negatives", expected)
        same(found, "relations", relation)
    stored = write_pairs(path, objects, force=True)
    assert stored.id == read_pairs(path, "links").id


def test_negatives_to_train_on_that_belong_to_no_pair_are_left_out(tmp_path, path):
    write_split(
        tmp_path / "split", write_numpy,
        lambda mask: {"edge": PAIRS[mask], "edge_neg": PAIRS["train"][:39]},
    )  # fmt: skip
    result = run("pairs", path, "--from", tmp_path / "split")
    assert "39 negatives to train on, for 40 pairs: left out" in result.stderr
    assert read_pairs(path, "links").negatives.keys() == {"val", "test"}


def write_table(file, array, header=""):
    text = header + "".join(",".join(map(str, row)) + "\n" for row in array.tolist())
    if file.suffix == ".gz":
        file.write_bytes(gzip.compress(text.encode()))
    else:
        file.write_text(text)


def write_list(file, array):
    if file.suffix == ".npy":
        np.save(file, array)
    elif file.suffix == ".parquet":
        pq.write_table(pa.table({"source": array[:, 0], "target": array[:, 1]}), file)
    else:
        write_table(file, array, "u,v\n" if file.suffix == ".gz" else "")


@pytest.mark.parametrize("suffix", ["npy", "parquet", "csv", "csv.gz"])
def test_lists_of_pairs_and_ids(tmp_path, path, suffix):
    ids = RNG.permutation(N) + 100
    table = ids[PAIRS["train"]]
    for mask in MASKS:
        write_list(tmp_path / f"{mask}.{suffix}", ids[PAIRS[mask]])
    for mask in NEGATIVES:
        write_list(tmp_path / f"{mask}-negatives.{suffix}", ids[NEGATIVES[mask]])
    candidates = RNG.integers(0, N, (len(PAIRS["test"]), 4))
    np.save(tmp_path / "candidates.npy", ids[candidates])
    graph = replace(open_graph(path).graph, ids=ids)
    make_folder(tmp_path / "ids.graph", graph)
    words = [f"--{mask}={tmp_path}/{mask}.{suffix}" for mask in MASKS]
    words += [f"--{mask}-negatives={tmp_path}/{mask}-negatives.{suffix}" for mask in NEGATIVES]
    run("pairs", tmp_path / "ids.graph", *words, "--test-candidates", tmp_path / "candidates.npy")
    found = read_pairs(tmp_path / "ids.graph", "links")
    same(found, "positives", PAIRS)
    same(found, "negatives", NEGATIVES)
    same(found, "candidates", {"test": candidates})
    assert found.made == f"from train.{suffix}"
    # The same in a folder; the first vertex has no such number without ids.
    (tmp_path / "folder").mkdir()
    for mask in MASKS:
        (tmp_path / f"{mask}.{suffix}").rename(tmp_path / "folder" / f"{mask}.{suffix}")
    run("pairs", tmp_path / "ids.graph", "--from", tmp_path / "folder", "--name", "again")
    same(read_pairs(tmp_path / "ids.graph", "again"), "positives", PAIRS)
    text = refused("pairs", path, "--from", tmp_path / "folder")
    assert "names a vertex outside 0..29" in text
    table[0, 0] = 99
    write_list(tmp_path / "folder" / f"train.{suffix}", table)
    text = refused("pairs", tmp_path / "ids.graph", "--from", tmp_path / "folder", "--force")
    assert "train names the vertex 99, which the graph does not have" in text


@pytest.mark.parametrize("suffix", ["txt", "tsv", "parquet", "npy"])
def test_triples_of_texts(tmp_path, suffix):
    names = np.array([f"city {i}" for i in range(N)])
    graph = make_folder(tmp_path / "g.graph", replace(from_arcs(N, [(0, 1)]), ids=names))
    kinds = np.array(["borders", "near", "rules"])
    relations = {mask: RNG.integers(0, 3, len(PAIRS[mask])) for mask in MASKS}
    relations["train"][:3] = range(3)
    folder = tmp_path / "triples"
    folder.mkdir()
    for mask in MASKS:
        head, tail = names[PAIRS[mask]].T
        columns = [head, kinds[relations[mask]], tail]
        file = folder / f"{THEIRS[mask]}.{suffix}"
        if suffix == "parquet":
            pq.write_table(pa.table(columns, names=["h", "r", "t"]), file)
        elif suffix == "npy":
            np.save(file, np.column_stack(columns))
        else:
            lines = zip(*columns, strict=True)
            file.write_text("".join("\t".join(line) + "\n" for line in lines))
    columns = "source,relation,target"
    facts = as_json("pairs", graph, "--from", folder, "--columns", columns)
    assert facts["relations"] == 3
    found = read_pairs(graph, "links")
    same(found, "positives", PAIRS)
    same(found, "relations", relations)
    assert found.relation_names == tuple(kinds)


def test_relations_that_are_numbers_under_a_header(tmp_path, path):
    for mask in MASKS:
        relation = np.arange(len(PAIRS[mask])) % 5
        rows = np.column_stack([relation, PAIRS[mask]])
        write_table(tmp_path / f"{mask}.csv", rows, "kind,first,second\n")
    words = [f"--{mask}={tmp_path}/{mask}.csv" for mask in MASKS]
    run("pairs", path, *words, "--columns", "relation,source,target")
    found = read_pairs(path, "links")
    same(found, "positives", PAIRS)
    same(found, "relations", {mask: np.arange(len(PAIRS[mask])) % 5 for mask in MASKS})
    assert found.relation_names == ()


def test_an_npz_of_all_masks(tmp_path, path):
    candidates = RNG.integers(0, N, (len(PAIRS["val"]), 3))
    arrays = {"train": PAIRS["train"], "valid": PAIRS["val"], "test": PAIRS["test"].T}
    np.savez(
        tmp_path / "all.npz", test_negatives=NEGATIVES["test"], valid_candidates=candidates,
        other=np.zeros(3), **arrays,
    )  # fmt: skip
    assert "not read: 'other'" in run("pairs", path, "--from", tmp_path / "all.npz").stderr
    found = read_pairs(path, "links")
    same(found, "positives", PAIRS)
    same(found, "negatives", {"test": NEGATIVES["test"]})
    same(found, "candidates", {"val": candidates})


def test_pairs_to_train_on_that_are_held_out_or_join_a_vertex_to_itself(tmp_path, path):
    train = np.concatenate([[[4, 4]], PAIRS["train"], PAIRS["test"][:2, ::-1]])
    negatives = np.column_stack([np.arange(len(train)), np.zeros(len(train), int)]) % N
    leaking = {"edge": train, "edge_neg": negatives}
    write_split(
        tmp_path / "split", write_numpy, lambda mask: leaking if mask == "train" else of_mask(mask)
    )
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
    def pairs(*words):
        return refused("pairs", path, *words)

    write_split(tmp_path / "split", write_numpy)
    train = tmp_path / "split" / "train.pt"
    assert "--seed draws pairs" in pairs("--from", tmp_path / "split", "--seed", 1)
    assert "are for pairs that are read" in pairs("--columns", "source,target")
    assert "there are no pairs of val" in pairs("--train", train)
    assert "there is no file" in pairs("--from", tmp_path / "none.pt")
    text = pairs("--from", train)
    assert "holds the pairs of 1 masks, not of 3" in text
    (tmp_path / "split" / "valid.pt").unlink()
    assert "it is not clear which files" in pairs("--from", tmp_path / "split")
    write_numpy(tmp_path / "other.pt", {"x": np.zeros(3)})
    assert "holds no pairs that are known" in pairs("--train", tmp_path / "other.pt")
    write_torch(tmp_path / "evil.pt", {"edge": named("os", "system")}, {})
    assert "names os.system" in pairs("--train", tmp_path / "evil.pt")
    (tmp_path / "cut.pt").write_bytes(b"\x80\x02K\x01.")
    assert "is not a file of torch" in pairs("--train", tmp_path / "cut.pt")
    np.save(tmp_path / "wide.npy", np.zeros((4, 3), int))
    assert "pairs are ids in the shape (m, 2)" in pairs("--train", tmp_path / "wide.npy")
    np.savez(tmp_path / "train.npz", train=PAIRS["train"])
    assert "--from takes an .npz" in pairs("--train", tmp_path / "train.npz")
    assert "there are no pairs of val" in pairs("--from", tmp_path / "train.npz")
    (tmp_path / "many" / "split" / "a").mkdir(parents=True)
    (tmp_path / "many" / "split" / "b").mkdir()
    assert "holds a, b, not one split" in pairs("--from", tmp_path / "many")
    (tmp_path / "words.csv").write_text("a,b\nc,d\n")
    text = pairs(*(f"--{mask}={tmp_path}/words.csv" for mask in MASKS))
    assert "vertices are 0..29, not" in text
    refuses("has no edge_label_index", pairs_of, 1, 2, 3, graph_id="", directed=False)
