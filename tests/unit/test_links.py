"""Pairs for link prediction: how they are split, what is drawn, and what a folder keeps of them."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from command_line import as_json, refused, run
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses
from small_graphs import from_arcs, make_folder, random_graph
from stored_graphs import change_array, change_json

from gcnmpi.proof.links import training_graph
from partition.graph import links
from partition.graph.graph import arcs
from partition.graph.links import drawn_candidates, list_pairs, read_pairs, split_pairs, write_pairs
from partition.graph.relations import Relation
from partition.graph.store import open_graph, write_graph
from partition.importing.readers.typed_source import RelationArcs, TypedSource
from partition.importing.typed import build_typed
from partition.importing.vertex_data import VertexFiles, attach

MASKS = ("train", "val", "test")
SHARES = "0.85", "0.05", "0.10"


@st.composite
def graphs(draw):
    """Directed graphs with loops and isolated vertices; some are symmetric."""
    n = draw(st.integers(1, 9))
    vertex = st.integers(0, n - 1)
    arcs = draw(st.lists(st.tuples(vertex, vertex), max_size=30))
    return from_arcs(n, arcs + ([(v, u) for u, v in arcs] if draw(st.booleans()) else []))


def arcs_in(graph):
    return list(zip(arcs(graph).tolist(), graph.indices.tolist(), strict=True))


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
    made, again = (
        split_pairs(of, shares, seed, directed, negatives=0, twins=())
        for of in (graph, replace(graph, **twice))
    )
    found = [as_tuples(made.positives[mask]) for mask in MASKS]
    assert [as_tuples(again.positives[mask]) for mask in MASKS] == found
    assert sorted(pair for each in found for pair in each) == sorted(expected)
    assert [len(each) for each in found[1:]] == [
        share * len(expected) // 100 for share in (of_val, of_test)
    ]
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
    drawn, half = (links.non_arcs(graph, size, directed, seed) for size in (free, free // 2))
    assert len(set(drawn.tolist())) == free
    np.testing.assert_array_equal(half, drawn[: free // 2])


def test_a_split_depends_on_the_seed_only(monkeypatch):
    graph = random_graph(80, 900)
    made = split_pairs(graph, SHARES, 3, negatives=2)
    for more in ((3,), (4,), (3, True)):
        assert (split_pairs(graph, SHARES, *more, negatives=2).id == made.id) == (more == (3,))
    monkeypatch.setattr(links, "_AT_ONCE", 7)
    assert split_pairs(graph, (0.85, 0.05, 0.1), 3, negatives=2).id == made.id


def test_drawn_candidates_are_the_same_wherever_they_are_drawn():
    made = split_pairs(random_graph(9, 60), ("0", "0.5", "0.5"), 1, negatives=0, candidates=400)
    whole, pairs = drawn_candidates(made, "test", slice(None), 9), made.positives["test"]
    assert (whole.shape, whole.dtype) == ((len(pairs), 400), np.int64)
    np.testing.assert_array_equal(drawn_candidates(made, "test", slice(3, 5), 9), whole[3:5])
    assert drawn_candidates(made, "test", slice(2, 2), 9).shape == (0, 400)
    for pair, row in zip(as_tuples(pairs), whole, strict=True):
        counts = np.bincount(row, minlength=9)
        others = np.delete(counts, pair)
        assert (counts[list(pair)].sum(), others.min() > 25, others.max() < 100) == (0, True, True)
    assert (drawn_candidates(made, "val", slice(0, 1), 9) != whole[0]).any()
    assert (drawn_candidates(replace(made, seed=2), "test", slice(None), 9) != whole).any()


def full_set(path):
    """A set with every kind of array, of a graph folder."""
    stored, rng = open_graph(path), np.random.default_rng(0)
    made = split_pairs(stored.graph, SHARES, 7, negatives=1)
    sizes = {mask: len(found) for mask, found in made.positives.items()}
    return replace(
        made,
        name="full",
        graph_id=stored.manifest.id,
        negatives=made.negatives | {"train": rng.integers(0, 50, (2 * sizes["train"], 2))},
        candidates={mask: rng.integers(0, 50, (sizes[mask], 4)) for mask in ("val", "test")},
        replaced="both",
        relations={mask: rng.integers(0, 3, size) for mask, size in sizes.items()},
    )


@pytest.fixture
def path(tmp_path):
    return make_folder(tmp_path / "g.graph", random_graph(50, 400))


def test_a_folder_gives_back_what_was_written(path):
    made = full_set(path)
    stored, found = write_pairs(path, made), read_pairs(path, "full")
    for kind in ("positives", "negatives", "candidates", "relations"):
        given, back = getattr(made, kind), getattr(found, kind)
        assert given.keys() == back.keys()
        for mask in given:
            np.testing.assert_array_equal(given[mask], back[mask])
            assert (back[mask].dtype, type(back[mask])) == (np.int32, np.memmap)
    for name in ("name", "graph_id", "directed", "seed", "made", "replaced", "drawn"):
        assert getattr(found, name) == getattr(made, name)
    assert found.id == stored.id
    both = np.concatenate([made.positives["val"], made.positives["test"]])
    np.testing.assert_array_equal(links.held_out(found), both)
    # The id is of all that a run sees.
    changes = {"directed": True}, {"replaced": "second"}, {"drawn": 3}, {"drawn": 3, "seed": 8}
    others = {"relations": {}}, {"candidates": {}}
    ids = {links.identified(replace(made, **one)).id for one in ({}, *changes, *others)}
    assert len(ids) == 7
    assert links.identified(replace(made, name="x", seed=8, made="")).id in ids
    # A mapped array outlives the set: of a run that has begun, say.
    assert list_pairs(path) == ["full"]
    links.remove_pairs(path, "full")
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
    "does not describe pairs": {"version": 9},
    "unknown field": {"more": 1},
    "seed cannot be": {"seed": "a"},
    "made for another graph": {"graph_id": "0" * 32},
    "contradicts itself": {"sums": {}},
    "candidates that are drawn": {"drawn": 4, "seed": None},
}
ARRAYS = {
    "int64, not int32": ("test", lambda array: array.astype(np.int64)),
    "the manifest asks for": ("test", lambda array: array[1:]),
    "has the vertex 50": ("train", lambda array: np.where(array == array[1, 1], 50, array)),
}


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
    for says, (name, change) in ARRAYS.items():
        np.save(folder / f"{name}.npy", change(np.load(folder / f"{name}.npy")))
        refused_and_mended(says)
    for name in ("train", "test_candidates", "val_relations", "train_negatives"):
        first = np.load(folder / f"{name}.npy").flat[0]
        change_array(folder, name, (0,) * (1 if "relations" in name else 2), 1 - first % 2)
        refused_and_mended(f"{name}.npy does not hold what pairs.json says")
    for name, content, says in (
        ("pairs.json", b"{", "cannot read"),
        ("val.npy", b"\x93NUMPY", "truncated"),
        ("val.npy", None, "is missing"),
    ):
        (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
        refused_and_mended(says)
    read_pairs(path, "full")
    change_json(folder / "pairs.json", id="0" * 32)  # which no checksum is of
    result = run("check", path, code=2)
    assert "the id is not that of the arrays" in result.stdout
    assert "gcn-partition pairs --force" in result.stderr


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
        ({"seed": -1}, "seed -1 is outside"),
        ({"seed": 2**63}, "is outside"),
        ({"replaced": "first"}, "replaced is 'first'"),
        (positives("test", [1, 50]), r"test has the vertex 50: the graph has 0\.\.49"),
        (positives("test", [-1, 1]), "the vertex -1"),
        (positives("val", [4, 4]), r"val has the pair \(4, 4\)"),
        (positives("val", [u, v]), rf"1 pairs .* are also in val, such as \({u}, {v}\)"),
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
    known = [one["arcs"] for one in as_json("info", path)["pairs"]]
    assert known == [one["positives"] for one in listed]
    assert as_json("info", path, "links") == facts
    count = facts["positives"]["test"]
    assert f"{count} pairs, {count} of them arcs" in run("info", path, "links").stdout
    assert "pairs links: vertices, checksums" in run("check", path).stdout
    assert as_json("remove", path, "links")["removed"] == ["links"]
    assert list_pairs(path) == ["both"]


def test_mistakes_of_the_command(path):
    run("pairs", path)
    run("add", path, "--model", "rp", "-k", 2)
    split = "--force", "--split"
    for words, told in (
        ([], "has pairs 'links' already\n  hint: give --name or --force"),
        ([*split, "0.9,0.1,0.1"], "add up to 1.1, not to 1"),
        *(([*split, shares], "no three shares") for shares in ("0.9,0.1", "a,b,c", "1.5,-0.5,0")),
        ([*split, "1/0,0,0"], "no three shares"),
        (["--negatives", 1000, "--name", "x"], "too dense"),
        (["--seed", -1, "--name", "x"], "seed -1 is outside"),
        (["--name", "rp-2"], "has a partition 'rp-2'"),
        (["--relation", "buys", "--force"], "has no relations"),
    ):
        assert told in refused("pairs", path, *words)
    for command in ("info", "remove"):
        assert "did you mean 'links'?" in refused(command, path, "link")
    assert "has pairs 'links'" in refused("add", path, "--model", "rp", "-k", 2, "--name", "links")
    run("pairs", path, "--force", "--seed", 1)
    other = make_folder(path.with_name("h.graph"), random_graph(5, 9))
    refuses("has no pairs 'x', nor any others", read_pairs, other, "x")


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
        assert not links.has_arcs(shop, np.array(together), directed).any()
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
    "copy": ({"a": "as", "b": "as"}, "", "b"),
    "symmetric": ({"a": "both"}, "", "a"),
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
    gone = links.left_out(made, source, target, graph.n, graph.arc_type)
    arcs_of = zip(source.tolist(), target.tolist(), np.array(names)[graph.arc_type], strict=True)
    np.testing.assert_array_equal(gone, [of_mask.get(arc, "train") != "train" for arc in arcs_of])
    # Pairs that do not say of which relation they are take no less.
    plain = replace(made, relations={}, relation_names=())
    without = links.left_out(plain, source, target, graph.n, graph.arc_type)
    assert (without >= gone).all()
    for pairs, left in ((made, ~gone), (plain, ~without)):
        rest = training_graph(graph, pairs)
        np.testing.assert_array_equal(arcs(rest), source[left])
        np.testing.assert_array_equal(rest.arc_type, graph.arc_type[left])
    if case in ("reverse", "copy", "all"):
        assert {names[r] for of in made.relations.values() for r in of} == {"a"}


@pytest.mark.parametrize("share", [0, 0.03, 0.5])
def test_a_graph_that_is_nearly_symmetric_has_one_mask_for_both_ways(tmp_path, share):
    drawn = pairs_in(random_graph(60, 900), False)
    back = [(v, u) for u, v in sorted(drawn)][int(share * len(drawn)) :]
    path = make_folder(tmp_path / "g.graph", graph := from_arcs(60, [*drawn, *back]))
    told, nearly = run("pairs", path, "--directed").stderr, share < 0.1
    made = read_pairs(path, "links")
    held = {*as_tuples(links.held_out(made))}
    gone = links.left_out(made, arcs(graph), graph.indices, graph.n)
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


def test_pairs_are_arcs_of_their_relation_and_direction_only():
    ends = {"r": [(0, 1), (1, 2)], "s": [(2, 0), (0, 1)]}
    graph = typed({"v": 3}, {Relation("v", name, "v"): of for name, of in ends.items()})
    pairs = np.array([[0, 1], [0, 1], [1, 0], [1, 2], [1, 2], [2, 0], [2, 0], [2, 1]])
    kinds = np.array([0, 1, 0, 0, 1, 0, 1, 0])
    found = links.has_arcs(graph, pairs, True, kinds)
    assert found.tolist() == [True, True, False, True, False, False, True, False]
    assert links.has_arcs(graph, pairs, False, kinds).tolist()[2] is True


def test_some_relations_can_be_split_and_triples_have_ends_of_the_types(tmp_path, shop):
    path, buys = make_folder(tmp_path / "shop.graph", shop), tmp_path / "buys.csv"
    facts = as_json("pairs", path, "--relation", "user,buys,item", "--name", "buys")
    assert (facts["directed"], facts["made"]) == (True, "split 0.85,0.05,0.10 of user,buys,item")
    made = read_pairs(path, "buys")
    assert made.relations.keys() == {*MASKS, "val_negatives", "test_negatives"}
    assert all(set(of.tolist()) == {1} for of in made.relations.values())
    assert as_json("info", path, "buys") == facts
    assert as_json("pairs", path)["positives"]["train"] > facts["positives"]["train"]
    assert "sells" in refused("pairs", path, "--relation", "sells", "--force")
    told = refused("pairs", path, "--from", path, "--relation", "buys", "--force")
    assert "--relation draws pairs" in told
    nothing = replace(shop, arc_type=np.full_like(shop.arc_type, 1))  # all arcs are of "buys"
    refuses("no arcs of knows to split", split_pairs, nothing, ("1", "0", "0"), relations=["knows"])
    words = ["pairs", path, "--train", buys, "--columns", "source,relation,target", "--name", "own"]
    for number, mask in enumerate(("val", "test")):
        (tmp_path / f"{mask}.csv").write_text(f"1,buys,3{number}\n")
        words += [f"--{mask}", tmp_path / f"{mask}.csv"]
    for line, told in (
        ("0,buys,5", "the vertex 5 is no item"),
        ("30,buys,31", "the vertex 30 is no user"),
        ("0,buys", "--columns source,relation,target names more"),
    ):
        buys.write_text(f"{line}\n")
        assert told in refused(*words)
    buys.write_text("0,buys,30\n2,knows,3\n")
    assert as_json(*words)["positives"]["train"] == 2
