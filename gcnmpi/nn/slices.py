"""Loops over slices run: all steps of a loop on some arcs, or vertices, before the next of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from gcnmpi.halo.patterns import ArcSlice
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.layout.place import Place, Space
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.program import Program, Step, Value
from gcnmpi.schemes.interface import Scheme

ARCS_AT_ONCE = 1 << 15
"""Rows of arcs of a slice: few, but enough that a step takes far longer than its call."""


ROWS_AT_ONCE = 1 << 15
"""Rows of a block of vertices: they fit a cache, and many threads can share a step of them.

Gradients of weights are summed block by block, so it depends neither on memory nor on threads.
"""


def in_blocks(rows: int) -> bool:
    """Whether so many rows of vertices on a rank are far more than a block."""
    return rows >= 2 * ROWS_AT_ONCE


def at_once(space: Space) -> int:
    """About how many rows of a space are in a slice."""
    return ARCS_AT_ONCE if space.of_arcs else ROWS_AT_ONCE


@dataclass(frozen=True)
class Slices:
    """How the loops of a program cut the rows of this rank: arcs, and vertices."""

    of_arcs: Sequence[ArcSlice] = ()
    of_vertices: Sequence[ArcSlice] = ()

    def of(self, program: Program, steps: Sequence[Step]) -> Sequence[ArcSlice | None]:
        """The slices of the steps of a loop; one of all rows, if there is no loop."""
        if not steps[0].loop:
            return (None,)
        spaces = {program.values[value].place.space for step in steps for value in step.touched}
        return self.of_arcs if any(space.of_arcs for space in spaces) else self.of_vertices

    def rows_of(self, buffer: Value) -> int:
        """Rows of a buffer that has room for the largest slice, and for the first rows beside."""
        space = buffer.place.space
        slices = self.of_arcs if space.of_arcs else self.of_vertices
        rows = [one.count(space) for one in slices]
        return min(sum(rows), buffer.first + max(rows, default=0))


def slices_of(scheme: Scheme, program: Program) -> Slices:
    """The slices of this rank's rows, for the loops of a program; none if it has no loops."""
    looped = [s for s in (*program.forward, *program.backward, *program.evaluation) if s.loop]
    spaces = {program.values[value].place.space for step in looped for value in step.touched}
    of_arcs: Sequence[ArcSlice] = ()
    halo = scheme.halo_of(1) if any(space.of_arcs for space in spaces) else None
    if halo is not None:
        of_arcs = halo.patterns.slices(ARCS_AT_ONCE, program.incidences)
    rows = scheme.block(Place(0), 0).count if looped else 0
    starts = range(0, max(rows, 1), ROWS_AT_ONCE)
    blocks = (slice(start, min(rows, start + ROWS_AT_ONCE)) for start in starts)
    return Slices(of_arcs, [ArcSlice(i, {Space.OWN: some}, {}) for i, some in enumerate(blocks)])


def bind(binding: Binding, steps: Sequence[Step], slices: Slices) -> list[Run]:
    """The calls of an epoch, step by step, those of a loop slice by slice."""
    found: list[Run] = []
    memory: dict[str, Array] = {}
    first: dict[str, int] = {}
    for _, loop in groupby(steps, lambda step: step.loop):
        inside = list(loop)
        for some in slices.of(binding.program, inside):
            for step in inside:
                if some is not None and binding.has_rows(step, some):
                    continue
                later = some is not None and some.number > 0
                facts = binding.kernel, binding.gradients, memory, first
                shares = Shares(*facts, None if later else step.number)
                found.append(shares.added(step.bind(binding.of_slice(some, shares))))
    return found


class Shares(Mapping[str, Array]):
    """Gradients of parameters that a step gives, to be added to what others gave before.

    The first operator that gives one, in the first slice, writes it; another one that reads the
    same parameter, and later slices, give a share. ``memory`` is that of one step, by name of the
    parameter: it is lost with the next step. ``first`` are the operators that were first;
    ``operator`` is that of the step, None in later slices.
    """

    def __init__(
        self,
        kernel: Kernel,
        gradients: Mapping[str, Array],
        memory: dict[str, Array],
        first: dict[str, int],
        operator: int | None,
    ) -> None:
        self._kernel, self._gradients, self._memory = kernel, gradients, memory
        self._first, self._operator = first, operator
        self._asked: list[tuple[Array, Array]] = []

    def __getitem__(self, name: str) -> Array:
        """The gradient itself, or memory for the time of a step that is as large."""
        whole = self._gradients[name]
        if self._operator is not None and self._operator == self._first.setdefault(
            name, self._operator
        ):
            return whole
        if name not in self._memory:
            self._memory[name] = self._kernel.empty(*whole.shape)
        share = self._memory[name]
        self._asked.append((whole.reshape((1, -1)), share.reshape((1, -1))))
        return share

    def __iter__(self) -> Iterator[str]:
        return iter(self._gradients)

    def __len__(self) -> int:
        return len(self._gradients)

    def added(self, run: Run) -> Run:
        """A step, after which the shares that it asked for are added to the gradients."""
        asked, self._asked = self._asked, []
        return partial(_add, run, asked, self._kernel.axpy) if asked else run


def _add(
    run: Run,
    asked: Sequence[tuple[Array, Array]],
    axpy: Callable[[Array, float, Array], None],
    epoch: int,
) -> None:
    run(epoch)
    for whole, share in asked:
        axpy(share, 1.0, whole)
