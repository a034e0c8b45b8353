"""Expand and fold of a partition, without any arithmetic, by every transport there is.

    mpirun -n 2 python benchmarks/exchange.py G.graph --partition hp-2 --widths 8,64

Seconds are those of the slowest rank, GB/s those of the rank that sends or receives most.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial

import numpy as np
from measuring import OnRecord, config_of, describe, measured, names, numbers, words_of

from gcnmpi.bench.rounds import alternate, clocked, ratios, spread
from gcnmpi.core.timing import Phases, Traffic
from gcnmpi.halo.exchange import Buffers, Exchange
from gcnmpi.halo.messages import rounding_of
from gcnmpi.halo.plan import Plan
from gcnmpi.halo.transports import obstacle
from gcnmpi.mpi.comm import Comm, agreed, from_root, maximum, reduce_in_place
from gcnmpi.options.config import Config
from gcnmpi.options.scheme import TRANSPORTS, exchange_of
from gcnmpi.run.problem import Problem, open_problem
from partition.errors import UserError, unknown_name

OPERATIONS = ("expand", "fold")


def bench_exchange(
    comm: Comm,
    graph: str | os.PathLike,
    partition: str | None,
    config: Config,
    *,
    transports: Iterable[str] | None = None,
    widths: Sequence[int],
    rounds: int,
    on_record: OnRecord,
) -> None:
    """Time the exchange of rows alone, by the named transports or all that work here, in turns.

    Ratios are taken over the first. ``on_record(event, **values)`` is called on every rank:
    "machine" once, "exchange" for each width, operation and transport. Seconds are those of the
    slowest rank.
    """

    def check() -> list[str]:
        chosen = list(TRANSPORTS if transports is None else transports)
        for name in chosen:
            if name not in TRANSPORTS:
                raise unknown_name("transport", name, TRANSPORTS)
        if config.scheme.name != "p2p":
            raise UserError(
                "exchanges are measured of the scheme p2p only", "leave scheme.name alone"
            )
        if comm.size == 1:
            raise UserError("one rank exchanges nothing", "start it under mpirun")
        return chosen

    chosen = from_root(comm, check)
    config = replace(config, scheme=replace(exchange_of(config.scheme), exchange="rows"))
    problem = open_problem(comm, graph, partition, config)
    kernel = problem.runtime.kernel
    if transports is None:
        chosen = [name for name in chosen if obstacle(comm, kernel, name) is None]
    on_record("machine", **describe(comm, kernel.threads), warnings=list(problem.told))
    for width in widths:
        measures: dict[str, dict[str, Callable[[], float]]] = {kind: {} for kind in OPERATIONS}
        traffic = {}
        for name in chosen:
            traffic[name] = Traffic()
            moved = _Both(problem, name, width, traffic[name])
            _check_halo(comm, problem, name, moved)
            for kind in OPERATIONS:
                measures[kind][name] = clocked(comm, partial(moved.again, kind))
        for kind in OPERATIONS:
            times = alternate(measures[kind], rounds)
            for name, ratio in ratios(times, chosen[0]).items():
                seconds = spread(times[name])
                most, all_ranks, shared, messages = _bytes(comm, traffic[name], kind)
                on_record(
                    "exchange", graph=problem.source.stored.manifest.name, partition=partition,
                    ranks=comm.size, width=width, dtype=config.dtype, operation=kind,
                    transport=name, precision=config.comm.precision, rounds=rounds,
                    seconds=asdict(seconds), ratio=asdict(ratio), reference=chosen[0],
                    bytes=all_ranks, shared_bytes=shared, busiest_bytes=most, messages=messages,
                    bandwidth=most / seconds.median,
                )  # fmt: skip


class _Both:
    """Expand and fold of one exchange, and what each hands to MPI."""

    def __init__(self, problem: Problem, name: str, width: int, traffic: Traffic) -> None:
        comm, kernel = problem.runtime.comm, problem.runtime.kernel
        transport = TRANSPORTS.get(name)(comm, _plan(problem), kernel)
        rounding = rounding_of(problem.config, width)
        buffers = Buffers(transport, width, rounding)
        self.exchange = Exchange(transport, width, traffic, Phases(), buffers)
        self._traffic, self._kernel = traffic, kernel
        for operation in OPERATIONS:  # once, to count; later calls count under another name
            self._during(operation, operation)

    def again(self, operation: str) -> None:
        """One of both operations, for timing: its bytes are not among those reported."""
        self._during("timing", operation)

    def expand(self) -> None:
        self.exchange.start_expand()
        self.exchange.finish()

    def fold(self) -> None:
        self.exchange.start_fold()
        self.exchange.finish()

    def _during(self, purpose: str, operation: str) -> None:
        with self._traffic.during(purpose):
            getattr(self, operation)()
            self._kernel.finish()


def _plan(problem: Problem) -> Plan:
    plan = problem.scheme.plan
    assert plan is not None, "p2p has one"
    return plan


def _check_halo(comm: Comm, problem: Problem, name: str, moved: _Both) -> None:
    """Every row of the halo is the one its owner has: vertex numbers travel, not rounded."""
    plan, kernel, buffer = _plan(problem), problem.runtime.kernel, moved.exchange
    # Remainders that float32 holds exactly.
    own, halo = (np.asarray(ids % 2**20, kernel.dtype) for ids in (plan.own, plan.halo))
    width = buffer.whole.shape[1]
    kernel.copy(kernel.from_host(np.repeat(own[:, np.newaxis], width, axis=1)), buffer.own)
    moved.expand()
    with agreed(comm):
        if not (kernel.to_host(buffer.halo) == halo[:, np.newaxis]).all():
            raise UserError(f"transport {name!r} delivers wrong rows")


def _bytes(comm: Comm, traffic: Traffic, kind: str) -> tuple[int, int, int, int]:
    """Bytes of the rank that moves most; of all: bytes sent, bytes read in memory, messages."""
    mine = traffic[kind]
    sums = np.array([mine.sent, mine.shared, mine.messages], np.int64)
    reduce_in_place(comm, sums)
    sent, shared, messages = sums.tolist()
    return int(maximum(comm, max(mine.sent, mine.received + mine.shared))), sent, shared, messages


def main() -> None:
    def add(parser):
        parser.add_argument("graph")
        parser.add_argument("--partition", help="partition into as many parts as ranks")
        parser.add_argument("--transports", type=names, help="only these; default: all")
        parser.add_argument("--widths", type=numbers, default=[8, 16, 64])

    words = words_of(__doc__, add)

    def measure(comm: Comm, on_record: OnRecord) -> None:
        with agreed(comm):
            config = config_of(words)
        bench_exchange(
            comm, words.graph, words.partition, config, transports=words.transports,
            widths=words.widths, rounds=words.rounds, on_record=on_record,
        )  # fmt: skip

    measured(words, measure)


if __name__ == "__main__":
    main()
