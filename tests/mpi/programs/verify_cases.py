"""Under mpirun: ``verify`` on sound cases, and on ones with a fault put in.

Cases (see cases.py): {"graph", "partition", "settings"}, and perhaps "fault", the name of one, and
"directions" of finite differences → {"code", "missed": names of the checks that missed, "checks":
all of them}. Without directions, the oracle's gradient has to do, and the steps of an optimizer are
looked at once for all cases.
"""

import contextlib
import dataclasses
import functools
from unittest import mock

import numpy as np

from gcnmpi.core.timing import Traffic
from gcnmpi.core.volume import Volume
from gcnmpi.halo.product import HaloProduct
from gcnmpi.halo.rows import BroadcastHalo
from gcnmpi.layout import placing
from gcnmpi.nn import loss
from gcnmpi.nn.model import Model
from gcnmpi.options.config import load_config
from gcnmpi.options.kernel import KERNELS, resolve
from gcnmpi.proof import verify as proof
from gcnmpi.schemes.row_scheme import RowScheme

WEIGHT, KERNEL = "convs.0.lin.weight", KERNELS.get(resolve("auto")[0])


def of_case(comm, case):
    config = load_config(None, ("dtype=float64",), over=case["settings"])
    fault = contextlib.nullcontext()
    if case.get("fault", "nothing") != "nothing":  # the case itself has one
        holder, name, make = FAULTS[case["fault"]]
        fault = mock.patch.object(holder, name, make(getattr(holder, name), comm))
    directions = case.get("directions")
    changed = {"DIRECTIONS": directions} if directions else LIGHT
    with fault, mock.patch.multiple(proof, **changed):
        found = proof.verify(comm, case["graph"], case["partition"], config)
    names = [check.name for check in found.checks]
    missed = [check.name for check in found.checks if not check.ok]
    return {"code": int(not found.ok), "missed": missed, "checks": names}


steps_apart = proof.steps_apart
steps_of = functools.cache(lambda kind, dtype, config: steps_apart(kind(dtype), config))
LIGHT = {
    "TOLERANCES": {d: dataclasses.replace(t, difference=0) for d, t in proof.TOLERANCES.items()},
    "steps_apart": lambda kernel, config: steps_of(type(kernel), kernel.dtype, config),
}

# Each is given what it takes the place of, and the communicator.


def fold_overwrites(fold, comm):
    """Rows that several ranks contribute to keep the last contribution only."""

    def overwriting(self, matrix, x, out, epilogue):
        fold(self, matrix, x, out, epilogue)
        out[self._plan.send_rows] = self._exchange_of(x).packed

    return overwriting


def not_counted(rank, lost, purposes):
    """The rank loses it in every exchange for one of these purposes, and rank 0 gains it."""

    def make(count, comm):
        def short(self, volume, purpose=None):
            more = (comm.rank == 0) - (comm.rank == rank)
            counts = self.purpose in purposes and purpose is None
            count(self, volume + lost * more if counts else volume, purpose)

        return short

    return make


def fold_of_halo_twice(fold, comm):
    def doubled(self, gradient, out):
        fold(self, gradient, out)
        out *= 2

    return doubled


def row_too_many(by_owner, comm):
    """One rank asks for a row of another that it does not need: harmless, but not minimal."""

    def greedy(halo, parts):
        foreign = np.setdiff1d(np.flatnonzero(parts != comm.rank), halo)
        more = foreign[: int(comm.rank == 2)].astype(halo.dtype)
        return by_owner(np.sort(np.append(halo, more)), parts)

    return greedy


def other_initial_weight(initial, comm):
    def perturbed(self):
        for name, array in initial(self):
            array = np.array(array)
            array.flat[0] += 1e-6 * (name == WEIGHT)
            yield name, array

    return perturbed


def gradient_counted_twice(backward, comm):
    """Every rank's contribution to the first weight counted once more for each other rank."""

    def scaled(self, epoch):
        backward(self, epoch)
        self.gradients[WEIGHT][...] *= comm.size

    return scaled


def stepping(change):
    return lambda step, comm: (
        lambda self, of: step(self, dataclasses.replace(of, **change(self, of)))
    )


def reversed_rows(original, comm):
    return lambda self, place, rows, width: original(self, place, rows[::-1].copy(), width)


def one_more_right(count, comm):
    return lambda *given: count(*given) + (comm.rank == 0)


def loss_of_rank_zero(call, comm):
    return lambda self, logits, grad: call(self, logits, grad) * (comm.rank == 0)


BOTH = ("train", "eval")
FAULTS = {
    "fold_overwrites": (HaloProduct, "_fold", fold_overwrites),
    "fold_of_halo_twice": (BroadcastHalo, "fold", fold_of_halo_twice),
    "byte_not_counted": (Traffic, "count", not_counted(1, Volume(1), BOTH[:1])),
    "message_not_counted": (Traffic, "count", not_counted(2, Volume(messages=1), BOTH)),
    "reading_not_counted": (Traffic, "count", not_counted(2, Volume(shared=1), BOTH)),
    "row_too_many": (placing, "by_owner", row_too_many),
    "other_initial_weight": (Model, "_initial", other_initial_weight),
    "gradient_counted_twice": (Model, "backward", gradient_counted_twice),
    "rows_not_in_original_order": (RowScheme, "original", reversed_rows),
    "one_more_right": (loss.RightPredictions, "__call__", one_more_right),
    "adam_without_correction": (KERNEL, "adam_step", stepping(lambda self, of: {"step": 1000})),
    # Steps in float32 of a relative error that a curve in float32 would not show.
    "adam_wrong_in_float32": (KERNEL, "adam_step", stepping(
        lambda self, of: {"lr": of.lr * (1 + 5e-6 * (self.dtype == np.float32))})),
    "loss_of_rank_zero": (loss.SoftmaxCrossEntropy, "__call__", loss_of_rank_zero),
}  # fmt: skip
