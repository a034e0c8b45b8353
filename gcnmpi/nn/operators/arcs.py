"""Operators on arcs: their features, and sums of neighbours' rows that numbers of arcs weigh.

``heads`` numbers of an arc belong to as many equally wide groups of columns, x = [x⁰ | x¹ | …].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gcnmpi.kernels.interface.kernel import Array, Kernel, Pattern
from gcnmpi.layout.entries import GROUP, OF_RELATIONS, PART, TYPE, WHOLE_TYPE
from gcnmpi.layout.place import Space
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.program import Instruction, Step
from gcnmpi.nn.tape import Rule, Tape, two_steps

OWN, WHOLE, ENTRIES, GROUPS, *_ = Space

OnEntries = Callable[[Pattern, Array, Array, Array], None]


@dataclass(frozen=True)
class ArcInput(Operator):
    """Rows of arcs that are given with the graph, or of vertices beside H⁰. No inputs.

    ``given`` says which: features, and those of a self-loop that M has beside the graph's arcs are
    "zero", or "mean", which replaces those of all self-loops by the mean of the other arcs into
    their vertex, where all self-loops of a vertex are one arc; or "relation", the number of the
    relation of an arc, of so many ``relations``; "group", that of each group of arcs of one
    relation into a vertex; "part", the part that its arcs make of those into the vertex that go the
    same way, along relations or their reverses; "share", for each arc one over the arcs of its
    group; "type", the number of the type of each vertex; or "type of whole", of these and their
    neighbours, which ranks know by themselves.
    """

    given: str = "zero"
    relations: int = 0
    title = "input"

    @property
    def gives(self) -> Space:
        """Groups if it is their relation or part, vertices if it is their type, else arcs."""
        of_others = {GROUP: GROUPS, PART: GROUPS, TYPE: OWN, WHOLE_TYPE: WHOLE}
        return of_others.get(self.given, ENTRIES)

    @property
    def words(self) -> str:
        """Which rows they are."""
        of_relations = self.given in OF_RELATIONS
        return f"input {self.given}" if of_relations else f"input arc_features loops {self.given}"


@dataclass(frozen=True)
class Softmax(Operator):
    """y[e, c] = exp(x[e, c]) / Σ exp(x[e′, c]) over the arcs e′ that lead where e does.

    ``within`` groups: over those of the same relation.
    """

    within: Space = OWN

    @property
    def words(self) -> str:
        """With the rows that it is within."""
        return "softmax" + " within groups" * (self.within is GROUPS)


@dataclass(frozen=True)
class WeighedSum(Operator):
    """y[i]ʰ = Σ x₁[e, h]·x₂[j]ʰ over the arcs e into i, or in group i: the rows ``to``."""

    to: Space = OWN
    title = "weighed sum"

    @property
    def gives(self) -> Space:
        """The rows that ``to`` says."""
        return self.to


@dataclass(frozen=True)
class EndDots(Operator):
    """y[e, h] = x₁[i]ʰ·x₂[j]ʰ, the dot products of both ends of an arc."""

    title = "dots of ends"


@dataclass(frozen=True)
class RowDots(Operator):
    """y[r, h] = x₁[r]ʰ·x₂[r]ʰ, the dot products of two rows."""

    title = "dots of rows"


@dataclass(frozen=True)
class ScaleHeads(Operator):
    """y[r]ʰ = x₁[r, h]·x₂[r]ʰ, rows by a number for each head."""

    title = "scale heads"


@dataclass(frozen=True)
class HeadDots(Operator):
    """y[r, h] = x[r]ʰ·vector[h], with a trained vector (heads · columns of a head,)."""

    vector: str = ""
    reads = ("vector",)
    title = "dots of heads"


def _given(tape: Tape, number: int, gradient: int) -> None:
    """Features of arcs are not trained."""


def _softmax_gradient(tape: Tape, number: int, gradient: int) -> None:
    (x,) = tape.operators[number].inputs
    reads = gradient, number
    tape.contribute(x, tape.step(SOFTMAX_BACKWARD, number, reads, like=x))


def _head_dots_gradient(tape: Tape, number: int, gradient: int) -> None:
    (x,) = tape.operators[number].inputs
    tape.contribute(x, tape.step(HEAD_DOTS_BACKWARD, number, (gradient, x), like=x))


def _arc_input(given: ArcInput, binding: Binding, step: Step) -> Run:
    raise AssertionError("what is given is not computed")


def _softmax(softmax: Softmax, binding: Binding, step: Step) -> Run:
    """Shifted by the largest number of each row's arcs."""
    kernel, pattern, phases = binding.kernel, binding.pattern(step), binding.halo(step).phases
    x, out = binding.read(step), binding.written(step)

    def run(epoch: int) -> None:
        with phases("spmm"):
            kernel.softmax_targets(pattern, x, out)

    return run


def _softmax_backward(softmax: Softmax, binding: Binding, step: Step) -> Run:
    """From the softmax itself."""
    kernel, pattern, phases = binding.kernel, binding.pattern(step), binding.halo(step).phases
    grad, y, out = binding.read(step), binding.read(step, 1), binding.written(step)

    def run(epoch: int) -> None:
        with phases("spmm"):
            kernel.softmax_targets_backward(pattern, y, grad, out)

    return run


def _visiting(
    name: str, of: Callable[[Kernel], OnEntries], by_columns: bool = False
) -> Instruction:
    """An instruction that is an operation of the kernel on the pattern and two matrices."""

    def bind(operator: Operator, binding: Binding, step: Step) -> Run:
        operation, pattern = of(binding.kernel), binding.pattern(step)
        phases = binding.halo(step).phases
        x, y, out = binding.read(step), binding.read(step, 1), binding.written(step)

        def run(epoch: int) -> None:
            with phases("spmm"):
                operation(pattern, x, y, out)

        return run

    return Instruction(name, bind, passes=1, visits=True, by_columns=by_columns)


def _row_dots(operator: Operator, binding: Binding, step: Step) -> Run:
    kernel, out = binding.kernel, binding.written(step)
    x, y = binding.read(step), binding.read(step, 1)
    return lambda epoch: kernel.row_dots(x, y, out)


def _scale_heads(operator: Operator, binding: Binding, step: Step) -> Run:
    kernel, out = binding.kernel, binding.written(step)
    values, x = binding.read(step), binding.read(step, 1)
    return lambda epoch: kernel.scale_heads(values, x, out)


def _head_dots(dots: HeadDots, binding: Binding, step: Step) -> Run:
    kernel, x, out = binding.kernel, binding.read(step), binding.written(step)
    vector = binding.parameters[dots.vector]
    return lambda epoch: kernel.head_dots(x, vector, out)


def _head_dots_backward(dots: HeadDots, binding: Binding, step: Step) -> Run:
    """The gradients of the rows and of the vector, which counts on one copy of these rows."""
    kernel, out, counts = binding.kernel, binding.written(step), binding.block(step).counts_entries
    grad, x = binding.read(step), binding.read(step, 1)
    vector, of_vector = binding.parameters[dots.vector], binding.gradients[dots.vector]

    def run(epoch: int) -> None:
        out.fill(0)
        of_vector.fill(0)
        kernel.head_dots_backward(x, vector, grad, out, of_vector)
        if not counts:
            of_vector.fill(0)

    return run


ARC_INPUT = Instruction("arc_input", _arc_input, visits=True)
SOFTMAX = Instruction("softmax", _softmax, passes=2, visits=True, in_place=True)
SOFTMAX_BACKWARD = Instruction(
    "softmax_backward", _softmax_backward, passes=3, visits=True, in_place=True
)
WEIGHED_SUM = _visiting("weighed_sum", lambda kernel: kernel.spmm_values)
WEIGHED_SUM_T = _visiting("weighed_sum_t", lambda kernel: kernel.spmm_values_t, True)
END_DOTS = _visiting("end_dots", lambda kernel: kernel.sddmm)
ROW_DOTS = Instruction("row_dots", _row_dots, passes=2, rowwise=True)
SCALE_HEADS = Instruction("scale_heads", _scale_heads, passes=2, rowwise=True)
HEAD_DOTS = Instruction("head_dots", _head_dots, passes=1, rowwise=True)
HEAD_DOTS_BACKWARD = Instruction("head_dots_backward", _head_dots_backward, passes=2, rowwise=True)

RULES = {
    ArcInput: Rule(ARC_INPUT, _given),
    Softmax: Rule(SOFTMAX, _softmax_gradient, ends_shifts=True, takes=((ENTRIES,),)),
    WeighedSum: Rule(WEIGHED_SUM, two_steps(END_DOTS, WEIGHED_SUM_T), takes=((ENTRIES,), (WHOLE,))),
    EndDots: Rule(
        END_DOTS,
        two_steps(WEIGHED_SUM, WEIGHED_SUM_T, gradient_first=True),
        takes=((OWN, GROUPS), (WHOLE,)),
        gives=ENTRIES,
    ),
    RowDots: Rule(
        ROW_DOTS, two_steps(SCALE_HEADS, SCALE_HEADS, gradient_first=True), regroups=True
    ),
    ScaleHeads: Rule(SCALE_HEADS, two_steps(ROW_DOTS, SCALE_HEADS), regroups=True),
    HeadDots: Rule(HEAD_DOTS, _head_dots_gradient, regroups=True),
}
