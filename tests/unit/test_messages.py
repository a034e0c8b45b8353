"""Rows of messages in fewer bits: every kernel gives the bits of a definition written out here."""

import math
import struct

import numpy as np
import pytest
from kernel_cases import needs_native
from refusals import refuses

from gcnmpi.core import rng
from gcnmpi.core.precision import EXACT, FORMATS, PRECISIONS, format_of, row_bytes
from gcnmpi.options.kernel import KERNELS

KEYS = 7, 3, 2**32 + 5  # seed, epoch, stream


def make_rows(rows, width):
    """Of all sizes, some of them with zeros; and rows with what is special."""
    random = np.random.default_rng(width)
    x = random.standard_normal((rows, width)) * 10.0 ** random.integers(-30, 30, (rows, 1))
    x[random.random(x.shape) < 0.1] = 0
    subnormal, normal = [1e-45, -1e-39], [2.0**-126, 2.0**-100, 2.0**-112, 65520, 6e-8]
    ties = [1 + 2.0**-8, 1 + 3 * 2.0**-8]  # between two numbers of bf16
    special = [0, -0.0, *subnormal, 1.1754942e-38, *normal, 3e38, -3e38, *ties]
    for row, value in zip(x[: len(special)], special, strict=False):
        row[:1] = value
    return x.astype(np.float32)


def encode(kernel, x, precision):
    """The message of some rows, on the host."""
    rows, width = x.shape
    given = kernel.empty(rows, width)
    kernel.copy(kernel.from_host(x), given)
    out = kernel.empty_bytes(rows, FORMATS[precision].row_bytes(width))
    keys = kernel.row_keys(*KEYS, np.arange(rows))
    kernel.encode_rows(given, precision, keys, rng.column_keys(np.arange(width)), out)
    return kernel.to_host(out)


def decode(kernel, message, precision, width):
    """The rows that a message stands for, on the host."""
    given = kernel.empty_bytes(*message.shape)
    if message.size:
        kernel.from_message(np.ascontiguousarray(message), given)
    out = kernel.empty(len(message), width)
    kernel.decode_rows(given, precision, out)
    return kernel.to_host(out)


def sent(row):
    """Numbers of float32 of which subnormal ones are zeros."""
    return [x if abs(x) >= 2.0**-126 else math.copysign(0, x) for x in row]


def bf16(row, hashes):
    def one(x):
        (bits,) = struct.unpack("<I", struct.pack("<f", x))
        upper, rest = bits >> 16, bits & 0xFFFF
        return upper + (rest > 0x8000 or (rest == 0x8000 and upper & 1))

    return b"".join(struct.pack("<H", one(x)) for x in row)


def fp16(row, hashes):
    exponent = max(math.frexp(max(map(abs, row)))[1] - 1, -112) if any(row) else -112
    scaled = [math.ldexp(x, 14 - exponent) for x in row]
    return struct.pack(f"<{len(row)}eb", *scaled, exponent)


def int8(row, hashes):
    largest = max(map(abs, row))
    if largest < 2.0**-100:
        largest = 0.0
    factor = np.float32(127 * 2**16) / np.float32(largest) if largest else np.float32(0)
    fixed = (int(np.float32(x) * factor) for x in row)  # towards 0
    cut = (min(max(number, -(127 << 16)), 127 << 16) for number in fixed)
    steps = ((number + (h >> 16)) >> 16 for number, h in zip(cut, hashes.tolist(), strict=True))
    return struct.pack(f"<{len(row)}bf", *steps, largest)


DEFINITIONS = {"bf16": bf16, "fp16": fp16, "int8": int8}


@pytest.mark.parametrize("shape", [(40, 1), (40, 3), (40, 16), (40, 37), (40, 64), (0, 4), (3, 0)])
@pytest.mark.parametrize("precision", FORMATS)
def test_messages_are_those_of_the_definition(kernel, precision, shape):
    """And are read as the reference reads them."""
    x, (rows, width) = make_rows(*shape), shape
    hashes, scratch = np.empty((2, *shape), np.uint32)
    keys = rng.row_keys(*KEYS, np.arange(rows)), rng.column_keys(np.arange(width))
    rng.hash_block(*keys, hashes, scratch)
    message, reference = encode(kernel, x, precision), KERNELS.get("scipy")(kernel.dtype)
    assert message.shape == (rows, FORMATS[precision].row_bytes(width))
    for number, (row, random) in enumerate(zip(x.tolist(), hashes, strict=True)):
        if width:
            assert bytes(message[number]) == DEFINITIONS[precision](sent(row), random), row
    expected = decode(reference, message, precision, width)
    np.testing.assert_array_equal(decode(kernel, message, precision, width), expected)


@pytest.mark.parametrize("width", [1, 5, 64])
@pytest.mark.parametrize("precision", FORMATS)
def test_what_arrives_is_near_by(kernel, precision, width):
    x = make_rows(300, width)
    x = x[np.abs(x).max(axis=1) >= 2.0**-99].astype(np.float64)
    got = decode(kernel, encode(kernel, x, precision), precision, width)
    assert got.dtype == kernel.dtype
    largest = np.max(np.linalg.norm(got - x, axis=1) / np.linalg.norm(x, axis=1))
    bound = FORMATS[precision].error(width)
    assert 0.1 * bound * (width > 1) <= largest <= bound
    assert ((got == 0) | (np.abs(got) >= 2.0**-126)).all()
    if precision != "int8":
        again = decode(kernel, encode(kernel, got, precision), precision, width)
        np.testing.assert_array_equal(again, got)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e300])
@pytest.mark.parametrize("precision", FORMATS)
def test_what_is_no_number_is_none_where_it_arrives(kernel, precision, value):
    """A float64 beyond float32 does not pass for a number either."""
    if value == 1e300 and kernel.dtype != np.float64:
        return
    x = make_rows(6, 9).astype(kernel.dtype)
    x[2, 4] = value
    message = encode(kernel, x, precision)
    reference = encode(KERNELS.get("scipy")(kernel.dtype), x, precision)
    np.testing.assert_array_equal(message, reference)
    got = decode(kernel, message, precision, 9)
    assert np.isfinite(got[[0, 1, 3, 4, 5]]).all()
    assert not np.isfinite(got[2, 4])
    assert np.isnan(got[2]).all() or precision == "bf16"


@needs_native
def test_the_native_kernel_looks_at_shapes():
    kernel = KERNELS.get("native")(np.float32)
    x, columns = np.zeros((3, 4), np.float32), rng.column_keys(np.arange(4))
    says, keys = r"bytes of a row|numbers of rows", (None, columns)
    for bad in (np.empty((3, 7), np.uint8), np.empty((2, 8), np.uint8)):
        refuses(says, kernel.encode_rows, x, "bf16", *keys, bad, error=ValueError)
        refuses(says, kernel.decode_rows, bad, "bf16", x, error=ValueError)
    given, says = (x, "int8", *keys, np.empty((3, 8), np.uint8)), "a key for each row"
    refuses(says, kernel.encode_rows, *given, error=ValueError)


def test_bytes_of_rows():
    for size, exact in ((4, 256), (8, 512)):
        assert [row_bytes(p, 64, size) for p in PRECISIONS] == [exact, 128, 129, 68]
    # Rows that would not be shorter stay as they are.
    assert format_of(EXACT, 8, 4) is format_of("int8", 1, 4) is format_of("bf16", 0, 4) is None
    assert row_bytes("int8", 1, 4) == 4
    assert format_of("int8", 2, 4) is format_of("int8", 1, 8) is FORMATS["int8"]
