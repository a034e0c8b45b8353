"""``gcnmpi score``: scores of pairs and best partners, equal to brute force by the oracle.

On small graphs with isolated vertices, some of them alike, under uneven partitions with an empty
part; each decoder. ``gcnmpi.evaluate`` gives the metrics of the last epoch.
"""

import functools
import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from stored_graphs import small_graph, store, with_uneven_parts
from words import latest, line, sets

import gcnmpi
from gcnmpi.options.config import load_config
from gcnmpi.proof import links
from gcnmpi.run.weights import read_weights
from gcnmpi.run.weights_file import read_facts, write_weights
from partition.graph.store import open_graph
from partition.graph.vertex_pairs import read_pairs, split_pairs, write_pairs

HIDDEN = "task.decoder_hidden=6,5 task.decoder_norm=layer"
COMMON = (
    "task.name=links", "dtype=float64", "train.epochs=2", "model.hidden=7,6", "train.lr=0.02",
)  # fmt: skip
# Name → graph and settings
CASES = {
    "dot": "symmetric",
    "distmult": "directed task.decoder=distmult",
    "hadamard-plain": "symmetric task.decoder=hadamard",
    "hadamard": f"directed task.decoder=hadamard {HIDDEN}",
    "concat-plain": "directed task.decoder=concat task.objective=softmax",
    # Without task.width, no decoder of so many columns.
    "complex": "symmetric task.decoder=complex task.width=4 task.objective=auc",
    "concat": f"directed task.decoder=concat {HIDDEN} model.name=sage",
}
K, N, SOME = 12, 61, [60, 3, 3]
DRAWN = np.random.default_rng(1).integers(0, N, (100, 2))
close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12)


@pytest.fixture(scope="module")
def folder(succeed, tmp_path_factory):
    """Graphs with pairs and weights; isolated vertices have equal features, and so equal scores."""
    root = tmp_path_factory.mktemp("score")
    for kind in ("symmetric", "directed"):
        graph, path = small_graph(kind), root / f"{kind}.graph"
        graph.features[-7:] = graph.features[-1]
        with_uneven_parts(store(path, graph), (1, 2, 4))
        facts = {"directed": kind == "directed", "graph_id": open_graph(path).manifest.id}
        write_pairs(path, split_pairs(graph, (0.7, 0.1, 0.2), 3, **facts))
    trained = {name: settings_of(name) for name in CASES} | {"classes": ["train.epochs=1"]}
    lines = []
    for name, settings in trained.items():
        out = {"out": root / name, "save_weights": root / f"{name}.npz"}
        lines.append(line("train", path_of(root, name), settings=settings, **out))
    succeed(1, *lines)
    with np.load(root / "distmult.npz") as arrays:  # rows are different, and all scores are 0
        zeros = {name: 0 * a if name.startswith("decoder") else a for name, a in arrays.items()}
    write_weights(root / "zero.npz", zeros, read_facts(root / "distmult.npz"))
    return root


def path_of(folder, name):
    return folder / f"{CASES.get(name, 'directed').split()[0]}.graph"


def settings_of(name):
    return latest(*COMMON, *CASES[name].split()[1:])


@functools.cache
def expected(folder, name):
    """The scores of all pairs, (n, n), by the oracle."""
    config, stored = load_config(None, settings_of(name)), open_graph(path_of(folder, name))
    pairs = read_pairs(stored.path, "links")
    problem = links.LinkProblem(stored.graph, pairs, "in", config)
    every = np.stack(np.divmod(np.arange(N * N), N), axis=1)
    parameters = read_weights(folder / f"{name}.npz", config).parameters
    return problem.scores(parameters, every).reshape(N, N)


@pytest.fixture(scope="module")
def results(run_cases, folder):
    """(name, what) → what four ranks have found; "alone": what one has."""

    def run(nranks, *names):
        cases = {}
        for name in CASES:
            common = {"graph": path_of(folder, name), "weights": folder / f"{name}.npz",
                      "dtype": "float64", "partition": f"uneven-{nranks}"}  # fmt: skip
            more = {
                "float32": {"k": K, "dtype": "float32"},
                "pairs": {"pairs": DRAWN.tolist()},
                "set": {"pairs": "links", "of": "val"},
                "all": {"k": K},
                "some": {"k": 60, "vertices": SOME, "with_arcs": True},  # fewer than ranks
            }
            if name == "distmult":
                more["equal"] = {"k": K, "weights": folder / "zero.npz"}
            cases |= {(name, what): common | own for what, own in more.items()
                      if not names or what in names}  # fmt: skip
        return dict(zip(cases, run_cases("score_cases", nranks, [*cases.values()]), strict=True))

    alone = run(1, "float32")
    return run(4) | {(name, "alone"): alone[name, "float32"] for name in CASES}


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
def test_scores_and_partners_are_those_of_brute_force(results, folder, name):
    path, scores = path_of(folder, name), expected(folder, name)
    close(results[name, "pairs"], scores[*DRAWN.T])
    close(results[name, "set"], scores[*read_pairs(path, "links").positives["val"].T])
    graph, others = open_graph(path).graph, ~np.eye(N, dtype=bool)
    no_arcs = others.copy()
    no_arcs[np.repeat(np.arange(N), np.diff(graph.indptr)), graph.indices] = False
    if not name.startswith("concat"):  # its score tells the first vertex from the second
        no_arcs &= no_arcs.T
    every = {"all": partners(scores, no_arcs, range(N), K)}
    every["some"] = partners(scores, others, SOME, 60)
    if name == "distmult":
        every["equal"] = partners(0 * scores, no_arcs, range(N), K)
    if name == "dot":
        assert np.ptp(scores[0, -7:]) < 1e-12
        assert np.ptp(scores[0]) > 1e-3
    for what, right in every.items():
        found = results[name, what]
        assert (found["vertex"], found["partner"]) == (right["vertex"], right["partner"])
        close(found["score"], right["score"])
    # Scores of float32 that are equal but for rounding are in the order of their vertices.
    assert results[name, "alone"]["partner"] == results[name, "float32"]["partner"]


def test_files_say_what_python_is_given(succeed, results, folder, tmp_path):
    """Vertices are called as in the source, and no pairs need be there: then M has all arcs."""
    symmetric, float64 = folder / "symmetric.graph", ["dtype=float64"]
    np.savetxt(tmp_path / "pairs.csv", DRAWN, "%d", ",")
    np.save(tmp_path / "pairs.npy", DRAWN)
    (tmp_path / "some.txt").write_text("60\n3\n3\n")
    (tmp_path / "named.csv").write_text("v1,v2\nv60,v0\n")

    def score(out, path=symmetric, partition="uneven-2", **options):
        given = {"weights": folder / "dot.npz", "settings": float64, "partition": partition}
        return line("score", path, out=tmp_path / out, **given, **options)

    some = {"top": 60, "with_arcs": True}
    succeed(
        2,
        score("a.npy", pairs=tmp_path / "pairs.csv"),
        score("b.csv", pairs=tmp_path / "pairs.npy"),
        score("a.npz", pairs="links", of="val"),
        score("c.npz", top=K),
        score("d.csv", vertices=tmp_path / "some.txt", **some),
        score("e.npz", vertices="60,3,3", **some),
    )
    close(np.load(tmp_path / "a.npy"), results["dot", "pairs"])
    close(np.loadtxt(tmp_path / "b.csv"), results["dot", "pairs"])
    close(np.load(tmp_path / "a.npz")["score"], results["dot", "set"])
    table = np.load(tmp_path / "c.npz")
    assert table["partner"].tolist() == results["dot", "all"]["partner"]
    head, *rows = (tmp_path / "d.csv").read_text().splitlines()
    assert head == "vertex,partner,score"
    columns = np.array([row.split(",") for row in rows], float).T
    for name, column in zip(head.split(","), columns, strict=True):
        close(column, results["dot", "some"][name])
    np.testing.assert_array_equal(np.load(tmp_path / "e.npz")["partner"], columns[1])
    # The graph less the arcs that are held out, with names.
    graph = links.training_graph(open_graph(symmetric).graph, read_pairs(symmetric, "links"))
    names = np.array([f"v{number}" for number in range(N)])
    named, alone = {"path": store(tmp_path / "named.graph", replace(graph, ids=names))}, None
    few = {"top": 4, "with_arcs": True, "partition": alone}
    succeed(
        1,
        score("n.npy", **named, pairs=tmp_path / "named.csv", partition=alone),
        score("n.parquet", **named, vertices="v0,v5", **few),
        score("m.npz", vertices="0,5", **few),
    )
    ours, numbered = pq.read_table(tmp_path / "n.parquet"), np.load(tmp_path / "m.npz")
    np.testing.assert_array_equal(ours["partner"], names[numbered["partner"]])
    close(ours["score"], numbered["score"])
    close(np.load(tmp_path / "n.npy"), expected(folder, "dot")[[1, 60], [2, 0]])


def test_mistakes_of_users_are_one_line(hear_mistakes, folder, tmp_path):
    np.save(tmp_path / "none.npy", np.zeros((0, 2), np.int64))
    np.save(tmp_path / "far.npy", np.array([[0, 1], [3, 61]]))
    (tmp_path / "text.csv").write_text("a,b\n")
    told = {
        "s.npy": ["say what is scored", "--pairs FILE"],
        "t.csv --pairs links --top 3": "exclude each other",
        "s.npy --top 3": "the name ends in .npy",
        "s.npy --pairs links --set task.name=classes": ['"classes" here', '"links"'],
        "s.npy --pairs @none.npy": "there are no pairs",
        "s.npy --pairs @far.npy": "outside 0..60",
        "s.npy --pairs @text.csv": "text.csv",
        "s.npy --pairs nothing": ["no file, and no set of pairs", "links"],
        "s.npy --pairs link --of val": "did you mean 'links'",
        "s.npy --pairs links --of valid": "part of a set of pairs",
        "s.npy --pairs links --vertices 0": "--vertices is for --top",
        "t.csv --top 3 --of val": "--of is for --pairs",
        "t.csv --top 61": ["61 vertices", "from 1 to 60"],
        "t.csv --top 0": "from 1 to 60",
        "t.csv --top 3 --vertices 0,61": "'61' is no vertex",
        "t.csv --top 3 --vertices ,": "there are none",
    }
    line = ["score", folder / "directed.graph", "--partition", "uneven-2", "--weights"]
    classes = [*line, folder / "classes.npz", "--pairs", "links", "--out", tmp_path / "s.npy"]
    lines = [(classes, ["of the task classes", "task.name=links"])]
    for words, says in told.items():
        out, *rest = words.replace("@", f"{tmp_path}/").split()
        lines.append(([*line, folder / "concat.npz", "--out", tmp_path / out, *rest], says))
    hear_mistakes(2, lines)
    assert not (tmp_path / "s.npy").exists()
    assert not (tmp_path / "t.csv").exists()


def test_metrics_of_weights_are_those_of_the_last_epoch(folder, mpirun):
    for name in ("complex", "hadamard", "concat-plain"):
        run, graph, weights = gcnmpi.Run(folder / name), path_of(folder, name), f"{name}.npz"
        given = {"dtype": "float64", "task_metrics": ["mrr"]}
        found = gcnmpi.evaluate(graph, folder / weights, **given)
        assert found.keys() == {"val_auc", "test_auc", "val_mrr", "test_mrr"}
        last = {key: run.last[key] for key in ("val_auc", "test_auc")}
        assert {key: found[key] for key in last} == pytest.approx(last, rel=1e-12)
    own = *sets("dtype=float64", "task.name=links", "task.metrics=mrr"), "--partition", "uneven-2"
    words = "evaluate", graph, "--weights", folder / weights, *own
    told, said = (mpirun(2, "gcnmpi", *words, *more).stdout for more in ((), ("--json",)))
    assert json.loads(said) == pytest.approx(found, rel=1e-12)
    assert [[name, f"{found[name]:.6g}"] for name in found] == [
        s.split() for s in told.splitlines()
    ]
