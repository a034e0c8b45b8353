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
from stored_graphs import change_json

from gcnmpi.nn.tasks.drawing import drawer_of
from gcnmpi.options.config import load_config
from gcnmpi.proof.links import training_graph
from partition.errors import UserError
from partition.graph import links
from partition.graph.graph import arcs
from partition.graph.links import (
    drawn_candidates,
    held_out,
    list_pairs,
    read_pairs,
    remove_pairs,
    split_pairs,
    write_pairs,
)
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
    if draw(st.booleans()):
        arcs += [(v, u) for u, v in arcs]
    return from_arcs(n, arcs)


def pairs_in(graph, directed):
    """The set of pairs that the arcs make, without loops, by Python's sets."""
    source = np.repeat(np.arange(graph.n), np.diff(graph.indptr)).tolist()
    arcs = {(u, v) for u, v in zip(source, graph.indices.tolist(), strict=True) if u != v}
    return arcs if directed else {(min(pair), max(pair)) for pair in arcs}


def as_tuples(pairs):
    return [tuple(pair) for pair in pairs.tolist()]


@given(graphs(), st.booleans(), st.integers(0, 2**63 - 1), st.integers(0, 100))
def test_a_split_is_disjoint_complete_and_of_the_sizes_asked_for(graph, directed, seed, percent):
    shares = f"{100 - percent}/100", f"{percent // 3}/100", f"{percent - percent // 3}/100"
    expected = pairs_in(graph, directed)
    made = split_pairs(graph, shares, seed, directed, negatives=0, twins=())
    found = [as_tuples(made.positives[mask]) for mask in MASKS]
    assert sorted(pair for each in found for pair in each) == sorted(expected)
    assert [len(each) for each in found[1:]] == [
        percent // 3 * len(expected) // 100,
        (percent - percent // 3) * len(expected) // 100,
    ]
    assert all(each == sorted(each) for each in found)
    assert made.negatives == {}
    assert made.directed == directed
    assert {a.dtype for a in made.positives.values()} == {np.dtype(np.int32)}


@given(graphs(), st.booleans(), st.integers(0, 99), st.integers(1, 3))
def test_negatives_are_distinct_and_no_arcs(graph, directed, seed, each):
    expected = pairs_in(graph, directed)
    free = graph.n * (graph.n - 1) // (1 if directed else 2) - len(expected)
    sizes = [int(len(expected) * share // 4) * each for share in (1, 1)]
    if sum(sizes) > free:
        shares = "1/2", "1/4", "1/4"
        refuses("too dense", split_pairs, graph, shares, seed, directed, each, twins=())
        return
    made = split_pairs(graph, ("1/2", "1/4", "1/4"), seed, directed, each, twins=())
    found = [as_tuples(made.negatives[mask]) for mask in ("val", "test")]
    assert [len(one) for one in found] == sizes
    together = found[0] + found[1]
    assert len(set(together)) == len(together)
    assert not set(together) & expected
    assert all(u != v if directed else u < v for u, v in together)


def test_all_pairs_without_an_arc_can_be_negatives():
    graph = from_arcs(7, [(u, v) for u in range(7) for v in range(u) if u + v > 3])
    free = 7 * 6 // 2 - graph.nnz
    drawn = links.non_arcs(graph, free, False, 5)
    assert len(set(drawn.tolist())) == free
    # A longer draw begins with a shorter one.
    np.testing.assert_array_equal(links.non_arcs(graph, 2, False, 5), drawn[:2])


def test_negatives_are_uniform():
    graph, counts = from_arcs(6, [(0, 1), (1, 0), (2, 3)]), np.zeros(36)
    for seed in range(3000):
        counts[links.non_arcs(graph, 2, False, links.key(seed, 1))] += 1
    free = counts[counts > 0]
    assert len(free) == 13
    assert abs(free - 6000 / 13).max() < 5 * np.sqrt(6000 / 13)


def test_a_split_depends_on_the_seed_only(monkeypatch):
    graph = random_graph(80, 900)
    made = split_pairs(graph, SHARES, 3, negatives=2)
    assert split_pairs(graph, SHARES, 3, negatives=2).id == made.id
    assert split_pairs(graph, SHARES, 4, negatives=2).id != made.id
    assert split_pairs(graph, SHARES, 3, True, negatives=2).id != made.id
    monkeypatch.setattr(links, "_AT_ONCE", 7)
    assert split_pairs(graph, (0.85, 0.05, 0.1), 3, negatives=2).id == made.id


def test_pairs_of_a_graph_with_one_way_of_each_edge_are_those_of_both_ways():
    arcs = pairs_in(random_graph(40, 200), False)
    one, both = from_arcs(40, arcs), from_arcs(40, [*arcs, *((v, u) for u, v in arcs)])
    first, second = split_pairs(one, SHARES), split_pairs(both, SHARES)
    for mask in MASKS:
        np.testing.assert_array_equal(first.positives[mask], second.positives[mask])
    for mask in ("val", "test"):
        np.testing.assert_array_equal(first.negatives[mask], second.negatives[mask])


@pytest.mark.parametrize("directed", [False, True])
def test_parallel_arcs_are_one_pair(directed):
    graph = random_graph(30, 120)
    twice = np.repeat(graph.indices, 2)
    parallel = replace(graph, indptr=2 * graph.indptr, indices=twice, parallel=True)
    one, other = (
        split_pairs(each, SHARES, 2, directed, graph_id="id") for each in (graph, parallel)
    )
    assert one.id == other.id


@pytest.mark.parametrize("arcs", [[], [(0, 0)], [(1, 0)]])
def test_graphs_of_no_pair_or_one(tmp_path, arcs):
    path = make_folder(tmp_path / "g.graph", from_arcs(3, arcs))
    write_pairs(path, split_pairs(open_graph(path).graph, SHARES))
    made = read_pairs(path, "links")
    assert as_tuples(made.positives["train"]) == [(0, 1)] * ((1, 0) in arcs)
    assert held_out(made).shape == (0, 2)
    empty = split_pairs(from_arcs(0, []), SHARES)
    assert [len(empty.positives[mask]) for mask in MASKS] == [0, 0, 0]


def test_drawn_candidates_are_the_same_wherever_they_are_drawn():
    graph = random_graph(9, 60)
    made = split_pairs(graph, ("0", "0.5", "0.5"), 1, negatives=0, candidates=400)
    whole = drawn_candidates(made, "test", slice(None), 9)
    pairs = made.positives["test"]
    assert whole.shape == (len(pairs), 400)
    assert whole.dtype == np.int64
    np.testing.assert_array_equal(drawn_candidates(made, "test", slice(3, 5), 9), whole[3:5])
    assert drawn_candidates(made, "test", slice(2, 2), 9).shape == (0, 400)
    for pair, row in zip(as_tuples(pairs), whole, strict=True):
        counts = np.bincount(row, minlength=9)
        assert counts[list(pair)].sum() == 0
        others = np.delete(counts, pair)
        assert others.min() > 25
        assert others.max() < 100
    assert (drawn_candidates(made, "val", slice(0, 1), 9) != whole[0]).any()
    other = replace(made, seed=2)
    assert (drawn_candidates(other, "test", slice(None), 9) != whole).any()


def full_set(path):
    """A set with every kind of array, of a graph folder."""
    stored = open_graph(path)
    made = split_pairs(stored.graph, SHARES, 7, negatives=1)
    rng = np.random.default_rng(0)
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
    stored = write_pairs(path, made)
    found = read_pairs(path, "full")
    for kind in ("positives", "negatives", "candidates", "relations"):
        given, back = getattr(made, kind), getattr(found, kind)
        assert given.keys() == back.keys()
        for mask in given:
            np.testing.assert_array_equal(given[mask], back[mask])
            assert back[mask].dtype == np.int32
            assert isinstance(back[mask], np.memmap)
    for name in ("name", "graph_id", "directed", "seed", "made", "replaced", "drawn"):
        assert getattr(found, name) == getattr(made, name)
    assert found.id == stored.id
    np.testing.assert_array_equal(
        held_out(found), np.concatenate([made.positives["val"], made.positives["test"]])
    )
    assert list_pairs(path) == ["full"]
    # A mapped array outlives the set: of a run that has begun, say.
    remove_pairs(path, "full")
    assert list_pairs(path) == []
    assert found.positives["train"].sum() > 0
    assert [file.name for file in (path / "pairs").iterdir()] == []


def test_the_id_is_of_all_that_a_run_sees(path):
    made = full_set(path)
    ids = {links.identified(one).id for one in (
        made, replace(made, directed=True), replace(made, replaced="second"),
        replace(made, drawn=3), replace(made, drawn=3, seed=8), replace(made, relations={}),
        replace(made, candidates={}),
    )}  # fmt: skip
    assert len(ids) == 7
    assert links.identified(replace(made, name="x", seed=8, made="")).id == made_id(made)


def made_id(made):
    return links.identified(made).id


def test_files_of_a_set_that_are_damaged(path):
    write_pairs(path, full_set(path))
    folder = path / "pairs" / "full"

    def damaged(change):
        kept = folder.with_name("kept")
        shutil.copytree(folder, kept)
        change()
        refused = refuses(".", read_pairs, path, "full")
        shutil.rmtree(folder)
        kept.rename(folder)
        return refused.message

    def edited(**facts):
        change_json(folder / "pairs.json", **facts)

    def changed(name, change):
        array = np.load(folder / f"{name}.npy")
        np.save(folder / f"{name}.npy", change(array))

    def flipped(array):
        array[0] = (array[0] + 1) % 2
        return array

    def outside(array):
        array[1, 1] = 50
        return array

    assert "does not describe pairs" in damaged(lambda: edited(version=9))
    assert "unknown field" in damaged(lambda: edited(more=1))
    assert "seed cannot be" in damaged(lambda: edited(seed="a"))
    assert "made for another graph" in damaged(lambda: edited(graph_id="0" * 32))
    assert "contradicts itself" in damaged(lambda: edited(sums={}))
    assert "candidates that are drawn" in damaged(lambda: edited(drawn=4, seed=None))
    assert "cannot read" in damaged(lambda: (folder / "pairs.json").write_text("{"))
    assert "is missing" in damaged(lambda: (folder / "val.npy").unlink())
    assert "truncated" in damaged(lambda: (folder / "val.npy").write_bytes(b"\x93NUMPY"))
    assert "int64, not int32" in damaged(lambda: changed("test", lambda a: a.astype(np.int64)))
    assert "the manifest asks for" in damaged(lambda: changed("test", lambda a: a[1:]))
    assert "has the vertex 50" in damaged(lambda: changed("train", outside))
    for name in ("train", "test_candidates", "val_relations", "train_negatives"):
        text = damaged(lambda name=name: changed(name, flipped))
        assert f"{name}.npy does not hold what pairs.json says" in text
    read_pairs(path, "full")


def test_sets_that_are_refused(path):
    made = full_set(path)
    train, test = made.positives["train"], made.positives["test"]

    def refusal(**changes):
        caught = refuses(".", write_pairs, path, replace(made, **changes))
        return caught.message

    def positives(**changed):
        return {"positives": made.positives | changed, "candidates": {}, "relations": {}}

    assert "another graph" in refusal(graph_id="0" * 32)
    assert "not a valid name" in refusal(name="a/b")
    assert "seed -1 is outside" in refusal(seed=-1)
    assert "replaced is 'first'" in refusal(replaced="first")
    outside = np.array([[1, 50]])
    assert "test has the vertex 50: the graph has 0..49" in refusal(**positives(test=outside))
    assert "the vertex -1" in refusal(**positives(test=-outside[:, [1, 0]] // 50))
    assert "val has the pair (4, 4)" in refusal(**positives(val=np.array([[4, 4]])))
    u, v = train[3].tolist()
    for pair in ((u, v), (v, u)):
        text = refusal(**positives(val=np.array([pair])))
        assert f"1 pairs to train on are also in val, such as ({u}, {v})" in text
    assert "val_negatives is int32 of shape" in refusal(negatives={"val": test[:, :1]})
    assert "train_negatives" in refusal(negatives={"train": train[1:]})
    assert "not whole numbers" in refusal(negatives={"val": np.array([[0.5, 1]])})
    odd = {"test": np.zeros((len(test), 3), np.int32)}
    assert "test_candidates" in refusal(candidates=odd)
    assert "test_relations" in refusal(relations={"test": np.zeros(1, int)})
    assert list_pairs(path) == []
    # Either way round is another pair of a directed set.
    reverse = np.array([[v, u]])
    if (v, u) not in as_tuples(train):
        write_pairs(path, replace(made, directed=True, **positives(val=reverse)))


def test_the_commands_that_know_pairs(path):
    graph = open_graph(path).graph
    facts = as_json("pairs", path, "--candidates", 5, "--undirected", "--seed", 3)
    assert facts["id"] == split_pairs(graph, SHARES, 3, candidates=5).id
    assert facts["arcs"] == facts["positives"]
    assert facts["drawn"] == 5
    assert as_json("pairs", path, "--name", "both")["directed"] is True  # as the graph
    listed = as_json("list", path)
    assert [(one["kind"], one["name"]) for one in listed] == [("pairs", "both"), ("pairs", "links")]
    described = as_json("info", path)
    assert [one["arcs"] for one in described["pairs"]] == [one["positives"] for one in listed]
    assert as_json("info", path, "links") == facts
    text = run("info", path, "links").stdout
    assert f"{facts['positives']['test']} pairs, {facts['positives']['test']} of them arcs" in text
    assert "links" in run("list", path).stdout
    assert "both" in run("info", path).stdout
    for name in ("links", "both"):
        assert f"pairs {name}: vertices, checksums" in run("check", path).stdout
    assert as_json("remove", path, "links")["removed"] == ["links"]
    assert list_pairs(path) == ["both"]


def test_check_finds_what_no_checksum_does(path):
    run("pairs", path)
    folder = path / "pairs" / "links"
    change_json(folder / "pairs.json", id="0" * 32)
    result = run("check", path, code=2)
    assert "the id is not that of the arrays" in result.stdout
    assert "gcn-partition pairs --force" in result.stderr


def test_lines_of_the_command(path):
    run("pairs", path)
    taken = refused("pairs", path)
    assert taken == (
        f"error: {path} has pairs 'links' already\n"
        "  hint: give --name or --force, or remove them first\n"
    )
    run("pairs", path, "--force", "--seed", 1)
    assert "add up to 1.1, not to 1" in refused("pairs", path, "--split", "0.9,0.1,0.1", "--force")
    for split in ("0.9,0.1", "a,b,c", "1.5,-0.5,0", "1/0,0,0"):
        assert "are no three shares" in refused("pairs", path, "--split", split, "--force")
    assert "too dense" in refused("pairs", path, "--negatives", 1000, "--name", "x")
    assert "seed -1 is outside" in refused("pairs", path, "--seed", -1, "--name", "x")
    assert "did you mean 'links'?" in refused("info", path, "link")
    assert "did you mean 'links'?" in refused("remove", path, "link")
    run("add", path, "--model", "rp", "-k", 2)
    assert "has a partition 'rp-2'" in refused("pairs", path, "--name", "rp-2")
    with pytest.raises(UserError, match="has no pairs 'x', nor any others"):
        read_pairs(make_folder(path.with_name("h.graph"), random_graph(5, 9)), "x")
    assert "has pairs 'links'" in refused("add", path, "--model", "rp", "-k", 2, "--name", "links")


def test_pairs_stay_where_the_arcs_stay(path):
    run("pairs", path)
    made = read_pairs(path, "links")
    run("attach", path, "--features", "random:3")
    kept = read_pairs(path, "links")
    assert kept.id == made.id
    np.testing.assert_array_equal(kept.positives["train"], made.positives["train"])
    lines = []
    write_graph(path, random_graph(50, 300, 1), source={}, overwrite=True, report=lines.append)
    assert lines == ["pairs deleted, of other arcs or damaged: links"]
    assert list_pairs(path) == []


@pytest.mark.parametrize(("n", "width"), [(50, 8), (7, 12)])
def test_orthogonal_features_are_those_of_torch(n, width):
    graph = random_graph(n, 3 * n)
    rows = attach(graph, VertexFiles("orthogonal:" + str(width))).features
    gram = rows.T @ rows if n >= width else rows @ rows.T
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-6)
    refuses("random:C", attach, graph, VertexFiles(None, "orthogonal:3"))


SHOP = {"user": 30, "item": 40}
KNOWS, BUYS = Relation("user", "knows", "user"), Relation("user", "buys", "item")


@pytest.fixture(scope="module")
def shop():
    """Users know users and buy items, with the reverses of both; there are loops."""
    random, tables = np.random.default_rng(5), []
    for one, count in ((KNOWS, 120), (BUYS, 200)):
        most = [[SHOP[one.source]], [SHOP[one.target]]]
        tables.append(RelationArcs(one, *random.integers(0, most, (2, count))))
    return build_typed(TypedSource(SHOP, tables, format="test"), reverse=True)[0]


def triples_in(graph, directed):
    """The pairs of each relation that is no reverse, by Python's sets."""
    found = {}
    for u, v, r in zip(arcs(graph).tolist(), graph.indices.tolist(), graph.arc_type, strict=True):
        one = graph.relations[r]
        if u != v and not one.name.startswith("rev_"):
            pair = (u, v) if directed or one == BUYS else (min(u, v), max(u, v))
            found.setdefault(int(r), set()).add(pair)
    return found


@pytest.mark.parametrize("directed", [False, True])
def test_pairs_of_relations_are_split_and_have_negatives_relation_by_relation(shop, directed):
    expected, shares = triples_in(shop, directed), ("3/5", "1/10", "3/10")
    made = split_pairs(shop, shares, 4, directed, 2)
    assert made.relation_names == ("knows", "buys", "rev_knows", "rev_buys")
    assert len(expected) == 2
    for r, pairs in expected.items():
        found, drawn = (
            [as_tuples(of[mask][made.relations[f"{mask}{end}"] == r]) for mask in masks]
            for of, masks, end in (
                (made.positives, MASKS, ""), (made.negatives, MASKS[1:], "_negatives"),
            )
        )  # fmt: skip
        assert sorted(pair for each in found for pair in each) == sorted(pairs)
        sizes = [len(pairs) * share // 10 for share in (1, 3)]
        assert [len(each) for each in found[1:]] == sizes
        assert [len(each) for each in drawn] == [2 * size for size in sizes]
        together = drawn[0] + drawn[1]
        assert len(set(together)) == len(together)
        assert not links.has_arcs(shop, np.array(together), directed).any()
        one = shop.relations[r]
        of = shop.vertex_types.range(one.source), shop.vertex_types.range(one.target)
        assert all(u in of[0] and v in of[1] and u != v for u, v in together)
        if not directed and one == KNOWS:
            assert all(u < v for u, v in together)


def test_held_out_arcs_of_a_split_leave_with_their_reverses(shop):
    made = split_pairs(shop, SHARES, 4, True)
    source, target = arcs(shop), np.asarray(shop.indices)
    gone = links.left_out(made, source, target, shop.n, shop.arc_type)
    assert np.count_nonzero(gone) == 2 * len(held_out(made))
    names = np.array([one.name for one in shop.relations])[shop.arc_type[gone]]
    counts = {name: np.count_nonzero(names == name) for name in set(names.tolist())}
    assert counts["knows"] == counts["rev_knows"] > 0
    assert counts["buys"] == counts["rev_buys"] > 0


TWINS = {  # relations, each with what its arcs are of 300 drawn ones; options; what leaves with "a"
    "reverse": ({"a": "as", "b": "turned"}, [], {"b"}),
    "nearly": ({"a": "as", "b": "turned less 8%"}, [], {"b"}),
    "half of a": ({"a": "as", "b": "turned less 60%"}, [], {"b"}),
    "other": ({"a": "as", "b": "another"}, [], set()),
    "copy": ({"a": "as", "b": "as"}, [], {"b"}),
    "symmetric": ({"a": "both"}, [], {"a"}),
    "all": ({"a": "as", "b": "turned", "c": "as", "d": "both"}, [], {"b", "c", "d"}),
    "more": ({"a": "as less 60%", "b": "turned"}, [], set()),
    "named": ({"a": "as less 60%", "b": "turned"}, ["--reverse-of", "b=a"], {"b"}),
    "named copy": ({"a": "as less 60%", "b": "as"}, ["--copy-of", "b=a"], {"b"}),
    "none": ({"a": "as", "b": "turned"}, ["--reverse-of", "none"], set()),
    "either way": ({"a": "as", "b": "both"}, [], {"b"}),
    "together": ({"a": "as", "b": "turned"}, ["--relation", "a", "--relation", "b"], {"b"}),
    "all of them": ({"a": "both", "b": "both less 3%"}, [], {"a", "b"}),
}  # fmt: skip


def relations_like(wanted):
    """A graph of one type with such relations."""
    random, tables = np.random.default_rng(1), []
    drawn = np.unique(random.integers(0, 60, (300, 2)), axis=0)
    drawn = drawn[drawn[:, 0] < drawn[:, 1]]
    for name, what in wanted.items():
        of = random.integers(0, 60, (100, 2)) if what == "another" else drawn
        of = of[:, ::-1] if "turned" in what else of
        of = np.unique(np.concatenate([of, of[:, ::-1]]), axis=0) if "both" in what else of
        less = int(what.partition("less ")[2].rstrip("%") or 0)
        of = of[len(of) * less // 100 :]
        tables.append(RelationArcs(Relation("v", name, "v"), *of.T))
    return build_typed(TypedSource({"v": 60}, tables, format="test"))[0]


@pytest.mark.parametrize("case", TWINS)
def test_no_held_out_edge_stays_in_the_graph_by_another_relation(tmp_path, case):
    wanted, words, others = TWINS[case]
    graph = relations_like(wanted)
    path = make_folder(tmp_path / "g.graph", graph)
    told = run("pairs", path, "--split", "0.5,0.2,0.3", *words).stderr
    made = read_pairs(path, "links")
    names, source, target = [one.name for one in graph.relations], arcs(graph), graph.indices
    assert all(name in told for name in others) or words
    # No edge is in two masks, whichever relation says it.
    twins = {(names[t.relation], names[t.other], t.turned) for t in made.twins}
    assert {b for a, b, _ in twins if a == "a"} == others
    of_mask = {}
    for mask in MASKS:
        for (u, v), r in zip(as_tuples(made.positives[mask]), made.relations[mask], strict=True):
            ways = {(u, v, names[r])}
            ways |= {(*((v, u) if t else (u, v)), b) for a, b, t in twins if a == names[r]}
            assert {of_mask.setdefault(way, mask) for way in ways} == {mask}
    gone = links.left_out(made, source, target, graph.n, graph.arc_type)
    arcs_of = zip(source.tolist(), target.tolist(), np.array(names)[graph.arc_type], strict=True)
    expected = [of_mask.get(arc, "train") != "train" for arc in arcs_of]
    np.testing.assert_array_equal(gone, expected)
    rest = training_graph(graph, made)
    np.testing.assert_array_equal(arcs(rest), source[~gone])
    np.testing.assert_array_equal(rest.arc_type, graph.arc_type[~gone])
    # Pairs that do not say of which relation they are.
    plain = replace(made, relations={}, relation_names=())
    without = links.left_out(plain, source, target, graph.n, graph.arc_type)
    assert (without >= gone).all()
    np.testing.assert_array_equal(arcs(training_graph(graph, plain)), source[~without])
    if case in ("reverse", "copy", "all"):
        kept = {names[r] for of in made.relations.values() for r in of}
        assert kept == {"a"}


@pytest.mark.parametrize("share", [0, 0.03, 0.5])
def test_a_graph_that_is_nearly_symmetric_has_one_mask_for_both_ways(tmp_path, share):
    drawn = pairs_in(random_graph(60, 900), False)
    back = [(v, u) for u, v in sorted(drawn)][int(share * len(drawn)) :]
    graph = from_arcs(60, [*drawn, *back])
    path = make_folder(tmp_path / "g.graph", graph)
    told = run("pairs", path, "--directed").stderr
    made, source, target = read_pairs(path, "links"), arcs(graph), graph.indices
    held = {*as_tuples(held_out(made))}
    gone = links.left_out(made, source, target, graph.n)
    expected = {*held, *({(v, u) for u, v in held} if share < 0.1 else ())}
    np.testing.assert_array_equal(
        gone, [arc in expected for arc in zip(source.tolist(), target.tolist(), strict=True)]
    )
    np.testing.assert_array_equal(arcs(training_graph(graph, made)), source[~gone])
    assert ("symmetric" in told) == (share < 0.1)
    train = {*as_tuples(made.positives["train"])}
    assert share > 0.1 or not train & expected
    assert made.both_ways("train").all() == (share < 0.1)


def test_pairs_that_are_read_keep_their_masks_and_say_which_edges_stay(tmp_path):
    graph = relations_like({"a": "as", "b": "turned"})
    path, triples = make_folder(tmp_path / "g.graph", graph), tmp_path / "t"
    triples.mkdir()
    edges = [(u, v, "a") for u, v in sorted(pairs_in(graph, False))]
    back = [(v, u, "b") for u, v, _ in edges]

    def read(*words, **listed):
        for mask, some in listed.items():
            (triples / f"{mask}.tsv").write_text("".join(f"{u}\t{r}\t{v}\n" for u, v, r in some))
        words = ("pairs", path, "--from", triples, "--columns", "source,relation,target", *words)
        return run(*words, "--force").stderr, read_pairs(path, "links")

    some = {"train": edges[40:], "val": edges[:20], "test": edges[20:40]}
    told, made = read(**some)
    assert "b has the edges of a turned round" in told
    assert (0, 1, True) in made.twins
    told, made = read(**some | {"train": edges[40:] + back[:5] + [(3, 3, "a")]})
    assert "5 held-out pairs of a" in told
    assert "--reverse-of b=a" in told
    assert "1 pairs of train join a vertex to itself" in told
    assert (0, 1, True) not in made.twins
    assert (0, 1, True) in read("--reverse-of", "b=a", "--force")[1].twins
    (triples / "val.tsv").write_text("".join(f"{u}\t{r}\t{v}\n" for u, v, r in edges[:21]))
    words = "pairs", path, "--from", triples, "--columns", "source,relation,target", "--force"
    assert "1 pairs to validate on are also in test" in run(*words).stderr
    run(*words, "--drop-held-out")
    assert len(read_pairs(path, "links").positives["val"]) == 20
    for wrong in ("b", "b=c", "c=a"):
        assert "--reverse-of" in refused("pairs", path, "--reverse-of", wrong, "--force")


def test_pairs_are_arcs_of_their_relation_and_direction_only(tmp_path):
    ends = {"r": [(0, 1), (1, 2)], "s": [(2, 0), (0, 1)]}
    tables = [RelationArcs(Relation("v", name, "v"), *np.array(of).T) for name, of in ends.items()]
    graph = build_typed(TypedSource({"v": 3}, tables, format="test"))[0]
    pairs = np.array([[0, 1], [0, 1], [1, 0], [1, 2], [1, 2], [2, 0], [2, 0], [2, 1]])
    kinds = np.array([0, 1, 0, 0, 1, 0, 1, 0])
    found = links.has_arcs(graph, pairs, True, kinds)
    assert found.tolist() == [True, True, False, True, False, False, True, False]
    assert links.has_arcs(graph, pairs, False, kinds).tolist()[2] is True


def test_drawn_candidates_are_of_the_type_of_the_second_end(shop):
    made = split_pairs(shop, ("0", "0", "1"), 1, True, 0, candidates=300)
    types = shop.vertex_types
    found = drawn_candidates(made, "test", slice(None), shop.n, types)
    for (u, v), row in zip(as_tuples(made.positives["test"]), found, strict=True):
        of = types.range("item" if v in types.range("item") else "user")
        assert set(row.tolist()) <= set(of) - {u, v}
        assert len(set(row.tolist())) > len(of) - 5


def test_some_relations_can_be_split(tmp_path, shop):
    path = tmp_path / "shop.graph"
    make_folder(path, shop)
    facts = as_json("pairs", path, "--relation", "user,buys,item", "--name", "buys")
    assert facts["directed"] is True
    assert facts["made"] == "split 0.85,0.05,0.10 of user,buys,item"
    made = read_pairs(path, "buys")
    assert {mask: set(of.tolist()) for mask, of in made.relations.items()} == {
        name: {1} for name in (*MASKS, "val_negatives", "test_negatives")
    }
    assert as_json("info", path, "buys") == facts
    assert as_json("pairs", path)["positives"]["train"] > facts["positives"]["train"]
    assert "sells" in refused("pairs", path, "--relation", "sells", "--force")
    nothing = replace(shop, arc_type=np.full_like(shop.arc_type, 1))  # all arcs are of "buys"
    refuses("no arcs of knows to split", split_pairs, nothing, ("1", "0", "0"), relations=["knows"])
    plain = make_folder(tmp_path / "plain.graph", random_graph(9, 30))
    assert "has no relations" in refused("pairs", plain, "--relation", "buys")
    both = ("--from", plain, "--relation", "buys", "--force")
    assert "--relation draws pairs" in refused("pairs", path, *both)


def test_triples_that_are_read_have_ends_of_the_types(tmp_path, shop):
    path, buys = make_folder(tmp_path / "shop.graph", shop), tmp_path / "buys.csv"
    files = []
    for number, mask in enumerate(("val", "test")):
        (tmp_path / f"{mask}.csv").write_text(f"1,buys,3{number}\n")
        files += [f"--{mask}", tmp_path / f"{mask}.csv"]
    words = ["pairs", path, "--train", buys, *files, "--columns", "source,relation,target"]
    for line, told in {
        "0,buys,5": "the vertex 5 is no item", "30,buys,31": "the vertex 30 is no user",
        "0,buys": "--columns source,relation,target names more",
    }.items():  # fmt: skip
        buys.write_text(f"{line}\n")
        assert told in refused(*words)
    buys.write_text("0,buys,30\n2,knows,3\n")
    assert as_json(*words)["positives"]["train"] == 2


@pytest.mark.parametrize("kind", ["uniform,4", "corrupt,4", "pool,9"])
def test_negatives_to_train_on_are_of_the_types_of_their_pair(shop, kind):
    made, types = split_pairs(shop, ("1", "0", "0"), 1, True, 0), shop.vertex_types
    task = load_config(None, ["task.name=links", f"task.negatives={kind}"]).task
    drawer = drawer_of(task, made, shop.n, 3, types)
    drawn = drawer.draw(1, 0, np.arange(drawer.sampler.n))
    assert (types.of(drawn.negatives) == types.of(drawn.pairs)[:, np.newaxis]).all()
    assert len(np.unique(drawn.negatives[..., 1])) > (30 if kind[0] != "p" else 5)
    # Of one type, all vertices: the second one follows the first at a distance.
    plain = drawer_of(task, made, shop.n, 3, None).draw(1, 0, np.arange(drawer.sampler.n))
    assert len(np.unique(types.of(plain.negatives[..., 1]))) == 2
    if kind[0] == "u":
        assert (plain.negatives[..., 0] != plain.negatives[..., 1]).all()
        same = types.of(drawn.pairs[:, 0]) == types.of(drawn.pairs[:, 1])
        assert (drawn.negatives[same, :, 0] != drawn.negatives[same, :, 1]).all()
