"""Arrays of NumPy in pickles that are read as data: see :mod:`partition.tensor_files.pickles`."""

from __future__ import annotations

import contextlib
import math
import re

import numpy as np

from partition.errors import UserError, shortened
from partition.tensor_files.pickles import Made

# NumPy has moved these modules; pickles keep the name of their day.
NAMES = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("numpy.core.multiarray", "_reconstruct"): "array",
    ("numpy._core.multiarray", "_reconstruct"): "array",
    ("numpy.core.numeric", "_frombuffer"): "from buffer",
    ("numpy._core.numeric", "_frombuffer"): "from buffer",
    ("_codecs", "encode"): "encode",  # with which Python 3 writes bytes for Python 2
    ("__builtin__", "bytes"): "bytes",
}


def is_numpy_array(value: object) -> bool:
    """Whether something in a pickle is an array of NumPy."""
    return isinstance(value, Made) and value.word in ("array", "from buffer")


def numpy_array(value: object, where: str) -> np.ndarray:
    """An array of numbers that has as many bytes as its shape says."""
    match value:
        case Made(
            "array", _, (_, tuple(shape), Made("dtype", (str(code), *_), order), fortran, raw)
        ):
            pass
        case Made(
            "from buffer", (raw, Made("dtype", (str(code), *_), order), tuple(shape), fortran)
        ):
            fortran = fortran == "F"
        case _:
            kind = value.word if isinstance(value, Made) else type(value).__name__
            raise UserError(f"{where} holds a {kind}, not an array or a CSR matrix")
    order = order[1] if isinstance(order, tuple) and len(order) > 1 else "|"
    data = _bytes(raw)
    whole = len(shape) < 3 and all(type(extent) is int and 0 <= extent < 2**31 for extent in shape)
    if not re.fullmatch(r"[biuf][1248]", code) or order not in ("<", ">", "|"):
        raise UserError(f"{where} holds a damaged array: it is of dtype {shortened(code)!r}")
    if data is None or not whole or math.prod(shape) * int(code[1]) != len(data):
        raise UserError(f"{where} holds a damaged array: its bytes do not fit its shape")
    try:
        flat = np.frombuffer(data, order + code)
    except TypeError as error:  # there is no f1
        raise UserError(f"{where} holds a damaged array: it is of dtype {code}") from error
    native = flat.astype(flat.dtype.newbyteorder("="))
    return native.reshape(shape, order="F" if fortran else "C")


def _bytes(raw: object) -> bytes | None:
    """The bytes that Python 2 or 3 wrote for either; None of anything else."""
    match raw:
        case bytes():
            return raw
        case Made("bytes", ()):
            return b""
        case str(text) | Made("encode", (str(text), *_)):
            with contextlib.suppress(UnicodeEncodeError):
                return text.encode("latin-1")
    return None
