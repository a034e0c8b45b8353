"""The best epoch so far, and whether it is time to stop: by the validation metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gcnmpi.options.task import is_better
from gcnmpi.run.record import Epoch


@dataclass(frozen=True)
class Best:
    """The epoch with the best validation metric so far, the first of equals."""

    metric: str
    epoch: int = 0  # 0: there is none
    value: float | None = None  # of the metric

    def after(self, epoch: Epoch) -> Best:
        """The best after another epoch: that one, or this."""
        value = epoch.of("val", self.metric)
        better = is_better(self.metric, value, self.value)
        return Best(self.metric, epoch.epoch, value) if better else self

    def facts(self) -> dict[str, object]:
        """Epoch and value, for the manifest of a checkpoint."""
        return {"epoch": self.epoch, "value": self.value}


def stops_early(patience: int, best: Best, epoch: int) -> bool:
    """Whether an epoch is the last: nothing better was seen for ``patience`` epochs; 0: never.

    It depends on what is recorded of the epochs and on nothing else: all ranks decide alike, and
    so does a run that was resumed.
    """
    return patience > 0 and epoch - best.epoch >= patience


FAR = 10.0  # times the loss of the first epoch


def diverged(epochs: Sequence[Epoch], lr: float) -> str | None:
    """A warning about a run whose loss rose far above its first value; None of any other."""
    if not epochs or not 0 < FAR * epochs[0].loss < epochs[-1].loss:
        return None
    first, last = epochs[0], epochs[-1]
    return (
        f"the loss rose from {first.loss:,.6g} in epoch {first.epoch} to {last.loss:,.6g} in epoch "
        f"{last.epoch}: the run diverged, lower train.lr, which is {lr:g}"
    )
