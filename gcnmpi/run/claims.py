"""The guard of a run: locks on what it writes and reads, signals that stop it, and a watch.

Whoever may write to the folder of a run may ask it to stop, with a file in it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gcnmpi.mpi.comm import Comm, agreed, check_same, from_root
from gcnmpi.mpi.hosts import place_on_node
from gcnmpi.mpi.launch import launched
from gcnmpi.mpi.watch import EXIT_REQUEUE, stop_requests, watchdog
from gcnmpi.options.config import Config
from gcnmpi.run.writer import make_folder, new_folder
from partition.graph.store import members, partition_lock
from partition.locks import folder_lock
from partition.records import make_room_for

PATIENCE = 5.0  # seconds that ranks whose launcher was killed may take to end
STOP = "stop"  # the file in the folder of a run that asks it to stop; the next launch removes it
ALIKE = "start all ranks with the same words; files of configurations lie where all hosts see them"
_LOOK = 0.2  # seconds between two looks for it, which may go to a file system far away


def check_words(comm: Comm, config: Config, words: Mapping[str, object]) -> None:
    """Refuse ranks whose configuration or options are not rank 0's: they would wait without end.

    Arrays are not compared. Paths of graphs and configurations may differ from host to host: what
    is there is compared when it is read.
    """
    alike = {name: word for name, word in words.items() if not isinstance(word, np.ndarray)}
    check_same(comm, {"configuration": config, **alike}, ALIKE)


@contextlib.contextmanager
def session(
    comm: Comm,
    purpose: str,
    config: Config,
    words: Mapping[str, object],
    graph: Path | None = None,
    partition: str | None = None,
) -> Iterator[Claims]:
    """Ranks that are asked for the same, under watch, while nobody replaces the graph."""
    with watchdog(config.comm.timeout, comm.rank) as moved, Claims(comm, purpose) as claims:
        claims.moved = moved
        check_words(comm, config, words)
        if graph is not None:
            claims.graph(graph, partition)
        yield claims


class Claims(contextlib.ExitStack):
    """Locks that rank 0 holds for all, until the end of this context or of its process.

    A process that is refused is told the purpose, such as "gcnmpi train".
    """

    def __init__(self, comm: Comm, purpose: str) -> None:
        super().__init__()
        self._comm, self.purpose = comm, purpose
        self.folders: list[Path] = []  # on rank 0
        self._looked, self._asked = 0.0, False
        self.moved: Callable[[], None] = lambda: None  # called to say that a rank makes progress

    def graph(self, path: Path, partition: str | None) -> None:
        """Keep a graph and a partition from being replaced or removed while they are read.

        On every host, which may have copies of its own. Where nothing can be written to, no lock is
        needed, and none is taken. On all ranks a UserError if another process is replacing one of
        them.
        """
        with agreed(self._comm):
            pass  # a rank that failed before is heard here: it would not come to what follows
        first = place_on_node(self._comm) == 0
        with agreed(self._comm):
            if first and path.is_dir():  # that there is none is told by who reads it
                self.enter_context(folder_lock(path, self.purpose, exclusive=False))
                for name in [] if partition is None else members(path, partition):
                    lock = partition_lock(path, name, self.purpose, exclusive=False)
                    self.enter_context(lock)

    def folder(self, path: Path) -> Path:
        """Make the folder of a run and keep other runs out of it.

        On all ranks a UserError if another run writes to it, with who that is; or if it cannot be
        made.
        """

        def claim() -> None:
            make_folder(path)
            self.enter_context(folder_lock(path, self.purpose, patience=PATIENCE))
            (path / STOP).unlink(missing_ok=True)
            self.folders.append(path)

        from_root(self._comm, claim)
        return path

    def stop_asked(self) -> int:
        """SIGUSR1 if a file in one of the folders asks for an end, on rank 0; else 0."""
        if not self._asked and time.monotonic() - self._looked > _LOOK:
            self._asked = any((folder / STOP).exists() for folder in self.folders)
            self._looked = time.monotonic()
        return signal.SIGUSR1 if self._asked else 0

    def new_folder(self, parent: Path, name: str) -> Path:
        """The same for a folder that nobody has yet: ``parent/name``, or ``parent/name-2``, …"""
        return self.folder(from_root(self._comm, lambda: new_folder(parent, name)))

    def file(self, path: Path) -> None:
        """Make room for a file, and keep other runs from writing to it.

        On all ranks a UserError if another run will write to it, or none can be written there.
        """

        def claim() -> None:
            make_room_for(path)
            purpose, name = f"{self.purpose}, for {path.name}", f".{path.name}.lock"
            lock = folder_lock(path.parent, purpose, name=name, patience=PATIENCE)
            self.enter_context(lock)

        from_root(self._comm, claim)


class Stopped(SystemExit):
    """A signal asked a run to stop: it has written a checkpoint, and the same call goes on from it.

    A script that does not catch it ends with exit code 75, as ``gcnmpi train`` does.
    """

    @classmethod
    def on(cls, comm: Comm) -> Stopped:
        """To be raised on all ranks: the exit code is that of rank 0."""
        return cls(0 if comm.rank else EXIT_REQUEUE)


@dataclass(frozen=True)
class Guard:
    """The locks, signals and watch around a run."""

    claims: Claims  # locks that are held until the end
    stop: Callable[[], int]  # the signal that asked for an end, SIGUSR1 for a file, or 0
    moved: Callable[[], None]  # called to say that a rank makes progress


@contextlib.contextmanager
def guarded(comm: Comm, config: Config, purpose: str) -> Iterator[Guard]:
    """Locks, signals and files that ask for a checkpoint, and a watch over ranks that hang.

    The purpose is for the locks: "gcnmpi train".
    """
    launcher = os.getppid() if launched() else None
    requests = stop_requests(launcher, tell=comm.rank == 0)
    watch = watchdog(config.comm.timeout, comm.rank)
    with watch as moved, Claims(comm, purpose) as claims, requests as signalled:
        yield Guard(claims, lambda: signalled() or claims.stop_asked(), moved)
