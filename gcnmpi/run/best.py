"""The best weights so far, and whether it is time to stop: by the validation metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.options.task import is_better
from gcnmpi.run.record import Epoch


@dataclass(frozen=True)
class Best:
    """The weights with the best validation metric so far, the first of equals."""

    metric: str
    epoch: int  # 0: there is none
    value: float | None  # of the metric
    # In the layout of ``model.parameters.flat``; None where nothing is validated
    flat: Array | None

    def after(self, epoch: Epoch, kernel: Kernel, flat: Array) -> Best:
        """The best after an epoch that left these weights, which are copied if they are."""
        if self.flat is None or not self.beaten_by(epoch):
            return self
        kernel.copy(flat, self.flat)
        return self.now(epoch)

    def beaten_by(self, epoch: Epoch) -> bool:
        """Whether an epoch has a better metric."""
        return is_better(self.metric, epoch.of("val", self.metric), self.value)

    def now(self, epoch: Epoch) -> Best:
        """The same, of this epoch."""
        return replace(self, epoch=epoch.epoch, value=epoch.of("val", self.metric))


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
