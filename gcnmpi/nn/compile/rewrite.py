"""Rewriting operators before they become steps: order of products, what may follow a product.

Each pass takes and gives a list of operators, in which the number of what is left stays the same
where it can; operators that are not read any more are dropped at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gcnmpi.layout.entries import SHARE
from gcnmpi.layout.place import Space
from gcnmpi.nn.operator import Finish, Operator, without_unread
from gcnmpi.nn.operators import rule_of
from gcnmpi.nn.operators.arcs import ArcInput, WeighedSum
from gcnmpi.nn.operators.degrees import ScaleByDegree
from gcnmpi.nn.operators.dense import Features, Linear
from gcnmpi.nn.operators.elementwise import Fill
from gcnmpi.nn.operators.neighbours import Aggregate
from gcnmpi.nn.operators.spaces import Expand, Source, Target
from gcnmpi.options.config import ModelConfig
from partition.errors import UserError


def choose_orders(
    operators: Sequence[Operator],
    outputs: Sequence[int],
    constant: Sequence[bool],
    differentiated: Sequence[bool],
    model: ModelConfig,
    possible: tuple[str, ...],
    sparse: bool = False,
    narrows: bool = False,
) -> list[Operator]:
    """M·(H·W) instead of (M·H)·W where it moves fewer columns in an epoch.

    The same with multiples of H added, M·(H·W) + (1 + ε)·(H·W) instead of (M·H + (1 + ε)·H)·W.

    Combining first exchanges d_out columns forward and backward; aggregating first d_in, and only
    forward where the input has no gradient. A value that never changes is aggregated once, before.
    Where either order moves as many columns, aggregating comes first without gradients, since the
    weight is then multiplied where the aggregate is, in its memory; and where an aggregate has
    fewer rows.

    Parameters
    ----------
    outputs : sequence of int
        Values that have to stay what they are.
    constant, differentiated : sequence of bool
        Of each operator's value: whether it never changes; whether its gradient is needed.
    possible : tuple of str
        ``orders`` of the scheme: "combine", "aggregate".
    sparse : bool
        Whether features are a sparse matrix, whose aggregate would be a dense one.
    narrows : bool
        Whether an aggregate has fewer rows than what it is made of.

    Raises
    ------
    UserError
        If the scheme cannot do what ``model.order`` wants.
    """
    check_order(model.order, possible)
    operators = list(operators)
    readers = count_readers(operators) + Counter(outputs)
    changed = True
    while changed:
        changed = False
        for number, linear in enumerate(operators):
            if not isinstance(linear, Linear):
                continue
            inner = _commutes(operators, linear.inputs[0], readers)
            aggregates = [i for i in inner if isinstance(operators[i], Aggregate)]
            if len(aggregates) != 1 or any(constant[i] for i in inner):
                continue
            x = operators[aggregates[0]].inputs[0]
            times, others = (1 + differentiated[i] for i in (x, number))
            width = operators[x].width
            narrower = width * times < others * linear.width
            narrower |= (others == 1 or narrows) and width == linear.width
            order = model.order if model.order != "auto" else possible[0]
            if model.order == "auto" and len(possible) > 1:
                order = "aggregate" if narrower else "combine"
            if sparse and _are_features(operators, x):
                order = "combine"
            if order == "combine":
                _multiply_first(operators, inner, number, x)
                readers = count_readers(operators) + Counter(outputs)
                changed = True
    return operators


def multiply_vertices(
    operators: Sequence[Operator], outputs: Sequence[int], constant: Sequence[bool]
) -> list[Operator]:
    """Rows of vertices are multiplied with a weight rather than those of their arcs.

    ::

        x ── Expand ── Source ── Linear ──►      x ── Linear ── Expand ── Source ──►
        x ── Target ── Linear ──►                x ── Linear ── Target ──►
        x ── ScaleByDegree ── Linear ──►         x ── Linear ── ScaleByDegree ──►

    There are fewer vertices than arcs, and the fewer columns are scaled. In front of an expand, a
    weight that widens the rows would have more columns sent; and one that something else reads, or
    that never changes and is made once, stays what it is: there the rows of neighbours are
    multiplied by each rank that has them.
    """
    operators = list(operators)
    readers = count_readers(operators) + Counter(outputs)
    for number, operator in enumerate(operators):
        at = number
        while isinstance(operator, Linear):
            (before,) = operator.inputs
            move = operators[before]
            moves = isinstance(move, Source | Target) or (
                isinstance(move, Expand | ScaleByDegree)
                and operator.width <= move.width
                and not constant[before]
            )
            if not moves or readers[before] > 1:
                break
            _multiply_first(operators, (before,), at, move.inputs[0])
            at, operator = before, operators[before]
    return operators


def multiply_groups(operators: Sequence[Operator], last: int) -> list[Operator]:
    """Means by relation as products, which hide messages and may send sums in place of rows.

    ::

        x ── Expand ── WeighedSum (of shares) ──► groups      x ── Aggregate ──► groups

    All of them, if nothing else looks at rows of neighbours; else none.
    """
    found = list(operators)
    for number, sums in enumerate(operators):
        if not isinstance(sums, WeighedSum) or sums.to is not Space.GROUPS:
            continue
        shares, expand = (operators[i] for i in sums.inputs)
        if isinstance(shares, ArcInput) and shares.given == SHARE and isinstance(expand, Expand):
            facts = expand.inputs, sums.width, sums.layer
            found[number] = Aggregate(*facts, to=Space.GROUPS)
    looking = [
        one
        for one in without_unread(found, last)[0]
        if rule_of(one).forward.looks_at_neighbours and one.gives is not Space.GROUPS
    ]
    return list(operators) if looking else found


def _commutes(
    operators: Sequence[Operator], last: int, readers: Mapping[int, int]
) -> tuple[int, ...]:
    """The operators up to ``last`` that a weight may be taken before: f(x)·W = f(x·W).

    They are sums and multiples of one value and of its aggregate, such as M·x + (1 + ε)·x, and
    nothing else reads what is between. Increasing; none if they are of several values.
    """
    found: set[int] = set()
    sources: set[int] = set()
    open_ = [last]
    while open_:
        number = open_.pop()
        operator = operators[number]
        if not rule_of(operator).commutes or readers[number] > 1:
            sources.add(number)
            continue
        found.add(number)
        if isinstance(operator, Aggregate):
            sources.update(operator.inputs)
        else:
            open_ += operator.inputs
    return tuple(sorted(found)) if len(sources) == 1 else ()


def _multiply_first(operators: list[Operator], inner: Sequence[int], number: int, x: int) -> None:
    """x·W takes the first of the places of the inner operators, which go one further each."""
    linear = operators[number]
    new = dict(zip((x, *inner), (inner[0], *inner[1:], number), strict=True))
    moved = [
        replace(
            operators[i],
            inputs=tuple(new[j] for j in operators[i].inputs),
            width=linear.width,
            layer=linear.layer,
        )
        for i in inner
    ]
    operators[inner[0]] = replace(linear, inputs=(x,))
    for i, operator in zip(inner, moved, strict=True):
        operators[new[i]] = operator


def _are_features(operators: Sequence[Operator], number: int) -> bool:
    """Whether a value is the features, or dropout of them."""
    operator = operators[number]
    if isinstance(operator, Finish) and operator.only_drops:
        operator = operators[operator.inputs[0]]
    return isinstance(operator, Features)


def check_order(wanted: str, possible: tuple[str, ...]) -> None:
    """Raise a UserError if a scheme whose ``orders`` are given cannot do ``model.order``."""
    if wanted not in ("auto", *possible):
        raise UserError(
            f"model.order = {wanted!r}: this scheme {possible[0]}s first", "leave it at 'auto'"
        )


def merge_finishes(operators: Sequence[Operator], outputs: Sequence[int]) -> list[Operator]:
    """Bias, activation and dropout that follow each other become one :class:`Finish`.

    It takes the place of the last; the others are not read any more. A matrix that something else
    reads, or that is an output, is not merged away.
    """
    operators = list(operators)
    readers = count_readers(operators)
    for number, operator in enumerate(operators):
        if not isinstance(operator, Finish):
            continue
        below = operators[operator.inputs[0]]
        single = readers[operator.inputs[0]] == 1 and operator.inputs[0] not in outputs
        if not isinstance(below, Finish) or not single or below.p:
            continue
        if operator.bias or (operator.kind != "none" and below.kind != "none"):
            continue
        first = operator if operator.kind != "none" else below
        operators[number] = replace(
            operator, inputs=below.inputs, bias=below.bias, kind=first.kind, slope=first.slope
        )
    return operators


def constants(operators: Sequence[Operator], model: ModelConfig, stays: bool = False) -> list[bool]:
    """Which values never change: what needs neither parameters nor dropout.

    Aggregates are kept unless ``model.cache_input`` is off, or combining first is wanted. But if M
    ``stays`` the same, those that do not depend on the features are: row sums of M.
    """
    keep = model.cache_input and model.order != "combine"
    found: list[bool] = []
    apart: list[bool] = []  # from the features
    for operator in operators:
        # Whatever its input is, if that is there.
        first = all(isinstance(operators[i], Features) or found[i] for i in operator.inputs)
        fills = isinstance(operator, Fill) and first
        apart.append(fills or (bool(operator.inputs) and all(apart[i] for i in operator.inputs)))
        if isinstance(operator, Features):
            found.append(not model.train_features)
            continue
        fixed = fills or (all(found[i] for i in operator.inputs) and not operator.parameters)
        dropped = isinstance(operator, Finish) and operator.p > 0
        # A row for each arc is made again rather than kept, unless it is given.
        of_arcs = (operator.gives or rule_of(operator).gives) is Space.ENTRIES
        kept = (keep or (stays and apart[-1])) and not dropped and not of_arcs
        found.append(fixed and (kept or not operator.inputs))
    return found


def differentiated(
    operators: Sequence[Operator], model: ModelConfig, training: bool = True
) -> list[bool]:
    """Which values a gradient is needed of: in training, those that depend on something trained."""
    if not training:
        return [False] * len(operators)
    found: list[bool] = []
    for operator in operators:
        trained = bool(operator.parameters) or any(found[i] for i in operator.inputs)
        trained &= not rule_of(operator).stops
        found.append(model.train_features if isinstance(operator, Features) else trained)
    return found


def count_readers(operators: Sequence[Operator]) -> Counter[int]:
    """How many operators read each value."""
    return Counter(i for operator in operators for i in operator.inputs)
