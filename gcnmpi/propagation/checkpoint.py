"""Checkpoints of long methods: an interrupted run goes on where it was, and gives the same bits.

::

    DIR/step-000123/
        manifest.json    of what it is, and the checksums of the other files
        state.npz        what all ranks have alike
        NAME.npy …       a row for each vertex, in the order of the graph

The rules are those of a training: a folder is complete or absent, the newest and the one before it
are kept, and one that was damaged is passed over (:mod:`gcnmpi.run.checkpoint`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi.layout.runtime import Source
from gcnmpi.mpi.comm import Comm, agreed, from_root
from gcnmpi.options.config import Config, table_of
from gcnmpi.options.settings import key
from gcnmpi.run import checkpoint_files as files
from gcnmpi.run.checkpoint import flat, intact_facts, newest, plain, write_checkpoint
from partition.errors import UserError
from partition.records import map_npy, read_npz

Facts = dict[str, Any]  # the manifest of a checkpoint
FORMAT, VERSION = "gcnmpi-propagation", 1
# Options that say for how long, and keys that say how fast: they change no bit.
_FREE_OPTIONS = ("checkpoint", "every", "iterations")
_FREE_KEYS = (
    "comm.timeout",
    "loading.max_buffer_mb",
    "scheme.machine",
    "model.",
    "task.",
    "train.",
)
# Keys that change what is computed; all others, and the partition, change its rounding.
_EXACT_KEYS = ("graph.", "dtype")
_HINT = "remove it, or name another folder: checkpoint=DIR"


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
    """Of methods that have checkpoints.

    Attributes
    ----------
    checkpoint
        folder that checkpoints are kept in; where there is one, the run goes on from it
    every
        seconds between two checkpoints
    """

    checkpoint: str = key("", example="kept")
    every: float = key(60.0, low=0, needs=("checkpoint", None))


@dataclass(frozen=True)
class State:
    """A checkpoint: the part of the method that was going on, and its steps that were complete.

    ``small`` arrays are the same on all ranks; rows are read when they are asked for.
    """

    path: Path
    stage: str
    step: int
    small: Mapping[str, np.ndarray]


class Checkpoints:
    """The checkpoints of a run, in a folder that is the caller's; none until :meth:`open`.

    ``write(rows, path)`` writes own rows into a ``.npy``, all ranks together; ``own(array)`` gives
    own rows of an array on disk.
    """

    def __init__(
        self,
        comm: Comm,
        write: Callable[[np.ndarray, Path], None],
        own: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        self._comm, self._write, self._own = comm, write, own
        self._folder: Path | None = None
        self._every, self._saved, self._number = 0.0, 0.0, 0
        self._facts: Facts = {}
        self._found: State | None = None

    def open(
        self,
        folder: Path,
        every: float,
        facts: Facts,
        force: bool,
        tell: Callable[[str], None],
    ) -> list[str]:
        """Look for the checkpoint to go on from; returns warnings for the user.

        Checkpoints are ``every`` so many seconds, and have the ``facts`` of :func:`facts_of`. With
        ``force``, the run goes on with another partition, or another way to compute, which rounds
        otherwise; else a UserError is raised on all ranks, as for a damaged checkpoint, or one of
        another computation. ``tell`` takes a line for the user.
        """
        self._folder, self._every, self._facts = folder, every, facts
        self._saved = time.monotonic()
        paths = from_root(self._comm, lambda: files.stored(folder))
        self._number = files.place_of(paths[0])[0] if paths else 0
        found, lines = newest(paths, lambda path: self._read(path, force), _HINT)
        if found is None:
            return lines
        self._found, others = found
        tell(f"going on from {self._found.path}: {self._found.stage} {self._found.step}")
        return [*lines, *others]

    def resume(self, stage: str) -> State | None:
        """The checkpoint to go on from in a part of the method, if there is one."""
        return self._found if self._found is not None and self._found.stage == stage else None

    def rows(self, state: State, name: str) -> np.ndarray:
        """Own rows of an array of a checkpoint."""
        with agreed(self._comm):
            array = map_npy(state.path / f"{name}.npy")
        return self._own(array)

    def save(
        self,
        stage: str,
        step: int,
        rows: Mapping[str, np.ndarray],
        small: Mapping[str, object] | None = None,
    ) -> None:
        """Write a checkpoint, if one is due; all ranks call it after the same steps.

        Rows, (own, …), and small arrays are all that the method goes on from. If it cannot be
        written, a UserError is raised on all ranks, and earlier checkpoints are unchanged.
        """
        if self._folder is None or not self._due():
            return
        path = self._folder / f"step-{self._number + 1:06d}"
        writes = {f"{name}.npy": partial(self._write, own) for name, own in rows.items()}
        facts = {**self._facts, "stage": stage, "step": step}
        write_checkpoint(self._comm, path, writes, small or {}, facts)
        self._number += 1
        self._saved = time.monotonic()

    def _read(self, path: Path, force: bool) -> tuple[State, list[str]]:
        """A checkpoint that is intact and fits, and warnings."""
        comm = self._comm
        found = intact_facts(comm, path, _read_facts)
        warnings = from_root(comm, lambda: _check_fits(path, found, self._facts, force))
        small = from_root(comm, lambda: read_npz(path / files.STATE))
        return State(path, found["stage"], found["step"], small), warnings

    def _due(self) -> bool:
        return self._comm.bcast(time.monotonic() - self._saved >= self._every)


def facts_of(
    method: str,
    options: Any,
    given: Mapping[str, Path],
    source: Source,
    config: Config,
    size: int,
) -> dict[str, object]:
    """The facts of a checkpoint: graph, method and options, matrix; and how it is computed.

    Of ``given`` options that name files, the bytes in these count, not where they are. The options
    of the scheme are resolved in the configuration.
    """
    kept = {name: v for name, v in asdict(options).items() if name not in _FREE_OPTIONS}
    for name in kept.keys() & given.keys():
        kept[name] = files.checksum_of(given[name], 0, given[name].stat().st_size)[0]
    keys = {
        name: value for name, value in flat(table_of(config)) if not name.startswith(_FREE_KEYS)
    }
    manifest, partition = source.stored.manifest, source.partition
    exact = {name: value for name, value in keys.items() if name.startswith(_EXACT_KEYS)}
    exact["graph.direction"] = source.direction
    return plain({
        "format": FORMAT,
        "version": VERSION,
        "graph": manifest.name,
        "graph_id": manifest.id,
        "method": method,
        "options": kept,
        "keys": exact,
        "rounding": {
            "partition": None if partition is None else partition.id,
            "ranks": size,
            **{name: value for name, value in keys.items() if name not in exact},
        },
    })  # fmt: skip


def _check_fits(path: Path, found: Facts, facts: Facts, force: bool) -> list[str]:
    """Compare a checkpoint with the run that would go on from it; what differs in rounding."""
    if found["graph_id"] != facts["graph_id"]:
        raise UserError(f"the checkpoint {path} is of another graph than {facts['graph']}", _HINT)
    if found["method"] != facts["method"]:
        raise UserError(f"the checkpoint {path} is of {found['method']}", _HINT)
    for name, before, now in _differences(found, facts, ("options", "keys")):
        raise UserError(
            f"the checkpoint {path} was made with {name} {before}, this run has {now}",
            f"set it back, or {_HINT}",
        )
    lines = []
    for name, before, now in _differences(found, facts, ("rounding",)):
        what = f"the checkpoint {path} was made with {name} {before}, this run has {now}"
        if not force:
            raise UserError(what, f"set it back, --force to go on with other rounding, or {_HINT}")
        lines.append(f"{what}: the result differs in rounding")
    return lines


def _differences(
    found: Facts, facts: Facts, tables: Sequence[str]
) -> list[tuple[str, object, object]]:
    return [
        (name, found[table].get(name), facts[table].get(name))
        for table in tables
        for name in sorted({*found[table], *facts[table]})
        if found[table].get(name) != facts[table].get(name)
    ]


def _read_facts(path: Path) -> Facts:
    return files.read_facts(path, FORMAT, VERSION, "name another folder: checkpoint=DIR")
