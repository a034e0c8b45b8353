"""The 1D sparsity-aware scheme: only the rows that are needed, point to point.

Demirci, Haldar and Ferhatosmanoglu 2022, algorithms 1 and 2; Mukhodopadhyay et al. 2024,
algorithm 1. Rank r owns the rows of part r of M and of every dense matrix; weights are replicated.
``aggregate`` expands. ``aggregate_t`` expands too where M's pattern is symmetric, with the
values of Mᵀ, and folds where it is not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.volume import NOTHING, Kept, Volume
from gcnmpi.halo.exchange import Exchange, agree_on_plan
from gcnmpi.halo.mixed import mixed
from gcnmpi.halo.plan import Plan
from gcnmpi.halo.product import HaloProduct
from gcnmpi.halo.rows import ExchangedHalo
from gcnmpi.halo.transports import Persistent
from gcnmpi.kernels.scaled import ScaledPattern, scales
from gcnmpi.layout.entries import Groups, load_entry_rows
from gcnmpi.layout.loading import OwnRows, load_parts
from gcnmpi.layout.place import Place, Space
from gcnmpi.layout.placing import Arriving, PlacedRows, placed, survey
from gcnmpi.layout.row_order import chosen_order
from gcnmpi.layout.runtime import Demand, Runtime, Source
from gcnmpi.mpi.comm import Comm, agreed
from gcnmpi.options.config import Config
from gcnmpi.options.kernel import KERNELS, SCALES
from gcnmpi.options.scheme import ROW_ORDERS, ExchangeOptions
from gcnmpi.schemes.forecast import (
    Dense,
    Facts,
    Forecast,
    Span,
    Sparse,
    exchange_volume,
    make_facts,
    mixed_ones,
    whole_row_work,
)
from gcnmpi.schemes.interface import Entry
from gcnmpi.schemes.operations import EXCHANGES, Operation
from gcnmpi.schemes.row_scheme import Laid, RowScheme
from partition.graph.aggregation import entry_values, summed
from partition.graph.graph import index_dtype

NO_PACKINGS: Sequence[sp.csr_array | None] = (None, None)  # rows are sent as they are


def lay_out(runtime: Runtime, source: Source, config: Config, demand: Demand) -> Laid:
    """Bring every row of M to its owner and plan the exchange of the rows that are needed.

    Without a partition on one rank. Where nobody multiplies with M, it is a pattern without numbers
    for both directions, in which the entries of a row come by the ids of their columns.
    """
    comm, stored, direction = runtime.comm, source.stored, source.direction
    manifest, loading = stored.manifest, config.loading
    with agreed(comm):
        facts = make_facts(source, config, demand)
    parts = load_parts(comm, stored, source.partition)
    arriving = Arriving.to_owners(comm, source, parts, loading.max_bytes)
    rows = survey(arriving, parts, config.graph.self_loops)
    threads = runtime.kernel.threads

    def in_order(
        first: np.ndarray | None, direction: str = direction, by_id: bool = False
    ) -> PlacedRows:
        return placed(arriving, rows, first, direction, threads, by_id)

    forward: sp.csr_array | ScaledPattern
    first = None
    if loading.order != "none":
        block = rows.block(demand.visits(config.train.epochs), manifest.symmetric_pattern)

        def entries_of_block() -> tuple[np.ndarray, np.ndarray]:
            found = in_order(None)
            return found.starts, found.columns

        order = ROW_ORDERS.get(loading.order)
        first = chosen_order(comm, order, block, entries_of_block)
    own = rows.own if first is None else rows.own[first]
    plan = agree_on_plan(comm, own, rows.halo, parts[rows.halo], loading.max_bytes)
    entries = in_order(first, by_id=demand.only_visits)
    if demand.only_visits:
        forward = _scaled(entries, plan, None, None)
        facts = _measured(comm, facts, plan, forward) if stored.pairs is not None else facts
        return Laid(facts, OwnRows(parts, plan.own), plan, forward, None, np.empty(0))
    degree = _degrees(runtime, plan, entries)
    backward: sp.csr_array | ScaledPattern | None = None
    if facts.scaled is not None and runtime.kernel.name in SCALES:
        ends = scales(degree, config.graph.normalize)
        forward = _scaled(entries, plan, *ends)
        if not facts.folds and not facts.one_tile:
            backward = _scaled(entries, plan, *reversed(ends))
    else:
        again = manifest.symmetric_values and not facts.folds and not facts.one_tile
        with agreed(comm):
            forward = _valued(entries, plan, degree, config, keep=again)
        if not facts.folds and not facts.one_tile:
            if not manifest.symmetric_values:
                del entries  # whose weights are not to stay meanwhile
                entries = in_order(first, "out" if direction == "in" else "in")
            backward = _valued(entries, plan, degree, config, transposed=True)
    if facts.one_tile and not facts.folds:
        backward = forward
    if stored.pairs is not None:
        facts = _measured(comm, facts, plan, forward)
    return Laid(facts, OwnRows(parts, plan.own), plan, forward, backward, degree)


def mix(
    comm: Comm, laid: Laid, rows: np.ndarray, max_bytes: float
) -> tuple[Laid, Sequence[sp.csr_array | None]]:
    """The same with the mixed exchange in place of that of rows; and the packing of each matrix.

    Of ``forward`` first, of ``backward`` last. ``rows`` are the vertices of their rows.
    """
    forward, backward = laid.valued, laid.backward
    both = [forward] if backward is None or backward is forward else [forward, backward]
    owners = laid.rows.parts[laid.plan.halo]
    plan, both, packings = mixed(comm, laid.plan, owners, rows, both, max_bytes)
    last = None if backward is None else both[-1]
    return dataclasses.replace(laid, plan=plan, forward=both[0], backward=last), packings


def load(
    runtime: Runtime,
    source: Source,
    config: Config,
    demand: Demand,
) -> RowScheme:
    """Bring every row of M to its owner, and make the products with it."""
    comm, max_bytes = runtime.comm, config.loading.max_bytes
    laid, packings = lay_out(runtime, source, config, demand), NO_PACKINGS
    by_rows = laid if demand.batches else None
    rows = own = laid.plan.own
    halo, entries, groups = None, None, None
    if demand.rows:
        ids, pattern = np.concatenate((own, laid.plan.halo)), laid.pattern
        if demand.entries:
            arriving = Arriving.to_owners(comm, source, laid.rows.parts, max_bytes)
            given = config.graph.self_loops, own, laid.plan.halo
            entries = load_entry_rows(arriving, *given, demand)
            pattern, groups = entries.pattern(), entries.groups
        if demand.sums_groups:
            assert groups is not None, "entries are in no groups"
            laid, rows = _of_groups(laid, pattern, groups, config), groups.rows
    if laid.facts.mixed and demand.products:
        laid, packings = mix(comm, laid, rows, max_bytes)
        if source.stored.pairs is not None:
            facts = _measured(comm, laid.facts, laid.plan, laid.forward)
            laid = dataclasses.replace(laid, facts=facts)
    plan, facts = laid.plan, laid.facts
    products = HaloProduct(runtime, plan, config)
    operands = products.both(laid.forward, laid.backward, packings) if demand.products else ()
    forecast = P2PForecast(comm.size, facts, {comm.rank: products.kept})
    options = {
        "name": "p2p",
        "exchange": "mixed" if facts.mixed else "rows",
        "backward": "fold" if facts.folds else "expand",
    }
    if demand.rows:
        in_order = demand.only_visits or entries is not None
        halo = ExchangedHalo(runtime, products, pattern, ids, groups, in_order)
    return RowScheme(
        runtime, options, laid.rows,
        products, operands, forecast, max_bytes,
        halo=halo, plan=plan, entries=entries, laid=by_rows,
    )  # fmt: skip


@dataclass(frozen=True)
class P2PForecast(Forecast):
    """The scheme on paper: everything follows from the partition's metrics.

    Attributes
    ----------
    kept : mapping of int to Kept
        Ranks for which it is known that some rows need no message.
    """

    size: int
    facts: Facts
    kept: Mapping[int, Kept] = field(default_factory=dict)
    own_buffers = True

    def ranks(self) -> Sequence[int]:
        """The ranks with most rows, entries, rows to send or rows to receive."""
        figures = [self.facts.figures[name] for name in ("rows", "nnz", "send_rows", "recv_rows")]
        figures += [] if self.facts.owned is None else [self.facts.owned]
        return sorted({int(np.argmax(figure)) for figure in figures})

    def volume(self, rank: int, product: Operation, k: int, *sizes: int) -> Volume:
        """Rows × bytes of a row in a message."""
        if product not in EXCHANGES or self.facts.metrics is None:
            return NOTHING
        back = product == Operation.FOLD or (product == Operation.AGGREGATE_T and self.facts.folds)
        message, row = self.facts.message_bytes(sizes[0]), self.facts.row_bytes(sizes[0])
        volume = exchange_volume(self.facts.figures, rank, message, back)
        return self.kept.get(rank, Kept()).off(volume, message, row, back)

    def span(self, product: Operation, k: int) -> Sequence[Span]:
        """All ranks, each with any other."""
        return [Span(self.size, 1, all_pairs=True)] if product in EXCHANGES else []

    def work(self, rank: int, product: Operation, k: int, *sizes: int) -> Sequence[Sparse | Dense]:
        """Own rows of M, own rows of dense matrices."""
        rows, halo = self.facts.figures["rows"][rank], self.facts.figures["recv_rows"][rank]
        if product not in EXCHANGES:
            return whole_row_work(rows, product, *sizes)
        inner = rows + halo
        if self.facts.sums_groups:
            rows, _ = self.shape(rank, Place(0, space=Space.GROUPS), 1)
        return [Sparse(rows, inner, self._multiplied(rank), sizes[0])]

    def shape(self, rank: int, place: Place, width: int) -> tuple[int, int]:
        """All columns of own rows, of these and the halo, of arcs into them, or of their groups."""
        own, halo, entries = (
            self.facts.figures[name][rank] for name in ("rows", "recv_rows", "nnz")
        )
        if self.facts.owned is not None:
            entries = self.facts.owned[rank]
        return self.facts.rows_in(place.space, own, halo, entries), width

    def entries(self, rank: int) -> int:
        """Own rows of M, and of Mᵀ or the transpose of those of M."""
        return self._multiplied(rank) * (1 if self.facts.one_tile else 2)

    def matrix_bytes(self, rank: int, index: int) -> int:
        """Without values, those of a pattern, and of its transpose where that is another."""
        if self.facts.scaled is None:
            return super().matrix_bytes(rank, index)
        rows = self.facts.figures["rows"][rank] + self.facts.figures["recv_rows"][rank]
        patterns = 2 if self.facts.folds else 1
        return patterns * self._multiplied(rank) * index + 3 * rows * self.facts.itemsize

    def scaled_bytes(self, rank: int, product: Operation, width: int) -> int:
        """Own rows times numbers, and the halo behind them."""
        scaled = self.facts.scaled or (False, False)
        if not scaled[product is Operation.AGGREGATE_T]:
            return 0
        rows = self.facts.figures["rows"][rank] + self.facts.figures["recv_rows"][rank]
        return rows * self.facts.row_bytes(width)

    def loaded(self, rank: int) -> int:
        """All own arcs, also those that move: planning the exchange takes less than loading."""
        if self.facts.owned is not None:
            return self.facts.owned[rank] * (1 if self.facts.one_tile else 2)
        return self.facts.figures["nnz"][rank] * (2 if self.facts.rereads else 1)

    def buffers(self, rank: int, product: Operation, k: int, *sizes: int) -> int:
        """Halo and packed rows."""
        if product not in EXCHANGES:
            return 0
        rows = self.facts.figures["recv_rows"][rank] + self.facts.figures["send_rows"][rank]
        return self.facts.buffer_bytes(rows, sizes[0])

    def _multiplied(self, rank: int) -> int:
        """Entries that a rank multiplies."""
        return self.facts.figures["nnz"][rank] + mixed_ones(self.facts, rank)


ENTRY: Entry[ExchangeOptions] = Entry(
    load,
    lambda config, size, facts: P2PForecast(size, facts),
    parts=lambda config, size: size,
    gives_rows=True,
    cuts_batches=True,
    asks_for_rows=True,
    sums_groups=True,
    loads_by_rows=True,
)


def _of_groups(laid: Laid, pattern: sp.csr_array, groups: Groups, config: Config) -> Laid:
    """The same of the matrix of means by relation, whose transpose folds where it is needed."""
    shape = len(groups.rows), pattern.shape[1]
    shares = groups.shares.astype(config.dtype)
    starts = groups.starts.astype(pattern.indices.dtype)
    means = sp.csr_array((shares, pattern.indices.copy(), starts), shape=shape)
    means.sum_duplicates()  # of parallel arcs, in place; and columns rise
    backward = None if laid.facts.folds else means
    return dataclasses.replace(laid, forward=means, backward=backward)


def _measured(comm: Comm, facts: Facts, plan: Plan, forward: sp.csr_array | ScaledPattern) -> Facts:
    """The facts with figures of what is there: arcs that are held out are in no partition's."""
    if facts.metrics is None:
        return facts
    mine = {
        "rows": plan.nown, "nnz": forward.nnz, "send_rows": plan.nsend, "recv_rows": plan.nhalo,
        "send_messages": len(plan.send_peers), "recv_messages": len(plan.recv_peers),
    }  # fmt: skip
    every = comm.allgather(mine)
    found = {name: [each[name] for each in every] for name in mine}
    return dataclasses.replace(facts, metrics={**facts.metrics, **found})


def _degrees(runtime: Runtime, plan: Plan, entries: PlacedRows) -> np.ndarray:
    """Row sums of Ã for own and halo vertices, (nown + nhalo,) float64: one expand of width 1."""
    transport = Persistent(runtime.comm, plan, KERNELS.get("scipy")(np.float64))
    exchange = Exchange(transport, 1, runtime.traffic, runtime.phases)
    sums = np.diff(entries.starts)
    if entries.weights is not None:
        weights = entries.weights
        sums = summed(lambda: ((row, weights[some]) for some, row in entries.pieces()), plan.nown)
    exchange.own[:, 0] = sums
    exchange.start_expand()
    exchange.finish()
    return transport.kernel.to_host(exchange.whole[:, 0])


def _valued(
    entries: PlacedRows,
    plan: Plan,
    degree: np.ndarray,
    config: Config,
    transposed: bool = False,
    keep: bool = False,
) -> sp.csr_array:
    """Own rows of M with their values; of Mᵀ, from entries of Ãᵀ.

    Values take the place of weights of their type, unless it is asked to ``keep`` these.
    """
    column, weights, normalize = entries.columns, entries.weights, config.graph.normalize
    if weights is None or keep or weights.dtype != config.dtype:
        values = np.empty(len(column), config.dtype)
    else:
        values = weights
    for some, row in entries.pieces():
        ends = (column[some], row) if transposed else (row, column[some])
        weight = None if weights is None else weights[some]
        values[some] = entry_values(*ends, weight, degree, normalize, config.dtype)
    shape = plan.nown, plan.nown + plan.nhalo
    starts = entries.starts.astype(index_dtype(len(column)), copy=False)
    return sp.csr_array((values, column, starts), shape=shape)


def _scaled(
    entries: PlacedRows, plan: Plan, left: np.ndarray | None, right: np.ndarray | None
) -> ScaledPattern:
    """The same of an unweighted graph; the numbers are those of all local vertices."""
    columns, of_rows = plan.nown + plan.nhalo, None if left is None else left[: plan.nown]
    return ScaledPattern.of(entries.starts, entries.columns, columns, of_rows, right)
