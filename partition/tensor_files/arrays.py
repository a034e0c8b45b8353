"""Arrays in files of NumPy and safetensors, and numbers that torch alone knows."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from pathlib import Path
from typing import TypedDict

import numpy as np

from partition.errors import UserError, shortened, system_errors
from partition.records import open_regular
from partition.tensor_files.pickles import Made


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


KINDS = {
    "BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "U32": "<u4",
    "I32": "<i4", "U64": "<u8", "I64": "<i8", "F16": "<f2", "BF16": BFLOAT16, "F32": "<f4",
    "F64": "<f8",
}  # fmt: skip
LONGEST_HEADER = 100_000_000  # bytes, as the format has it


class _Entry(TypedDict):
    """The header's description of an array, as it should be."""

    dtype: str
    shape: list[int]
    data_offsets: list[int]


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a file; a UserError if it is none of this format: every offset is checked."""
    with system_errors(f"cannot read {path}"), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(LONGEST_HEADER, size - 8):
            raise UserError(f"{path} is not a safetensors file, or is truncated")
        header, data = file.read(length), memoryview(file.read())
    try:
        entries = json.loads(header, object_pairs_hook=_without_doubles)
        if not isinstance(entries, dict):
            raise ValueError("its header is not an object")
        entries.pop("__metadata__", None)
        return {name: _array(name, entry, data) for name, entry in entries.items()}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(f"{path} is damaged, or not a safetensors file: {error}") from error


def _array(name: str, entry: _Entry, data: memoryview) -> np.ndarray:
    kind, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    if kind not in KINDS:
        raise ValueError(f"{name!r} is of dtype {kind!r}, which is not read here")
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise ValueError(f"{name!r} has no shape and offsets of whole numbers")
    if not begin <= end <= len(data):
        raise ValueError(f"{name!r} lies outside of the file")
    if math.prod(shape) * item_bytes(KINDS[kind]) != end - begin:
        raise ValueError(f"{name!r} has {end - begin} bytes for shape {shape}")
    return array_of(data[begin:end], KINDS[kind]).reshape(shape)


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found
