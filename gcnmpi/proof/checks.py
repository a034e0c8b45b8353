"""Checks of a run against one serial process, of the bytes that it counted, and of rounding.

Where ``comm.precision`` rounds messages, such a run is beside the exact one. Everything else that
``verify`` checks, it checks with exact messages, as tightly as ever.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gcnmpi.core.precision import FORMATS
from gcnmpi.mpi.comm import Comm, reduce_in_place
from gcnmpi.options.config import Config, table_of
from gcnmpi.options.task import LINKS
from gcnmpi.run.links.step import LinkStep
from gcnmpi.run.problem import Problem, open_problem
from gcnmpi.run.record import End
from gcnmpi.run.trainer import Result, Step, train


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
class Tolerances:
    """How far a rounded run may be from the exact one, relative to its size.

    Wide enough for graphs of some dozen vertices, on which the errors of few rows do not cancel.
    """

    gradient: float
    loss: float


TOLERANCES = {
    "bf16": Tolerances(0.05, 0.01),
    "fp16": Tolerances(0.01, 0.002),
    "int8": Tolerances(0.1, 0.03),
}


def step_of(problem: Problem) -> Step | LinkStep:
    """The step of a full batch of the task."""
    return LinkStep(problem) if problem.config.task.name == LINKS else Step(problem)


def rounding_checks(
    comm: Comm,
    graph: str | os.PathLike,
    partition: str | None,
    config: Config,
    exact: Result,
    gradient: np.ndarray,
) -> list[Check]:
    """Train on all ranks with the precision of ``config``, which rounds messages.

    ``exact`` is the result of the same training with exact messages, and ``gradient`` this rank's
    flat gradient in the first epoch of that.
    """
    problem = open_problem(comm, graph, partition, config)
    result, step = train(problem), step_of(problem)
    with problem.runtime.traffic.during("train", epoch=1):
        rounded = problem.runtime.kernel.to_host(step.gradient(1)[1]).astype(np.float64)
    squares = np.array([np.square(rounded - gradient).sum(), np.square(gradient).sum()])
    reduce_in_place(comm, squares)
    changed, size = squares.tolist()
    apart = (changed / (size or 1.0)) ** 0.5
    tolerance = TOLERANCES[config.comm.precision].gradient
    of_gradient = Check("rounded gradient", apart, tolerance)
    return [of_gradient, *rounded_checks(config, result, exact)]


def rounded_checks(config: Config, result: Result, exact: Result) -> Iterator[Check]:
    """A run with rounded messages, held against the same one with exact ones."""
    name = config.comm.precision
    how, tolerances = FORMATS[name], TOLERANCES[name]
    measured = [(e.error, how.error(e.width)) for e in result.end.rounding or []]
    error, bound = max(measured, key=lambda one: one[0] / one[1], default=(0.0, 0.0))
    exchanges = f"{name}, {len(measured)} exchanges of the first and the last epoch"
    yield Check("rounded rows", error, bound, exchanges)
    loss, expected = (run.epochs[-1].loss for run in (result, exact))
    note = f"{loss:.6g} after {len(result.epochs)} epochs, exact {expected:.6g}"
    yield Check("rounded loss", abs(loss - expected) / abs(expected or 1.0), tolerances.loss, note)
    yield from traffic_checks(result.end, "rounded ")


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
