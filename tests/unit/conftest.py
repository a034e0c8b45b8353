"""Fixtures of the unit tests: random numbers, and every kernel in both dtypes."""

import numpy as np
import pytest
from hypothesis import settings
from kernel_cases import TYPES, instances

# A machine that is busy, or compiles what an example calls, is no fault of the example.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture
def random():
    return np.random.default_rng(3)


@pytest.fixture(params=instances())
def make(request):
    """``make(dtype)`` → a kernel; in turn each of those that this machine has."""
    return request.param


@pytest.fixture(params=TYPES, ids=["float32", "float64"])
def kernel(request, make):
    """A kernel; with ``IN_TURN``, cases that differ in one parameter have the other dtype."""
    if request.param is not None:
        return make(request.param)
    case, place = request.node.callspec, 0
    for mark in request.node.iter_markers("parametrize"):
        names, values = mark.args
        own = case.params[names] if isinstance(names, str) else tuple(map(case.params.get, names))
        place += list(values).index(own)
    return make(TYPES[(place + case.indices["make"]) % 2])
