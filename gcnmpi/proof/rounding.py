"""The effect of ``comm.precision``: a run with rounded messages beside the exact one.

Everything else that ``verify`` checks, it checks with exact messages, as tightly as ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gcnmpi.core.precision import FORMATS
from gcnmpi.mpi.comm import Comm, reduce_in_place
from gcnmpi.options.config import Config
from gcnmpi.proof.checks import Check, traffic_checks
from gcnmpi.run.problem import open_problem
from gcnmpi.run.trainer import Result, Step, train


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
    result, step = train(problem), Step(problem)
    with problem.runtime.traffic.during("train", epoch=1):
        rounded = problem.runtime.kernel.to_host(step.gradient(1)[1]).astype(np.float64)
    squares = np.array([np.square(rounded - gradient).sum(), np.square(gradient).sum()])
    reduce_in_place(comm, squares)
    return list(_checks(config, result, exact, float(squares[0]), float(squares[1])))


def _checks(
    config: Config, result: Result, exact: Result, changed: float, size: float
) -> Iterator[Check]:
    name = config.comm.precision
    how, tolerances = FORMATS[name], TOLERANCES[name]
    measured = [(e["error"], how.error(e["width"])) for e in result.end["rounding"]]
    error, bound = max(measured, key=lambda one: one[0] / one[1], default=(0.0, 0.0))
    exchanges = f"{name}, {len(measured)} exchanges of the first and the last epoch"
    yield Check("rounded rows", error, bound, exchanges)
    yield Check("rounded gradient", (changed / (size or 1.0)) ** 0.5, tolerances.gradient)
    loss, expected = (run.epochs[-1].loss for run in (result, exact))
    note = f"{loss:.6g} after {len(result.epochs)} epochs, exact {expected:.6g}"
    yield Check("rounded loss", abs(loss - expected) / abs(expected or 1.0), tolerances.loss, note)
    yield from traffic_checks(result.end, "rounded ")
