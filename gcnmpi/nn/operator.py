"""The base of all operators, and the parameters that they read.

An operator says what is computed, of which values; :mod:`gcnmpi.nn.operators` has all of them,
with their gradients and how they run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from gcnmpi.layout.place import Space

AT_A_TIME = 1 << 40
"""Streams of dropout of a network, before those of the next time that it is applied."""


@dataclass(frozen=True)
class Parameter:
    """A trained array, or a running moment.

    Attributes
    ----------
    name : str
        PyTorch Geometric's: "convs.0.lin.weight".
    shape : tuple of int
        (d_in, d_out) of a weight that a linear map multiplies with, or of several on top of each
        other; (columns,) of all others, which are whole on every rank.
    layer : int
        Of the operator that reads it.
    init : str
        Its initial values: "glorot", "uniform" (±1/√fan_in, PyTorch's ``Linear``), a number, or a
        mean over all vertices, of ``core.functions.AVERAGES``.
    fan_in, fan_out : int
        What "glorot" and "uniform" are computed from.
    stream : int
        Which random numbers "glorot" and "uniform" draw, together with the seed.
    stored : tuple of int or None
        Shape of the array in a file of weights where it is not stored as it is: weights are
        transposed where this is their shape the other way round, everything else is reshaped.
    part_of : str
        Name of the array in a file of weights where that holds several parameters: their stored
        arrays, joined along the last axis in the order of the network's parameters.
    trained : bool
        False for running moments.
    """

    name: str
    shape: tuple[int, ...]
    layer: int
    init: str = "0"
    fan_in: int = 1
    fan_out: int = 1
    stream: int = 0
    stored: tuple[int, ...] | None = None
    trained: bool = True
    part_of: str = ""

    @property
    def is_weight(self) -> bool:
        """Whether it is a matrix; schemes that do not give whole rows cut it over ranks."""
        return len(self.shape) == 2


@dataclass(frozen=True)
class Operator:
    """An operator has the values it reads, and the columns and layer of its own value.

    ``reads`` names the fields that are names of parameters, which may be empty. ``title`` and
    ``told`` say in words what it is, and what there is to tell of its other fields.
    """

    inputs: tuple[int, ...]
    width: int
    layer: int

    reads: ClassVar[tuple[str, ...]] = ()
    title: ClassVar[str] = ""
    told: ClassVar[str] = ""

    @property
    def gives(self) -> Space | None:
        """The space of its value, where the operator itself says it."""
        return None

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters that it reads."""
        return tuple(name for field in self.reads if (name := getattr(self, field)))

    @property
    def last_bias(self) -> str:
        """The parameter that is added to each row of its value, with nothing after that."""
        return ""

    @property
    def words(self) -> str:
        """Its title with parameters and options, without inputs, width and layer."""
        fields = vars(self)
        title, told = self.title or type(self).__name__.lower(), self.told
        told += " {kind}" if fields.get("kind", "none") != "none" else ""
        told += " slope {slope:g}" if fields.get("kind") == "leaky_relu" else ""
        told += " dropout {p:g} stream {stream}" if fields.get("p") else ""
        told += " of groups" if self.gives is Space.GROUPS else ""
        return " ".join((title, *self.parameters, *told.format_map(fields).split()))

    def reading(self, inputs: tuple[int, ...]) -> Self:
        """The same of other values."""
        return self if inputs == self.inputs else replace(self, inputs=inputs)

    def as_finish(self) -> Operator:
        """The same as a :class:`Finish`, if it is one."""
        return self

    def without_dropout(self) -> Self:
        """As it is in an evaluation."""
        return self

    def at_time(self, time: int) -> Self:
        """The same one of another time, from 0, with a stream of dropout of its own."""
        stream = getattr(self, "stream", None)
        if stream is None or not time:
            return self
        return replace(self, stream=stream + time * AT_A_TIME)  # type: ignore[call-arg]


def type_of(operators: Sequence[Operator]) -> int | None:
    """The number of the type of vertices that some have rows of; None: there are none."""
    found = (getattr(operator, "type", None) for operator in operators)
    return next((one for one in found if one is not None), None)


def without_unread(
    operators: Sequence[Operator], last: int
) -> tuple[list[Operator], dict[int, int]]:
    """The operators that one of them needs, in their order, and old number → new number."""
    needed, open_ = set(), [last]
    while open_:
        number = open_.pop()
        if number not in needed:
            needed.add(number)
            open_ += operators[number].inputs
    new = {old: number for number, old in enumerate(sorted(needed))}
    found = [operators[old].reading(tuple(new[i] for i in operators[old].inputs)) for old in new]
    return found, new


@dataclass(frozen=True)
class Finish(Operator):
    """dropout(f(x + 1·bᵀ)), each of the three or not: what may follow a product at once.

    Only functions f whose derivative follows from their value: see ``kernels.epilogues``. Steps may
    have one, so it is here; how it runs by itself is said in :mod:`gcnmpi.nn.operators.inserted`.
    """

    bias: str = ""
    kind: str = "none"
    slope: float = 0.0
    p: float = 0.0
    stream: int = 0
    reads = ("bias",)

    @property
    def has_gradient(self) -> bool:
        """Whether the gradient that passes through it changes."""
        return self.kind != "none" or self.p > 0

    @property
    def only_drops(self) -> bool:
        """Whether there is neither bias nor f."""
        return not self.bias and self.kind == "none"

    @property
    def last_bias(self) -> str:
        """The bias, if that is all."""
        return "" if self.has_gradient else self.bias

    def without_dropout(self) -> Finish:
        """The same bias and activation without dropout."""
        return replace(self, p=0.0) if self.p else self
