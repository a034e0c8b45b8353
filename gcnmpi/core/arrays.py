"""Arrays of a kernel as the rest of the program sees them, and the memory that they are in.

A kernel may keep its arrays anywhere, so no NumPy function is called with one: what is computed
with it, the kernel computes (:mod:`gcnmpi.kernels.interface.kernel`). Whoever only moves numbers,
such as the room ``mpi``, needs :class:`Memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import Any, Protocol, Self, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike

Key = int | slice | None | EllipsisType | tuple[int | slice, ...]
"""Which part of an array is meant."""


class Array(Protocol):
    """The common part of NumPy's, CuPy's and others' arrays, as callers use it.

    Operators give new arrays, so they are for small ones, such as a number for each row.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns, or the length."""

    @property
    def dtype(self) -> np.dtype:
        """The type of its numbers."""

    @property
    def size(self) -> int:
        """How many numbers there are."""

    @property
    def nbytes(self) -> int:
        """Bytes of all its numbers."""

    @property
    def T(self) -> Self:
        """A transposed view of it."""

    def __len__(self) -> int: ...

    def __getitem__(self, key: Key, /) -> Self: ...

    def __setitem__(self, key: Key, value: Self | float, /) -> None: ...

    def fill(self, value: float, /) -> None:
        """Set all numbers to one."""

    @overload
    def reshape(self, shape: tuple[int, ...], /) -> Array:
        """A view of another shape."""

    @overload
    def reshape(self, rows: int, /, *columns: int) -> Array:
        """A view of another shape."""

    def copy(self) -> Self:
        """Another one with the same numbers."""

    def clip(self, low: float, /) -> Self:
        """Numbers that are not below ``low``."""

    def __iadd__(self, other: Self | float, /) -> Self: ...

    def __isub__(self, other: Self | float, /) -> Self: ...

    def __imul__(self, other: Self | float, /) -> Self: ...

    def __add__(self, other: Self | float, /) -> Self: ...

    def __mul__(self, other: Self | float, /) -> Self: ...

    def __truediv__(self, other: Self | float, /) -> Self: ...

    def __rtruediv__(self, other: float, /) -> Self: ...

    def __pow__(self, other: float, /) -> Self: ...

    def __lt__(self, other: float, /) -> Any: ...


class Number(Protocol):
    """A number that may still have to be computed: nobody waits for it before it is a float."""

    def __mul__(self, factor: float, /) -> Number: ...

    def __float__(self) -> float: ...


class Summation(Protocol):
    """A sum over ranks that never leaves their devices; :mod:`gcnmpi.kernels.cuda.nccl` is one."""

    def __call__(self, number: Number, array: Array) -> Number:
        """Sum an array over ranks, in place, and the number, which is returned."""

    def add(self, array: Array) -> None:
        """Sum a contiguous array of float64 over ranks, in place."""


class PointToPoint(Protocol):
    """Messages between devices, in turn with their other work."""

    def start(
        self, outgoing: Sequence[tuple[int, Array]], incoming: Sequence[tuple[int, Array]]
    ) -> None:
        """Send arrays to processes, and receive from them, after all that was begun before."""

    def wait(self) -> None:
        """Work that is begun from now on comes after the messages."""


class Network(Protocol):
    """Connects devices without the host."""

    def new_name(self) -> object:
        """A name under which ranks find each other, once."""

    def version(self) -> int:
        """The version of the library."""

    def Summation(self, size: int, name: object, rank: int) -> Summation:
        """Made by all ranks together."""

    def PointToPoint(self, size: int, name: object, rank: int) -> PointToPoint:
        """Made by all ranks together."""


A = TypeVar("A")
R = TypeVar("R")


class Memory(Protocol[A]):
    """Where the arrays of a kernel, of type ``A``, are: they are made and moved here.

    Attributes
    ----------
    name : str
        Of the kernel, in the table of kernels.
    dtype : dtype
        float32 or float64.
    threads : int
        Threads of the host that the kernel may use.
    host_visible : bool
        Whether MPI reads and writes the kernel's arrays where they are.
    device : str or None
        Name of the device that computes, where it is not the host.
    device_address : str or None
        Where that device is on its host: ranks with equal ones share it.
    """

    name: str
    dtype: np.dtype
    threads: int
    host_visible: bool
    device: str | None
    device_address: str | None

    @classmethod
    def for_rank(cls, dtype: DTypeLike, threads: int, place: int, direct: bool, spmm: str) -> Self:
        """The kernel of a rank.

        Parameters
        ----------
        place : int
            Which of its node's ranks it is: a kernel on devices chooses one by it.
        direct : bool
            Whether MPI reads and writes the memory of devices.
        spmm : str
            What multiplies sparse matrices on devices: the key ``gpu.spmm``.
        """

    def versions(self) -> dict[str, str]:
        """Versions of the libraries that compute, where the kernel's name does not tell them."""

    def network(self) -> Network | None:
        """The network of devices; None where nothing connects them."""

    def empty(self, *shape: int) -> A:
        """An uninitialised array of the kernel's dtype, C-contiguous."""

    def empty_integers(self, *shape: int) -> A:
        """An uninitialised array of int32."""

    def empty_columnwise(self, rows: int, columns: int) -> A:
        """An uninitialised (rows, columns) array laid out column by column.

        Row reductions over few columns, as in a softmax, are several times faster on it.
        """

    def zeros(self, *shape: int) -> A:
        """An array of zeros of the kernel's dtype."""

    def from_host(self, array: np.ndarray) -> A:
        """A NumPy array as an array of this kernel (floating point: in its dtype).

        It may be the same memory.
        """

    def from_host64(self, array: np.ndarray) -> A:
        """A copy in float64, whatever the kernel's dtype: for sums over many rows."""

    def resident(self, numbers: np.ndarray, dtype: DTypeLike) -> Any:
        """Numbers of the host that operations read again and again: indices, labels, keys.

        Itself on the host; on a device a copy, of the dtype that its operations read: int64 for
        numbers of rows and columns, uint64 for vertices of ``row_keys``, uint32 for keys of
        columns. Its owner keeps it; other numbers of the host are copied for each operation.
        """

    def to_host(self, array: A) -> np.ndarray:
        """The NumPy array of a kernel's array; it may be the same memory."""

    def copy(self, x: A, out: A) -> None:
        """out = x, converting the dtype if need be."""

    def finish(self) -> None:
        """Wait until all that was begun is done."""

    def repeated(self, call: Callable[[int], R]) -> Callable[[int], R]:
        """A call that does the same in each epoch, so that a device can be told once.

        Parameters
        ----------
        call : callable
            Called with the number of an epoch, on which dropout may depend and nothing else does.
            It works on the same arrays each time, looks at no number that it computes, and returns
            the same array, a :class:`Number`, or what does not change.
        """

    # Messages: what MPI sends and receives for an array.

    def message(self, array: A, staged: bool = False) -> A | np.ndarray:
        """Memory for what ``array`` is to send or receive: the array itself, where MPI sees it.

        From then on, or from :meth:`before_receiving` on, nothing that is begun works on the array
        until :meth:`from_message`.

        Parameters
        ----------
        staged : bool
            Whether it is for an operation for which MPI libraries take no memory of devices, even
            if they do for others: collectives in the background, and windows.
        """

    def to_message(self, array: A, message: A | np.ndarray) -> None:
        """Begin message = array, once that is computed; nothing if they are the same."""

    def before_sending(self) -> None:
        """Wait for what was begun so: messages may be sent."""

    def before_receiving(self) -> None:
        """Wait until messages may be received in memory that was read from."""

    def from_message(self, message: A | np.ndarray, array: A) -> None:
        """Begin array = message; nothing if they are the same."""
