"""When the matrices of one evaluation come and go, and which take over the memory of another.

In an evaluation that is made once, memory is taken when a value is written and given back after its
last reading, so that no more matrices live than a layer needs. The value of an operator of one
input may lie where its input was, if that is read for the last time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from gcnmpi.layout.place import Place
from gcnmpi.nn.compile.buffers import gives_whole
from gcnmpi.nn.program import INPUT, Program, Step
from gcnmpi.schemes.operations import Operation


@dataclass(frozen=True)
class Moment:
    """A step, and what becomes of memory around it."""

    step: Step
    writes: int  # the value that it gives
    over: int | None  # the value whose memory it writes to; None: it gets memory of its own
    # Whether whole rows of what it writes will go to neighbours, which takes room for halos
    gathered: bool
    ended: tuple[int, ...]  # values that are not read any more after it


def lifetimes(
    program: Program, depth: int, layout: Callable[[Place], Hashable], whole_rows: bool
) -> list[Moment]:
    """The steps that lead to the output of a layer, from 1.

    Where the scheme has whole rows, x·W may be written where x is, some rows at a time.
    """
    last = program.outputs[depth - 1]
    written = [step.writes for step in program.evaluation]
    steps = program.evaluation[: written.index(last) + 1] if last in written else ()
    ends = {value: at for at, step in enumerate(steps) for value in step.values}
    ends[last] = len(steps)

    def over(at: int, step: Step, writes: int) -> int | None:
        source, values = step.reads[0], program.values
        if step.onto is not None or source == INPUT or ends[source] != at:
            return step.onto
        multiplies = step.instruction.operation is Operation.COMBINE and whole_rows
        if not step.instruction.in_place and not multiplies:
            return None
        before, after = values[source], values[writes]
        same = before.width == after.width and before.place.space is after.place.space
        same = same and layout(before.place) == layout(after.place)
        return source if same else None

    found: list[Moment] = []
    gathered = _gathered(program, steps)
    for at, step in reversed([*enumerate(steps)]):
        assert step.writes is not None
        before = over(at, step, step.writes)
        if before is not None and step.writes in gathered:
            gathered.add(before)
        ended = tuple(value for value in {*step.values} if ends[value] == at)
        found.append(Moment(step, step.writes, before, step.writes in gathered, ended))
    return found[::-1]


def gathers_features(program: Program, moments: Sequence[Moment]) -> bool:
    """Whether a step brings whole rows of neighbours' features behind those of the rank."""
    return INPUT in _gathered(program, [moment.step for moment in moments])


def _gathered(program: Program, steps: Sequence[Step]) -> set[int]:
    """The values whose rows are exchanged in their own memory."""
    return {
        step.reads[0]
        for step in steps
        if step.instruction.gathers and not gives_whole(step, program.values)
    }
