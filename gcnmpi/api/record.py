"""The record of a run, and its weights, as arrays."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi.options.requests import BEST_WEIGHTS, LAST_WEIGHTS
from gcnmpi.run.record import Epoch, RunRecord, read_run
from partition.errors import UserError, unknown_name


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A run of ``gcnmpi.train`` or ``gcnmpi train``, by its folder, as far as it has come.

    Parameters
    ----------
    path : path
        Folder of the run.

    Raises
    ------
    UserError
        If there is no record of a run, or it is damaged.
    """

    path: Path
    record: RunRecord = field(default=None)  # type: ignore[assignment]

    def __init__(self, path: str | os.PathLike, record: RunRecord | None = None) -> None:
        object.__setattr__(self, "path", Path(path))
        object.__setattr__(self, "record", read_run(path) if record is None else record)

    @property
    def config(self) -> dict[str, Any]:
        """The whole configuration: ``config["model"]["hidden"]``."""
        return self.record.start.config

    @property
    def epochs(self) -> dict[str, np.ndarray]:
        """An array of each field, with an entry for each epoch.

        "epoch" is int64; "loss", "seconds", "val_accuracy" … are float64, NaN where a metric was
        not evaluated.
        """
        lines = [epoch.record() for epoch in self.record.epochs]
        names = [name for name in (lines[0] if lines else _FIELDS) if name != "time"]
        columns = {name: [line.get(name) for line in lines] for name in names}
        kinds = {name: np.int64 if name == "epoch" else np.float64 for name in names}
        return {name: np.array(column, kinds[name]) for name, column in columns.items()}

    def epochs_frame(self) -> Any:
        """The same as a pandas data frame, by epoch.

        Raises
        ------
        UserError
            If pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise UserError(
                "epochs_frame needs the Python package 'pandas'",
                "pip install pandas; epochs gives NumPy arrays",
            ) from error
        return pandas.DataFrame(self.epochs).set_index("epoch")

    @property
    def summary(self) -> dict[str, Any]:
        """The fields of its first and its last record: how the run was made, and how it ended."""
        start, last = self.record.start.record(), self.record.end or self.record.stop
        del start["config"]
        return start if last is None else start | last.record()

    @property
    def finished(self) -> bool:
        """Whether it has come to its end."""
        return self.record.end is not None

    @property
    def last(self) -> dict[str, Any]:
        """The last epoch: its loss, metrics and seconds; empty before there is one."""
        return _result(self.record.epochs[-1]) if self.record.epochs else {}

    @property
    def best(self) -> dict[str, Any]:
        """The epoch of the best validation metric; empty where nothing was validated."""
        return _result(self.record.best) if self.record.best is not None else {}

    @property
    def best_epoch(self) -> int | None:
        """Its number; None where nothing was validated, or before the end."""
        return None if self.record.end is None else self.record.end.best_epoch

    def weights(self, which: str = "last") -> dict[str, np.ndarray]:
        """The weights of the last or of the best epoch, by PyTorch Geometric's names.

        Parameters
        ----------
        which : {"last", "best"}

        Raises
        ------
        UserError
            As :meth:`weights_file`.
        """
        from gcnmpi.run.weights_file import read_arrays

        return read_arrays(self.weights_file(which))

    def weights_file(self, which: str = "last") -> Path:
        """The file of these weights.

        Raises
        ------
        UserError
            If the folder has none, or one of another epoch.
        """
        from gcnmpi.run.weights_file import read_facts

        if which not in _FILES:
            raise unknown_name("weights", which, _FILES)
        path, epoch = self.path / _FILES[which], self.last if which == "last" else self.best
        if not path.exists():
            option = "--save-weights" if which == "last" else "--save-best"
            raise UserError(
                f"there are no weights {path}",
                f"gcnmpi.train writes them at the end of a run, gcnmpi train with {option} {path}",
            )
        facts = read_facts(path) or {}
        if any(facts.get(name) != epoch.get(name) for name in ("epoch", "loss")):
            raise UserError(f"{path} does not hold the weights of the {which} epoch of this run")
        return path

    def __repr__(self) -> str:
        state = "finished" if self.finished else "not finished"
        return f"<run {self.path}: {len(self.record.epochs)} epochs, {state}>"


_FILES = {"last": LAST_WEIGHTS, "best": BEST_WEIGHTS}
_FIELDS = ("epoch", "loss", "seconds")


def _result(epoch: Epoch) -> dict[str, Any]:
    return {name: value for name, value in epoch.record().items() if name != "time"}
