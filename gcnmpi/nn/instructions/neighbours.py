"""Steps that look at whole rows of neighbours: the maximum over them, and attention.

The scheme's halo brings the rows of others behind the own ones, (own + halo, width); what follows
is local. In a backward pass, gradients of all these rows go back to their owners and are added.
Where fewer rows come out than go in, they are the first ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gcnmpi.core import rng
from gcnmpi.halo.matrix import Matrix
from gcnmpi.kernels.interface.kernel import Array, AttentionDropout
from gcnmpi.kernels.interface.neighbours import scratch_rows
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operators import Attend, AttendV2
from gcnmpi.nn.program import Product, Program, Step


def expand(program: Program, step: Step, rows: int) -> list[Product]:
    """Rows of the first input to those who need them."""
    return [("expand", step.k, step.operator.width)]


def fold(program: Program, step: Step, rows: int) -> list[Product]:
    """Their gradients back to the owners."""
    return [("fold", step.k, step.operator.width)]


def max_kept(step: Step, rows: int, columns: int, entries: int) -> int:
    """Which neighbour it was."""
    return rows * step.operator.width


def scores_kept(step: Step, rows: int, columns: int, entries: int) -> int:
    """Scores, maxima and sums of each head."""
    return _heads(step) * (3 * rows + columns)


def arcs_kept(step: Step, rows: int, columns: int, entries: int) -> int:
    """The same, and scratch, which is one for all layers: of several it is counted too often."""
    return scores_kept(step, rows, columns, entries) + _heads(step) * scratch_rows(rows, entries)


def scores_grad_kept(step: Step, rows: int, columns: int, entries: int) -> int:
    """Gradients of scores, where the forward step has the scratch."""
    return _heads(step) * (rows + columns)


def arcs_grad_kept(step: Step, rows: int, columns: int, entries: int) -> int:
    """Gradients of scores, and scratch."""
    return _heads(step) * (rows + columns + scratch_rows(rows, entries))


def _heads(step: Step) -> int:
    return getattr(step.operator, "heads", 1)


def max_aggregate(binding: Binding, step: Step) -> Run:
    """Maximum over neighbours, and which of them it was."""
    kernel, halo = binding.kernel, binding.halo(step)
    x, out, arg = binding.matrix(step.reads[0]), binding.written(step), _arg(binding, step)

    def run(epoch: int) -> None:
        whole = halo.expand(x)
        with halo.phases("spmm"):
            kernel.max_aggregate(halo.pattern, whole, out, arg)

    return run


def max_aggregate_backward(binding: Binding, step: Step) -> Run:
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


def attend(binding: Binding, step: Step) -> Run:
    """Attention: scores of targets and sources, softmax, weighted sum of rows."""
    operator, kernel, halo = step.operator, binding.kernel, binding.halo(step)
    assert isinstance(operator, Attend)
    matrix, out, heads = binding.matrix(step.reads[0]), binding.written(step), operator.heads
    x = matrix.array
    source, target = binding.parameters[operator.source], binding.parameters[operator.target]
    t, s, shift, total = _scores(binding, step, heads)
    dropout = _dropout(binding, step)

    def run(epoch: int) -> None:
        whole = halo.expand(matrix)
        with halo.phases("spmm"):
            kernel.head_dots(whole, source, t)
            kernel.head_dots(x[: len(s)], target, s)
            kernel.attend(
                halo.pattern, whole, t, s, operator.slope, dropout(epoch), out, shift, total
            )

    return run


def attend_backward(binding: Binding, step: Step) -> Run:
    """Gradients of rows, which go back to their owners, and of both vectors."""
    operator, kernel, halo = step.operator, binding.kernel, binding.halo(step)
    assert isinstance(operator, Attend)
    grad, x, y, out = (
        binding.read(step), binding.read(step, 1), binding.read(step, 2), binding.written(step),
    )  # fmt: skip
    heads, counts = operator.heads, binding.block(step).counts_entries
    source, target = binding.parameters[operator.source], binding.parameters[operator.target]
    of_source, of_target = (binding.gradients[name] for name in (operator.source, operator.target))
    t, s, shift, total = _scores(binding, step, heads)
    dropout, own = _dropout(binding, step), len(s)
    gradient, dt = _gradient(binding, step, out), binding.scratch("dt", len(t), heads)
    dx, whole = gradient.whole, binding.matrix(step.reads[1]).whole
    ds = binding.scratch("ds", own, heads)
    scratch = _arc_scratch(binding, step, heads)

    def run(epoch: int) -> None:
        with halo.phases("spmm"):
            kernel.attend_backward(
                halo.pattern, whole, t, s, operator.slope, dropout(epoch), shift, total, y, grad,
                dx, dt, ds, scratch,
            )  # fmt: skip
            of_source.fill(0)
            of_target.fill(0)
            kernel.head_dots_backward(whole, source, dt, dx, of_source, True)
            kernel.head_dots_backward(x[:own], target, ds, gradient.array[:own], of_target, True)
            if not counts:  # another copy of these rows gives the same
                of_source.fill(0)
                of_target.fill(0)
        if gradient.array is not out:
            halo.fold(gradient, out)

    return run


def attend_v2(binding: Binding, step: Step) -> Run:
    """Attention of GATv2."""
    operator, kernel, halo = step.operator, binding.kernel, binding.halo(step)
    assert isinstance(operator, AttendV2)
    x1, x2, out = binding.matrix(step.reads[0]), binding.read(step, 1), binding.written(step)
    heads, vector = operator.heads, binding.parameters[operator.vector]
    shift, total = (_per_head(binding, step, name, heads) for name in ("shift", "total"))
    scratch = _arc_scratch(binding, step, heads)
    dropout = _dropout(binding, step)

    def run(epoch: int) -> None:
        whole = halo.expand(x1)
        with halo.phases("spmm"):
            kernel.attend_v2(
                halo.pattern, whole, x2, vector, operator.slope, dropout(epoch), out, shift, total,
                scratch,
            )  # fmt: skip

    return run


def attend_v2_backward(binding: Binding, step: Step) -> Run:
    """The gradient of the targets' side; that of the sources' is left for the next step."""
    operator, kernel, halo = step.operator, binding.kernel, binding.halo(step)
    assert isinstance(operator, AttendV2)
    grad, _, x2, y = (binding.read(step, i) for i in range(4))
    whole = binding.matrix(step.reads[1]).whole
    out, counts = binding.written(step), binding.block(step).counts_entries
    heads, vector = operator.heads, binding.parameters[operator.vector]
    of_vector = binding.gradients[operator.vector]
    shift, total = (_per_head(binding, step, name, heads) for name in ("shift", "total"))
    scratch = _arc_scratch(binding, step, heads)
    dropout, dx1 = _dropout(binding, step), _gradient(binding, step).whole

    def run(epoch: int) -> None:
        with halo.phases("spmm"):
            of_vector.fill(0)
            kernel.attend_v2_backward(
                halo.pattern, whole, x2, vector, operator.slope, dropout(epoch), shift,
                total, y, grad, dx1, out, of_vector, scratch,
            )  # fmt: skip
            if not counts:
                of_vector.fill(0)

    return run


def attend_v2_source(binding: Binding, step: Step) -> Run:
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


def _arc_scratch(binding: Binding, step: Step, heads: int) -> Array:
    """(scratch rows, heads), in a memory for the step with most heads."""
    rows = binding.halo(step).pattern.scratch_rows
    steps = (*binding.program.forward, *binding.program.evaluation)
    most = max(getattr(one.operator, "heads", 0) for one in steps)
    return binding.scratch("arcs", rows * most, 1)[: rows * heads].reshape(rows, heads)


def _arg(binding: Binding, step: Step) -> Array:
    rows, width = len(binding.block(step).rows), step.operator.width
    return binding.kept(step, "arg", lambda: binding.kernel.empty_integers(rows, width))


def _scores(binding: Binding, step: Step, heads: int) -> tuple[Array, Array, Array, Array]:
    columns = binding.halo(step).pattern.columns
    t = binding.kept(step, "t", lambda: binding.kernel.empty(columns, heads))
    s, shift, total = (_per_head(binding, step, name, heads) for name in ("s", "shift", "total"))
    return t, s, shift, total


def _per_head(binding: Binding, step: Step, name: str, heads: int) -> Array:
    rows = len(binding.block(step).rows)
    return binding.kept(step, name, lambda: binding.kernel.empty(rows, heads))


def _dropout(binding: Binding, step: Step) -> Callable[[int], AttentionDropout | None]:
    """Dropout of attention for an epoch: hashes of (target, source, head)."""
    operator = step.operator
    assert isinstance(operator, Attend | AttendV2)
    if not operator.p:
        return lambda epoch: None
    kernel, seed, halo = binding.kernel, binding.seed, binding.halo(step)
    own = halo.ids[: halo.pattern.rows]
    numbers = halo.ids.astype(np.int64)[:, np.newaxis] * operator.heads + np.arange(operator.heads)
    columns = rng.column_keys(numbers.reshape(-1))

    def of(epoch: int) -> AttentionDropout:
        rows = kernel.row_keys(seed, epoch, operator.stream, own)
        return AttentionDropout(rows, columns, operator.p)

    return of
