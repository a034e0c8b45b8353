"""Logs of the epochs for other programs, written while a run trains, beside its record.

A log is one file and one line in the table ``LOGS`` of :mod:`gcnmpi.options.requests`. It is
written anew from the epochs of the record when a run starts or goes on, so that it has every epoch
once, and then appended to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # commands that do not train need no record
    from gcnmpi.run.record import Epoch


class Log(Protocol):
    """Made by ``Log(folder, before)`` from the folder of a run and the epochs that it has.

    A file that cannot be written is an OSError.
    """

    def add(self, epoch: Epoch) -> None:
        """Append an epoch to the files."""

    def close(self) -> None:
        """Write what is not in the files yet, and close them."""
