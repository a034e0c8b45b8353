"""Steps are bound to arrays: of values, parameters, and numbers kept for the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, TypeVar

import numpy as np

from gcnmpi.core import rng
from gcnmpi.halo.matrix import Matrix
from gcnmpi.halo.patterns import ArcSlice
from gcnmpi.halo.rows import Halo
from gcnmpi.kernels.epilogues import Activation, ActivationBackward, Epilogue
from gcnmpi.kernels.interface.kernel import Array, Kernel, Pattern
from gcnmpi.layout.place import Block, Place, Space
from gcnmpi.nn.operator import Finish
from gcnmpi.nn.program import Program, Step
from gcnmpi.nn.scratch import Scratch
from gcnmpi.nn.sparse_input import SparseInput
from gcnmpi.schemes.interface import Scheme

Kept = TypeVar("Kept")

Run = Callable[[int], None]
"""A bound step; called with the number of the epoch (0 in an evaluation)."""


class Binding:
    """A program's arrays on this rank.

    Parameters
    ----------
    scheme, kernel : scheme and kernel
    program : Program
    seed : int
        Of dropout.
    rows : callable
        How many rows a matrix at a place has on all ranks.
    parameters, gradients : mapping of str to array
        Views by name; pieces of weights that the scheme cuts.
    matrices : mapping of int to Matrix
        Value → matrix, of one pass.
    kept : dict
        What steps leave for those of their gradient, by number and name; both passes share it.
    once : bool
        Whether it is for one evaluation, which takes as little memory as it can.
    sparse : mapping of int to SparseInput
        Value → what it is where it is no dense matrix.
    sliced : mapping of int to int
        Values whose matrices have room for a slice of arcs, or a block of vertices, only, and how
        many rows, the first ones, these have beside.
    disk : Scratch, optional
        Where values are that are written to a file.
    """

    def __init__(
        self,
        scheme: Scheme,
        kernel: Kernel,
        program: Program,
        seed: int,
        rows: Callable[[Place], int],
        parameters: Mapping[str, Array],
        gradients: Mapping[str, Array],
        matrices: Mapping[int, Matrix],
        kept: dict[tuple[int | None, str], Any],
        once: bool = False,
        sparse: Mapping[int, SparseInput] | None = None,
        sliced: Mapping[int, int] | None = None,
        disk: Scratch | None = None,
    ) -> None:
        self.disk = disk
        self.scheme, self.kernel, self.program, self.seed = scheme, kernel, program, seed
        self.once, self.sparse, self._rows = once, sparse or {}, rows
        self.parameters, self.gradients = parameters, gradients
        self._matrices, self._kept, self._sliced = matrices, kept, sliced or {}
        self._slice: ArcSlice | None = None
        self._views: dict[int, Array] = {}

    def of_slice(self, arcs: ArcSlice | None, gradients: Mapping[str, Array]) -> Binding:
        """The same for a slice of arcs and the vertices that they lead to, or for all."""
        found = copy(self)
        found._slice, found.gradients, found._views = arcs, gradients, {}
        return found

    def array(self, value: int) -> Array:
        """The array of a value: all of its rows, or those of the slice; all of neighbours."""
        matrix = self._matrices[value]
        if matrix.place.space is Space.WHOLE:
            return matrix.whole
        if self._slice is None:
            return matrix.array
        rows = self._rows_of(matrix.place.space)
        if value in self._sliced:
            start = min(rows.start, self._sliced[value])
            rows = slice(start, start + rows.stop - rows.start)
        # One view of the same memory, as a step that writes where it reads can tell then.
        return self._views.setdefault(id(matrix.array), matrix.array[rows])

    def has_rows(self, step: Step, arcs: ArcSlice) -> bool:
        """Whether a step would make rows of a slice again that are still there."""
        repeats = step.writes is not None and step.writes in self.program.repeated
        return repeats and arcs.rows[Space.OWN].start < self._sliced.get(_written(step), 0)

    def _rows_of(self, space: Space) -> slice:
        """Which of the own rows in a space it is about."""
        if self._slice is None or space is Space.WHOLE:
            return slice(None)
        return self._slice.rows[space]

    def read(self, step: Step, number: int = 0) -> Array:
        """The array of what a step reads."""
        return self.array(step.reads[number])

    def written(self, step: Step) -> Array:
        """The array that it writes."""
        return self.array(_written(step))

    def matrix(self, value: int) -> Matrix:
        """The matrix of a value, for what exchanges or moves its rows."""
        return self._matrices[value]

    def result(self, step: Step) -> Matrix:
        """The matrix of what a step writes, which it does."""
        return self._matrices[_written(step)]

    def halo(self, step: Step) -> Halo:
        """The scheme's, which a program has whose steps ask for it."""
        halo = self.scheme.halo_of(step.k)
        assert halo is not None, "a scheme that does not give whole rows"
        return halo

    def pattern(self, step: Step) -> Pattern:
        """The entries that a step goes over: all of this rank's rows, or those of the slice."""
        incidence = self.program.incidence(step)
        if self._slice is None:
            return self.halo(step).patterns.of(incidence)
        return self._slice.patterns[incidence]

    def place(self, step: Step) -> Place:
        """Where an operator's value is."""
        return self.program.values[step.number].place

    def rows(self, step: Step) -> int:
        """Rows of an operator's value on all ranks."""
        return self._rows(self.place(step))

    def block(self, step: Step) -> Block:
        """This rank's piece of an operator's value."""
        value = self.program.values[step.number]
        return self._block(value.place, value.width)

    def _block(self, place: Place, width: int) -> Block:
        return self.scheme.block(place, width).some(self._rows_of(place.space))

    def kept(self, step: Step, name: str, make: Callable[[], Kept]) -> Kept:
        """An array that belongs to an operator, made when it is first asked for."""
        key = step.number, name if self._slice is None else f"{name} {self._slice.number}"
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def scratch(self, name: str, rows: int, columns: int) -> Array:
        """An array for the time of a step, one for each shape."""
        key = None, f"{name} {rows} x {columns}"
        if key not in self._kept:
            self._kept[key] = self.kernel.empty(rows, columns)
        return self._kept[key]

    def epilogue(self, step: Step) -> Callable[[int], Epilogue | None]:
        """The entry-wise operations that follow a product in its pass, for an epoch."""
        plus = None if step.plus is None else self.array(step.plus)
        place = self.program.values[_written(step)].place
        if step.finish is not None:
            return self.activation(step.finish, place, plus)
        if step.finish_gradient is not None:
            finish, value = step.finish_gradient
            output = None if value is None else self.array(value)
            return self.activation_backward(finish, output, place, plus)
        return _always(None if plus is None else Activation(kind="none", plus=plus))

    def activation(
        self, finish: Finish, place: Place, plus: Array | None = None
    ) -> Callable[[int], Epilogue | None]:
        """Bias, activation and dropout of a value at a place, to which another one is added."""
        block = self._block(place, finish.width)
        # A bias is whole on every rank.
        bias = self.parameters[finish.bias][block.columns] if finish.bias else None
        columns, kind, p, slope = self._keys(block), finish.kind, finish.p, finish.slope

        def of(keys: Array | None) -> Epilogue:
            return Activation(bias, kind, keys, columns, p, slope=slope, plus=plus)

        return self._by_epoch(of, finish, block) if p else _always(of(None))

    def activation_backward(
        self, finish: Finish, output: Array | None, place: Place, plus: Array | None = None
    ) -> Callable[[int], Epilogue | None]:
        """The gradient of the activation and dropout that gave ``output``, of a sum with plus."""
        kind, slope, p = finish.kind, finish.slope, finish.p
        if not p or kind == "relu":  # what was dropped is 0 in the output
            return _always(ActivationBackward(output, kind, 1 / (1 - p), slope=slope, plus=plus))
        block = self._block(place, finish.width)
        columns = self._keys(block)

        def of(keys: Array | None) -> Epilogue:
            drop = keys, columns, p
            return ActivationBackward(output, kind, 1 / (1 - p), *drop, slope=slope, plus=plus)

        return self._by_epoch(of, finish, block)

    def _by_epoch(
        self, of: Callable[[Array], Epilogue], finish: Finish, block: Block
    ) -> Callable[[int], Epilogue | None]:
        """By the keys of the rows, of which each epoch has its own."""
        kernel, seed, stream = self.kernel, self.seed, finish.stream
        vertices = kernel.resident(block.rows, np.uint64)
        return lambda epoch: of(kernel.row_keys(seed, epoch, stream, vertices))

    def _keys(self, block: Block) -> Array:
        """Keys of the columns, which stay the same."""
        keys = rng.column_keys(np.arange(block.columns.start, block.columns.stop))
        return self.kernel.resident(keys, np.uint32)


def _always(epilogue: Epilogue | None) -> Callable[[int], Epilogue | None]:
    return lambda epoch: epilogue


def _written(step: Step) -> int:
    assert step.writes is not None, "a step that gives gradients of parameters"
    return step.writes
