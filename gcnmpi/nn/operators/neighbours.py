"""Operators that look at neighbours: sums of their rows, the maximum over them, and attention.

A product with M is the scheme's. For the others, its halo brings the rows of others behind the own
ones, (own + halo, width); what follows is local. In a backward pass, gradients of all these rows go
back to their owners and are added. Where fewer rows come out than go in, they are the first ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from gcnmpi.core import rng
from gcnmpi.halo.matrix import Matrix
from gcnmpi.kernels.interface.kernel import Array, AttentionDropout
from gcnmpi.kernels.interface.neighbours import Attention as Scores
from gcnmpi.kernels.interface.neighbours import (
    AttentionBackward,
    AttentionV2,
    AttentionV2Backward,
    computes_again,
    scratch_rows,
)
from gcnmpi.layout.place import Space
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.program import Instruction, Step
from gcnmpi.nn.tape import Rule, Tape, one_step
from gcnmpi.schemes.operations import Operation


@dataclass(frozen=True)
class Aggregate(Operator):
    """Each row is the weighted sum of its neighbours' rows, M·x.

    Where ``to`` is groups, M is the matrix of means by relation: y[g] is the mean of x[j] over the
    arcs of group g.
    """

    to: Space = Space.OWN

    @property
    def gives(self) -> Space:
        """The rows that ``to`` says."""
        return self.to


@dataclass(frozen=True)
class Multiply(Aggregate):
    """M·x of some columns of all vertices, which moves nothing."""

    to: Space = Space.TURNED
    title = "multiply columns"


@dataclass(frozen=True)
class AggregateT(Operator):
    """Each row is the weighted sum of the rows that it is a neighbour of, Mᵀ·x."""

    title = "aggregate transposed"


@dataclass(frozen=True)
class MaxAggregate(Operator):
    """y[i, c] = max over j in N(i) of x[j, c]; 0 in rows without entries.

    Its gradient goes to the j that attains it, the lowest of equals.
    """

    title = "maximum of neighbours"


@dataclass(frozen=True)
class Attention(Operator):
    """A weighted sum of neighbours' rows, for each of ``heads`` heads with weights of its own.

    The columns of head h are its own: x = [x⁰ | x¹ | …], equally wide.
    α[i, j, h] = softmax over j in N(i) of e[i, j, h];
    y[i]ʰ = Σ over j in N(i) of drop(α[i, j, h])·x[j]ʰ; 0 in rows without entries.

    ``drop`` is dropout with probability ``p``, a function of (seed, epoch, stream, target i,
    source j, head h): row key of vertex i, column key of number j·heads + h.
    """

    heads: int = 1
    slope: float = 0.2
    p: float = 0.0
    stream: int = 0
    told = "heads {heads} slope {slope:g}"

    def without_dropout(self) -> Self:
        """All weights as they are."""
        return replace(self, p=0.0) if self.p else self


@dataclass(frozen=True)
class Attend(Attention):
    """Attention of Veličković et al. 2018, equations 1 to 4, without σ.

    With t[j, h] = x[j]ʰ·source[h] and s[i, h] = x[i]ʰ·target[h], (heads·columns of a head,) each:
    e[i, j, h] = leaky_relu(s[i, h] + t[j, h]).
    """

    source: str = ""
    target: str = ""
    reads = ("source", "target")


@dataclass(frozen=True)
class AttendV2(Attention):
    """Attention of GATv2 (Brody, Alon and Yahav 2022, equation 7): inputs x₁ (source), x₂ (target).

    e[i, j, h] = vector[h]·leaky_relu(x₁[j]ʰ + x₂[i]ʰ); x is x₁.
    """

    vector: str = ""
    reads = ("vector",)
    title = "attend by GATv2"


def _attend_v2_gradient(tape: Tape, number: int, gradient: int) -> None:
    source, target = tape.operators[number].inputs
    # The step writes the gradient of the target's side; that of the source's is left by it.
    reads = (gradient, source, target, number)
    tape.contribute(target, tape.step(ATTEND_V2_BACKWARD, number, reads, like=target))
    tape.contribute(source, tape.step(ATTEND_V2_SOURCE, number, (gradient,), like=source))


def _aggregate(aggregate: Operator, binding: Binding, step: Step) -> Run:
    """M·x, or Mᵀ·x: each is the other's gradient."""
    scheme, k, epilogue = binding.scheme, step.k, binding.epilogue(step)
    forward = step.instruction in (AGGREGATE, MULTIPLY)
    multiply = scheme.aggregate if forward else scheme.aggregate_t
    x, out = binding.matrix(step.reads[0]), binding.written(step)
    x = replace(x, spent=step.reads[0] in binding.program.spent(binding.once))
    return lambda epoch: multiply(k, x, out, epilogue(epoch))


def _max_aggregate(maximum: MaxAggregate, binding: Binding, step: Step) -> Run:
    """Maximum over neighbours, and which of them it was."""
    kernel, halo = binding.kernel, binding.halo(step)
    x, out, arg = binding.matrix(step.reads[0]), binding.written(step), _arg(binding, step)

    def run(epoch: int) -> None:
        whole = halo.expand(x)
        with halo.phases("spmm"):
            kernel.max_aggregate(halo.pattern, whole, out, arg)

    return run


def _max_aggregate_backward(maximum: MaxAggregate, binding: Binding, step: Step) -> Run:
    """The gradient to where the maximum was."""
    kernel, halo = binding.kernel, binding.halo(step)
    grad, out, arg = binding.read(step), binding.written(step), _arg(binding, step)
    gradient = _gradient(binding, step, out)
    whole = gradient.whole

    def run(epoch: int) -> None:
        with halo.phases("spmm"):
            kernel.max_aggregate_backward(halo.pattern, grad, arg, whole)
        if gradient.array is not out:
            halo.fold(gradient, out)

    return run


def _attend(attend: Attend, binding: Binding, step: Step) -> Run:
    """Attention: scores of targets and sources, softmax, weighted sum of rows."""
    kernel, halo = binding.kernel, binding.halo(step)
    matrix, out, heads = binding.matrix(step.reads[0]), binding.written(step), attend.heads
    x = matrix.array
    source, target = binding.parameters[attend.source], binding.parameters[attend.target]
    t, s, shift, total = _scores(binding, step, heads)
    dropout = _dropout(attend, binding, step)

    def run(epoch: int) -> None:
        whole = halo.expand(matrix)
        with halo.phases("spmm"):
            kernel.head_dots(whole, source, t)
            kernel.head_dots(x[: len(s)], target, s)
            drop = dropout(epoch)
            kernel.attend(Scores(halo.pattern, whole, attend.slope, drop, out, shift, total, t, s))

    return run


def _attend_backward(attend: Attend, binding: Binding, step: Step) -> Run:
    """Gradients of rows, which go back to their owners, and of both vectors."""
    kernel, halo = binding.kernel, binding.halo(step)
    grad, x, y, out = (
        binding.read(step), binding.read(step, 1), binding.read(step, 2), binding.written(step),
    )  # fmt: skip
    heads, counts = attend.heads, binding.block(step).counts_entries
    source, target = binding.parameters[attend.source], binding.parameters[attend.target]
    of_source, of_target = (binding.gradients[name] for name in (attend.source, attend.target))
    t, s, shift, total = _scores(binding, step, heads)
    dropout, own = _dropout(attend, binding, step), len(s)
    gradient, dt = _gradient(binding, step, out), binding.scratch("dt", len(t), heads)
    dx, whole = gradient.whole, binding.matrix(step.reads[1]).whole
    ds = binding.scratch("ds", own, heads)
    rows = _scratch_rows(step, own, halo.pattern.entries)
    scratch = _scratch(binding, "arcs", rows, heads)

    def run(epoch: int) -> None:
        with halo.phases("spmm"):
            drop = dropout(epoch)
            of = Scores(halo.pattern, whole, attend.slope, drop, y, shift, total, t, s)
            kernel.attend_backward(AttentionBackward(of, grad, dx, dt, ds, scratch))
            of_source.fill(0)
            of_target.fill(0)
            kernel.head_dots_backward(whole, source, dt, dx, of_source)
            kernel.head_dots_backward(x[:own], target, ds, gradient.array[:own], of_target)
            if not counts:  # another copy of these rows gives the same
                of_source.fill(0)
                of_target.fill(0)
        if gradient.array is not out:
            halo.fold(gradient, out)

    return run


def _attend_v2(attend: AttendV2, binding: Binding, step: Step) -> Run:
    """Bind the attention of GATv2."""
    kernel, halo = binding.kernel, binding.halo(step)
    x1, x2, out = binding.matrix(step.reads[0]), binding.read(step, 1), binding.written(step)
    heads, vector = attend.heads, binding.parameters[attend.vector]
    shift, total = (_per_head(binding, step, name, heads) for name in ("shift", "total"))
    scratch = _scratch(binding, "arcs", halo.pattern.scratch_rows, heads)
    dropout = _dropout(attend, binding, step)

    def run(epoch: int) -> None:
        whole = halo.expand(x1)
        with halo.phases("spmm"):
            heads = attend.slope, dropout(epoch), out, shift, total
            kernel.attend_v2(AttentionV2(halo.pattern, whole, *heads, x2, vector, scratch))

    return run


def _attend_v2_backward(attend: AttendV2, binding: Binding, step: Step) -> Run:
    """The gradient of the targets' side; that of the sources' is left for the next step."""
    kernel, halo = binding.kernel, binding.halo(step)
    grad, _, x2, y = (binding.read(step, i) for i in range(4))
    whole = binding.matrix(step.reads[1]).whole
    out, counts = binding.written(step), binding.block(step).counts_entries
    heads, vector = attend.heads, binding.parameters[attend.vector]
    of_vector = binding.gradients[attend.vector]
    shift, total = (_per_head(binding, step, name, heads) for name in ("shift", "total"))
    scratch = _scratch(binding, "arcs", halo.pattern.scratch_rows, heads)
    dropout, dx1 = _dropout(attend, binding, step), _gradient(binding, step).whole

    def run(epoch: int) -> None:
        with halo.phases("spmm"):
            of_vector.fill(0)
            heads = attend.slope, dropout(epoch), y, shift, total
            of = AttentionV2(halo.pattern, whole, *heads, x2, vector, scratch)
            kernel.attend_v2_backward(AttentionV2Backward(of, grad, dx1, out, of_vector))
            if not counts:
                of_vector.fill(0)

    return run


def _attend_v2_source(attend: AttendV2, binding: Binding, step: Step) -> Run:
    """Gradients of the sources' rows go back to their owners."""
    halo, out = binding.halo(step), binding.written(step)
    gradient = _gradient(binding, step)
    return lambda epoch: halo.fold(gradient, out)


def _gradient(binding: Binding, step: Step, out: Array | None = None) -> Matrix:
    """Room for gradients of own and halo rows of what an operator looks at.

    It is ``out``, which the step writes, where no rank has a halo: nothing is folded then.
    """
    if out is not None and binding.halo(step).alone:
        return Matrix(binding.place(step), out, out)
    return binding.halo(step).gradient(binding.place(step), step.operator.width)


def _scratch(binding: Binding, name: str, rows: int, heads: int) -> Array:
    """(rows, heads), in a memory for the step with most heads."""
    steps = (*binding.program.forward, *binding.program.evaluation)
    most = max(one.operator.heads for one in steps if isinstance(one.operator, Attention))
    return binding.scratch(name, rows * most, 1)[: rows * heads].reshape(rows, heads)


def _again(step: Step, entries: int) -> bool:
    """Whether the backward pass computes what it needs of so many entries again."""
    assert isinstance(step.operator, Attention)
    return isinstance(step.operator, Attend) and computes_again(
        step.operator.heads, step.operator.width, entries
    )


def _scratch_rows(step: Step, rows: int, entries: int) -> int:
    return scratch_rows(rows, entries, _again(step, entries))


def _arg(binding: Binding, step: Step) -> Array:
    rows, width = binding.block(step).count, step.operator.width
    return binding.kept(step, "arg", lambda: binding.kernel.empty_integers(rows, width))


def _scores(binding: Binding, step: Step, heads: int) -> tuple[Array, Array, Array, Array]:
    columns = binding.halo(step).pattern.columns
    t = binding.kept(step, "t", lambda: binding.kernel.empty(columns, heads))
    s, shift, total = (_per_head(binding, step, name, heads) for name in ("s", "shift", "total"))
    return t, s, shift, total


def _per_head(binding: Binding, step: Step, name: str, heads: int) -> Array:
    rows = binding.block(step).count
    return binding.kept(step, name, lambda: binding.kernel.empty(rows, heads))


def _dropout(
    attend: Attention, binding: Binding, step: Step
) -> Callable[[int], AttentionDropout | None]:
    """Dropout of attention for an epoch: hashes of (target, source, head)."""
    if not attend.p:
        return lambda epoch: None
    kernel, seed, halo = binding.kernel, binding.seed, binding.halo(step)
    own = kernel.resident(halo.ids[: halo.pattern.rows], np.uint64)
    numbers = halo.ids.astype(np.int64)[:, np.newaxis] * attend.heads + np.arange(attend.heads)
    columns = kernel.resident(rng.column_keys(numbers.reshape(-1)), np.uint32)

    def of(epoch: int) -> AttentionDropout:
        rows = kernel.row_keys(seed, epoch, attend.stream, own)
        return AttentionDropout(rows, columns, attend.p)

    return of


def _kept(a_row: int, scratch: bool = False) -> Callable[[Step, int, int, int], int]:
    """Numbers of each head: so many for an own row, one for a row with the halo, and scratch.

    These are scores, maxima and sums, or gradients of scores. Scratch is one for all layers: of
    several it is counted too often.
    """

    def kept(step: Step, rows: int, columns: int, entries: int) -> int:
        assert isinstance(step.operator, Attention)
        found = a_row * rows + columns
        if scratch:
            found += _scratch_rows(step, rows, entries)
        return step.operator.heads * found

    return kept


AGGREGATE = Instruction("aggregate", _aggregate, Operation.AGGREGATE)
AGGREGATE_T = Instruction("aggregate_t", _aggregate, Operation.AGGREGATE_T)
MULTIPLY = Instruction("multiply", _aggregate, Operation.MULTIPLY)
MULTIPLY_T = Instruction("multiply_t", _aggregate, Operation.MULTIPLY_T)
MAX_AGGREGATE = Instruction(
    "max_aggregate",
    _max_aggregate,
    Operation.EXPAND,
    kept=lambda step, rows, *_: rows * step.operator.width,
)
MAX_AGGREGATE_BACKWARD = Instruction(
    "max_aggregate_backward", _max_aggregate_backward, Operation.FOLD
)
ATTEND = Instruction("attend", _attend, Operation.EXPAND, kept=_kept(3))
ATTEND_BACKWARD = Instruction(
    "attend_backward",
    _attend_backward,
    Operation.FOLD,
    kept=_kept(1, scratch=True),
    whole=1,
    places=lambda step, entries: not _again(step, entries),
)
ATTEND_V2 = Instruction("attend_v2", _attend_v2, Operation.EXPAND, kept=_kept(3, scratch=True))
ATTEND_V2_BACKWARD = Instruction(
    "attend_v2_backward",
    _attend_v2_backward,
    kept=_kept(1),
    whole=1,
    places=lambda step, entries: True,
)
ATTEND_V2_SOURCE = Instruction("attend_v2_source", _attend_v2_source, Operation.FOLD, left=True)

RULES = {
    Aggregate: Rule(AGGREGATE, one_step(AGGREGATE_T), commutes=True),
    AggregateT: Rule(AGGREGATE_T, one_step(AGGREGATE)),
    Multiply: Rule(MULTIPLY, one_step(MULTIPLY_T), commutes=True, takes=((Space.TURNED,),)),
    Attend: Rule(ATTEND, one_step(ATTEND_BACKWARD, reads_input=True, reads_value=True)),
    AttendV2: Rule(ATTEND_V2, _attend_v2_gradient),
    MaxAggregate: Rule(MAX_AGGREGATE, one_step(MAX_AGGREGATE_BACKWARD)),
}
