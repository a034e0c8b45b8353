"""The method of a graph that begins a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import torch

from gcnmpi.run.opening import Opened
from gcnmpi.schemes.p2p import Laid
from gcnmpi.torch.agreement import Agreement
from gcnmpi.torch.alone import warned
from gcnmpi.torch.eager import eager
from gcnmpi.torch.kept import Keeps
from gcnmpi.torch.moves import Moves
from gcnmpi.torch.ranks import Ranks
from gcnmpi.torch.run import Asked, Run, running


class Runs:
    """A graph with ``run``: it has what was opened, its rows of M, and what moves rows."""

    _opened: Opened
    _laid: Laid
    _moves: Moves
    _ranks: Ranks
    _agreement: Agreement

    @eager
    def run(
        self,
        out: str | os.PathLike | None,
        model: torch.nn.Module,
        optimizer: Keeps | None = None,
        *,
        config: Mapping[str, object] | None = None,
        metric: str | None = None,
        resume: str = "auto",
        checkpoint_every: int = 0,
        checkpoint_minutes: float = 15.0,
        log: str = "",
        progress: bool = True,
        **others: Keeps,
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
        asked = Asked(
            None if out is None else Path(out), kept,
            dict(config or {}), metric, resume, checkpoint_every, checkpoint_minutes, log, progress,
        )  # fmt: skip
        return running(self._opened, self._laid, self._moves, asked)
