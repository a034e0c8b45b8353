"""A network, a static graph of operators and its parameters; and how one is written down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from gcnmpi.layout.entries import MEAN
from gcnmpi.layout.place import Space
from gcnmpi.nn.operator import Operator, Parameter, type_of, without_unread
from gcnmpi.nn.operators import rule_of
from gcnmpi.nn.operators.arcs import ArcInput
from gcnmpi.nn.operators.dense import Features
from gcnmpi.nn.operators.elementwise import Fill
from partition.errors import UserError
from partition.graph.relations import Schema

OTHER_WEIGHTS = 1 << 32
"""Offset of the streams of random numbers of a layer's second, third … parameter."""


@dataclass(frozen=True)
class Network:
    """The function that is trained, without a word on how or where it is computed.

    Attributes
    ----------
    operators : tuple of Operator
        In the order of evaluation; the first is :class:`Features`, the last gives the logits.
    parameters : mapping of str to Parameter
        In the order in which their operators read them.
    outputs : tuple of int
        Number of the operator that gives the output of layer 1, 2, …; the last are the logits.
    constants : mapping of str to float
        Numbers that belong in a file of weights, (1,) each, though they are not trained here.
    unread : mapping of str to tuple of int
        Shapes of arrays that PyTorch Geometric's layers have and do not read: zeros in a file.
    space : Space
        The rows of the logits.
    decoder : Network, optional
        It scores pairs of rows (:mod:`gcnmpi.nn.decoders`); its parameters are among these.
    """

    operators: tuple[Operator, ...]
    parameters: Mapping[str, Parameter]
    outputs: tuple[int, ...]
    constants: Mapping[str, float] = field(default_factory=dict)
    unread: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    space: Space = Space.OWN
    decoder: Network | None = None

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of the features and of the output of every layer."""
        return (self.operators[0].width, *(self.operators[i].width for i in self.outputs))

    @property
    def arc_features(self) -> int:
        """Columns of the features of arcs that it reads; 0 if it reads none."""
        return next((op.width for op in self._of_arcs if not op.relations), 0)

    @property
    def one_loop(self) -> bool:
        """Whether a vertex has one self-loop, however many the graph has; rows of logits stay."""
        return self.space is not Space.ENTRIES and any(op.given == MEAN for op in self._of_arcs)

    @property
    def relations(self) -> int:
        """How many relations of arcs it tells apart; 0 if it reads none."""
        return max(getattr(operator, "relations", 0) for operator in self.operators)

    @property
    def type(self) -> int | None:
        """The number of the type of vertices whose results it gives, and others 0; None: all."""
        return type_of(self.operators)

    @property
    def is_typed(self) -> bool:
        """Whether it tells relations or types apart."""
        return self.relations > 0 or self.type is not None

    @property
    def _of_arcs(self) -> list[ArcInput]:
        return [operator for operator in self.operators if isinstance(operator, ArcInput)]


class Writing:
    """The operators and parameters that are written so far.

    Parameters
    ----------
    features : int
        Width of H⁰.
    arc_features : int
        Width of the features of arcs; 0: there are none.
    relations : Schema or int
        The types of vertices, and the relations that arcs are of, or how many; 0: there are none.

    Attributes
    ----------
    input : int
        H⁰.
    arc_width : int
        Width of the features of arcs.
    schema : Schema
    """

    def __init__(self, features: int, arc_features: int = 0, relations: Schema | int = 0) -> None:
        self._operators: list[Operator] = [Features((), features, 0)]
        self._spaces = [Space.OWN]
        self._expanded: dict[int, int] = {}
        self._arc_inputs: dict[str, int] = {}
        self.arc_width, self.schema = arc_features, Schema.of(relations)
        self._parameters: dict[str, Parameter] = {}
        self._outputs: list[int] = []
        self._constants: dict[str, float] = {}
        self._unread: dict[str, tuple[int, ...]] = {}
        self._weights: dict[int, int] = {}  # how many random parameters a layer has
        self._shares = False
        self.input = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Within it, what is called as an earlier parameter is that one: layers are written again.

        It has the same shape; its gradient is the sum of those of all its uses. A batch norm that
        is written twice takes moments of its own each time, which move the running ones one after
        the other, as a module of PyTorch that is called twice.
        """
        before, self._shares = self._shares, True
        try:
            yield
        finally:
            self._shares = before

    def width(self, x: int) -> int:
        """Columns of a matrix."""
        return self._operators[x].width

    def layer(self, x: int) -> int:
        """Aggregations before a matrix."""
        return self._operators[x].layer

    def constant(self, name: str, value: float) -> None:
        """A number that a file of weights holds."""
        self._constants[name] = value

    def unread(self, name: str, *shape: int) -> None:
        """An array of a file of weights, unless a parameter is called so."""
        self._unread[name] = shape

    def output(self, x: int) -> None:
        """x is the output of the next layer."""
        self._outputs.append(x)

    def build(self) -> Network:
        """The network; its logits are what was last given to :meth:`output`.

        Operators that are not needed for them are left out.
        """
        operators, new = without_unread(self._operators, self._outputs[-1])
        names = {name for operator in operators for name in operator.parameters}
        parameters = {name: p for name, p in self._parameters.items() if name in names}
        outputs = tuple(new[i] for i in self._outputs if i in new)
        space = self._spaces[self._outputs[-1]]
        unread = {name: shape for name, shape in self._unread.items() if name not in parameters}
        return Network(tuple(operators), parameters, outputs, self._constants, unread, space)

    def apply(self, network: Network, x: int, time: int, made: dict[int, int]) -> list[int]:
        """The operators of a network on x in place of its features: numbers of all its outputs.

        It may be applied several times, each with a ``time`` of its own, from 0, by which dropout
        draws other numbers, and the same dictionary ``made``: values that do not depend on x,
        neither dropped nor normalised by running moments, are made once.
        """
        self._parameters |= network.parameters
        self._constants |= network.constants
        self._unread |= network.unread
        before, new = self.layer(x), {0: x}
        for number, operator in enumerate(network.operators[1:], 1):
            apart = isinstance(operator, Fill) or all(i in made for i in operator.inputs)
            once = apart and not _changes(operator)
            if not once or number not in made:
                inputs = tuple((made | new)[i] for i in operator.inputs)
                if isinstance(operator, Fill) and operator.inputs == (0,):
                    inputs = (self.input,)
                layer = operator.layer + (0 if once else before)
                copy = replace(operator.at_time(time), inputs=inputs, layer=layer)
                (made if once else new)[number] = self._append(copy)
        return [(made | new)[i] for i in network.outputs]

    def _append(self, operator: Operator) -> int:
        given = [self._spaces[i] for i in operator.inputs]
        try:
            space = rule_of(operator.as_finish()).space(operator, given)
        except ValueError as error:
            raise UserError(
                f"{operator.words}: {error}",
                "b.source and b.target make rows of arcs, b.reduce makes rows of vertices of these",
            ) from None
        self._operators.append(operator)
        self._spaces.append(space)
        return len(self._operators) - 1

    def _made_of(self, x: int) -> Operator:
        """The operator whose value another one reads first."""
        return self._operators[self._operators[x].inputs[0]]

    def _random(
        self,
        name: str,
        shape: tuple[int, ...],
        layer: int,
        init: str,
        fan_in: int,
        fan_out: int,
        stored: tuple[int, ...] | None = None,
        part_of: str = "",
    ) -> str:
        facts = init, fan_in, fan_out
        if self._shares and name in self._parameters:  # the random numbers are drawn
            stream = self._parameters[name].stream
            return self._new(Parameter(name, shape, layer, *facts, stream, stored, part_of=part_of))
        # The first one of a layer draws what the weight of a GCN's layer always drew.
        number = self._weights.get(layer, 0)
        self._weights[layer] = number + 1
        stream = layer + number * OTHER_WEIGHTS
        return self._new(Parameter(name, shape, layer, *facts, stream, stored, part_of=part_of))

    def _affine(self, x: int, name: str) -> tuple[str, str]:
        facts = self.width(x), max(1, self.layer(x))
        weight = self._constant(f"{name}.weight", *facts, "1")
        return weight, self._constant(f"{name}.bias", *facts, "0")

    def _constant(self, name: str, width: int, layer: int, value: str, trained: bool = True) -> str:
        return self._new(Parameter(name, (width,), layer, value, trained=trained))

    def _new(self, parameter: Parameter) -> str:
        known = self._parameters.get(parameter.name)
        if known is not None and self._shares:
            if replace(parameter, layer=known.layer) != known:
                raise UserError(
                    f"the parameter {known.name} is of shape {known.shape}, and of "
                    f"{parameter.shape} where it is read again",
                    "layers that share parameters have the same widths and options",
                )
            return known.name
        if known is not None:
            raise ValueError(f"two parameters are called {parameter.name}")
        self._parameters[parameter.name] = parameter
        return parameter.name


def _changes(operator: Operator) -> bool:
    """Whether its value is another one each time, or it leaves something behind."""
    return bool(getattr(operator, "p", 0.0) or getattr(operator, "momentum", 0.0))
