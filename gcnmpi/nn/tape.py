"""The rules that give the steps of operators, and the tape for the steps of their gradients.

Reverse accumulation on the static graph: each operator's rule says which steps give the gradients
of its inputs and parameters from that of its value; several contributions to one value are added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gcnmpi.layout.place import Space
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.program import Instruction, Step, Value


@dataclass(frozen=True)
class Rule:
    """The facts of a kind of operator that the compiler knows.

    Attributes
    ----------
    forward : Instruction
        That of its value, which says what it reads of neighbours.
    gradient : callable
        Called with a tape, the number of an operator and the value that is its gradient.
    commutes : bool
        Whether f(x)·W = f(x·W).
    whole_rows : bool
        Whether it looks at all entries of a row, though it has no parameters.
    keeps_shifts, ends_shifts : bool
        Whether a constant in a column of its inputs is one in a column of its value; whether it has
        no effect on its value.
    once : bool
        Whether it adds up over all rows, of which each must be on one rank: not rows of neighbours.
    stops : bool
        Whether its value has no gradient, whatever its inputs have.
    regroups : bool
        Whether its columns are made of others of its inputs, where these are not equally wide: no
        rank may have a part of the columns only.
    takes : tuple of tuple of Space
        The spaces that each of its inputs may have, where these are fixed; empty: all inputs have
        one space, any.
    gives : Space or None
        The space of its value, unless the operator says it; None: that of its inputs.
    """

    forward: Instruction
    gradient: Callable[[Tape, int, int], None]
    commutes: bool = False
    whole_rows: bool = False
    keeps_shifts: bool = False
    ends_shifts: bool = False
    once: bool = False
    stops: bool = False
    regroups: bool = False
    takes: tuple[tuple[Space, ...], ...] = ()
    gives: Space | None = None

    def space(self, operator: Operator, given: Sequence[Space]) -> Space:
        """The space of the value of an operator, of inputs in the given spaces.

        A ValueError, in words, if it does not take them.
        """
        if self.once and Space.WHOLE in given:
            raise ValueError(
                "rows of neighbours are on several ranks, which would count them twice"
            )
        possible = self.takes or (tuple(given[:1]),) * len(given)
        for number, (space, wanted) in enumerate(zip(given, possible, strict=True)):
            if space not in wanted:
                told = " or of ".join(ROWS_OF[one] for one in wanted)
                raise ValueError(f"input {number + 1} has rows of {ROWS_OF[space]}, not of {told}")
        return operator.gives or self.gives or (given[0] if given else Space.OWN)


ROWS_OF = {
    Space.OWN: "vertices",
    Space.WHOLE: "vertices and their neighbours",
    Space.ENTRIES: "arcs",
    Space.GROUPS: "groups of arcs",
    Space.OF_TYPE: "vertices of a type",
    Space.TURNED: "all vertices",
}
"""Index spaces in words."""


@dataclass
class Tape:
    """The steps and values of the backward pass, which the rules write."""

    operators: Sequence[Operator]
    values: list[Value]  # of the operators, then gradients
    wanted: Sequence[bool]  # which values a gradient is needed of
    # To which a constant may be added without any effect:
    # :func:`~gcnmpi.nn.compile.shifts.without_shifts`
    unshifted: Sequence[bool]
    steps: list[Step] = field(default_factory=list)
    gradients: dict[int, int] = field(default_factory=dict)

    def like(self, number: int) -> int:
        """A new value, laid out as another one."""
        shape = self.values[number]
        self.values.append(Value(shape.place, shape.width))
        return len(self.values) - 1

    def step(
        self,
        instruction: Instruction,
        number: int,
        reads: tuple[int, ...],
        like: int,
        part: int = 0,
    ) -> int:
        """Append a step of an operator, whose value is laid out as value ``like``."""
        written = self.like(like)
        self._append(instruction, number, reads, written, part)
        return written

    def of_parameters(self, instruction: Instruction, number: int, reads: tuple[int, ...]) -> None:
        """Append a step that has no value, but gives gradients of parameters."""
        self._append(instruction, number, reads, None, 0)

    def no_effect(self, number: int) -> bool:
        """Whether an operator has a bias that has none: a step that makes its gradient 0."""
        found = self.unshifted[number] and bool(self.operators[number].last_bias)
        if found:
            self.of_parameters(NO_EFFECT, number, ())
        return found

    def contribute(self, number: int, gradient: int) -> None:
        """Add to the gradient of a value, if that is needed."""
        if not self.wanted[number]:
            return
        if number in self.gradients:
            both = self.gradients[number], gradient
            gradient = self.step(ADD, number, both, like=number)
        self.gradients[number] = gradient

    def _append(
        self,
        instruction: Instruction,
        number: int,
        reads: tuple[int, ...],
        written: int | None,
        part: int,
    ) -> None:
        k, operator = self.values[number].place.layer, self.operators[number]
        self.steps.append(Step(instruction, operator, k, reads, written, number, part=part))


def one_step(
    instruction: Instruction, *, reads_input: bool = False, reads_value: bool = False
) -> Callable[[Tape, int, int], None]:
    """The rule of one input and one step, which also gives the gradients of parameters."""

    def rule(tape: Tape, number: int, gradient: int) -> None:
        (x,) = tape.operators[number].inputs
        reads = (gradient, *((x,) if reads_input else ()), *((number,) if reads_value else ()))
        result = tape.step(instruction, number, reads, like=x)
        tape.no_effect(number)
        tape.contribute(x, result)

    return rule


def two_steps(
    first: Instruction, second: Instruction, *, gradient_first: bool = False
) -> Callable[[Tape, int, int], None]:
    """The rule of a product of two inputs, x₁ and x₂, each of whose gradients is one step.

    ``first`` reads (gradient, x₂), ``second`` (x₁, gradient), or (gradient, x₁).
    """

    def rule(tape: Tape, number: int, gradient: int) -> None:
        x, y = tape.operators[number].inputs
        if tape.wanted[x]:
            tape.contribute(x, tape.step(first, number, (gradient, y), like=x))
        if tape.wanted[y]:
            reads = (gradient, x) if gradient_first else (x, gradient)
            tape.contribute(y, tape.step(second, number, reads, like=y))

    return rule


def _add(operator: Operator, binding: Binding, step: Step) -> Run:
    """x₁ + x₂, of values or of gradients."""
    kernel = binding.kernel
    x, y, out = binding.read(step), binding.read(step, 1), binding.written(step)
    return lambda epoch: kernel.add(x, y, out)


def _no_effect(operator: Operator, binding: Binding, step: Step) -> Run:
    """0, the gradient of a bias that has no effect: see :mod:`gcnmpi.nn.compile.shifts`."""
    out = binding.gradients[operator.last_bias]
    return lambda epoch: out.fill(0)


def _no_gradient(operator: Operator, binding: Binding, step: Step) -> Run:
    """0 for all parameters of an operator from which no gradient comes back to the loss."""
    gradients = [binding.gradients[name] for name in operator.parameters]

    def run(epoch: int) -> None:
        for gradient in gradients:
            gradient.fill(0)

    return run


ADD = Instruction("add", _add, passes=3, in_place=True, rowwise=True)
NO_EFFECT = Instruction("no_effect", _no_effect)
NO_GRADIENT = Instruction("no_gradient", _no_gradient)
