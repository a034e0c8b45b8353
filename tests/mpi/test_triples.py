"""Pairs with relations: one curve for every number of ranks, that of the oracle, and its metrics.

Some vertices are joined by several relations, some of whose pairs are held out and others not.
Bytes counted are bytes predicted.
"""

import functools

import numpy as np
import pytest
from stored_graphs import store, with_uneven_parts
from test_link_curves import as_expected, of_oracle
from test_minibatch import as_planned
from words import latest, sets

from gcnmpi.options.config import load_config
from gcnmpi.proof import links
from gcnmpi.run.weights import read_weights
from partition.graph.links import PairSet, identified, read_pairs, split_pairs, write_pairs
from partition.graph.relations import Relation
from partition.graph.store import open_graph
from partition.graph.twins import Twin
from partition.importing.readers.typed_source import RelationArcs, TypedSource
from partition.importing.typed import build_typed

RANKS = (3, 7)
N, EPOCHS = 41, 3
NAMES = ("likes", "knows", "cites", "none")
COMMON = (
    "task.name=links", "dtype=float64", f"train.epochs={EPOCHS}", "train.eval_every=1",
    "train.lr=0.02", "model.hidden=6", "task.metric=mrr", "task.metrics=hits@3",
    "task.negatives=corrupt,2", "task.pairs=triples", "train.seed=3",
)  # fmt: skip
RGCN = ("model.name=rgcn", "model.dropout=0.2")
FILTERED, COMMON_NEGATIVES = "task.ranked=filtered", "task.metrics=auc,ap,hits@3,hits@24"
CASES = {
    "rgcn-distmult-bce": [*RGCN, "task.decoder=distmult", "task.filter=true"],
    "gcn-distmult-softmax": [
        "task.decoder=distmult", "task.objective=softmax", "task.negatives=pool,5",
        "task.batch=30", "task.filter=true",
    ],
    "sage-distmult-given": [
        "model.name=sage", "task.decoder=distmult", "task.negatives=given", "task.objective=auc",
    ],
    "rgcn-transe-bce-filtered": [*RGCN, "task.decoder=transe", FILTERED],
    "gcn-transe-softmax-2": [
        "task.decoder=transe", "task.decoder_p=2", "task.objective=softmax", "task.filter=true",
        "task.negatives=uniform,3",
    ],
    "gcn-transe-one-filtered": [
        "task.decoder=transe", "task.decoder_p=2", "task.decoder_relations=1", FILTERED,
        "task.objective=auc",
    ],
    "rgcn-complex-bce": [*RGCN, "task.decoder=complex", "task.filter=true", "kernel=scipy"],
    "gcn-complex-auc-filtered": [
        "task.decoder=complex", "task.objective=auc", FILTERED, "task.width=4", "task.batch=50",
    ],
    "rgcn-distmult-filtered": [
        *RGCN, "task.decoder=distmult", FILTERED, "task.metrics=hits@1,hits@10",
    ],
    "gcn-concat-filtered": ["task.decoder=concat", FILTERED],
    "gcn-distmult-one": ["task.decoder=distmult", "task.decoder_relations=1"],
    "gcn-dot-masked": ["task.filter=true", "task.supervise=0.5"],
    "gcn-distmult-masked": ["task.decoder=distmult", "task.supervise=0.4", "graph.normalize=row"],
}  # fmt: skip
# On the graph of two types: of 18 users and 23 items, no positive is below the 24th.
TYPED = {
    "typed rgcn-distmult": [*RGCN, "task.decoder=distmult", FILTERED],
    "typed gcn-transe": ["task.decoder=transe", FILTERED],
    "typed sage-concat": ["model.name=sage", "task.decoder=concat", FILTERED],
    "typed rgcn-complex-split": [
        *RGCN, "task.decoder=complex", "task.width=4", "task.pairs=split", COMMON_NEGATIVES,
    ],
    "typed gcn-transe-drawn": ["task.decoder=transe", "task.pairs=drawn"],
}  # fmt: skip


def settings_of(name):
    if name in TYPED:
        return latest(*COMMON, "task.metrics=hits@3,hits@24", *TYPED[name])
    return latest(*COMMON, *CASES[name])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A graph of one type of vertices and four relations, with triples of its arcs."""
    random = np.random.default_rng(7)
    counts = dict(zip(NAMES, (60, 50, 30, 0), strict=True))
    ends = {name: random.integers(0, N, (2, 3 * count)) for name, count in counts.items()}
    ends = {
        name: np.unique(of[:, of[0] != of[1]], axis=1)[:, : counts[name]]
        for name, of in ends.items()
    }
    ends["knows"][:, :20] = ends["likes"][:, :20]  # the same vertices by two relations
    tables = [RelationArcs(Relation("entity", name, "entity"), *of) for name, of in ends.items()]
    features = {"entity": random.standard_normal((N, 5)).astype(np.float32)}
    graph = build_typed(TypedSource({"entity": N}, tables, features=features, format="test"))[0]
    path = store(tmp_path_factory.mktemp("triples") / "kg.graph", graph)
    with_uneven_parts(path, (2, 3, 4, 7), mixed=False)
    write_pairs(path, triples_of(path, "triples"))
    return path


def triples_of(path, name, **fields):
    """Arcs of a graph, with candidates for those to test on and negatives to train on."""
    stored, random = open_graph(path), np.random.default_rng(2)
    graph = stored.graph
    source = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    every = np.column_stack([source, graph.indices]).astype(np.int64)
    order = random.permutation(len(every))
    masks = dict(zip(("train", "val", "test"), np.split(order, [90, 110]), strict=True))
    positives = {mask: every[some] for mask, some in masks.items()}
    facts = {
        "positives": positives,
        "negatives": {"train": random.integers(0, N, (2 * len(positives["train"]), 2))},
        "candidates": {
            mask: random.integers(0, N, (len(positives[mask]), 8)) for mask in ("val", "test")
        },
        "relations": {mask: np.array(graph.arc_type)[some] for mask, some in masks.items()},
    }
    facts |= {"seed": None, "replaced": "both", "made": "test", "directed": True}
    facts |= {"name": name, "graph_id": stored.manifest.id, "relation_names": NAMES}
    facts["twins"] = (Twin(0, 0, True), Twin(1, 2, False), Twin(2, 0, True))
    return identified(PairSet(id="", **(facts | fields)))


def only_train(of):
    """Rows of each mask, none of which are held out."""
    return {mask: rows if mask == "train" else rows[:0] for mask, rows in of.items()}


@functools.cache
def expected(path, name):
    return of_oracle(path, settings_of(name))


MORE = {"outputs": True}


def wanted(nranks, path, typed):
    """All of them on 3 ranks, and every third on 7."""
    names = [*CASES, *TYPED][:: 1 if nranks == 3 else 3]
    return {
        name: (typed if name in TYPED else path, f"uneven-{nranks}", settings_of(name))
        for name in names
    }


@pytest.mark.parametrize("nranks", RANKS)
def test_one_curve_and_its_metrics(results, path, typed, nranks):
    """Ranks are among vertices of the type."""
    for name, record in results(nranks).items():
        as_expected(record, expected(typed if name in TYPED else path, name))
        last = record["metrics"][-1]
        if name in TYPED:
            assert last["test_hits@24"] == 1 or FILTERED not in TYPED[name], name
            assert last["test_hits@3"] < 1, name
    assert expected(path, "gcn-distmult-one")[0][-1] != expected(path, "rgcn-distmult-bce")[0][-1]


def test_verify_knows_relations(verified, path):
    names = "gcn-transe-softmax-2", "gcn-complex-auc-filtered"
    cases = [(path, "uneven-3", settings_of(name)) for name in names]
    verified(3, cases, "loss curve", "first gradient", "metrics", "finite differences")


def test_bytes_and_messages_are_those_that_are_planned(trained, path):
    stored, pairs = open_graph(path), read_pairs(path, "triples")
    kept = {"positives": only_train(pairs.positives), "relations": only_train(pairs.relations)}
    write_pairs(path, triples_of(path, "train", **kept, candidates={}))
    settings = latest(
        *COMMON, *RGCN, "task.decoder=transe", "task.objective=softmax", "task.pairs=train",
        "train.epochs=1", "train.eval_every=0", "scheme.exchange=rows",
    )  # fmt: skip
    record = trained(4, {"one": (path, "uneven-4", settings)})["one"]
    as_planned(stored, load_config(None, settings), 4, record)


def test_scores_and_mistakes(gcnmpi_lines, hear_mistakes, path, tmp_path):
    weights = tmp_path / "w.npz"
    words = ["train", path, "--partition", "uneven-3", "--save-weights", weights, "--quiet"]
    settings = settings_of("rgcn-distmult-bce")
    given = ["--weights", weights, *sets("dtype=float64", "task.pairs=triples")]
    scored = ["score", path, "--partition", "uneven-3", *given, "--pairs"]
    pairs = read_pairs(path, "triples")
    rows = zip(pairs.positives["test"].tolist(), pairs.relations["test"], strict=True)
    lines = [f"{u},{NAMES[r]},{v}\n" for (u, v), r in rows]
    (tmp_path / "triples.csv").write_text("".join(lines))
    of_file = [tmp_path / "triples.csv", "--columns", "source,relation,target"]
    lines = [
        [*words, *sets(*settings)],
        [*scored, "triples", "--out", tmp_path / "set.npy"],
        [*scored, *of_file, "--out", tmp_path / "file.npy"],
    ]
    assert gcnmpi_lines(3, lines) == [[None] * 3] * 3
    found = np.load(tmp_path / "set.npy")
    assert len(found) == len(pairs.positives["test"])
    np.testing.assert_array_equal(np.load(tmp_path / "file.npy"), found)
    np.savetxt(tmp_path / "asked.csv", [[0, 5]], "%d", ",")
    random = np.random.default_rng(0)
    negatives = {mask: random.integers(0, N, (4, 2)) for mask in ("val", "test")}
    write_pairs(path, triples_of(path, "common", negatives=negatives, candidates={}))
    none = {"candidates": {}, "relations": {}, "relation_names": ()}
    write_pairs(path, triples_of(path, "plain", positives=only_train(pairs.positives), **none))
    train = ["train", path, "--partition", "uneven-2"]
    scored = ["score", path, "--partition", "uneven-2", *given, "--out", tmp_path / "none.csv"]
    told = [
        ([*scored, "--pairs", tmp_path / "asked.csv"], "the pairs have none"),
        ([*scored, "--top", "2", "--vertices", "0"], "by each"),
        ([*scored, "--top", "2", "--relation", "hates"], "hates"),
    ]
    refused = {
        ("task.pairs=common",): ("negatives", "task.decoder_relations=1"),
        ("task.decoder_relations=2",): "have 4 relations",
        ("task.pairs=plain", "task.decoder_relations=4"): "have no relations",
        ("task.decoder=complex", "task.width=5"): ("5 is odd", "task.width=6"),
    }
    for some, says in refused.items():
        told.append(([*train, *sets(*latest(*settings, *some))], says))
    hear_mistakes(2, told)


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """A graph of two types of vertices and three relations, with triples of its arcs."""
    random, counts = np.random.default_rng(4), {"user": 18, "item": N - 18}
    relations = [Relation("user", "knows", "user"), Relation("user", "buys", "item"),
                 Relation("item", "knows", "user")]  # fmt: skip
    tables = []
    for one in relations:
        most = [[counts[one.source]], [counts[one.target]]]
        tables.append(RelationArcs(one, *np.unique(random.integers(0, most, (2, 60)), axis=1)))
    features = {kind: random.standard_normal((n, 5)).astype(np.float32)
                for kind, n in counts.items()}  # fmt: skip
    graph = build_typed(TypedSource(counts, tables, features=features, format="test"))[0]
    path = store(tmp_path_factory.mktemp("typed") / "kg.graph", graph)
    with_uneven_parts(path, (2, 3, 4, 7), mixed=False)
    write_pairs(path, triples_of(path, "triples", relation_names=tuple(map(str, relations))))
    for name, facts in {"split": {}, "drawn": {"negatives": 0, "candidates": 7}}.items():
        write_pairs(path, split_pairs(graph, (0.7, 0.1, 0.2), 3, True, name=name, **facts))
    return path


DECODERS = ("complex", "transe", "dot")


@pytest.fixture(scope="module")
def partner_weights(gcnmpi_lines, path, typed, tmp_path_factory):
    """(decoder, typed or not) → the file of its weights."""
    folder = tmp_path_factory.mktemp("partners")
    names = [(decoder, kinds) for decoder in DECODERS for kinds in (False, True)]
    files = {(decoder, kinds): folder / f"{decoder}-{kinds}.npz" for decoder, kinds in names}
    lines = [
        ["train", typed if kinds else path, "--quiet", "--save-weights", file, "--out",
         file.with_suffix(""), *sets(*partner_settings(decoder))]
        for (decoder, kinds), file in files.items()
    ]  # fmt: skip
    assert gcnmpi_lines(1, lines) == [[None]] * len(lines)
    return files


def partner_settings(decoder):
    return latest(*COMMON, "train.epochs=1", "model.name=gcn", f"task.decoder={decoder}")


def test_partners_by_a_relation_are_those_of_brute_force(
    run_cases, hear_mistakes, partner_weights, path, typed, tmp_path
):
    """Of the type that it leads to, without those that there is such an arc with."""
    by = ["score", typed, "--partition", "uneven-2", "--weights", partner_weights["dot", True]]
    by += [*sets("dtype=float64"), "--out", tmp_path / "none.csv", "--top", "2", "--relation"]
    told = "vertex 18 has no partners by user,buys,item: it is no user"
    hear_mistakes(2, [([*by, "user,buys,item", "--vertices", "0,18"], told)])
    asked = {False: "knows", True: "user,buys,item"}
    cases = {
        (decoder, kinds, with_arcs): {
            "graph": str(typed if kinds else path), "weights": str(file), "dtype": "float64",
            "task_pairs": "triples", "k": N - 1, "relation": asked[kinds], "with_arcs": with_arcs,
            "partition": "uneven-3",
        }
        for (decoder, kinds), file in partner_weights.items()
        for with_arcs in (False, True)
    }  # fmt: skip
    found = run_cases("score_cases", 3, list(cases.values()))
    for (decoder, kinds, with_arcs), table in zip(cases, found, strict=True):
        stored = open_graph(typed if kinds else path)
        graph, config = stored.graph, load_config(None, partner_settings(decoder))
        problem = links.LinkProblem(graph, read_pairs(stored.path, "triples"), "in", config)
        weights = read_weights(partner_weights[decoder, kinds], config).parameters
        every = np.stack(np.divmod(np.arange(N * N), N), axis=1)
        scores = problem.scores(weights, every, np.ones(N * N, int)).reshape(N, N)
        allowed = ~np.eye(N, dtype=bool)
        if not with_arcs:
            there = np.array(graph.arc_type) == 1
            source = np.repeat(np.arange(N), np.diff(graph.indptr))[there]
            allowed[source, graph.indices[there]] = False
            if decoder in ("distmult", "dot"):  # which have no direction
                allowed[graph.indices[there], source] = False
        if kinds:
            users, items = (graph.vertex_types.range(name) for name in ("user", "item"))
            allowed[:, users.start : users.stop] = False
            allowed[items.start : items.stop] = False
        expected = {(u, v): scores[u, v] for u, v in np.argwhere(allowed).tolist()}
        pairs = zip(table["vertex"], table["partner"], strict=True)
        assert dict(zip(pairs, table["score"], strict=True)) == pytest.approx(
            expected, rel=1e-9, abs=1e-12
        ), (decoder, kinds, with_arcs)
        u, score = np.array(table["vertex"]), np.array(table["score"])
        assert (np.diff(score)[np.diff(u) == 0] <= 1e-9).all()
