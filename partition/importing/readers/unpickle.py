"""Reading pickled NumPy arrays and SciPy matrices without running code from the file.

A pickle is a program that calls what it names. Here every name stands for something harmless of
this module that only keeps what it is given, without a copy, so that a small file cannot grow;
what was kept is checked before it becomes an array.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np

from partition.errors import UserError
from partition.importing.readers.files import check_csr, dense_features


def unpickle(path: Path) -> Any:
    """The object in a pickle of Python 2 or 3: lists, dicts, numbers and the classes below.

    Raises
    ------
    UserError
        If it names anything else, or is damaged.
    """
    try:
        return _Unpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except _NotAdmittedError as error:
        raise UserError(
            f"{path} names {error}, which no file of this format has a use for",
            "a pickle can run anything: do not open it elsewhere before you know its origin",
        ) from error
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise UserError(f"{path} is truncated or damaged, or not a pickle: {error}") from error


def as_dense(value: Any, where: str) -> np.ndarray:
    """An unpickled array or CSR matrix as a dense array of numbers; a UserError if it is neither.

    The array of a CSR matrix is float32.
    """
    if isinstance(value, _Array):
        return value.checked(where)
    if not isinstance(value, _Matrix):
        raise UserError(f"{where} holds a {type(value).__name__}, not an array or a CSR matrix")
    parts = [value.attributes.get(name) for name in ("indptr", "indices", "data")]
    indptr, indices, data = (
        part.checked(where) if isinstance(part, _Array) else np.empty((0, 0)) for part in parts
    )
    shape = value.attributes.get("_shape")
    if not isinstance(shape, tuple) or [type(extent) for extent in shape] != [int, int]:
        raise UserError(f"{where} holds a CSR matrix without a shape")
    check_csr(indptr, indices, data, shape, where)
    return dense_features(indptr, indices, data, shape, where)


def as_array(values: list, where: str) -> np.ndarray:
    """A list of int as int64; a UserError if there is anything else in it."""
    if not all(type(value) is int for value in values):
        raise UserError(f"{where} holds something else than whole numbers")
    try:
        return np.array(values, np.int64)
    except OverflowError as error:
        raise UserError(f"{where} holds a number beyond 64 bits") from error


class _Dtype:
    """Stands for ``numpy.dtype``: a code such as "f4", and a byte order from its state."""

    def __init__(self, code: str, *_: object) -> None:
        self.code, self.order = code, "|"

    def __setstate__(self, state: tuple) -> None:
        self.order = state[1]


class _Array:
    """Stands for ``numpy.ndarray``: a shape, a dtype and the bytes."""

    state: tuple = ()

    def __setstate__(self, state: tuple) -> None:
        self.state = state

    def checked(self, where: str) -> np.ndarray:
        """The array; a UserError if it is not one of numbers, or has too few or many bytes."""
        try:
            _, shape, dtype, fortran, raw = self.state
            code, order = dtype.code, dtype.order
            if not re.fullmatch(r"[biuf][1248]", code) or order not in ("<", ">", "|"):
                raise ValueError(f"dtype {code!r}")
            raw = raw.text if isinstance(raw, _Encoded) else raw
            data = raw.encode("latin1") if isinstance(raw, str) else bytes(raw)
            if not all(type(extent) is int and extent >= 0 for extent in shape):
                raise ValueError(f"shape {shape!r}")
            if math.prod(shape) * int(code[1]) != len(data):
                raise ValueError(f"{len(data)} bytes for shape {shape}")
            flat = np.frombuffer(data, order + code)
            native = flat.astype(flat.dtype.newbyteorder("="))
            return native.reshape(shape, order="F" if fortran else "C")
        except (ValueError, TypeError, AttributeError) as error:
            raise UserError(f"{where} holds a damaged array: {error}") from error


class _Matrix:
    """Stands for SciPy's ``csr_matrix``: the attributes of one."""

    def __init__(self) -> None:
        self.attributes: dict = {}

    def __setstate__(self, state: dict) -> None:
        self.attributes = dict(state)


class _Encoded:
    """Stands for ``codecs.encode``, with which Python 3 writes bytes for Python 2."""

    def __init__(self, text: str, _: str) -> None:
        self.text = text


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _from_buffer(raw: bytes, dtype: _Dtype, shape: tuple, order: str) -> _Array:
    array = _Array()
    array.state = (1, shape, dtype, order == "F", raw)
    return array


def _no_bytes() -> bytes:
    return b""


def _defaultdict(*_: object) -> dict:
    return {}


class _NotAdmittedError(Exception):
    """A pickle names something that is not in the table below."""


# NumPy and SciPy have moved these modules; pickles keep the name of their day.
ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("scipy.sparse.csr", "csr_matrix"): _Matrix,
    ("scipy.sparse._csr", "csr_matrix"): _Matrix,
    ("collections", "defaultdict"): _defaultdict,
    ("__builtin__", "list"): None,  # only ever an argument, of defaultdict
    ("builtins", "list"): None,
    ("_codecs", "encode"): _Encoded,
    ("__builtin__", "bytes"): _no_bytes,
}


class _Unpickler(pickle._Unpickler):
    # The one written in Python: the one in C reserves memory for whatever a pickle announces.
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise _NotAdmittedError(f"{module}.{name}")
        return ADMITTED[module, name]
