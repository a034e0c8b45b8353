"""Which ranks have a device of their own, and what MPI gets of devices' memory."""

import contextlib

import numpy as np
import pytest

from gcnmpi.core.timing import Phases, Traffic
from gcnmpi.mpi import collectives
from gcnmpi.mpi.collectives import Group
from gcnmpi.mpi.reduction import shared_device
from gcnmpi.options.kernel import KERNELS
from gcnmpi.options.scheme import TRANSPORTS

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


class Recording:
    """Stands for a communicator of two ranks, and notes the names of what is called."""

    size, rank = 2, 0

    def __init__(self):
        self.called = []

    def __getattr__(self, name):
        return lambda *_: self.called.append(name)


def test_devices_memory_goes_into_messages_and_blocking_collectives_only(monkeypatch):
    monkeypatch.setattr(collectives, "row_type", contextlib.nullcontext)  # it needs MPI to run
    direct = {name for name in TRANSPORTS if TRANSPORTS.get(name).takes_devices}
    assert direct == {"persistent", "isend"}
    kernel, staged = KERNELS.get("scipy")(np.float64), {}
    message = kernel.message
    kernel.message = lambda array, staged=False: asked.append(staged) or message(array)
    for call in ("all_reduce", "start_all_reduce", "broadcast", "start_broadcast", "reduce"):
        asked, comm = [], Recording()
        arguments = () if "all" in call else (0,)
        getattr(Group(comm, kernel, Traffic(), Phases()), call)(np.ones(3), *arguments)
        for name in comm.called:
            staged[name] = asked
    background = {"Iallreduce": [True], "Ibcast": [True]}
    assert staged == {"Allreduce": [False], "Bcast": [False], "Reduce": [False], **background}
