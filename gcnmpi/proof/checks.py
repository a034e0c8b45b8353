"""Checks of a run against one serial process, of the bytes that it counted, and of rounding.

Two need no serial run: the gradient is held against differences of the loss, and the steps of an
optimizer on a kernel against those of the oracle. In a run of float32, rounding errors of the
gradient would hide a small error of a step. So the gradients of steps are given, and the parameters
begin at 0: they are the sum of the steps.

Where ``comm.precision`` rounds messages, such a run is beside the exact one. Everything else that
``verify`` checks, it checks with exact messages, as tightly as ever.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from gcnmpi.core.precision import FORMATS
from gcnmpi.kernels.interface.kernel import Kernel
from gcnmpi.mpi.comm import Comm, reduce_in_place
from gcnmpi.nn.optim import Parameters, make_optimizer
from gcnmpi.options.config import Config, TrainConfig, table_of
from gcnmpi.proof.updates import UPDATES
from gcnmpi.run.problem import Problem, open_problem
from gcnmpi.run.record import End
from gcnmpi.run.step import Step
from gcnmpi.run.trainer import Result, train


@dataclass(frozen=True)
class Check:
    """One check: it passes if ``measured`` ≤ ``tolerance``, so never as NaN."""

    name: str
    measured: float
    tolerance: float
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether the check passes."""
        return bool(self.measured <= self.tolerance)


@dataclass(frozen=True)
class Verified:
    """The facts of a run, as ``gcnmpi verify --json`` gives them, and its checks.

    On other ranks than 0 the facts are empty.
    """

    facts: Mapping[str, Any]
    checks: list[Check]

    @property
    def ok(self) -> bool:
        """Whether every check passes."""
        return all(check.ok for check in self.checks)


STEPS = 50  # that an optimizer makes by itself
STEPS_TOLERANCES = {"float64": 1e-12, "float32": 2e-6}
_NAME, _SHAPE = "1.weight", (64, 5)
# Each predicted number, and the field of the record that counts it.
_COUNTED = {
    "bytes": "bytes_sent",
    "received": "bytes_received",
    "messages": "messages_sent",
    "shared": "shared_bytes",
}


def traffic_checks(end: End, run: str = "") -> Iterator[Check]:
    """Counted against predicted: the largest difference of a rank, from a run's last record.

    ``run`` is the name of the run in those of the checks.
    """
    for purpose, prefix in (("training", ""), ("evaluation", "eval_")):
        for what, counted in _COUNTED.items():
            sent, predicted = end[f"{prefix}{counted}"], end[f"{prefix}{what}_predicted"]
            errors = [abs(s - p) for s, p in zip(sent, predicted, strict=True)]
            yield Check(f"{run}{purpose} {what}", max(errors), 0, f"{sum(sent):,} by all ranks")


@dataclass(frozen=True)
class _Rounding:
    """How far a rounded run may be from the exact one, relative to its size.

    Wide enough for graphs of some dozen vertices, on which the errors of few rows do not cancel.
    """

    gradient: float
    loss: float


ROUNDED = {
    "bf16": _Rounding(0.05, 0.01),
    "fp16": _Rounding(0.01, 0.002),
    "int8": _Rounding(0.1, 0.03),
}


def rounding_checks(
    comm: Comm,
    graph: str | os.PathLike,
    partition: str | None,
    config: Config,
    exact: Result,
    gradient: np.ndarray | None,
) -> list[Check]:
    """Train on all ranks with the precision of ``config``, which rounds messages.

    ``exact`` is the result of the same training with exact messages, and ``gradient`` this rank's
    flat gradient in the first epoch of that, if it is to be compared.
    """
    problem = open_problem(comm, graph, partition, config)
    result, name, found = train(problem), config.comm.precision, []
    how, tolerances = FORMATS[name], ROUNDED[name]
    if gradient is not None:
        step = Step(problem)
        with problem.runtime.traffic.during("train", epoch=1):
            rounded = problem.runtime.kernel.to_host(step.gradient(1)[1]).astype(np.float64)
        squares = np.array([np.square(rounded - gradient).sum(), np.square(gradient).sum()])
        reduce_in_place(comm, squares)
        changed, size = squares.tolist()
        apart = (changed / (size or 1.0)) ** 0.5
        found.append(Check("rounded gradient", apart, tolerances.gradient))
    measured = [(e.error, how.error(e.width)) for e in result.end.rounding or []]
    error, bound = max(measured, key=lambda one: one[0] / one[1], default=(0.0, 0.0))
    exchanges = f"{name}, {len(measured)} exchanges of the first and the last epoch"
    found.append(Check("rounded rows", error, bound, exchanges))
    loss, expected = (run.epochs[-1].loss for run in (result, exact))
    note = f"{loss:.6g} after {len(result.epochs)} epochs, exact {expected:.6g}"
    apart = abs(loss - expected) / abs(expected or 1.0)
    found.append(Check("rounded loss", apart, tolerances.loss, note))
    return [*found, *traffic_checks(result.end, "rounded ")]


def loss_curve(result: Result, expected: Sequence[float], tolerance: float) -> Check:
    """The losses of a run beside those of the serial one."""
    losses = [epoch.loss for epoch in result.epochs]
    errors = [distance(a, b) for a, b in zip(losses, expected, strict=True)]
    note = f"{len(losses)} epochs, {losses[0]:.6g} to {losses[-1]:.6g}"
    return Check("loss curve", worst(errors), tolerance, note)


def of_each(
    name: str, got: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], tolerance: float
) -> Check:
    """Each array relative to its own size, but for one that is nothing but rounding errors."""
    floor = 1e-5 * max(size(array) for array in expected.values())
    errors = {key: distance(got[key], expected[key], floor) for key in expected}
    note = f"largest in {max(errors, key=lambda key: errors[key])}"
    return Check(name, worst(errors.values()), tolerance, note)


def facts_of(problem: Problem, result: Result) -> dict[str, object]:
    """The facts of a run that is verified: on what, and with what."""
    config = problem.config
    return {
        "graph": problem.source.stored.manifest.name,
        "graph_id": problem.source.stored.manifest.id,
        "partition": None if problem.source.partition is None else problem.source.partition.name,
        "ranks": problem.runtime.everyone.size,
        "scheme": problem.scheme.describe(),
        "kernel": problem.runtime.kernel.name,
        "dtype": config.dtype,
        "direction": problem.source.direction,
        "orders": result.end.orders,
        "config": table_of(config),
        "warnings": list(problem.warnings),
        "machine": list(problem.machine),
    }


def distance(got: ArrayLike, expected: ArrayLike, floor: float = 0.0) -> float:
    """Largest difference, relative to the largest entry expected; NaN if a NaN is among them."""
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    if got.shape != expected.shape:
        return math.inf
    return size(got - expected) / (max(size(expected), floor) or 1.0)


def size(array: np.ndarray) -> float:
    """The largest of the absolute numbers."""
    return float(np.max(np.abs(array), initial=0.0))


def worst(errors: Iterable[float | np.floating]) -> float:
    """The largest error; 0 without any."""
    return float(np.max(list(errors), initial=0.0))


def finite_differences(
    problem: Problem,
    step: Step,
    tolerance: float,
    directions: int = 4,
    tries: int = 12,
    h: float = 1e-7,
) -> float:
    """Largest relative error of the gradient along a few directions in the space of weights.

    Central differences of the loss of epoch 1 at the initial weights plus noise (where biases are
    0, vertices without neighbours would sit exactly on the kink of ReLU). A direction is the
    gradient with random positive factors, so that what is to be measured stands out from
    rounding errors, plus as much of a random vector, as long as the weights themselves.

    The loss is smooth but where an activation changes its sign. A direction along which the
    differences at h and h/2 disagree has met such a kink and is replaced; infinity is returned
    if too many do.
    """
    model, generator = step.model, np.random.default_rng(1)
    initial = model.whole(model.parameters.flat)
    names, sizes = list(initial), [array.size for array in initial.values()]
    parameters = model.network.parameters
    trained = np.repeat(
        [name not in parameters or parameters[name].trained for name in names], sizes
    )

    def at(point: np.ndarray) -> tuple[float, np.ndarray]:
        pieces = np.split(point, np.cumsum(sizes)[:-1])
        state = {n: p.reshape(initial[n].shape) for n, p in zip(names, pieces, strict=True)}
        model.load_state(state)
        loss, flat = step.gradient(1)
        # All ranks decide on the very same number.
        return problem.runtime.comm.bcast(float(loss)), _flat(model.whole(flat))

    start = _flat(initial)
    start = start + trained * 0.1 * np.sqrt(np.mean(start**2)) * generator.standard_normal(
        len(start)
    )
    _, gradient = at(start)
    worst, found = 0.0, 0
    for _ in range(tries):
        ascent = gradient * generator.uniform(0, 2, len(start))
        noise = trained * generator.standard_normal(len(start))
        towards = _unit(ascent) + _unit(noise)
        towards *= np.linalg.norm(start) / np.linalg.norm(towards)
        slopes = [
            (at(start + s * towards)[0] - at(start - s * towards)[0]) / (2 * s) for s in (h, h / 2)
        ]
        expected = float(gradient @ towards)
        scale = abs(expected) + np.finfo(float).tiny
        # Tighter than what passes, so that a kink is not taken for an error.
        if abs(slopes[0] - slopes[1]) > 0.5 * tolerance * scale:
            continue
        worst, found = max(worst, float(abs(slopes[1] - expected) / scale)), found + 1
        if found == directions:
            return worst
    return math.inf


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / (np.linalg.norm(vector) or 1.0)


def _flat(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([array.ravel() for array in arrays.values()])


def steps_apart(kernel: Kernel, config: TrainConfig) -> float:
    """How far the parameters are from the oracle's after 50 steps, relative to the largest one.

    Infinity, or NaN, where a parameter is no number but the oracle's are.
    """
    config = replace(config, weight_decay_layers="all", weight_decay_convs=0.0)
    parameters = Parameters(kernel, {}, {_NAME: _SHAPE})
    step = make_optimizer(kernel, parameters, {_NAME: config.weight_decay}, config).step
    update = UPDATES[config.optimizer](config)
    expected = {_NAME: np.zeros(_SHAPE)}
    for gradient in _gradients(kernel.dtype):
        mine = kernel.empty(gradient.size)
        kernel.copy(kernel.from_host(gradient.ravel()), mine)
        step(mine, config.lr)
        expected = update(expected, {_NAME: gradient}, config.lr)
    found = np.asarray(kernel.to_host(parameters[_NAME]), np.float64)
    size = np.abs(expected[_NAME]).max()
    return float(np.abs(found - expected[_NAME]).max() / (size or 1.0))


def _gradients(dtype: DTypeLike) -> np.ndarray:
    """Of sizes that differ from entry to entry and fall from step to step, exact in ``dtype``."""
    random = np.random.default_rng(0)
    sizes = 10.0 ** random.uniform(-4, 0, _SHAPE) * 0.98 ** np.arange(STEPS)[:, None, None]
    return (sizes * (random.standard_normal((STEPS, *_SHAPE)) + 0.5)).astype(dtype).astype(float)
