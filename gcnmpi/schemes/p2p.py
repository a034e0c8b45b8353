"""The 1D sparsity-aware scheme: only the rows that are needed, point to point.

Demirci, Haldar and Ferhatosmanoglu 2022, algorithms 1 and 2; Mukhodopadhyay et al. 2024,
algorithm 1. Rank r owns the rows of part r of M and of every dense matrix; weights are replicated.
``aggregate`` expands. ``aggregate_t`` expands too where M's pattern is symmetric, with the
values of Mᵀ, and folds where it is not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.config import Config, SchemeConfig
from gcnmpi.core.timing import Phases, Traffic
from gcnmpi.core.volume import NOTHING, Kept, Volume
from gcnmpi.halo.exchange import Exchange
from gcnmpi.halo.plan import STEP, Plan, halo_of, local_numbers, make_plan
from gcnmpi.halo.product import HaloProduct
from gcnmpi.halo.rows import ExchangedHalo
from gcnmpi.halo.transports import Persistent
from gcnmpi.kernels import KERNELS
from gcnmpi.kernels.epilogues import Epilogue
from gcnmpi.layout import loading
from gcnmpi.layout.place import Block, Place
from gcnmpi.mpi.comm import Comm, agreed, redistribute
from gcnmpi.schemes import ROW_ORDERS
from gcnmpi.schemes.interface import Demand, Entry, Runtime, Source
from gcnmpi.schemes.outline import (
    EXCHANGES,
    Dense,
    Facts,
    Span,
    Sparse,
    alone,
    backward_exchange,
    make_facts,
    whole_row_work,
)
from gcnmpi.schemes.whole_rows import WholeRows
from partition.graph.graph import chunks, normalised, row_sums


def load(
    runtime: Runtime,
    source: Source,
    config: Config,
    demand: Demand,
) -> P2P:
    """Bring every row of M to its owner and plan the exchange.

    Without a partition on one rank.
    """
    comm, kernel, phases, traffic = runtime.comm, runtime.kernel, runtime.phases, runtime.traffic
    stored, partition, direction = source.stored, source.partition, source.direction
    graph, manifest = stored.graph, stored.manifest
    max_bytes = config.loading.max_buffer_mb * 2**20
    with agreed(comm):
        backward = backward_exchange(config.scheme.backward, manifest.symmetric_pattern)
    parts = loading.load_parts(comm, stored, partition)

    entries = loading.load_entries(comm, graph, parts, direction, max_bytes)
    own = loading.own_rows(parts, comm.rank)
    if config.loading.order != "none":
        own = _ordered(own, entries, parts[entries.column] == comm.rank, config.loading.order)
    halo = halo_of(own, entries.column, parts)
    owners = parts[halo]
    (asked,), asked_counts = redistribute(comm, owners, [halo], max_bytes)
    plan = make_plan(own, halo, owners, asked, asked_counts)

    weights = _local_matrix(plan, entries, config.graph.self_loops, graph.weights is not None)
    del entries
    degree = _degrees(comm, plan, weights, phases, traffic)
    normalize, dtype = config.graph.normalize, config.dtype
    with agreed(comm):
        forward = _normalise(weights, degree, normalize, dtype)
        transposed = forward
        if backward == "expand" and normalize == "row":
            # Mᵀ[i, j] = w_ji / d_j; symmetric weights have w_ji = w_ij.
            transposed = _normalise(weights, degree, normalize, dtype, by_column=True)
    if backward == "expand" and not manifest.symmetric_values:
        other = "out" if direction == "in" else "in"
        entries = loading.load_entries(comm, graph, parts, other, max_bytes)
        weights = _local_matrix(plan, entries, config.graph.self_loops, graph.weights is not None)
        del entries
        transposed = _normalise(weights, degree, normalize, dtype, by_column=True)
    del weights

    transposed = transposed if backward == "expand" else None
    pattern = forward
    if not demand.products:
        forward = transposed = None
    products = HaloProduct(comm, plan, kernel, forward, transposed, config.scheme, phases, traffic)
    facts = make_facts(source, config, demand.depth)
    outline = P2POutline(comm.size, facts, {comm.rank: products.kept})
    scheme = P2P(
        comm, plan, parts, kernel, products, outline,
        max_bytes=max_bytes, phases=phases, traffic=traffic,
    )  # fmt: skip
    if demand.rows:
        ids = np.concatenate((plan.own, plan.halo))
        scheme.halo = ExchangedHalo(products, kernel, pattern, ids, phases)
    return scheme


def parts_needed(config: SchemeConfig, size: int) -> int:
    """One part a rank."""
    return size


def variants(config: SchemeConfig, size: int) -> list[SchemeConfig]:
    """One: there is nothing to choose."""
    return [dataclasses.replace(config, name="p2p")]


@dataclass(frozen=True)
class P2POutline:
    """The scheme on paper: everything follows from the partition's metrics.

    Attributes
    ----------
    kept : mapping of int to Kept
        Ranks for which it is known that some rows need no message.
    """

    size: int
    facts: Facts
    kept: Mapping[int, Kept] = field(default_factory=dict)
    orders = ("combine", "aggregate")
    whole_rows = True
    own_buffers = True

    def layout_of(self, place: Place) -> Hashable:
        """One for all."""
        return None

    def ranks(self) -> Sequence[int]:
        """Those with most rows, entries, rows to send or rows to receive."""
        names = ("rows", "nnz", "send_rows", "recv_rows")
        return sorted({int(np.argmax(self._metrics[name])) for name in names})

    def volume(self, rank: int, product: str, k: int, *sizes: int) -> Volume:
        """Rows × width × size of a number."""
        if product not in EXCHANGES or self.facts.metrics is None:
            return NOTHING
        out, into = "send", "recv"
        back = product == "fold" or (product == "aggregate_t" and self.facts.folds)
        if back:
            out, into = into, out
        row_bytes = sizes[0] * self.facts.itemsize
        volume = Volume(
            self._metrics[f"{out}_rows"][rank] * row_bytes,
            self._metrics[f"{into}_rows"][rank] * row_bytes,
            self._metrics[f"{out}_messages"][rank],
        )
        return self.kept.get(rank, Kept()).off(volume, row_bytes, back)

    def span(self, product: str, k: int) -> Sequence[Span]:
        """All ranks, each with any other."""
        return [Span(self.size, 1, all_pairs=True)] if product in EXCHANGES else []

    def work(self, rank: int, product: str, k: int, *sizes: int) -> Sequence[Sparse | Dense]:
        """Own rows of M, own rows of dense matrices."""
        rows, halo = self._metrics["rows"][rank], self._metrics["recv_rows"][rank]
        entries = self._metrics["nnz"][rank]
        if product in EXCHANGES:
            return [Sparse(rows, rows + halo, entries, sizes[0])]
        return whole_row_work(rows, product, *sizes)

    def shape(self, rank: int, place: Place, width: int) -> tuple[int, int]:
        """Own rows."""
        return self._metrics["rows"][rank], width

    def entries(self, rank: int) -> int:
        """Own rows of M, and of Mᵀ or the transpose of those of M."""
        return self._metrics["nnz"][rank] * (1 if self.facts.symmetric else 2)

    def buffers(self, rank: int, product: str, k: int, *sizes: int) -> int:
        """Halo and packed rows."""
        if product not in EXCHANGES:
            return 0
        rows = self._metrics["recv_rows"][rank] + self._metrics["send_rows"][rank]
        return rows * sizes[0] * self.facts.itemsize

    def reduction_scratch(self, rank: int, product: str, k: int, *sizes: int) -> int:
        """Sums over ranks are those of rows that were exchanged."""
        return 0

    def weight_numbers(self, rank: int, k: int, d_in: int, d_out: int) -> int:
        """Weights are whole."""
        return d_in * d_out

    @property
    def _metrics(self) -> Mapping[str, Any]:
        return self.facts.metrics or alone(self.facts)


ENTRY = Entry(
    load,
    parts_needed,
    variants,
    lambda config, size, facts: P2POutline(size, facts),
    gives_rows=True,
)


class P2P(WholeRows):
    """The products of the 1D sparsity-aware scheme; see ``schemes.interface`` for their meaning."""

    name = "p2p"

    def __init__(
        self,
        comm: Comm,
        plan: Plan,
        parts: np.ndarray,
        kernel: Any,
        products: HaloProduct,
        outline: P2POutline,
        *,
        max_bytes: float,
        phases: Phases,
        traffic: Traffic,
    ) -> None:
        super().__init__(comm, kernel, phases, traffic)
        self.plan = plan
        self._parts, self._max_bytes = parts, max_bytes
        self._products, self._outline = products, outline

    def describe(self) -> dict[str, Any]:
        """The exchange that the backward pass uses."""
        return {"name": self.name, "backward": "fold" if self._outline.facts.folds else "expand"}

    def block(self, place: Place, width: int) -> Block:
        """Own rows, all columns, whatever the layer."""
        return Block(self.plan.own, slice(0, width))

    def empty(self, place: Place, width: int, exchanged: bool = False) -> Any:
        """Own rows; those to be exchanged are the head of an ``[own | halo]`` buffer."""
        if exchanged:
            return self._products.empty(width)
        return self._kernel.empty(self.plan.nown, width)

    def release(self) -> None:
        """Free the exchanges made for matrices that are not the head of one."""
        self._products.release()

    def aggregate(self, k: int, x: Any, out: Any, then: Epilogue | None = None) -> None:
        """Expand x; multiply the own block while the halo is on its way, then the halo block."""
        self._products.multiply(x, out, then)

    def aggregate_t(self, k: int, x: Any, out: Any, then: Epilogue | None = None) -> None:
        """Expand with Mᵀ, or fold."""
        self._products.multiply_t(x, out, then)

    def load(self, place: Place, array: Any) -> np.ndarray:
        """Own rows of an array on disk."""
        return loading.load_rows(self._comm, array, self._parts, self.plan.own, self._max_bytes)

    def original(self, place: Place, piece: np.ndarray, width: int) -> np.ndarray:
        """This rank's contiguous 1/P of all rows, in the original order."""
        n = len(self._parts)
        return loading.original_rows(self._comm, self.plan.own, piece, n, self._max_bytes)

    def volume(self, product: str, k: int, *sizes: int) -> Volume:
        """From the metrics recorded with the partition, not from the plan."""
        return self._outline.volume(self._comm.rank, product, k, *sizes)


def _ordered(
    own: np.ndarray, entries: loading.Entries, inside: np.ndarray, order: str
) -> np.ndarray:
    """Own rows in the order that ``loading.order`` asks for; ``inside``: entries of own columns."""
    pair = (ids[inside] for ids in (entries.row, entries.column))
    first = ROW_ORDERS.get(order)(*(local_numbers(own, own[:0], ids) for ids in pair), len(own))
    return own if first is None else own[first]


def _local_matrix(
    plan: Plan, entries: loading.Entries, self_loops: bool, weighted: bool
) -> sp.csr_array:
    """The rank's rows of Ã with local column numbers, (nown, nown + nhalo); 1 byte for each 1."""
    row = local_numbers(plan.own, plan.own[:0], entries.row)
    column = local_numbers(plan.own, plan.halo, entries.column)
    if self_loops:
        lonely = np.ones(plan.nown, dtype=bool)
        lonely[row[row == column]] = False
        missing = np.flatnonzero(lonely).astype(row.dtype)
        row, column = np.append(row, missing), np.append(column, missing)
    weight = np.ones(len(row), np.float64 if weighted else np.int8)
    if weighted:
        weight[: len(entries.weight)] = entries.weight
    shape = (plan.nown, plan.nown + plan.nhalo)
    matrix = sp.coo_array((weight, (row, column)), shape=shape).tocsr()
    matrix.sort_indices()
    return matrix


def _degrees(
    comm: Comm, plan: Plan, weights: sp.csr_array, phases: Phases, traffic: Traffic
) -> np.ndarray:
    """Row sums of Ã for own and halo vertices, (nown + nhalo,) float64: one expand of width 1."""
    transport = Persistent(comm, plan, KERNELS.get("scipy")(np.float64))
    exchange = Exchange(transport, 1, traffic, phases)
    starts, weighted = weights.indptr, weights.dtype.kind == "f"
    for first, last in chunks(starts, STEP):
        rows = np.repeat(np.arange(last - first), np.diff(starts[first : last + 1]))
        values = weights.data[starts[first] : starts[last]] if weighted else None
        exchange.own[first:last, 0] = row_sums(rows, values, last - first)
    exchange.start_expand()
    exchange.finish_expand()
    return exchange.whole[:, 0]


def _normalise(
    weights: sp.csr_array, degree: np.ndarray, normalize: str, dtype: str, by_column: bool = False
) -> sp.csr_array:
    """Entries of M from those of Ã; ``by_column`` for weights that are rows of Ãᵀ."""
    values, starts = np.empty(weights.nnz, dtype), weights.indptr
    for first, last in chunks(starts, STEP):
        piece = slice(starts[first], starts[last])
        of_row = np.repeat(degree[first:last], np.diff(starts[first : last + 1]))
        of_column = degree[weights.indices[piece]]
        if by_column:
            of_row, of_column = of_column, of_row
        values[piece] = normalised(weights.data[piece], of_row, of_column, normalize)
    return sp.csr_array((values, weights.indices, starts), shape=weights.shape)
