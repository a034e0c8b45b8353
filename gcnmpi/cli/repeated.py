"""``gcnmpi repeat`` and ``sweep``: many runs in one launch."""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from gcnmpi.cli import common
from gcnmpi.mpi.watch import EXIT_REQUEUE
from gcnmpi.options.config import Config
from gcnmpi.options.outputs import check_distinct
from gcnmpi.options.settings import split_words
from partition.commands import Assignments, option, path_option
from partition.errors import UserError

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm
    from gcnmpi.run.problem import Problem
    from gcnmpi.run.record import Epoch
    from gcnmpi.run.repeated import Planned
    from gcnmpi.run.training import Guard

MOST_RUNS = 10_000


class _Runs(TypedDict):
    """The options of both commands."""

    seeds: str
    splits: str | None
    pairs: str | None
    out: Path
    as_json: bool
    quiet: bool


def _of_runs(function: Callable) -> Callable:
    """Add the options of both commands."""
    for add in (
        common.quiet_option,
        common.json_option,
        path_option(
            "--out",
            "DIR",
            "Folder of the runs, each in a folder of its own. The same command goes on.",
            required=True,
        ),
        option(
            "--splits",
            "Splits of the masks: all, a range, or a list.  [default: train.split]",
            metavar="all|0..4",
        ),
        option(
            "--pairs",
            "Sets of pairs for link prediction, each with every seed. With {seed} in NAME, "
            "each seed has a set of its own: links-{seed}.  [default: task.pairs]",
            metavar="NAME,…",
        ),
        option(
            "--seeds",
            "Seeds of the runs: a range with both ends, or a list such as 1,5,7.",
            "0..9",
            metavar="A..B",
        ),
    ):
        function = add(function)
    return common.on_graph(function)


@click.command(short_help="Train with several seeds and splits: mean and standard deviation.")
@_of_runs
def repeat(given: common.Given, **options: Unpack[_Runs]) -> common.Job:
    """Train on GRAPH with each seed and each split, one run after the other.

    Prints the test metric of each run in the epoch of its best validation metric, and their mean
    and standard deviation. DIR/seed-3 … hold the records of the runs.

    \b
      gcnmpi repeat G.graph --set task.name=links --pairs links-{seed} --out D

    After gcnmpi stop DIR or SIGUSR1, a checkpoint is written; the same command goes on.
    """
    points = {"": partial(_config, given, ())}
    return _job("gcnmpi repeat", given, points, options)


@click.command(short_help="Train with every combination of some values of keys.")
@_of_runs
@option(
    "--try grid",
    "Values of a key, separated by commas; a list in brackets is one value. May be repeated.",
    metavar="KEY=V,V…",
    cls=Assignments,
    keys=common.config_keys,
    required=True,
)
def sweep(given: common.Given, grid: tuple[str, ...], **options: Unpack[_Runs]) -> common.Job:
    """Train on GRAPH with every combination of the values of --try, and with each seed and split.

    \b
      gcnmpi sweep G.graph --try train.lr=0.01,0.001 --try model.hidden=64,[64,64] --out D

    Prints the mean and the standard deviation of each combination. Choose by the validation metric.
    """
    points = {}
    for words in itertools.product(*map(_values, grid)):
        points[",".join(words)] = partial(_config, given, words)
    return _job("gcnmpi sweep", given, points, options)


def _config(given: common.Given, point: Sequence[str], more: Sequence[str]) -> Config:
    if any(word.partition("=")[0].strip() == "train.seed" for word in given.settings):
        raise UserError("--set train.seed: give --seeds", "such as --seeds 1")
    if any(word.startswith("task.pairs=") for word in more):
        for word in (*given.settings, *point):
            if word.partition("=")[0].strip() == "task.pairs":
                raise UserError(f"--pairs and {word}", "give one of them")
    return given.config(*point, *more)


def _job(
    purpose: str,
    given: common.Given,
    points: Mapping[str, Callable[[Sequence[str]], Config]],
    options: _Runs,
) -> common.Job:
    out, splits, quiet = options["out"], options["splits"], options["quiet"]
    pairs = _names("--pairs", options["pairs"] or "")
    numbers = _numbers("--seeds", options["seeds"])
    chosen = None if splits in (None, "all") else _numbers("--splits", str(splits))
    named = [f"task.pairs={pairs[0]}"] if pairs else []
    configs = [make(named) for make in points.values()]
    count = len(points) * len(numbers) * len(chosen or [0]) * max(1, len(pairs))
    if count > MOST_RUNS:
        raise UserError(f"{count} runs are more than {MOST_RUNS}")
    check_distinct({"GRAPH": given.graph, "--config": given.file, "--out": out})
    check = common.same_words(configs[0])

    def job(comm: Comm, guard: Guard) -> int:
        from gcnmpi.mpi.comm import from_root
        from gcnmpi.report.progress import Progress, print_warnings
        from gcnmpi.report.table import print_repeated
        from gcnmpi.run.repeated import plan, run_all
        from partition.graph.manifest import read_manifest

        of_splits = chosen
        if splits == "all":
            of_splits = list(range(from_root(comm, lambda: read_manifest(given.graph).splits)))
        runs = plan(points, numbers, of_splits, pairs)
        machine = dict[str, None]()

        @contextlib.contextmanager
        def begin(
            number: int, planned: Planned, problem: Problem
        ) -> Iterator[Callable[[Epoch], None]]:
            hidden = quiet or comm.rank != 0
            if not hidden:
                text = f"run {number + 1} of {len(runs)}: {planned.name}"
                print(text, file=sys.stderr, flush=True)
            elif comm.rank == 0 and not machine:
                print_warnings(problem.warnings)
            machine.update(dict.fromkeys(problem.machine))
            yield Progress(problem, hidden, guard.moved).epoch

        found = run_all(comm, given.graph, given.partition, runs, out, guard, begin)
        if found is None:
            if comm.rank == 0:
                print("stopped as asked; the same command goes on", file=sys.stderr)
            return EXIT_REQUEUE
        if comm.rank == 0:
            print_repeated(found, options["as_json"])
            print_warnings(() if quiet else machine)
        return 0

    def whole(comm: Comm) -> int:
        from gcnmpi.run.training import guarded

        with guarded(comm, configs[0], purpose) as guard:
            check(comm)
            guard.claims.folder(out)
            guard.claims.graph(given.graph, given.partition)
            return job(comm, guard)

    return common.Job(whole, configs[0].comm.timeout)


def _numbers(option: str, text: str) -> list[int]:
    """Numbers from "0..9" or "1,5,7", each once.

    >>> _numbers("--seeds", "0..3,7")
    [0, 1, 2, 3, 7]
    """
    found: list[int] = []
    for word in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:\.\.(\d{1,18}))?\s*", word)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise UserError(
                f"{option} {text}: {word.strip()!r} is no number or range",
                "such as 0..9 or 1,5,7",
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= MOST_RUNS:
            raise UserError(f"{option} {text}: more than {MOST_RUNS} numbers")
        found += range(first, last + 1)
    return list(dict.fromkeys(found))


def _names(option: str, text: str) -> list[str]:
    """Names from "links-0,links-1", each once."""
    found = [word.strip() for word in text.split(",")] if text else []
    if not all(found):
        raise UserError(f"{option} {text}: a name is missing", "such as links-0,links-1")
    return list(dict.fromkeys(found))


def _values(text: str) -> list[str]:
    """Settings from "KEY=V,V…"; commas in brackets do not separate.

    >>> _values("model.hidden=64,[64,64]")
    ['model.hidden=64', 'model.hidden=[64,64]']
    """
    key, equals, values = text.partition("=")
    if not equals or not values.strip():
        raise UserError(f"--try {text!r} is not of the form KEY=V,V…", "train.lr=0.01,0.001")
    if key.strip() in ("train.seed", "train.split"):
        raise UserError(f"--try {key.strip()}: give --{key.strip().removeprefix('train.')}s")
    return list(dict.fromkeys(f"{key.strip()}={word.strip()}" for word in split_words(values)))
