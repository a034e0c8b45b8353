"""Values are made again for the backward pass, instead of being kept for it.

Values with a row for each arc are large, and cheap to make from what is kept: rows of vertices,
and states of arcs, which the network hands from one layer to the next. So the forward steps of a
layer that give other values are repeated when the backward pass comes to it::

    forward   e₀ ─ h₁ ─ y₁ ─ e₁ ─ h₂ ─ y₂ ─ e₂          kept: h₁ y₁ e₁ h₂ y₂ e₂
    backward                        e₂ y₂ h₂ e₁ y₁ h₁

    forward   e₀ ─ h₁ ─ y₁ ─ e₁ ─ h₂ ─ y₂ ─ e₂          kept: e₁ e₂, and h y of one layer
    backward            e₂ (h₂ y₂) y₂ h₂ e₁ (h₁ y₁) y₁ h₁

Rows of arcs are made again in the loop over slices that reads them, so that there is no more than a
slice of them. Of states of arcs, those of every layer may be kept, or those of every third one: the
others are made again too, from the last one that is there. Rows of vertices that are no states are
made again as well, but no sums of arcs, and nothing that is sent. The steps are the same, on the
same numbers: the gradient has the same bits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import groupby

from gcnmpi.nn.compile.loops import LOCAL
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.program import Step, Value


def made_again(
    operators: Sequence[Operator],
    forward: Sequence[Step],
    backward: Sequence[Step],
    values: list[Value],
    needed: Collection[int],
    every: int,
) -> list[Step]:
    """The backward steps, with forward steps among them that make values again.

    Values that are made again get numbers of their own, which are appended to ``values``. Kept
    are the values ``needed`` after the forward pass, states of vertices, and states of arcs at the
    end of each layer whose number ``every`` divides.
    """
    if not any(value.place.space.of_arcs for value in values):
        return list(backward)
    layers = _layers(operators)
    states = {
        i
        for at, operator in enumerate(operators)
        for i in operator.inputs
        if layers[i] != layers[at]
        and (not _of_arcs(values, i) or (layers[i] > 0 and layers[i] % every == 0))
    }
    writers = {step.writes: step for step in forward if step.writes is not None}
    # A value that a product is added onto is gone after that, whatever reads it.
    overwritten = {step.onto for step in forward}
    short: set[int] = set()
    for value, step in writers.items():
        local = step.instruction.operation in LOCAL and not step.instruction.summed(step)
        sums_arcs = not _of_arcs(values, value) and any(_of_arcs(values, i) for i in step.values)
        gone = any(i in overwritten and i not in short for i in step.values)
        stays = value in needed or (value in states and value not in overwritten)
        if local and not (sums_arcs or gone or stays):
            short.add(value)
    found: list[Step] = []
    again: dict[int, dict[int, int]] = {0: {}}  # loop → value → its number there

    def make(value: int, loop: int, inside: list[Step]) -> None:
        """Append the step that makes a value again, after those of what it reads.

        Rows of arcs in the loop that reads them, rows of vertices before it.
        """
        at = loop if _of_arcs(values, value) else 0
        if value not in short or value in again[at]:
            return
        step = writers[value]
        for read in step.values:
            make(read, at, inside)
        again[at][value] = len(values)
        values.append(values[value])
        made = replace(renumbered(step, again[0] | again[at]), writes=again[at][value], loop=at)
        (inside if at else found).append(made)

    for loop, steps in groupby(backward, lambda step: step.loop):
        inside: list[Step] = []
        again.setdefault(loop, {})
        for step in steps:
            for value in step.values:
                make(value, loop, inside)
            (inside if loop else found).append(renumbered(step, again[0] | again[loop]))
        found += inside
    return found


def _of_arcs(values: Sequence[Value], number: int) -> bool:
    return values[number].place.space.of_arcs


def _layers(operators: Sequence[Operator]) -> list[int]:
    """The layer of each operator; of one that a single other one reads, the layer of that.

    So a weight that multiplies the last state before rows are taken belongs to the next layer.
    """
    readers: list[list[int]] = [[] for _ in operators]
    for number, operator in enumerate(operators):
        for i in operator.inputs:
            readers[i].append(number)
    found = [operator.layer for operator in operators]
    for number in reversed(range(len(operators))):
        if len(readers[number]) == 1:
            found[number] = found[readers[number][0]]
    return found


def renumbered(step: Step, numbers: dict[int, int]) -> Step:
    """A step that reads other values in the place of some; what it writes stays."""

    def new(value: int | None) -> int | None:
        return None if value is None else numbers.get(value, value)

    gradient = step.finish_gradient
    return replace(
        step,
        reads=tuple(numbers.get(value, value) for value in step.reads),
        finish_gradient=None if gradient is None else (gradient[0], new(gradient[1])),
        onto=new(step.onto),
        plus=new(step.plus),
        also=None if step.also is None else renumbered(step.also, numbers),
    )
