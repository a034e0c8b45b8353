"""Seconds per epoch of configurations in turns, with their phases.

    python benchmarks/epoch.py G.graph --beside model.cache_input=false
    mpirun -n 2 python benchmarks/epoch.py G.graph --partition hp-2 --json --out epochs.jsonl

Seconds are those of the slowest rank, phases those of the rank that spends most in them. The share
is a lower bound of the time divided by the measured time. The bound assumes that each product moves
its matrices once, at the bandwidth of all ranks together.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from measuring import OnRecord, axpy, cache_share, config_of, describe, measured, words_of
from movement import csr_bytes

from gcnmpi.bench.rounds import alternate, clocked, ratios, spread
from gcnmpi.layout.runtime import Demand
from gcnmpi.mpi.comm import Comm, agreed
from gcnmpi.options.config import Config
from gcnmpi.planner.costmodel import ARITHMETIC
from gcnmpi.run.problem import Problem, open_problem
from gcnmpi.run.step import Step
from gcnmpi.schemes.forecast import Sparse, make_facts
from gcnmpi.schemes.p2p import P2PForecast
from partition.errors import UserError

BANDWIDTH = "axpy"


def bench_epoch(
    comm: Comm,
    graph: str | os.PathLike,
    partition: str | None,
    configs: Mapping[str, Config],
    *,
    rounds: int,
    on_record: OnRecord,
) -> None:
    """Train one epoch of each configuration in every round; ratios are taken over the first.

    All use as many threads. ``on_record(event, **values)`` is called on every rank: "machine" once,
    "epoch" for each configuration.
    """
    runs = {name: Run(open_problem(comm, graph, partition, config)) for name, config in
            configs.items()}  # fmt: skip
    reference, *others = runs
    threads = runs[reference].problem.runtime.kernel.threads
    with agreed(comm):
        if any(runs[name].problem.runtime.kernel.threads != threads for name in others):
            raise UserError("threads cannot differ in one process", "measure them one by one")
    cache_bytes = cache_share(threads)
    told = list(dict.fromkeys(line for run in runs.values() for line in run.problem.told))
    on_record("machine", **describe(comm, threads), cache_bytes=cache_bytes, warnings=told)
    touch, moved = axpy(cache_bytes)
    measures = {BANDWIDTH: clocked(comm, touch)}
    measures |= {name: clocked(comm, run, least=0) for name, run in runs.items()}
    alternate(measures, rounds=1, warm_up=0)  # a round of warm-up
    before = {name: run.phases() for name, run in runs.items()}
    times = alternate(measures, rounds, warm_up=0)
    bandwidth = comm.size * moved / spread(times.pop(BANDWIDTH)).median
    for name, ratio in ratios(times, reference).items():
        run, seconds = runs[name], spread(times[name])
        config, manifest = run.problem.config, run.problem.source.stored.manifest
        kernel = run.problem.runtime.kernel
        work = least_work(run.problem, run.step)
        on_record(
            "epoch", graph=manifest.name, n=manifest.n, nnz=manifest.nnz, partition=partition,
            name=name, ranks=comm.size, threads=kernel.threads, rounds=rounds,
            scheme=run.problem.scheme.name, kernel=kernel.name, dtype=config.dtype,
            widths=list(run.step.model.widths), orders=list(run.step.model.program.orders),
            seconds=asdict(seconds), ratio=asdict(ratio), reference=reference,
            phases=_most(comm, run.phases(), before[name], rounds),
            hidden=comm.allgather(run.problem.runtime.traffic.hidden("train")),
            gflops=work.flops / seconds.median / 1e9, bytes=work.bytes, bandwidth=bandwidth,
            share=work.bytes / bandwidth / seconds.median,
        )  # fmt: skip


@dataclass(frozen=True)
class Work:
    """The operations and bytes that the products of an epoch need at least, all ranks together."""

    flops: int
    bytes: int


def least_work(problem: Problem, step: Step) -> Work:
    """Operations of an epoch's products, and bytes if each read and wrote its matrices once.

    Of one process: ranks that multiply the same rows twice do more, which counts as lost.
    """
    source = problem.source
    facts = make_facts(source, problem.config, Demand(problem.program.depth))
    forecast = P2PForecast(1, dataclasses.replace(facts, metrics=None, mixed=False))
    flops = moved = 0
    for name, k, *sizes in step.model.products(backward=True):
        for part in forecast.work(0, name, k, *sizes) if name in ARITHMETIC else ():
            if isinstance(part, Sparse):
                flops += 2 * part.entries * part.width
                moved += csr_bytes(part.rows, part.entries, facts.itemsize)
                numbers = (part.rows + part.inner) * part.width
            else:
                flops += 2 * part.rows * part.inner * part.width
                numbers = part.inner * (part.rows + part.width) + part.rows * part.width
            moved += numbers * facts.itemsize
    return Work(flops, moved)


class Run:
    """A problem and its step; called, it trains the next epoch."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.step = problem, Step(problem)
        self._numbers = itertools.count(1)

    def __call__(self) -> None:
        self.step(next(self._numbers))

    def phases(self) -> dict[str, float]:
        """Seconds of this rank in each phase so far."""
        return dict(self.problem.runtime.phases.seconds)


def _most(
    comm: Comm, after: Mapping[str, float], before: Mapping[str, float], rounds: int
) -> dict[str, float]:
    """Seconds an epoch in each phase, of the rank that spends most in it."""
    mine = {name: (after[name] - before.get(name, 0.0)) / rounds for name in after}
    every = comm.allgather({name: seconds for name, seconds in mine.items() if seconds > 0})
    names = sorted({name for phases in every for name in phases})
    return {name: max(phases.get(name, 0.0) for phases in every) for name in names}


def main() -> None:
    def add(parser):
        parser.add_argument("graph")
        parser.add_argument("--partition", help="partition into as many parts as ranks")
        parser.add_argument("--beside", action="append", default=[], metavar="KEY=VALUE",
                            help="also measure the configuration with this change")  # fmt: skip

    words = words_of(__doc__, add)

    def measure(comm: Comm, on_record: OnRecord) -> None:
        with agreed(comm):
            configs = {"as given": config_of(words)}
            configs |= {change: config_of(words, change) for change in words.beside}
        bench_epoch(
            comm, words.graph, words.partition, configs, rounds=words.rounds, on_record=on_record
        )

    measured(words, measure)


if __name__ == "__main__":
    main()
