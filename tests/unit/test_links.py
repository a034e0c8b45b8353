"""Pairs for link prediction: how they are split, what is drawn, and what a folder keeps of them."""

import gzip
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import as_json, refused, run
from hypothesis import given
from hypothesis import strategies as st
from ogb_folders import write_text
from refusals import refuses
from small_graphs import arcs_in, from_arcs, make_folder, partitioned_graphs, random_graph
from stored_graphs import change_json
from tensor_files import instance, named, tensor, write_state, write_torch

from gcnmpi.proof.links import training_graph
from partition.graph import vertex_pairs
from partition.graph.graph import arcs
from partition.graph.hashing import key, mixed, permuted
from partition.graph.relations import Relation, VertexTypes
from partition.graph.store import open_graph, write_graph
from partition.graph.vertex_pairs import (
    drawn_candidates,
    list_pairs,
    page_rank,
    read_pairs,
    split_pairs,
    with_hard_candidates,
    write_pairs,
)
from partition.importing.arcs import build_typed
from partition.importing.data_files import VertexFiles, attach
from partition.importing.pair_files import pairs_of
from partition.importing.readers.source import RelationArcs, TypedSource

MASKS = ("train", "val", "test")
SHARES = "0.85", "0.05", "0.10"


@st.composite
def graphs(draw):
    """Directed graphs with loops and isolated vertices; some are symmetric."""
    graph, _, _ = draw(partitioned_graphs())
    pairs = arcs_in(graph)
    return from_arcs(graph.n, pairs + [(v, u) for u, v in pairs] * draw(st.booleans()))


def pairs_in(graph, directed):
    """The set of pairs that the arcs make, without loops, by Python's sets."""
    pairs = {(u, v) for u, v in arcs_in(graph) if u != v}
    return pairs if directed else {(min(pair), max(pair)) for pair in pairs}


def as_tuples(pairs):
    return [tuple(pair) for pair in pairs.tolist()]


@given(graphs(), st.booleans(), st.integers(0, 2**63 - 1), st.integers(0, 100))
def test_a_split_is_disjoint_complete_and_of_the_sizes_asked_for(graph, directed, seed, percent):
    of_val, of_test = percent // 3, percent - percent // 3
    shares = [f"{share}/100" for share in (100 - percent, of_val, of_test)]
    expected = pairs_in(graph, directed)
    # Parallel arcs are one pair.
    twice = {"indptr": 2 * graph.indptr, "indices": np.repeat(graph.indices, 2), "parallel": True}
    both = graph, replace(graph, **twice)
    made, again = (split_pairs(of, shares, seed, directed, negatives=0, twins=()) for of in both)
    found = [as_tuples(made.positives[mask]) for mask in MASKS]
    assert [as_tuples(again.positives[mask]) for mask in MASKS] == found
    assert sorted(pair for each in found for pair in each) == sorted(expected)
    sizes = [share * len(expected) // 100 for share in (of_val, of_test)]
    assert [len(each) for each in found[1:]] == sizes
    assert all(each == sorted(each) for each in found)
    assert (made.negatives, made.directed) == ({}, directed)
    assert {a.dtype for a in made.positives.values()} == {np.dtype(np.int32)}


@given(graphs(), st.booleans(), st.integers(0, 99), st.integers(1, 3))
def test_negatives_are_distinct_and_no_arcs(graph, directed, seed, each):
    expected, shares = pairs_in(graph, directed), ("1/2", "1/4", "1/4")
    free = graph.n * (graph.n - 1) // (1 if directed else 2) - len(expected)
    size = len(expected) // 4 * each
    if 2 * size > free:
        refuses("too dense", split_pairs, graph, shares, seed, directed, each, twins=())
        return
    made = split_pairs(graph, shares, seed, directed, each, twins=())
    found = [as_tuples(made.negatives[mask]) for mask in ("val", "test")]
    together = found[0] + found[1]
    assert ([len(one) for one in found], len(set(together))) == ([size] * 2, 2 * size)
    assert not set(together) & expected
    assert all(u != v if directed else u < v for u, v in together)
    # All that are free can be drawn, and a longer draw begins with a shorter one.
    drawn, half = (vertex_pairs.non_arcs(graph, size, directed, seed) for size in (free, free // 2))
    assert len(set(drawn.tolist())) == free
    np.testing.assert_array_equal(half, drawn[: free // 2])


def test_a_split_depends_on_the_seed_only(monkeypatch):
    graph = random_graph(80, 900)
    made = split_pairs(graph, SHARES, 3, negatives=2)
    for more in ((3,), (4,), (3, True)):
        assert (split_pairs(graph, SHARES, *more, negatives=2).id == made.id) == (more == (3,))
    monkeypatch.setattr(vertex_pairs, "_AT_ONCE", 7)
    assert split_pairs(graph, (0.85, 0.05, 0.1), 3, negatives=2).id == made.id


def test_drawn_candidates_are_the_same_wherever_they_are_drawn():
    made = split_pairs(random_graph(9, 60), ("0", "0.5", "0.5"), 1, negatives=0, candidates=400)
    whole, pairs = drawn_candidates(made, "test", slice(None), 9), made.positives["test"]
    assert (whole.shape, whole.dtype) == ((len(pairs), 400), np.int64)
    np.testing.assert_array_equal(drawn_candidates(made, "test", slice(3, 5), 9), whole[3:5])
    for pair, row in zip(as_tuples(pairs), whole, strict=True):
        counts = np.bincount(row, minlength=9)
        others = np.delete(counts, pair)
        assert (counts[list(pair)].sum(), others.min() > 25, others.max() < 100) == (0, True, True)
    for one, mask in ((made, "val"), (replace(made, seed=2), "test")):
        assert (drawn_candidates(one, mask, slice(0, 1), 9) != whole[0]).any()


def full_set(path):
    """A set with every kind of array, of a graph folder."""
    stored, rng = open_graph(path), np.random.default_rng(0)
    made = split_pairs(stored.graph, SHARES, 7, negatives=1)
    sizes = {mask: len(found) for mask, found in made.positives.items()}
    negatives = made.negatives | {"train": rng.integers(0, 50, (2 * sizes["train"], 2))}
    candidates = {mask: rng.integers(0, 50, (sizes[mask], 4)) for mask in ("val", "test")}
    relations = {mask: rng.integers(0, 3, size) for mask, size in sizes.items()}
    more = {"negatives": negatives, "candidates": candidates, "relations": relations}
    return replace(made, name="full", graph_id=stored.manifest.id, replaced="both", **more)


@pytest.fixture
def path(tmp_path):
    return make_folder(tmp_path / "g.graph", random_graph(50, 400))


def test_a_folder_gives_back_what_was_written(path):
    made = full_set(path)
    stored, found = write_pairs(path, made), read_pairs(path, "full")
    assert (found.id, found.name, found.made) == (stored.id, made.name, made.made)
    assert isinstance(found.positives["train"], np.memmap)
    # The id is of all that a run sees.
    changes = {"directed": True}, {"replaced": "second"}, {"drawn": 3}, {"drawn": 3, "seed": 8}
    others = {"relations": {}}, {"candidates": {}}
    ids = {vertex_pairs.identified(replace(made, **one)).id for one in ({}, *changes, *others)}
    assert len(ids) == 7
    assert vertex_pairs.identified(replace(made, name="x", seed=8, made="")).id in ids
    # A mapped array outlives the set: of a run that has begun, say.
    assert list_pairs(path) == ["full"]
    vertex_pairs.remove_pairs(path, "full")
    assert (list_pairs(path), [*(path / "pairs").iterdir()]) == ([], [])
    assert found.positives["train"].sum() > 0
    # Sets of other arcs go with these; those of the same stay.
    run("pairs", path)
    made = read_pairs(path, "links")
    run("attach", path, "--features", "random:3")
    assert read_pairs(path, "links").id == made.id
    lines = []
    write_graph(path, random_graph(50, 300, 1), source={}, overwrite=True, report=lines.append)
    assert (lines, list_pairs(path)) == (["pairs deleted, of other arcs or damaged: links"], [])


FACTS = {
    r"`\$\.version`": {"version": 9}, "seed": {"seed": "a"},
    "made for another graph": {"graph_id": "0" * 32}, "contradicts itself": {"sums": {}},
    "candidates that are drawn": {"drawn": 4, "seed": None},
}  # fmt: skip
ARRAYS = [
    ("test", "holds int64", lambda array: array.astype(np.int64)),
    ("train", "has the vertex 50", lambda array: np.where(array == array[1, 1], 50, array)),
    *(
        (name, f"{name}.npy does not hold what pairs.json says", lambda a: np.roll(a, 1, axis=0))
        for name in ("train", "test_candidates", "val_relations", "train_negatives")
    ),
]


def test_files_of_a_set_that_are_damaged(path):
    write_pairs(path, full_set(path))
    folder = path / "pairs" / "full"
    kept = shutil.copytree(folder, path.with_name("kept"))

    def refused_and_mended(says):
        refuses(says, read_pairs, path, "full")
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)

    for says, facts in FACTS.items():
        change_json(folder / "pairs.json", **facts)
        refused_and_mended(says)
    for name, says, change in ARRAYS:
        np.save(folder / f"{name}.npy", change(np.load(folder / f"{name}.npy")))
        refused_and_mended(says)
    (folder / "pairs.json").write_bytes(b"{")
    refused_and_mended("is damaged")
    (folder / "val.npy").unlink()
    refused_and_mended("is missing")
    change_json(folder / "pairs.json", id="0" * 32)  # which no checksum is of
    assert "the id is not that of the arrays" in run("check", path, code=2).stdout


def test_sets_that_are_refused(path):
    made = full_set(path)
    train, test = made.positives["train"], made.positives["test"]
    u, v = train[3].tolist()

    def positives(mask, *pairs):
        changed = made.positives | {mask: np.array(pairs)}
        return {"positives": changed, "candidates": {}, "relations": {}}

    for changes, says in (
        ({"graph_id": "0" * 32}, "another graph"),
        ({"name": "a/b"}, "not a valid name"),
        ({"seed": 2**63}, "is outside"),
        ({"replaced": "first"}, "replaced is 'first'"),
        (positives("test", [1, 50]), r"test has the vertex 50: the graph has 0\.\.49"),
        (positives("val", [4, 4]), r"val has the pair \(4, 4\)"),
        (positives("val", [v, u]), rf"1 pairs .* are also in val, such as \({u}, {v}\)"),
        ({"negatives": {"val": test[:, :1]}}, "val_negatives is int32 of shape"),
        ({"negatives": {"train": train[1:]}}, "train_negatives"),
        ({"negatives": {"val": np.array([[0.5, 1]])}}, "not whole numbers"),
        ({"candidates": {"test": np.zeros((len(test), 3), np.int32)}}, "test_candidates"),
        ({"relations": {"test": np.zeros(1, int)}}, "test_relations"),
    ):
        refuses(says, write_pairs, path, replace(made, **changes))
    assert list_pairs(path) == []
    # Either way round is another pair of a directed set; the largest seed is one.
    assert (v, u) not in as_tuples(train)
    write_pairs(path, replace(made, directed=True, seed=2**63 - 1, **positives("val", [v, u])))


def test_the_commands_that_know_pairs(path):
    facts = as_json("pairs", path, "--candidates", 5, "--undirected", "--seed", 3)
    assert facts["id"] == split_pairs(open_graph(path).graph, SHARES, 3, candidates=5).id
    assert (facts["arcs"], facts["drawn"]) == (facts["positives"], 5)
    assert as_json("pairs", path, "--name", "both")["directed"] is True  # as the graph
    listed = as_json("list", path)
    assert [(one["kind"], one["name"]) for one in listed] == [("pairs", "both"), ("pairs", "links")]
    assert as_json("info", path, "links") == facts
    assert as_json("remove", path, "links")["removed"] == ["links"]
    assert list_pairs(path) == ["both"]


def test_mistakes_of_the_command(path):
    run("pairs", path)
    run("add", path, "--model", "rp", "-k", 2)
    split = "--force", "--split"
    for words, told in (
        ([], "has pairs 'links' already\n  hint: give --name or --force"),
        ([*split, "0.9,0.1,0.1"], "add up to 1.1, not to 1"),
        *(([*split, shares], "no three shares") for shares in ("0.9,0.1", "1/0,b,c", "1.5,-0.5,0")),
        (["--negatives", 1000, "--name", "x"], "too dense"),
        (["--seed", -1, "--name", "x"], "seed -1 is outside"),
        (["--name", "rp-2"], "has a partition 'rp-2'"),
        (["--relation", "buys", "--force"], "has no relations"),
    ):
        assert told in refused("pairs", path, *words)
    assert "did you mean 'links'?" in refused("remove", path, "link")
    assert "has pairs 'links'" in refused("add", path, "--model", "rp", "-k", 2, "--name", "links")


@pytest.mark.parametrize(("n", "width"), [(50, 8), (7, 12)])
def test_orthogonal_features_are_those_of_torch(n, width):
    graph = random_graph(n, 3 * n)
    rows = attach(graph, VertexFiles("orthogonal:" + str(width))).features
    gram = rows.T @ rows if n >= width else rows @ rows.T
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-6)
    refuses("random:C", attach, graph, VertexFiles(None, "orthogonal:3"))


def typed(counts, ends, **options):
    """The graph of relations, each with its pairs."""
    tables = [RelationArcs(one, *np.asarray(pairs).T) for one, pairs in ends.items()]
    return build_typed(TypedSource(counts, tables, format="test"), **options)[0]


KNOWS, BUYS = Relation("user", "knows", "user"), Relation("user", "buys", "item")


@pytest.fixture(scope="module")
def shop():
    """Users know users and buy items, with the reverses of both; there are loops."""
    random = np.random.default_rng(5)
    ends = {KNOWS: random.integers(0, 30, (120, 2)), BUYS: random.integers(0, [30, 40], (200, 2))}
    return typed({"user": 30, "item": 40}, ends, reverse=True)


@pytest.mark.parametrize("directed", [False, True])
def test_pairs_of_relations_are_split_and_have_negatives_relation_by_relation(shop, directed):
    expected, types = {0: set(), 1: set()}, shop.vertex_types
    for (u, v), r in zip(arcs_in(shop), shop.arc_type.tolist(), strict=True):
        if u != v and r in expected:  # the others are reverses
            expected[r].add((u, v) if directed or r == 1 else (min(u, v), max(u, v)))
    made = split_pairs(shop, ("3/5", "1/10", "3/10"), 4, directed, 2)
    assert made.relation_names == ("knows", "buys", "rev_knows", "rev_buys")

    def of(arrays, r, masks, end=""):
        return [as_tuples(arrays[mask][made.relations[f"{mask}{end}"] == r]) for mask in masks]

    for r, pairs in expected.items():
        found, drawn = of(made.positives, r, MASKS), of(made.negatives, r, MASKS[1:], "_negatives")
        assert sorted(pair for each in found for pair in each) == sorted(pairs)
        sizes = [len(pairs) * share // 10 for share in (1, 3)]
        assert [len(each) for each in found[1:]] == sizes
        assert [len(each) for each in drawn] == [2 * size for size in sizes]
        together = drawn[0] + drawn[1]
        assert len(set(together)) == len(together)
        assert not vertex_pairs.has_arcs(shop, np.array(together), directed).any()
        first, second = map(types.range, (shop.relations[r].source, shop.relations[r].target))
        assert all(u in first and v in second and u != v for u, v in together)
        assert directed or r or all(u < v for u, v in together)
    # Candidates are of the type of the second end.
    made = split_pairs(shop, ("0", "0", "1"), 1, True, 0, candidates=300)
    candidates = drawn_candidates(made, "test", slice(None), shop.n, types)
    for (u, v), row in zip(as_tuples(made.positives["test"]), candidates, strict=True):
        others = types.range("item" if v in types.range("item") else "user")
        assert set(row.tolist()) <= set(others) - {u, v}
        assert len(set(row.tolist())) > len(others) - 5


TWINS = {  # relations, each with what its arcs are of 300 drawn ones; options; what leaves with "a"
    "reverse": ({"a": "as", "b": "turned"}, "", "b"),
    "nearly": ({"a": "as", "b": "turned less 8%"}, "", "b"),
    "half of a": ({"a": "as", "b": "turned less 60%"}, "", "b"),
    "other": ({"a": "as", "b": "another"}, "", ""),
    "all": ({"a": "as", "b": "turned", "c": "as", "d": "both"}, "", "bcd"),
    "more": ({"a": "as less 60%", "b": "turned"}, "", ""),
    "named": ({"a": "as less 60%", "b": "turned"}, "--reverse-of b=a", "b"),
    "named copy": ({"a": "as less 60%", "b": "as"}, "--copy-of b=a", "b"),
    "none": ({"a": "as", "b": "turned"}, "--reverse-of none", ""),
    "either way": ({"a": "as", "b": "both"}, "", "b"),
    "together": ({"a": "as", "b": "turned"}, "--relation a --relation b", "b"),
    "all of them": ({"a": "both", "b": "both less 3%"}, "", "ab"),
}


def relations_like(wanted):
    """A graph of one type with such relations."""
    random, ends = np.random.default_rng(1), {}
    drawn = np.unique(random.integers(0, 60, (300, 2)), axis=0)
    drawn = drawn[drawn[:, 0] < drawn[:, 1]]
    for name, what in wanted.items():
        of = random.integers(0, 60, (100, 2)) if what == "another" else drawn
        of = of[:, ::-1] if "turned" in what else of
        of = np.unique(np.concatenate([of, of[:, ::-1]]), axis=0) if "both" in what else of
        less = int(what.partition("less ")[2].rstrip("%") or 0)
        ends[Relation("v", name, "v")] = of[len(of) * less // 100 :]
    return typed({"v": 60}, ends)


@pytest.mark.parametrize("case", TWINS)
def test_no_held_out_edge_stays_in_the_graph_by_another_relation(tmp_path, case):
    wanted, words, others = TWINS[case]
    graph = relations_like(wanted)
    path = make_folder(tmp_path / "g.graph", graph)
    told = run("pairs", path, "--split", "0.5,0.2,0.3", *words.split()).stderr
    made = read_pairs(path, "links")
    names, source, target = [one.name for one in graph.relations], arcs(graph), graph.indices
    assert all(name in told for name in others) or words
    # No edge is in two masks, whichever relation says it.
    twins = {(names[t.relation], names[t.other], t.turned) for t in made.twins}
    assert {b for a, b, _ in twins if a == "a"} == set(others)
    of_mask = {}
    for mask in MASKS:
        for (u, v), r in zip(as_tuples(made.positives[mask]), made.relations[mask], strict=True):
            ways = {(u, v, names[r])}
            ways |= {(*((v, u) if t else (u, v)), b) for a, b, t in twins if a == names[r]}
            assert {of_mask.setdefault(way, mask) for way in ways} == {mask}
    gone = vertex_pairs.left_out(made, source, target, graph.n, graph.arc_type)
    arcs_of = zip(source.tolist(), target.tolist(), np.array(names)[graph.arc_type], strict=True)
    np.testing.assert_array_equal(gone, [of_mask.get(arc, "train") != "train" for arc in arcs_of])
    # Pairs that do not say of which relation they are take no less.
    plain = replace(made, relations={}, relation_names=())
    without = vertex_pairs.left_out(plain, source, target, graph.n, graph.arc_type)
    assert (without >= gone).all()
    for pairs, left in ((made, ~gone), (plain, ~without)):
        rest = training_graph(graph, pairs)
        np.testing.assert_array_equal(arcs(rest), source[left])
        np.testing.assert_array_equal(rest.arc_type, graph.arc_type[left])
    if case in ("reverse", "all"):
        assert {names[r] for of in made.relations.values() for r in of} == {"a"}


@pytest.mark.parametrize("share", [0, 0.03, 0.5])
def test_a_graph_that_is_nearly_symmetric_has_one_mask_for_both_ways(tmp_path, share):
    drawn = pairs_in(random_graph(60, 900), False)
    back = [(v, u) for u, v in sorted(drawn)][int(share * len(drawn)) :]
    path = make_folder(tmp_path / "g.graph", graph := from_arcs(60, [*drawn, *back]))
    told, nearly = run("pairs", path, "--directed").stderr, share < 0.1
    made = read_pairs(path, "links")
    held = {*as_tuples(vertex_pairs.held_out(made))}
    gone = vertex_pairs.left_out(made, arcs(graph), graph.indices, graph.n)
    expected = {*held, *({(v, u) for u, v in held} if nearly else ())}
    np.testing.assert_array_equal(gone, [arc in expected for arc in arcs_in(graph)])
    np.testing.assert_array_equal(arcs(training_graph(graph, made)), arcs(graph)[~gone])
    assert not nearly or not {*as_tuples(made.positives["train"])} & expected
    assert ("symmetric" in told) == made.both_ways("train").all() == nearly


def test_pairs_that_are_read_keep_their_masks_and_say_which_edges_stay(tmp_path):
    graph = relations_like({"a": "as", "b": "turned"})
    path, triples = make_folder(tmp_path / "g.graph", graph), tmp_path / "t"
    triples.mkdir()
    edges = [(u, v, "a") for u, v in sorted(pairs_in(graph, False))]
    back = [(v, u, "b") for u, v, _ in edges]
    command = "pairs", path, "--from", triples, "--columns", "source,relation,target", "--force"

    def read(*words, **listed):
        for mask, some in listed.items():
            (triples / f"{mask}.tsv").write_text("".join(f"{u}\t{r}\t{v}\n" for u, v, r in some))
        return run(*command, *words).stderr, read_pairs(path, "links")

    told, made = read(train=edges[40:], val=edges[:20], test=edges[20:40])
    assert "b has the edges of a turned round" in told
    assert (0, 1, True) in made.twins
    told, made = read(train=edges[40:] + back[:5] + [(3, 3, "a")])
    for part in ("5 held-out pairs of a", "--reverse-of b=a", "1 pairs of train join a vertex"):
        assert part in told
    assert (0, 1, True) not in made.twins
    assert (0, 1, True) in read("--reverse-of", "b=a")[1].twins
    assert "1 pairs to validate on are also in test" in read(val=edges[:21])[0]
    assert len(read("--drop-held-out")[1].positives["val"]) == 20
    for wrong in ("b", "b=c", "c=a"):
        assert "--reverse-of" in refused(*command, "--reverse-of", wrong)


def test_some_relations_can_be_split_and_triples_have_ends_of_the_types(tmp_path, shop):
    path, buys = make_folder(tmp_path / "shop.graph", shop), tmp_path / "buys.csv"
    facts = as_json("pairs", path, "--relation", "user,buys,item", "--name", "buys")
    assert (facts["directed"], facts["made"]) == (True, "split 0.85,0.05,0.10 of user,buys,item")
    made = read_pairs(path, "buys")
    assert made.relations.keys() == {*MASKS, "val_negatives", "test_negatives"}
    assert all(set(of.tolist()) == {1} for of in made.relations.values())
    assert "sells" in refused("pairs", path, "--relation", "sells", "--force")
    nothing = replace(shop, arc_type=np.full_like(shop.arc_type, 1))  # all arcs are of "buys"
    refuses("no arcs of knows to split", split_pairs, nothing, ("1", "0", "0"), relations=["knows"])
    words = ["pairs", path, "--train", buys, "--columns", "source,relation,target", "--name", "own"]
    for number, mask in enumerate(("val", "test")):
        (tmp_path / f"{mask}.csv").write_text(f"1,buys,3{number}\n")
        words += [f"--{mask}", tmp_path / f"{mask}.csv"]
    for line, told in (("0,buys,5", "5 is no item"), ("30,buys,31", "30 is no user")):
        buys.write_text(f"{line}\n")
        assert told in refused(*words)
    buys.write_text("0,buys,30\n2,knows,3\n")
    assert as_json(*words)["positives"]["train"] == 2


# Hard candidates, held against a dense computation of their definition

HARD_SHARES = "0.7", "0.1", "0.2"


def dense(graph):
    matrix = np.zeros((graph.n, graph.n), bool)
    matrix[arcs(graph), graph.indices] = True
    return matrix


def neighbours(graph, pairs):
    """Who is a neighbour of whom, without loops and pairs that are held out."""
    matrix = dense(graph) | dense(graph).T
    np.fill_diagonal(matrix, False)
    for mask in ("val", "test"):
        for u, v in pairs.positives[mask].tolist():
            matrix[u, v] = matrix[v, u] = False
    return matrix


def pushed(near, source):
    """PageRank by the definition, of one source, all vertices at once."""
    degree, kept, rest = near.sum(1), np.zeros(len(near)), np.eye(len(near))[source]
    for _ in range(vertex_pairs._MOST_STEPS):
        full = rest > vertex_pairs._REST * degree
        kept[full] += vertex_pairs._RESTART * rest[full]
        share = np.where(full, rest, 0) / np.maximum(degree, 1)
        rest = np.where(full, 0, rest) + (1 - vertex_pairs._RESTART) * share @ near
    return kept


def ranks(scores, allowed):
    """1 + how many allowed vertices have more; those with nothing come after all."""
    some = allowed & (scores > 0)
    found = np.full(len(scores), some.sum() + 1)
    for vertex in np.flatnonzero(some):
        found[vertex] = 1 + (scores[some] > scores[vertex]).sum()
    return found


def hardest(near, partners, source, count, base):
    """The definition for one source, by loops."""
    allowed = ~partners[source]
    allowed[source] = False
    common = near[source].astype(int) @ near.astype(int)
    rank = pushed(near, source).astype(np.float32)
    total = ranks(common, allowed) + ranks(rank, allowed)
    ties = mixed(np.arange(len(near)), key(base, 1, source)) >> np.uint64(32)
    scored = [w for w in np.flatnonzero(allowed) if common[w] or rank[w]]
    chosen = sorted(scored, key=lambda w: (total[w], ties[w]))
    order = permuted(np.arange(len(near)), len(near), key(base, 2, source)).tolist()
    chosen += [w for w in order if allowed[w] and w not in scored]
    return chosen[:count]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(("narcs", "items"), [(60, 0), (500, 0), (300, 25)])
def test_candidates_are_those_of_the_definition(directed, narcs, items):
    graph = random_graph(70, narcs)
    pairs = split_pairs(graph, HARD_SHARES, 2, directed, negatives=0)  # the first edge is held out
    types = VertexTypes.of_counts({"user": 70 - items, "item": items}) if items else None
    made = with_hard_candidates(pairs, replace(graph, vertex_types=types), 12)
    near, partners = neighbours(graph, pairs), dense(graph)
    for found in pairs.positives.values():
        partners[found[:, 0], found[:, 1]] = True
    both = [partners, partners.T] if directed else [partners | partners.T] * 2
    kinds = np.arange(70) >= 70 - items
    assert made.replaced == "both"
    for mask in ("val", "test"):
        assert made.candidates[mask].dtype == np.int32
        for ends, row in zip(pairs.positives[mask].tolist(), made.candidates[mask], strict=True):
            expected = []
            for side, (told, other) in enumerate([ends, ends[::-1]]):
                taken = both[side] | (kinds != kinds[other])  # of the type that they replace
                expected += hardest(near, taken, told, 6, key(2, side if directed else 0))
            assert row.tolist() == expected


def test_page_rank_is_near_that_of_the_equation():
    graph = random_graph(30, 200)
    near = neighbours(graph, split_pairs(graph, ("1", "0", "0")))
    exact = 0.15 * np.linalg.inv(np.eye(30) - 0.85 * near / np.maximum(near.sum(1), 1)[:, None])
    matrix = vertex_pairs._near(graph, np.empty((0, 2), int))
    found = page_rank(matrix, np.diff(matrix.indptr), np.arange(30)).toarray()
    assert (found <= exact + 1e-6).all()
    # A vertex keeps less than 5e-5 times its degree of the rest.
    assert (exact - found).max() <= 5e-5 * near.sum() + 1e-6


def test_a_graph_without_enough_others_is_refused():
    graph = from_arcs(4, [(0, 1), (0, 2), (0, 3), (1, 2)])
    pairs = split_pairs(graph, ("0", "0", "1"), negatives=0)
    for count, says in ((2, "has 0 others"), *((wrong, "not half for") for wrong in (0, -2, 3))):
        refuses(says, with_hard_candidates, pairs, graph, count)


def test_the_command(tmp_path):
    path = make_folder(tmp_path / "g.graph", random_graph(50, 300))
    as_json("pairs", path, "--split", ",".join(HARD_SHARES), "--candidates", 5)
    hard = ("negatives", path, "--hard")
    facts = as_json(*hard, 6, "--of", "test")  # drawn ones stay for those to validate on
    assert (facts["candidates"], facts["drawn"]) == ({"test": 6}, 5)
    assert "have candidates of test already" in refused(*hard, 8)
    facts = as_json(*hard, 8, "--force")
    assert (facts["candidates"], facts["drawn"]) == ({"val": 8, "test": 8}, 0)
    pairs = read_pairs(path, "links")
    assert pairs.replaced == "both"
    assert "mean 'links'" in refused("negatives", path, "--pairs", "link")
    second = {"val": np.zeros((len(pairs.positives["val"]), 3), np.int32)}
    write_pairs(path, replace(pairs, candidates=second, replaced="second"), force=True)
    assert "are of the second end only" in refused(*hard, 2, "--of", "test")


# Pairs from files of other programs: OGB, PyTorch Geometric, tables

N = 30
RNG = np.random.default_rng(3)
_ALL = RNG.permutation([(u, v) for u in range(N) for v in range(u)])
PAIRS = {"train": _ALL[:40], "val": _ALL[40:47], "test": _ALL[47:60]}
NEGATIVES = {"val": _ALL[60:70], "test": _ALL[70:85]}
THEIRS = {"train": "train", "val": "valid", "test": "test"}


@pytest.fixture
def linked(tmp_path):
    arcs = [tuple(pair) for pair in PAIRS["train"].tolist()]
    return make_folder(tmp_path / "g.graph", from_arcs(N, [*arcs, *((v, u) for u, v in arcs)]))


def write_old(file, content):
    """The same before torch 1.6: pickles one behind the other."""
    head = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True, "type_sizes": {"int": 4}})
    parts = (*head, content, [])
    file.write_bytes(b"".join(pickle.dumps(part, protocol=2) for part in parts))


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


def same(found, **expected):
    """Compare arrays of a set, or of the one that a folder has, and give the set back."""
    found = read_pairs(found, "links") if isinstance(found, Path) else found
    for kind, arrays in expected.items():
        held = getattr(found, kind)
        assert held.keys() == arrays.keys()
        for mask, array in arrays.items():
            np.testing.assert_array_equal(held[mask], array)
    return found


@pytest.mark.parametrize("write", [write_torch, write_old, write_state])
def test_a_split_of_ogb(tmp_path, linked, write):
    root = tmp_path / "ogbl"
    folder = write_split(root / "split" / "time", write)
    for place in (folder, root):
        told = run("pairs", linked, "--from", place, "--force").stderr
        assert "not read: 'weight', 'year'" in told
        found = same(linked, positives=PAIRS, negatives=NEGATIVES)
        assert (found.directed, found.seed, found.made) == (False, None, f"from {place.name}")
    # The graph comes from the same folder.
    write_text(root, N, PAIRS["train"])
    graph = tmp_path / "ogbl.graph"
    assert "split/time" in run("import", root, graph, "--undirected").stdout
    assert as_json("pairs", graph, "--from", root)["arcs"] == {"train": 40, "val": 0, "test": 0}
    write(folder / "train.pt", {"edge": PAIRS["train"], "edge_neg": PAIRS["train"][:39]})
    told = run("pairs", graph, "--from", folder, "--force").stderr
    assert "39 negatives to train on, for 40 pairs: left out" in told
    assert read_pairs(graph, "links").negatives.keys() == {"val", "test"}


def test_triples_and_sources_with_candidates_of_their_own(tmp_path, linked):
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
        pairs = zip(("head_neg", "tail_neg"), drawn.get(mask, ()), strict=False)
        return found | dict(pairs)

    write_split(tmp_path / "citation", write_old, citation)
    run("pairs", linked, "--from", tmp_path / "citation", "--directed")
    tails = {mask: tail for mask, (_, tail) in drawn.items()}
    found = same(linked, positives=PAIRS, candidates=tails)
    assert (found.replaced, found.directed) == ("second", True)
    (tmp_path / "kg").mkdir()
    write_torch(tmp_path / "kg" / "split_dict.pt", {THEIRS[mask]: wikikg(mask) for mask in MASKS})
    assert as_json("pairs", linked, "--from", tmp_path / "kg", "--force")["relations"] == 4
    both = {mask: np.hstack([tail, head]) for mask, (head, tail) in drawn.items()}
    assert same(linked, relations=relations, candidates=both).replaced == "both"
    typed = lambda mask: wikikg(mask) | {"head_type": np.ones(1)}  # noqa: E731
    write_split(tmp_path / "types", write_torch, typed)
    told = refused("pairs", linked, "--from", tmp_path / "types", "--force")
    assert "vertices of several types" in told


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
def test_graphs_of_random_link_split(tmp_path, linked, split, relations):
    module, storages, parts = "torch_geometric.data", {}, []
    for mask in MASKS:
        fields = labelled(mask, split, relations)
        tensors = {name: tensor(f"{mask}-{name}", array) for name, array in fields.items()}
        storages |= {f"{mask}-{name}": array.tobytes() for name, array in fields.items()}
        state = {"_store": instance(f"{module}.storage", "GlobalStorage", {"_mapping": tensors})}
        parts.append(instance(f"{module}.data", "Data", state))
    write_torch(tmp_path / "split.pt", tuple(parts), storages)
    run("pairs", linked, "--from", tmp_path / "split.pt")

    def data(mask):
        fields = labelled(mask, split, relations) | {"num_nodes": N}
        return SimpleNamespace(to_dict=lambda: fields)

    graph_id = open_graph(linked).manifest.id
    objects = pairs_of(*map(data, MASKS), graph_id=graph_id, directed=False)
    kinds = {mask: np.arange(len(PAIRS[mask])) % 3 for mask in MASKS} if relations else {}
    negatives = {"train": PAIRS["train"][::-1], **NEGATIVES}
    found = same(linked, positives=PAIRS, negatives=negatives, relations=kinds)
    assert write_pairs(linked, objects, force=True).id == found.id


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
def test_lists_of_pairs_and_ids(tmp_path, linked, suffix):
    ids, folder = RNG.permutation(N) + 100, tmp_path / "folder"
    folder.mkdir()
    for mask in MASKS:
        write_list(folder / f"{mask}.{suffix}", ids[PAIRS[mask]].T)
    for mask in NEGATIVES:
        write_list(tmp_path / f"{mask}-negatives.{suffix}", ids[NEGATIVES[mask]].T)
    candidates = RNG.integers(0, N, (len(PAIRS["test"]), 4))
    np.save(tmp_path / "candidates.npy", ids[candidates])
    graph = make_folder(tmp_path / "ids.graph", replace(open_graph(linked).graph, ids=ids))
    words = [f"--{mask}={folder}/{mask}.{suffix}" for mask in MASKS]
    words += [f"--{mask}-negatives={tmp_path}/{mask}-negatives.{suffix}" for mask in NEGATIVES]
    run("pairs", graph, *words, "--test-candidates", tmp_path / "candidates.npy")
    found = same(graph, positives=PAIRS, negatives=NEGATIVES, candidates={"test": candidates})
    assert found.made == f"from train.{suffix}"
    # In a folder: the first vertex has no such number without ids.
    assert "names a vertex outside 0..29" in refused("pairs", linked, "--from", folder)
    write_list(folder / f"train.{suffix}", np.append(ids[PAIRS["train"]], [[99, ids[0]]], 0).T)
    told = refused("pairs", graph, "--from", folder, "--force")
    assert "train names the vertex 99, which the graph does not have" in told


@pytest.mark.parametrize("suffix", ["txt", "parquet", "npy"])
def test_triples_of_texts(tmp_path, linked, suffix):
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
    run("pairs", linked, *words, "--columns", "relation,source,target")  # numbers, under a header
    for of, called in ((graph, tuple(kinds)), (linked, ())):
        assert same(of, positives=PAIRS, relations=relations).relation_names == called


def test_pairs_to_train_on_that_are_held_out_or_join_a_vertex_to_itself(tmp_path, linked):
    train = np.concatenate([[[4, 4]], PAIRS["train"], PAIRS["test"][:2, ::-1]])
    negatives = np.column_stack([np.arange(len(train)), np.zeros(len(train), int)]) % N
    leaking = {"edge": train, "edge_neg": negatives}
    of = lambda mask: leaking if mask == "train" else of_mask(mask)  # noqa: E731
    write_split(tmp_path / "split", write_torch, of)
    text = refused("pairs", linked, "--from", tmp_path / "split")
    assert "2 pairs to train on are also in test" in text
    told = run("pairs", linked, "--from", tmp_path / "split", "--drop-held-out").stderr
    assert "1 pairs to train on of a vertex with itself: left out" in told
    found = same(linked, positives=PAIRS)
    np.testing.assert_array_equal(found.negatives["train"], negatives[1:-2])


def test_what_is_refused(tmp_path, linked):
    for name in "01":
        (tmp_path / "many" / "split" / name).mkdir(parents=True)
    np.savez(tmp_path / "wide.npz", train=PAIRS["train"])
    split = write_split(tmp_path / "split", write_torch)
    short = write_split(tmp_path / "short", write_torch)
    (short / "valid.pt").unlink()
    write_torch(tmp_path / "evil.pt", {"edge": named("os", "system")})
    (tmp_path / "cut.pt").write_bytes(b"\x80\x02K\x01.")
    np.save(tmp_path / "wide.npy", np.zeros((4, 3), int))
    (pairs := tmp_path / "words.csv").write_text("a,b\nc,d\n")
    for told, *words in (
        ("--seed draws pairs", "--from", split, "--seed", 1),
        ("--from takes an .npz", "--train", tmp_path / "wide.npz"),
        ("holds 0, 1, not one split", "--from", tmp_path / "many"),
        ("relation names more", "--train", pairs, "--columns", "source,target,relation"),
        ("are for pairs that are read", "--columns", "source,target"),
        ("there are no pairs of val", "--train", split / "train.pt"),
        ("there is no file", "--from", tmp_path / "none.pt"),
        ("holds the pairs of 1 masks, not of 3", "--from", split / "train.pt"),
        ("it is not clear which files", "--from", short),
        ("names os.system", "--train", tmp_path / "evil.pt"),
        ("is not a file of torch", "--train", tmp_path / "cut.pt"),
        ("pairs are ids in the shape (m, 2)", "--train", tmp_path / "wide.npy"),
        ("vertices are 0..29, not", *(f"--{mask}={pairs}" for mask in MASKS)),
    ):
        assert told in refused("pairs", linked, *words)
    refuses("has no edge_label_index", pairs_of, 1, 2, 3, graph_id="", directed=False)


def test_an_npz_of_all_masks(tmp_path, linked):
    arrays = {"train": PAIRS["train"], "valid": PAIRS["val"], "test": PAIRS["test"].T}
    arrays |= {"val_candidates": np.tile(PAIRS["val"], 2), "other": np.zeros(3)}
    np.savez(tmp_path / "all.npz", test_negatives=NEGATIVES["test"], **arrays)
    assert "not read: 'other'" in run("pairs", linked, "--from", tmp_path / "all.npz").stderr
    found = same(linked, positives=PAIRS, negatives={"test": NEGATIVES["test"]})
    np.testing.assert_array_equal(found.candidates["val"], np.tile(PAIRS["val"], 2))
