"""A run of a loop of the user's: record, progress and checkpoints of ``gcnmpi train``."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import sys
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gcnmpi.mpi.comm import agreed, check_same, from_root, maxima
from gcnmpi.mpi.launch import start_limit
from gcnmpi.options.config import table_of
from gcnmpi.options.requests import job_folder, parse_logs, run_name
from gcnmpi.report.progress import Progress
from gcnmpi.run import checkpoint_files as files
from gcnmpi.run.best import Best
from gcnmpi.run.checkpoint import Checkpoint, plain
from gcnmpi.run.opening import Opened
from gcnmpi.run.ranks_record import PhaseSamples
from gcnmpi.run.record import Epoch, is_metric, read_run
from gcnmpi.run.run_record import (
    Recorder,
    check_there,
    counted_record,
    open_record,
    opened_record,
    recording,
    tell,
)
from gcnmpi.run.training import Guard, Stopped, guarded
from gcnmpi.schemes.p2p import Laid
from gcnmpi.torch.kept import Keeps, Kept, set_generators, write_weights
from gcnmpi.torch.moves import Moves
from partition.errors import UserError
from partition.records import to_json

PURPOSE = "a run of gcnmpi.torch"
LAST, BEST = "weights.pt", "best.pt"
LOOP = "for epoch in run.epochs(200): …; run.log(epoch, loss=loss)"
ALIKE = "all ranks call it with the same arguments"
LONGEST = 20_000  # lines of a script that the record keeps
# Sections of the configuration that a graph of PyTorch obeys.
SECTIONS = ("kernel", "dtype", "threads", "graph", "scheme", "loading", "comm")


@dataclass(frozen=True)
class Asked:
    """A run as it is asked for: see :meth:`gcnmpi.torch.Graph.run`."""

    out: Path | None
    objects: Mapping[str, Keeps]
    settings: Mapping[str, object]
    metric: str | None
    resume: str
    checkpoint_every: int
    checkpoint_minutes: float
    log: str
    progress: bool


@contextlib.contextmanager
def running(opened: Opened, laid: Laid, moves: Moves, asked: Asked) -> Iterator[Run]:
    """The context of a run; its graph is laid out, and ``moves`` exchanges rows of it."""
    comm, source = opened.runtime.everyone, opened.source
    with agreed(comm):
        logs, table = parse_logs(asked.log), _table(opened, asked)
        out = job_folder(asked.out)
    words = {"folder": str(out), "resume": asked.resume, "config": table}
    check_same(comm, words | {"metric": asked.metric, "log": logs}, ALIKE)
    kept = Kept(opened, asked.objects, table)
    kept.check()
    partition = None if source.partition is None else source.partition.name
    # A script has no key comm.timeout.
    limit = dataclasses.replace(opened.config.comm, timeout=start_limit(os.environ))
    config = dataclasses.replace(opened.config, comm=limit)
    with guarded(comm, config, PURPOSE) as guard, contextlib.ExitStack() as stack:
        claims, path = guard.claims, source.stored.path
        if out is None:
            out = claims.new_folder(Path("runs"), run_name(path, partition))
        else:
            claims.folder(out)
        claims.graph(path, partition)
        run = Run(out, opened, laid, moves, asked, kept, guard, stack)
        yield run
        run._finish()


class Run:
    """A run in its folder, as ``with g.run(…) as run`` gives it.

    ``folder`` is that of the run.
    """

    def __init__(
        self,
        folder: Path,
        opened: Opened,
        laid: Laid,
        moves: Moves,
        asked: Asked,
        kept: Kept,
        guard: Guard,
        stack: contextlib.ExitStack,
    ) -> None:
        self.folder = folder
        self._opened, self._laid, self._moves = opened, laid, moves
        self._asked, self._kept, self._guard, self._stack = asked, kept, guard, stack
        self._comm = opened.runtime.everyone
        self._found, self._warnings = kept.find(folder, asked.resume)
        self._epochs: list[Epoch] = []
        self._best = Best(self._metric, 0, None, None)
        self._best_weights: dict[str, Any] | None = None  # on rank 0
        self._generators: dict[str, object] | None = None
        if self._found is not None:
            self._go_on(self._found)
        self._before = len(self._epochs)
        self._history = files.History(self._epochs)
        self._write: Recorder | None = None
        self._of_epoch = contextlib.ExitStack()
        self._open: int | None = None  # the epoch that has begun
        self._count, self._signal, self._due = 0, 0, False
        self._since = self._saved = 0.0  # when the epoch began, and when it was kept last
        self._over = False  # before this launch

    @property
    def epoch(self) -> int:
        """The last epoch that is complete; 0: there is none yet."""
        return len(self._epochs)

    @property
    def best_epoch(self) -> int:
        """The epoch of the best weights; 0: there is none yet."""
        return self._best.epoch

    def epochs(self, count: int) -> Iterator[int]:
        """Numbers of the epochs that are left of so many, from 1 in a run that begins.

        For all ranks together, and once in a run.
        """
        self._begin(count)
        for number in range(self.epoch + 1, 0 if self._over else count + 1):
            self._enter(number)
            yield number
            self._leave()

    def log(
        self, epoch: int, loss: torch.Tensor | float, **metrics: torch.Tensor | float | None
    ) -> None:
        """Record an epoch: once in each, by all ranks together, with the same values.

        Parameters
        ----------
        epoch : int
        loss : float, or tensor of one number
        **metrics : the same, or None
            Named by mask and metric, ``val_accuracy``, as ``g.metrics`` gives them.
        """
        comm = self._comm
        self._moves.ranks.every.together("the log of an epoch")
        with agreed(comm):
            value, found = _values(self._wanted(epoch), loss, metrics)
        now = time.perf_counter()
        seconds, minutes = now - self._since, (now - self._saved) / 60
        words = float(zlib.crc32(repr(found).encode()))
        assert self._write is not None
        # One reduction lets all ranks decide alike.
        high, low, one, other, seconds, signal, minutes, failed = maxima(
            comm, value, -value, words, -words, seconds, self._guard.stop(), minutes,
            self._write.failed,
        )  # fmt: skip
        with agreed(comm):
            self._write.check()
            if high != -low:
                raise UserError(
                    f"the loss of epoch {epoch} is not the same on all ranks: {-low:g} to {high:g}",
                    "log what g.mean gives, which is the mean over the rows of all ranks",
                )
            if one != -other:
                raise UserError(
                    f"the metrics of epoch {epoch} are not the same on all ranks",
                    "log what g.metrics gives, on all ranks",
                )
        assert not failed
        every, after = self._asked.checkpoint_every, self._asked.checkpoint_minutes
        self._signal = int(signal)
        self._due = (every > 0 and epoch % every == 0) or 0 < after <= minutes
        entry = Epoch(epoch, value, found, seconds)
        self._epochs.append(entry)
        if self._best.beaten_by(entry):
            self._best = self._best.now(entry)
            if comm.rank == 0:  # which writes them
                self._best_weights = self._kept.weights()
        self._write("epoch", **entry.record(), time=round(time.time(), 3))
        self._shown.epoch(entry)

    @property
    def _metric(self) -> str:
        manifest = self._opened.source.stored.manifest
        usual = "accuracy" if manifest.classes or not manifest.targets else "rmse"
        return self._asked.metric or usual

    def _go_on(self, found: Checkpoint) -> None:
        """Take over a checkpoint."""
        self._epochs += found.epochs
        best, self._generators = self._kept.restore(found)
        if found.facts["best"]["epoch"]:
            self._best = dataclasses.replace(self._best, **found.facts["best"])
            self._best_weights = best

    def _begin(self, count: int) -> None:
        """Open the record, for so many epochs."""
        comm, found, asked = self._comm, self._found, self._asked
        with agreed(comm):
            if self._write is not None:
                raise UserError("run.epochs was called twice", "a run has one loop over its epochs")
            if type(count) is not int or count < 1:
                raise UserError(f"run.epochs takes a number of epochs, not {count!r}")
            if self.epoch > count:
                raise UserError(
                    f"the run in {self.folder} has {self.epoch} epochs, beyond run.epochs({count})",
                    f"give it {self.epoch} or more, or resume='never', which starts over",
                )
        check_same(comm, {"number of epochs": count}, ALIKE)
        train = dataclasses.replace(self._opened.config.train, epochs=count)
        config = dataclasses.replace(self._opened.config, train=train)
        self._opened = dataclasses.replace(self._opened, config=config)
        self._count = count
        start = self._start()
        if comm.rank == 0:
            tell(found, self._warnings)
        complete = from_root(comm, lambda: self._is_complete(count))
        self._over = complete or self.epoch == count
        file = from_root(comm, lambda: open_record(self.folder, start, found, self._over))
        logs = parse_logs(asked.log)
        self._write = self._stack.enter_context(recording(comm, file, logs, self._before))
        self._write("start" if found is None else "resume", **start)
        with agreed(comm):
            self._write.check()
        if complete and comm.rank == 0:
            line = f"{self.folder} is complete: nothing is trained (resume='never' starts over)"
            print(line, file=sys.stderr)
        quiet = self._over or not asked.progress or comm.rank != 0
        folders = self._guard.claims.folders
        progress = Progress(self._opened, quiet, self._guard.moved, folders=folders)
        self._shown = self._stack.enter_context(progress)
        runtime = self._opened.runtime
        runtime.traffic.begin()
        runtime.phases.begin()
        self._moves.begin()
        self._samples = PhaseSamples(runtime, self._before)
        self._sampled = self._before
        self._saved = time.perf_counter()
        self._guard.stop()  # from here on it is asked in every epoch
        if self._generators is not None:
            set_generators(self._generators)

    def _start(self) -> dict[str, object]:
        """The first record of a launch: what runs, on what, with what."""
        runtime, config = self._opened.runtime, self._opened.config
        table = {**self._kept.table, "train": {"epochs": self._count, **self._kept.table["train"]}}
        folds = "fold" if self._laid.facts.folds else "expand"
        exchange = "mixed" if self._laid.facts.mixed else "rows"
        options = {"name": config.scheme.name, "exchange": exchange, "backward": folds}
        how = {
            "scheme_options": options, "reduction": "mpi", "metric": self._metric,
            "config": table, "script": _script(),
        }  # fmt: skip
        packages = ("torch", "torch_geometric")
        start = opened_record(self._opened, how, self._warnings, packages)
        held = runtime.everyone.allgather((self._laid.plan.nown, self._laid.forward.nnz))
        rows, entries = zip(*held, strict=True)
        return start | {"of_ranks": {"rows": list(rows), "entries": list(entries)}}

    def _is_complete(self, count: int) -> bool:
        """Whether the run in the folder had ended, with as many epochs or early."""
        found = self._found
        if found is None or found.path.parent != self.folder / files.FOLDER:
            return False
        try:
            before = read_run(self.folder)
        except UserError:
            return False
        wanted = before.start.get("config", {}).get("train", {}).get("epochs")
        end = before.end or {}
        return bool(end) and len(before.epochs) == self.epoch and wanted == count

    def _enter(self, number: int) -> None:
        """Begin an epoch: count and time what follows as its own."""
        runtime = self._opened.runtime
        self._open, self._signal, self._due = number, 0, False
        self._of_epoch = contextlib.ExitStack()
        self._of_epoch.enter_context(runtime.traffic.during("train", number))
        self._of_epoch.enter_context(runtime.phases("other"))
        self._since = time.perf_counter()

    def _wanted(self, epoch: int) -> int:
        """The epoch that may be logged, if it is this one."""
        if self._open is None:
            raise UserError("run.log was called outside of run.epochs", LOOP)
        if epoch != self._open:
            raise UserError(f"run.log was called with epoch {epoch} in epoch {self._open}", LOOP)
        if self.epoch == epoch:
            raise UserError(f"run.log was called twice in epoch {epoch}", LOOP)
        return epoch

    def _leave(self, early: bool = False) -> None:
        """End an epoch: a checkpoint, if it is due; ``early``: the loop was left in it."""
        comm, number, self._open = self._comm, self._open, None
        assert number is not None
        assert self._write is not None
        self._of_epoch.close()
        if not early:
            self._moves.ranks.every.together("the next epoch of a run")
        logged = self.epoch == number
        if early and not logged:  # then it ends with the epoch before
            number = self.epoch
        with agreed(comm):
            if not (logged or early):
                raise UserError(f"rank {comm.rank} did not call run.log in epoch {number}", LOOP)
        if not number:
            return  # which is an error, and told at the end
        last = early or number == self._count
        if last or self._signal or self._samples.due(number):
            self._sample()
        if not (last or self._signal or self._due):
            return
        path = self._save()
        if self._signal and not last:
            end = {"epoch": number, "signal": self._signal, "checkpoint": path.name}
            self._write("stop", **end, samples=self._samples.taken)
            if comm.rank == 0:
                line = f"stopped as asked after epoch {number}; the same command goes on"
                print(line, file=sys.stderr)
            raise Stopped.on(comm)

    def _sample(self) -> None:
        if self._sampled < self.epoch:
            self._samples.take(self.epoch)
            self._sampled = self.epoch

    def _save(self) -> Path:
        runtime, write, comm = self._opened.runtime, self._write, self._comm
        assert write is not None
        with runtime.phases.as_one("checkpoint"), runtime.traffic.during("checkpoint"):
            moved = from_root(comm, write.restore)
            facts = {"best": {"epoch": self._best.epoch, "value": self._best.value}}
            path = self._kept.save(self.folder, self._best_weights, facts, self._history)
        check_there(comm, moved, self.folder, path)
        self._saved = time.perf_counter()
        return path

    def _finish(self) -> None:
        """End the run: weights, and the last record."""
        if self._open is not None:
            self._leave(early=True)
        comm, write = self._comm, self._write
        with agreed(comm):
            if write is None or not self._epochs:
                raise UserError(f"the run in {self.folder} has no epoch: run.log wrote none", LOOP)
        assert write is not None
        if self._asked.metric and not self._best.epoch and comm.rank == 0:
            print(f"warning: no epoch was logged with val_{self._metric}", file=sys.stderr)
        from_root(comm, self._write_weights)
        predicted = self._moves.predicted("train")
        counted = self._opened.runtime, self._count, self._epochs, self._before, self._best
        end = counted_record(*counted, predicted, {})
        write("end", **end, samples=self._samples.taken)
        with contextlib.suppress(UserError):  # it is complete, wherever it is
            write.restore()

    def _write_weights(self) -> None:
        write_weights(self.folder / LAST, self._kept.weights())
        if self._best_weights is not None:
            write_weights(self.folder / BEST, self._best_weights)


def _table(opened: Opened, asked: Asked) -> dict[str, object]:
    """The configuration of a record: keys that are obeyed, and the settings of the script."""
    table, train = table_of(opened.config), opened.config.train
    try:
        settings = json.loads(json.dumps(asked.settings, default=to_json))
    except (TypeError, ValueError) as error:
        raise UserError(
            f"config cannot be recorded: {error}", "give numbers, texts, lists and dicts of them"
        ) from error
    return plain({
        **{name: table[name] for name in SECTIONS},
        "train": {
            "seed": train.seed, "split": train.split, "checkpoint_every": asked.checkpoint_every,
            "checkpoint_minutes": asked.checkpoint_minutes,
        },
        "script": settings,
    })  # fmt: skip


def _script() -> dict[str, object] | None:
    """The program that runs: its file and its lines; None at a prompt."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace") if file else None
    except OSError:
        return None
    return None if text is None else {"file": str(file), "lines": text.splitlines()[:LONGEST]}


def _values(
    epoch: int, loss: object, metrics: Mapping[str, object]
) -> tuple[float, dict[str, float | None]]:
    """Loss and metrics as the record has them."""
    found: dict[str, float | None] = {}
    for name, value in metrics.items():
        if not is_metric(name):
            raise UserError(
                f"run.log: {name!r} is no name of a metric",
                "names are of a mask and a metric, such as val_accuracy, val_loss, train_mae",
            )
        number = None if value is None else _number(name, value)
        found[name] = number if number is not None and math.isfinite(number) else None
    loss = _number("loss", loss)
    if not math.isfinite(loss):
        raise UserError(f"the loss is {loss} in epoch {epoch}", "lower the learning rate")
    return loss, found


def _number(name: str, value: Any) -> float:
    try:
        return float(value.detach() if isinstance(value, torch.Tensor) else value)
    except (RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"run.log: {name} is {value!r:.80}, not a number") from error
