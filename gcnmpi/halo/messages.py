"""The rows of an exchange in the messages that MPI carries: as they are, or in fewer bits.

An exchange has two ends: the packed rows and the halo. :class:`End` and :class:`Rounded` say how
the rows of one end travel. Nobody else knows of ``comm.precision``, but for who counts bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from gcnmpi.core import rng
from gcnmpi.core.precision import Format, format_of
from gcnmpi.core.timing import Error, Traffic
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.mpi.comm import Comm, reduce_in_place
from gcnmpi.options.config import Config

STREAM = 1 << 32  # of random numbers: dropout has those below
RANK = 1 << 40  # rows of a rank, at most
MEASURED_AT_ONCE = 1 << 12  # rows


class Mover:
    """Makes messages of arrays, for MPI to carry: see :class:`gcnmpi.core.arrays.Memory`.

    Attributes
    ----------
    later : bool
        Whether copies to messages go on while the kernel computes, so that it is given work before
        they are waited for.
    message, to_message, from_message, before_sending, before_receiving : callable
        Those of the kernel's memory; ``message`` with its ``staged``.
    """

    def __init__(self, kernel: Kernel, staged: bool) -> None:
        self.later = kernel.device is not None and (staged or not kernel.host_visible)
        self.message: Callable[[Array], Array] = partial(kernel.message, staged=staged)
        self.to_message: Callable[[Array, Array], object] = kernel.to_message
        self.from_message: Callable[[Array, Array], object] = kernel.from_message
        self.before_sending: Callable[[], object] = kernel.before_sending
        self.before_receiving: Callable[[], object] = kernel.before_receiving


class End:
    """One end of an exchange; rows travel as they are.

    Attributes
    ----------
    array : (rows, width) array
    message : array
        What MPI works on, a row of it for each row: the array itself, or a copy on the host.
    """

    def __init__(self, mover: Mover, array: Array, message: Array | None = None) -> None:
        self._mover, self.array = mover, array
        self.message = mover.message(array) if message is None else message

    def write(self, traffic: Traffic) -> None:
        """Begin message = array; it may be sent once the mover says so."""
        self._mover.to_message(self.array, self.message)

    def read(self) -> None:
        """Begin array = message, which may be received again once the mover says so."""
        self._mover.from_message(self.message, self.array)


@dataclass(frozen=True)
class Rounding:
    """How rows are rounded: to a format, at random by a seed; ``always``: in the set-up, too."""

    format: Format
    seed: int
    always: bool = False


def rounding_of(config: Config, width: int, always: bool = False) -> Rounding | None:
    """How rows of some width are rounded; None: they are sent as they are."""
    itemsize = np.dtype(config.dtype).itemsize
    found = format_of(config.comm.precision, width, itemsize)
    return None if found is None else Rounding(found, config.train.seed, always)


class Encoded:
    """Memory for rows in some format, and the keys of their random numbers; ends may share it.

    A row's key is its place among the rows that its rank sends, so that it does not depend on the
    order in which a rank keeps its own.
    """

    def __init__(
        self, kernel: Kernel, mover: Mover, rank: int, rows: int, width: int, rounding: Rounding
    ) -> None:
        self.rounding, self.mover = rounding, mover
        self.bytes = kernel.empty_bytes(rows, rounding.format.row_bytes(width))
        self.message = mover.message(self.bytes)
        self._kernel, self._places, self._width = kernel, (rank, rows), width

    @cached_property
    def rows(self) -> np.ndarray:
        """A number for each row, different on all ranks."""
        rank, count = self._places
        return self._kernel.resident(np.arange(rank * RANK, rank * RANK + count), np.uint64)

    @cached_property
    def columns(self) -> Array:
        """Keys of the columns."""
        return self._kernel.resident(rng.column_keys(np.arange(self._width)), np.uint32)


class Rounded(End):
    """Rows in fewer bits; those in ``pieces`` travel in messages."""

    def __init__(
        self, kernel: Kernel, array: Array, encoded: Encoded, pieces: Collection[slice]
    ) -> None:
        super().__init__(encoded.mover, array, encoded.message)
        self._kernel, self._encoded, self._pieces = kernel, encoded, pieces

    def write(self, traffic: Traffic) -> None:
        """Encode the rows; and measure what that changed, where it is asked for."""
        encoded, kernel = self._encoded, self._kernel
        how, number = encoded.rounding.format, traffic.round()
        keys = None
        if how.random:
            seed, stream = encoded.rounding.seed, STREAM + number
            keys = kernel.row_keys(seed, traffic.epoch, stream, encoded.rows)
        for piece in self._pieces:
            mine = None if keys is None else keys[piece]
            rows, message = self.array[piece], encoded.bytes[piece]
            kernel.encode_rows(rows, how.name, mine, encoded.columns, message)
        if traffic.measured:
            traffic.add_error(number, self.array.shape[1], *self._squares())
        self._mover.to_message(encoded.bytes, self.message)

    def read(self) -> None:
        """Decode the rows of the message."""
        encoded, kernel = self._encoded, self._kernel
        self._mover.from_message(self.message, encoded.bytes)
        for piece in self._pieces:
            kernel.decode_rows(
                encoded.bytes[piece], encoded.rounding.format.name, self.array[piece]
            )

    def _squares(self) -> tuple[float, float]:
        """Sums of squares of what rounding changed, and of all numbers."""
        kernel, error, size = self._kernel, 0.0, 0.0
        for piece in self._pieces:
            for start in range(piece.start, piece.stop, MEASURED_AT_ONCE):
                some = slice(start, min(start + MEASURED_AT_ONCE, piece.stop))
                rows, name = self.array[some], self._encoded.rounding.format.name
                sent = kernel.empty(*rows.shape)
                kernel.decode_rows(self._encoded.bytes[some], name, sent)
                kernel.axpy(rows, -1.0, sent)
                error += kernel.dot(sent, sent)
                size += kernel.dot(rows, rows)
        return error, size


def relative_errors(comm: Comm, errors: Sequence[Error]) -> list[dict[str, float]]:
    """The effect of rounding on all rows of each exchange that was measured, on every rank.

    "epoch", "exchange" and "width" as in :class:`~gcnmpi.core.timing.Error`, and "error": the
    Frobenius norm of the change, relative to that of the rows.
    """
    squares = np.array([[error.changed, error.size] for error in errors], np.float64)
    reduce_in_place(comm, squares)
    return [
        {
            "epoch": error.epoch,
            "exchange": error.exchange,
            "width": error.width,
            "error": float(np.sqrt(changed / size)) if size else 0.0,
        }
        for error, (changed, size) in zip(errors, squares.reshape(-1, 2).tolist(), strict=True)
    ]
