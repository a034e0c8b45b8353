"""Steps of a forward pass, and the steps of the gradient, in reverse.

Reverse accumulation on the static graph: each operator's rule says which steps give the gradients
of its inputs and parameters from that of its value; several contributions to one value are added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gcnmpi.layout.place import Place
from gcnmpi.nn.compile.shifts import has_no_effect
from gcnmpi.nn.operators import (
    Activate,
    Add,
    Aggregate,
    Attend,
    AttendV2,
    BatchNorm,
    Features,
    LayerNorm,
    Linear,
    MaxAggregate,
    Maximum,
    MeanOfHeads,
    Normalize,
    Operator,
    Scale,
)
from gcnmpi.nn.program import Finish, Move, Step, Value

FORWARD: dict[type[Operator], str] = {
    Activate: "activate",
    Add: "add",
    Aggregate: "aggregate",
    Attend: "attend",
    AttendV2: "attend_v2",
    BatchNorm: "batch_norm",
    Features: "features",
    Finish: "finish",
    LayerNorm: "layer_norm",
    Linear: "combine",
    MaxAggregate: "max_aggregate",
    Maximum: "maximum",
    MeanOfHeads: "mean_of_heads",
    Move: "move",
    Normalize: "normalize",
    Scale: "scale",
}


@dataclass
class Tape:
    """What the rules write: steps and values of the backward pass."""

    operators: Sequence[Operator]
    values: list[Value]
    wanted: Sequence[bool]
    unshifted: Sequence[bool]
    steps: list[Step] = field(default_factory=list)
    gradients: dict[int, int] = field(default_factory=dict)

    def step(
        self,
        name: str,
        number: int,
        reads: tuple[int, ...],
        like: int | None = None,
        part: int = 0,
        k: int | None = None,
    ) -> int:
        """Append a step whose value is laid out as value ``like``; without it, it has none."""
        written = -1
        if like is not None:
            shape = self.values[like]
            self.values.append(Value(shape.place, shape.width))
            written = len(self.values) - 1
        layer = self.values[number].place.layer if k is None else k
        operator = self.operators[number]
        self.steps.append(Step(name, operator, layer, reads, written, number, part=part))
        return written

    def no_effect(self, number: int) -> bool:
        """Whether an operator has a bias that has none: a step that makes its gradient 0."""
        found = has_no_effect(self.operators[number], self.unshifted[number])
        if found:
            self.step("no_effect", number, ())
        return found

    def contribute(self, number: int, gradient: int) -> None:
        """Add to the gradient of a value."""
        if number not in self.gradients:
            self.gradients[number] = gradient
            return
        both = self.gradients[number], gradient
        self.gradients[number] = self.step("add", number, both, like=number)


def forward_step(operator: Operator, number: int, place: Place) -> Step:
    """The step that computes an operator."""
    name = FORWARD[type(operator)]
    return Step(name, operator, place.layer, operator.inputs, number, number)


def differentiate(
    operators: Sequence[Operator],
    values: Sequence[Value],
    wanted: Sequence[bool],
    unshifted: Sequence[bool],
    logits: int,
) -> tuple[list[Step], list[Value], int]:
    """Steps of the backward pass, all values, and the number of the gradient of the logits.

    Parameters
    ----------
    values : sequence of Value
        Of the operators.
    wanted : sequence of bool
        Which values a gradient is needed of.
    unshifted : sequence of bool
        To which a constant may be added without any effect:
        :func:`~gcnmpi.nn.compile.shifts.without_shifts`.
    """
    tape = Tape(operators, list(values), wanted, unshifted)
    start = Value(values[logits].place, values[logits].width)
    tape.values.append(start)
    first = len(tape.values) - 1
    tape.gradients[logits] = first
    for number in range(len(operators) - 1, -1, -1):
        if number in tape.gradients and wanted[number]:
            RULES[type(operators[number])](tape, number, tape.gradients[number])
    return tape.steps, tape.values, first


def _features(tape: Tape, number: int, gradient: int) -> None:
    tape.step("share_input", number, (gradient,))


def _linear(tape: Tape, number: int, gradient: int) -> None:
    (x,) = tape.operators[number].inputs
    tape.step("weight_grad", number, (x, gradient))
    if tape.wanted[x]:
        tape.contribute(x, tape.step("combine_t", number, (gradient,), like=x))


def _aggregate(tape: Tape, number: int, gradient: int) -> None:
    (x,) = tape.operators[number].inputs
    tape.contribute(x, tape.step("aggregate_t", number, (gradient,), like=x))


def _finish(tape: Tape, number: int, gradient: int) -> None:
    operator = tape.operators[number]
    assert isinstance(operator, Finish)
    (x,) = operator.inputs
    if operator.has_gradient:
        # Dropout alone is decided again by its hash; else the value says what it kept.
        reads = (gradient, number) if operator.kind != "none" else (gradient,)
        gradient = tape.step("finish_backward", number, reads, like=number)
    if not tape.no_effect(number) and operator.bias:
        tape.step("column_sum", number, (gradient,))
    if tape.wanted[x]:
        tape.contribute(x, gradient)


def _add(tape: Tape, number: int, gradient: int) -> None:
    for x in tape.operators[number].inputs:
        if tape.wanted[x]:
            tape.contribute(x, gradient)


def _scale(tape: Tape, number: int, gradient: int) -> None:
    operator = tape.operators[number]
    assert isinstance(operator, Scale)
    (x,) = operator.inputs
    if operator.epsilon:
        name = "centred_scale_grad" if tape.unshifted[number] else "scale_grad"
        tape.step(name, number, (x, gradient))
    if tape.wanted[x]:
        tape.contribute(x, tape.step("scale", number, (gradient,), like=x))


def _maximum(tape: Tape, number: int, gradient: int) -> None:
    inputs = tape.operators[number].inputs
    for part, x in enumerate(inputs):
        if tape.wanted[x]:
            reads = (gradient, number, *inputs)
            tape.contribute(x, tape.step("maximum_backward", number, reads, like=x, part=part))


def _activate(tape: Tape, number: int, gradient: int) -> None:
    (x,) = tape.operators[number].inputs
    tape.contribute(x, tape.step("activate_backward", number, (x, gradient), like=x))


def _unary(name: str, *, reads_input: bool, reads_value: bool) -> Callable[[Tape, int, int], None]:
    """One input, one step, which also gives the gradients of its parameters."""

    def rule(tape: Tape, number: int, gradient: int) -> None:
        (x,) = tape.operators[number].inputs
        reads = (gradient, *((x,) if reads_input else ()), *((number,) if reads_value else ()))
        result = tape.step(name, number, reads, like=x)
        tape.no_effect(number)
        if tape.wanted[x]:
            tape.contribute(x, result)

    return rule


def _attend_v2(tape: Tape, number: int, gradient: int) -> None:
    source, target = tape.operators[number].inputs
    # The step writes the gradient of the target's side; that of the source's is left by it.
    reads = (gradient, source, target, number)
    of_target = tape.step("attend_v2_backward", number, reads, like=target)
    tape.contribute(target, of_target)
    tape.contribute(source, tape.step("attend_v2_source", number, (gradient,), like=source))


def _move(tape: Tape, number: int, gradient: int) -> None:
    (x,) = tape.operators[number].inputs
    tape.contribute(x, tape.step("move", number, (gradient,), like=x))


RULES: dict[type[Operator], Callable[[Tape, int, int], None]] = {
    Activate: _activate,
    Add: _add,
    Aggregate: _aggregate,
    Attend: _unary("attend_backward", reads_input=True, reads_value=True),
    AttendV2: _attend_v2,
    BatchNorm: _unary("batch_norm_backward", reads_input=True, reads_value=False),
    Features: _features,
    Finish: _finish,
    LayerNorm: _unary("layer_norm_backward", reads_input=True, reads_value=False),
    Linear: _linear,
    MaxAggregate: _unary("max_aggregate_backward", reads_input=False, reads_value=False),
    Maximum: _maximum,
    MeanOfHeads: _unary("mean_of_heads_backward", reads_input=False, reads_value=False),
    Move: _move,
    Normalize: _unary("normalize_backward", reads_input=True, reads_value=False),
    Scale: _scale,
}
