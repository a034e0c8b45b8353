"""Checks of a command before it loads the graph, and whether its run has already finished.

The files that a run writes at its end, and everything needed for them, are checked first, so that
no training is lost because of a wrong path.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from gcnmpi.layout.runtime import resolved_direction
from gcnmpi.mpi.comm import Comm, agreed, from_root, host_name
from gcnmpi.nn.describe import graph_of
from gcnmpi.nn.tasks.interface import task_of
from gcnmpi.options.requests import TrainRequest, features_path
from gcnmpi.options.train import decided_by_evaluations
from gcnmpi.run.checkpoint import candidates, differences
from gcnmpi.run.checkpoint_files import DamagedError, read_manifest
from gcnmpi.run.problem import check_trainable
from gcnmpi.run.record import RunRecord, ids_of, read_run
from gcnmpi.run.weights_file import read_facts
from partition.errors import UserError, system_errors
from partition.graph.store import StoredGraph
from partition.records import make_room_for, temporary_name

PATIENCE = 10.0  # seconds until a file is seen on other hosts


def make_room(comm: Comm, path: Path, option: str) -> None:
    """Make sure that a file can be written that all ranks write to together.

    On all ranks a UserError if rank 0 cannot, or another one does not see what rank 0 writes there.
    """

    def begin() -> Path:
        make_room_for(path)
        probe = temporary_name(path)
        with system_errors(f"cannot write {path}"):
            probe.touch(exist_ok=False)
        return probe

    probe = from_root(comm, begin)
    try:
        with agreed(comm):
            if not _appears(probe):
                raise UserError(
                    f"rank {comm.rank} on {host_name()} does not see what rank 0 writes to "
                    f"{path.parent}",
                    f"{option} names a file in a folder that all hosts share",
                )
    finally:
        if comm.rank == 0:
            probe.unlink(missing_ok=True)


def check_training(comm: Comm, asked: TrainRequest, stored: StoredGraph) -> RunRecord | None:
    """Look at a run before it loads the graph; its record, if it is complete already.

    Its folder and files are the caller's by now: see :class:`gcnmpi.run.claims.Claims`. On all
    ranks a UserError if the graph cannot be trained on, there is no checkpoint to resume from, or
    nothing will be validated that ``--save-best`` could choose from.
    """
    if asked.config.model.train_features:
        for option, path in (
            ("--save-weights", asked.save_weights),
            ("--save-best", asked.save_best),
        ):
            if path is not None:
                make_room(comm, features_path(path), option)

    def look() -> RunRecord | None:
        check_trainable(stored, asked.config)
        _check_target(asked, stored)
        _check_validation(asked, stored)
        record = _complete(asked, stored, comm.size)
        if record is None and asked.resume not in ("auto", "never"):
            candidates(asked.out or Path(), asked.resume)
        if record is None and asked.save_best is not None:
            _check_validated(asked, stored)
        return record

    return from_root(comm, look)


def _check_target(asked: TrainRequest, stored: StoredGraph) -> None:
    """Refuse to learn about vertices of one type where none of it has a label to train on."""
    target, types = getattr(asked.config.model, "target", ""), stored.graph.vertex_types
    if not target or types is None:
        return
    examples = task_of(asked.config.task).examples(stored, asked.config.task)
    labelled = [name for name in types.names if examples.has("train", types.range(name))]
    if target in types.names and target not in labelled:
        raise UserError(
            f"model.target = {target}: {asked.graph} has no {target} with a label to train on",
            f"those that do: {', '.join(labelled)}" if labelled else None,
        )


def _check_validation(asked: TrainRequest, stored: StoredGraph) -> None:
    """Refuse what decides by the validation metric where there is nothing to validate."""
    examples = task_of(asked.config.task).examples(stored, asked.config.task)
    for what in decided_by_evaluations(asked.config.train):
        if not examples.has("val"):
            error = examples.nothing_to_validate()
            raise UserError(f"{what}: {error.message}", error.hint)


def _check_validated(asked: TrainRequest, stored: StoredGraph) -> None:
    examples = task_of(asked.config.task).examples(stored, asked.config.task)
    if asked.config.train.eval_every and examples.has("val"):
        return
    if asked.resume != "never" and (asked.out is not None or asked.resume != "auto"):
        for path in candidates(asked.out or Path(), asked.resume):
            try:
                if read_manifest(path)["best"]["epoch"]:
                    return
            except DamagedError:
                continue
    missing = "train.eval_every is 0"
    if asked.config.train.eval_every:
        missing = examples.nothing_to_validate().message
    raise UserError(
        f"--save-best: nothing will be validated: {missing}",
        "leave --save-best out, or give the graph a validation mask and set train.eval_every",
    )


def _complete(asked: TrainRequest, stored: StoredGraph, size: int) -> RunRecord | None:
    """The record of the same run, if it has finished and all that is asked for is there."""
    if asked.out is None or asked.resume != "auto":
        return None
    try:
        record = read_run(asked.out)
    except UserError:
        return None
    start, end = record.start, record.end
    config = replace(asked.config, graph=graph_of(asked.config))  # as the record has it
    if end is None or not record.epochs:
        return None
    before = start.config
    here: dict[str, object] = {
        **ids_of(stored),
        "partition": asked.partition,
        "ranks": size,
        "direction": resolved_direction(stored, config),
    }
    same = (
        all(getattr(start, name) == value for name, value in here.items())
        and not list(differences(before, config))
        and before.get("kernel") == config.kernel
        and before.get("scheme", {}).get("name") == config.scheme.name
        and (len(record.epochs) == config.train.epochs or end.stopped_early)
    )
    files = ((asked.save_weights, len(record.epochs)), (asked.save_best, end.best_epoch))
    if same and all(path is None or _is_of(path, record, epoch) for path, epoch in files):
        return record
    return None


def _is_of(path: Path, record: RunRecord, epoch: int | None) -> bool:
    """Whether a file holds the weights after an epoch of a run."""
    try:
        facts = read_facts(path) or {}
    except UserError:
        return False
    if record.start.config["model"]["train_features"] and not features_path(path).exists():
        return False
    losses = {line.epoch: line.loss for line in record.epochs}
    return epoch is not None and (facts.get("epoch"), facts.get("loss")) == (
        epoch,
        losses.get(epoch),
    )


def _appears(path: Path) -> bool:
    """Whether a file that was made on one host is seen on this one."""
    until = time.monotonic() + PATIENCE
    while not path.exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
