"""Operations that follow a product go into the product's own pass over memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from gcnmpi.nn.operator import Finish
from gcnmpi.nn.operators.dense import WEIGHT_GRAD
from gcnmpi.nn.operators.inserted import COLUMN_SUM, FINISH, FINISH_BACKWARD
from gcnmpi.nn.operators.spaces import SOURCE, TARGET
from gcnmpi.nn.program import Step
from gcnmpi.nn.tape import ADD
from gcnmpi.schemes.operations import DENSE, SUMS


class _Merged:
    """Steps, some of which become part of others."""

    def __init__(self, steps: Sequence[Step], pinned: Collection[int] = ()) -> None:
        self._steps: list[Step | None] = list(steps)
        self._pinned = pinned
        self._readers = Counter(value for step in steps for value in step.values)
        self._writers = {
            step.writes: at for at, step in enumerate(steps) if step.writes is not None
        }

    def writer(self, value: int | None) -> Step | None:
        """The step that writes a value, as it has become; None: it is there before."""
        return self._steps[self._writers[value]] if value in self._writers else None

    def in_order(self, values: Sequence[int]) -> list[int]:
        """Values in the order in which they are written; those that are there before come first."""
        return sorted(values, key=lambda value: self._writers.get(value, -1))

    def only_here(self, value: int) -> bool:
        """Whether one step reads a value, and nothing else needs it."""
        return self._readers[value] == 1 and value not in self._pinned

    def over(self, value: int, other: int, at: int) -> bool:
        """Whether a step alone needs a value from the writer of ``other`` on."""
        if value in self._pinned:
            return False
        late = [*self._steps[self._writers[other] : at], *self._steps[at + 1 :]]
        return not any(value in step.values for step in late if step is not None)

    def merge(self, at: int, value: int, merged: Step) -> None:
        """A step goes into the one that writes ``value``, which then writes what it did."""
        where = self._writers[value]
        self._steps[where], self._steps[at] = merged, None
        assert merged.writes is not None
        self._writers[merged.writes] = where

    def take(self, at: int, values: Sequence[int], merged: Step) -> None:
        """The other way: a step takes along those that write ``values``."""
        for value in values:
            self._steps[self._writers[value]] = None
        self._steps[at] = merged

    def left(self) -> list[Step]:
        """The steps that are left, in order."""
        return [step for step in self._steps if step is not None]


def attach(
    steps: Sequence[Step], pinned: Collection[int], of_arcs: Collection[int] = ()
) -> list[Step]:
    """Merge each bias, activation, dropout, or gradient of them, into the product before it.

    The pinned values have to exist although no step reads them, as the logits do. Of arcs are the
    values that have rows of these.
    """
    found = _Merged(steps, pinned)
    for at, step in enumerate(steps):
        if step.instruction not in (FINISH, FINISH_BACKWARD):
            continue
        before = step.reads[0]
        product = found.writer(before)
        if product is None or not _takes_finish(product):
            continue
        if product.has_finish or not found.only_here(before):
            continue
        assert isinstance(step.operator, Finish)
        if step.instruction is FINISH:
            merged = replace(product, writes=step.writes, finish=step.operator)
        else:
            gradient = step.operator, step.reads[1] if len(step.reads) > 1 else None
            merged = replace(product, writes=step.writes, finish_gradient=gradient)
        found.merge(at, before, merged)
    return join_sums(found.left(), of_arcs)


def _takes_finish(step: Step) -> bool:
    return step.instruction.joins or step.instruction.operation in (*DENSE, *SUMS)


def join_ends(steps: Sequence[Step], pinned: Collection[int]) -> list[Step]:
    """The rows of both ends of every arc, added: one step, and one matrix of arcs.

    ::

        x ── Source ──┐                         x ──┐
                     Add ──►                       Source ──►
        y ── Target ──┘                         y ──┘
    """
    found = _Merged(steps, pinned)
    for at, step in enumerate(steps):
        if step.instruction is not ADD or not all(map(found.only_here, step.reads)):
            continue
        ends = [found.writer(value) for value in step.reads]
        if any(end is None or end.plus is not None for end in ends):
            continue
        kinds = {end.instruction: end for end in ends if end is not None}
        if kinds.keys() == {SOURCE, TARGET}:
            reads = (*kinds[SOURCE].reads, *kinds[TARGET].reads)
            merged = replace(kinds[SOURCE], reads=reads, writes=step.writes)
            found.take(at, step.reads, merged)
    return found.left()


def accumulate(
    steps: Sequence[Step], pinned: Collection[int], of_arcs: Collection[int]
) -> list[Step]:
    """Sums of two values of which the later one is a dense product: it is added onto the other.

    Only where rows are whole: elsewhere a product is a sum over ranks before it is complete. A
    gradient of rows of arcs, the largest matrices, may have been read before::

        g ──► layer norm … ──► product ──┐           g ──► layer norm … ──┐
        └───────────────────────────────Add ──►      └────────────────product ──►
    """
    found = _Merged(steps, pinned)
    for at, step in enumerate(steps):
        if step.instruction is not ADD:
            continue
        first, second = found.in_order(step.reads)
        product = found.writer(second)
        if product is None or product.instruction.operation not in DENSE:
            continue
        if first == second or found.writer(first) is None:
            continue
        alone = found.over(first, second, at) if first in of_arcs else found.only_here(first)
        if not (alone and found.only_here(second)):
            continue
        if not product.has_finish and product.onto is None:
            found.merge(at, second, replace(product, writes=step.writes, onto=first))
    return found.left()


def add_along(steps: Sequence[Step], pinned: Collection[int], products: bool = True) -> list[Step]:
    """Sums of two values, the later one a sparse product or one that joins: in its pass.

    Without ``products``, only the latter: an evaluation keeps no more matrices than it must.
    """
    found = _Merged(steps, pinned)
    for at, step in enumerate(steps):
        if step.instruction is not ADD:
            continue
        first, second = found.in_order(step.reads)
        product = found.writer(second)
        if product is None or first == second:
            continue
        sums = products and product.instruction.operation in SUMS
        if not product.instruction.joins and not sums:
            continue
        if found.only_here(second) and not product.has_finish and product.plus is None:
            found.merge(at, second, replace(product, writes=step.writes, plus=first))
    return found.left()


def pair(steps: Sequence[Step]) -> list[Step]:
    """A dense product and one that is added onto it: one step, and one pass over the result.

    The first waits for the second, so what it reads lives longer: not for an evaluation, which
    keeps no more matrices than it must.
    """
    found = _Merged(steps)
    for at, step in enumerate(steps):
        first = found.writer(step.onto)
        if first is None or step.onto is None or step.instruction.operation not in DENSE:
            continue
        if first.instruction is not step.instruction or first.finish_gradient is not None:
            continue
        if first.onto is not None or first.also is not None:
            continue
        finish = step.finish
        if first.finish is not None:  # a bias may as well be added to the sum
            if first.finish.has_gradient or step.finish_gradient or (finish and finish.bias):
                continue
            finish = replace(finish or first.finish, bias=first.finish.bias)
        also = replace(first, finish=None)
        found.take(at, (step.onto,), replace(step, onto=None, also=also, finish=finish))
    return found.left()


def join_sums(steps: Sequence[Step], of_arcs: Collection[int]) -> list[Step]:
    """The gradient of a bias and then that of a weight, from the same gradient: one step.

    One follows the other; a gradient of rows of arcs is worth a search among the later steps.
    """
    found: list[Step] = []
    for step in steps:
        at = _sum_before(found, step, of_arcs) if step.instruction is WEIGHT_GRAD else None
        if at is None:
            found.append(step)
            continue
        (bias,) = found[at].operator.parameters
        del found[at]
        found.append(replace(step, sums=bias))
    return found


def _sum_before(found: Sequence[Step], product: Step, of_arcs: Collection[int]) -> int | None:
    """Where the sum for a bias is that may go along with the gradient of a weight."""
    gradient = product.reads[1]
    if gradient in of_arcs:
        sums = [i for i, step in enumerate(found) if step.instruction is COLUMN_SUM]
        return next((i for i in sums if found[i].reads[0] == gradient), None)
    before = found[-1] if found else None
    if before is None or before.instruction is not COLUMN_SUM or before.k != product.k:
        return None
    return len(found) - 1 if before.reads[0] == gradient else None
