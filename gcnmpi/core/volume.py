"""The bytes and messages that ranks hand to MPI for one operation, each defined once.

A point-to-point message counts on both sides. For a collective the payload that must travel is
counted, whatever the library makes of it: m bytes that are broadcast arrive on every rank but the
root; of an all-gather or reduce-scatter of m bytes over g ranks (g − 1)/g·m arrive on each, of an
all-reduce twice that. All ranks together receive as much as they send.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Volume:
    """Bytes that one rank sends and receives, and messages that it sends, for one operation.

    ``shared``: bytes that it reads from the memory of others on its node. They are neither sent
    nor received, and the empty notes that order such reading are no messages.
    """

    sent: int = 0
    received: int = 0
    messages: int = 0
    shared: int = 0

    def __add__(self, other: Volume) -> Volume:
        return Volume(
            self.sent + other.sent,
            self.received + other.received,
            self.messages + other.messages,
            self.shared + other.shared,
        )

    def __mul__(self, times: int) -> Volume:
        return Volume(
            self.sent * times, self.received * times, self.messages * times, self.shared * times
        )


NOTHING = Volume()


@dataclass(frozen=True)
class Kept:
    """Rows of an expand that pass between ranks of one node without a message.

    Others, ``send_messages`` of them, read ``send_rows`` rows of a rank; it reads ``recv_rows``
    rows of ``recv_messages`` others.
    """

    send_rows: int = 0
    send_messages: int = 0
    recv_rows: int = 0
    recv_messages: int = 0

    def off(self, volume: Volume, message_bytes: int, row_bytes: int, back: bool) -> Volume:
        """The rest of a volume of messages; ``back``: of a fold, the way back.

        A row has so many bytes in a message, and in memory.
        """
        out, into = (self.send_rows, self.send_messages), (self.recv_rows, self.recv_messages)
        if back:
            out, into = into, out
        sent, received = out[0] * message_bytes, into[0] * message_bytes
        return volume + Volume(-sent, -received, -out[1], into[0] * row_bytes)


def broadcast(nbytes: int, size: int, root: bool) -> Volume:
    """``nbytes`` from one of ``size`` ranks to the others; nothing if there are none."""
    if not nbytes:
        return NOTHING
    return Volume(nbytes * (size - 1), 0, size - 1) if root else Volume(0, nbytes, 0)


def reduction(nbytes: int, size: int, root: bool) -> Volume:
    """The sum of ``nbytes`` of ``size`` ranks on one of them, the adjoint of a broadcast."""
    if not nbytes:
        return NOTHING
    return Volume(0, nbytes * (size - 1), 0) if root else Volume(nbytes, 0, 1)


def all_gather(own: int, total: int, size: int) -> Volume:
    """A rank's ``own`` bytes to all others; ``total`` bytes on every rank in the end."""
    return Volume(own * (size - 1), total - own, size - 1)


def reduce_scatter(own: int, total: int, size: int) -> Volume:
    """``total`` bytes on every rank, of which each keeps the sum of its ``own``."""
    return Volume(total - own, own * (size - 1), size - 1)


def all_reduce(nbytes: int, size: int) -> Volume:
    """The sum of ``nbytes`` on every rank: a reduce-scatter, then an all-gather."""
    payload = 2 * (size - 1) * nbytes // size
    return Volume(payload, payload, 2 * (size - 1))
