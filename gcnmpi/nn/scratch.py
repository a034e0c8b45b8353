"""Values are written to a file, and read again where the backward pass needs them.

A thread moves the bytes while steps compute; what it has begun it does in turn. The file has no
name: it is gone with the process, however that ends.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from gcnmpi.core.timing import Phases
from gcnmpi.kernels.interface.kernel import Array, Kernel
from partition.errors import UserError

PAGE = 4096  # bytes; values begin at a multiple of it
AT_ONCE = 1 << 26  # bytes of a call


class Scratch:
    """A file of one rank with room for some values.

    Parameters
    ----------
    folder : path
        It must be there.
    """

    def __init__(self, folder: Path, kernel: Kernel, phases: Phases) -> None:
        try:
            self._file = tempfile.TemporaryFile(  # noqa: SIM115 (it is closed with this object)
                dir=folder, prefix="gcnmpi-", buffering=0
            )
        except OSError as error:
            raise UserError(
                f"train.scratch: cannot write to {folder}: {error.strerror}",
                "give a folder of a local disk that is there on all hosts",
            ) from error
        self._folder, self._kernel, self._phases = folder, kernel, phases
        self._thread = ThreadPoolExecutor(1, "scratch")
        self._places: dict[int, tuple[int, int]] = {}  # value → where it begins, its bytes
        self._moving: dict[int, Future] = {}
        self.size = 0  # bytes of the file

    def place(self, value: int, array: Array) -> None:
        """Make room for a value."""
        self._places[value] = self.size, array.nbytes
        self.size += -(-array.nbytes // PAGE) * PAGE

    def reserve(self) -> None:
        """Take the room from the disk; a UserError if that has less."""
        try:
            if self.size:
                os.posix_fallocate(self._file.fileno(), 0, self.size)
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return  # a file system that cannot
            raise self._failed(error) from error

    def write(self, value: int, array: Array) -> None:
        """Begin to write a value, which stays as it is until that is done."""
        self._begin(value, array, _write)

    def read(self, value: int, array: Array) -> None:
        """Begin to read a value; of rows of neighbours too, if there is room for these."""
        self._begin(value, array, _read)

    def wait(self, value: int) -> None:
        """Wait until what was begun last with a value is done."""
        with self._phases("scratch"):
            try:
                self._moving.pop(value).result()
            except OSError as error:
                raise self._failed(error) from error

    def _begin(
        self, value: int, array: Array, move: Callable[[int, int, memoryview], None]
    ) -> None:
        start, nbytes = self._places[value]
        numbers = self._kernel.to_host(array).reshape(-1).view(np.uint8)
        moved = memoryview(numbers)[:nbytes]  # type: ignore[arg-type]
        self._moving[value] = self._thread.submit(move, self._file.fileno(), start, moved)

    def _failed(self, error: OSError) -> UserError:
        return UserError(
            f"train.scratch: {self._folder} has no {self.size / 1e9:.3g} GB for this rank: "
            f"{error.strerror}",
            "give a folder of a larger disk, or a larger train.memory",
        )


def _write(file: int, start: int, numbers: memoryview) -> None:
    done = 0
    while done < len(numbers):
        done += os.pwrite(file, numbers[done : done + AT_ONCE], start + done)


def _read(file: int, start: int, numbers: memoryview) -> None:
    done = 0
    while done < len(numbers):
        count = os.preadv(file, [numbers[done : done + AT_ONCE]], start + done)
        if not count:
            raise OSError(errno.EIO, "the file is shorter than what was written")
        done += count
