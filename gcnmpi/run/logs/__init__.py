"""Logs of the epochs for other programs, written while a run trains, beside its record.

A log is one file and one line in the table. It is written anew from the epochs of the record when a
run starts or goes on, so that it has every epoch once, and then appended to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from partition.errors import UserError
from partition.registry import Registry

if TYPE_CHECKING:  # commands that do not train need no record
    from gcnmpi.run.record import Epoch

LOGS = Registry(
    "log",
    {
        "csv": "gcnmpi.run.logs.comma_separated:CsvLog",
        "tensorboard": "gcnmpi.run.logs.tensorboard:EventLog",
    },
    {"tensorboard": "tensorboard"},
)


class Log(Protocol):
    """Made by ``Log(folder, before)`` from the folder of a run and the epochs that it has.

    A file that cannot be written is an OSError.
    """

    def add(self, epoch: Epoch) -> None:
        """Append an epoch to the files."""

    def close(self) -> None:
        """Write what is not in the files yet, and close them."""


def parse_logs(text: str) -> tuple[str, ...]:
    """Names of logs from "csv,tensorboard"; empty for an empty text.

    Raises
    ------
    UserError
        If one is unknown or named twice, or a library that it needs is not installed.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if len(set(names)) < len(names):
        raise UserError(f"--log {text}: a log is named twice")
    for name in names:
        LOGS.get(name)
    return names
