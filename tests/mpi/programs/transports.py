"""Under mpirun: every transport moves the same bits, and the bytes that were predicted.

Directed and symmetric graphs, uneven parts, an empty part, all in one part; fold and expand; the
own product whole and in chunks; ranks of one node, and of two where there are enough of them (that
they are two is pretended). A case is a folder for graphs
(see cases.py), and gives the number of cases that agree.
"""

from itertools import product
from pathlib import Path

import numpy as np
from products import N, assignments, prepare, rows_too, two_nodes

from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.layout.place import Place
from gcnmpi.mpi import comm as mpi
from gcnmpi.options.config import from_table
from gcnmpi.options.scheme import TRANSPORTS
from gcnmpi.run.problem import open_problem

STEPS = {2: 4, 3: 4, 4: 6}  # of the cases, by the number of ranks


def products(
    comm, path: Path, name: str, scheme_table: dict, timed: bool = False
) -> tuple[list[np.ndarray], Volume]:
    """The results of the products of a scheme, and the volume that they moved."""
    table = {"graph": {"direction": "in"}, "kernel": "scipy", "scheme": scheme_table}
    with rows_too():
        problem = open_problem(comm, path, name, from_table(table))
    scheme, traffic, place = problem.scheme, problem.runtime.traffic, Place(1)
    own, rng, results = scheme.block(place, 1).rows, np.random.default_rng(3), []
    matrices = []  # exchanges live as long as these, and so do their times
    for width, exchanged in product((1, 6), (True, False)):
        x, out = scheme.empty(place, width, exchanged), scheme.empty(place, width).array
        matrices.append(x)
        for label in ("aggregate", "aggregate_t", "aggregate_t", "aggregate"):
            x.array[...] = rng.standard_normal((N, width))[own]
            with traffic.during("case"):
                before = traffic["case"]
                getattr(scheme, label)(1, x, out)
                moved = traffic["case"] + before * -1
            # Others may still be reading: they must not see what comes next.
            results.append(out.copy())
            x.array.fill(np.nan)
            predicted = scheme.volume(label, 1, width)
            assert moved == predicted, (scheme_table, name, label, moved, predicted)
    halo = scheme.halo
    x, gradient = halo.empty(place, 2), halo.gradient(place, 2)
    out = scheme.empty(place, 2).array
    x.array[...] = rng.standard_normal((N, 2))[own]
    results.append(halo.expand(x).copy())
    gradient.whole[...] = results[-1]
    halo.fold(gradient, out)
    results.append(out.copy())
    hidden = traffic.hidden("case") if timed else None
    assert hidden is None or 0 <= hidden <= 1
    return results, traffic["case"]


def check(comm, path: Path, name: str, options: dict, pretended: bool, timed: bool = False) -> None:
    """All transports against persistent messages."""
    expected, all_sent = products(comm, path, name, options | {"transport": "persistent"})
    on_hosts = [(name, 1) for name in TRANSPORTS if name != "nccl"]
    for transport, chunks in [*on_hosts, ("persistent", 3), ("shared", 3)]:
        table = options | {"transport": transport, "progress_chunks": chunks}
        results, moved = products(comm, path, name, table, timed)
        for number, (got, right) in enumerate(zip(results, expected, strict=True)):
            what = f"{path.name} {name} {table} result {number} rank {comm.rank}"
            np.testing.assert_array_equal(got, right, err_msg=what)
        if transport != "shared":
            assert moved == all_sent
        elif not pretended and options["name"] == "p2p":
            assert (moved.sent, moved.received, moved.messages) == (0, 0, 0)
        assert moved.received + moved.shared == all_sent.received
    assert all_sent == NOTHING or comm.size > 1


def of_case(comm, folder: str) -> int:
    folder = Path(folder)
    mpi.from_root(comm, lambda: prepare(folder, comm.size))
    cases = [
        (kind, name, {"name": "p2p", "backward": backward})
        for kind, name, backward in product(
            ("directed", "symmetric"), assignments(comm.size), ("fold", "expand")
        )
        if (kind, backward) != ("directed", "expand")
    ]
    # All kinds of graphs, of parts and of backward passes occur on two ranks and on three.
    cases = cases[:: STEPS[comm.size]]
    for kind, name, options in cases:
        timed = (kind, name, options) == cases[0]
        check(comm, folder / f"{kind}-{comm.size}.graph", name, options, False, timed)
    if comm.size == 4:
        # Copies: exchanges within process columns.
        mpi.from_root(comm, lambda: prepare(folder, 2))
        replicated = {"name": "replicated", "replication": 2}
        check(comm, folder / "directed-2.graph", "random", replicated, pretended=False)
    if comm.size > 2:
        with two_nodes():
            for kind, name, options in cases:
                check(comm, folder / f"{kind}-{comm.size}.graph", name, options, pretended=True)
    return len(cases)
