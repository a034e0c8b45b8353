"""What follows a product goes into the product's own pass over memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from gcnmpi.nn.program import Finish, Step

DENSE = ("combine", "combine_t")
SPARSE = ("aggregate", "aggregate_t")
PRODUCTS = (*DENSE, *SPARSE)


def attach(steps: Sequence[Step], pinned: Collection[int]) -> list[Step]:
    """Merge each bias, activation, dropout, or gradient of them, into the product before it.

    Parameters
    ----------
    pinned : collection of int
        Values that have to exist although no step reads them: the logits.
    """
    readers = Counter(value for step in steps for value in step.values)
    writers = {step.writes: at for at, step in enumerate(steps) if step.writes >= 0}
    found: list[Step | None] = list(steps)
    for at, step in enumerate(steps):
        if step.name not in ("finish", "finish_backward"):
            continue
        before = step.reads[0]
        product = found[writers[before]] if before in writers else None
        if product is None or product.name not in PRODUCTS or _has_finish(product):
            continue
        if readers[before] != 1 or before in pinned:
            continue
        assert isinstance(step.operator, Finish)
        if step.name == "finish":
            merged = replace(product, writes=step.writes, finish=step.operator)
        else:
            gradient = step.operator, step.reads[1] if len(step.reads) > 1 else -1
            merged = replace(product, writes=step.writes, finish_gradient=gradient)
        found[writers[before]] = merged
        found[at] = None
        writers[step.writes] = writers[before]
    return join_sums([step for step in found if step is not None])


def accumulate(steps: Sequence[Step], pinned: Collection[int]) -> list[Step]:
    """Sums of two values of which the later one is a dense product: it is added onto the other.

    Only where rows are whole: elsewhere a product is a sum over ranks before it is complete.
    """
    readers = Counter(value for step in steps for value in step.values)
    writers = {step.writes: at for at, step in enumerate(steps) if step.writes >= 0}
    found: list[Step | None] = list(steps)
    for at, step in enumerate(steps):
        if step.name != "add" or not all(value in writers for value in step.reads):
            continue
        first, second = sorted(step.reads, key=lambda value: writers[value])
        product = found[writers[second]]
        alone = all(readers[value] == 1 and value not in pinned for value in (first, second))
        if first == second or not alone or product is None or product.name not in DENSE:
            continue
        if _has_finish(product) or product.onto >= 0:
            continue
        found[writers[second]] = replace(product, writes=step.writes, onto=first)
        found[at] = None
        writers[step.writes] = writers[second]
    return [step for step in found if step is not None]


def add_along(steps: Sequence[Step], pinned: Collection[int]) -> list[Step]:
    """Sums of two values of which the later one is a sparse product: added in its pass."""
    readers = Counter(value for step in steps for value in step.values)
    writers = {step.writes: at for at, step in enumerate(steps) if step.writes >= 0}
    found: list[Step | None] = list(steps)
    for at, step in enumerate(steps):
        if step.name != "add":
            continue
        first, second = sorted(step.reads, key=lambda value: writers.get(value, -1))
        product = found[writers[second]] if second in writers else None
        if product is None or product.name not in SPARSE or product.plus >= 0:
            continue
        if first == second or readers[second] != 1 or second in pinned or _has_finish(product):
            continue
        found[writers[second]] = replace(product, writes=step.writes, plus=first)
        found[at] = None
        writers[step.writes] = writers[second]
    return [step for step in found if step is not None]


def pair(steps: Sequence[Step]) -> list[Step]:
    """A dense product and one that is added onto it: one step, and one pass over the result.

    The first waits for the second, so what it reads lives longer: not for an evaluation, which
    keeps no more matrices than it must.
    """
    writers = {step.writes: at for at, step in enumerate(steps) if step.writes >= 0}
    found: list[Step | None] = list(steps)
    for at, step in enumerate(steps):
        first = found[writers[step.onto]] if step.onto in writers else None
        if first is None or step.name not in DENSE or first.name != step.name:
            continue
        if first.onto >= 0 or first.also is not None or first.finish_gradient is not None:
            continue
        finish = step.finish
        if first.finish is not None:  # a bias may as well be added to the sum
            if not _is_bias(first.finish) or step.finish_gradient or (finish and finish.bias):
                continue
            finish = replace(finish or first.finish, bias=first.finish.bias)
        also = replace(first, finish=None)
        found[at] = replace(step, onto=-1, also=also, finish=finish)
        found[writers[step.onto]] = None
    return [step for step in found if step is not None]


def join_sums(steps: Sequence[Step]) -> list[Step]:
    """The gradient of a bias and then that of a weight, from the same gradient: one step."""
    found: list[Step] = []
    for step in steps:
        before = found[-1] if found else None
        if (
            step.name == "weight_grad"
            and before is not None
            and before.name == "column_sum"
            and before.reads[0] == step.reads[1]
            and before.k == step.k
        ):
            assert isinstance(before.operator, Finish)
            found[-1] = replace(step, sums=before.operator.bias)
        else:
            found.append(step)
    return found


def _has_finish(step: Step) -> bool:
    return step.finish is not None or step.finish_gradient is not None


def _is_bias(finish: Finish) -> bool:
    return finish.kind == "none" and not finish.p
