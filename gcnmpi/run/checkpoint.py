"""Checkpoints: everything that a run needs to continue, in a folder that is complete or absent.

::

    RUN/checkpoints/epoch-000123/       (epoch-000123+000045: and 45 batches of the next)
        manifest.json    of which run it is, and the checksums of the other files
        state.npz        weights, biases, moments of the optimizer, the best weights so far
        epochs.jsonl     what was recorded of each epoch, in its first bytes
        [weights.features.npy …]    trained features, and what belongs to them, (n, width)

Arrays are in canonical form, whole and in the order of the graph, so that a run may go on with
other ranks, another partition or another scheme.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.layout.place import Place
from gcnmpi.layout.runtime import Source
from gcnmpi.mpi.comm import Comm, agreed, from_root
from gcnmpi.mpi.watch import on_ending
from gcnmpi.nn.model import Model
from gcnmpi.options.config import Config, table_of
from gcnmpi.options.frames import ends
from gcnmpi.options.train import decided_by_evaluations
from gcnmpi.options.user_network import same_network
from gcnmpi.run import checkpoint_files as files
from gcnmpi.run.checkpoint_files import DamagedError
from gcnmpi.run.opening import Opened
from gcnmpi.run.problem import Problem
from gcnmpi.run.record import Epoch, ids_of
from gcnmpi.run.weights import write_features
from partition.errors import UserError, report_as
from partition.records import map_npy

T = TypeVar("T")
# Keys that may differ between a checkpoint and the run that goes on from it: they change no more
# than the rounding of the curve, for how long it is computed, or how it is watched.
FREE = (
    "kernel", "threads", "scheme.", "loading.", "comm.", "gpu.", "model.order", "model.cache_input",
    "graph.direction",  # compared as it was resolved
    "train.epochs", "train.eval_every", "train.checkpoint_", "train.draw_ahead",
    "train.cache_mb", "train.memory", "train.groups",
)  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint, but for features, which are read by rows."""

    path: Path
    facts: Mapping[str, Any]  # the manifest: ``epoch``, ``steps``, ``best`` and what the run was
    epochs: list[Epoch]
    state: Mapping[str, np.ndarray]  # "weights/convs.0.lin.weight" …: array and parameter


def save(
    problem: Problem,
    out: Path,
    model: Model,
    arrays: Mapping[str, Array],
    facts: Mapping[str, Any],
    epochs: Sequence[Epoch],
) -> Path:
    """Write the checkpoint after the last of ``epochs``; remove all but the one before.

    Parameters
    ----------
    out : path
        Folder of the run.
    arrays : mapping of str to array
        "weights" and whatever else is to be kept, in the layout of ``model.parameters.flat``.
    facts : mapping
        ``steps`` of the optimizer, and ``best``; of an epoch that is not complete, the ``batch``
        that comes next, and the ``loss`` of those before it.

    Raises
    ------
    UserError
        On all ranks, if it cannot be written; earlier checkpoints are unchanged.
    """
    path = out / files.FOLDER / files.name_of(len(epochs), facts.get("batch", 0))
    state, facts = content(problem, model, arrays, {"epoch": len(epochs), **facts})
    rows = {}
    if problem.config.model.train_features:
        rows = {
            _features_name(array): partial(write_features, problem, model, flat)
            for array, flat in arrays.items()
        }
    return write_checkpoint(problem.runtime.everyone, path, rows, state, facts, epochs)


def content(
    problem: Problem, model: Model, arrays: Mapping[str, Array], facts: Mapping[str, Any]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays in canonical form, but for trained features, and all facts; by all ranks together."""
    state = {
        f"{array}/{name}": whole
        for array, flat in arrays.items()
        for name, whole in model.whole(flat).items()
    }
    return state, {**_facts(problem, model), **facts}


def find(problem: Problem, out: Path, resume: str) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint to go on from, found intact, and warnings of those that were not.

    With ``resume`` "auto", that is the newest one in the folder ``out`` of the run, None if there
    is none at all; "never" gives None; else it is the path of a checkpoint, or of a run. On all
    ranks a UserError if that is not there or damaged, or belongs to another graph, network or way
    of training.
    """
    if resume == "never":
        return None, []
    paths = from_root(problem.runtime.everyone, lambda: candidates(out, resume))
    hint = "--resume PATH takes another checkpoint, --resume never starts over"
    return newest(paths, partial(_read, problem), hint)


def write_checkpoint(
    comm: Comm,
    path: Path,
    rows: Mapping[str, Callable[[Path], None]],
    state: Mapping[str, object],
    facts: Mapping[str, object],
    epochs: Sequence[Epoch] | None = None,
) -> Path:
    """Write a checkpoint, of a run or of a long method; of those beside it, one is kept.

    All ranks together call ``write(path)`` of ``rows``, by the names of the files; rank 0 writes
    the rest, as :func:`gcnmpi.run.checkpoint_files.finish` has it. On all ranks a UserError if it
    cannot be written; earlier checkpoints are unchanged.
    """
    temporary = files.temporary_of(path)
    try:
        with report_as(temporary, path):
            from_root(comm, lambda: files.make_folder(temporary))
            pieces = []
            for name, write in rows.items():
                write(temporary / name)
                with agreed(comm):
                    piece = files.piece_of(temporary / name, comm.rank, comm.size)
                pieces += comm.allgather(piece)
            return from_root(comm, lambda: files.finish(temporary, state, facts, pieces, epochs))
    except UserError:
        if comm.rank == 0:
            shutil.rmtree(temporary, ignore_errors=True)
        raise


def newest(
    paths: Sequence[Path], read: Callable[[Path], T], hint: str
) -> tuple[T | None, list[str]]:
    """The first checkpoint that is intact, as all ranks read it; and warnings of those before it.

    A UserError if all are damaged, with the hint; or as ``read`` does.
    """
    warnings: list[str] = []
    for path in paths:
        try:
            return read(path), warnings
        except DamagedError as error:
            if path == paths[-1]:
                error.hint = hint
                raise
            warnings.append(f"{error.message}; going on from the one before it")
    return None, warnings


def intact_facts(comm: Comm, path: Path, read: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """The manifest of a checkpoint; a DamagedError on all ranks if a checksum is another."""
    facts = from_root(comm, lambda: read(path))
    with agreed(comm):
        files.check(path, facts["files"][comm.rank :: comm.size])
    return facts


def restore(
    problem: Problem, checkpoint: Checkpoint, model: Model, arrays: Mapping[str, Array]
) -> None:
    """Fill arrays in the layout of ``model.parameters.flat`` with those of a checkpoint.

    The arrays come by the names under which they were saved.
    """
    comm, manifest = problem.runtime.everyone, problem.source.stored.manifest
    shapes = {name: array.shape for name, array in model.whole(model.parameters.flat).items()}
    for name, flat in arrays.items():
        whole: dict[str, np.ndarray] = {}
        with agreed(comm):
            for part, shape in shapes.items():
                found = checkpoint.state.get(f"{name}/{part}")
                if found is None or found.shape != shape or found.dtype.kind != "f":
                    raise UserError(f"{checkpoint.path} has no {name}/{part} of shape {shape}")
                whole[part] = found
        model.fill(flat, whole)
        if problem.config.model.train_features:
            with agreed(comm):
                shape = (manifest.n, model.widths[0])
                rows = _map_features(checkpoint.path / _features_name(name), shape)
            model.fill_features(flat, problem.scheme.load(Place(0), rows))


def _read(problem: Problem, path: Path) -> Checkpoint:
    comm = problem.runtime.everyone
    facts = intact_facts(comm, path, files.read_manifest)
    from_root(comm, lambda: _check_fits(problem, path, facts))
    epochs, state = from_root(comm, lambda: files.read_state(path, facts))
    return Checkpoint(path, facts, epochs, state)


def candidates(out: Path, resume: str) -> list[Path]:
    """Checkpoints to try, the best first.

    A UserError if one was named and is not there, or the folder cannot be read.
    """
    if resume == "auto":
        return files.stored(out / files.FOLDER)
    path = Path(resume)
    if os.path.exists(path / files.MANIFEST):
        return [path]
    found = files.stored(path / files.FOLDER)
    if not found:
        raise UserError(
            f"there is no checkpoint to go on from in {path}",
            f"give RUN/{files.FOLDER}/{files.name_of(123)}, or the folder of a run that has some",
        )
    return found


def differences(
    before: Mapping[str, object], config: Config
) -> Iterator[tuple[str, object, object]]:
    """Key, value before and value now of what may not differ between a run and its continuation.

    The configuration before is as a record or a checkpoint keeps it.
    """
    # Keys that an earlier version did not have stood for what is the default now.
    values = dict(flat(plain(table_of(Config())))) | dict(flat(before))
    # Where evaluations decide, it matters when they are made.
    decides = decided_by_evaluations(config.train)
    for name, value in flat(plain(table_of(config))):
        free = name.startswith(FREE) and not (decides and name == "train.eval_every")
        same = value == values.get(name) or same_network(value, values.get(name))
        if not free and not same:
            yield name, values.get(name), value


def _features_name(array: str) -> str:
    return f"{array}.features.npy"


def opened_facts(opened: Opened) -> dict[str, object]:
    """The facts of a checkpoint that tell on what was computed."""
    stored, partition = opened.source.stored, opened.source.partition
    return {
        "graph": stored.manifest.name,
        **ids_of(stored),
        "partition_id": None if partition is None else partition.id,
        "ranks": opened.runtime.everyone.size,
        "scheme": opened.config.scheme.name,
        "direction": opened.source.direction,
    }


def _facts(problem: Problem, model: Model) -> dict[str, object]:
    return {
        "format": files.FORMAT,
        "version": files.VERSION,
        **opened_facts(problem),
        "widths": list(model.widths),
        "config": plain(table_of(problem.config)),
    }


def _check_fits(problem: Problem, path: Path, facts: Mapping[str, Any]) -> None:
    """Compare a checkpoint with the run that would go on from it."""
    manifest, config = problem.source.stored.manifest, problem.config
    check_fits(problem.source, path, facts, differences(facts["config"], config), AFRESH)
    hint = AFRESH
    if [facts["widths"][0], facts["widths"][-1]] != [*ends(config.task, config.model, manifest)]:
        raise UserError(f"the checkpoint {path} is of other features or labels", hint)
    if facts["epoch"] > config.train.epochs:
        raise UserError(
            f"the checkpoint {path} is beyond train.epochs {config.train.epochs}",
            f"set train.epochs to {facts['epoch']} or more, or {hint}",
        )


AFRESH = "start over with --resume never, or use another --out"


def check_fits(
    source: Source,
    path: Path,
    facts: Mapping[str, object],
    different: Iterable[tuple[str, object, object]],
    hint: str,
) -> None:
    """Raise a UserError if a checkpoint is of other data, or another configuration.

    ``different`` has key, value before and value now of what may not differ.
    """
    manifest = source.stored.manifest
    if facts["graph_id"] != manifest.id:
        raise UserError(f"the checkpoint {path} is of another graph than {manifest.name}", hint)
    # Neither is known of folders and checkpoints of earlier versions.
    if facts["data_id"] and manifest.data_id and facts["data_id"] != manifest.data_id:
        raise UserError(
            f"the checkpoint {path} was made with other features, labels or masks than "
            f"{source.stored.path} has now",
            f"import that data again, or {hint}",
        )
    for kind, remedy in (("pairs", "make those again"), ("samples", "put those into it again")):
        if facts.get(f"{kind}_id") != ids_of(source.stored)[f"{kind}_id"]:
            raise UserError(
                f"the checkpoint {path} was made with other {kind} than {source.stored.path} has "
                "now",
                f"{remedy}, or {hint}",
            )
    changed = list(different)
    if facts["direction"] != source.direction:
        changed.append(("direction of the matrix", facts["direction"], source.direction))
    for name, before, now in changed:
        raise UserError(
            f"the checkpoint {path} was made with {name} {before}, this run has {now}",
            f"set it back, or {hint}",
        )


def _map_features(path: Path, shape: tuple[int, int]) -> np.ndarray:
    rows = map_npy(path)
    if rows.shape != shape or rows.dtype.kind != "f":
        raise UserError(f"{path} holds {rows.dtype} {rows.shape}, not {shape}")
    return rows


def plain(config: dict[str, object]) -> dict[str, object]:
    """A configuration as JSON gives it back: lists for tuples."""
    return json.loads(json.dumps(config))


def flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Full names of keys, and their values."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


SLOW = 0.1  # seconds of an epoch from which on a launcher may not leave the time to end it


@dataclass(frozen=True)
class _State:
    """The content of a checkpoint: arrays in canonical form, what the manifest says, the epochs."""

    arrays: Mapping[str, np.ndarray]
    facts: Mapping[str, Any]
    epochs: Sequence[Epoch]


class LastState:
    """Writes a checkpoint of the last epoch from another thread, at SIGTERM and SIGINT.

    On rank 0, which has the whole state. ``folder`` is that of the run; None: nothing is kept.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._state: _State | None = None
        self._writing = threading.Lock()

    def listening(self) -> AbstractContextManager[None]:
        """The context in which signals are heard."""
        return nullcontext() if self._folder is None else on_ending(self._write)

    def keep(
        self, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any], epochs: Sequence[Epoch]
    ) -> None:
        """Copy the state after the last of ``epochs``."""
        if self._folder is not None:
            copies = {name: array.copy() for name, array in arrays.items()}
            self._state = _State(copies, facts, list(epochs))

    @contextmanager
    def written(self) -> Iterator[None]:
        """A block in which the run writes a checkpoint itself, of all that was kept."""
        with self._writing:
            yield
            self._state = None

    def _write(self) -> None:
        with self._writing:
            state, self._state = self._state, None
            if state is None or self._folder is None:
                return
            path = self._folder / files.FOLDER / files.name_of(len(state.epochs))
            temporary = files.temporary_of(path)
            with suppress(UserError):  # there is nobody left to tell
                try:
                    files.make_folder(temporary)
                    files.finish(temporary, state.arrays, state.facts, epochs=state.epochs)
                    line = f"kept: {path}; the same command goes on from there\n"
                    os.write(2, line.encode())  # print may be what was interrupted
                except UserError:
                    shutil.rmtree(temporary, ignore_errors=True)
                    raise
