"""The kernels that can be used on this machine, and arrays of theirs, as tests take them."""

import numpy as np
import pytest

from gcnmpi.options.kernel import KERNELS

USABLE = [name for name, reason in KERNELS.available().items() if reason is None]
TYPES = [np.float32, np.float64]
DTYPES = pytest.mark.parametrize("dtype", TYPES, ids=["float32", "float64"])
needs_native = pytest.mark.skipif("native" not in USABLE, reason="not built")


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


def near(kernel, found, expected, factor=1.0):
    """Fail unless all numbers are as near as the kernel's dtype lets expect, times ``factor``."""
    found = found if isinstance(found, np.ndarray) else kernel.to_host(found)
    assert found.dtype in (kernel.dtype, np.float64)  # sums of columns are in float64
    tolerance = factor * (1e-5 if kernel.dtype == np.float32 else 1e-12)
    scale = max(1.0, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale)


def give(kernel, array):
    """A kernel's own writable copy of an array."""
    mine = kernel.empty(*np.shape(array))
    kernel.copy(kernel.from_host(np.array(array, dtype=np.float64)), mine)
    return mine


def junk(kernel, *shape):
    """An array of numbers that an operation must overwrite."""
    return give(kernel, np.full(shape, 3.5))


def same_bits(results):
    """Fail unless all lists of arrays are the first one, bit for bit."""
    for others in results[1:]:
        for first, other in zip(results[0], others, strict=True):
            assert first.tobytes() == other.tobytes()
