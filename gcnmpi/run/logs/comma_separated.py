"""``epochs.csv``: a line for each epoch, for spreadsheets and pandas."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from gcnmpi.run.record import Epoch
from partition.records import atomic_file

FILE = "epochs.csv"


class CsvLog:
    """Epochs as lines of a CSV file, with the fields of the record as columns.

    A metric that was not evaluated is an empty field. Lines reach the file one by one.
    """

    def __init__(self, folder: Path, before: Sequence[Epoch]) -> None:
        path = folder / FILE
        self._columns: list[str] = []
        with atomic_file(path, "w") as file:
            for epoch in before:
                self._write(file, epoch)
        self._file = open(path, "a", encoding="utf-8", newline="", buffering=1)  # noqa: SIM115

    def add(self, epoch: Epoch) -> None:
        """Append a line for an epoch."""
        self._write(self._file, epoch)

    def close(self) -> None:
        """Close the file of lines."""
        self._file.close()

    def _write(self, file: IO[str], epoch: Epoch) -> None:
        """The columns are those of the first epoch."""
        first = not self._columns
        if first:
            self._columns = [*(name for name in epoch.record() if name != "time"), "time"]
        writer = csv.DictWriter(file, self._columns, extrasaction="ignore", lineterminator="\n")
        if first:
            writer.writeheader()
        writer.writerow(epoch.record())
