"""Forecasts of schemes: what each rank would hold, compute and send, computed without running it.

The one definition of these numbers. A running scheme holds its own forecast, and says what it
will send by it; the cost model asks forecasts of thousands of ranks that are not there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gcnmpi.core.precision import EXACT, row_bytes
from gcnmpi.core.volume import Volume, all_reduce
from gcnmpi.layout.place import Place, Space
from gcnmpi.layout.runtime import Demand, Source, vertices_of
from gcnmpi.options.config import Config
from gcnmpi.options.kernel import SCALES, resolve
from gcnmpi.options.scheme import TRANSPORTS, ExchangeOptions, ReplicatedOptions, exchange_of
from gcnmpi.schemes.operations import DENSE, Operation
from partition.errors import UserError
from partition.graph.graph import group_count
from partition.graph.metrics import Metrics
from partition.graph.store import Partition


@dataclass(frozen=True)
class Facts:
    """Graph and run as they are known before the arcs are read.

    Attributes
    ----------
    n : int
        Vertices.
    entries : int
        Stored entries of M, with its diagonal where self-loops are added.
    symmetric : bool
        Whether M equals its transpose, so that one of both is enough.
    folds : bool
        Whether the backward pass of schemes that can choose folds.
    depth : int
        Number of layers of products with M.
    itemsize : int
        Bytes of a number.
    metrics : mapping or None
        Figures of the partition in the direction of M, as ``partition.graph.metrics`` names them,
        lists with one number a part: ``rows``, ``nnz``, ``send_rows`` … None without a partition.
    mixed : bool
        Whether they are those of the mixed exchange, which is to be used.
    transposed : bool
        Whether there are products with Mᵀ.
    sums_groups : bool
        Whether the matrix of products is that of means by relation: see :class:`Demand`.
    owned : sequence of int or None
        With ``mixed``: entries of the rows of each part, wherever they are multiplied.
    precision : str
        ``comm.precision``, of schemes that have it.
    arcs : int
        Rows of arcs of all ranks: arcs that are stored, parallel ones too, and self-loops.
    groups : int
        Groups of these, each of one relation into a vertex; 0: they are of no relations.
    of_type : float
        The share of the vertices that are of the one type whose results are wanted.
    rereads : bool
        Whether schemes of whole rows read the arcs twice, for M and for Mᵀ: where nothing folds,
        and the values of one are not those of the other.
    scaled : (bool, bool) or None
        Whether M has numbers of columns, and Mᵀ, where M is a pattern and numbers of rows and
        columns. None: it has values.
    valued : bool
        Whether entries of the graph have values that are not all 1.
    """

    n: int
    entries: int
    symmetric: bool
    folds: bool
    depth: int
    itemsize: int
    metrics: Mapping[str, Any] | None = None
    mixed: bool = False
    transposed: bool = True

    @property
    def one_tile(self) -> bool:
        """Whether a tile of M is all that is multiplied with, and none of Mᵀ."""
        return self.symmetric or not self.transposed

    sums_groups: bool = False
    owned: Sequence[int] | None = None
    precision: str = EXACT
    rereads: bool = True
    arcs: int = 0
    groups: int = 0
    of_type: float = 0.0
    scaled: tuple[bool, bool] | None = None
    valued: bool = False

    @property
    def figures(self) -> Mapping[str, Any]:
        """The metrics; without a partition, those of one part that is the whole graph."""
        if self.metrics is not None:
            return self.metrics
        names = ("send_rows", "recv_rows", "send_messages", "recv_messages")
        return {"rows": [self.n], "nnz": [self.entries], **{name: [0] for name in names}}

    def of_arcs(self, entries: int) -> int:
        """Rows of arcs of so many entries of M, which parallel arcs share.

        Metrics count the diagonal even where no self-loops are added.
        """
        return max(entries, -(-entries * self.arcs // max(1, self.entries)))

    def rows_in(self, space: Space, own: int, halo: int, entries: int) -> int:
        """Rows of a rank with so many rows, whole rows of neighbours, and entries of M."""
        arcs = self.of_arcs(entries)
        groups = -(-arcs * self.groups // max(1, self.arcs))
        return {
            Space.OWN: own,
            Space.WHOLE: own + halo,
            Space.ENTRIES: arcs,
            Space.GROUPS: groups,
            Space.OF_TYPE: round(self.of_type * own),
            Space.TURNED: self.n,
        }[space]

    def row_bytes(self, width: int) -> int:
        """Bytes of a row of so many columns."""
        return width * self.itemsize

    def message_bytes(self, width: int) -> int:
        """Bytes of such a row in a message of an exchange of rows."""
        return row_bytes(self.precision, width, self.itemsize)

    def buffer_bytes(self, rows: int, width: int) -> int:
        """Bytes of so many packed and received rows, and of their messages."""
        memory, message = self.row_bytes(width), self.message_bytes(width)
        return rows * (memory if message == memory else memory + message)


@dataclass(frozen=True)
class Sparse:
    """A product of a sparse tile with a dense matrix: (rows × inner, with entries) · width.

    Attributes
    ----------
    shuffled : bool
        Whether vertices are in a random order, in which neighbours are not near each other.
    received : bool
        Whether the tile has just come in a message, and must be turned into the kernel's form.
    """

    rows: int
    inner: int
    entries: int
    width: int
    shuffled: bool = False
    received: bool = False


@dataclass(frozen=True)
class Dense:
    """A dense product: (rows × inner) · (inner × width)."""

    rows: int
    inner: int
    width: int


@dataclass(frozen=True)
class Span:
    """Which ranks take part in an operation: ``size`` of them, ``stride`` apart.

    ``all_pairs``: each sends to any other; otherwise collectives pass data from one to the next.
    """

    size: int
    stride: int
    all_pairs: bool = False


class Forecast(ABC):
    """A scheme with its options on some number of ranks. ``rank`` is any of them.

    The methods that have a body here hold where rows are moved as they are and every rank has all
    weights.

    Attributes
    ----------
    facts : Facts
    orders : tuple of str
        See ``Layout.orders``.
    whole_rows : bool
        Whether dense products are local: a rank has whole rows, and all weights.
    own_buffers : bool
        Whether a matrix that is exchanged in every epoch has buffers of its own.
    turns : bool
        Whether chains of products are made on columns: see :mod:`gcnmpi.nn.compile.turned`.
    samples : int
        Samples whose rows lie beside each other.
    """

    facts: Facts
    samples = 1
    orders: tuple[str, ...] = ("combine", "aggregate")
    whole_rows = True
    own_buffers = False
    turns = False

    def layout_of(self, place: Place) -> Hashable:
        """The same as ``Layout.layout`` of the scheme."""
        return None

    @abstractmethod
    def ranks(self) -> Sequence[int]:
        """A few ranks among which are the busiest ones in every respect."""

    @abstractmethod
    def volume(self, rank: int, product: Operation, k: int, *sizes: int) -> Volume:
        """See ``Scheme.volume``: exact, but for entries of M that travel (their average)."""

    @abstractmethod
    def span(self, product: Operation, k: int) -> Sequence[Span]:
        """The groups of ranks that a product's collectives run in, one after the other."""

    @abstractmethod
    def work(self, rank: int, product: Operation, k: int, *sizes: int) -> Sequence[Sparse | Dense]:
        """The local products that a product is made of; sizes as for ``volume``."""

    @abstractmethod
    def shape(self, rank: int, place: Place, width: int) -> tuple[int, int]:
        """Rows and columns of a rank's piece of a dense matrix, of any space of the scheme."""

    @abstractmethod
    def entries(self, rank: int) -> int:
        """Stored entries of all tiles of M (and Mᵀ) that a rank keeps."""

    def loaded(self, rank: int) -> int:
        """Entries that a rank reads: of its rows, before some of them move to other ranks."""
        return self.entries(rank)

    def matrix_bytes(self, rank: int, index: int) -> int:
        """Bytes of the tiles of M and Mᵀ, without where rows begin; of a column's number, given."""
        return self.entries(rank) * (index + self.facts.itemsize)

    def scaled_bytes(self, rank: int, product: Operation, width: int) -> int:
        """Bytes of a copy that a product makes of rows that are read later, too."""
        return 0

    def sides(self, rank: int) -> int:
        """Vertices of the sides of all tiles of a rank, of which batches of vertices are cut."""
        return 0

    @abstractmethod
    def buffers(self, rank: int, product: Operation, k: int, *sizes: int) -> int:
        """Bytes that a product needs beside its operands: halos, packed rows, received tiles."""

    def reduction_scratch(self, rank: int, product: Operation, k: int, *sizes: int) -> int:
        """Bytes that a product takes and gives back for the sums over ranks that it makes."""
        return 0

    def weight_numbers(self, rank: int, k: int, d_in: int, d_out: int) -> int:
        """Numbers of the weight of layer k that a rank holds."""
        return d_in * d_out


def make_facts(source: Source, config: Config, demand: Demand) -> Facts:
    """The facts of a graph, a partition of it and a configuration.

    Parameters
    ----------
    demand : Demand
        Of the network.

    Raises
    ------
    UserError
        If the backward exchange that is asked for needs a symmetric pattern; if a mixed exchange
        is asked for that cannot be.
    """
    manifest, partition = source.stored.manifest, source.partition
    scheme = exchange_of(config.scheme)
    backward = backward_exchange(scheme.backward, manifest.symmetric_pattern)
    # The metrics count the full diagonal; without them, as if no vertex had a loop of its own.
    metrics = None if partition is None else vars(partition.metrics[source.direction])
    owned, mixed = None, scheme.exchange == "mixed"
    if mixed and partition is not None and metrics is not None:
        if (why := why_not_mixed(partition, scheme, demand)) is not None:
            raise UserError(f"scheme.exchange cannot be 'mixed': {why[0]}", why[1])
        owned = metrics["nnz"]
        metrics = vars(mixed_metrics(partition, demand)[source.direction])
    entries = manifest.nnz + manifest.n
    if metrics is not None:
        entries = sum(metrics["nnz"] if owned is None else owned)
    folds = (backward == "fold" or demand.sums_groups) and demand.transposed
    return Facts(
        n=manifest.n,
        entries=entries,
        symmetric=manifest.symmetric_values
        and config.graph.normalize != "row"
        and not demand.sums_groups,
        folds=folds,
        depth=demand.depth,
        itemsize=np.dtype(config.dtype).itemsize,
        metrics=metrics,
        mixed=owned is not None,
        sums_groups=demand.sums_groups,
        owned=owned,
        precision=config.comm.precision,
        arcs=manifest.nnz + manifest.n * config.graph.self_loops,
        groups=group_count(source.stored.graph, source.direction) if demand.groups else 0,
        of_type=len(vertices_of(source.stored, demand.type)) / max(1, manifest.n),
        transposed=demand.transposed,
        rereads=not folds and not manifest.symmetric_values,
        scaled=_scaled(source, config, demand, mixed=owned is not None),
        valued=manifest.valued,
    )


def _scaled(
    source: Source, config: Config, demand: Demand, mixed: bool
) -> tuple[bool, bool] | None:
    """:attr:`Facts.scaled`: values are products of numbers, and nobody asks for them.

    Sums in messages and batches do.
    """
    by_vertices = not source.stored.manifest.valued and not demand.sums_groups
    whole = demand.products and not demand.batches and not mixed
    kernel, _ = resolve(config.kernel, max(1, config.threads))
    if not (by_vertices and whole and kernel in SCALES):
        return None
    return config.graph.normalize == "sym", config.graph.normalize != "none"


def why_not_mixed(
    partition: Partition, scheme: ExchangeOptions, demand: Demand
) -> tuple[str, str] | None:
    """The reason why no partial sums can be sent in place of rows, and a hint; or None."""
    if demand.rows and not demand.sums_groups:
        hint = "networks of sums can mix; of means by relation, scheme p2p without train.batches"
        return "this network needs whole rows of neighbours", hint
    if isinstance(scheme, ReplicatedOptions) and not scheme.sparse:
        return "scheme.sparse = false sends whole blocks", "use scheme.sparse = true"
    if not TRANSPORTS.get(scheme.transport).packs_sums:
        return f"scheme.transport = {scheme.transport!r} packs no sums", "take another transport"
    if not mixed_metrics(partition, demand):
        again = f"make it again: gcn-partition add … --name {partition.name} --force"
        return f"nothing is known of it for the partition {partition.name}", again
    return None


def mixed_metrics(partition: Partition, demand: Demand) -> Mapping[str, Metrics]:
    """The metrics of the mixed exchange that a network asks for, by direction."""
    return partition.by_relation if demand.sums_groups else partition.mixed


def backward_exchange(wanted: str, symmetric: bool) -> str:
    """``scheme.backward`` resolved: "expand" or "fold"."""
    if wanted == "expand" and not symmetric:
        raise UserError(
            "scheme.backward = 'expand' needs a symmetric pattern, and this graph is directed",
            "use scheme.backward = 'fold' or 'auto'",
        )
    return ("expand" if symmetric else "fold") if wanted == "auto" else wanted


def exchange_volume(
    metrics: Mapping[str, Any], part: int, message_bytes: int, back: bool
) -> Volume:
    """Volume of a part in an expand of its needed rows, or in a fold (``back``)."""
    out, into = ("recv", "send") if back else ("send", "recv")
    return Volume(
        metrics[f"{out}_rows"][part] * message_bytes,
        metrics[f"{into}_rows"][part] * message_bytes,
        metrics[f"{out}_messages"][part],
    )


def halo_bytes(forecast: Forecast, config: Config, rank: int, width: int) -> int:
    """Bytes in memory of what a product receives from others, which may be fewer in messages."""
    itemsize = np.dtype(config.dtype).itemsize
    received = forecast.volume(rank, Operation.AGGREGATE, 1, width).received
    return received * width * itemsize // row_bytes(config.comm.precision, width, itemsize)


def mixed_ones(facts: Facts, part: int) -> int:
    """Entries of a mixed exchange that M does not have: rows that are packed, sums that arrive."""
    if facts.metrics is None or not facts.mixed:
        return 0
    sent, sums, arrived = (
        facts.metrics[name][part] for name in ("send_rows", "send_sums", "recv_sums")
    )
    return int(sent - sums + arrived)


def whole_row_work(rows: int, product: Operation, *sizes: int) -> Sequence[Dense]:
    """The dense products where rows are whole and weights on every rank; others have none."""
    if product not in (*DENSE, Operation.WEIGHT_GRAD):
        return []
    d_in, d_out = sizes
    return {
        Operation.COMBINE: [Dense(rows, d_in, d_out)],
        Operation.COMBINE_T: [Dense(rows, d_out, d_in)],
        Operation.WEIGHT_GRAD: [Dense(d_in, rows, d_out)],
    }[product]


def row_volume(product: Operation, rows: int, itemsize: int, size: int) -> Volume:
    """Volume of an operation on rows that ``size`` ranks share."""
    moved = all_reduce(rows * itemsize, size)
    if product == Operation.ROW_ARGMAX:
        moved += all_reduce(rows * np.dtype(np.int64).itemsize, size)
    return moved
