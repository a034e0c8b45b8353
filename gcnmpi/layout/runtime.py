"""What a rank computes and communicates with, and where M comes from."""

from __future__ import annotations

from dataclasses import dataclass

from gcnmpi.core.timing import Phases, Traffic
from gcnmpi.kernels.interface import Kernel
from gcnmpi.mpi.comm import Comm
from partition.graph.store import Partition, StoredGraph


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
