"""Loops over slices of arcs run: every step of a loop on some arcs, before the next of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby

from gcnmpi.halo.patterns import ArcSlice
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.program import Program, Step
from gcnmpi.schemes.interface import Scheme

ARCS_AT_ONCE = 1 << 15
"""Rows of arcs of a slice: few, but enough that a step takes far longer than its call."""


def slices_of(scheme: Scheme, program: Program) -> Sequence[ArcSlice]:
    """The slices of a rank's arcs, for the loops of a program; none if it has no rows of arcs."""
    looped = any(step.loop for step in (*program.forward, *program.evaluation))
    halo = scheme.halo_of(1) if looped else None
    return () if halo is None else halo.patterns.slices(ARCS_AT_ONCE, program.incidences)


def bind(
    binding: Binding, steps: Sequence[Step], slices: Sequence[ArcSlice]
) -> tuple[list[Run], dict[int, int]]:
    """The calls of an epoch, step by step, those of a loop slice by slice.

    And after how many of these calls each value that is written is there.
    """
    found: list[Run] = []
    there: dict[int, int] = {}
    memory: dict[str, Array] = {}
    first: dict[str, int] = {}
    for loop, some in groupby(steps, lambda step: step.loop):
        inside = list(some)
        for arcs in slices if loop else (None,):
            for step in inside:
                later = arcs is not None and arcs.number > 0
                facts = binding.kernel, binding.gradients, memory, first
                shares = Shares(*facts, None if later else step.number)
                found.append(shares.added(step.bind(binding.of_slice(arcs, shares))))
        there |= {step.writes: len(found) for step in inside if step.writes is not None}
    return found, there


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
