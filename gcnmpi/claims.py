"""What a run writes to, and nobody else meanwhile: its folder and its files of weights."""

from __future__ import annotations

import contextlib
from pathlib import Path

from gcnmpi.comm import Comm, from_root
from gcnmpi.record import make_folder, new_folder
from partition.locks import folder_lock
from partition.records import make_room_for

PURPOSE = "gcnmpi train"
PATIENCE = 5.0  # seconds that ranks whose launcher was killed may take to end


class Claims(contextlib.ExitStack):
    """Locks that rank 0 holds for all, until the end of this context or of its process."""

    def __init__(self, comm: Comm) -> None:
        super().__init__()
        self._comm = comm

    def folder(self, path: Path) -> Path:
        """Make the folder of a run and keep other runs out of it.

        Raises
        ------
        UserError
            On all ranks, if another run writes to it, with who that is; or if it cannot be made.
        """

        def claim() -> None:
            make_folder(path)
            self.enter_context(folder_lock(path, PURPOSE, patience=PATIENCE))

        from_root(self._comm, claim)
        return path

    def new_folder(self, parent: Path, name: str) -> Path:
        """The same for a folder that nobody has yet: ``parent/name``, or ``parent/name-2``, …"""
        return self.folder(from_root(self._comm, lambda: new_folder(parent, name)))

    def file(self, path: Path) -> None:
        """Make room for a file, and keep other runs from writing to it.

        Raises
        ------
        UserError
            On all ranks, if another run will write to it, or none can be written there.
        """

        def claim() -> None:
            make_room_for(path)
            purpose, name = f"{PURPOSE}, for {path.name}", f".{path.name}.lock"
            lock = folder_lock(path.parent, purpose, name=name, patience=PATIENCE)
            self.enter_context(lock)

        from_root(self._comm, claim)
