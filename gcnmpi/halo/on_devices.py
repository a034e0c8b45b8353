"""The transport of NCCL: rows go from device to device, and the host waits for none of them.

Sends and receives of an exchange are one group, on a stream of their own: it begins when what is
sent is packed, and goes on while the device multiplies the own block.
"""

from __future__ import annotations

import os

from gcnmpi.core.arrays import PointToPoint
from gcnmpi.halo.messages import Mover
from gcnmpi.halo.plan import Plan
from gcnmpi.halo.transports import OneWay, Route, Rows, messages
from gcnmpi.kernels.interface.kernel import Kernel
from gcnmpi.mpi.comm import Comm, agreed, host_name
from gcnmpi.mpi.reduction import joined, no_network
from partition.errors import UserError


class _OnDevices(Mover):
    """Arrays are their own messages, which devices send in turn with other work: nobody waits."""

    def __init__(self) -> None:
        self.later = False
        self.message = lambda array: array
        self.to_message = self.from_message = lambda source, target: None
        self.before_sending = self.before_receiving = lambda: None


class Nccl(OneWay):
    """Messages of NCCL between ranks that have a device each."""

    required = True

    def __init__(self, comm: Comm, plan: Plan, kernel: Kernel) -> None:
        super().__init__(comm, plan, kernel)
        self.mover = _OnDevices()
        self._joined = _joined(comm, kernel) if comm.size > 1 else None

    @classmethod
    def check(cls, comm: Comm, kernel: Kernel) -> None:
        """Each rank has a device of its own, and CuPy finds NCCL."""
        obstacle = no_network(comm, kernel)
        with agreed(comm):
            if obstacle is not None:
                hint = f"{obstacle.hint}, or take another scheme.transport"
                raise UserError(f"scheme.transport is 'nccl', and {obstacle.message}", hint)

    def route(self, source: Rows, target: Rows) -> Route:
        """A group of sends and receives."""
        return _GroupRoute(self._joined, source, target)


class _GroupRoute:
    def __init__(self, joined: PointToPoint | None, source: Rows, target: Rows) -> None:
        self.moved = messages(source, target)
        self._joined = joined
        self._outgoing, self._incoming = list(source.blocks()), list(target.blocks())

    def receive(self) -> None:
        """Sending and receiving begin together."""

    def send(self) -> None:
        if self._joined is not None and (self._outgoing or self._incoming):
            self._joined.start(self._outgoing, self._incoming)

    def wait(self) -> None:
        """The device waits, not the host."""
        if self._joined is not None and (self._outgoing or self._incoming):
            self._joined.wait()


# By the processes that they bring together: schemes make a transport for each of their products,
# and mini-batches one for each batch, while a communicator of NCCL takes memory on every device.
_communicators: dict[tuple[tuple[str, int], ...], PointToPoint] = {}


def _joined(comm: Comm, kernel: Kernel) -> PointToPoint:
    members = tuple(comm.allgather((host_name(), os.getpid())))
    if members not in _communicators:
        made = joined(comm, kernel, lambda network: network.PointToPoint)
        _communicators[members] = made
    return _communicators[members]
