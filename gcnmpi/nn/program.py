"""A network compiled for a scheme: steps, the matrices they read and write, and their memory.

A program says everything of an epoch and computes nothing: :mod:`gcnmpi.nn.model` runs it, the cost
model reads it. Steps refer to **values**, the matrices of the computation, by number; the number
of an operator is that of its value, gradients follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from gcnmpi.layout.place import Incidence, Place, Space
from gcnmpi.nn.operator import Finish, Operator, Parameter, type_of
from gcnmpi.options.train import Residences
from gcnmpi.schemes.operations import SUMS, Operation, Product

INPUT = 0
"""The number of H⁰ among values."""

FEATURES = "0.features"
"""The name of H⁰ among parameters, where it is trained."""


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
    sliced : bool
        Of a buffer: whether it has rows of a slice of arcs, or of a block of vertices, only.
    first : int
        Of such a buffer: how many rows it has beside, the first ones, which stay.
    """

    place: Place
    width: int
    exchanged: bool = False
    sliced: bool = False
    first: int = 0


@dataclass(frozen=True)
class Instruction:
    """How steps of a kind run, and what they cost.

    Attributes
    ----------
    name : str
        For listings.
    bind : callable
        ``bind(operator, binding, step)`` gives what an epoch calls with its number (0 in an
        evaluation): arrays are looked up and allocated once, here.
    operation : Operation or None
        Of the scheme, by which bytes and messages are predicted; None: nothing moves.
    sizes : callable
        What the volume of each of its operations depends on, for a rank with so many rows.
    passes : int
        How often it reads or writes the numbers of its matrix beside products.
    kept : callable
        How many numbers it leaves for its gradient, or needs beside its matrices, for so many own
        rows, rows with the halo, and entries of M.
    summed : callable
        How many numbers each of its sums over ranks has in training, besides the gradients.
    in_place : bool
        Whether it may write where it reads.
    visits : bool
        Whether it goes over the entries of the rank's rows of M, one by one.
    joins : bool
        Whether it takes a sum with another value, and what follows that, along in its pass.
    rowwise : bool
        Whether it looks at each row by itself, or adds up over rows: some of them at a time do.
    by_columns : bool
        Whether it goes over the entries by columns, so that it needs all of them.
    places : callable
        Whether a step looks up where the entries by rows are among those by columns.
    by_relation : bool
        Whether it multiplies with the entries of some relations.
    again : Instruction or None
        Another one that makes its value again, out of what it has left; None: it does so itself.
    moves : bool
        Whether it moves its value between memory and a file.
    whole : int or None
        Which of its values it reads with the rows of neighbours that a forward step brought there.
    left : bool
        Whether it folds gradients that another step left, in memory of their own; else it writes
        them to its result where there is nothing to fold.
    """

    name: str
    bind: Callable[[Any, Any, Step], Callable[[int], None]]
    operation: Operation | None = None
    sizes: Callable[[Program, Step, int], Sequence[tuple[int, ...]]] = lambda program, step, rows: [
        (step.operator.width,)
    ]
    passes: int = 0
    kept: Callable[[Step, int, int, int], int] = lambda step, rows, columns, entries: 0
    summed: Callable[[Step], tuple[int, ...]] = lambda step: ()
    in_place: bool = False
    visits: bool = False
    joins: bool = False
    rowwise: bool = False
    by_columns: bool = False
    places: Callable[[Step, int], bool] = lambda step, entries: False
    by_relation: bool = False
    again: Instruction | None = None
    moves: bool = False
    whole: int | None = None
    left: bool = False

    @property
    def gathers(self) -> bool:
        """Whether it looks at whole rows of neighbours of its first input."""
        return self.operation is Operation.EXPAND

    @property
    def looks_at_neighbours(self) -> bool:
        """The same, or at sums of them."""
        return self.gathers or self.operation in SUMS


@dataclass(frozen=True)
class Step:
    """One instruction on certain values, with all that is done in the same pass.

    Attributes
    ----------
    instruction : Instruction
        How.
    operator : Operator
        Whose step, or whose gradient's step, it is.
    k : int
        The layer by which the scheme knows its product.
    reads : tuple of int
        Values.
    writes : int or None
        Value; None: it gives gradients of parameters.
    number : int
        Number of the operator: what its forward step leaves for its backward step is kept by it.
    finish : Finish or None
        What follows a product in the same pass.
    finish_gradient : (Finish, int or None) or None
        The same of a gradient: whose, and the value that it gave, where that is needed.
    sums : str
        Of a step that gives the gradient of a weight: the bias whose gradient it gives too.
    part : int
        Which input of its operator it gives the gradient of.
    onto : int or None
        Of a dense product: a value that it is added to, in its memory.
    plus : int or None
        Of a sparse product: a value that is added in the same pass, before what follows.
    also : Step or None
        Of a dense product: another of the same kind, which is made and added in the same pass.
    loop : int
        The loop over slices of arcs, or over blocks of vertices, that it is in, from 1; 0: none.
    """

    instruction: Instruction
    operator: Operator
    k: int
    reads: tuple[int, ...]
    writes: int | None
    number: int
    finish: Finish | None = None
    finish_gradient: tuple[Finish, int | None] | None = None
    sums: str = ""
    part: int = 0
    onto: int | None = None
    plus: int | None = None
    also: Step | None = None
    loop: int = 0

    @property
    def name(self) -> str:
        """Of its instruction, for listings."""
        return self.instruction.name

    @cached_property
    def values(self) -> tuple[int, ...]:
        """All values that it reads."""
        output = None if self.finish_gradient is None else self.finish_gradient[1]
        others = () if self.also is None else self.also.reads
        added = output, self.onto, self.plus
        return (*self.reads, *others, *(value for value in added if value is not None))

    @cached_property
    def touched(self) -> tuple[int, ...]:
        """All values that it reads or writes."""
        return self.values if self.writes is None else (*self.values, self.writes)

    @property
    def has_finish(self) -> bool:
        """Whether anything follows its product in the same pass."""
        return self.finish is not None or self.finish_gradient is not None

    def reading(self, numbers: Mapping[int, int]) -> Step:
        """A step that reads other values in the place of some; what it writes stays."""

        def new(value: int | None) -> int | None:
            return None if value is None else numbers.get(value, value)

        gradient = self.finish_gradient
        return replace(
            self,
            reads=tuple(numbers.get(value, value) for value in self.reads),
            finish_gradient=None if gradient is None else (gradient[0], new(gradient[1])),
            onto=new(self.onto),
            plus=new(self.plus),
            also=None if self.also is None else self.also.reading(numbers),
        )

    def bind(self, binding: Any) -> Callable[[int], None]:
        """The function that an epoch calls, of a :class:`~gcnmpi.nn.binding.Binding`."""
        return self.instruction.bind(self.operator, binding, self)

    def kept(self, rows: int, columns: int, entries: int) -> int:
        """Numbers that it keeps: see :class:`Instruction`."""
        return self.instruction.kept(self, rows, columns, entries)


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
    stored : tuple of int
        Values of constants that are in a file.
    residences : Residences
        Values that are not kept for the backward pass.
    repeated : mapping of int to int
        Value that is made again block by block → value in whose memory its first rows still are.
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
    stored: tuple[int, ...] = ()
    residences: Residences = field(default_factory=Residences)
    repeated: Mapping[int, int] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        """Where the logits are."""
        return self.values[self.logits].place

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of the features and of each layer's output."""
        return (self.operators[INPUT].width, *(self.values[i].width for i in self.outputs))

    @property
    def depth(self) -> int:
        """Number of layers in which a product with M comes; at least 1."""
        return max((self.values[step.number].place.layer for step in self._sums), default=1)

    @cached_property
    def needs_halo(self) -> bool:
        """Whether a step needs whole rows of neighbours or single entries, and not only sums.

        Or rows of a type: schemes that bring whole rows together know these.
        """
        steps = (*self.constants, *self.evaluation)
        needs = (one.gathers or one.visits or one.by_relation for one in _instructions(steps))
        return any(needs) or self.type is not None

    @cached_property
    def needs_entries(self) -> bool:
        """Whether there are values with a row for each entry of M."""
        return any(value.place.space is Space.ENTRIES for value in self.values)

    @property
    def drops_entries(self) -> bool:
        """Whether numbers of these are dropped, which takes a key for each row."""
        places = (value.place for value in self.values)
        return any(
            getattr(operator, "p", 0) > 0 and place.space is Space.ENTRIES
            for operator, place in zip(self.operators, places, strict=False)
        )

    @property
    def needs_groups(self) -> bool:
        """Whether values have a row for each group of these of one relation, or steps need them."""
        grouped = any(value.place.space is Space.GROUPS for value in self.values)
        steps = (*self.constants, *self.evaluation)
        return grouped or any(one.by_relation for one in _instructions(steps))

    @property
    def type(self) -> int | None:
        """The number of the type of vertices that some values have rows of; None: no values."""
        return type_of(self.operators)

    def incidence(self, step: Step) -> Incidence:
        """The pattern whose entries a step goes over."""
        values = (*step.reads, *(() if step.writes is None else (step.writes,)))
        spaces = {self.values[value].place.space for value in values}
        within = getattr(step.operator, "within", None)
        return Incidence.between(spaces if within is None else {within, *spaces})

    @property
    def writes(self) -> bool:
        """Whether it writes values to a file."""
        return bool(self.stored) or any(step.instruction.moves for step in self.forward)

    @property
    def incidences(self) -> set[Incidence]:
        """The patterns that its steps go over."""
        steps = (*self.constants, *self.forward, *self.backward, *self.evaluation)
        return {
            self.incidence(step)
            for step in steps
            if step.instruction.visits or (step.instruction.gathers and not self._expands(step))
        }

    def _expands(self, step: Step) -> bool:
        """Whether it only brings rows of neighbours."""
        return step.writes is not None and self.values[step.writes].place.space is Space.WHOLE

    @property
    def needs_products(self) -> bool:
        """Whether a step multiplies with the aggregation matrix."""
        return bool(self._sums)

    @property
    def transposes(self) -> bool:
        """Whether an evaluation multiplies with the transpose of it."""
        return any(step.instruction.operation is Operation.AGGREGATE_T for step in self._sums)

    @property
    def sums_groups(self) -> bool:
        """Whether that is the matrix of means by relation."""
        return any(self.values[step.number].place.space is Space.GROUPS for step in self._sums)

    def spent(self, once: bool = False) -> frozenset[int]:
        """The values that one product with M is the last to read: it may change them.

        ``once``: of one evaluation, after which not even the features are there.
        """
        found: set[int] = set()
        stay = set() if once else {INPUT, self.logits, *self.kept, *self.outputs}
        for steps in ((*self.forward, *self.backward), self.evaluation):
            multiplied = Counter(s.reads[0] for s in steps if s.instruction.operation in SUMS)
            last = {value: step for step in steps for value in step.values}
            stay |= {
                value
                for value, step in last.items()
                if multiplied[value] != 1
                or step.instruction.operation not in SUMS
                or step.values.count(value) != 1
            }
            found |= multiplied.keys()
        return frozenset(found - stay)

    @property
    def _sums(self) -> list[Step]:
        steps = (*self.constants, *self.evaluation)
        return [step for step in steps if step.instruction.operation in SUMS]


def _instructions(steps: Iterable[Step]) -> Iterator[Instruction]:
    return (step.instruction for step in steps)


def products(
    program: Program, steps: Iterable[Step], rows: Callable[[Place], int]
) -> list[Product]:
    """The scheme's products of some steps, for a rank that has so many rows at a place."""
    found: list[Product] = []
    for step in steps:
        here = rows(program.values[step.number].place)
        for one in (step, step.also):
            if one is not None and (operation := one.instruction.operation) is not None:
                sizes = one.instruction.sizes(program, one, here)
                layer = one.k if one.reads else 1  # that the features are read in
                found += [(operation, layer, *size) for size in sizes]
    return found


def summed(steps: Iterable[Step]) -> list[int]:
    """Numbers of each sum over ranks that steps make in training: see :class:`Instruction`."""
    return [numbers for step in steps for numbers in step.instruction.summed(step)]
