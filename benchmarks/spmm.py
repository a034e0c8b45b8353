"""The product M·X of every kernel, with bounds from memory bandwidth.

    python benchmarks/spmm.py G.graph --set threads=4
    python benchmarks/spmm.py --rmat 18x12 --kernels native,scipy --widths 16,64

A share is a lower bound of the time divided by the measured time. The bounds are the bytes of the
product divided by the measured bandwidth. The bytes are counted in three ways: each row of X once
(compulsory), again after the cache has replaced it (cached), or for every entry of M (gathered). A
share above 1 means that fewer bytes were moved than counted. With the native kernel there is a
measured bound too: the time of reading the rows of X in the order of the product, plus the time of
the other bytes at the bandwidth.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from measuring import (
    OnRecord,
    axpy,
    cache_share,
    config_of,
    describe,
    measured,
    names,
    numbers,
    words_of,
)
from movement import beside_gathers, movement
from threadpoolctl import threadpool_limits

from gcnmpi.bench.rounds import alternate, clocked, ratios, spread
from gcnmpi.kernels.interface.kernel import Array, Kernel, Sparse
from gcnmpi.layout.runtime import resolved_direction
from gcnmpi.mpi.comm import Comm, agreed
from gcnmpi.mpi.hosts import share_of_cores
from gcnmpi.options.config import Config
from gcnmpi.options.kernel import AUTO, KERNELS, must_be_best
from partition.commands import parse_bytes
from partition.errors import UserError
from partition.graph.aggregation import aggregation_matrix
from partition.graph.store import open_graph
from partition.importing.synthetic import rmat

BANDWIDTH = "axpy"  # names among the kernels
GATHERS = {"gather": False, "gather ahead": True}  # with prefetches
if TYPE_CHECKING:
    from gcnmpi.kernels.native.kernel import NativeKernel, SparseMatrix

Record = dict[str, object]


def bench_spmm(
    comm: Comm,
    graph: str | os.PathLike | None,
    made: str | None,
    config: Config,
    *,
    kernels: Sequence[str],
    widths: Sequence[int],
    reference: str,
    rounds: int,
    cache_bytes: float | None = None,
    on_record: OnRecord,
) -> None:
    """Time M·X of every kernel, alternating in one process; ratios are over the reference.

    The graph is that of a folder, or an R-MAT graph that is ``made``, ``"SCALExDEGREE"``: 2**SCALE
    vertices, DEGREE arcs each. The threads share so many bytes of cache as are given, or as the
    system says. ``on_record(event, **values)`` is called for "machine" once, for "spmm" with each
    width and kernel.
    """
    with agreed(comm):
        if comm.size > 1:
            raise UserError(
                "products are measured in one process", "start it without mpirun, with threads=T"
            )
        name, matrix = _matrix(graph, made, config)
        if reference not in kernels:
            raise UserError(f"the reference {reference!r} is not among {', '.join(kernels)}")
        threads = config.threads or share_of_cores(comm)
        dtype = np.dtype(config.dtype)
        entrants = {name: KERNELS.get(name)(dtype, threads) for name in kernels}
    if cache_bytes is None:
        cache_bytes = cache_share(threads)
    on_record("machine", **describe(comm, threads), cache_bytes=cache_bytes)
    touch, moved = axpy(cache_bytes)
    held = {name: kernel.sparse(matrix) for name, kernel in entrants.items()}
    with threadpool_limits(threads):
        for width in widths:
            x = np.random.default_rng(width).standard_normal((matrix.shape[1], width), np.float32)
            products = {
                kernel: Product(entrants[kernel], held[kernel], x, matrix.shape[0])
                for kernel in kernels
            }
            probes = _gathers(entrants.get("native"), held.get("native"), x)
            others: dict[str, Callable[[], object]] = {BANDWIDTH: touch, **probes}
            times = alternate(
                {name: clocked(comm, call) for name, call in (others | products).items()}, rounds
            )
            bandwidth = moved / spread(times.pop(BANDWIDTH)).median
            gathering = min((spread(times.pop(name)).median for name in probes), default=None)
            bytes_ = asdict(movement(matrix, width, dtype.itemsize, cache_bytes))
            missed = bytes_.pop("missed")
            bounds = {count: b / bandwidth for count, b in bytes_.items()}
            if gathering is not None:
                rest = beside_gathers(matrix, width, dtype.itemsize)
                bounds["measured"] = gathering + rest / bandwidth
            right = products[reference].result()
            for kernel, ratio in ratios(times, reference).items():
                seconds = spread(times[kernel])
                on_record(
                    "spmm", graph=name, rows=matrix.shape[0], entries=matrix.nnz, width=width,
                    kernel=kernel, reference=reference, dtype=dtype.name, threads=threads,
                    rounds=rounds, seconds=asdict(seconds), ratio=asdict(ratio),
                    gflops=2 * matrix.nnz * width / seconds.median / 1e9,
                    bytes=bytes_, missed=missed, bandwidth=bandwidth,
                    bounds=bounds, share={c: b / seconds.median for c, b in bounds.items()},
                    difference=_difference(products[kernel].result(), right),
                )  # fmt: skip


class Product:
    """M·X by one kernel, again and again."""

    def __init__(self, kernel: Kernel, matrix: Sparse, x: np.ndarray, rows: int) -> None:
        self._kernel, self._matrix = kernel, matrix
        self._x, self._out = _copy(kernel, x), kernel.empty(rows, x.shape[1])

    def __call__(self) -> None:
        self._kernel.spmm(self._matrix, self._x, self._out)
        # A kernel that computes elsewhere has finished once a row of the result is here.
        self._kernel.to_host(self._out[:1])

    def result(self) -> np.ndarray:
        """The product that was made last."""
        return self._kernel.to_host(self._out)


def _copy(kernel: Kernel, x: np.ndarray) -> Array:
    """Where the kernel would have it: for one, so that rows begin with a cache line."""
    copy = kernel.empty(*x.shape)
    kernel.copy(kernel.from_host(x), copy)
    return copy


def _gathers(
    kernel: NativeKernel | None, matrix: SparseMatrix | None, x: np.ndarray
) -> dict[str, Callable[[], object]]:
    """Calls that read the rows which a product gathers, where the native kernel takes part."""
    if kernel is None or matrix is None:
        return {}
    held = kernel.empty(*x.shape)
    kernel.copy(kernel.from_host(x), held)
    return {
        name: partial(kernel.gather, matrix, held, prefetch) for name, prefetch in GATHERS.items()
    }


def _matrix(
    graph: str | os.PathLike | None, made: str | None, config: Config
) -> tuple[str, sp.csr_array]:
    """Name and M of a graph folder, or of an R-MAT graph."""
    if (graph is None) == (made is None):
        raise UserError("give one graph: a folder, or --rmat SCALExDEGREE")
    if graph is not None:
        stored = open_graph(Path(graph))
        name, source, direction = (
            stored.manifest.name, stored.graph, resolved_direction(stored, config)
        )  # fmt: skip
    else:
        name, source = f"rmat-{made}", rmat(*_rmat_size(str(made)))
        direction = "in" if config.graph.direction == "auto" else config.graph.direction
    return name, aggregation_matrix(
        source, direction, config.graph.self_loops, config.graph.normalize
    )


def _rmat_size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,2})x(\d{1,6})", text)
    if not match:
        raise UserError(f"--rmat {text!r} is not SCALExDEGREE", "such as 18x12")
    scale, degree = int(match[1]), int(match[2])
    return scale, degree << scale


def _difference(result: np.ndarray, right: np.ndarray) -> float:
    """The largest difference, relative to the largest number."""
    largest = np.abs(right).max(initial=0)
    return float(np.abs(result - right).max(initial=0) / largest) if largest else 0.0


def main() -> None:
    def add(parser):
        parser.add_argument("graph", nargs="?")
        parser.add_argument("--rmat", help="an R-MAT graph, SCALExDEGREE")
        parser.add_argument("--kernels", type=names, help="only these; default: all that work")
        parser.add_argument("--widths", type=numbers, default=[8, 16, 32, 64, 128])
        parser.add_argument("--reference", help="ratios are to this kernel; default: the last")
        parser.add_argument("--cache", help="cache of all threads, such as 32MiB")

    words = words_of(__doc__, add)

    def measure(comm: Comm, on_record: OnRecord) -> None:
        with agreed(comm):
            must_be_best(AUTO)
            kernels = words.kernels or [n for n, why in KERNELS.available().items() if why is None]
            config = config_of(words, f"kernel={kernels[0]}")
            cache_bytes = words.cache and parse_bytes(words.cache, "--cache")
        bench_spmm(
            comm, words.graph, words.rmat, config, kernels=kernels, widths=words.widths,
            reference=words.reference or kernels[-1], rounds=words.rounds,
            cache_bytes=cache_bytes, on_record=on_record,
        )  # fmt: skip

    measured(words, measure)


if __name__ == "__main__":
    main()
