"""Tests on a GPU; without one they are skipped."""

import sys
from pathlib import Path

import pytest

from gcnmpi.options.kernel import KERNELS

sys.path.append(str(Path(__file__).parents[1] / "mpi"))


@pytest.fixture(scope="session", autouse=True)
def _device():
    reason = KERNELS.available()["cupy"]
    if reason is not None:
        pytest.skip(f"no GPU: {reason}")
