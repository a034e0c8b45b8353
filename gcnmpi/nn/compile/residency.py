"""Values are made again for the backward pass, or read from a file, instead of being kept for it.

A forward step that gave a value is repeated when the backward pass comes to it; what it reads is
kept, or made again too. The steps are the same, on the same numbers: the gradient has the same
bits. A repeated product with M sends its rows again::

    forward   h₀ ─ h₁ ─ h₂ ─ h₃                          kept: h₀ h₁ h₂ h₃
    backward            h₃ h₂ h₁ h₀

    forward   h₀ ─ h₁ ─ h₂ ─ h₃                          kept: h₀ h₂; written: h₁
    backward            (h₃) h₃ h₂ (read h₁) h₁ h₀

Values with a row for each arc are large, and cheap to make from what is kept: rows of vertices,
and states of arcs, which the network hands from one layer to the next::

    forward   e₀ ─ h₁ ─ y₁ ─ e₁ ─ h₂ ─ y₂ ─ e₂          kept: e₁ e₂, and h y of one layer
    backward            e₂ (h₂ y₂) y₂ h₂ e₁ (h₁ y₁) y₁ h₁

They are made again in the loop over slices that reads them, so that there is no more than a
slice of them. Of states of arcs, those of every layer may be kept, or those of every third one: the
others are made again too, from the last one that is there. With them go rows of vertices that are
no states, but no sums of arcs, and nothing that is sent.

Rows of vertices that are made of the same rows of others, and read in one loop over blocks, are
made again in it likewise. Where several steps need them, they are made as a whole before, but block
by block too, so that a sum over rows never has other bits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from gcnmpi.nn.compile.loops import LOCAL, by_blocks, last_loop, values_of_slices
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.operators.arcs import ArcInput
from gcnmpi.nn.operators.residences import FETCH, FETCHED, REFILL, STORE, STORED
from gcnmpi.nn.program import Program, Step, Value
from gcnmpi.options.train import Residences
from gcnmpi.schemes.operations import EXCHANGES
from partition.errors import UserError


@dataclass(frozen=True)
class Choices:
    """The values of a program, all kept, that need not be: rows of vertices, by number."""

    again: frozenset[int]
    written: frozenset[int]


def choices(program: Program, repeats: bool) -> Choices:
    """The values that can be made again, and those that can be written to a file.

    ``repeats``: whether exchanges of rows may be made again. Logits are kept, as the loss reads
    them at once.
    """
    writers = _writers(program.forward)
    read = _read(program.backward)
    overwritten = {step.onto for step in program.forward}
    again: set[int] = set()
    for value, step in writers.items():
        sends = step.instruction.operation not in LOCAL
        sums = _again(step).instruction.summed(step)
        # All that it reads is there, in one way or another, or can be made again itself.
        there = all(i not in writers or i in read or i in again for i in step.values)
        alone = not any(_of_arcs(program.values, i) for i in step.values)
        if there and alone and not sums and (repeats or not sends):
            again.add(value)
    passes = {value for step in program.evaluation for value in step.values} | read
    passes |= _read(program.forward)
    given = {i for i, operator in enumerate(program.operators) if isinstance(operator, ArcInput)}
    lasting = {value for value in read if value in writers and value not in overwritten}
    lasting |= passes.intersection(program.kept) - given
    out = {program.logits, *program.sparse}
    possible = {value for value in lasting - out if not _of_arcs(program.values, value)}
    return Choices(frozenset(possible & again), frozenset(possible))


def costless(
    forward: Sequence[Step],
    backward: Sequence[Step],
    values: Sequence[Value],
    needed: Collection[int],
) -> frozenset[int]:
    """The values that are made again in any case, as that takes no longer than to keep them.

    They are made entry by entry from one other, which the backward pass reads as well, in the one
    loop over blocks that reads them: as many numbers come from memory then, and none goes there.
    """
    writers, loops = _writers(forward), _loops(backward, values)
    return frozenset(
        value
        for value, step in writers.items()
        if value not in needed
        and _in_block(step, values)
        and step.instruction.in_place
        and step.operator == step.operator.without_dropout()
        and len(step.values) == 1
        and step.values[0] in loops
        and step.values[0] not in needed
        and len(loops.get(value, ())) == 1
        and 0 not in loops[value]
    )


def _loops(steps: Sequence[Step], values: Sequence[Value]) -> dict[int, set[int]]:
    """Of each value that steps read, the loops over blocks that they are in; 0: others."""
    found: dict[int, set[int]] = {}
    for step in steps:
        here = step.loop if _in_block(step, values) else 0
        for value in step.values:
            found.setdefault(value, set()).add(here)
    return found


def _in_block(step: Step, values: Sequence[Value]) -> bool:
    return step.loop > 0 and by_blocks(step, values)


def with_residences(
    operators: Sequence[Operator],
    passes: tuple[Sequence[Step], Sequence[Step], Sequence[Step]],
    values: list[Value],
    needed: Collection[int],
    residences: Residences,
) -> tuple[list[Step], list[Step], list[Step], dict[int, int]]:
    """The steps of forward pass, backward pass and evaluation, for values that are not all kept.

    Values that are made again or read again get numbers of their own, which are appended to
    ``values``. ``needed`` are values that stay after the forward pass. The fourth result has the
    values that are made again block by block: new number → number in the forward pass.
    """
    forward, backward, _ = passes
    writers = _writers(forward)
    if stray := (residences.again - writers.keys()) | (residences.written - {*range(len(values))}):
        raise UserError(
            f"train.memory: there is no value {min(stray)} that can be left",
            "gcnmpi info GRAPH --program shows the values",
        )
    short: set[int] = set()
    if residences.every:
        short = _of_layers(operators, forward, values, needed, residences.every)
    written = residences.written
    short = (short | _with_sources(residences.again, writers, _read(backward))) - written
    whole = {step.reads[at] for step in backward if (at := step.instruction.whole) is not None}
    made = _Backward(operators, values, writers, short, written, whole)
    found = made.steps(backward)
    constants = written - writers.keys()
    first, seen = (_with_constants(steps, operators, values, constants) for steps in passes[::2])
    return _stored(first, written & writers.keys(), whole), found, seen, made.in_blocks


def _writers(steps: Sequence[Step]) -> dict[int, Step]:
    return {step.writes: step for step in steps if step.writes is not None}


def _read(steps: Sequence[Step]) -> set[int]:
    return {value for step in steps for value in step.values}


def _again(step: Step) -> Step:
    """The step that makes the value of one again."""
    other = step.instruction.again
    return step if other is None else replace(step, instruction=other)


def _of_layers(
    operators: Sequence[Operator],
    forward: Sequence[Step],
    values: Sequence[Value],
    needed: Collection[int],
    every: int,
) -> set[int]:
    """The values of a network with rows of arcs that are made again, without sending anything.

    Kept are the values ``needed`` after the forward pass, states of vertices, and states of arcs
    at the end of each layer whose number ``every`` divides.
    """
    layers = _layers(operators)
    states = {
        i
        for at, operator in enumerate(operators)
        for i in operator.inputs
        if layers[i] != layers[at]
        and (not _of_arcs(values, i) or (layers[i] > 0 and layers[i] % every == 0))
    }
    # A value that a product is added onto is gone after that, whatever reads it.
    overwritten = {step.onto for step in forward}
    short: set[int] = set()
    for value, step in _writers(forward).items():
        local = step.instruction.operation in LOCAL and not step.instruction.summed(step)
        sums_arcs = not _of_arcs(values, value) and any(_of_arcs(values, i) for i in step.values)
        gone = any(i in overwritten and i not in short for i in step.values)
        stays = value in needed or (value in states and value not in overwritten)
        if local and not (sums_arcs or gone or stays):
            short.add(value)
    return short


def _with_sources(
    again: Collection[int], writers: dict[int, Step], read: Collection[int]
) -> set[int]:
    """Values that are made again, and those that they are made of, unless these are there."""
    found, open_ = set(again), [*again]
    while open_:
        for value in writers[open_.pop()].values:
            if value in writers and value not in read and value not in found:
                found.add(value)
                open_.append(value)
    return found


@dataclass
class _Backward:
    """The backward steps, with steps among them that make values again or read them."""

    operators: Sequence[Operator]
    values: list[Value]
    writers: dict[int, Step]
    short: Collection[int]  # values that are made again
    written: Collection[int]  # values in the file
    whole: Collection[int]  # values that are read with rows of neighbours
    in_blocks: dict[int, int] = field(default_factory=dict)  # made in blocks: new number → number
    _found: list[Step] = field(default_factory=list)
    # Loop → value → its number there
    _numbers: dict[int, dict[int, int]] = field(default_factory=lambda: {0: {}})
    # Value → loops over blocks that read it; 0: other steps
    _loops: dict[int, set[int]] = field(default_factory=dict)
    _last: int = 0  # loop
    _filled: set[int] = field(default_factory=set)  # values with rows of neighbours

    def steps(self, backward: Sequence[Step]) -> list[Step]:
        """All steps, in an order in which they can run."""
        self._last = last_loop((*self.writers.values(), *backward))
        self._loops = _loops(backward, self.values)
        # A value is written after those that it is made of.
        for value in reversed([value for value in self.writers if value in self.short]):
            at = self._loop_of(value)
            for read in self.writers[value].values:
                self._loops.setdefault(read, set()).add(at)
        for loop, steps in groupby(backward, lambda step: step.loop):
            inside: list[Step] = []
            self._numbers.setdefault(loop, {})
            for step in steps:
                for value in step.values:
                    self._make(value, loop, inside)
                new = step.reading(self._numbers[0] | self._numbers[loop])
                self._fill(step, new)
                (inside if loop else self._found).append(new)
            self._found += inside
        return self._found

    def _make(self, value: int, loop: int, inside: list[Step]) -> None:
        """Append the step that makes a value again, after those of what it reads.

        Rows of arcs in the loop that reads them; rows of vertices too if no other does, or before.
        """
        at = loop if _of_arcs(self.values, value) else self._loop_of(value)
        if value in self._numbers[at] or value not in {*self.short, *self.written}:
            return
        if value in self.written:
            self._found += self._fetched(value)
            return
        step = _again(self.writers[value])
        for read in step.values:
            self._make(read, at, inside)
        new = self._new(value, at)
        if at and by_blocks(step, self.values):
            self.in_blocks[new] = value
        made = step.reading(self._numbers[0] | self._numbers[at])
        made = replace(made, writes=new, loop=at or self._own_loop(step))
        if step.instruction.gathers:
            self._filled.add(made.reads[0])
        (inside if at else self._found).append(made)

    def _loop_of(self, value: int) -> int:
        """The loop over blocks in which a value is made again; 0: before all that read it."""
        (loop,) = loops if len(loops := self._loops.get(value, set())) == 1 else (0,)
        inside = value in self.short and _in_block(_again(self.writers[value]), self.values)
        return loop if inside else 0

    def _own_loop(self, step: Step) -> int:
        """A loop for a step that is made again as a whole."""
        blocks = _in_block(step, self.values)
        self._last += blocks
        return self._last if blocks else 0

    def _new(self, value: int, loop: int = 0) -> int:
        number = self._numbers[loop][value] = len(self.values)
        self.values.append(self.values[value])
        return number

    def _fetched(self, value: int) -> list[Step]:
        new = self._new(value)
        if value in self.whole:
            self.values[new] = replace(self.values[new], exchanged=True)
            self._filled.add(new)
        return _moved(self.operators[value], value, new, self.values[value].place.layer)

    def _fill(self, step: Step, new: Step) -> None:
        """Bring rows of neighbours to a value that was made again, if a step reads them."""
        at = new.instruction.whole
        if at is None or new.reads[at] == step.reads[at] or new.reads[at] in self._filled:
            return
        self._filled.add(new.reads[at])
        filled = replace(
            new, instruction=REFILL, reads=(new.reads[at],), writes=None, finish_gradient=None,
            plus=None, sums="",
        )  # fmt: skip
        self._found.append(filled)


def _moved(operator: Operator, value: int, new: int, layer: int) -> list[Step]:
    """The steps that begin to read a value from the file, and that wait for it."""
    begun = Step(FETCH, operator, layer, (), new, value)
    return [begun, replace(begun, instruction=FETCHED, reads=(new,), writes=None)]


def read_ahead(steps: Sequence[Step], first: int, values: Sequence[Value]) -> list[Step]:
    """Steps of which, from the ``first`` on, reading is begun before an exchange of rows.

    Before the last one that comes before it, if there is room meanwhile: if no more columns are in
    memory than there are at another moment::

        exchange ─ fetch ─ fetched ─ use      →     fetch ─ exchange ─ fetched ─ use
    """
    found = list(steps)
    most = max(_columns(found, values), default=0)
    for at, step in enumerate(steps):
        if at < first or step.instruction is not FETCH or step.writes is None:
            continue
        before = [i for i in range(first, at) if found[i].instruction.operation in EXCHANGES]
        start = before[-1] if before else at
        there = _columns(found[:at], values)[start:]
        if all(columns + values[step.writes].width <= most for columns in there):
            found.insert(start, found.pop(at))
    return found


def _columns(steps: Sequence[Step], values: Sequence[Value]) -> list[int]:
    """Columns of the rows of vertices that are in memory as a whole during each step."""
    sliced = values_of_slices(steps, values, ())
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, step in enumerate(steps):
        for value in (*step.values, *(() if step.writes is None else (step.writes,))):
            first.setdefault(value, at)
            last[value] = at
    found = [0] * len(steps)
    for value, start in first.items():
        if not _of_arcs(values, value) and value not in sliced:
            for at in range(start, last[value] + 1):
                found[at] += values[value].width
    return found


def _with_constants(
    steps: Sequence[Step],
    operators: Sequence[Operator],
    values: list[Value],
    written: Collection[int],
) -> list[Step]:
    """The steps of a pass, of which the first that reads a constant in the file waits for it."""
    found: list[Step] = []
    numbers: dict[int, int] = {}
    for step in steps:
        start = len(found)
        while step.loop and start and found[start - 1].loop == step.loop:
            start -= 1
        for value in step.values:
            if value in written and value not in numbers:
                numbers[value] = len(values)
                values.append(values[value])
                layer = values[value].place.layer
                found[start:start] = _moved(operators[value], value, numbers[value], layer)
        found.append(step.reading(numbers))
    return found


def _stored(
    forward: Sequence[Step], written: Collection[int], whole: Collection[int]
) -> list[Step]:
    """The forward steps, with steps that write values as soon as they, and all rows, are there.

    They may be gone when nobody reads them any more, and they are written.
    """
    after: dict[int, list[Step]] = {}
    for value in sorted(written):
        touched = [i for i, s in enumerate(forward) if value in s.values or s.writes == value]
        begin, end = touched[0], touched[-1]
        if value in whole:
            begin = [
                i for i, s in enumerate(forward) if s.instruction.gathers and s.reads[0] == value
            ][-1]
        begin = _end_of_loop(forward, begin)
        end = max(begin, _end_of_loop(forward, end))
        made = forward[touched[0]]
        store = Step(STORE, made.operator, made.k, (value,), None, value)
        after.setdefault(begin, []).append(store)
        after.setdefault(end, []).append(replace(store, instruction=STORED))
    found: list[Step] = []
    for at, step in enumerate(forward):
        found += [step, *after.get(at, ())]
    return found


def _end_of_loop(steps: Sequence[Step], at: int) -> int:
    """The last step of the loop that a step is in, or itself."""
    while steps[at].loop and at + 1 < len(steps) and steps[at + 1].loop == steps[at].loop:
        at += 1
    return at


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
