"""When the matrices of one evaluation come and go, and which take over the memory of another.

In an evaluation that is made once, memory is taken when a value is written and given back after its
last reading, so that no more matrices live than a layer needs. What an operator of one input writes
may lie where its input was, if that is read for the last time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from gcnmpi.layout.place import Place
from gcnmpi.nn.compile.buffers import IN_PLACE
from gcnmpi.nn.program import Program, Step


@dataclass(frozen=True)
class Moment:
    """A step, and what becomes of memory around it.

    Attributes
    ----------
    step : Step
    over : int
        The value whose memory the step writes to; −1: it gets memory of its own.
    gathered : bool
        Whether whole rows of what it writes will go to neighbours, which takes room for halos.
    ended : tuple of int
        Values that are not read any more after it.
    """

    step: Step
    over: int
    gathered: bool
    ended: tuple[int, ...]


def lifetimes(
    program: Program, depth: int, layout: Callable[[Place], Hashable], whole_rows: bool
) -> list[Moment]:
    """The steps that lead to the output of a layer, from 1.

    Parameters
    ----------
    layout, whole_rows
        Of the scheme. Where rows are whole, x·W may be written where x is, some rows at a time.
    """
    last = program.outputs[depth - 1]
    written = [step.writes for step in program.evaluation]
    steps = program.evaluation[: written.index(last) + 1] if last in written else ()
    ends = {value: at for at, step in enumerate(steps) for value in step.values}
    ends[last] = len(steps)

    def over(at: int, step: Step) -> int:
        source, values = step.reads[0], program.values
        if step.onto >= 0 or source == FEATURES or ends[source] != at:
            return step.onto
        if step.name not in IN_PLACE and not (step.name == "combine" and whole_rows):
            return -1
        before, after = values[source], values[step.writes]
        same = before.width == after.width and layout(before.place) == layout(after.place)
        return source if same else -1

    overwritten = [over(at, step) for at, step in enumerate(steps)]
    gathered = {step.reads[0] for step in steps if step.name in GATHERS}
    for step, before in zip(reversed(steps), reversed(overwritten), strict=True):
        if before >= 0 and step.writes in gathered:
            gathered.add(before)
    return [
        Moment(
            step,
            before,
            step.writes in gathered,
            tuple(value for value in {*step.values} if ends[value] == at),
        )
        for at, (step, before) in enumerate(zip(steps, overwritten, strict=True))
    ]


def gathers_features(moments: Sequence[Moment]) -> bool:
    """Whether a step looks at whole rows of neighbours' features."""
    return any(m.step.name in GATHERS and m.step.reads[0] == FEATURES for m in moments)


FEATURES = 0  # their value
GATHERS = ("attend", "attend_v2", "max_aggregate")
