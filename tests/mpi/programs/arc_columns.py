"""Under mpirun: the arcs of own rows of M, with their data, against the graph folder.

Many cases in one launch: directed and undirected graphs, parallel arcs, isolated vertices, uneven
and empty parts, both directions, buffers of a few bytes. A case is a folder for graphs (see
cases.py), and gives the number of cases that agree.
"""

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from products import N, assignments

from gcnmpi.halo.plan import local_numbers
from gcnmpi.layout.arc_columns import load_arc_columns
from gcnmpi.layout.runtime import Demand
from gcnmpi.mpi import comm as mpi
from gcnmpi.options.config import from_table
from gcnmpi.run.problem import open_problem
from gcnmpi.schemes.p2p import lay_out
from partition.graph.graph import arcs
from partition.graph.store import open_graph, write_graph
from partition.importing.assemble import build_graph
from partition.importing.readers import Source
from partition.importing.readers.arc_columns import ArcTable

sys.path.append(str(Path(__file__).parents[2]))
from stored_graphs import store_parts

KINDS = {
    "directed": {},
    "undirected": {"undirected": True, "self_loops": "drop"},
    "parallel": {"duplicates": "keep"},
}


def prepare(folder: Path, k: int) -> None:
    """Graphs of which the last vertices are isolated, with several arcs between some two."""
    rng = np.random.default_rng(3)
    ends = rng.integers(0, N - 5, (2, 300))
    ends[:, 250:] = ends[:, :50]
    columns = {
        "features": rng.standard_normal((300, 3)).astype(np.float32),
        "labels": rng.integers(-1, 3, 300),
        "train": rng.random(300) < 0.5,
    }
    for kind, rules in KINDS.items():
        weights = None if kind == "undirected" else rng.random(300)
        graph, _ = build_graph(Source(N, *ends, weights, arc_data=ArcTable(columns)), **rules)
        path = folder / f"{kind}-{k}.graph"
        labels = (np.arange(N) % 2).astype(np.int32)
        graph = replace(graph, features=np.ones((N, 2), np.float32), labels=labels)
        write_graph(path, graph, source={})
        for name, parts in assignments(k).items():
            store_parts(path, name, parts, k)


def check(comm, path: Path, name: str, direction: str, self_loops: bool, buffer: float) -> None:
    graph = {"direction": direction, "self_loops": self_loops, "normalize": "none"}
    table = {"dtype": "float64", "graph": graph, "loading": {"max_buffer_mb": buffer}}
    config = from_table(table)
    problem = open_problem(comm, path, name, config)
    source = problem.source
    laid = lay_out(problem.runtime, source, config, Demand(rows=True))
    plan, stored = laid.plan, open_graph(path).graph
    found = load_arc_columns(
        comm, source, laid.rows, lambda ids: local_numbers(plan.own, plan.halo, ids),
        config.loading.max_bytes, self_loops=self_loops,
    )  # fmt: skip
    begin, end = arcs(stored), np.asarray(stored.indices)
    rows, columns = (end, begin) if direction == "in" else (begin, end)
    ids = np.concatenate((plan.own, plan.halo))
    row = np.repeat(plan.own, np.diff(found.indptr))
    added = found.arc < 0
    np.testing.assert_array_equal(row[added], ids[found.column[added]])
    np.testing.assert_array_equal(rows[found.arc[~added]], row[~added])
    np.testing.assert_array_equal(columns[found.arc[~added]], ids[found.column[~added]])
    expected = np.flatnonzero(np.isin(rows, plan.own))
    np.testing.assert_array_equal(np.sort(found.arc[~added]), expected)
    loops = np.setdiff1d(plan.own, begin[begin == end]) if self_loops else []
    np.testing.assert_array_equal(np.sort(row[added]), loops)
    data, real = stored.arc_data, found.arc[~added]
    np.testing.assert_array_equal(found.features[~added], data.features[real])
    np.testing.assert_array_equal(found.labels[~added], data.labels[real])
    np.testing.assert_array_equal(found.masks["train"][~added], data.masks["train"][real])
    assert not found.features[added].any()
    assert (found.labels[added] == -1).all()
    assert not found.masks["train"][added].any()
    # In the order of M, whose entries are sums over parallel arcs.
    first = np.ones(len(row), bool)
    first[1:] = (row[1:] != row[:-1]) | (found.column[1:] != found.column[:-1])
    np.testing.assert_array_equal(found.column[first], laid.forward.indices)
    assert stored.parallel or first.all()
    assert (np.diff(found.arc)[~first[1:]] > 0).all()
    weights = np.ones(len(row)) if found.weight is None else found.weight
    if len(row):
        sums = np.add.reduceat(weights, np.flatnonzero(first))
        np.testing.assert_allclose(sums, laid.forward.data, rtol=1e-15)
    # The same data on any number of ranks: each arc is on one of them.
    total = np.array([len(real)])
    mpi.reduce_in_place(comm, total)
    assert total[0] == stored.nnz


def of_case(comm, folder: str) -> int:
    folder = Path(folder)
    mpi.from_root(comm, lambda: prepare(folder, comm.size))
    cases = list(product(KINDS, assignments(comm.size), ("in", "out"), (True, False)))
    for number, (kind, name, direction, self_loops) in enumerate(cases):
        buffer = 1e-4 if number % 9 == 0 else 1e-2
        check(comm, folder / f"{kind}-{comm.size}.graph", name, direction, self_loops, buffer)
    return len(cases)
