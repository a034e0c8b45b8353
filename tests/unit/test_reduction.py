"""Which ranks have a device of their own."""

import pytest

from gcnmpi.mpi.reduction import shared_device

FIRST, SECOND = "0000:3B:00.0", "0000:AF:00.0"


@pytest.mark.parametrize(
    "seats",
    [
        [("a", FIRST)],
        [("a", FIRST), ("a", SECOND)],
        [("a", FIRST), ("b", FIRST), ("b", SECOND)],  # devices of two hosts have equal addresses
    ],
)
def test_devices_of_their_own(seats):
    assert shared_device(seats) is None


def test_the_ranks_that_share_a_device_are_named():
    seats = [("a", FIRST), ("b", SECOND), ("b", FIRST), ("b", SECOND), ("b", SECOND)]
    assert shared_device(seats).message == f"ranks 1 and 3 share the GPU {SECOND} of b"


@pytest.mark.parametrize("seats", [[("a", None)], [("a", FIRST), ("a", None)]])
def test_a_rank_without_a_device(seats):
    error = shared_device(seats)
    assert (error.message, error.hint) == (
        "the kernel does not compute on a GPU",
        "set kernel=cupy",
    )
