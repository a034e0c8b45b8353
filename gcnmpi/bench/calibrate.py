"""``gcnmpi calibrate``: measures the constants of :class:`~gcnmpi.planner.machine.Machine`.

All ranks measure their arithmetic at the same time, because ranks of a node share its memory; the
constants are means over ranks. Messages are timed between rank 0 and one rank of its own node, and
one of another; where there is none, the default stays, and the file says so.
"""

from __future__ import annotations

import dataclasses
import datetime
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from gcnmpi import __version__
from gcnmpi.bench.calibrate_batches import batch_constants
from gcnmpi.bench.rounds import fitted, median_seconds, only
from gcnmpi.core import rng
from gcnmpi.core.resident import resident_bytes
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.kernels.interface.kinds import KindProduct, kinds_of
from gcnmpi.mpi.comm import Comm, versions
from gcnmpi.mpi.hosts import host_names, most_ranks_a_node, ping_pong, share_of_cores
from gcnmpi.options.config import Config
from gcnmpi.planner.machine import Machine
from gcnmpi.run.opening import kernel_of_rank
from gcnmpi.schemes.forecast import Sparse

# Tiles that are multiplied, (rows, inner, entries): square, tall operand, many rows, denser; an
# operand of so many pages that finding them takes time, too.
_TILES = ((20_000, 20_000, 200_000), (20_000, 200_000, 200_000), (200_000, 20_000, 400_000),
         (10_000, 40_000, 400_000), (100, 100, 400), (20_000, 1_000_000, 400_000))  # fmt: skip
WIDTHS = (2, 8, 32, 96)
CACHES = tuple(2**power for power in range(18, 29))
REPEATS = 5
LONG, SHORT = 1 << 23, 8  # bytes of the messages that are timed


@dataclass(frozen=True)
class Sample:
    """A sparse product and its time in seconds."""

    work: Sparse
    seconds: float


def calibrate(comm: Comm, config: Config) -> tuple[Machine, dict[str, object]]:
    """Measure this machine, with the kernel, dtype and threads of a configuration; some seconds.

    Beside the machine: hosts, versions, date, and the names of the constants that were measured.
    """
    threads = config.threads or share_of_cores(comm)
    threadpool_limits(threads)
    kernel = kernel_of_rank(comm, config, threads)
    idle = resident_bytes()
    drawn = batch_constants(comm, config, kernel)
    constants = {
        **fit_sparse(_mean_samples(comm, _sparse_samples(kernel)), kernel.dtype.itemsize),
        **{name: _mean(comm, value) for name, value in _dense_constants(kernel).items()},
        "received_entry": _mean(comm, _received_entry(kernel)),
        "process_bytes": _mean(comm, idle),
        **{name: _mean(comm, value) for name, value in drawn.items()},
        # Beside a device, the host is free.
        "free_cores": _mean(comm, 1 if kernel.device else max(0, share_of_cores(comm) - threads)),
    }
    hosts = host_names(comm)
    near = next((rank for rank in range(1, comm.size) if hosts[rank] == hosts[0]), None)
    away = next((rank for rank in range(1, comm.size) if hosts[rank] != hosts[0]), None)
    for kind, peer in (("intra", near), ("inter", away)):
        if peer is not None:
            latency, bandwidth = _latency_and_bandwidth(comm, peer)
            constants |= {f"latency_{kind}": latency, f"bandwidth_{kind}": bandwidth}
    facts = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "hosts": sorted(set(hosts)),
        "ranks": comm.size,
        "ranks_per_node": most_ranks_a_node(comm),
        "kernel": kernel.name,
        "dtype": config.dtype,
        "threads": threads,
        "versions": {"gcnmpi": __version__, **versions()},
        "measured": sorted(constants),
    }
    return dataclasses.replace(Machine(), **constants), facts


def fit_sparse(samples: Sequence[Sample], itemsize: int) -> dict[str, float]:
    """The constants of ``Machine.sparse_seconds`` that fit the samples best.

    Least squares of the relative errors with constants ≥ 0, for each size of cache; the best of
    them.
    """
    names = ("product_call", "sparse_entry", "sparse_number", "sparse_miss", "sparse_row")
    times = np.array([sample.seconds for sample in samples])
    best: tuple[float, dict[str, float]] = (np.inf, {})
    for cache in CACHES:
        # Time is linear in the constants: a column is what one of them alone would give.
        alone = (Machine(**only(names, name), cache_bytes=cache) for name in names)
        columns = [[one.sparse_seconds(s.work, itemsize) for s in samples] for one in alone]
        constants, error = fitted(names, np.array(columns).T, times)
        if error < best[0]:
            best = (error, {**constants, "cache_bytes": float(cache)})
    return best[1]


def _latency_and_bandwidth(comm: Comm, peer: int) -> tuple[float, float]:
    """Latency in s and bandwidth in bytes/s between rank 0 and ``peer``, on every rank.

    Half the shortest round trip of a short message, and of a long one less that.
    """
    times = []
    for nbytes, rounds in ((SHORT, 200), (LONG, 10)):
        comm.Barrier()
        trips = ping_pong(comm, (0, peer), nbytes, rounds) if comm.rank in (0, peer) else []
        times.append(comm.bcast(min(trips, default=0.0) / 2))
    short, long = times
    return short, LONG / max(long - short, 1e-9)


def _sparse_samples(kernel: Kernel) -> list[Sample]:
    """Times of products with tiles of random entries, where no row is near the one before."""
    samples = []
    for rows, inner, entries in _TILES:
        random = np.random.default_rng(rows + inner)
        columns = random.integers(0, inner, entries)
        place = (np.sort(random.integers(0, rows, entries)), columns)
        matrix = sp.coo_array((np.ones(entries), place), shape=(rows, inner)).tocsr()
        sparse = kernel.sparse(matrix)
        for width in WIDTHS:
            x, out = _filled(kernel, inner, width), kernel.empty(rows, width)
            seconds = _seconds(kernel, partial(kernel.spmm, sparse, x, out))
            samples.append(Sample(Sparse(rows, inner, matrix.nnz, width), seconds))
    return samples


def _received_entry(kernel: Kernel) -> float:
    """A tile of random entries, out of arrays as they travel, per entry."""
    rows, inner, entries = _TILES[0]
    tile = sp.random_array((rows, inner), density=entries / (rows * inner), format="csr", rng=0)
    return _seconds(kernel, partial(kernel.sparse, sp.csr_array(tile))) / tile.nnz


def _dense_constants(kernel: Kernel) -> dict[str, float]:
    """Memory, dense products and dropout."""
    rows, width = 40_000, 64
    itemsize = kernel.dtype.itemsize
    x, out = _filled(kernel, rows, width), kernel.empty(rows, width)
    copy = _seconds(kernel, partial(kernel.copy, x, out)) / (2 * rows * width * itemsize)
    weight = _filled(kernel, width, width)
    product = _seconds(kernel, partial(kernel.gemm, x, weight, out))
    moved = (2 * rows * width + width * width) * itemsize * copy
    flops = 2 * rows * width * width
    # Half of the time at least is arithmetic, however the rest is hidden behind it.
    dense = max(product - moved, product / 2) / flops
    keys = rng.row_keys(0, 1, 1, np.arange(rows)), rng.column_keys(np.arange(width))
    dropped = _seconds(kernel, partial(kernel.dropout, x, *keys, 0.5, out)) / (rows * width)
    constants = {"copy_byte": copy, "dense_flop": dense, "dropout_number": dropped}
    return constants | _kind_constants(kernel)


def _kind_constants(kernel: Kernel) -> dict[str, float]:
    """Products of rows with the weight of each one's kind, which are in no order."""
    rows, width, inners = 100_000, 64, (64, 128)
    kinds = kinds_of(np.random.default_rng(0).integers(0, 8, rows), 8, kernel.resident)
    out, seconds = kernel.empty(rows, width), []
    for inner in inners:
        x, weights = _filled(kernel, rows, inner), _filled(kernel, 8 * inner, width)
        product = KindProduct(kinds, x, weights, out, 1)
        seconds.append(_seconds(kernel, partial(kernel.multiply_kinds, product)) / rows)
    narrow, wide = seconds
    a_flop = max(0.0, wide - narrow) / (2 * width * (inners[1] - inners[0]))
    a_row = max(0.0, narrow - 2 * width * inners[0] * a_flop)
    return {"kind_row": a_row, "kind_flop": a_flop}


def _filled(kernel: Kernel, rows: int, width: int) -> Array:
    array = kernel.empty(rows, width)
    array.fill(1)
    return array


def _seconds(kernel: Kernel, call: Callable[[], object]) -> float:
    """Time of a call until the kernel has finished."""

    def finished() -> None:
        call()
        kernel.finish()

    return median_seconds(finished, REPEATS)


def _mean(comm: Comm, value: float) -> float:
    return statistics.fmean(comm.allgather(value))


def _mean_samples(comm: Comm, samples: list[Sample]) -> list[Sample]:
    """The same samples with the mean time over ranks, so that all ranks fit the same constants."""
    every = np.array(comm.allgather([sample.seconds for sample in samples]))
    times = every.mean(axis=0).tolist()
    return [Sample(sample.work, seconds) for sample, seconds in zip(samples, times, strict=True)]
