"""Which memory each value has: matrices that do not live at the same time share it.

Values are taken in the order in which they are written; each gets a buffer of its layout and width
that is free then, preferably one that fits its exchange exactly. An operator that works entry by
entry writes where it reads, if nobody reads that later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gcnmpi.layout.place import Place, Space
from gcnmpi.nn.compile.loops import values_of_slices
from gcnmpi.nn.program import Step, Value
from gcnmpi.schemes.operations import SUMS, Operation


def mark_exchanged(
    values: Sequence[Value], steps: Sequence[Step], products: bool = True
) -> list[Value]:
    """Values with ``exchanged`` set, too, where a step exchanges their rows in their own memory.

    ``products``: also if it is a product with M, which can take them from any memory.
    """
    exchanges = (Operation.EXPAND, *(SUMS if products else ()))
    exchanged = {
        step.reads[0]
        for step in steps
        if step.instruction.operation in exchanges and not gives_whole(step, values)
        if not values[step.reads[0]].place.space.of_arcs  # of which partial sums are sent
    }
    # A product that is added onto a value gives its own value in the same memory.
    for step in reversed(steps):
        if step.onto is not None and step.writes in exchanged:
            exchanged.add(step.onto)
    return [
        Value(value.place, value.width, value.exchanged or number in exchanged)
        for number, value in enumerate(values)
    ]


def gives_whole(step: Step, values: Sequence[Value]) -> bool:
    """Whether rows are exchanged in the memory of what a step gives, to which it copies its own."""
    return step.writes is not None and values[step.writes].place.space is Space.WHOLE


@dataclass
class Pool:
    """Buffers, of all passes that share them."""

    values: Sequence[Value]
    layout: Callable[[Place], Hashable]
    repeated: Mapping[int, int] = field(default_factory=dict)  # as of Program
    first: int = 0  # rows of these that stay
    buffers: list[Value] = field(default_factory=list)
    _shapes: dict[int, Value] = field(default_factory=dict)  # as the memory of a pass has them

    def assign(
        self, steps: Sequence[Step], fixed: Collection[int], last: Collection[int]
    ) -> dict[int, int]:
        """Value → buffer, for the steps of a pass in their order.

        ``fixed``: values with memory of their own. ``last``: values that are read after the pass.
        """
        sliced = values_of_slices(steps, self.values, last)
        shapes = {value: replace(self.values[value], sliced=True) for value in sliced}
        same = {made: value for made, value in self.repeated.items() if {made, value} <= sliced}
        for value in (*same, *same.values()):
            shapes[value] = replace(shapes[value], first=self.first)
        self._shapes = dict(enumerate(self.values)) | shapes
        ends = dict.fromkeys(last, len(steps))
        for at, step in enumerate(steps):
            for value in (*step.values, *(same[v] for v in step.values if v in same)):
                ends[value] = max(ends.get(value, -1), at)
        used: dict[int, int] = {}
        until: dict[int, int] = {}  # buffer → the last step that reads it
        free = set(range(len(self.buffers)))
        dying: dict[int, list[int]] = {}
        for value, end in ends.items():
            dying.setdefault(end, []).append(value)
        for at, step in enumerate(steps):
            written = step.writes
            ended = [v for v in dying.get(at, ()) if v in used]
            if written is not None and written not in fixed:
                if written in same:
                    taken: int | None = used[same[written]]
                else:
                    taken = self._in_place(step, written, ended, used)
                assert taken is not None or step.onto is None
                if taken is None:
                    taken = self._take(written, free)
                used[written] = taken
                until[taken] = max(until.get(taken, -1), ends.get(written, -1))
                free.discard(taken)
            free.update(used[value] for value in ended if until[used[value]] <= at)
            if written is not None and written not in fixed and ends.get(written, -1) <= at:
                free.add(used[written])  # nobody reads it
        return used

    def _in_place(
        self, step: Step, written: int, ended: Sequence[int], used: dict[int, int]
    ) -> int | None:
        source = step.onto
        if source is None and step.instruction.in_place:
            source = step.reads[0]
        if source is None or source not in ended:
            return None
        buffer = used[source]
        return buffer if self._fits(self.buffers[buffer], self._shapes[written]) else None

    def _take(self, number: int, free: Collection[int]) -> int:
        value = self._shapes[number]
        fitting = [b for b in sorted(free) if self._fits(self.buffers[b], value)]
        if fitting:
            exact = [b for b in fitting if self.buffers[b].exchanged == value.exchanged]
            return min(exact or fitting, key=lambda b: self.buffers[b].first)
        self.buffers.append(value)
        return len(self.buffers) - 1

    def _fits(self, buffer: Value, value: Value) -> bool:
        same = buffer.width == value.width and buffer.place.space is value.place.space
        same = same and buffer.sliced == value.sliced and buffer.first >= value.first
        same = same and self.layout(buffer.place) == self.layout(value.place)
        return same and buffer.exchanged >= value.exchanged
