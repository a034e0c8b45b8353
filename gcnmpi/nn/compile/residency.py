"""Rows of arcs are made again for the backward pass, instead of being kept for it.

A layer's values with a row for each arc are large, and cheap to make from what is kept: rows of
vertices, and the rows of arcs with which the layer begins. So the forward steps of a layer that
give such values are repeated when the backward pass comes to it::

    forward   e₀ ─ h₁ ─ y₁ ─ e₁ ─ h₂ ─ y₂ ─ e₂          kept: h₁ y₁ e₁ h₂ y₂ e₂
    backward                        e₂ y₂ h₂ e₁ y₁ h₁

    forward   e₀ ─ h₁ ─ y₁ ─ e₁ ─ h₂ ─ y₂ ─ e₂          kept: e₁ e₂, and h y of one layer
    backward            e₂ (h₂ y₂) y₂ h₂ e₁ (h₁ y₁) y₁ h₁

The steps are the same, on the same numbers: the gradient has the same bits. Nothing is sent again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from gcnmpi.layout.place import Space
from gcnmpi.nn.program import Step, Value


def made_again(
    forward: Sequence[Step], backward: Sequence[Step], values: list[Value], needed: Collection[int]
) -> list[Step]:
    """The backward steps, with forward steps among them that make rows of arcs again.

    Values that are made again get numbers of their own, which are appended to ``values``. Kept
    are the values ``needed`` after the forward pass, and the states of arcs between layers, which
    steps of several layers read.
    """
    writers = {step.writes: step for step in forward if step.writes is not None}
    layers: dict[int, set[int]] = {}
    for step in forward:
        for value in step.values:
            layers.setdefault(value, {writers[value].k} if value in writers else set()).add(step.k)
    # A value that a product is added onto is gone after that, whatever reads it.
    overwritten = {step.onto for step in forward}
    short = {
        value
        for value, step in writers.items()
        if values[value].place.space is Space.ENTRIES
        and (len(layers.get(value, ())) == 1 or value in overwritten)
        and value not in needed
        and not step.instruction.summed(step)
    }
    found: list[Step] = []
    again: dict[int, int] = {}

    def make(value: int) -> None:
        """Append the step that makes a value again, after those of what it reads."""
        if value not in short or value in again:
            return
        step = writers[value]
        for read in step.values:
            make(read)
        again[value] = len(values)
        values.append(values[value])
        found.append(replace(renumbered(step, again), writes=again[value]))

    for step in backward:
        for value in step.values:
            make(value)
        found.append(renumbered(step, again))
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
