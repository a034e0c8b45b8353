"""Under mpirun: products with rounded messages, by all transports, kernels and numbers of threads.

They move the bytes that were predicted, to the byte; give the same bits by every transport and with
any number of threads; differ from the exact ones by what rounding may do, and not where a rank
multiplies its own rows. Rows that are sent once stay exact. A case is a folder for
graphs (see cases.py), and gives the number of cases that agree.
"""

import contextlib
from itertools import product
from pathlib import Path

import numpy as np
from products import assignments, prepare, rows_too, two_nodes

from gcnmpi.core.precision import EXACT, FORMATS
from gcnmpi.layout.place import Place
from gcnmpi.mpi import comm as mpi
from gcnmpi.options.config import from_table
from gcnmpi.options.kernel import resolve
from gcnmpi.run.problem import open_problem

WIDTHS = (1, 40)
LABELS = ("aggregate", "aggregate_t")
OTHERS = ("isend", "neighbor", "alltoallv", "onesided")
STEPS = {2: 4, 3: 8, 4: 13}  # of the cases, by the number of ranks
Ways = tuple[tuple[str, ...], ...]
ALL: Ways = (OTHERS,) * len(FORMATS)
NONE: Ways = ((),) * len(FORMATS)


def turns(number: int) -> Ways:
    """One transport for each precision; those of four cases are all there are."""
    return tuple((OTHERS[(number + i) % len(OTHERS)],) for i in range(len(FORMATS)))


def results(comm, path: Path, name: str, rows: bool, /, **tables) -> list[np.ndarray]:
    """The results of products, and of halos there and back, in two epochs."""
    config = from_table({"graph": {"direction": "in"}, **tables})
    with rows_too() if rows else contextlib.nullcontext():
        problem = open_problem(comm, path, name, config)
    scheme, traffic, kernel = problem.scheme, problem.runtime.traffic, problem.runtime.kernel
    place, found = Place(1), []
    own = scheme.block(place, 1).rows
    for epoch, width in product((1, 2), WIDTHS):
        whole = np.random.default_rng(width).standard_normal((61, width))
        x, out = scheme.empty(place, width, exchanged=True), scheme.empty(place, width)
        kernel.copy(kernel.from_host(whole[own]), x.array)
        with traffic.during("case", epoch, measured=True):
            for label in LABELS:
                before = traffic["case"]
                getattr(scheme, label)(1, x, out.array)
                moved = traffic["case"] + before * -1
                predicted = scheme.volume(label, 1, width)
                assert moved == predicted, (path.name, name, tables, label, moved, predicted)
                found.append(kernel.to_host(out.array).copy())
            if rows:
                found += there_and_back(problem, x, place, width)
    return found


def there_and_back(problem, x, place: Place, width: int) -> list[np.ndarray]:
    """Rows of neighbours, and the fold of what came."""
    scheme, traffic, kernel = problem.scheme, problem.runtime.traffic, problem.runtime.kernel
    found, before = [], traffic["case"]
    found.append(kernel.to_host(scheme.halo.expand(x)).copy())
    gradient, out = scheme.halo.gradient(place, width), scheme.empty(place, width)
    kernel.copy(kernel.from_host(found[0]), gradient.whole)
    scheme.halo.fold(gradient, out.array)
    moved = traffic["case"] + before * -1
    predicted = scheme.volume("expand", 1, width) + scheme.volume("fold", 1, width)
    assert moved == predicted, (moved, predicted)
    found.append(kernel.to_host(out.array).copy())
    own = len(x.array)
    np.testing.assert_array_equal(found[0][:own], kernel.to_host(x.array))
    return found


def same(got: list[np.ndarray], expected: list[np.ndarray], what) -> None:
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=str(what))


def check(
    comm, path: Path, name: str, options: dict, transports: Ways, one_node: bool = True
) -> None:
    """All precisions against the exact result, and all ways of one against each other.

    ``transports`` has those of each precision.
    """
    rows, best = options.get("exchange") != "mixed", resolve("auto")[0]
    exact = results(comm, path, name, rows, kernel=best, scheme=options)
    for precision, ways in zip(FORMATS, transports, strict=True):
        tables = {"kernel": best, "comm": {"precision": precision}, "threads": 1}
        first = results(comm, path, name, rows, scheme=options, **tables)
        for one, other in zip(first, exact, strict=True):
            # A sum has no more than some 60 terms of size 1; each may be a step away.
            step = FORMATS[precision].error(1) * 8
            assert np.abs(one - other).max(initial=0) <= 60 * step, (path, name, options)
        for transport in ways:
            scheme = options | {"transport": transport}
            got = results(comm, path, name, rows, scheme=scheme, **tables)
            same(got, first, (path, name, precision, transport))
        threads = results(comm, path, name, rows, scheme=options, **tables | {"threads": 3})
        same(threads, first, (path, name, precision, "threads"))
        if rows:  # sums are not read in memory
            scheme = options | {"transport": "shared"}
            memory = results(comm, path, name, rows, scheme=scheme, **tables)
            if one_node:
                same(memory, exact, (path, name, precision, "shared"))


def check_once(comm, path: Path, name: str) -> None:
    """Messages while loading are exact; and the errors of those that are not are measured."""
    problems, outs, later = [], [], []
    for precision, seed in ((EXACT, 0), ("int8", 0), ("int8", 1)):
        table = {"kernel": "scipy", "graph": {"direction": "in"}, "train": {"seed": seed}}
        config = from_table(table | {"comm": {"precision": precision}})
        problems.append(problem := open_problem(comm, path, name, config))
        x, out = problem.scheme.empty(Place(1), 9), problem.scheme.empty(Place(1), 9)
        x.array[...] = np.random.default_rng(comm.rank).standard_normal(x.array.shape)
        problem.scheme.aggregate(1, x, out.array)
        outs.append(out.array.copy())
        with problem.runtime.traffic.during("case", 1, measured=True):
            problem.scheme.aggregate(1, x, out.array)
        later.append(out.array.copy())
    same(outs[1:], outs[:1] * 2, "once")
    exact, rounded, _ = (problem.runtime.traffic.errors for problem in problems)
    assert exact == []
    assert [(error.epoch, error.exchange, error.width) for error in rounded] == [(1, 1, 9)]
    moved = problems[1].runtime.traffic["case"]
    assert bool(rounded[0].changed) == bool(moved.sent) == bool(rounded[0].size)
    # The seed of the run draws which numbers are rounded up.
    assert (later[1] != later[2]).any() == bool(moved.received)


def of_case(comm, folder: str) -> int:
    folder = Path(folder)
    mpi.from_root(comm, lambda: prepare(folder, comm.size, mixed=True))
    cases = [
        (kind, name, {"name": "p2p", "backward": backward, "exchange": exchange})
        for exchange, kind, name, backward in product(
            ("rows", "mixed"), ("directed", "symmetric"), assignments(comm.size),
            ("fold", "expand"),
        )
        if (kind, backward) != ("directed", "expand")
    ]  # fmt: skip
    cases = cases[:: STEPS[comm.size]]
    for number, (kind, name, options) in enumerate(cases):
        others, skipped = divmod(number, 3)
        transports = ALL if number == 0 else NONE if skipped else turns(others)
        check(comm, folder / f"{kind}-{comm.size}.graph", name, options, transports)
    check_once(comm, folder / f"directed-{comm.size}.graph", "random")
    if comm.size == 4:
        # Copies: exchanges within process columns, and copies that stay equal.
        mpi.from_root(comm, lambda: prepare(folder, 2, mixed=True))
        for kind, exchange in (("directed", "mixed"), ("symmetric", "rows")):
            replicated = {"name": "replicated", "replication": 2, "exchange": exchange}
            ways = turns(2 * (kind == "directed"))
            check(comm, folder / f"{kind}-2.graph", "random", replicated, ways)
    if comm.size > 2:
        kind, name, options = cases[0]
        with two_nodes():  # only rows between nodes are rounded
            path = folder / f"{kind}-{comm.size}.graph"
            check(comm, path, name, options, NONE, one_node=False)
    return len(cases)
