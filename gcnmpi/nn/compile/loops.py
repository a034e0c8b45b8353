"""Steps run over slices of rows: values within a loop have the rows of one slice.

Rows of arcs depend on each other by what they add to vertices only. So steps that work on them row
by row are brought together, and all of them are done with some rows before they come to the next::

    combine e → h   ┐                       for some arcs, those into some vertices:
    take x, h → y   │  three matrices           combine e → h
    combine y → z   │  of arcs                  take x, h → y      three small ones
    add e, z → e′   ┘                           combine y → z
    reduce e′ → a                               add e, z → e′
                                                reduce e′ → a

Only values that are read outside have a row for every arc. Sums over all arcs, as gradients of
weights are, are made slice by slice, whichever values are kept.

Rows of vertices depend on each other in products with M and in exchanges only. All that stands
between two of these runs block by block in the same way, so that the gradient of a hidden layer,
say, which only the gradient of the weight before it reads, never exists as a whole::

    combine_t g → h     ┐                   for some vertices:
    weight_grad x, h    ┘ all rows of h         combine_t g → h
                                                weight_grad x, h     a block of them
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from gcnmpi.layout.place import Space
from gcnmpi.nn.program import Step, Value
from gcnmpi.schemes.operations import DENSE, Operation

LOCAL = (None, Operation.ROW_SUM, *DENSE)
"""Operations that send nothing where rows are whole: each row by itself."""


def with_loops(steps: Sequence[Step], values: Sequence[Value], first: int = 1) -> list[Step]:
    """The steps in an order in which those of a loop stand together; loops count from ``first``.

    A step that cannot be in a loop waits until one depends on it, or the loop is over.
    """
    found: list[Step] = []
    waiting: list[Step] = []
    loop = first - 1
    for step in steps:
        if not _by_slices(step, values):
            waiting.append(step)
            continue
        if not found or not found[-1].loop or _depends(step, waiting):
            found, waiting, loop = [*found, *waiting], [], loop + 1
        found.append(replace(step, loop=loop))
    return _late([*found, *waiting])


def with_blocks(steps: Sequence[Step], values: Sequence[Value], first: int) -> list[Step]:
    """The steps, of which those on rows of vertices are in loops too, which count from ``first``.

    A sum over rows does not wait for other steps before it, so that what it reads is gone sooner.
    """
    found: list[Step] = []
    waiting: list[Step] = []
    loop, begun = first - 1, False
    for step in steps:
        if step.loop or not by_blocks(step, values):
            waiting.append(step)
            continue
        late = step.writes is not None and any(other.touched for other in waiting)
        if not begun or late or _depends(step, waiting):
            found, waiting, loop, begun = [*found, *waiting], [], loop + 1, True
        found.append(replace(step, loop=loop))
    return [*found, *waiting]


def last_loop(steps: Sequence[Step]) -> int:
    """The largest number of a loop; 0 if there is none."""
    return max((step.loop for step in steps), default=0)


def by_blocks(step: Step, values: Sequence[Value]) -> bool:
    """Whether a step works on rows of vertices, and on some of them without a look at others."""
    spaces = {values[value].place.space for value in step.touched}
    return step.instruction.rowwise and spaces == {Space.OWN}


def _by_slices(step: Step, values: Sequence[Value]) -> bool:
    """Whether a step works on rows of arcs, and on some of them without a look at others."""
    instruction = step.instruction
    of_arcs = any(values[v].place.space.of_arcs for v in step.touched)
    local = instruction.operation in (*LOCAL, Operation.WEIGHT_GRAD)
    return of_arcs and local and not (instruction.by_columns or instruction.summed(step))


def _depends(step: Step, others: Sequence[Step]) -> bool:
    """Whether a step must come after others: it reads what they write, or writes over it."""
    written = {other.writes for other in others}
    read = {value for other in others for value in other.values}
    return not written.isdisjoint(step.values) or step.onto in read


def _late(steps: Sequence[Step]) -> list[Step]:
    """Steps whose values are read in one later loop only become part of that."""
    found: list[Step] = []
    loops: dict[int, set[int]] = {}  # value → loops that read it
    over: set[int | None] = set()  # values that something later is added onto
    for step in reversed(steps):
        readers = set() if step.writes is None else loops.get(step.writes, set())
        (loop,) = readers if len(readers) == 1 else (0,)
        at = len(found)
        if 0 < step.loop < loop and over.isdisjoint(step.values):
            step = replace(step, loop=loop)
            at = 1 + max(at for at, other in enumerate(found) if other.loop == loop)
        found.insert(at, step)
        for value in step.values:
            loops.setdefault(value, set()).add(step.loop)
        over.add(step.onto)
    return found[::-1]


def values_of_slices(
    steps: Sequence[Step], values: Sequence[Value], needed: Collection[int]
) -> set[int]:
    """The values that have rows of a slice only: all that concerns them is in one loop.

    ``needed`` are values that are read after the steps.
    """
    loops: dict[int, set[int]] = {}
    of_arcs: dict[int, bool] = {}  # loop → whether its slices are those of arcs
    for step in steps:
        for value in step.touched:
            loops.setdefault(value, set()).add(step.loop)
            arcs = values[value].place.space.of_arcs
            of_arcs[step.loop] = of_arcs.get(step.loop, False) or arcs
    written = {step.writes for step in steps}
    found = {
        value
        for value, within in loops.items()
        if len(within) == 1
        and 0 not in within
        and all(of_arcs[loop] == values[value].place.space.of_arcs for loop in within)
        and value in written
        and value not in needed
    }
    # A product that is added onto a value is where that value was.
    onto = [{step.onto, step.writes} for step in steps if step.onto is not None]
    for both in (*onto, *reversed(onto)):
        if not both <= found:
            found -= both
    return found
