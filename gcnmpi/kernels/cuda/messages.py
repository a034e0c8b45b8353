"""Rows of messages in fewer bits on a GPU: see :mod:`gcnmpi.kernels.cuda.text.messages`."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from gcnmpi.core.precision import FORMATS

Array = Any  # of CuPy
_NUMBERS = {name: np.int64(number) for number, name in enumerate(FORMATS)}


class CupyMessages:
    """:class:`~gcnmpi.kernels.interface.messages.MessageOperations`."""

    _launch: Any
    _resident: Any

    def empty_bytes(self, rows: int, columns: int) -> Array:
        return cp.empty((rows, columns), np.uint8)

    def encode_rows(
        self, x: Array, precision: str, rows: Array | None, columns: Any, out: Array
    ) -> None:
        number, message = _NUMBERS[precision], (out, np.int64(out.shape[1]))
        if FORMATS[precision].scale_bytes:
            width = np.int64(x.shape[1])
            self._launch("encode_scales", len(x), 1, *_matrix(x), width, number, *message)
        keys = cp.empty(0, np.uint64), cp.empty(0, np.uint32)
        if rows is not None:
            keys = self._resident(rows, "u8"), self._resident(columns, "u4")
        self._launch("encode_numbers", *x.shape, *_matrix(x), number, *keys, *message)

    def decode_rows(self, message: Array, precision: str, out: Array) -> None:
        row_bytes = np.int64(message.shape[1])
        self._launch(
            "decode_numbers", *out.shape, message, row_bytes, _NUMBERS[precision], *_matrix(out)
        )


def _matrix(x: Array) -> tuple[Array, np.int64, np.int64]:
    """A matrix as the CUDA source takes it: where it begins, and its strides."""
    return x, np.int64(x.strides[0] // x.itemsize), np.int64(x.strides[1] // x.itemsize)
