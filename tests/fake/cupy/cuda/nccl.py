"""NCCL: sums and messages between processes of MPI, which must have different devices.

The real one has no MPI; here it stands for the network. FAKE_NCCL=missing: CuPy does not find the
library. FAKE_NCCL=broken: the last rank cannot join the others, which wait.
"""

import ctypes
import os
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from cupy.cuda import get_current_stream, of_pointer, runtime
from cupy.queue import begin

available = os.environ.get("FAKE_NCCL") != "missing"
if not available:
    warnings.warn("\nnccl library could not be loaded.\n", stacklevel=1)

NCCL_SUM, NCCL_UINT8, NCCL_FLOAT64 = 0, 1, 8
ID_BYTES = 128
_group = None  # what was sent and received since the group began


class NcclError(RuntimeError):
    pass


def get_version() -> int:
    return 22705


def get_unique_id() -> bytes:
    return os.urandom(ID_BYTES)


def groupStart():
    global _group
    assert _group is None
    _group = []


def groupEnd():
    global _group
    calls, _group = _group, None
    streams = {stream for stream, _ in calls}
    assert len(streams) <= 1

    def run():
        from mpi4py import MPI

        MPI.Request.Waitall([call() for _, call in calls])

    if calls:
        begin(run, of_pointer[streams.pop()].queue)


class NcclCommunicator:
    def __init__(self, ndev: int, commId: bytes, rank: int):
        assert isinstance(commId, bytes)
        assert len(commId) == ID_BYTES
        if os.environ.get("FAKE_NCCL") == "broken" and rank == ndev - 1:
            raise NcclError("NCCL_ERROR_SYSTEM_ERROR: unhandled system error")
        self._network = _meet(ndev, commId, rank)
        mine = (commId, ndev, rank, runtime.deviceGetPCIBusId(runtime.getDevice()))
        names, sizes, ranks, devices = zip(*self._network.allgather(mine), strict=True)
        assert set(names) == {commId}
        assert set(sizes) == {ndev}
        assert ranks == tuple(range(ndev))
        if len(set(devices)) < ndev:
            raise NcclError("NCCL_ERROR_INVALID_USAGE: Duplicate GPU detected")

    def allReduce(
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int
    ):
        assert (datatype, op) == (NCCL_FLOAT64, NCCL_SUM)
        assert stream == get_current_stream().ptr
        source, target = (_at(address, 8 * count).view(float) for address in (sendbuf, recvbuf))
        begin(lambda: self._network.Allreduce(source.copy(), target))

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int):
        assert datatype == NCCL_UINT8
        _group.append((stream, lambda: self._network.Isend(_at(sendbuf, count), peer)))

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int):
        assert datatype == NCCL_UINT8
        _group.append((stream, lambda: self._network.Irecv(_at(recvbuf, count), peer)))


def _at(address, nbytes):
    return np.frombuffer((ctypes.c_char * nbytes).from_address(address), np.uint8)


def _meet(size, name, rank):
    """A communicator of the processes with a name: each leaves a note of which one it is."""
    from mpi4py import MPI  # which is there once somebody has begun it

    notes = Path(tempfile.gettempdir()) / f"gcnmpi-fake-nccl-{os.getuid()}-{name[:12].hex()}"
    notes.mkdir(exist_ok=True)
    staged = notes / f"{rank}.{os.getpid()}"
    staged.write_text(str(MPI.COMM_WORLD.rank))
    staged.rename(notes / str(rank))
    paths = [notes / str(other) for other in range(size)]
    while not all(path.exists() for path in paths):
        time.sleep(0.001)
    members = MPI.COMM_WORLD.group.Incl([int(path.read_text()) for path in paths])
    network = MPI.COMM_WORLD.Create_group(members)
    network.Barrier()  # all have read
    if rank == 0:
        for path in paths:
            path.unlink()
        notes.rmdir()
    return network
