"""Rows of messages in fewer bits on a GPU: see :mod:`gcnmpi.kernels.cuda.text.messages`."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from gcnmpi.core.precision import FORMATS

Array = Any  # of CuPy
_NUMBERS = {name: number for number, name in enumerate(FORMATS)}


class CupyMessages:
    """:class:`~gcnmpi.kernels.interface.messages.MessageOperations`."""

    _launch: Any

    def empty_bytes(self, rows: int, columns: int) -> Array:
        return cp.empty((rows, columns), np.uint8)

    def encode_rows(
        self, x: Array, precision: str, rows: Array | None, columns: Any, out: Array
    ) -> None:
        number = _NUMBERS[precision]
        if FORMATS[precision].scale_bytes:
            self._launch("encode_scales", len(x), 1, x, x.shape[1], number, out, out.shape[1])
        columns = None if rows is None else columns
        self._launch("encode_numbers", *x.shape, x, number, rows, columns, out, out.shape[1])

    def decode_rows(self, message: Array, precision: str, out: Array) -> None:
        row_bytes, number = message.shape[1], _NUMBERS[precision]
        self._launch("decode_numbers", *out.shape, message, row_bytes, number, out)
