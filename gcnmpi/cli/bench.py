"""Commands of ``gcnmpi bench``: spmm, epoch, exchange."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gcnmpi.cli import common
from gcnmpi.options.config import Config, keys
from gcnmpi.options.kernel import AUTO, KERNELS, must_be_best
from partition.commands import (
    Assignments,
    Commands,
    option,
    options_of,
    parse_bytes,
    path_option,
)
from partition.errors import UserError
from partition.records import make_room_for

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm
    from gcnmpi.report.bench import Report
    from gcnmpi.run.claims import Claims

_rounds = option("--rounds", "Rounds, after one for warm-up.", 10, type=click.IntRange(1))
_partition = option(
    "--partition", "Partition into as many parts as there are ranks.", metavar="NAME"
)


@click.group(cls=Commands, short_help="Measure products, epochs and exchanges.")
def bench() -> None:
    """Measure sparse products, epochs and exchanges; each round measures all variants in turn.

    Times are medians with quartiles over rounds. Ratios are taken within a round, so that
    disturbances longer than a round affect both sides. Bandwidth is that of y += a·x on long
    vectors, in the same rounds.
    """


_graph = click.argument("graph", type=click.Path(path_type=Path))


def _configured(function: Callable) -> Callable:
    @functools.wraps(function)
    def command(settings: tuple[str, ...], config_file: Path | None, **values: Any) -> Any:
        return function(words=common.Words(settings, config_file), **values)

    return options_of(common.Words)(command)


def _output(function: Callable) -> Callable:
    out = path_option(
        "--out", "FILE", "Append the records to FILE, one JSON object per line.", dir_okay=False
    )
    return out(
        option("--json as_json", "Print JSON objects, one per line.", is_flag=True)(function)
    )


@bench.command(short_help="Time M·X by every kernel; compare with bounds from memory bandwidth.")
@click.argument("graph", type=click.Path(path_type=Path), required=False)
@option("--rmat made", "An R-MAT graph, such as 18x12.", metavar="SCALExDEGREE")
@option("--kernels", "Only these.  [default: all that work here]", metavar="NAME,…")
@option("--widths", default="8,16,32,64,128", metavar="D,…")
@option("--reference", "Ratios are to this kernel.  [default: the last]", metavar="NAME")
@option("--cache", "Cache of all threads, such as 32MiB.", metavar="SIZE")
@_rounds
@_configured
@_output
def spmm(
    graph: Path | None,
    made: str | None,
    kernels: str | None,
    widths: str,
    reference: str | None,
    cache: str | None,
    rounds: int,
    words: common.Words,
    out: Path | None,
    as_json: bool,
) -> common.Job:
    """Time M·X of GRAPH, or of an R-MAT graph, by every kernel for matrices X of several widths.

    A share is a lower bound of the time divided by the measured time. The bounds are the bytes of
    the product divided by the measured bandwidth. The bytes are counted in three ways: each row
    of X once (compulsory), again after the cache has replaced it (cached), or for every entry of M
    (gathered). A share above 1 means that fewer bytes were moved than counted. With the native
    kernel there is a measured bound too: the time of reading the rows of X in the order of the
    product, plus the time of the other bytes at the bandwidth.
    """
    config, numbers = words.config(), _numbers(widths)
    if not kernels:
        must_be_best(AUTO)
    names = common.listed(kernels) or [
        name for name, why in KERNELS.available().items() if why is None
    ]
    cache_bytes = None if cache is None else parse_bytes(cache, "--cache")

    def job(comm: Comm, report: Report) -> None:
        from gcnmpi.bench.spmm import bench_spmm

        bench_spmm(
            comm, graph, made, config, kernels=names, widths=numbers,
            reference=reference or names[-1], rounds=rounds, cache_bytes=cache_bytes,
            on_record=report,
        )  # fmt: skip

    return _checked(job, out, as_json, replace(config, kernel=names[0]))


@bench.command(short_help="Seconds per epoch of one or several configurations.")
@_graph
@_partition
@option(
    "--beside",
    "Also measure the configuration with this change; may be repeated.",
    metavar="KEY=VALUE",
    cls=Assignments,
    keys=keys,
)
@_rounds
@_configured
@_output
def epoch(
    graph: Path,
    partition: str | None,
    beside: tuple[str, ...],
    rounds: int,
    words: common.Words,
    out: Path | None,
    as_json: bool,
) -> common.Job:
    """Train one epoch of each configuration on GRAPH in every round: seconds and phases.

    Seconds are those of the slowest rank, phases those of the rank that spends most in them. The
    share is a lower bound of the time divided by the measured time. The bound assumes that each
    product moves its matrices once, at the bandwidth of all ranks together.
    """
    configs = {"as given": words.config()}
    configs |= {change: words.config(change) for change in beside}

    def job(comm: Comm, report: Report) -> None:
        from gcnmpi.bench.epoch import bench_epoch

        bench_epoch(comm, graph, partition, configs, rounds=rounds, on_record=report)

    return _checked(job, out, as_json, configs["as given"])


@bench.command(short_help="The exchange of rows alone, by every transport.")
@_graph
@_partition
@option("--transports", "Only these.  [default: all]", metavar="NAME,…")
@option("--widths", default="8,16,64", metavar="D,…")
@_rounds
@_configured
@_output
def exchange(
    graph: Path,
    partition: str | None,
    transports: str | None,
    widths: str,
    rounds: int,
    words: common.Words,
    out: Path | None,
    as_json: bool,
) -> common.Job:
    """Time expand and fold of a partition of GRAPH, without any arithmetic.

    Seconds are those of the slowest rank, GB/s those of the rank that sends or receives most.
    """
    config, numbers = words.config(), _numbers(widths)

    def job(comm: Comm, report: Report) -> None:
        from gcnmpi.bench.exchange import bench_exchange

        bench_exchange(
            comm, graph, partition, config, names=common.listed(transports) or None,
            widths=numbers, rounds=rounds, on_record=report,
        )  # fmt: skip

    return _checked(job, out, as_json, config)


def _checked(
    job: Callable[[Comm, Report], None], out: Path | None, as_json: bool, config: Config
) -> common.Job:
    """A job that hands its records to a report, with the time-out of ranks.

    It starts only if they can be written, and not where the kernel is one that was fallen back to.
    """
    must_be_best(config.kernel)

    def checked(comm: Comm, claims: Claims) -> int:
        from gcnmpi.mpi.comm import from_root
        from gcnmpi.report.bench import Report

        if out is not None:
            from_root(comm, lambda: make_room_for(out))
        with Report(comm, out, as_json) as report:
            job(comm, report)
        return 0

    return common.job(config, checked)


def _numbers(text: str) -> list[int]:
    words = common.listed(text)
    if not words or not all(word.isdecimal() and int(word) for word in words):
        raise UserError(f"--widths {text!r} is not a list of widths", "such as 16,64")
    return [int(word) for word in words]
