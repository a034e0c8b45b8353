"""Under mpirun: products and halos by all transports and precisions, against the serial matrix.

They move the bytes that were predicted, give the same bits by every transport and with any number
of threads, and differ from the serial ones by what rounding may do. Graphs are directed and
symmetric, parts uneven, one empty, or all in one; ranks of one node, and of two where there are
enough of them (that they are two is pretended). A case (see cases.py) is a folder for graphs.
"""

import contextlib
import dataclasses
import sys
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np

from gcnmpi.core.precision import FORMATS
from gcnmpi.core.volume import Volume
from gcnmpi.halo import node_memory
from gcnmpi.layout.place import Place
from gcnmpi.mpi import comm as mpi
from gcnmpi.options.config import from_table
from gcnmpi.options.kernel import resolve
from gcnmpi.options.scheme import TRANSPORTS
from gcnmpi.run import problem as problem_module
from gcnmpi.run.problem import open_problem
from partition.graph.aggregation import aggregation_matrix
from partition.graph.graph import Graph
from partition.graph.store import open_graph

sys.path.append(str(Path(__file__).parents[2]))
from stored_graphs import graph_of, store, store_parts

N = 61
STEPS = {2: 4, 3: 8, 4: 13}  # of the cases, by the number of ranks
WIDTHS = ((1, True), (40, True), (6, False))  # and whether there is room for the halo beside
PLACE = Place(1)


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


def prepare(folder: Path, k: int) -> None:
    for kind in ("directed", "symmetric"):
        path = store(folder / f"{kind}-{k}.graph", random_graph(kind))
        for name, parts in assignments(k).items():
            store_parts(path, name, parts, k)


def rows_too():
    """Problems whose scheme gives products and whole rows, which no network asks for."""

    def with_rows(*arguments):
        *programs, demand = compiled(*arguments)
        return *programs, dataclasses.replace(demand, rows=True)

    compiled = problem_module.compiled
    return mock.patch.object(problem_module, "compiled", with_rows)


def two_nodes():
    """Ranks 0 and 1 on one node, the others on another, as far as exchanges know."""

    def node_of(comm):
        return [rank for rank in range(comm.size) if (rank < 2) == (comm.rank < 2)]

    return mock.patch.object(node_memory, "node_of", node_of)


def results(
    comm, path: Path, name: str, epochs: int = 1, /, **tables
) -> tuple[list[np.ndarray], Volume]:
    """The results of products, and of halos there and back, and the volume that they moved."""
    rows = tables["scheme"].get("exchange") != "mixed"
    with rows_too() if rows else contextlib.nullcontext():
        problem = open_problem(comm, path, name, from_table(tables))
    scheme, traffic = problem.scheme, problem.runtime.traffic
    own, rng, found = scheme.block(PLACE, 1).rows, np.random.default_rng(3), []
    matrix = aggregation_matrix(open_graph(path).graph, "in", True, "sym")
    exact, matrices = "comm" not in tables, []  # exchanges live as long as these

    def moved(epoch, width, *labels):
        """Whether what is done meanwhile is as predicted."""

        @contextlib.contextmanager
        def counted():
            with traffic.during("case", epoch, measured=not exact):
                before = traffic["case"]
                yield
                apart = traffic["case"] + before * -1
                for label in labels:
                    apart += scheme.volume(label, 1, width) * -1
                assert apart == Volume(), (path.name, name, tables, labels, apart)

        return counted()

    for epoch, (width, exchanged) in product(range(1, epochs + 1), WIDTHS):
        x, out = scheme.empty(PLACE, width, exchanged), scheme.empty(PLACE, width).array
        matrices.append(x)
        for label in ("aggregate", "aggregate_t", "aggregate_t", "aggregate"):
            whole = rng.standard_normal((N, width))
            x.array[...] = whole[own]
            with moved(epoch, width, label):
                getattr(scheme, label)(1, x, out)
            found.append(out.copy())
            x.array.fill(np.nan)  # others may still be reading: they must not see what comes next
            serial = (matrix if label == "aggregate" else matrix.T) @ whole
            assert not exact or np.allclose(out, serial[own], atol=1e-5), (tables, label)
        if rows and exchanged:
            gradient, back = scheme.halo.gradient(PLACE, width), scheme.empty(PLACE, width).array
            x.array[...] = whole[own]
            with moved(epoch, width, "expand", "fold"):
                found.append(scheme.halo.expand(x).copy())
                gradient.whole[...] = found[-1]
                scheme.halo.fold(gradient, back)
            found.append(back.copy())
            np.testing.assert_array_equal(found[-2][: len(own)], x.array)
            right = whole[scheme.halo.ids].astype(back.dtype)
            assert not exact or (found[-2] == right).all()
    return found, traffic["case"]


def same(got: list[np.ndarray], expected: list[np.ndarray], *what) -> None:
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=str(what))


def differ(comm, got: list[np.ndarray], others: list[np.ndarray]) -> bool:
    unlike = (not np.array_equal(one, other) for one, other in zip(got, others, strict=True))
    return comm.allreduce(any(unlike), mpi.MPI.LOR)


def check_transports(comm, path: Path, name: str, options: dict, pretended: bool = False) -> None:
    """All transports against persistent messages."""
    expected, all_sent = results(comm, path, name, kernel="scipy", scheme=options)
    on_hosts = [(name, 1) for name in TRANSPORTS if name != "nccl"]
    for transport, chunks in [*on_hosts, ("persistent", 3), ("shared", 3)]:
        table = options | {"transport": transport, "progress_chunks": chunks}
        if transport == "shared" and options.get("exchange") == "mixed":
            continue  # sums are not read in memory
        got, moved = results(comm, path, name, kernel="scipy", scheme=table)
        same(got, expected, path.name, name, table)
        if transport != "shared":
            assert moved == all_sent
        elif not pretended and options["name"] == "p2p":
            assert (moved.sent, moved.received, moved.messages) == (0, 0, 0)
        assert moved.received + moved.shared == all_sent.received


def check_rounded(
    comm, path: Path, name: str, options: dict, turn: int = 0, pretended: bool = False
) -> None:
    """All precisions against the exact result, and all ways of one against each other."""
    best, others = resolve("auto")[0], ("isend", "neighbor", "alltoallv", "onesided")
    exact, _ = results(comm, path, name, 2, kernel=best, scheme=options)
    for number, precision in enumerate(FORMATS):

        def rounded(number=number, precision=precision, threads=1, seed=0, **more):
            tables = {"kernel": best, "comm": {"precision": precision}, "threads": threads}
            train = {"seed": seed}
            return results(comm, path, name, 2, scheme=options | more, train=train, **tables)[0]

        first = rounded()
        for one, other in zip(first, exact, strict=True):
            # A sum has no more than some 60 terms of size 1; each may be a step away.
            assert np.abs(one - other).max(initial=0) <= 60 * FORMATS[precision].error(1) * 8
        same(rounded(threads=3), first, precision, "threads")
        if precision == "int8":  # what is rounded at all is by another seed rounded otherwise
            assert differ(comm, rounded(seed=1), first) == differ(comm, exact, first)
        if not pretended:
            same(rounded(transport=others[(turn + number) % 4]), first, precision, "transport")
            if options.get("exchange") != "mixed":  # sums are not read in memory
                same(rounded(transport="shared"), exact, precision, "shared")


def of_case(comm, folder: str) -> None:
    folder = Path(folder)
    mpi.from_root(comm, lambda: prepare(folder, comm.size))
    cases = [
        (kind, name, {"name": "p2p", "backward": backward, "exchange": exchange})
        for exchange, kind, name, backward in product(
            ("rows", "mixed"), ("directed", "symmetric"), assignments(comm.size),
            ("fold", "expand"),
        )
        if (kind, backward) != ("directed", "expand")
    ][:: STEPS[comm.size]]  # fmt: skip
    if comm.size == 4:
        # Copies: exchanges within process columns, and copies that stay equal.
        mpi.from_root(comm, lambda: prepare(folder, 2))
        for kind, exchange in (("directed", "mixed"), ("symmetric", "rows")):
            replicated = {"name": "replicated", "replication": 2, "exchange": exchange}
            cases.append((kind, "random", replicated))
    for number, (kind, name, options) in enumerate(cases):
        path = folder / f"{kind}-{2 if 'replication' in options else comm.size}.graph"
        check_transports(comm, path, name, options)
        check_rounded(comm, path, name, options, turn=number)
    if comm.size > 2:
        kind, name, options = cases[0]
        for check in (check_transports, check_rounded):
            with two_nodes():  # only rows between nodes are rounded
                check(comm, folder / f"{kind}-{comm.size}.graph", name, options, pretended=True)
