"""Pickled NumPy arrays and SciPy matrices from strangers, read without trusting them.

A pickle is a program that calls what it names. Here every name stands for a harmless class of
this module that only keeps what it is given; what was kept is checked before it becomes an array.
"""

from __future__ import annotations

import collections
import io
import math
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np

from partition.errors import UserError
from partition.readers.files import check_csr, dense_features


def unpickle(path: Path) -> Any:
    """The object in a pickle of Python 2 or 3: lists, dicts, numbers and the classes below.

    Raises
    ------
    UserError
        If it names anything else, or is damaged.
    """
    try:
        return _Unpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except (UserError, OSError, MemoryError):
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
    parts = [value.__dict__.get(name) for name in ("indptr", "indices", "data")]
    indptr, indices, data = (
        part.checked(where) if isinstance(part, _Array) else np.empty((0, 0)) for part in parts
    )
    shape = value.__dict__.get("_shape", value.__dict__.get("shape"))
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


def _empty_array(*_: object) -> _Array:
    return _Array()


def _to_bytes(text: str, _: str = "latin1") -> bytes:
    return text.encode("latin1")


# NumPy and SciPy have moved these modules; pickles keep the name of their day.
ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("scipy.sparse.csr", "csr_matrix"): _Matrix,
    ("scipy.sparse._csr", "csr_matrix"): _Matrix,
    ("collections", "defaultdict"): collections.defaultdict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("_codecs", "encode"): _to_bytes,
}


class _Unpickler(pickle._Unpickler):
    # The one written in Python: the one in C reserves memory for whatever a pickle announces.
    def find_class(self, module: str, name: str) -> Any:
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise UserError(
                f"the pickle names {module}.{name}, which a planetoid file has no use for",
                "do not open this file with other programs before you know where it is from",
            ) from None
