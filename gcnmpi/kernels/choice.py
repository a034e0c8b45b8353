"""The kernel that a configuration names, made for a rank."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

from gcnmpi.kernels.interface.kernel import Kernel
from gcnmpi.mpi.comm import Comm, agreed, maximum, sees_devices
from gcnmpi.mpi.hosts import crowded_node, place_on_node, share_of_cores
from gcnmpi.options.config import Config
from gcnmpi.options.kernel import KERNELS, resolve


def make_kernel(comm: Comm, config: Config) -> tuple[Kernel, list[str], list[str]]:
    """The kernel of this rank, with its threads resolved; warnings about it, and the machine.

    Libraries that compute with threads are held to as many.
    """
    threads = config.threads or share_of_cores(comm)
    _, warning = resolve(config.kernel, int(maximum(comm, threads)))
    warnings = [] if warning is None else [warning]
    crowded = crowded_node(comm, threads)
    threadpool_limits(threads)
    machine = [] if crowded is None else [crowded]
    return kernel_of_rank(comm, config, threads), warnings, machine


def kernel_of_rank(comm: Comm, config: Config, threads: int) -> Kernel:
    """The kernel of this rank; ranks of a node that compute on devices get different ones.

    Raises
    ------
    UserError
        On all ranks, if one has no device, not the libraries, or can compile nothing with them.
    """
    most = int(maximum(comm, threads))  # the same kernel on all ranks
    with agreed(comm):
        make: type[Kernel] = KERNELS.get(resolve(config.kernel, most)[0])
    place, wanted = place_on_node(comm), config.comm.cuda_aware
    direct = sees_devices() if wanted == "auto" else wanted == "yes"
    with agreed(comm):
        return make.for_rank(np.dtype(config.dtype), threads, place, direct, config.gpu.spmm)
    raise AssertionError("an error of a rank is raised on all")
