"""Hard candidates for pairs: held against a dense computation of their definition."""

from dataclasses import replace

import numpy as np
import pytest
from command_line import as_json, refused
from refusals import refuses
from small_graphs import from_arcs, make_folder, random_graph

from partition.graph.graph import arcs
from partition.graph.hashing import key, mixed, permuted
from partition.graph.links import read_pairs, split_pairs, write_pairs
from partition.graph.relations import VertexTypes
from partition.pipeline import hard_candidates
from partition.pipeline.hard_candidates import page_rank, with_hard_candidates

SHARES = "0.7", "0.1", "0.2"


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
    degree = near.sum(1)
    rest, kept = np.zeros(len(near)), np.zeros(len(near))
    rest[source] = 1
    for _ in range(hard_candidates.MOST_STEPS):
        full = rest > hard_candidates.REST * degree
        kept[full] += hard_candidates.RESTART * rest[full]
        share = np.where(full, rest, 0) / np.maximum(degree, 1)
        rest = np.where(full, 0, rest) + (1 - hard_candidates.RESTART) * share @ near
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
    pairs = split_pairs(graph, SHARES, 2, directed, negatives=0)  # the first edge is held out
    types = VertexTypes.of_counts({"user": 70 - items, "item": items}) if items else None
    made = with_hard_candidates(pairs, replace(graph, vertex_types=types), 12)
    near, partners = neighbours(graph, pairs), dense(graph)
    for found in pairs.positives.values():
        partners[found[:, 0], found[:, 1]] = True
    both = [partners, partners.T] if directed else [partners | partners.T] * 2
    kinds = np.arange(70) >= 70 - items
    assert made.replaced == "both"
    for mask in ("val", "test"):
        assert made.candidates[mask].shape == (len(pairs.positives[mask]), 12)
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
    walks = near / np.maximum(near.sum(1), 1)[:, None]
    exact = 0.15 * np.linalg.inv(np.eye(30) - 0.85 * walks)
    matrix = hard_candidates._near(graph, np.empty((0, 2), int))
    found = page_rank(matrix, np.diff(matrix.indptr), np.arange(30)).toarray()
    assert (found <= exact + 1e-6).all()
    # A vertex keeps less than 5e-5 times its degree of the rest.
    assert (exact - found).max() <= 5e-5 * near.sum() + 1e-6


def test_they_do_not_depend_on_how_many_are_ranked_together(monkeypatch):
    graph = random_graph(60, 300)
    pairs = split_pairs(graph, SHARES, 1)
    made = with_hard_candidates(pairs, graph, 20)
    monkeypatch.setattr(hard_candidates, "AT_ONCE", 3)
    for seed in (1, 2):
        again = with_hard_candidates(replace(pairs, seed=seed), graph, 20)
        assert (again.id == made.id) == (seed == 1)


def test_a_graph_without_enough_others_is_refused():
    graph = from_arcs(4, [(0, 1), (0, 2), (0, 3), (1, 2)])
    pairs = split_pairs(graph, ("0", "0", "1"), negatives=0)
    refuses("has 0 others that are no partners of it", with_hard_candidates, pairs, graph, 2)
    for count in (0, -2, 3):
        refuses("not half for either end", with_hard_candidates, pairs, graph, count)


def test_the_command(tmp_path):
    path = make_folder(tmp_path / "g.graph", random_graph(50, 300))
    as_json("pairs", path, "--split", ",".join(SHARES), "--candidates", 5)
    hard = ("negatives", path, "--hard")
    facts = as_json(*hard, 6, "--of", "test")
    assert facts["candidates"] == {"test": 6}
    assert facts["drawn"] == 5  # for those to validate on
    assert facts["made"] == "split 0.7,0.1,0.2; 6 hard candidates of test"
    assert "have candidates of test already" in refused(*hard, 8)
    assert as_json(*hard, 8, "--of", "val")["candidates"] == {"val": 8, "test": 6}
    facts = as_json(*hard, 8, "--force")
    assert (facts["candidates"], facts["drawn"]) == ({"val": 8, "test": 8}, 0)
    pairs = read_pairs(path, "links")
    assert pairs.replaced == "both"
    for words, told in ((["--of", "vall"], "mean 'val'"), (["--pairs", "link"], "mean 'links'")):
        assert told in refused("negatives", path, *words)
    second = {"val": np.zeros((len(pairs.positives["val"]), 3), np.int32)}
    write_pairs(path, replace(pairs, candidates=second, replaced="second"), force=True)
    assert "are of the second end only" in refused(*hard, 2, "--of", "test")
