"""Steps that move values between memory and a file, or make what belongs to them again."""

from __future__ import annotations

from gcnmpi.halo.matrix import Matrix
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.program import Instruction, Step
from gcnmpi.nn.scratch import Scratch
from gcnmpi.schemes.operations import Operation


def all_of(matrix: Matrix) -> Array:
    """The array of a matrix, with rows of neighbours where it has room for them."""
    return matrix.array if matrix.buffer is None else matrix.buffer


def _disk(binding: Binding) -> Scratch:
    assert binding.disk is not None, "a program that writes values has a file"
    return binding.disk


def _store(operator: Operator, binding: Binding, step: Step) -> Run:
    """Begin to write a value."""
    disk, array = _disk(binding), all_of(binding.matrix(step.reads[0]))
    disk.place(step.number, array)
    return lambda epoch: disk.write(step.number, array)


def _fetch(operator: Operator, binding: Binding, step: Step) -> Run:
    """Begin to read a value."""
    disk, array = _disk(binding), all_of(binding.result(step))
    return lambda epoch: disk.read(step.number, array)


def _wait(operator: Operator, binding: Binding, step: Step) -> Run:
    """Wait until a value is written, or read."""
    disk = _disk(binding)
    return lambda epoch: disk.wait(step.number)


def _refill(operator: Operator, binding: Binding, step: Step) -> Run:
    """Bring the rows of neighbours behind a value that was made again."""
    halo, matrix = binding.halo(step), binding.matrix(step.reads[0])

    def run(epoch: int) -> None:
        halo.expand(matrix)

    return run


STORE = Instruction("store", _store, moves=True)
STORED = Instruction("stored", _wait)
FETCH = Instruction("fetch", _fetch, moves=True)
FETCHED = Instruction("fetched", _wait)
REFILL = Instruction("refill", _refill, Operation.EXPAND)
