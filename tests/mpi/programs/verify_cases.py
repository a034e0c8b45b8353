"""Under mpirun: ``verify`` on sound cases, and on ones with a fault put in.

Cases (see cases.py): {"graph", "partition", "settings"}, and perhaps "fault", the name of one, and
"directions" where one of finite differences is not enough → {"code", "missed": names of the checks
that missed, "checks": all of them}.
"""

import contextlib
import dataclasses
from unittest import mock

import numpy as np

from gcnmpi.core.timing import Traffic
from gcnmpi.core.volume import Volume
from gcnmpi.halo.product import HaloProduct
from gcnmpi.layout import placing
from gcnmpi.nn import loss
from gcnmpi.nn.model import Model
from gcnmpi.options.config import load_config
from gcnmpi.options.kernel import KERNELS, resolve
from gcnmpi.proof import verify as proof
from gcnmpi.schemes.row_scheme import RowScheme

WEIGHT = "convs.0.lin.weight"


def of_case(comm, case):
    config = load_config(None, ("dtype=float64",), over=case["settings"])
    fault = FAULTS[case["fault"]](comm) if "fault" in case else contextlib.nullcontext()
    directions = mock.patch.object(proof, "DIRECTIONS", case.get("directions", 1))
    with fault, directions:
        found = proof.verify(comm, case["graph"], case["partition"], config)
    names = [check.name for check in found.checks]
    missed = [check.name for check in found.checks if not check.ok]
    return {"code": int(not found.ok), "missed": missed, "checks": names}


def wrapping(cls, name, make):
    """Replace ``cls.name`` by ``make(what it was)``."""
    return mock.patch.object(cls, name, make(getattr(cls, name)))


def fold_overwrites(comm):
    """Rows that several ranks contribute to keep the last contribution only."""

    def make(fold):
        def overwriting(self, matrix, x, out, epilogue):
            fold(self, matrix, x, out, epilogue)
            exchange = self._exchange_of(x)
            out[self._plan.send_rows] = exchange.packed

        return overwriting

    return wrapping(HaloProduct, "_fold", make)


def byte_not_counted(comm):
    def make(count):
        def short(self, volume, purpose=None):
            lost = comm.rank == 1 and self.purpose == "train" and purpose is None
            count(self, volume + Volume(-lost), purpose)

        return short

    return wrapping(Traffic, "count", make)


def not_counted(comm, lost):
    """Rank 2 loses something of every exchange but those before the first epoch."""

    def make(count):
        def short(self, volume, purpose=None):
            loses = comm.rank == 2 and self.purpose != "setup" and purpose is None
            count(self, volume + lost * -1 if loses else volume, purpose)

        return short

    return wrapping(Traffic, "count", make)


def message_not_counted(comm):
    return not_counted(comm, Volume(messages=1))


def reading_not_counted(comm):
    return not_counted(comm, Volume(shared=1))


def row_too_many(comm):
    """One rank asks for a row of another that it does not need: harmless, but not minimal."""
    by_owner = placing.by_owner

    def greedy(halo, parts):
        foreign = np.setdiff1d(np.flatnonzero(parts != comm.rank), halo)
        if comm.rank == 2:
            halo = np.sort(np.append(halo, foreign[:1].astype(halo.dtype)))
        return by_owner(halo, parts)

    return mock.patch.object(placing, "by_owner", greedy)


def other_initial_weight(comm):
    def make(initial):
        def perturbed(self):
            for name, array in initial(self):
                array = np.array(array)
                array.flat[0] += 1e-6 * (name == WEIGHT)
                yield name, array

        return perturbed

    return wrapping(Model, "_initial", make)


def gradient_counted_twice(comm):
    """Every rank's contribution to the first weight counted once more for each other rank."""

    def make(backward):
        def scaled(self, epoch):
            backward(self, epoch)
            self.gradients[WEIGHT][...] *= comm.size

        return scaled

    return wrapping(Model, "backward", make)


def rows_not_in_original_order(comm):
    def make(original):
        return lambda self, place, rows, width: original(self, place, rows[::-1].copy(), width)

    return wrapping(RowScheme, "original", make)


def one_more_right(comm):
    count = loss.RightPredictions.__call__

    def generous(*arguments):
        return count(*arguments) + (comm.rank == 0)

    return mock.patch.object(loss.RightPredictions, "__call__", generous)


def adam_without_correction(comm):
    def make(step):
        return lambda self, of: step(self, dataclasses.replace(of, step=1000))

    return wrapping(KERNELS.get(resolve("auto")[0]), "adam_step", make)


def adam_wrong_in_float32(comm):
    """Steps in float32 of a relative error that a curve in float32 would not show."""

    def make(step):
        def inexact(self, of):
            lr = of.lr * (1 + 5e-6 * (self.dtype == np.float32))
            step(self, dataclasses.replace(of, lr=lr))

        return inexact

    return wrapping(KERNELS.get(resolve("auto")[0]), "adam_step", make)


def loss_of_rank_zero(comm):
    def make(call):
        return lambda self, logits, grad: call(self, logits, grad) * (comm.rank == 0)

    return wrapping(loss.SoftmaxCrossEntropy, "__call__", make)


def nothing(comm):
    """No fault in the program: the case itself has one."""
    return contextlib.nullcontext()


FAULTS = {
    function.__name__: function
    for function in (
        fold_overwrites, byte_not_counted, message_not_counted, reading_not_counted, row_too_many,
        other_initial_weight, gradient_counted_twice, rows_not_in_original_order, one_more_right,
        adam_without_correction, adam_wrong_in_float32, loss_of_rank_zero, nothing,
    )
}  # fmt: skip
