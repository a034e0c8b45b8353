"""The 1D sparsity-aware scheme: only the rows that are needed, point to point.

Demirci, Haldar and Ferhatosmanoglu 2022, algorithms 1 and 2; Mukhodopadhyay et al. 2024,
algorithm 1. Rank r owns the rows of part r of M and of every dense matrix; weights are replicated.
``aggregate`` expands. ``aggregate_t`` expands too where M's pattern is symmetric, with the
values of Mᵀ, and folds where it is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from gcnmpi import loading
from gcnmpi.comm import Comm, agreed, redistribute, sum_in_place
from gcnmpi.config import Config
from gcnmpi.exchange import Exchange, addition_matrix
from gcnmpi.kernels import KERNELS
from gcnmpi.plan import Plan, halo_of, local_numbers, make_plan
from gcnmpi.schemes.interface import Block, Volume
from gcnmpi.timing import Phases, Traffic
from partition.errors import UserError
from partition.graph import normalised
from partition.store import Partition, StoredGraph


@dataclass(frozen=True)
class Halves:
    """A sparse matrix over local columns, cut at the end of the own ones (or rows, for a fold)."""

    own: Any
    halo: Any


def load(
    comm: Comm,
    stored: StoredGraph,
    partition: Partition | None,
    direction: str,
    config: Config,
    kernel: Any,
    phases: Phases,
    traffic: Traffic,
) -> P2P:
    """Bring every row of M to its owner and plan the exchange.

    Parameters
    ----------
    partition : Partition or None
        Without its part vector; None on one rank.
    direction : {"in", "out"}
        The direction of M.
    """
    graph, manifest = stored.graph, stored.manifest
    max_bytes = config.loading.max_buffer_mb * 2**20
    with agreed(comm):
        backward = _backward_exchange(config.scheme.backward, manifest.symmetric_pattern)
    parts = loading.load_parts(comm, stored, partition)
    own = loading.own_rows(parts, comm.rank)

    entries = loading.load_entries(comm, graph, parts, direction, max_bytes)
    halo = halo_of(own, entries.column, parts)
    (asked,), asked_counts = redistribute(comm, parts[halo], [halo], max_bytes)
    plan = make_plan(own, halo, parts, asked, asked_counts)

    weights = _local_matrix(plan, entries, config.graph.self_loops)
    degree = _degrees(comm, plan, weights, phases, traffic)
    with agreed(comm):
        forward = _normalise(weights, degree, config.graph.normalize)
        transposed = forward
        if backward == "expand" and config.graph.normalize == "row":
            # Mᵀ[i, j] = w_ji / d_j; symmetric weights have w_ji = w_ij.
            transposed = _normalise(weights, degree, "row", by_column=True)
    if backward == "expand" and not manifest.symmetric_values:
        other = "out" if direction == "in" else "in"
        entries = loading.load_entries(comm, graph, parts, other, max_bytes)
        weights = _local_matrix(plan, entries, config.graph.self_loops)
        transposed = _normalise(weights, degree, config.graph.normalize, by_column=True)

    nown = plan.nown
    forward_halves = _cut(kernel, forward, nown)
    if backward == "expand":
        same = transposed is forward
        backward_halves = forward_halves if same else _cut(kernel, transposed, nown)
    else:
        turned = sp.csr_array(forward.T)
        backward_halves = Halves(kernel.sparse(turned[:nown]), kernel.sparse(turned[nown:]))
    metrics = None if partition is None else partition.metrics[direction]
    return P2P(
        comm, plan, parts, kernel, forward_halves, backward_halves, metrics,
        folds=backward == "fold", max_bytes=max_bytes, phases=phases, traffic=traffic,
    )  # fmt: skip


class P2P:
    """The products of the 1D sparsity-aware scheme; see ``schemes.interface`` for their meaning.

    Buffers and persistent requests are made when a matrix is asked for with ``exchanged=True``
    and live as long as the scheme.
    """

    name = "p2p"

    def __init__(
        self,
        comm: Comm,
        plan: Plan,
        parts: np.ndarray,
        kernel: Any,
        forward: Halves,
        backward: Halves,
        metrics: Mapping[str, Any] | None,
        *,
        folds: bool,
        max_bytes: float,
        phases: Phases,
        traffic: Traffic,
    ) -> None:
        self.plan = plan
        self._comm, self._parts, self._kernel, self._max_bytes = comm, parts, kernel, max_bytes
        self._forward, self._backward, self._folds = forward, backward, folds
        self._add = kernel.sparse(addition_matrix(plan))
        self._metrics = metrics
        self._phases, self._traffic = phases, traffic
        self._exchanges: dict[int, Exchange] = {}
        self._scratch: dict[int, Exchange] = {}

    def describe(self) -> dict[str, Any]:
        """The exchange that the backward pass uses."""
        return {"name": self.name, "backward": "fold" if self._folds else "expand"}

    def block(self, k: int) -> Block:
        """Own rows, all columns, whatever the layer."""
        return Block(self.plan.own)

    def empty(self, k: int, width: int, exchanged: bool = False) -> Any:
        """Own rows; those to be exchanged are the head of an ``[own | halo]`` buffer."""
        if not exchanged:
            return self._kernel.empty(self.plan.nown, width)
        exchange = self._new_exchange(width)
        self._exchanges[id(exchange.own)] = exchange
        return exchange.own

    def release(self) -> None:
        """Free the exchanges made for matrices that are not the head of one."""
        self._scratch.clear()

    def aggregate(self, k: int, x: Any, out: Any) -> None:
        """Expand x; multiply the own block while the halo is on its way, then the halo block."""
        self._expand(self._forward, x, out)

    def aggregate_t(self, k: int, x: Any, out: Any) -> None:
        """Expand with Mᵀ, or fold."""
        if self._folds:
            self._fold(x, out)
        else:
            self._expand(self._backward, x, out)

    def combine(self, k: int, x: Any, weight: Any, out: Any) -> None:
        """Local."""
        with self._phases("gemm"):
            self._kernel.gemm(x, weight, out)

    def combine_t(self, k: int, x: Any, weight: Any, out: Any) -> None:
        """Local."""
        with self._phases("gemm"):
            self._kernel.gemm(x, weight, out, tb=True)

    def weight_grad(self, k: int, x: Any, grad: Any, out: Any) -> None:
        """Local; every global row is on one rank only."""
        with self._phases("gemm"):
            self._kernel.gemm(x, grad, out, ta=True)

    def column_sum(self, k: int, grad: Any, out: Any) -> None:
        """Local."""
        self._kernel.column_sum(grad, out)

    def reduce(self, contributions: np.ndarray) -> None:
        """One all-reduce."""
        size = self._comm.size
        with self._phases("reduce"):
            sum_in_place(self._comm, contributions)
        payload = 2 * (size - 1) * contributions.nbytes // size
        self._traffic.count(payload, int(size > 1), f"{self._traffic.purpose}_reduce")

    def row_max(self, x: Any) -> Any:
        """Local: rows are whole."""
        return self._kernel.row_max(x)

    def row_sum(self, x: Any) -> Any:
        """Rows are whole, so their sums are."""
        return x

    def row_pick(self, x: Any, columns: np.ndarray) -> Any:
        """Local."""
        return self._kernel.pick(x, columns)

    def row_argmax(self, x: Any) -> np.ndarray:
        """Local."""
        return self._kernel.to_host(self._kernel.row_argmax(x))

    def gather(self, x: Any) -> Any:
        """Own and halo rows, (nown + nhalo, width): what attention needs."""
        exchange = self._exchange_with(x)
        exchange.start_expand()
        exchange.finish_expand()
        return exchange.whole

    def gather_t(self, x: Any, out: Any) -> None:
        """The adjoint of ``gather``: out = own rows of x + what other ranks' halos add to them."""
        exchange = self._scratch_exchange(x.shape[1])
        self._kernel.copy(x, exchange.whole)
        exchange.start_fold()
        self._kernel.copy(exchange.own, out)
        exchange.finish_fold()
        with self._phases("spmm"):
            self._kernel.spmm(self._add, exchange.packed, out, accumulate=True)

    def shard(self, k: int, parameter: np.ndarray) -> np.ndarray:
        """Weights are replicated."""
        return parameter

    def unshard(self, k: int, piece: np.ndarray) -> np.ndarray:
        """Weights are replicated."""
        return piece

    def load_rows(self, array: np.ndarray) -> np.ndarray:
        """Own rows of an array on disk."""
        return loading.load_rows(self._comm, array, self._parts, self._max_bytes)

    def original_rows(self, rows: np.ndarray) -> np.ndarray:
        """This rank's contiguous 1/P of all rows, in the original order."""
        n = len(self._parts)
        return loading.original_rows(self._comm, self.plan.own, rows, n, self._max_bytes)

    def volume(self, product: str, k: int, width: int) -> Volume:
        """From the metrics recorded with the partition, not from the plan: rows × width × size."""
        if self._metrics is None or not product.startswith("aggregate"):
            return Volume(0, 0)
        side = "recv" if product == "aggregate_t" and self._folds else "send"
        rows = self._metrics[f"{side}_rows"][self._comm.rank]
        messages = self._metrics[f"{side}_messages"][self._comm.rank]
        return Volume(rows * width * self._kernel.dtype.itemsize, messages)

    def _expand(self, matrix: Halves, x: Any, out: Any) -> None:
        exchange = self._exchange_with(x)
        exchange.start_expand()
        with self._phases("spmm"):
            self._kernel.spmm(matrix.own, exchange.own, out)
        exchange.finish_expand()
        with self._phases("spmm"):
            self._kernel.spmm(matrix.halo, exchange.halo, out, accumulate=True)

    def _fold(self, x: Any, out: Any) -> None:
        exchange = self._exchanges.get(id(x)) or self._scratch_exchange(x.shape[1])
        with self._phases("spmm"):
            self._kernel.spmm(self._backward.halo, x, exchange.halo)
        exchange.start_fold()
        with self._phases("spmm"):
            self._kernel.spmm(self._backward.own, x, out)
        exchange.finish_fold()
        with self._phases("spmm"):
            self._kernel.spmm(self._add, exchange.packed, out, accumulate=True)

    def _exchange_with(self, x: Any) -> Exchange:
        """The exchange whose own rows are x, or a scratch one that x is copied to."""
        if id(x) in self._exchanges:
            return self._exchanges[id(x)]
        exchange = self._scratch_exchange(x.shape[1])
        self._kernel.copy(x, exchange.own)
        return exchange

    def _scratch_exchange(self, width: int) -> Exchange:
        if width not in self._scratch:
            self._scratch[width] = self._new_exchange(width)
        return self._scratch[width]

    def _new_exchange(self, width: int) -> Exchange:
        shared = [e.packed for e in (*self._exchanges.values(), *self._scratch.values())]
        packed = next((array for array in shared if array.shape[1] == width), None)
        return Exchange(
            self._comm, self.plan, self._kernel, width, self._traffic, self._phases, packed
        )


def _backward_exchange(wanted: str, symmetric: bool) -> str:
    if wanted == "expand" and not symmetric:
        raise UserError(
            "scheme.backward = 'expand' needs a symmetric pattern, and this graph is directed",
            "use scheme.backward = 'fold' or 'auto'",
        )
    return ("expand" if symmetric else "fold") if wanted == "auto" else wanted


def _local_matrix(plan: Plan, entries: loading.Entries, self_loops: bool) -> sp.csr_array:
    """The rank's rows of Ã with local column numbers, (nown, nown + nhalo) float64."""
    row = np.searchsorted(plan.own, entries.row)
    column = local_numbers(plan.own, plan.halo, entries.column)
    weight = entries.weight
    if self_loops:
        lonely = np.ones(plan.nown, dtype=bool)
        lonely[row[row == column]] = False
        missing = np.flatnonzero(lonely)
        row, column = np.append(row, missing), np.append(column, missing)
        weight = np.append(weight, np.ones(len(missing)))
    shape = (plan.nown, plan.nown + plan.nhalo)
    matrix = sp.coo_array((weight, (row, column)), shape=shape).tocsr()
    matrix.sort_indices()
    return matrix


def _degrees(
    comm: Comm, plan: Plan, weights: sp.csr_array, phases: Phases, traffic: Traffic
) -> np.ndarray:
    """Row sums of Ã for own and halo vertices, (nown + nhalo,) float64: one expand of width 1."""
    exchange = Exchange(comm, plan, KERNELS.get("scipy")(np.float64), 1, traffic, phases)
    exchange.own[:, 0] = weights.sum(axis=1)
    exchange.start_expand()
    exchange.finish_expand()
    return exchange.whole[:, 0]


def _normalise(
    weights: sp.csr_array, degree: np.ndarray, normalize: str, by_column: bool = False
) -> sp.csr_array:
    """Entries of M from those of Ã; ``by_column`` for weights that are rows of Ãᵀ."""
    of_row = np.repeat(degree[: weights.shape[0]], np.diff(weights.indptr))
    of_column = degree[weights.indices]
    if by_column:
        of_row, of_column = of_column, of_row
    values = normalised(weights.data, of_row, of_column, normalize)
    return sp.csr_array((values, weights.indices, weights.indptr), shape=weights.shape)


def _cut(kernel: Any, matrix: sp.csr_array, nown: int) -> Halves:
    return Halves(kernel.sparse(matrix[:, :nown]), kernel.sparse(matrix[:, nown:]))
