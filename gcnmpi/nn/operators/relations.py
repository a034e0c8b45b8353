"""Linear maps of rows of several kinds, such as arcs of relations, each with its own weight.

And the means of neighbours by the arcs of some relations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.kernels.interface.kinds import KindProduct, Kinds, kinds_of
from gcnmpi.layout.place import Space
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.operators.spaces import rows_of_type
from gcnmpi.nn.program import Instruction, Step
from gcnmpi.nn.tape import Rule, Tape, one_step


@dataclass(frozen=True)
class LinearBy(Operator):
    """y[e] = x₂[e]·W(x₁[e]), with x₁ (rows, 1) the kind of each row, an integer below ``kinds``.

    Kind k has the k-th of the matrices of ``weight``, which are on top of each other:
    (kinds · inner, width). With ``mix``, (kinds, bases), its matrix is Σ mix[k, b]·V(b), and
    ``weight`` has those of V (Schlichtkrull et al. 2018, equation 3). With ``blocks``, a matrix has
    so many on its diagonal and zeros elsewhere, and these are on top of each other, (inner, width /
    blocks) (equation 4).
    """

    kinds: int = 1
    weight: str = ""
    mix: str = ""
    blocks: int = 1
    reads = ("weight", "mix")
    title = "linear by kind"
    told = "kinds {kinds} blocks {blocks}"


@dataclass(frozen=True)
class ScaleBy(Operator):
    """y[e] = f(x₁[e])·x₂[e], with x₁ (rows, 1) the kind of each row and f a number of each kind."""

    factors: tuple[float, ...] = ()
    title = "scale by kind"

    @property
    def words(self) -> str:
        """With the number of each kind."""
        return f"scale by kind {' '.join(f'{factor:.6g}' for factor in self.factors)}"


WHILE_MADE = 7  # numbers of 4 bytes of an entry: its place twice, its value, and its column


@dataclass(frozen=True)
class MeanOf(Operator):
    """y[i] = Σ over relations r of ``which`` of the mean of x[j] over the arcs of r from j to i.

    0 where there are none. ``relations`` says how many the graph has. The rows ``to`` are those of
    all vertices, or of the vertices of the type of that number.
    """

    which: tuple[int, ...] = ()
    relations: int = 1
    to: Space = Space.OWN
    type: int | None = None
    title = "mean of"

    @property
    def gives(self) -> Space:
        """The rows that ``to`` says."""
        return self.to

    @property
    def words(self) -> str:
        """With the relations, and the type of the rows that it gives."""
        of_type = "" if self.type is None else f" to type {self.type}"
        return f"mean of relations {' '.join(map(str, self.which))}{of_type}"


def _gradient(tape: Tape, number: int, gradient: int) -> None:
    kinds, x = tape.operators[number].inputs
    tape.of_parameters(LINEAR_BY_GRAD, number, (kinds, x, gradient))
    if tape.wanted[x]:
        tape.contribute(x, tape.step(LINEAR_BY_T, number, (kinds, gradient), like=x))


def _scale_gradient(tape: Tape, number: int, gradient: int) -> None:
    kinds, x = tape.operators[number].inputs
    if tape.wanted[x]:
        tape.contribute(x, tape.step(SCALE_BY, number, (kinds, gradient), like=x))


def _mean_of(mean: MeanOf, binding: Binding, step: Step) -> Run:
    """Forward M·x, backward Mᵀ·g, of the matrix of means over the arcs of these relations."""
    kernel, halo, back = binding.kernel, binding.halo(step), step.instruction is MEAN_OF_T
    x, out = binding.read(step), binding.written(step)

    def made() -> Any:
        matrix = halo.patterns.means(mean.which)
        if mean.to is Space.OF_TYPE:
            matrix = matrix[rows_of_type(binding)]
        return kernel.sparse(matrix.T.tocsr() if back else matrix)

    matrix = binding.kept(step, step.name, made)

    def run(epoch: int) -> None:
        with halo.phases("spmm"):
            kernel.spmm(matrix, x, out)

    return run


def _linear_by(linear: LinearBy, binding: Binding, step: Step) -> Run:
    """Forward x·W, backward g·Wᵀ, of the weight of each row's kind."""
    weights, made = _weights(linear, binding)
    given, out, kernel = binding.read(step, 1), binding.written(step), binding.kernel
    back = step.instruction is LINEAR_BY_T
    x, y = (out, given) if back else (given, out)
    product = KindProduct(_kinds(linear, binding, step), x, weights, y, linear.blocks)
    multiply = kernel.multiply_kinds_t if back else kernel.multiply_kinds
    phases = binding.halo(step).phases

    def run(epoch: int) -> None:
        with phases("gemm"):
            made()
            multiply(product)

    return run


def _linear_by_grad(linear: LinearBy, binding: Binding, step: Step) -> Run:
    """The gradients of the weights of all kinds, or of the mix and of what it mixes.

    They count on one copy of these rows.
    """
    kernel, counts = binding.kernel, binding.block(step).counts_entries
    of_weight = binding.gradients[linear.weight]
    x, grad, whole = binding.read(step, 1), binding.read(step, 2), of_weight
    if linear.mix:
        whole = binding.scratch("gradients of kinds", linear.kinds * x.shape[1], whole.shape[1])
        mix, of_mix = (of[linear.mix] for of in (binding.parameters, binding.gradients))
        weight = binding.parameters[linear.weight]
    product = KindProduct(_kinds(linear, binding, step), x, whole, grad, linear.blocks)
    phases = binding.halo(step).phases

    def run(epoch: int) -> None:
        with phases("gemm"):
            kernel.kinds_gradient(product)
            if not counts:
                whole.fill(0)
            if linear.mix:
                by_kind = _flat(whole, linear.kinds)
                kernel.gemm(by_kind, _flat(weight, mix.shape[1]), of_mix, tb=True)
                kernel.gemm(mix, by_kind, _flat(of_weight, mix.shape[1]), ta=True)

    return run


def _scale_by(scale: ScaleBy, binding: Binding, step: Step) -> Run:
    """Each row times the number of its kind; so is its gradient."""
    kernel, x, out = binding.kernel, binding.read(step, 1), binding.written(step)

    def made() -> Array:
        return kernel.from_host(np.array(scale.factors)[numbers_of(binding, step)][:, np.newaxis])

    factors = binding.kept(step, "factors", made)
    return lambda epoch: kernel.scale_heads(factors, x, out)


def numbers_of(binding: Binding, step: Step) -> np.ndarray:
    """The kind of each row, int64, which a step reads first."""
    return binding.kernel.to_host(binding.read(step))[:, 0].astype(np.int64)


def _kinds(linear: LinearBy, binding: Binding, step: Step) -> Kinds:
    """The rows of each kind, which are the same in all steps that read these kinds."""

    def made() -> Kinds:
        return kinds_of(numbers_of(binding, step), linear.kinds, binding.kernel.resident)

    return binding.kept(replace(step, number=step.reads[0]), "kinds", made)


def _weights(linear: LinearBy, binding: Binding) -> tuple[Array, Callable[[], None]]:
    """The weights of all kinds, (kinds · inner, width / blocks), and a call that makes them."""
    weight = binding.parameters[linear.weight]
    if not linear.mix:
        return weight, lambda: None
    mix, kernel = binding.parameters[linear.mix], binding.kernel
    kinds, bases = mix.shape
    out = binding.scratch("weights of kinds", kinds * (len(weight) // bases), weight.shape[1])
    return out, lambda: kernel.gemm(mix, _flat(weight, bases), _flat(out, kinds))


def _flat(weights: Array, count: int) -> Array:
    """Matrices on top of each other, as a row each."""
    return weights.reshape(count, weights.size // count)


def _numbers(step: Step, rows: int, columns: int, entries: int) -> int:
    """Numbers of rows, of 8 bytes each; weights of all kinds, the other way round, gradients."""
    linear = step.operator
    assert isinstance(linear, LinearBy)
    return 2 * entries + 3 * linear.kinds * linear.width


def _entries(step: Step, rows: int, columns: int, entries: int) -> int:
    """The matrix while it is made, with as many entries of each relation; where rows begin."""
    mean = step.operator
    assert isinstance(mean, MeanOf)
    return WHILE_MADE * entries * len(mean.which) // mean.relations + 2 * rows


LINEAR_BY = Instruction("linear_by", _linear_by, passes=2, kept=_numbers)
LINEAR_BY_T = Instruction("linear_by_t", _linear_by, passes=2)
LINEAR_BY_GRAD = Instruction("linear_by_grad", _linear_by_grad, passes=2)

SCALE_BY = Instruction("scale_by", _scale_by, passes=2, kept=lambda step, rows, *_: rows)

MEAN_OF = Instruction("mean_of", _mean_of, by_relation=True, kept=_entries)
MEAN_OF_T = Instruction("mean_of_t", _mean_of, by_relation=True, kept=_entries)

RULES = {
    LinearBy: Rule(LINEAR_BY, _gradient),
    MeanOf: Rule(MEAN_OF, one_step(MEAN_OF_T), takes=((Space.WHOLE,),)),
    ScaleBy: Rule(SCALE_BY, _scale_gradient),
}
