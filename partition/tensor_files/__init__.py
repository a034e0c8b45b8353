"""Files of named arrays that hold trained weights: one reader a format, chosen by the suffix.

A reader takes a path and returns every array of the file by name. No reader runs code from a file,
none needs the library that wrote it, and none allocates more than a file holds.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import numpy as np

from partition.errors import UserError, system_errors
from partition.records import Whole, open_regular, read_npz
from partition.tensor_files.torch_zip import BFLOAT16, array_of, item_bytes, read_torch

KINDS = {
    "BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "U32": "<u4",
    "I32": "<i4", "U64": "<u8", "I64": "<i8", "F16": "<f2", "BF16": BFLOAT16, "F32": "<f4",
    "F64": "<f8",
}  # fmt: skip
LONGEST_HEADER = 100_000_000  # bytes, as the format has it


class _Entry(msgspec.Struct):
    """The header's description of an array."""

    dtype: str
    shape: list[Whole]
    data_offsets: tuple[Whole, Whole]


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file of weights; numbers of 16 bits without a NumPy type are float32.

    A file with none of these suffixes is read as ``.npz``.
    """
    return READERS.get(path.suffix, read_npz)(path)


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
        described = msgspec.convert(entries, dict[str, _Entry])
        return {name: _array(name, entry, data) for name, entry in described.items()}
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise UserError(f"{path} is damaged, or not a safetensors file: {error}") from error


def _array(name: str, entry: _Entry, data: memoryview) -> np.ndarray:
    kind, shape, (begin, end) = entry.dtype, entry.shape, entry.data_offsets
    if kind not in KINDS:
        raise ValueError(f"{name!r} is of dtype {kind!r}, which is not read here")
    if min(*shape, begin, end) < 0:
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


READERS: Mapping[str, Callable[[Path], dict[str, np.ndarray]]] = {
    ".npz": read_npz,
    ".safetensors": read_safetensors,
    ".pt": read_torch,
    ".pth": read_torch,
    ".bin": read_torch,
}
