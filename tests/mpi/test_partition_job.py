"""``gcnmpi partition``: the parts of any number of ranks, their figures, and mistakes."""

import numpy as np
import pytest
from stored_graphs import graph_of, store

from partition.graph.store import open_graph, partition_lock, read_partition
from partition.importing.assemble import build_graph
from partition.importing.readers import Source
from partition.pipeline.balance import constraint_weights, limits
from partition.pipeline.measuring import figures_of

RANKS = (1, 3, 4)
# On one rank there are at most 4,096 pins or so: levels above that are on all of them.
SMALL = ("--memory", "1.7MB", "--effort", "0.1", "--quiet", "--set", "loading.max_buffer_mb=0.02")
CASES = {
    "three": ("directed", 3, "nnz", "in"),
    "symmetric": ("symmetric", 4, "nnz", "in"),
    "out": ("directed", 3, "work", "out"),
    "many": ("directed", 70, "rows", "in"),  # parts are in two words of bits
    "alone": ("symmetric", 1, "nnz", "in"),
    "all": ("tiny", 8, "rows", "in"),  # as many parts as vertices
}


def made(symmetric: bool):
    """Arcs at random, a star, a path, isolated vertices, loops; weights if directed."""
    random, n = np.random.default_rng(5), 1200
    source, target = (random.integers(0, 700, (2, 5000)) ** 2) // 900
    star = np.arange(700, 900)
    path = np.arange(900, 1100)
    source = np.concatenate([source, np.full(len(star), 3), star[:50], path[:-1], [5, 1150]])
    target = np.concatenate([target, star, np.full(50, 3), path[1:], [5, 1150]])
    if symmetric:
        source, target = np.append(source, target), np.append(target, source)
    weights = None if symmetric else random.uniform(0.5, 1.5, len(source))
    return build_graph(Source(n, source, target, weights))[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("jobs")
    store(root / "directed.graph", made(False))
    store(root / "symmetric.graph", made(True))
    store(root / "tiny.graph", graph_of(np.eye(8, k=1) > 0), 2)
    store(root / "empty.graph", graph_of(np.zeros((5, 5), bool)))
    return root


@pytest.fixture(scope="module")
def jobs(folder, gcnmpi_lines):
    """All cases by one rank and three; four have two of them."""
    for ranks in RANKS:
        some = list(CASES.items())[: 2 if ranks == 4 else None]
        lines = [
            ["partition", folder / f"{graph}.graph", "-k", k, "--name", f"{name}-{ranks}",
             "--balance", balance, "--direction", direction, *SMALL]
            for name, (graph, k, balance, direction) in some
        ]  # fmt: skip
        assert gcnmpi_lines(ranks, lines) == [[None] * ranks] * len(lines)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_parts_and_figures_are_those_of_one_rank(jobs, name):
    graph, k, balance, direction = CASES[name]
    stored = open_graph(jobs / f"{graph}.graph")
    ranks = RANKS if name in ("three", "symmetric") else RANKS[:2]
    found = [read_partition(stored.path, f"{name}-{each}") for each in ranks]
    parts = found[0].parts
    figures = figures_of(stored, parts, k)
    for each in found:
        np.testing.assert_array_equal(each.parts, parts)
        assert each.id == found[0].id
        assert (each.direction, each.metrics) == (direction, figures.metrics)
        assert each.mixed == figures.mixed
        assert (each.model, each.tool, each.deterministic) == ("job", "gcnmpi", True)
    assert (np.bincount(parts, minlength=k) > 0).all()
    weights = constraint_weights(stored.graph, direction, (balance,))
    assert np.bincount(parts, weights=weights[0]).max() <= limits(weights, k, 0.01)[0]


def test_fewer_rows_are_sent_than_by_random_parts(jobs):
    stored = open_graph(jobs / "directed.graph")
    parts = np.random.default_rng(1).integers(0, 3, stored.manifest.n)
    before = figures_of(stored, parts, 3).metrics["in"].volume
    assert read_partition(stored.path, "three-3").metrics["in"].volume < 0.75 * before


def test_a_graph_without_arcs(folder, gcnmpi_lines):
    path = folder / "empty.graph"
    ((heard, _),) = gcnmpi_lines(2, [["partition", path, "-k", 2, "--quiet"]])
    assert heard is None
    assert np.bincount(read_partition(path, "job-2").parts).max() == 3


def test_mistakes_are_one_line_on_every_rank(folder, hear_mistakes):
    path, told = folder / "tiny.graph", {
        ("--name", "rp-2"): "rp-2' already",
        ("--name", "taken"): "a test",
        ("--name", "a/b"): "a/b",
        ("-k", 0): "at least one part",
        ("-k", 9): "8 vertices",
        ("--balance", "types"): "nnz, rows, work",
        ("--imbalance", -1): "a fraction",
        ("--seed", -1): "seed",
        ("--memory", "1kB"): "too little",
        ("--effort", 0): "effort",
    }  # fmt: skip
    lines = [(["partition", folder / "no.graph", "-k", 2, "--quiet"], "no.graph")]
    for words, says in told.items():
        parts = [] if "-k" in words else ["-k", 2]
        lines.append((["partition", path, "--quiet", *parts, *words], says))
    with partition_lock(path, "taken", "a test"):
        hear_mistakes(3, lines)
    assert not list(path.glob("partitions/taken*")) + list(path.glob("partitions/job-*"))


def test_a_rank_that_is_killed_leaves_nothing(folder, mpirun):
    words = ["partition", folder / "directed.graph", "-k", 3, "--name", "killed", "--effort", 0.1]
    call = "gcnmpi.partitioning.running.figures_of"
    done = mpirun(2, "broken.py", "SIGKILL", 1, call, *words, code=None)
    assert done.returncode not in (0, 2)
    assert not list((folder / "directed.graph").glob("partitions/*killed.[jn]*"))
