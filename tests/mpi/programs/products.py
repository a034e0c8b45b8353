"""Under mpirun: the p2p scheme's products and its data movement against the serial matrix.

Many cases in one launch: directed graphs with isolated vertices, uneven and empty parts, both
directions, all normalisations, all kernels, expand and fold, buffers of a few bytes.
A case is a folder for graphs (see cases.py), and gives the number of cases that agree.
"""

import dataclasses
import sys
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np

from gcnmpi.halo import node_memory
from gcnmpi.layout.place import Place
from gcnmpi.mpi import comm as mpi
from gcnmpi.nn.compile.on_scheme import program_on
from gcnmpi.options.config import from_table
from gcnmpi.options.kernel import resolve
from gcnmpi.run import problem as problem_module
from gcnmpi.run.problem import open_problem
from partition.graph.aggregation import aggregation_matrix
from partition.graph.graph import Graph
from partition.graph.store import open_graph

sys.path.append(str(Path(__file__).parents[2]))
from stored_graphs import graph_of, store, store_parts

N = 61
STEPS = {1: 5, 2: 3, 3: 3, 4: 5, 7: 9}  # of the cases, by the number of ranks


def random_graph(kind: str) -> Graph:
    """A graph whose last vertices are isolated; "mirrored" has a symmetric pattern only."""
    rng = np.random.default_rng(7)
    dense = np.where(rng.random((N, N)) < 0.07, rng.uniform(0.5, 2.0, (N, N)), 0.0)
    dense[-5:, :] = dense[:, -5:] = 0
    if kind != "directed":
        dense = np.where((dense > 0) | (dense.T > 0), rng.uniform(0.5, 2.0, (N, N)), 0.0)
    if kind == "symmetric":
        dense = dense + dense.T
    return graph_of(dense, features=rng.standard_normal((N, 3)).astype(np.float32))


def assignments(k: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(k)
    uneven = np.minimum(rng.geometric(0.5, N) - 1, k - 1)
    return {
        "random": rng.integers(0, k, N),
        "uneven": uneven,
        "empty": np.where(np.arange(N) % max(1, k - 1) == 0, 0, np.arange(N) % max(1, k - 1)),
        "one": np.full(N, k - 1),
    }


def prepare(folder: Path, k: int, mixed: bool = False) -> None:
    for kind in ("directed", "mirrored", "symmetric"):
        path = store(folder / f"{kind}-{k}.graph", random_graph(kind))
        for name, parts in assignments(k).items():
            store_parts(path, name, parts, k, mixed)


def rows_too():
    """Problems whose scheme gives products and whole rows, which no network asks for."""

    def program_with_rows(*arguments):
        program, demand = program_on(*arguments)
        return program, dataclasses.replace(demand, rows=True)

    return mock.patch.object(problem_module, "program_on", program_with_rows)


def two_nodes():
    """Ranks 0 and 1 on one node, the others on another, as far as exchanges know."""

    def node_of(comm):
        return [rank for rank in range(comm.size) if (rank < 2) == (comm.rank < 2)]

    return mock.patch.object(node_memory, "node_of", node_of)


def check(comm, path: Path, name: str, table: dict, max_buffer_mb: float) -> None:
    loading = {"max_buffer_mb": max_buffer_mb}
    config = from_table({"dtype": "float64", "loading": loading, **table})
    with rows_too():
        problem = open_problem(comm, path, name, config)
    scheme, traffic = problem.scheme, problem.runtime.traffic
    place = Place(1)
    own = scheme.block(place, 1).rows
    matrix = aggregation_matrix(
        open_graph(path).graph,
        problem.source.direction,
        config.graph.self_loops,
        config.graph.normalize,
    )
    rng = np.random.default_rng(1)
    for width in (1, 5):
        whole = rng.standard_normal((N, width))
        for label, function, serial, exchanged in (
            ("aggregate", scheme.aggregate, matrix @ whole, True),
            ("aggregate_t", scheme.aggregate_t, matrix.T @ whole, True),
            ("aggregate", scheme.aggregate, matrix @ whole, False),
            ("aggregate_t", scheme.aggregate_t, matrix.T @ whole, False),
        ):
            x, out = scheme.empty(place, width, exchanged), scheme.empty(place, width).array
            x.array[...] = whole[own]
            with traffic.during("case"):
                before = traffic["case"]
                function(1, x, out)
                moved = traffic["case"] + before * -1
            what = f"{path.name} {name} {table} {label} width {width} rank {comm.rank}"
            np.testing.assert_allclose(out, serial[own], atol=1e-12, err_msg=what)
            volume = scheme.volume(label, 1, width)
            assert moved == volume, (what, moved, volume)
    # Whole rows of neighbours, and their adjoint: <expand x, y> = <x, fold y>.
    whole, halo = rng.standard_normal((N, 2)), scheme.halo
    x, gradient = halo.empty(place, 2), halo.gradient(place, 2)
    back = scheme.empty(place, 2).array
    x.array[...] = whole[own]
    y = np.random.default_rng(comm.rank).standard_normal(gradient.whole.shape)
    gradient.whole[...] = y
    sums = []
    for label, function in (("expand", lambda: halo.expand(x)),
                            ("fold", lambda: halo.fold(gradient, back))):  # fmt: skip
        with traffic.during("case"):
            before = traffic["case"]
            rows = function()
            moved = traffic["case"] + before * -1
        assert moved == scheme.volume(label, 1, 2), (what, label, moved)
        if label == "expand":
            np.testing.assert_array_equal(rows, whole[halo.ids])
            sums.append(np.sum(rows * y))
    sums = np.array([*sums, np.sum(x.array * back)])
    scheme.reduce(sums)
    np.testing.assert_allclose(sums[0], sums[1], rtol=1e-12)
    # Rows come to their owners, and go back to the original order.
    features = open_graph(path).graph.features
    rows = scheme.load(place, features)
    np.testing.assert_array_equal(rows, features[own])
    mine = mpi.slice_of(N, comm.rank, comm.size)
    np.testing.assert_array_equal(scheme.original(place, rows, 3), features[mine])


def of_case(comm, folder: str) -> int:
    folder = Path(folder)
    mpi.from_root(comm, lambda: prepare(folder, comm.size))
    # The normalisation does not depend on the kernel.
    best, _ = resolve("auto")
    arithmetic = (("scipy", "sym"), (best, "row"), ("scipy", "none"), ("graphblas", "sym"))
    cases = [
        (kind, name, kernel, normalize, direction, backward)
        for kind, name, (kernel, normalize), direction, backward in product(
            ("directed", "mirrored", "symmetric"),
            assignments(comm.size),
            arithmetic,
            ("in", "out"),
            ("fold", "expand"),
        )
        if (kind, backward) != ("directed", "expand")
    ]
    # Every 3rd, 5th … case, so that all values of each occur; others on another number of ranks.
    step = STEPS[comm.size]
    cases = cases[comm.size % step :: step]
    for number, (kind, name, kernel, normalize, direction, backward) in enumerate(cases):
        graph = {"normalize": normalize, "direction": direction, "self_loops": name != "random"}
        table = {"kernel": kernel, "graph": graph, "scheme": {"backward": backward}}
        # In buffers of one row every message is one, which takes long.
        buffer = 1e-4 if number % 9 == 0 else 1e-2
        check(comm, folder / f"{kind}-{comm.size}.graph", name, table, buffer)
    return len(cases)
