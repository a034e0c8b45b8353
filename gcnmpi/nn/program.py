"""A network compiled for a scheme: steps, the matrices they read and write, and their memory.

A program says everything of an epoch and computes nothing: :mod:`gcnmpi.nn.model` runs it, the cost
model reads it. Steps refer to **values**, the matrices of the computation, by number; the number
of an operator is that of its value, gradients follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gcnmpi.layout.place import Place
from gcnmpi.nn.operators import (
    Aggregate,
    Attend,
    AttendV2,
    MaxAggregate,
    Operator,
    Parameter,
)

Product = tuple[str, int, *tuple[int, ...]]
"""A scheme's product: its name, its layer and what its volume depends on, widths first."""


@dataclass(frozen=True)
class Value:
    """A dense matrix of the computation.

    Attributes
    ----------
    place : Place
    width : int
        Columns on all ranks.
    exchanged : bool
        Whether a product of the scheme exchanges its rows.
    """

    place: Place
    width: int
    exchanged: bool = False


@dataclass(frozen=True)
class Finish(Operator):
    """dropout(f(x + 1·bᵀ)), each of the three or not: what may follow a product at once.

    Only functions f whose derivative follows from their value: see ``kernels.epilogues``.
    """

    bias: str = ""
    kind: str = "none"
    slope: float = 0.0
    p: float = 0.0
    stream: int = 0

    @property
    def parameters(self) -> tuple[str, ...]:
        """The bias, if there is one."""
        return (self.bias,) if self.bias else ()

    @property
    def has_gradient(self) -> bool:
        """Whether the gradient that passes through it changes."""
        return self.kind != "none" or self.p > 0


@dataclass(frozen=True)
class Move(Operator):
    """x, laid out as another place has it."""


@dataclass(frozen=True)
class Step:
    """One instruction.

    Attributes
    ----------
    name : str
        In the table of instructions, ``gcnmpi.nn.instructions``.
    operator : Operator
        Whose step, or whose gradient's step, it is.
    k : int
        The layer by which the scheme knows its product.
    reads : tuple of int
        Values.
    writes : int
        Value; −1: none, but gradients of parameters.
    number : int
        Number of the operator: what its forward step leaves for its backward step is kept by it.
    finish : Finish or None
        What follows a product in the same pass.
    finish_gradient : (Finish, int) or None
        The same of a gradient: whose, and the value that it gave; −1 where that is not needed.
    sums : str
        Of a step that gives the gradient of a weight: the bias whose gradient it gives too.
    part : int
        Which input of its operator it gives the gradient of.
    onto : int
        Of a dense product: a value that it is added to, in its memory; −1: none.
    plus : int
        Of a sparse product: a value that is added in the same pass, before what follows; −1: none.
    also : Step or None
        Of a dense product: another of the same kind, which is made and added in the same pass.
    """

    name: str
    operator: Operator
    k: int
    reads: tuple[int, ...]
    writes: int
    number: int
    finish: Finish | None = None
    finish_gradient: tuple[Finish, int] | None = None
    sums: str = ""
    part: int = 0
    onto: int = -1
    plus: int = -1
    also: Step | None = None

    @property
    def values(self) -> tuple[int, ...]:
        """All values that it reads."""
        output = -1 if self.finish_gradient is None else self.finish_gradient[1]
        others = () if self.also is None else self.also.reads
        added = output, self.onto, self.plus
        return (*self.reads, *others, *(value for value in added if value >= 0))


@dataclass(frozen=True)
class Program:
    """See the module's docstring.

    Attributes
    ----------
    operators : tuple of Operator
        As they are computed: in the order that was chosen, with what was inserted.
    values : tuple of Value
        Those of the operators first.
    constants : tuple of Step
        Run once.
    kept : tuple of int
        Values of constants that stay.
    forward, backward, evaluation : tuple of Step
    logits, logits_grad : int
        Values that the loss reads and writes.
    outputs : tuple of int
        Value of each layer's output in an evaluation; the last are the logits.
    parameters : mapping of str to Parameter
    weight_layers : mapping of str to int
        The layer by which the scheme knows the products of a weight.
    buffers : tuple of Value
        What memory there is beside that of constants: each is a value that it can hold.
    training_buffers, evaluation_buffers : mapping of int to int
        Value → number of its buffer.
    trained_features : bool
    sparse : tuple of int
        Values that are sparse matrices: the features, and what dropout leaves of them.
    orders : tuple of str
        For each aggregation that is a product, which comes first: "combine", "aggregate", or
        "given" where it is made once.
    """

    operators: tuple[Operator, ...]
    values: tuple[Value, ...]
    constants: tuple[Step, ...]
    kept: tuple[int, ...]
    forward: tuple[Step, ...]
    backward: tuple[Step, ...]
    evaluation: tuple[Step, ...]
    logits: int
    logits_grad: int
    outputs: tuple[int, ...]
    parameters: Mapping[str, Parameter]
    weight_layers: Mapping[str, int]
    buffers: tuple[Value, ...]
    training_buffers: Mapping[int, int]
    evaluation_buffers: Mapping[int, int]
    trained_features: bool = False
    sparse: tuple[int, ...] = ()
    orders: tuple[str, ...] = field(default=())

    @property
    def place(self) -> Place:
        """Where the logits are."""
        return self.values[self.logits].place

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of the features and of each layer's output."""
        return (self.operators[0].width, *(self.values[i].width for i in self.outputs))

    @property
    def depth(self) -> int:
        """Number of layers in which a product with M comes; at least 1."""
        multiplied = (i for i, o in enumerate(self.operators) if isinstance(o, Aggregate))
        return max((self.values[i].place.layer for i in multiplied), default=1)

    @property
    def needs_halo(self) -> bool:
        """Whether a step needs whole rows of neighbours, and not only sums of them."""
        return any(isinstance(o, (MaxAggregate, Attend, AttendV2)) for o in self.operators)

    @property
    def needs_products(self) -> bool:
        """Whether a step multiplies with the aggregation matrix."""
        return any(isinstance(o, Aggregate) for o in self.operators)
