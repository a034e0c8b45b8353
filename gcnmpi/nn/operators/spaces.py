"""Moves between index spaces: rows of vertices to those of neighbours and arcs, and back.

A value has rows of the rank's vertices (own), of these and their neighbours (whole), or of the
entries of its rows of M, one for each arc (see :class:`~gcnmpi.layout.place.Space`). The moves are
operators, and the adjoint of each is a step of the same file::

    own ──Expand──► whole ──Source──► entries ──Reduce──► own
     └───────────────Target──────────────┘

Between own rows and entries there may be groups of these of one relation; ``Target`` and ``Reduce``
lead from each to any finer or coarser one: own, groups, entries.

Rows of the vertices of one type are picked out of own rows, and spread over these again.

Only ``Expand`` sends anything: rows to ranks that need them, and gradients of these back (a fold).
In the docstrings x₁, x₂ are inputs, entry e stands for an arc from j to i: it lies in row i and
column j of M.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gcnmpi.kernels.interface.arcs import Reduction, Taken
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.layout.place import Place, Space
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.program import Instruction, Step
from gcnmpi.nn.tape import Rule, Tape, one_step
from gcnmpi.schemes.operations import Operation

OWN, WHOLE, ENTRIES, GROUPS, OF_TYPE, _ = Space


@dataclass(frozen=True)
class Expand(Operator):
    """x with the rows of neighbours on other ranks behind the own ones."""


@dataclass(frozen=True)
class Source(Operator):
    """y[e] = x[j]: the row of the vertex that an arc comes from."""


@dataclass(frozen=True)
class Target(Operator):
    """y[e] = x[i]: the row of the vertex that an arc leads to, or of the group that it is in.

    ``to`` are the rows of y: arcs, or groups of them.
    """

    to: Space = ENTRIES

    @property
    def gives(self) -> Space:
        """The rows that ``to`` says."""
        return self.to


@dataclass(frozen=True)
class Reduce(Operator):
    """y[i] = [f₁ | f₂ | …], each of the numbers x[e, c] of the arcs into i; 0 where there are none.

    ``kinds`` are the functions, of ``core.functions.REDUCTIONS``. The gradient of a maximum
    goes to the first of equals. ``to`` are the rows of y: vertices, or groups of arcs.
    """

    kinds: tuple[str, ...] = ("sum",)
    to: Space = OWN

    @property
    def gives(self) -> Space:
        """The rows that ``to`` says."""
        return self.to

    @property
    def words(self) -> str:
        """With the names of its functions."""
        return f"reduce {' '.join(self.kinds)}{' of groups' * (self.to is GROUPS)}"


@dataclass(frozen=True)
class Pick(Operator):
    """y = the rows of x of the vertices of the type of that number."""

    type: int = 0
    told = "type {type}"


@dataclass(frozen=True)
class Spread(Operator):
    """y = a row for each vertex: x for those of the type of that number, 0 for others."""

    type: int = 0
    told = "type {type}"


def _target_gradient(tape: Tape, number: int, gradient: int) -> None:
    (x,) = tape.operators[number].inputs
    if tape.wanted[x]:
        tape.contribute(x, tape.step(SUM_TARGETS, number, (gradient,), like=x))


def _reduce_gradient(tape: Tape, number: int, gradient: int) -> None:
    reduce = tape.operators[number]
    assert isinstance(reduce, Reduce)
    (x,) = reduce.inputs
    if reduce.kinds == ("sum",):
        tape.contribute(x, tape.step(TARGET, number, (gradient,), like=x))
    else:
        reads = (gradient, x, number)
        tape.contribute(x, tape.step(REDUCE_BACKWARD, number, reads, like=x))


def _expand(expand: Expand, binding: Binding, step: Step) -> Run:
    """Own rows to the head of the result, and those of others behind them."""
    kernel, halo = binding.kernel, binding.halo(step)
    x, out = binding.read(step), binding.result(step)

    def run(epoch: int) -> None:
        kernel.copy(x, out.array)
        halo.expand(out)

    return run


def _fold(expand: Expand, binding: Binding, step: Step) -> Run:
    """Gradients of rows of others back to their owners, which add them."""
    halo, out = binding.halo(step), binding.written(step)
    gradient = binding.matrix(step.reads[0])
    return lambda epoch: halo.fold(gradient, out)


def _pick(operator: Operator, binding: Binding, step: Step) -> Run:
    """Some of the rows."""
    kernel, rows = binding.kernel, rows_of_type(binding)
    x, out, some = binding.read(step), binding.written(step), kernel.resident(rows, np.int64)
    return lambda epoch: kernel.take_rows(x, some, out)


def _spread(operator: Operator, binding: Binding, step: Step) -> Run:
    """Zeros, but for these rows."""
    kernel, rows = binding.kernel, rows_of_type(binding)
    x, out, some = binding.read(step), binding.written(step), kernel.resident(rows, np.int64)

    def run(epoch: int) -> None:
        out.fill(0)
        kernel.put_rows(x, some, out)

    return run


def rows_of_type(binding: Binding) -> np.ndarray:
    """Which of the rank's rows are vertices of the type, (rows,) int64."""
    own, some = (binding.scheme.block(Place(0, space=one), 1).rows for one in (OWN, OF_TYPE))
    return np.flatnonzero(np.isin(own, some))


def _take(operator: Operator, binding: Binding, step: Step) -> Run:
    """Rows of one end of each arc or of both, summed, and what follows."""
    kernel, pattern, out = binding.kernel, binding.pattern(step), binding.written(step)
    ends: dict[bool, Array] = {
        binding.program.values[i].place.space is WHOLE: binding.array(i) for i in step.reads
    }
    phases, source, target = binding.halo(step).phases, ends.get(True), ends.get(False)
    epilogue = binding.epilogue(step)

    def run(epoch: int) -> None:
        with phases("spmm"):
            kernel.take(Taken(pattern, source, target, out, epilogue(epoch)))

    return run


def _sum_sources(source: Source, binding: Binding, step: Step) -> Run:
    """The sum over the arcs from each vertex."""
    kernel, pattern, out = binding.kernel, binding.pattern(step), binding.written(step)
    phases, x = binding.halo(step).phases, binding.read(step)

    def run(epoch: int) -> None:
        with phases("spmm"):
            kernel.sum_sources(pattern, x, out)

    return run


def _reduced(binding: Binding, step: Step, kinds: tuple[str, ...], x: Array, out: Array) -> Run:
    kernel, phases = binding.kernel, binding.halo(step).phases
    reduction = Reduction(binding.pattern(step), kinds, x, out)

    def run(epoch: int) -> None:
        with phases("spmm"):
            kernel.reduce_targets(reduction)

    return run


def _reduce(reduce: Reduce, binding: Binding, step: Step) -> Run:
    """All functions of a row's arcs."""
    return _reduced(binding, step, reduce.kinds, binding.read(step), binding.written(step))


def _sum_targets(target: Target, binding: Binding, step: Step) -> Run:
    """The sum over the arcs into each vertex."""
    return _reduced(binding, step, ("sum",), binding.read(step), binding.written(step))


def _reduce_backward(reduce: Reduce, binding: Binding, step: Step) -> Run:
    """The gradient of each arc's numbers, from that of the functions of them."""
    kernel, phases, out = binding.kernel, binding.halo(step).phases, binding.written(step)
    grad, x, value = (binding.read(step, i) for i in range(3))
    reduction = Reduction(binding.pattern(step), reduce.kinds, x, value)

    def run(epoch: int) -> None:
        with phases("spmm"):
            kernel.reduce_targets_backward(reduction, grad, out)

    return run


EXPAND = Instruction("expand", _expand, Operation.EXPAND, passes=2)
FOLD = Instruction("fold", _fold, Operation.FOLD, passes=2)
SOURCE = Instruction("source", _take, passes=1, visits=True, joins=True)
TARGET = Instruction("target", _take, passes=1, visits=True, joins=True)
SUM_SOURCES = Instruction("sum_sources", _sum_sources, passes=1, visits=True, by_columns=True)
SUM_TARGETS = Instruction("sum_targets", _sum_targets, passes=1, visits=True)
REDUCE = Instruction("reduce", _reduce, passes=1, visits=True)
PICK = Instruction("pick", _pick, passes=2)
SPREAD = Instruction("spread", _spread, passes=2)
REDUCE_BACKWARD = Instruction("reduce_backward", _reduce_backward, passes=3, visits=True)

RULES = {
    Expand: Rule(EXPAND, one_step(FOLD), keeps_shifts=True, takes=((OWN,),), gives=WHOLE),
    Source: Rule(
        SOURCE, one_step(SUM_SOURCES), keeps_shifts=True, takes=((WHOLE,),), gives=ENTRIES
    ),
    Target: Rule(TARGET, _target_gradient, keeps_shifts=True, takes=((OWN, GROUPS),)),
    Pick: Rule(PICK, one_step(SPREAD), keeps_shifts=True, takes=((OWN,),), gives=OF_TYPE),
    Spread: Rule(SPREAD, one_step(PICK), takes=((OF_TYPE,),), gives=OWN),
    Reduce: Rule(REDUCE, _reduce_gradient, takes=((ENTRIES, GROUPS),)),
}
