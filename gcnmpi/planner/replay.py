"""A plan replayed on the links of a network: what contention adds to the cost model.

The cost model gives each rank its share of a node's link and knows nothing of what lies behind.
Here all messages of a product share the links of :mod:`gcnmpi.planner.fluid`, and the product
takes as long as its last message. The seconds per message (α), of packing and of arithmetic are
those of the cost model. Ranks are numbered node by node. Nothing is of size P².

Collectives are rings, as in the cost model: each rank sends to the next one of its group, as much
as the busiest rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.nn.program import products
from gcnmpi.planner.case import Case
from gcnmpi.planner.costmodel import products_of_loss
from gcnmpi.planner.fluid import Network, fluid_seconds
from gcnmpi.schemes.columns import ColumnsForecast
from gcnmpi.schemes.forecast import Span
from gcnmpi.schemes.operations import TURNS, Operation


@dataclass
class Replay:
    """A case on a network.

    Attributes
    ----------
    exchange : (P, P) csr_array or None
        Rows that ranks send each other in an expand, of ``p2p``; None: as many to any other.
    """

    case: Case
    network: Network
    exchange: sp.csr_array | None = None
    _units: dict[object, float] = field(default_factory=dict)

    def seconds(self) -> dict[str, float]:
        """Seconds of an epoch of "transfer" and "reduce", the phases that use the network."""
        case, rank = self.case, self.case.forecast.ranks()[0]
        made = products(case.program, case.steps, partial(case.rows, rank))
        made += products_of_loss(case, rank)
        transfer = sum(self._product(*product) for product in made)
        return {"transfer": transfer, "reduce": sum(map(self._all_reduce, case.reductions(rank)))}

    def _product(self, name: Operation, k: int, *sizes: int) -> float:
        """α, packing, and the messages of a product on the links."""
        case, machine = self.case, self.case.machine
        ranks = case.forecast.ranks()
        volumes = [case.forecast.volume(rank, name, k, *sizes) for rank in ranks]
        if all(volume == NOTHING for volume in volumes):
            return 0.0
        spans = case.forecast.span(name, k) or [Span(case.size, 1)]
        empty = Volume(messages=max(volume.messages for volume in volumes))
        seconds = machine.transfer_seconds(empty, spans, case.ranks_per_node)
        seconds += max(
            machine.copy_seconds(case.forecast.buffers(rank, name, k, *sizes)) for rank in ranks
        )
        moved = max(max(volume.sent, volume.received) for volume in volumes)
        for span in spans:
            seconds += self._in_span(name, span, moved / len(spans), sizes[0])
        return seconds

    def _in_span(self, name: Operation, span: Span, moved: float, width: int) -> float:
        if span.size == 1:
            return 0.0
        if not span.all_pairs:
            return moved * self._unit((span.size, span.stride), partial(self._ring, span))
        forecast = self.case.forecast
        if isinstance(forecast, ColumnsForecast):
            turns = 1 if name in TURNS else 2
            return turns * self._unit(("turn", width), partial(self._turn, forecast, width))
        if self.exchange is None:
            return moved * self._unit("even", self._even)
        back = name == Operation.FOLD or (name == Operation.AGGREGATE_T and forecast.facts.folds)
        unit = self._unit(("rows", back), partial(self._rows, back))
        return unit * forecast.facts.message_bytes(width)

    def _unit(self, key: object, make: Callable[[], float]) -> float:
        """Seconds of a byte on each message of a pattern, which is replayed once."""
        if key not in self._units:
            self._units[key] = make()
        return self._units[key]

    def _ring(self, span: Span) -> float:
        """A byte from each rank to the next one of its group."""
        ranks = np.arange(self.case.size)
        last = ranks // span.stride % span.size == span.size - 1
        return self._between(ranks, ranks + span.stride * np.where(last, 1 - span.size, 1))

    def _between(self, source: np.ndarray, target: np.ndarray) -> float:
        """A byte from each rank to another one."""
        each = self.case.ranks_per_node
        out, into = source // each, target // each
        away, inside = out != into, 1 / self.case.machine.bandwidth_intra
        seconds = inside if not away.all() else 0.0
        if away.any():
            out, into = out[away], into[away]
            ones, links = np.ones(len(out)), self.network.links(out, into)
            seconds = max(seconds, inside, fluid_seconds(ones, links, self.network.capacities))
        return seconds

    def _rows(self, back: bool) -> float:
        """A byte for each row of the exchange, or of its transpose."""
        assert self.exchange is not None
        pairs, each = self.exchange.tocoo(), self.case.ranks_per_node
        out, into = (pairs.col, pairs.row) if back else (pairs.row, pairs.col)
        away = out // each != into // each
        near = np.zeros(self.case.size)
        np.add.at(near, out[~away], pairs.data[~away])
        shape = (self.network.nodes,) * 2
        ends = out[away] // each, into[away] // each
        between = sp.coo_array((pairs.data[away], ends), shape=shape).tocsr().tocoo()
        return max(near.max() / self.case.machine.bandwidth_intra, self._nodes(between))

    def _even(self) -> float:
        """A byte from each rank to all others together."""
        each = self.case.ranks_per_node
        between = sp.coo_array(np.ones((self.network.nodes,) * 2) - np.eye(self.network.nodes))
        between.data *= each**2 / max(1, self.case.size - 1)
        return self._nodes(between)

    def _turn(self, forecast: ColumnsForecast, width: int) -> float:
        """Columns of own rows from each rank to each that has columns."""
        edges = np.arange(0, self.case.size + 1, self.case.ranks_per_node)
        rows = np.diff(forecast.bounds[edges]).astype(float)
        starts = width * np.arange(self.case.size + 1) // self.case.size
        pairs = np.outer(rows, np.diff(starts[edges])) * forecast.facts.itemsize
        np.fill_diagonal(pairs, 0)
        return self._nodes(sp.coo_array(pairs))

    def _nodes(self, between: sp.coo_array) -> float:
        """Bytes between nodes, on the links."""
        links = self.network.links(between.row, between.col)
        return fluid_seconds(between.data, links, self.network.capacities)

    def _all_reduce(self, nbytes: int) -> float:
        """A ring or recursive doubling, whichever is faster."""
        case = self.case
        if case.size == 1:
            return 0.0
        latency = case.machine.all_reduce_seconds(0, case.size, case.ranks_per_node)
        ring = (
            2
            * (case.size - 1)
            / case.size
            * nbytes
            * self._unit((case.size, 1), partial(self._ring, Span(case.size, 1)))
        )
        steps = 2 * (case.size - 1) / max(1, int(np.ceil(np.log2(case.size))))
        ranks, doubling = np.arange(case.size), 0.0
        for bit in range(int(case.size).bit_length() - 1):
            other = ranks ^ (1 << bit)
            pair = partial(self._between, ranks[other < case.size], other[other < case.size])
            doubling += nbytes * self._unit(("pairs", bit), pair)
        return min(latency * steps + ring, latency + doubling)
