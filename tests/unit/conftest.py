"""Fixtures of the unit tests: random numbers, and every kernel in both dtypes."""

import numpy as np
import pytest
from hypothesis import settings
from kernel_cases import instances

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


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def kernel(request, make):
    return make(request.param)
