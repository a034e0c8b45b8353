"""Several runs of one launch, one after the other: seeds, splits, pairs, points of a grid of keys.

Every run has a folder of its own, with its record and checkpoints. A run that is complete is not
run again, and one that was interrupted goes on: so do all of them together. A run that is there
under another name, of another command into the same folder, keeps it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gcnmpi.mpi.comm import Comm, agreed, from_root, known_to, maximum
from gcnmpi.nn.describe import graph_of
from gcnmpi.options.config import Config, table_of
from gcnmpi.options.requests import TrainRequest
from gcnmpi.options.settings import split_words
from gcnmpi.run.checkpoint import FREE, differences, flat, plain
from gcnmpi.run.claims import Claims, Guard
from gcnmpi.run.problem import Problem
from gcnmpi.run.record import RECORD, RunRecord, read_run
from gcnmpi.run.trainer import OnEpoch, train_run
from partition.errors import UserError
from partition.graph.manifest import read_manifest
from partition.records import atomic_file, read_records

_SUMMARY = "summary.json"
SEED = "{seed}"  # in a name of pairs


@dataclass(frozen=True)
class Planned:
    """A run that is to be."""

    name: str  # of its folder, below that of all runs
    point: str  # which values of the grid it has, such as "train.lr=0.01"; empty without a grid
    seed: int
    split: int
    config: Config
    pairs: str = ""  # of link prediction, where several sets are asked for


@dataclass(frozen=True)
class Outcome:
    """A run's metrics in the epoch of its best validation metric, else in the last.

    Attributes
    ----------
    val, test : float or None
        Of the metric.
    """

    name: str
    point: str
    seed: int
    split: int
    metric: str
    epoch: int
    val: float | None
    test: float | None
    pairs: str = ""


def plan(
    read: Callable[..., Config],
    points: Iterable[str],
    seeds: Sequence[int],
    splits: Sequence[int] | None,
    pairs: Sequence[str] = (),
) -> list[Planned]:
    """All runs, in the order in which they are run, each once however often it is spelled.

    ``read(point, *settings)`` gives the configuration at a point of the grid, with more settings
    over it. Without ``splits`` or ``pairs``, what is configured is taken. ``SEED`` in a
    name of pairs is the seed of the run.
    """
    runs: dict[str, Planned] = {}
    some: Sequence[int | None] = [None] if splits is None else splits
    for point, split, named, seed in itertools.product(points, some, pairs or [""], seeds):
        of_pairs = named.replace(SEED, str(seed))
        settings = {"train.seed": seed, "train.split": split, "task.pairs": of_pairs or None}
        config = read(
            point, *(f"{k}={value}" for k, value in settings.items() if value is not None)
        )
        name = f"seed-{seed}" if split is None else f"split-{split}-seed-{seed}"
        name = f"{of_pairs}-{name}" if of_pairs else name
        parts = [part.replace("/", "_") for part in (point, name) if part]
        folder = "/".join(parts)
        planned = Planned(folder, point, seed, config.train.split, config, of_pairs)
        runs.setdefault(repr(config), planned)
    return list(runs.values())


def run_all(
    comm: Comm,
    graph: Path,
    partition: str | None,
    runs: Sequence[Planned],
    out: Path,
    guard: Guard,
    begin: Callable[[int, Planned, Problem], AbstractContextManager[OnEpoch]],
) -> list[Outcome] | None:
    """Run what is not complete; the results of all runs, or None if it was asked to stop.

    The results are written to ``out/summary.json``, too. ``begin(number, planned, problem)`` is a
    context around the epochs of a run, the number from 0, as
    :func:`gcnmpi.run.trainer.train_run` takes it.

    Raises
    ------
    UserError
        On all ranks, with the name of the run, if one fails.
    """
    names = from_root(comm, lambda: _names(graph, partition, runs, out))
    outcomes: list[Outcome] = []
    for number, (run, name) in enumerate(zip(runs, names, strict=True)):
        if outcomes and maximum(comm, bool(guard.stop())):
            return None
        planned = replace(run, name=name)
        asked = TrainRequest(graph=graph, partition=partition, config=run.config, out=out / name)
        try:
            record = _record_of(comm, asked, guard, partial(begin, number, planned))
        except UserError as error:
            if not known_to(comm, error):
                raise
            with agreed(comm):
                raise UserError(f"{out / name}: {error.message}", error.hint) from error
        if record is None:
            return None
        outcomes.append(_outcome(planned, record))
    from_root(comm, lambda: _write(out, outcomes))
    return outcomes


def _record_of(
    comm: Comm,
    asked: TrainRequest,
    guard: Guard,
    begin: Callable[[Problem], AbstractContextManager[OnEpoch]],
) -> RunRecord | None:
    """The record of a run that is complete, by now; None if it was asked to stop."""
    with Claims(comm, guard.claims.purpose) as claims:
        own = replace(guard, claims=claims, stop=lambda: guard.stop() or claims.stop_asked())
        done = train_run(comm, asked, own, begin)
        if done.stopped:
            return None
        return done.before or from_root(comm, lambda: read_run(done.folder))


def _names(graph: Path, partition: str | None, runs: Sequence[Planned], out: Path) -> list[str]:
    """The folders of runs: those that they are in already, under whatever names."""
    here = {"graph_id": read_manifest(graph).id, "partition": partition}
    there: dict[str, list[tuple[str, Any]]] = {}
    for path in sorted(out.rglob(RECORD)):
        start = next(iter(read_records(path)), None)
        if isinstance(start, dict) and here.items() <= start.items():
            config, name = start.get("config") or {}, str(path.parent.relative_to(out))
            there.setdefault(_same(config, name.rpartition("/")[0]), []).append((name, config))
    names = []
    for run in runs:
        config = replace(run.config, graph=graph_of(run.config))  # as records have it
        known = there.get(_same(plain(table_of(config)), run.point), [])
        same = [name for name, before in known if not list(differences(before, config))]
        names.append(run.name if run.name in same or not same else same[0])
    return names


def _same(config: Mapping[str, object], point: str) -> str:
    """A text that is the same for runs that are one: of all keys but those that may change when a
    run goes on, unless they are what the runs are to differ in.
    """
    values = {name: value for name, value in flat(config) if not name.startswith(FREE)}
    tried = [word for word in split_words(point) if word.startswith(FREE)]
    return json.dumps([values, sorted(tried)], sort_keys=True)


def _outcome(planned: Planned, record: RunRecord) -> Outcome:
    metric, epoch = record.start.metric, record.best or record.epochs[-1]
    return Outcome(
        planned.name, planned.point, planned.seed, planned.split, metric, epoch.epoch,
        epoch.of("val", metric), epoch.of("test", metric), planned.pairs,
    )  # fmt: skip


def _write(out: Path, found: Sequence[Outcome]) -> None:
    with atomic_file(out / _SUMMARY, "w") as file:
        json.dump([vars(outcome) for outcome in found], file, indent=1)
        file.write("\n")
