"""From bytes of a file to arrays of numbers."""

from __future__ import annotations

import numpy as np


def array_of(raw: bytes | memoryview, kind: str) -> np.ndarray:
    """The flat array of bytes in little-endian order.

    ``kind`` is a NumPy code such as "<f4"; or "bf16": the upper half of a float32, which the result
    is.
    """
    if kind != BFLOAT16:
        return np.frombuffer(raw, kind)
    upper = np.frombuffer(raw, "<u2").astype("<u4")
    return (upper << 16).view("<f4")


def item_bytes(kind: str) -> int:
    """Bytes of a number in the file."""
    return 2 if kind == BFLOAT16 else np.dtype(kind).itemsize


BFLOAT16 = "bf16"
