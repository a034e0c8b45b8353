"""Fixtures of the unit tests: random numbers, and every kernel in both dtypes."""

from collections import defaultdict

import numpy as np
import pytest
from axes import covering
from hypothesis import settings
from kernel_cases import TYPES, instances

# A machine that is busy, or compiles what an example calls, is no fault of the example.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def pytest_collection_modifyitems(config, items):
    """Of tests of all kernels, leave so many that every two of their parameters meet."""
    by_test = defaultdict(dict)
    for item in items:
        if "make" in getattr(item, "fixturenames", ()):
            by_test[item.path, item.originalname][case_of(item)] = item
    dropped = set()
    for cases in by_test.values():
        axes = [list(dict.fromkeys(axis)) for axis in zip(*cases, strict=True)]
        kept = covering(*axes, allowed=lambda *case, cases=cases: case in cases)
        dropped |= {cases[case] for case in cases.keys() - kept}
    config.hook.pytest_deselected(items=[*dropped])
    items[:] = [item for item in items if item not in dropped]


def case_of(item):
    """Which values its parameters have: a place for each of ``parametrize`` and fixture."""
    params, groups = item.callspec.params, []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0]
        groups.append([names] if isinstance(names, str) else [*names])
    groups += [[name] for name in params if not any(name in group for group in groups)]
    return tuple(tuple(id(params[name]) for name in of) for of in groups)


@pytest.fixture
def random():
    return np.random.default_rng(3)


@pytest.fixture(params=instances())
def make(request):
    """``make(dtype)`` → a kernel; in turn each of those that this machine has."""
    return request.param


@pytest.fixture(params=TYPES, ids=["float32", "float64"])
def kernel(request, make):
    """The kernel that ``make`` gives, in turn in each dtype."""
    return make(request.param)
