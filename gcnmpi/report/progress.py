"""The lines that a command prints while it works, and at its end."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gcnmpi.options.requests import TrainRequest
from gcnmpi.options.task import LOWER_IS_BETTER, chosen_metrics
from gcnmpi.run.best import diverged
from gcnmpi.run.record import RECORD, End, Epoch, RunRecord
from partition.errors import shown
from partition.records import to_json
from partition.terminal import console, duration, pauses, print_wide, table_of

if TYPE_CHECKING:  # a command need not import what the others do
    from rich.box import Box

    from gcnmpi.importing.running import Imported
    from gcnmpi.partitioning.running import Made
    from gcnmpi.propagation.running import Propagated
    from gcnmpi.run.inference import Inference
    from gcnmpi.run.opening import Opened
    from gcnmpi.run.trainer import Trained


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


def print_rows(
    texts: Iterable[str],
    numbers: Iterable[str],
    rows: Iterable[Sequence[str]],
    box: Box | None = None,
) -> None:
    """Print a table on the standard output: columns of texts, then of numbers."""
    table = table_of(texts, numbers, box)
    for row in rows:
        table.add_row(*row)
    print_wide(table)


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


def print_trained(asked: TrainRequest, done: Trained, seconds: float, *, quiet: bool) -> None:
    """Say how a run ended, ``seconds`` after the command was started.

    If ``quiet``, nothing is said of a run that was trained to its end, unless its loss rose.
    """
    if done.before is not None:
        _print_complete(asked, done.before)
    elif done.stopped:
        same = "the same command" + ("" if asked.out else f" with --out {done.folder}")
        print(f"stopped as asked after epoch {len(done.epochs)}; {same} goes on", file=sys.stderr)
    elif not quiet:
        _print_run(asked, done.folder, done.epochs, done.end, seconds)
    warning = diverged(done.epochs, asked.config.train.lr)
    if warning is not None:
        print(f"warning: {warning}", file=sys.stderr)


def _print_run(
    asked: TrainRequest, folder: Path, epochs: Sequence[Epoch], end: End, seconds: float
) -> None:
    """The last and the best epoch of a run, how long it took, and where its files are.

    ``seconds`` have passed since the command was started; 0: not known.
    """
    total = f"; the command took {_duration(seconds)}" if seconds else ""
    training = _duration(sum(epoch.seconds for epoch in epochs))
    each = f"{end.seconds_per_epoch:.4g} s per epoch"
    print(f"trained {len(epochs)} epochs in {training}, {each}{total}")
    metric = chosen_metrics(asked.config.task)[0]
    print(f"last    {_figures(epochs[-1])}")
    found = [epoch for epoch in epochs if epoch.epoch == end.best_epoch]
    if found:
        which = "lowest" if metric in LOWER_IS_BETTER else "highest"
        print(f"best    {_figures(found[0])} ({which} validation {metric})")
    if end.stopped_early:
        patience = asked.config.train.patience
        why = f"no better validation {metric} for {patience} epochs" if patience else "as asked"
        print(f"stopped early: {why}")
    if end.rounding:
        worst = max(exchange.error for exchange in end.rounding)
        print(f"rounded rows in messages: by {worst:.2g} of their size, in the worst exchange")
    print(f"record  {folder / RECORD}")
    files = [
        f"{path} ({which})"
        for path, which in ((asked.save_weights, "last"), (asked.save_best, "best"))
        if path is not None
    ]
    print(f"weights {', '.join(files) or 'not saved: --save-weights FILE.npz keeps them'}")


def _print_complete(asked: TrainRequest, record: RunRecord) -> None:
    """Say that a run need not be run again."""
    folder = asked.out or Path()
    print(f"{folder} is complete: nothing was trained or written (--resume never starts over)")
    _print_run(asked, folder, record.epochs, record.end or End(), 0.0)


def _figures(epoch: Epoch) -> str:
    return "  ".join([f"epoch {epoch.epoch}: loss {epoch.loss:.4f}", *shown_metrics(epoch)])


def _duration(seconds: float) -> str:
    """Seconds to three digits; from a minute on, hours, minutes and seconds."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    return duration(seconds)


def print_inference(out: Path | None, done: Inference) -> None:
    """Say which file was written, and of which network."""
    if done.weights.described:
        print(f"network of {done.weights.path}: {_settings(done)}", file=sys.stderr)
    else:
        print(f"warning: {undescribed(done)}", file=sys.stderr)
    print(f"{out}: {' × '.join(map(str, done.shape))} {done.dtype}", flush=True)
    print_warnings(done.warnings)


def print_metrics(
    found: Mapping[str, float | None], told: Sequence[str], as_json: bool = False
) -> None:
    """Print a line for each metric of weights that there is, or one JSON object of all."""
    if as_json:
        print(json.dumps(found), flush=True)
    else:
        there = {name: value for name, value in found.items() if value is not None}
        for name, value in there.items():
            print(f"{name:24} {value:.6g}", flush=True)
    print_warnings(told)


def print_propagated(out: Path, done: Propagated, *, quiet: bool) -> None:
    """Say which file was written, and how many bytes were moved for it."""
    for note in done.outcome.notes:
        if not quiet or note.startswith("warning"):
            print(note, file=sys.stderr)
    if not quiet:
        for made in done.products:
            print(
                f"{made.times} products of width {made.width}: {made.each.sent:,} bytes each",
                file=sys.stderr,
            )
        print(
            f"{_duration(done.seconds)}; bytes sent {done.counted.sent:,}, predicted "
            f"{done.predicted.sent:,}; in sums {done.reduced.sent:,}",
            file=sys.stderr,
        )
    print(f"{out}: {' × '.join(map(str, done.shape))} {done.dtype}", flush=True)
    print_warnings(done.warnings)


def print_partitioned(done: Made, as_json: bool) -> None:
    """Say what a partition sends that the ranks have made."""
    partition = done.partition
    metrics = {"rows": partition.metrics}
    if partition.mixed:  # was measured
        metrics["mixed"] = partition.mixed
    if as_json:
        facts: dict[str, object] = {
            name: getattr(partition, name)
            for name in ("name", "k", "id", "direction", "seed", "imbalance", "seconds")
        }
        for exchange, found in metrics.items():
            facts[exchange] = {way: each.summary() for way, each in found.items()}
        print(json.dumps(facts | {"memory": done.memory, "warnings": done.warnings}))
        return
    for exchange, found in metrics.items():
        each = found[partition.direction]
        begin = f"{partition.name}: {partition.k} parts, " if exchange == "rows" else "  mixed: "
        print(
            f"{begin}volume {each.volume:,} rows, max send {max(each.send_rows):,}, imbalance "
            f"{each.imbalance:.4f}" + f", {partition.seconds:.1f} s" * (exchange == "rows")
        )
    print(f"  memory: at most {done.memory / 1e9:.2f} GB a rank")
    print_warnings(done.warnings)


def print_imported(done: Imported, as_json: bool) -> None:
    """Say which graph the ranks have made."""
    manifest = done.manifest
    if as_json:
        facts = {"path": done.path, "seconds": done.seconds, "memory": done.memory}
        print(json.dumps(facts | {"manifest": manifest}, default=to_json))
        return
    kind = "directed" if manifest.directed else "undirected"
    print(
        f"{done.path}: {manifest.n:,} vertices, {manifest.nnz:,} arcs, {kind}, {done.seconds:.1f} s"
    )
    print(f"  memory: at most {done.memory / 1e9:.2f} GB a rank")


def undescribed(done: Inference) -> str:
    """The network that a file of weights was taken for which does not say its own."""
    return (
        f"{done.weights.path} does not say which network it is of; taken for {_settings(done)}, "
        "ReLU between layers"
    )


def _settings(done: Inference) -> str:
    config, weights = done.config, done.weights
    graph, widths = config.graph, "-".join(map(str, weights.widths))
    loops = "added" if graph.self_loops else "as in the graph"
    return (
        f"{config.model.name} {widths}, normalize {graph.normalize}, direction {done.direction}, "
        f"self-loops {loops}, feature_norm {graph.feature_norm}"
    )
