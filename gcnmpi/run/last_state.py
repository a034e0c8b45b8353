"""The state of a run after its last epoch, kept ready for an end that leaves no time."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi.mpi.watch import on_ending
from gcnmpi.run import checkpoint_files as files
from gcnmpi.run.record import Epoch
from partition.errors import UserError

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
