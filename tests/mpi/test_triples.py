"""Pairs with relations: one curve for every number of ranks, that of the oracle, and its metrics.

Some vertices are joined by several relations, some of whose pairs are held out and others not.
Bytes counted are bytes predicted.
"""

import functools
from dataclasses import replace

import numpy as np
import pytest
from stored_graphs import store, with_uneven_parts
from test_link_curves import as_expected, of_oracle
from words import latest, line, sets

from gcnmpi.options.config import load_config
from gcnmpi.proof import links
from gcnmpi.run.weights import read_weights
from partition.graph.relations import Relation
from partition.graph.store import open_graph
from partition.graph.vertex_pairs import Twin, identified, read_pairs, split_pairs, write_pairs
from partition.importing.arcs import build_typed
from partition.importing.readers.source import RelationArcs, TypedSource

N, EPOCHS = 41, 3
NAMES = ("likes", "knows", "cites", "none")
USERS, ITEMS = range(18), range(18, N)
COMMON = (
    "task.name=links", "dtype=float64", f"train.epochs={EPOCHS}", "train.eval_every=1",
    "train.lr=0.02", "model.hidden=6", "task.metric=mrr", "task.metrics=hits@3",
    "task.negatives=corrupt,2", "task.pairs=triples", "train.seed=3",
)  # fmt: skip
RGCN = "model.name=rgcn model.dropout=0.2"
FILTERED = "task.ranked=filtered"
CASES = {
    "rgcn-distmult-bce": f"{RGCN} task.decoder=distmult task.filter=true",
    "gcn-distmult-softmax": "task.decoder=distmult task.objective=softmax task.negatives=pool,5 "
    "task.batch=30 task.filter=true",
    "sage-distmult-given": "model.name=sage task.decoder=distmult task.negatives=given "
    "task.objective=auc",
    "rgcn-transe-bce-filtered": f"{RGCN} task.decoder=transe {FILTERED}",
    "gcn-transe-softmax-2": "task.decoder=transe task.decoder_p=2 task.objective=softmax "
    "task.filter=true task.negatives=uniform,3",
    "gcn-transe-one-filtered": "task.decoder=transe task.decoder_p=2 task.decoder_relations=1 "
    f"{FILTERED} task.objective=auc",
    "rgcn-complex-bce": f"{RGCN} task.decoder=complex task.filter=true kernel=scipy",
    "gcn-complex-auc-filtered": f"task.decoder=complex task.objective=auc {FILTERED} task.width=4 "
    "task.batch=50",
    "rgcn-distmult-filtered": f"{RGCN} task.decoder=distmult {FILTERED} "
    "task.metrics=hits@1,hits@10",
    "gcn-concat-filtered": f"task.decoder=concat {FILTERED}",
    "gcn-distmult-one": "task.decoder=distmult task.decoder_relations=1",
    "gcn-dot-masked": "task.filter=true task.supervise=0.5",
    "gcn-distmult-masked": "task.decoder=distmult task.supervise=0.4 graph.normalize=row",
    # On the graph of two types: of 18 users and 23 items, no positive is below the 24th.
    "typed rgcn-distmult": f"{RGCN} task.decoder=distmult {FILTERED}",
    "typed gcn-transe": f"task.decoder=transe {FILTERED}",
    "typed sage-concat": f"model.name=sage task.decoder=concat {FILTERED}",
    "typed rgcn-complex-split": f"{RGCN} task.decoder=complex task.width=4 task.pairs=split "
    "task.metrics=auc,ap,hits@3,hits@24",
    "typed gcn-transe-drawn": "task.decoder=transe task.pairs=drawn",
}
MORE = {"outputs": True}


def is_typed(name):
    return name.startswith("typed")


def settings_of(name):
    more = ["task.metrics=hits@3,hits@24"] if is_typed(name) else []
    return latest(*COMMON, *more, *CASES[name].split())


def triples_of(path, name="triples", **fields):
    """Arcs of a graph, with candidates for those to test on and negatives to train on."""
    stored, random = open_graph(path), np.random.default_rng(2)
    facts = {"name": name, "graph_id": stored.manifest.id, "twins": ()}
    made = split_pairs(stored.graph, (0.65, 0.15, 0.2), 2, True, 0, **facts)
    sizes = {mask: len(of) for mask, of in made.positives.items()}
    facts = {
        "relation_names": NAMES, "replaced": "both",
        "negatives": {"train": random.integers(0, N, (2 * sizes["train"], 2))},
        "candidates": {mask: random.integers(0, N, (sizes[mask], 8)) for mask in ("val", "test")},
        "twins": (Twin(0, 0, True), Twin(1, 2, False), Twin(2, 0, True)),
    }  # fmt: skip
    return identified(replace(made, **(facts | fields)))


def stored(path, counts, tables, **data):
    """A graph with features of all types, and uneven parts."""
    random = np.random.default_rng(7)
    features = {k: random.standard_normal((n, 5)).astype(np.float32) for k, n in counts.items()}
    source = TypedSource(counts, tables, features=features, format="test", **data)
    return with_uneven_parts(store(path, build_typed(source)[0]), (2, 3, 4, 7), mixed=False)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Typed or not → a graph of two types and three relations, or of one and four; triples."""
    folder, random = tmp_path_factory.mktemp("triples"), np.random.default_rng(7)
    ends = {}
    for name, count in zip(NAMES, (60, 50, 30, 0), strict=True):
        of = random.integers(0, N, (2, 3 * count))
        ends[name] = np.unique(of[:, of[0] != of[1]], axis=1)[:, :count]
    ends["knows"][:, :20] = ends["likes"][:, :20]  # the same vertices by two relations
    tables = [RelationArcs(Relation("entity", name, "entity"), *of) for name, of in ends.items()]
    plain = stored(folder / "kg.graph", {"entity": N}, tables)
    write_pairs(plain, triples_of(plain))
    counts, tables = {"user": len(USERS), "item": len(ITEMS)}, []
    for words in ("user knows user", "user buys item", "item knows user"):
        one = Relation(*words.split())
        most = [[counts[one.source]], [counts[one.target]]]
        tables.append(RelationArcs(one, *np.unique(random.integers(0, most, (2, 60)), axis=1)))
    typed = stored(folder / "typed.graph", counts, tables)
    names = tuple(str(table.relation) for table in tables)
    write_pairs(typed, triples_of(typed, relation_names=names))
    for name, facts in {"split": {}, "drawn": {"negatives": 0, "candidates": 7}}.items():
        graph = open_graph(typed).graph
        write_pairs(typed, split_pairs(graph, (0.7, 0.1, 0.2), 3, True, name=name, **facts))
    return {False: plain, True: typed}


@functools.cache
def expected(path, name):
    return of_oracle(path, settings_of(name))


def wanted(nranks, paths):
    """All of them on 3 ranks, and every third on 7."""
    return {
        name: (paths[is_typed(name)], f"uneven-{nranks}", settings_of(name))
        for name in list(CASES)[:: 1 if nranks == 3 else 3]
    }


@pytest.mark.parametrize("nranks", [3, 7])
def test_one_curve_and_its_metrics(results, paths, nranks):
    """Ranks are among vertices of the type."""
    for name, record in results(nranks).items():
        as_expected(record, expected(paths[is_typed(name)], name))
        last = record["metrics"][-1]
        if is_typed(name):
            assert last["test_hits@24"] == 1 or FILTERED not in CASES[name], name
            assert last["test_hits@3"] < 1, name
    one, several = (expected(paths[False], f"{name}-distmult-{how}")[0][-1]
                    for name, how in (("gcn", "one"), ("rgcn", "bce")))  # fmt: skip
    assert one != several


def test_verify_knows_relations(verified, paths):
    path, names = paths[False], ("gcn-transe-softmax-2", "gcn-complex-auc-filtered")
    cases = [(path, "uneven-3", settings_of(name)) for name in names]
    names = "loss curve", "first gradient", "metrics", "finite differences"
    verified(3, cases, *names, directions=1)


def test_scores_and_mistakes(succeed, hear_mistakes, paths, tmp_path):
    path, weights, placed = paths[False], tmp_path / "w.npz", {"partition": "uneven-3"}
    settings, file = settings_of("rgcn-distmult-bce"), tmp_path / "triples.csv"
    pairs = read_pairs(path, "triples")
    rows = zip(pairs.positives["test"].tolist(), pairs.relations["test"], strict=True)
    file.write_text("".join(f"{u},{NAMES[r]},{v}\n" for (u, v), r in rows))
    given = {"weights": weights, "settings": ["dtype=float64", "task.pairs=triples"]}
    columns = {"pairs": file, "columns": "source,relation,target"}
    train = {"save_weights": weights, "settings": settings, "out": tmp_path / "run"}
    succeed(
        3,
        line("train", path, **train, **placed),
        line("score", path, pairs="triples", out=tmp_path / "set.npy", **given, **placed),
        line("score", path, out=tmp_path / "file.npy", **columns, **given, **placed),
    )
    found = np.load(tmp_path / "set.npy")
    assert len(found) == len(pairs.positives["test"])
    np.testing.assert_array_equal(np.load(tmp_path / "file.npy"), found)
    np.savetxt(tmp_path / "asked.csv", [[0, 5]], "%d", ",")
    random = np.random.default_rng(0)
    negatives = {mask: random.integers(0, N, (4, 2)) for mask in ("val", "test")}
    write_pairs(path, triples_of(path, "common", negatives=negatives, candidates={}))
    none = {"candidates": {}, "relations": {}, "relation_names": ()}
    trained = {mask: of[: len(of) * (mask == "train")] for mask, of in pairs.positives.items()}
    write_pairs(path, triples_of(path, "plain", positives=trained, **none))
    out = {"partition": "uneven-2", "out": tmp_path / "none.csv"}
    score = line("score", path, **out, **given)
    told = [
        ([*score, "--pairs", tmp_path / "asked.csv"], "the pairs have none"),
        ([*score, "--top", "2", "--vertices", "0"], "by each"),
        ([*score, "--top", "2", "--relation", "hates"], "hates"),
    ]
    for some, says in {
        "task.pairs=common": ("negatives", "task.decoder_relations=1"),
        "task.decoder_relations=2": "have 4 relations",
        "task.pairs=plain task.decoder_relations=4": "have no relations",
        "task.decoder=complex task.width=5": ("5 is odd", "task.width=6"),
    }.items():
        own = sets(*latest(*settings, *some.split()))
        told.append((["train", path, "--partition", "uneven-2", *own], says))
    hear_mistakes(2, told)


def test_partners_by_a_relation_are_those_of_brute_force(
    run_cases, succeed, hear_mistakes, paths, tmp_path
):
    """Of the type that it leads to, without those that there is such an arc with."""
    cases, lines, asked = {}, [], {False: "knows", True: "user,buys,item"}

    def own_of(decoder):
        return latest(*COMMON, "train.epochs=1", "model.name=gcn", f"task.decoder={decoder}")

    for decoder in ("complex", "transe", "dot"):
        for kinds, path in paths.items():
            weights = tmp_path / f"{decoder}-{kinds}.npz"
            out = {"out": tmp_path / f"{decoder}-{kinds}", "save_weights": weights}
            lines.append(line("train", path, settings=own_of(decoder), **out))
            case = {
                "graph": path, "weights": weights, "dtype": "float64", "task_pairs": "triples",
                "k": N - 1, "relation": asked[kinds], "partition": "uneven-3",
            }  # fmt: skip
            for arcs in (False, True):
                cases[decoder, kinds, arcs] = case | {"with_arcs": arcs}
    succeed(1, *lines)
    by = {"partition": "uneven-2", "weights": weights, "out": tmp_path / "none.csv", "top": 2}
    by |= {"relation": asked[True], "vertices": "0,18", "settings": ["dtype=float64"]}
    told = "vertex 18 has no partners by user,buys,item: it is no user"
    hear_mistakes(2, [(line("score", paths[True], **by), told)])
    tables = run_cases("score_cases", 3, [*cases.values()])
    for (decoder, kinds, arcs), table in zip(cases, tables, strict=True):
        case = cases[decoder, kinds, arcs]
        graph, config = open_graph(paths[kinds]).graph, load_config(None, own_of(decoder))
        problem = links.LinkProblem(graph, read_pairs(paths[kinds], "triples"), "in", config)
        weights = read_weights(case["weights"], config).parameters
        every = np.stack(np.divmod(np.arange(N * N), N), axis=1)
        scores = problem.scores(weights, every, np.ones(N * N, int)).reshape(N, N)
        allowed = ~np.eye(N, dtype=bool)
        if not arcs:
            there = np.array(graph.arc_type) == 1
            source = np.repeat(np.arange(N), np.diff(graph.indptr))[there]
            allowed[source, graph.indices[there]] = False
            if decoder == "dot":  # which has no direction
                allowed[graph.indices[there], source] = False
        if kinds:
            allowed[:, USERS], allowed[ITEMS] = False, False
        right = {(u, v): scores[u, v] for u, v in np.argwhere(allowed).tolist()}
        u, v, score = (np.array(table[name]) for name in ("vertex", "partner", "score"))
        found = {(a, b): s for a, b, s in zip(u, v, score, strict=True)}
        assert found == pytest.approx(right, rel=1e-9, abs=1e-12), case
        assert (np.diff(score)[np.diff(u) == 0] <= 1e-9).all()
