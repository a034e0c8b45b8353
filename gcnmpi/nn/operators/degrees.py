"""Rows of vertices scaled by functions of their degree, the number of arcs into them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gcnmpi.core.functions import SCALERS
from gcnmpi.kernels.interface.arcs import Reduction
from gcnmpi.kernels.interface.kernel import Kernel, Pattern
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.program import Instruction, Step
from gcnmpi.nn.tape import Rule, one_step


@dataclass(frozen=True)
class ScaleByDegree(Operator):
    """y[i] = f(dᵢ)·x[i] or f(dᵢ)·x[i] / mean, with dᵢ the number of entries of row i of M.

    ``kind`` is one of ``core.functions.SCALERS``, which says what f is and which of the two means
    it takes: of the degree or of its logarithm, log(d + 1), (1,) each, over all vertices of the
    graph that the network was made for. They are kept with the weights and not trained.
    """

    kind: str = ""
    linear: str = ""
    logarithm: str = ""
    reads = ("linear", "logarithm")
    title = "scale by degree"

    @property
    def mean(self) -> str:
        """The parameter of the two that counts."""
        return {"degree": self.linear, "log degree": self.logarithm}[SCALERS[self.kind].average]


def degrees_of(kernel: Kernel, pattern: Pattern) -> np.ndarray:
    """How many entries each row has, (rows,) float64, on the host."""
    ones, found = kernel.empty(pattern.entries, 1), kernel.empty(pattern.rows, 1)
    ones.fill(1)
    kernel.reduce_targets(Reduction(pattern, ("sum",), ones, found))
    return kernel.to_host(found).reshape(-1).astype(np.float64)


def _scale_by_degree(scale: ScaleByDegree, binding: Binding, step: Step) -> Run:
    """The value, and the gradient from that of the value."""
    kernel, scaler = binding.kernel, SCALERS[scale.kind]
    x, out, mean = binding.read(step), binding.written(step), binding.parameters[scale.mean]
    rows = scaler.of(degrees_of(kernel, binding.pattern(step)))[:, np.newaxis]
    of_rows = binding.kept(step, "rows", lambda: kernel.from_host(rows))
    factors = binding.kept(step, "factors", lambda: kernel.empty(len(rows), 1))

    def run(epoch: int) -> None:
        kernel.scale(of_rows, 0.0, factors, 1 / mean if scaler.divides else mean)
        kernel.scale_heads(factors, x, out)

    return run


SCALE_BY_DEGREE = Instruction(
    "scale_by_degree",
    _scale_by_degree,
    passes=2,
    kept=lambda step, rows, *_: 2 * rows,
    visits=True,
)

RULES = {ScaleByDegree: Rule(SCALE_BY_DEGREE, one_step(SCALE_BY_DEGREE), commutes=True)}
