"""Rows of messages in fewer bits, in C++: with threads, a row at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from gcnmpi.core import rng
from gcnmpi.kernels.messages import Messages
from gcnmpi.options.precision import FORMATS

Array = np.ndarray
_NUMBERS = {name: number for number, name in enumerate(FORMATS)}  # enum Format of the sources


class NativeMessages(Messages):
    """:class:`Messages`, compiled; ``_native`` is the compiled kernel."""

    _native: Any

    def encode_rows(
        self, x: Array, precision: str, rows: Array | None, columns: Any, out: Array
    ) -> None:
        number = _NUMBERS[precision]
        self._native.encode_rows(x, number, rows, columns, rng.MIX1, rng.MIX2, out)

    def decode_rows(self, message: Array, precision: str, out: Array) -> None:
        self._native.decode_rows(message, _NUMBERS[precision], out)
