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
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch

from gcnmpi.mpi.comm import agreed, check_same, from_root
from gcnmpi.mpi.launch import start_limit
from gcnmpi.options.config import table_of
from gcnmpi.options.requests import job_folder, parse_logs, run_name
from gcnmpi.report.progress import Progress
from gcnmpi.run import checkpoint_files as files
from gcnmpi.run.best import Best
from gcnmpi.run.checkpoint import plain
from gcnmpi.run.claims import Guard, Stopped, guarded
from gcnmpi.run.ledger import CheckpointRules, Ledger
from gcnmpi.run.opening import Opened
from gcnmpi.run.record import METRIC, Epoch, RanksRecord, Start, read_run
from gcnmpi.run.run_record import counted_record, opened_record, print_origin
from gcnmpi.torch.alone import warned
from gcnmpi.torch.functions import eager
from gcnmpi.torch.kept import CheckpointObjects, HasState, set_generators, write_weights
from gcnmpi.torch.state import GraphState
from partition.errors import UserError
from partition.records import to_json

PURPOSE = "a run of gcnmpi.torch"
_LAST, _BEST = "weights.pt", "best.pt"
_LOOP = "for epoch in run.epochs(200): …; run.log(epoch, loss=loss)"
ALIKE = "all ranks call it with the same arguments"
LONGEST = 20_000  # lines of a script that the record keeps
# Sections of the configuration that a graph of PyTorch obeys.
_SECTIONS = ("kernel", "dtype", "threads", "graph", "scheme", "loading", "comm")


@dataclass(frozen=True)
class _RunRequest:
    """A run as it is asked for: see :meth:`gcnmpi.torch.Graph.run`."""

    objects: Mapping[str, HasState]
    settings: Mapping[str, object]
    metric: str | None
    resume: str
    rules: CheckpointRules
    log: str
    progress: bool


class Runs(GraphState):
    """A graph with ``run``."""

    @eager
    def run(
        self,
        out: str | os.PathLike | None,
        model: torch.nn.Module,
        optimizer: HasState | None = None,
        *,
        config: Mapping[str, object] | None = None,
        metric: str | None = None,
        resume: str = "auto",
        checkpoint_every: int = 0,
        checkpoint_minutes: float = 15.0,
        log: str = "",
        progress: bool = True,
        **others: HasState,
    ) -> AbstractContextManager[Run]:
        """A context around a training loop: record, progress and checkpoints of ``gcnmpi train``.

        For all ranks together, with the same arguments::

            with g.run("runs/mine", net, optimizer) as run:
                for epoch in run.epochs(200):
                    …
                    run.log(epoch, loss=loss, **g.metrics(out))

        Parameters
        ----------
        out : path or None
            Folder of the run, made if need be. None: that of the job, in a script that ``gcnmpi
            submit`` has started, else ``runs/GRAPH-PARTITION-DATE``.
        model, optimizer, **others
            All that checkpoints keep: each has ``state_dict`` and ``load_state_dict``.
        config : mapping, optional
            Settings of the script, for the record.
        metric : str, optional
            ``val_METRIC`` chooses the best weights; by default "accuracy", of numbers "rmse".
        resume : str
            "auto": from the newest checkpoint in ``out``, else from the start; "never"; or the path
            of a checkpoint or of a run.
        checkpoint_every, checkpoint_minutes : int, float
            Epochs, and minutes, after which the next checkpoint is written; 0: none.
        log : str
            Logs of the epochs for other programs, "csv,tensorboard".

        Rank 0 warns of modules that train otherwise on each number of ranks, as ``g.check`` does;
        on all ranks a UserError, if their weights are not the same.

        A signal that asks for an end raises ``gcnmpi.Stopped`` after its epoch: exit code 75.
        """
        self._ranks.every.together("a run")
        self._agreement.check(model)
        warned(model, self._ranks.every.comm.rank)
        given = {"model": model, "optimizer": optimizer, **others}
        kept = {name: each for name, each in given.items() if each is not None}
        rules = CheckpointRules(checkpoint_every, checkpoint_minutes, at_end=True)
        asked = _RunRequest(kept, dict(config or {}), metric, resume, rules, log, progress)
        return _running(self, None if out is None else Path(out), asked)


@contextlib.contextmanager
def _running(graph: Runs, out: Path | None, asked: _RunRequest) -> Iterator[Run]:
    """The context of a run, with its locks and its watch."""
    opened = graph._opened
    comm, source = opened.runtime.everyone, opened.source
    with agreed(comm):
        logs, table = parse_logs(asked.log), _table(opened, asked)
        out = job_folder(out)
    words = {"folder": str(out), "resume": asked.resume, "config": table}
    check_same(comm, words | {"metric": asked.metric, "log": logs}, ALIKE)
    keeps = CheckpointObjects(opened, asked.objects, table)
    keeps.check()
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
        run = Run(out, graph, asked, keeps, guard, stack)
        yield run
        run._finish()


class Run:
    """A run in its folder, as ``with g.run(…) as run`` gives it.

    ``folder`` is that of the run.
    """

    def __init__(
        self,
        folder: Path,
        graph: Runs,
        asked: _RunRequest,
        keeps: CheckpointObjects,
        guard: Guard,
        stack: contextlib.ExitStack,
    ) -> None:
        self.folder = folder
        self._opened, self._laid, self._moves = graph._opened, graph._laid, graph._moves
        self._asked, self._keeps, self._guard, self._stack = asked, keeps, guard, stack
        self._comm = self._opened.runtime.everyone
        self._found, self._warnings = keeps.find(folder, asked.resume)
        self._generators = None if self._found is None else keeps.restore(self._found)
        manifest = self._opened.source.stored.manifest
        usual = "accuracy" if manifest.classes or not manifest.targets else "rmse"
        self._ledger = Ledger(
            self._opened, folder, keeps, asked.rules, self._found,
            Best(asked.metric or usual), guard.stop,
        )  # fmt: skip
        self._shown: Progress | None = None  # before the loop
        self._of_epoch = contextlib.ExitStack()
        self._open: int | None = None  # the epoch that has begun
        self._count, self._since = 0, 0.0  # epochs that are wanted; when this one began

    @property
    def epoch(self) -> int:
        """The last epoch that is complete; 0: there is none yet."""
        return len(self._ledger.epochs)

    @property
    def best_epoch(self) -> int:
        """The epoch of the best weights; 0: there is none yet."""
        return self._ledger.best.epoch

    def epochs(self, count: int) -> Iterator[int]:
        """Numbers of the epochs that are left of so many, from 1 in a run that begins.

        For all ranks together, and once in a run.
        """
        complete = self._begin(count)
        for number in range(self.epoch + 1, 0 if complete else count + 1):
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
        comm, ledger = self._comm, self._ledger
        self._moves.ranks.every.together("the log of an epoch")
        with agreed(comm):
            value, found = _values(self._wanted(epoch), loss, metrics)
        seconds = time.perf_counter() - self._since
        words = float(zlib.crc32(repr(found).encode()))
        high, low, one, other, seconds = ledger.agree(value, -value, words, -words, seconds)
        with agreed(comm):
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
        entry = Epoch(epoch, value, found, seconds)
        ledger.enter(entry)
        ledger.record()
        assert self._shown is not None
        self._shown.epoch(entry)

    def _begin(self, count: int) -> bool:
        """Open the record, for so many epochs; whether there is none left."""
        comm, found, asked, ledger = self._comm, self._found, self._asked, self._ledger
        with agreed(comm):
            if self._shown is not None:
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
            print_origin(found, self._warnings)
        ended = from_root(comm, lambda: self._is_complete(count))
        over = ended or self.epoch == count
        self._stack.enter_context(ledger.open(start, parse_logs(asked.log), over))
        if ended and comm.rank == 0:
            line = f"{self.folder} is complete: nothing is trained (resume='never' starts over)"
            print(line, file=sys.stderr)
        quiet = over or not asked.progress or comm.rank != 0
        folders = self._guard.claims.folders
        progress = Progress(self._opened, quiet, self._guard.moved, folders=folders)
        self._shown = self._stack.enter_context(progress)
        runtime = self._opened.runtime
        runtime.traffic.begin()
        runtime.phases.begin()
        self._moves.begin()
        if self._generators is not None:
            set_generators(self._generators)
        return over

    def _start(self) -> Start:
        """The first record of a launch: what runs, on what, with what."""
        runtime, config = self._opened.runtime, self._opened.config
        table = self._keeps.table
        table = {**table, "train": {"epochs": self._count, **table["train"]}}
        folds = "fold" if self._laid.facts.folds else "expand"
        exchange = "mixed" if self._laid.facts.mixed else "rows"
        options = {"name": config.scheme.name, "exchange": exchange, "backward": folds}
        how = {
            "scheme_options": options, "reduction": "mpi", "metric": self._ledger.best.metric,
            "config": table, "script": _script(),
        }  # fmt: skip
        packages = ("torch", "torch_geometric")
        start = opened_record(self._opened, how, self._warnings, packages)
        held = runtime.everyone.allgather((self._laid.plan.nown, self._laid.forward.nnz))
        rows, entries = zip(*held, strict=True)
        ranks = RanksRecord(rows=list(rows), entries=list(entries))
        return msgspec.structs.replace(start, of_ranks=ranks)

    def _is_complete(self, count: int) -> bool:
        """Whether the run in the folder had ended, with as many epochs or early."""
        found = self._found
        if found is None or found.path.parent != self.folder / files.FOLDER:
            return False
        try:
            before = read_run(self.folder)
        except UserError:
            return False
        same = len(before.epochs) == self.epoch and before.start.wanted_epochs == count
        return before.end is not None and same

    def _enter(self, number: int) -> None:
        """Begin an epoch: count and time what follows as its own."""
        runtime = self._opened.runtime
        self._open = number
        self._of_epoch = contextlib.ExitStack()
        self._of_epoch.enter_context(runtime.traffic.during("train", number))
        self._of_epoch.enter_context(runtime.phases("other"))
        self._since = time.perf_counter()

    def _wanted(self, epoch: int) -> int:
        """The epoch that may be logged, if it is this one."""
        if self._open is None:
            raise UserError("run.log was called outside of run.epochs", _LOOP)
        if epoch != self._open:
            raise UserError(f"run.log was called with epoch {epoch} in epoch {self._open}", _LOOP)
        if self.epoch == epoch:
            raise UserError(f"run.log was called twice in epoch {epoch}", _LOOP)
        return epoch

    def _leave(self, early: bool = False) -> None:
        """End an epoch: a checkpoint, if it is due; ``early``: the loop was left in it."""
        comm, number, self._open = self._comm, self._open, None
        self._of_epoch.close()
        if not early:
            self._moves.ranks.every.together("the next epoch of a run")
        with agreed(comm):
            if self.epoch != number and not early:
                raise UserError(f"rank {comm.rank} did not call run.log in epoch {number}", _LOOP)
        if not self.epoch:
            return  # which is an error, and told at the end
        last = early or number == self._count
        self._ledger.sample(last)
        if self._ledger.leave(last):
            if comm.rank == 0:
                line = f"stopped as asked after epoch {self.epoch}; the same command goes on"
                print(line, file=sys.stderr)
            raise Stopped.on(comm)

    def _finish(self) -> None:
        """End the run: weights, and the last record."""
        if self._open is not None:
            self._leave(early=True)
        comm, ledger = self._comm, self._ledger
        with agreed(comm):
            if not ledger.epochs or self._shown is None:
                raise UserError(f"the run in {self.folder} has no epoch: run.log wrote none", _LOOP)
        if self._asked.metric and not ledger.best.epoch and comm.rank == 0:
            print(f"warning: no epoch was logged with val_{ledger.best.metric}", file=sys.stderr)
        from_root(comm, self._write_weights)
        predicted = self._moves.predicted("train")
        counted = self._opened.runtime, self._count, ledger.epochs, ledger.before, ledger.best
        ledger.end(counted_record(*counted, predicted, {}))

    def _write_weights(self) -> None:
        write_weights(self.folder / _LAST, self._keeps.weights())
        if self._keeps.best is not None:
            write_weights(self.folder / _BEST, self._keeps.best)


def _table(opened: Opened, asked: _RunRequest) -> dict[str, object]:
    """The configuration of a record: keys that are obeyed, and the settings of the script."""
    table, train = table_of(opened.config), opened.config.train
    try:
        settings = json.loads(json.dumps(asked.settings, default=to_json))
    except (TypeError, ValueError) as error:
        raise UserError(
            f"config cannot be recorded: {error}", "give numbers, texts, lists and dicts of them"
        ) from error
    return plain({
        **{name: table[name] for name in _SECTIONS},
        "train": {
            "seed": train.seed, "split": train.split, "checkpoint_every": asked.rules.epochs,
            "checkpoint_minutes": asked.rules.minutes,
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
        if not METRIC.fullmatch(name):
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
