"""The kernels that can be used on this machine, and arrays of theirs, as tests take them."""

import numpy as np
import pytest

from gcnmpi.core import rng
from gcnmpi.options.kernel import KERNELS

USABLE = [name for name, reason in KERNELS.available().items() if reason is None]
TYPES = [np.float32, np.float64]
DTYPES = pytest.mark.parametrize("dtype", TYPES, ids=["float32", "float64"])
needs_native = pytest.mark.skipif("native" not in USABLE, reason="not built")
STEP = 1e-30


def instances(operation=None):
    """Every kernel, or those with an operation that not all have: dtype → a kernel of two threads.

    The native kernel comes with each of its instruction sets.
    """
    for name in USABLE:
        kind = KERNELS.get(name)
        if operation is not None and not getattr(kind(np.float32), operation):
            continue
        if name == "native":
            from gcnmpi.kernels.native.kernel import targets

            for target in targets():
                yield pytest.param(lambda d, k=kind, t=target: k(d, 2, t), id=f"native-{target}")
        else:
            yield pytest.param(lambda d, k=kind: k(d, 2), id=name)


def having(operation):
    """Give the fixture ``kernel`` only the kernels that have the operation."""
    return pytest.mark.parametrize("make", list(instances(operation)))


def natively(test):
    """Run a test with the native kernel, in each dtype."""
    return needs_native(DTYPES(test))


def near(kernel, found, expected, factor=1.0):
    """Fail unless all numbers are as near as the kernel's dtype lets expect, times ``factor``."""
    found = found if isinstance(found, np.ndarray) else kernel.to_host(found)
    assert found.dtype in (kernel.dtype, np.float64)  # sums of columns are in float64
    tolerance = factor * (1e-5 if kernel.dtype == np.float32 else 1e-12)
    scale = max(1.0, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale)


def all_near(kernel, found, expected, factor=1.0):
    """The same of several arrays."""
    for one, wanted in zip(found, expected, strict=True):
        near(kernel, one, wanted, factor)


def draw(random, kernel, *shape):
    """Random numbers that the kernel's dtype has, in float64."""
    return random.standard_normal(shape).astype(kernel.dtype).astype(np.float64)


def give(kernel, array):
    """A kernel's own writable copy of an array."""
    mine = kernel.empty(*np.shape(array))
    kernel.copy(kernel.from_host(np.array(array, dtype=np.float64)), mine)
    return mine


def junk(kernel, *shape):
    """An array of numbers that an operation must overwrite."""
    return give(kernel, np.full(shape, 3.5))


def kept(rows, columns, p):
    """1 / (1 − p), or 0 where dropout takes a number: for keys of rows and columns."""
    hashes, scratch = np.empty((2, len(rows), len(columns)), np.uint32)
    rng.hash_block(rows, columns, hashes, scratch)
    return (hashes >= rng.threshold(p)) / (1 - p)


def slopes(function, arrays, grad):
    """The gradient of sum(grad · function(*arrays)) in each of them, by complex steps."""
    found = []
    for k, array in enumerate(arrays):
        found.append(np.zeros(array.shape))
        for place in np.ndindex(array.shape):
            moved = [a.astype(complex) for a in arrays]
            moved[k][place] += 1j * STEP
            found[k][place] = np.sum(grad * function(*moved).imag) / STEP
    return found


def same_bits(results):
    """Fail unless all lists of arrays are the first one, bit for bit."""
    for others in results[1:]:
        for first, other in zip(results[0], others, strict=True):
            assert first.tobytes() == other.tobytes()
