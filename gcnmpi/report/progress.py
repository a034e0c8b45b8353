"""Progress of a training run: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from gcnmpi.run.opening import Opened
from gcnmpi.run.record import Epoch
from partition.errors import shown
from partition.terminal import console, duration, pauses


class Progress:
    """Context that shows each epoch as it ends, on the standard error stream.

    The configuration has the number of epochs; warnings are printed first. Ranks other than 0 are
    ``quiet``. ``moved`` is called with each epoch, to say that this rank makes progress; ``clock``
    gives the time in seconds. The last of ``folders`` is that of the run: how to stop it is said.
    """

    def __init__(
        self,
        opened: Opened,
        quiet: bool,
        moved: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        folders: Sequence[Path] = (),
    ) -> None:
        self._moved, self._quiet, self._total = moved, quiet, opened.config.train.epochs
        self._clock, self._pauses = clock, pauses()
        self._pause = next(self._pauses)
        self._first: tuple[int, float] | None = None  # epoch and time
        self._shown = 0.0
        self._console = console(sys.stderr, quiet=quiet, soft_wrap=True)
        self._bar: Any = None
        self._console.print(shown(_heading(opened)), markup=False)
        for folder in folders[-1:]:
            line = f"to stop it with a checkpoint: gcnmpi stop {shlex.quote(str(folder))}"
            self._console.print(shown(line), markup=False)
        if not quiet:
            print_warnings(opened.warnings)

    def __enter__(self) -> Progress:
        if self._console.is_terminal and not self._quiet:
            from rich import progress  # here: ranks without a terminal would wait for it

            columns = (
                progress.TextColumn("epoch"),
                progress.MofNCompleteColumn(),
                progress.BarColumn(),
                progress.TextColumn("{task.description}"),
                progress.TimeRemainingColumn(),
            )
            self._bar = progress.Progress(*columns, console=self._console)
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total)
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def epoch(self, epoch: Epoch) -> None:
        """Show an epoch: on the bar, or, where one is due, on a line."""
        self._moved()
        text = "  ".join([f"loss {epoch.loss:.4f}", *shown_metrics(epoch)])
        if self._bar is not None:
            self._bar.update(self._task, completed=epoch.epoch, description=text)
            return
        now = self._clock()
        due = self._first is None or epoch.epoch == self._total
        if not due and now - self._shown < self._pause:
            return
        if not due:
            self._pause = next(self._pauses)
        line = f"epoch {epoch.epoch:5d}/{self._total}  {text}  {epoch.seconds:.4f} s"
        self._console.print(line + self._left(epoch.epoch, now), markup=False)
        self._first, self._shown = self._first or (epoch.epoch, now), now

    def _left(self, epoch: int, now: float) -> str:
        """The time left by the pace since the first epoch, with evaluations and checkpoints."""
        if self._first is None or epoch == self._total:
            return ""
        since, start = self._first
        return f"  {duration((now - start) / (epoch - since) * (self._total - epoch))} left"


def print_warnings(warnings: Iterable[str]) -> None:
    """Print warnings for the user on standard error, a line each."""
    for warning in warnings:
        print(f"warning: {shown(warning)}", file=sys.stderr, flush=True)


def shown_metrics(epoch: Epoch) -> list[str]:
    """The metric that chooses the best weights: "val 0.812", or "val roc_auc 0.812"."""
    found = []
    chosen = next(iter(epoch.metrics), "").partition("_")[2]
    for name, value in epoch.metrics.items():
        mask, _, metric = name.partition("_")
        if metric == chosen and value is not None:
            named = mask if metric == "accuracy" else f"{mask} {metric}"
            found.append(f"{named} {figure(value)}")
    return found


def figure(value: float) -> str:
    """A metric to three digits after the point, or four digits where it is large."""
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"


def _heading(opened: Opened) -> str:
    """The run in one line: "cora, partition hp-4: 4 ranks × 2 threads, p2p, graphblas …"."""
    partition = f", partition {opened.source.partition.name}" if opened.source.partition else ""
    ranks, threads = opened.runtime.everyone.size, opened.runtime.kernel.threads
    size = f"{ranks} rank{'s' * (ranks > 1)} × {threads} thread{'s' * (threads > 1)}"
    how = f"{opened.config.scheme.name}, {opened.runtime.kernel.name}, {opened.config.dtype}"
    return f"{opened.source.stored.manifest.name}{partition}: {size}, {how}"
