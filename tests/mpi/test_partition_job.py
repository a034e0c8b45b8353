"""``gcnmpi partition``: the parts of any number of ranks, their figures, and mistakes."""

import numpy as np
import pytest
from axes import ALL
from stored_graphs import graph_of, store
from words import line

from partition.graph.store import open_graph, partition_lock, read_partition
from partition.importing.arcs import build_graph
from partition.importing.readers.source import Source
from partition.pipeline.adding import figures_of
from partition.pipeline.balance import constraint_weights, limits

# On one rank there are at most 4,096 pins or so: levels above that are on all of them.
BUFFER = ["loading.max_buffer_mb=0.02"]
SMALL = {"memory": "1.7MB", "effort": 0.1, "quiet": True, "settings": BUFFER}
CASES = {
    "three": ("directed", 3, "nnz", "in"),
    "symmetric": ("symmetric", 4, "work", "in"),
    "many": ("directed", 70, "rows", "out"),  # parts are in two words of bits
    "alone": ("symmetric", 1, "nnz", "in"),
    "all": ("tiny", 8, "rows", "in"),  # as many parts as vertices
}
# All cases by one rank and three; nightly, one by four.
RANKS = {1: list(CASES), 3: list(CASES)} | ({4: ["symmetric"]} if ALL else {})


def made(symmetric: bool):
    """Arcs at random, a star, a path, isolated vertices, loops; weights if directed."""
    random, n = np.random.default_rng(5), 1200
    source, target = (random.integers(0, 700, (2, 5000)) ** 2) // 900
    star, path = np.arange(700, 900), np.arange(900, 1100)
    source = np.concatenate([source, np.full(len(star), 3), star[:50], path[:-1], [5, 1150]])
    target = np.concatenate([target, star, np.full(50, 3), path[1:], [5, 1150]])
    if symmetric:
        source, target = np.append(source, target), np.append(target, source)
    weights = None if symmetric else random.uniform(0.5, 1.5, len(source))
    return build_graph(Source(n, source, target, weights))[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("jobs")
    for name, graph in {
        "directed": made(False), "symmetric": made(True), "tiny": graph_of(np.eye(8, k=1) > 0),
        "empty": graph_of(np.zeros((5, 5), bool)),
    }.items():  # fmt: skip
        store(root / f"{name}.graph", graph, 2)
    return root


@pytest.fixture(scope="module")
def jobs(folder, succeed):
    for ranks, names in RANKS.items():
        lines = []
        for name in names:
            graph, k, balance, direction = CASES[name]
            words = ("partition", folder / f"{graph}.graph", "-k", k, "--name", f"{name}-{ranks}")
            lines.append(line(*words, balance=balance, direction=direction, **SMALL))
        succeed(ranks, *lines)
    succeed(2, ["partition", folder / "empty.graph", "-k", 2, "--quiet"])
    return folder


@pytest.mark.parametrize("name", CASES)
def test_parts_and_figures_are_those_of_one_rank(jobs, name):
    graph, k, balance, direction = CASES[name]
    stored = open_graph(jobs / f"{graph}.graph")
    found = [read_partition(stored.path, f"{name}-{n}") for n, of in RANKS.items() if name in of]
    parts = found[0].parts
    figures = figures_of(stored, parts, k)
    for each in found:
        np.testing.assert_array_equal(each.parts, parts)
        known = each.direction, each.metrics, each.mixed
        assert known == (direction, figures.metrics, figures.mixed)
        assert (each.model, each.tool, each.deterministic) == ("job", "gcnmpi", True)
    assert (np.bincount(parts, minlength=k) > 0).all()
    weights = constraint_weights(stored.graph, direction, (balance,))
    assert np.bincount(parts, weights=weights[0]).max() <= limits(weights, k, 0.01)[0]
    if name == "three":  # fewer rows are sent than by random parts
        random = np.random.default_rng(1).integers(0, 3, stored.manifest.n)
        before = figures_of(stored, random, 3).metrics["in"].volume
        assert found[0].metrics["in"].volume < 0.75 * before


def test_mistakes_are_one_line_on_every_rank(jobs, hear_mistakes, mpirun):
    """And a rank that is killed leaves nothing."""
    assert np.bincount(read_partition(jobs / "empty.graph", "job-2").parts).max() == 3
    path, told = jobs / "tiny.graph", {
        "--name rp-2": "rp-2' already", "--name taken": "a test", "--name a/b": "a/b",
        "-k 0": "at least one part", "-k 9": "8 vertices", "--balance types": "nnz, rows, work",
        "--imbalance -1": "a fraction", "--seed -1": "seed", "--memory 1kB": "too little",
        "--effort 0": "effort",
    }  # fmt: skip
    lines = [(["partition", jobs / "no.graph", "-k", 2, "--quiet"], "no.graph")]
    for words, says in told.items():
        parts = [] if "-k" in words else ["-k", 2]
        lines.append((["partition", path, "--quiet", *parts, *words.split()], says))
    with partition_lock(path, "taken", "a test"):
        hear_mistakes(3, lines)
    assert not list(path.glob("partitions/taken*")) + list(path.glob("partitions/job-*"))
    path, call = jobs / "directed.graph", "gcnmpi.partitioning.running.figures_of"
    words = ["partition", path, "-k", 3, "--name", "killed", "--effort", 0.1]
    done = mpirun(2, "broken.py", "SIGKILL", 1, call, *words, code=None)
    assert done.returncode not in (0, 2)
    assert not list(path.glob("partitions/*killed.[jn]*"))
    said = mpirun(2, "gcnmpi", *words).stdout
    made = read_partition(path, "killed")
    assert f"volume {made.metrics[made.direction].volume:,} rows" in said
