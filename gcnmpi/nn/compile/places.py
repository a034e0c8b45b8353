"""Where each value lives, and moves between layouts where operators need another one.

Most schemes have one layout for all matrices. Where it rotates with the layers, a product leads
from one place to the next: an aggregation from Hᵏ⁻¹ to M·Hᵏ⁻¹, a linear map from there to Hᵏ. A
value that does not lie where an operator needs it is moved. In a batch of sampled neighbours each
aggregation has fewer rows than it reads: rows that no later step needs are left out as early as
possible.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence

from gcnmpi.layout.place import Place
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.operators import rule_of
from gcnmpi.nn.operators.arcs import ArcInput
from gcnmpi.nn.operators.dense import Linear
from gcnmpi.nn.operators.inserted import Move
from gcnmpi.schemes.operations import Operation
from partition.errors import UserError


def place(
    operators: Sequence[Operator], layout: Callable[[Place], Hashable]
) -> tuple[list[Operator], list[Place], dict[int, int]]:
    """Operators with moves, the place of each value, and old number → new number."""
    laid = _Laid(layout)
    new: dict[int, int] = {}
    places, at = laid.places, laid.at
    layers = range(max(operator.layer for operator in operators) + 2)
    uniform = len({layout(Place(k, kind)) for k in layers for kind in (False, True)}) == 1
    for old, operator in enumerate(operators):
        inputs = [new[i] for i in operator.inputs]
        here = places[inputs[0]] if inputs else Place(0)
        space = rule_of(operator).space(operator, [places[i].space for i in inputs])
        if uniform:
            k = operator.layer if not isinstance(operator, Linear) else max(1, operator.layer)
            after = Place(k, _gathers(operator))
        elif not inputs:
            after = Place(0)
        elif _gathers(operator):
            _check_forward(operator, "this scheme moves matrices on from layer to layer")
            inputs = [at(i, Place(here.layer)) for i in inputs]
            after = Place(here.layer + 1, aggregated=True)
        elif isinstance(operator, Linear):
            k = here.layer if here.aggregated else max(1, operator.layer)
            if layout(here) != layout(Place(k, aggregated=True)):
                k = here.layer + 1
            inputs = [at(i, Place(k, aggregated=True)) for i in inputs]
            after = Place(k)
        elif operator.parameters or rule_of(operator).whole_rows:
            # A bias and a norm look at all entries of a column or row: as those of Hᵏ.
            after = Place(here.layer)
            inputs = [at(i, after) for i in inputs]
        else:
            latest = max(inputs, key=lambda i: (places[i].layer, i))
            after = places[latest]
            inputs = [at(i, after) for i in inputs]
        after = after._replace(space=space)
        new[old] = laid.append(operator.reading(tuple(inputs)), after)
    last = len(places) - 1
    logits = at(last, Place(places[last].layer))
    if logits != last:
        new[len(operators) - 1] = logits
    return laid.operators, places, new


def narrow(
    operators: Sequence[Operator], sparse: Collection[int]
) -> tuple[list[Operator], list[Place], dict[int, int]]:
    """The same where each aggregation has fewer rows than it reads, and H⁰ has all.

    A value has the rows that its readers need: as an aggregate those of one layer less, else their
    own. Where they differ, those that need fewer read them from a move of their own. A value made
    of one of the operators ``sparse``, whose values are sparse matrices, has all rows. Rows of
    neighbours and of arcs are those of one layer; what is given of these is given to each.
    """
    for operator in operators:
        _check_forward(operator, "train.batches: each layer of a batch has fewer rows")
    layers = [0] * len(operators)  # relative to the last; an aggregate is one above what it reads
    for number in reversed(range(len(operators))):
        for at, i in enumerate(operators[number].inputs):
            layers[i] = min(layers[i], layers[number] - _gathers(operators[number], at))
    layers = [layer - min(layers) for layer in layers]
    for number, operator in enumerate(operators):
        if not set(sparse).isdisjoint(operator.inputs):
            layers[number] = 0
    laid = _Laid(lambda place: place.layer)
    new: dict[int, int] = {}
    for old, operator in enumerate(operators):
        inputs = tuple(
            laid.at(
                new[i], Place(layers[old] - _gathers(operator, at), space=laid.places[new[i]].space)
            )
            for at, i in enumerate(operator.inputs)
        )
        space = rule_of(operator).space(operator, [laid.places[i].space for i in inputs])
        after = Place(layers[old], _gathers(operator), space)
        new[old] = laid.append(operator.reading(inputs), after)
    return laid.operators, laid.places, new


class _Laid:
    """Operators and the places of their values, with the moves that they needed."""

    def __init__(self, layout: Callable[[Place], Hashable]) -> None:
        self.operators: list[Operator] = []
        self.places: list[Place] = []
        self._layout, self._moved = layout, dict[tuple[int, Hashable], int]()

    def append(self, operator: Operator, at: Place) -> int:
        self.operators.append(operator)
        self.places.append(at)
        return len(self.places) - 1

    def at(self, number: int, wanted: Place) -> int:
        """A value in the layout of a place; rows of arcs lie where their vertices are."""
        if self.places[number].space is not wanted.space:
            return number
        key = number, self._layout(wanted)
        if self._layout(self.places[number]) == key[1]:
            return number
        if key not in self._moved:
            value = self.operators[number]
            move: Operator = Move((number,), value.width, value.layer)
            if isinstance(value, ArcInput):
                move = value
            self._moved[key] = self.append(move, wanted)
        return self._moved[key]


def _check_forward(operator: Operator, why: str) -> None:
    """A UserError if an operator leads back from the rows of a layer to those of the one before."""
    if rule_of(operator).forward.operation is Operation.AGGREGATE_T:
        raise UserError(
            f"{why}, and this network multiplies with M transposed",
            "use scheme.name = p2p and all vertices at once",
        )


def _gathers(operator: Operator, at: int = 0) -> bool:
    """Whether an operator looks at rows of neighbours of this input, and not at a row's own."""
    return at == 0 and rule_of(operator).forward.looks_at_neighbours
