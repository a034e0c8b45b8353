"""NCCL: sums over the processes of MPI, which must have different devices, in turn with other work.

The real one has no MPI; here it stands for the network. FAKE_NCCL=missing: CuPy does not find the
library. FAKE_NCCL=broken: the last rank cannot join the others, which wait.
"""

import ctypes
import os
import warnings

import numpy as np

from cupy.cuda import get_current_stream, runtime
from cupy.queue import begin

available = os.environ.get("FAKE_NCCL") != "missing"
if not available:
    warnings.warn("\nnccl library could not be loaded.\n", stacklevel=1)

NCCL_SUM, NCCL_FLOAT64 = 0, 8
ID_BYTES = 128
_networks = []  # one for all communicators of this process: MPI has not many


class NcclError(RuntimeError):
    pass


def get_version() -> int:
    return 22705


def get_unique_id() -> bytes:
    return os.urandom(ID_BYTES)


class NcclCommunicator:
    def __init__(self, ndev: int, commId: bytes, rank: int):
        assert isinstance(commId, bytes)
        assert len(commId) == ID_BYTES
        if os.environ.get("FAKE_NCCL") == "broken" and rank == ndev - 1:
            raise NcclError("NCCL_ERROR_SYSTEM_ERROR: unhandled system error")
        network = _network()
        mine = (commId, ndev, rank, runtime.deviceGetPCIBusId(runtime.getDevice()))
        names, sizes, ranks, devices = zip(*network.allgather(mine), strict=True)
        assert set(names) == {commId}
        assert set(sizes) == {network.size}
        assert ranks == tuple(range(network.size))
        if len(set(devices)) < ndev:
            raise NcclError("NCCL_ERROR_INVALID_USAGE: Duplicate GPU detected")

    def allReduce(
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int
    ):
        assert (datatype, op) == (NCCL_FLOAT64, NCCL_SUM)
        assert stream == get_current_stream().ptr
        source, target = (
            np.frombuffer((ctypes.c_double * count).from_address(address))
            for address in (sendbuf, recvbuf)
        )
        begin(lambda: _network().Allreduce(source.copy(), target))


def _network():
    from mpi4py import MPI  # which is there once somebody has begun it

    if not _networks:
        _networks.append(MPI.COMM_WORLD.Dup())
    return _networks[0]
