"""``gcnmpi repeat`` and ``sweep``: many runs in one launch."""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gcnmpi.cli.common import Job, Json, Quiet, Words, training_job
from gcnmpi.mpi.watch import EXIT_REQUEUE
from gcnmpi.options.config import Config, keys
from gcnmpi.options.requests import check_distinct
from gcnmpi.options.settings import split_words
from partition.commands import Assignments, command
from partition.errors import UserError

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm
    from gcnmpi.run.claims import Guard
    from gcnmpi.run.problem import Problem
    from gcnmpi.run.record import Epoch
    from gcnmpi.run.repeated import Planned

_MOST_RUNS = 10_000


@dataclass(frozen=True, kw_only=True)
class _Runs:
    """The options of both commands.

    Attributes
    ----------
    partition : NAME
        Partition into as many parts as there are ranks; one rank needs none. Of the two that
        --model auto made under a name, the one that the run can use is taken.
    seeds : A..B
        Seeds of the runs: a range with both ends, or a list such as 1,5,7.
    splits : all|0..4
        Splits of the masks: all, a range, or a list.  [default: train.split]
    pairs : NAME,…
        Sets of pairs for link prediction, each with every seed. With {seed} in NAME, each seed has
        a set of its own: links-{seed}.  [default: task.pairs]
    out : DIR
        Folder of the runs, each in a folder of its own. The same command goes on.
    """

    partition: str | None = None
    seeds: str = "0..9"
    splits: str | None = None
    pairs: str | None = None
    out: Path


@command
def repeat(
    graph: Path, *, runs: _Runs, words: Words, as_json: Json = False, quiet: Quiet = False
) -> Job:
    """Train with several seeds and splits; mean and deviation.

    Runs are made one after the other. Prints the test metric of each run on GRAPH in the epoch of
    its best validation metric, and their mean and standard deviation. DIR/seed-3 … hold the records
    of the runs.

    After gcnmpi stop DIR or SIGUSR1, a checkpoint is written; the same command goes on.

    Examples
    --------
    gcnmpi repeat G.graph --set task.name=links --pairs links-{seed} --out D
    """
    return _job(graph, runs, words, {"": ()}, as_json, quiet)


_Grid = Annotated[
    tuple[str, ...],
    {"names": ["--try"], "metavar": "KEY=V,V…", "cls": Assignments, "keys": keys},
    {
        "help": "Values of a key, separated by commas; a list in brackets is one value. May be "
        "repeated."
    },
]


@command
def sweep(
    graph: Path,
    *,
    grid: _Grid,
    runs: _Runs,
    words: Words,
    as_json: Json = False,
    quiet: Quiet = False,
) -> Job:
    """Train with every combination of some values of keys.

    Each is trained with each seed and split. Prints the mean and the standard deviation of each
    combination on GRAPH. Choose by the validation metric.

    Examples
    --------
    gcnmpi sweep G.graph --try train.lr=0.01,0.001 --try model.hidden=64,[64,64] --out D
    """
    points = {",".join(point): point for point in itertools.product(*map(_values, grid))}
    return _job(graph, runs, words, points, as_json, quiet)


def _job(
    graph: Path,
    asked: _Runs,
    words: Words,
    points: Mapping[str, Sequence[str]],
    as_json: bool,
    quiet: bool,
) -> Job:
    pairs, seeds = _names("--pairs", asked.pairs or ""), _numbers("--seeds", asked.seeds)
    splits = None if asked.splits in (None, "all") else _numbers("--splits", str(asked.splits))
    if any(word.partition("=")[0].strip() == "train.seed" for word in words.settings):
        raise UserError("--set train.seed: give --seeds", "such as --seeds 1")
    for word in (*words.settings, *itertools.chain(*points.values())) if pairs else ():
        if word.partition("=")[0].strip() == "task.pairs":
            raise UserError(f"--pairs and {word}", "give one of them")

    def configs(point: str, *more: str) -> Config:
        return words.config(*points[point], *more)

    first, *_ = [configs(point, *(f"task.pairs={name}" for name in pairs[:1])) for point in points]
    count = len(points) * len(seeds) * len(splits or [0]) * max(1, len(pairs))
    if count > _MOST_RUNS:
        raise UserError(f"{count} runs are more than {_MOST_RUNS}")
    check_distinct({"GRAPH": graph, "--config": words.config_file, "--out": asked.out})

    def call(comm: Comm, guard: Guard) -> int:
        from gcnmpi.mpi.comm import from_root
        from gcnmpi.report.progress import Progress, print_warnings
        from gcnmpi.report.table import print_repeated
        from gcnmpi.run.repeated import plan, run_all
        from partition.graph.manifest import read_manifest

        guard.claims.folder(asked.out)
        guard.claims.graph(graph, asked.partition)
        of_splits = splits
        if asked.splits == "all":
            of_splits = list(range(from_root(comm, lambda: read_manifest(graph).splits)))
        runs = plan(configs, points, seeds, of_splits, pairs)
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

        found = run_all(comm, graph, asked.partition, runs, asked.out, guard, begin)
        if comm.rank == 0 and found is None:
            print("stopped as asked; the same command goes on", file=sys.stderr)
        elif comm.rank == 0 and found is not None:
            print_repeated(found, as_json)
            print_warnings(() if quiet else machine)
        return EXIT_REQUEUE if found is None else 0

    return training_job(first, call)


def _numbers(option: str, text: str) -> list[int]:
    """Numbers from "0..9" or "1,5,7", each once.

    >>> _numbers("--seeds", "0..3,7")
    [0, 1, 2, 3, 7]
    """
    found: list[int] = []
    for word in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:\.\.(\d{1,18}))?\s*", word)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            such_as = "such as 0..9 or 1,5,7"
            raise UserError(f"{option} {text}: {word.strip()!r} is no number or range", such_as)
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= _MOST_RUNS:
            raise UserError(f"{option} {text}: more than {_MOST_RUNS} numbers")
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
