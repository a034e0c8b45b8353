"""Starting kernels of the CUDA source: what each takes is read from its declaration there.

A caller hands over arrays and numbers in the order of the declaration, and no more: strides follow
their matrix, numbers get the type that is declared, arrays of the host are copied to the device in
each call, and an array may be None where a parameter ``has_NAME`` in front of it says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias, cast

import cupy as cp
import numpy as np
from cupy import ndarray as Array

from gcnmpi.kernels import cuda
from gcnmpi.kernels.cuda.copies import CupyCopies, upload
from gcnmpi.kernels.cuda.text import loss

THREADS = 256  # in a block
WARP = 32  # threads that exchange numbers, at most
_TYPES = {"I": "i8", "U8": "u1", "S32": "i4", "U32": "u4", "U64": "u8", "double": "f8"}
# CuPy passes these as long long and double; to make a number of NumPy takes the host longer.
_PYTHONS: dict[str, type] = {"int64": int, "float64": float}


@dataclass(frozen=True)
class Parameter:
    """An argument that a caller gives.

    Attributes
    ----------
    kind : dtype
    make : type
        Of a number as CuPy is given it.
    array : bool
        Whether it is an array of such numbers; otherwise it is one of them.
    strides : int
        How many follow it in the declaration: that of rows, or those of rows and columns.
    optional : bool
        Whether a number in front of it says if there is one; otherwise, nothing reads a None.
    """

    kind: np.dtype
    make: type
    array: bool
    strides: int = 0
    optional: bool = False


Given: TypeAlias = "Array | np.ndarray | float | None"


class CupyLaunches(CupyCopies):
    """Starts kernels of the CUDA source, once they are compiled, and adds up numbers by them."""

    def open_launches(self) -> None:
        """Compile the source of all kernels."""
        self._partials: dict[int, Array] = {}
        module = cp.RawModule(code=cuda.source(self.dtype.name), options=("--std=c++17",))
        self._kernels = {
            name: (module.get_function(name), some) for name, some in signatures(self.dtype).items()
        }
        kinds = {one.kind for _, some in self._kernels.values() for one in some if one.array}
        self._nothing = {kind: cp.empty((1,), kind) for kind in kinds}

    def _launch(self, name: str, rows: int, columns: int, *given: Given) -> None:
        """Start a kernel with a thread for each of rows × columns.

        A block has whole rows, or whole warps of one, so that few threads have nothing to do, and
        threads next to each other that add their numbers are of one warp.
        """
        if rows and columns:
            width = -(-columns // -(-columns // THREADS))
            if width < columns:
                width = -(-width // WARP) * WARP
            height = THREADS // width
            grid = -(-rows // height), -(-columns // width)
            self._start(name, grid, (width, height), *given, rows, columns)

    def _start(
        self, name: str, grid: tuple[int, int], block: tuple[int, int], *given: Given
    ) -> None:
        """Start a kernel with all that it declares."""
        function, some = self._kernels[name]
        arguments: list[object] = []
        for parameter, value in zip(some, given, strict=True):
            if not parameter.array:
                arguments.append(parameter.make(value))
                continue
            if parameter.optional:
                arguments.append(int(value is not None))
            array = cast(Array, self._nothing[parameter.kind] if value is None else value)
            if isinstance(array, np.ndarray):
                array = upload(array, parameter.kind)
            if array.dtype != parameter.kind:
                raise TypeError(f"{name} reads {parameter.kind}, not {array.dtype}")
            arguments.append(array)
            if parameter.strides:
                strides, size = (0, 0) if value is None else array.strides, array.itemsize
                arguments += [stride // size for stride in strides[: parameter.strides]]
        function(grid, block, tuple(arguments))

    def _launch_rows(self, name: str, x: Array, *given: Given) -> None:
        """Start a kernel in which threads next to each other have a row of x, its first argument.

        A row has one thread where the matrix lies column by column.
        """
        rows, width = x.shape
        by_rows = width == 1 or x.strides[1] == x.itemsize
        self._launch(name, rows, lanes(width, WARP) if by_rows else 1, x, width, *given)

    # Sums, in an order that depends on the shape only.

    def column_sum(self, x: Array, out: Array) -> None:
        self._add_partials(self._partial_sums(x, logarithms=False), out)

    def _partial_sums(self, x: Array, logarithms: bool) -> Array:
        rows, width = x.shape
        partial = self._partial_array(rows, width)
        self._launch("partial_sums", len(partial), width, x, logarithms, rows, partial)
        return partial

    def _partial_array(self, rows: int, width: int) -> Array:
        """Of so many rows: partial sums are few enough that adding them takes no time."""
        if width not in self._partials:
            self._partials[width] = cp.empty((cuda.PARTIALS, width), np.float64)
        count = min(cuda.PARTIALS, rows // cuda.ADDED, cuda.MOST_PARTIALS // max(1, width))
        return self._partials[width][: max(1, count)]

    def _add_partials(self, partial: Array, out: Array) -> None:
        """out = the sums of the columns of ``partial``, in the kernel's dtype or in float64."""
        width = partial.shape[1]
        if width:
            wide, narrow = (None, out) if out.dtype == self.dtype else (out, None)
            given = partial, len(partial), wide, narrow, out.strides[0] // out.itemsize, width
            blocks = -(-width // cuda.ACROSS)
            self._start("add_partial_sums", (blocks, 1), (loss.THREADS, 1), *given)

    def _add_all(self, numbers: Array, out: Array) -> None:
        """out = the sum of all numbers, (1,), both in float64."""
        self._start("add_losses", (1, 1), (loss.THREADS, 1), numbers, out, numbers.size)


def lanes(width: int, most: int = loss.LANES) -> int:
    """Threads that add up so many numbers, a power of 2."""
    return min(most, 1 << max(0, width - 1).bit_length())


@cache
def signatures(dtype: np.dtype) -> dict[str, list[Parameter]]:
    """The arguments that the caller of each kernel gives."""
    return {name: parameters(words, dtype) for name, words in cuda.declarations().items()}


def parameters(words: Sequence[str], dtype: np.dtype) -> list[Parameter]:
    """The arguments that the caller of a kernel gives, from its declaration."""
    kinds = {word.split()[-1]: word.removeprefix("const ").split()[0] for word in words}
    arrays = {name for name, kind in kinds.items() if kind.endswith("*")}
    strides = {f"{name}_{side}" for name in arrays for side in ("row", "column")} - arrays
    of_names = {"T": dtype, **{name: np.dtype(kind) for name, kind in _TYPES.items()}}
    types = {name: of_names[kind.rstrip("*")] for name, kind in kinds.items()}
    return [
        Parameter(
            types[name],
            _PYTHONS.get(types[name].name, types[name].type),
            name in arrays,
            sum(f"{name}_{side}" in kinds.keys() & strides for side in ("row", "column")),
            f"has_{name}" in kinds,
        )
        for name in kinds
        if name not in strides and name.removeprefix("has_") not in arrays - {name}
    ]
