"""What a rank computes and communicates with, and where M comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from gcnmpi.core.timing import Phases, Traffic
from gcnmpi.mpi.comm import Comm
from partition.graph.store import Partition, StoredGraph

Array: TypeAlias = Any
"""A dense matrix of the kernel, on the host or a device."""
Kernel: TypeAlias = Any
"""The local arithmetic: see ``gcnmpi.kernels``."""


@dataclass(frozen=True)
class Runtime:
    """What everything on a rank computes and communicates with.

    With another communicator in ``comm``, it is the runtime of a group of ranks.
    """

    comm: Comm
    kernel: Kernel
    phases: Phases
    traffic: Traffic


@dataclass(frozen=True)
class Source:
    """Where M comes from.

    Attributes
    ----------
    stored : StoredGraph
    partition : Partition or None
        Without its part vector.
    direction : {"in", "out"}
        The direction of M.
    """

    stored: StoredGraph
    partition: Partition | None
    direction: str
