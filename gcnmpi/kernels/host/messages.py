"""Rows of messages in fewer bits, in NumPy: see :mod:`gcnmpi.core.precision`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import DTypeLike

from gcnmpi.core import rng

Array = np.ndarray

_AT_ONCE = 1 << 16  # numbers, so that what they become on the way fits the L2 cache
_NORMAL = np.finfo(np.float32).tiny  # smaller ones are subnormal, or zero
_INFINITE = 0x7F800000  # bits of a float32: above are NaNs
_NOT_FINITE = -128  # exponent of such a row in fp16
_LEAST = -112  # exponent of a row in fp16: 2^14 / 2^-112 is a float32
_TINY = 27 << 23  # bits of 2^-100
_TOP = 127 << 16  # the largest number of a row in int8, in 1/2^16


class Messages:
    """:class:`~gcnmpi.kernels.interface.kernel.MessageOperations` on the host."""

    def empty_bytes(self, rows: int, columns: int) -> Array:
        return np.empty((rows, columns), np.uint8)

    def encode_rows(
        self, x: Array, precision: str, rows: Array | None, columns: Array | None, out: Array
    ) -> None:
        encode, _ = _FORMATS[precision]
        for piece in _pieces(x):
            keys = None if rows is None else rows[piece]
            with np.errstate(over="ignore"):  # a float64 may be none of float32
                numbers = x[piece].astype(np.float32)
            numbers[np.abs(numbers) < _NORMAL] *= np.float32(0)  # the sign stays
            encode(numbers, keys, columns, out[piece])

    def decode_rows(self, message: Array, precision: str, out: Array) -> None:
        _, decode = _FORMATS[precision]
        for piece in _pieces(out):
            out[piece] = decode(message[piece], out.shape[1])


def _pieces(x: Array) -> list[slice]:
    step = max(1, _AT_ONCE // max(1, x.shape[1]))
    return [slice(start, start + step) for start in range(0, len(x), step)]


def _encode_bf16(x: Array, rows: Array | None, columns: Array | None, out: Array) -> None:
    bits = x.view(np.uint32)
    nearest = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    halves = np.where(np.isnan(x), bits | np.uint32(0x400000), nearest) >> np.uint32(16)
    out[...] = halves.astype(np.uint16).view(np.uint8).reshape(out.shape)


def _decode_bf16(message: Array, width: int) -> Array:
    halves = _numbers(message, width, np.uint16)
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _encode_fp16(x: Array, rows: Array | None, columns: Array | None, out: Array) -> None:
    largest, width = _largest(x), x.shape[1]
    exponent = np.maximum((largest >> np.uint32(23)).astype(np.int32) - 127, _LEAST)
    finite = largest < _INFINITE
    out[:, 2 * width] = np.where(finite, exponent, _NOT_FINITE).astype(np.int8).view(np.uint8)
    factor = np.where(finite, np.ldexp(np.float32(1), 14 - exponent), np.float32(0))
    halves = (_only(finite, x) * factor[:, np.newaxis]).astype(np.float16)
    out[:, : 2 * width] = halves.view(np.uint8).reshape(len(x), 2 * width)


def _decode_fp16(message: Array, width: int) -> Array:
    exponent = message[:, 2 * width].view(np.int8).astype(np.int32)
    factor = np.ldexp(np.float32(1), exponent - 14)
    factor[exponent == _NOT_FINITE] = np.nan
    numbers = _numbers(message[:, : 2 * width], width, np.float16)
    return numbers.astype(np.float32) * factor[:, np.newaxis]


def _encode_int8(x: Array, rows: Array | None, columns: Array | None, out: Array) -> None:
    assert rows is not None, "rounded at random"
    assert columns is not None, "rounded at random"
    bits, width = _largest(x), x.shape[1]
    finite, tiny = bits < _INFINITE, bits < _TINY
    largest = np.where(finite, np.where(tiny, 0, bits), 0x7FC00000).astype(np.uint32)
    out[:, width:] = largest.view(np.uint8).reshape(len(x), 4)
    some = finite & ~tiny
    factor = np.zeros(len(x), np.float32)
    np.divide(np.float32(_TOP), largest.view(np.float32), out=factor, where=some)
    hashes, scratch = np.empty((2, *x.shape), np.uint32)
    rng.hash_block(rows, columns, hashes, scratch)
    steps = (_only(finite, x) * factor[:, np.newaxis]).astype(np.int32).clip(-_TOP, _TOP)
    steps += (hashes >> np.uint32(16)).astype(np.int32)
    steps >>= 16
    out[:, :width] = _only(finite, steps).astype(np.int8).view(np.uint8)


def _decode_int8(message: Array, width: int) -> Array:
    largest = np.ascontiguousarray(message[:, width:]).view(np.float32)
    return message[:, :width].view(np.int8).astype(np.float32) * (largest / np.float32(127))


def _numbers(message: Array, width: int, dtype: DTypeLike) -> Array:
    return np.ascontiguousarray(message).view(dtype).reshape(len(message), width)


def _only(rows: Array, x: Array) -> Array:
    """Some rows of x, and zeros."""
    return np.where(rows[:, np.newaxis], x, x.dtype.type(0))


def _largest(x: Array) -> Array:
    """Bits of the largest absolute value of each row; those of NaNs are above all others."""
    bits = x.view(np.uint32) & np.uint32(0x7FFFFFFF)
    return bits.max(axis=1, initial=0)


_Encode = Callable[[Array, Array | None, Array | None, Array], None]
_Decode = Callable[[Array, int], Array]
_FORMATS: Mapping[str, tuple[_Encode, _Decode]] = {
    "bf16": (_encode_bf16, _decode_bf16),
    "fp16": (_encode_fp16, _decode_fp16),
    "int8": (_encode_int8, _decode_int8),
}
