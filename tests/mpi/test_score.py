"""``gcnmpi score``: scores of pairs and best partners, equal to brute force by the oracle.

On small graphs with isolated vertices, some of them alike, under uneven partitions with an empty
part; each decoder. ``gcnmpi.evaluate`` gives the metrics of the last epoch.
"""

import dataclasses
import functools
import json

import numpy as np
import pytest
from stored_graphs import small_graph, store, with_uneven_parts
from words import latest, sets

import gcnmpi
from gcnmpi.options.config import load_config
from gcnmpi.proof import links
from gcnmpi.run.weights import read_weights
from partition.graph.links import read_pairs, split_pairs, write_pairs
from partition.graph.store import open_graph, write_graph

RANKS = (1, 4)
HIDDEN = ("task.decoder_hidden=6,5", "task.decoder_norm=layer")
COMMON = (
    "task.name=links", "dtype=float64", "train.epochs=2", "model.hidden=7,6", "train.lr=0.02",
)  # fmt: skip
# Name → (graph, settings)
CASES = {
    "dot": ("symmetric", []),
    "distmult": ("directed", ["task.decoder=distmult"]),
    "hadamard-plain": ("symmetric", ["task.decoder=hadamard"]),
    "hadamard": ("directed", ["task.decoder=hadamard", *HIDDEN]),
    "concat-plain": ("directed", ["task.decoder=concat", "task.objective=softmax"]),
    # Without task.width, no decoder of so many columns.
    "complex": ("symmetric", ["task.decoder=complex", "task.width=4", "task.objective=auc"]),
    "concat": ("directed", ["task.decoder=concat", *HIDDEN, "model.name=sage"]),
}
K = 12
DRAWN = np.random.default_rng(1).integers(0, 61, (100, 2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Graphs with pairs; isolated vertices have equal features, and so equal scores."""
    root = tmp_path_factory.mktemp("score")
    for kind in ("symmetric", "directed"):
        graph, path = small_graph(kind), root / f"{kind}.graph"
        graph.features[-7:] = graph.features[-1]
        with_uneven_parts(store(path, graph), (1, 2, 4))
        facts = {"directed": kind == "directed", "graph_id": open_graph(path).manifest.id}
        write_pairs(path, split_pairs(graph, (0.7, 0.1, 0.2), 3, **facts))
    return root


@pytest.fixture(scope="module")
def weights(gcnmpi_lines, folder):
    """Files of weights, by the name of the case."""
    lines = [
        ["train", folder / f"{graph}.graph", *sets(*latest(*COMMON, *settings)), "--quiet",
         "--out", folder / name, "--save-weights", folder / f"{name}.npz"]
        for name, (graph, settings) in CASES.items()
    ]  # fmt: skip
    lines.append(
        ["train", folder / "directed.graph", "--set", "train.epochs=1", "--quiet", "--out",
         folder / "classes", "--save-weights", folder / "classes.npz"]
    )  # fmt: skip
    assert gcnmpi_lines(1, lines) == [[None]] * len(lines)
    with np.load(folder / "dot.npz") as of_dot:  # of which others make all scores 0
        zeros = {name: 0 * a for name, a in of_dot.items() if a.dtype.kind == "f"}
        np.savez(folder / "zero.npz", **(dict(of_dot) | zeros))
    return {name: folder / f"{name}.npz" for name in (*CASES, "classes", "zero")}


@pytest.fixture(scope="module")
def expected(folder, weights):
    """``expected(name)`` → the scores of all pairs, (n, n), by the oracle."""

    @functools.cache
    def scores(name):
        graph, settings = CASES[name]
        config = load_config(None, latest(*COMMON, *settings))
        stored = open_graph(folder / f"{graph}.graph")
        pairs = read_pairs(stored.path, "links")
        problem = links.LinkProblem(stored.graph, pairs, "in", config)
        n = stored.graph.n
        every = np.stack(np.divmod(np.arange(n * n), n), axis=1)
        parameters = read_weights(weights[name], config).parameters
        return problem.scores(parameters, every).reshape(n, n)

    return scores


@pytest.fixture(scope="module")
def results(run_cases, folder, weights):
    """``results(nranks)`` → (name, what) → what was found."""

    @functools.cache
    def run(nranks):
        cases = {}
        for name, (graph, _) in CASES.items():
            common = {"graph": str(folder / f"{graph}.graph"), "weights": str(weights[name]),
                      "dtype": "float64", "partition": f"uneven-{nranks}"}  # fmt: skip
            cases[name, "float32"] = common | {"k": K, "dtype": "float32"}
            if nranks == 1:
                continue
            cases[name, "pairs"] = common | {"pairs": DRAWN.tolist()}
            cases[name, "set"] = common | {"pairs": "links", "of": "val"}
            cases[name, "all"] = common | {"k": K}
            if name == "dot":
                cases[name, "equal"] = common | {"k": K, "weights": str(weights["zero"])}
            cases[name, "some"] = common | {"k": 60, "vertices": [60, 3, 3, 0], "with_arcs": True}
            cases[name, "one"] = common | {"k": 1, "vertices": [5]}  # fewer than ranks
        found = run_cases("score_cases", nranks, list(cases.values()))
        return dict(zip(cases, found, strict=True))

    return run


def partners(scores, allowed, vertices, k):
    """By brute force: the best first, the smaller vertex of those with equal scores."""
    found = {"vertex": [], "partner": [], "score": []}
    for u in vertices:
        others = np.flatnonzero(allowed[u])
        order = np.lexsort((others, -np.round(scores[u, others], 9)))[:k]
        found["vertex"] += [u] * len(order)
        found["partner"] += others[order].tolist()
        found["score"] += scores[u, others[order]].tolist()
    return found


@pytest.mark.parametrize("name", CASES)
def test_scores_and_partners_are_those_of_brute_force(results, expected, folder, name):
    found, scores = results(4), expected(name)
    np.testing.assert_allclose(found[name, "pairs"], scores[*DRAWN.T], rtol=1e-10, atol=1e-12)
    path = folder / f"{CASES[name][0]}.graph"
    val = read_pairs(path, "links").positives["val"]
    np.testing.assert_allclose(found[name, "set"], scores[*val.T], rtol=1e-10, atol=1e-12)
    graph = open_graph(path).graph
    source = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    others = ~np.eye(graph.n, dtype=bool)
    no_arcs = others.copy()
    no_arcs[source, graph.indices] = False
    if not name.startswith("concat"):  # its score tells the first vertex from the second
        no_arcs &= no_arcs.T
    every = {
        "all": partners(scores, no_arcs, range(graph.n), K),
        "some": partners(scores, others, [60, 3, 3, 0], 60),
        "one": partners(scores, no_arcs, [5], 1),
    }
    if name == "dot":
        every["equal"] = partners(0 * scores, no_arcs, range(graph.n), K)
    for what, wanted in every.items():
        assert found[name, what]["vertex"] == wanted["vertex"]
        assert found[name, what]["partner"] == wanted["partner"]
        got = found[name, what]["score"]
        np.testing.assert_allclose(got, wanted["score"], rtol=1e-10, atol=1e-12)
    # Scores of float32 that are equal but for rounding are in the order of their vertices.
    one, four = (results(nranks)[name, "float32"]["partner"] for nranks in RANKS)
    assert one == four


def test_equal_scores_were_there(expected):
    scores = expected("dot")
    assert np.ptp(scores[0, -7:]) < 1e-12
    assert np.ptp(scores[0]) > 1e-3


def test_files_say_what_python_is_given(gcnmpi_lines, results, folder, weights, tmp_path):
    found = results(4)
    line = ["score", folder / "symmetric.graph", "--weights", weights["dot"],
            "--set", "dtype=float64"]  # fmt: skip
    np.savetxt(tmp_path / "pairs.csv", DRAWN, "%d", ",")
    np.save(tmp_path / "pairs.npy", DRAWN)
    (tmp_path / "some.txt").write_text("60\n3\n3\n0\n")
    many = ["--partition", "uneven-2"]
    outs = {name: ["--out", tmp_path / name] for name in
            ("a.npy", "b.csv", "a.npz", "c.npz", "d.csv", "e.parquet")}  # fmt: skip
    some = ["--top", 60, "--with-arcs"]
    lines = [
        [*line, *many, "--pairs", tmp_path / "pairs.csv", *outs["a.npy"]],
        [*line, *many, "--pairs", tmp_path / "pairs.npy", *outs["b.csv"]],
        [*line, *many, "--pairs", "links", "--of", "val", *outs["a.npz"]],
        [*line, *many, "--top", K, *outs["c.npz"]],
        [*line, *many, *some, "--vertices", tmp_path / "some.txt", *outs["d.csv"]],
        [*line, *many, *some, "--vertices", "60,3,3,0", *outs["e.parquet"]],
    ]
    assert gcnmpi_lines(2, lines) == [[None, None]] * len(lines)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12)
    close(np.load(tmp_path / "a.npy"), found["dot", "pairs"])
    close(np.loadtxt(tmp_path / "b.csv"), found["dot", "pairs"])
    close(np.load(tmp_path / "a.npz")["score"], found["dot", "set"])
    table = np.load(tmp_path / "c.npz")
    assert table["partner"].tolist() == found["dot", "all"]["partner"]
    head, *rows = (tmp_path / "d.csv").read_text().splitlines()
    assert head == "vertex,partner,score"
    columns = np.array([row.split(",") for row in rows], float).T
    for name, column in zip(head.split(","), columns, strict=True):
        close(column, found["dot", "some"][name])
    import pyarrow.parquet as pq

    assert pq.read_table(tmp_path / "e.parquet").to_pydict()["partner"] == columns[1].tolist()


def test_vertices_are_called_as_in_the_source_and_no_pairs_need_be_there(
    gcnmpi_lines, folder, weights, tmp_path
):
    """Without pairs in the folder M has all arcs: that of the graph less its held-out arcs."""
    stored = open_graph(folder / "symmetric.graph")
    pairs = read_pairs(stored.path, "links")
    graph = links.training_graph(stored.graph, pairs)
    names = np.array([f"v{number}" for number in range(graph.n)])
    path = tmp_path / "named.graph"
    write_graph(path, dataclasses.replace(graph, ids=names), source={})
    (tmp_path / "pairs.csv").write_text("v1,v2\nv60,v0\n")
    line = ["score", path, "--weights", weights["dot"], "--set", "dtype=float64"]
    plain = ["score", stored.path, *line[2:], "--vertices", "0,5", "--with-arcs"]
    lines = [
        [*line, "--pairs", tmp_path / "pairs.csv", "--out", tmp_path / "a.npy"],
        [*line, "--top", 4, "--vertices", "v0,v5", "--with-arcs", "--out", tmp_path / "a.npz"],
        [*plain, "--top", 4, "--out", tmp_path / "b.npz"],
    ]
    assert gcnmpi_lines(1, lines) == [[None]] * len(lines)
    named, numbered = np.load(tmp_path / "a.npz"), np.load(tmp_path / "b.npz")
    np.testing.assert_array_equal(named["partner"], names[numbered["partner"]])
    np.testing.assert_allclose(named["score"], numbered["score"], rtol=1e-10)
    assert np.load(tmp_path / "a.npy").shape == (2,)


def test_mistakes_of_users_are_one_line(hear_mistakes, folder, weights, tmp_path):
    np.save(tmp_path / "none.npy", np.zeros((0, 2), np.int64))
    np.save(tmp_path / "far.npy", np.array([[0, 1], [3, 61]]))
    (tmp_path / "text.csv").write_text("a,b\n")
    line = ["score", folder / "directed.graph", "--partition", "uneven-2", "--weights",
            weights["concat"], "--out"]  # fmt: skip
    scores, table = [*line, tmp_path / "s.npy"], [*line, tmp_path / "t.csv"]
    classes = [word if word != weights["concat"] else weights["classes"] for word in scores]
    hear_mistakes(2, [
        (scores, ["say what is scored", "--pairs FILE"]),
        ([*table, "--pairs", "links", "--top", 3], "exclude each other"),
        ([*scores, "--top", 3], "the name ends in .npy"),
        ([*classes, "--pairs", "links"], ["of the task classes", "task.name=links"]),
        ([*scores, "--pairs", "links", *sets("task.name=classes")], ['"classes" here', '"links"']),
        ([*scores, "--pairs", "links", *sets("task.objective=auc")], ['"auc" here', '"bce"']),
        ([*scores, "--pairs", tmp_path / "none.npy"], "there are no pairs"),
        ([*scores, "--pairs", tmp_path / "far.npy"], "outside 0..60"),
        ([*scores, "--pairs", tmp_path / "text.csv"], "text.csv"),
        ([*scores, "--pairs", "nothing"], ["no file, and no set of pairs", "links"]),
        ([*scores, "--pairs", "link", "--of", "val"], "did you mean 'links'"),
        ([*scores, "--pairs", "links", "--of", "valid"], "part of a set of pairs"),
        ([*scores, "--pairs", "links", "--vertices", "0"], "--vertices is for --top"),
        ([*table, "--top", 3, "--of", "val"], "--of is for --pairs"),
        ([*table, "--top", 61], ["61 vertices", "from 1 to 60"]),
        ([*table, "--top", 0], "from 1 to 60"),
        ([*table, "--top", 3, "--vertices", "0,61"], "'61' is no vertex"),
        ([*table, "--top", 3, "--vertices", ","], "there are none"),
    ])  # fmt: skip
    assert not (tmp_path / "s.npy").exists()
    assert not (tmp_path / "t.csv").exists()


def test_metrics_of_weights_are_those_of_the_last_epoch(weights, folder, mpirun):
    for name in ("complex", "hadamard", "concat-plain"):
        run = gcnmpi.Run(folder / name)
        graph = folder / f"{CASES[name][0]}.graph"
        found = gcnmpi.evaluate(graph, weights[name], dtype="float64", task_metrics=["mrr"])
        assert found.keys() == {"val_auc", "test_auc", "val_mrr", "test_mrr"}
        last = {key: run.last[key] for key in ("val_auc", "test_auc")}
        assert {key: found[key] for key in last} == pytest.approx(last, rel=1e-12)
    words = "--weights", weights[name], *sets("dtype=float64", "task.name=links"), "--set"
    words = *words, "task.metrics=mrr", "--partition", "uneven-2"
    said = json.loads(mpirun(2, "gcnmpi", "evaluate", graph, *words, "--json").stdout)
    assert said == pytest.approx(found, rel=1e-12)
    of_labels = mpirun(1, "gcnmpi", "evaluate", graph, "--weights", weights["classes"]).stdout
    assert [line.split()[0] for line in of_labels.splitlines()] == [
        "train_accuracy", "val_accuracy", "test_accuracy",
    ]  # fmt: skip
