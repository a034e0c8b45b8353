"""Mini-batches of ``p2p``: a part of its matrix and of its exchange, for the rows of a batch.

All ranks compute one batch together. Who is in it is decided by hashes of global ids
(:mod:`partition.graph.sampling`), each rank deciding for the rows that it owns. Ranks ask for the
rows of others that a layer reads, so that only rows travel that a batch needs. Every product folds
backwards, since a sampled matrix is not symmetric.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.halo.matrix import Matrix
from gcnmpi.halo.plan import Plan, plan_of
from gcnmpi.halo.product import HaloProduct, Operand
from gcnmpi.halo.rows import ExchangedHalo, Halo
from gcnmpi.kernels.epilogues import Epilogue
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.layout.entries import GROUP, PART, SHARE, EntryRows, Groups
from gcnmpi.layout.loading import Readable
from gcnmpi.layout.place import Block, Place, Space
from gcnmpi.layout.runtime import Runtime
from gcnmpi.mpi.ahead import Work, asking
from gcnmpi.mpi.comm import Comm, redistribute
from gcnmpi.mpi.hosts import share_of_cores
from gcnmpi.options.config import Config
from gcnmpi.options.scheme import ExchangeOptions
from gcnmpi.schemes.forecast import Facts
from gcnmpi.schemes.operations import EXCHANGES, Operation
from gcnmpi.schemes.p2p import Laid
from gcnmpi.schemes.sampled_forecast import count_number
from gcnmpi.schemes.sampling import Entries, Rows, RowsByBatch, without_number
from gcnmpi.schemes.sampling_arcs import ArcEntries, Arcs
from gcnmpi.schemes.whole_rows import WholeRows
from partition.graph.sampling import Place as At
from partition.graph.sampling import Sampler


@dataclass(frozen=True)
class Layer:
    """The matrix and the exchange of one layer of a batch.

    Attributes
    ----------
    plan : Plan
    matrix : (rows that it computes, rows that it reads + halo) csr_array
        Over the batch's own rows and those that come from others.
    halo : (halo,) integers
        Where the rows that come from others are in the rank's halo.
    arcs : Arcs or None
        Those that entries of the matrix are, where a network tells relations of arcs apart.
    """

    plan: Plan
    matrix: sp.csr_array
    halo: np.ndarray
    arcs: Arcs | None = None

    @property
    def groups(self) -> Groups | None:
        """Of arcs of one relation into a row."""
        return None if self.arcs is None else self.arcs.groups


@dataclass(frozen=True)
class Batch:
    """This rank's part of a batch.

    Attributes
    ----------
    rows : (rows,) integers
        Its rows among the rank's own, by local number: seeds first, then for each layer
        the rows that it reads and layers before it do not; increasing within these. At the end, the
        rows of others that the rank keeps: the number of own rows + the place in the halo.
    vertices : (rows,) int64
        Their global ids.
    counts : sequence of int
        The number of seeds; of these and the rows that the layer of the seeds reads; and so on.
        One number, where all layers have the same rows.
    layers : sequence of Layer
        That of the seeds first; one, where all layers share it.
    """

    rows: np.ndarray
    vertices: np.ndarray
    counts: Sequence[int]
    layers: Sequence[Layer]

    def number(self, layer: int) -> int:
        """Which of ``counts`` that of the rows of Hᵏ is, for k = ``layer``."""
        return count_number(len(self.counts), layer)

    @property
    def layered(self) -> bool:
        """Whether each layer has rows of its own."""
        return len(self.counts) > 1


class Cutter:
    """Cuts batches out of a rank's rows of M for ``hops`` products; made by all ranks together.

    ``max_bytes`` bounds the buffer in which ranks tell each other where their rows are. With
    ``arcs``, entries are these, in groups of relations.
    """

    def __init__(
        self,
        comm: Comm,
        laid: Laid,
        hops: int,
        max_bytes: float,
        arcs: EntryRows | None = None,
    ) -> None:
        plan = laid.plan
        # Operations that are begun ahead are not to be taken for those of comm.
        self._comm, self._plan, self._hops = comm.Dup(), plan, hops
        ids = np.concatenate((plan.own, plan.halo)).astype(np.int64)
        self._entries: Entries | ArcEntries = Entries(laid.valued, ids)
        if arcs is not None:
            n, dtype = len(laid.rows.parts), laid.valued.dtype
            self._entries = ArcEntries(arcs, n, dtype)
        self._owners = np.repeat(plan.recv_peers, np.diff(plan.recv_offsets))
        # The number of each row of the halo where it is owned, in the order of the halo.
        peers = np.repeat(plan.send_peers, np.diff(plan.send_offsets))
        (self._there,), _ = redistribute(comm, peers, [plan.send_rows], max_bytes)
        self._kept = np.zeros(plan.nhalo, bool)
        # Of own rows and halo, the place in the batch that is being cut; −1: in none.
        self._number = np.full(plan.nown + plan.nhalo, -1, np.int32)

    @property
    def comm(self) -> Comm:
        """The communicator on which rows are asked for."""
        return self._comm

    @property
    def row_sizes(self) -> np.ndarray:
        """How many entries each own row has."""
        return np.diff(self._entries.matrix.indptr)

    @property
    def ids(self) -> np.ndarray:
        """Global ids of own rows and halo."""
        return self._entries.ids

    def owners_of(self, halo: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ranks that own the rows at some places in the halo, and their numbers there."""
        return self._owners[halo], self._there[halo]

    def keep(self, halo: np.ndarray) -> None:
        """From now on, the rank has the input rows at some places in the halo."""
        self._kept[halo] = True

    def cut(self, sampler: Sampler, rows: np.ndarray, epoch: int, batch: int) -> Work[Batch]:
        """Cut a batch, one at a time; all ranks take part.

        It begins with some own ``rows``, increasing: its seeds, or all that are in it.
        """
        nown, ids, number = self._plan.nown, self._entries.ids, self._number
        number[rows] = np.arange(len(rows))
        counts, asked_for = [len(rows)], []
        hops = self._hops if sampler.layered else 1
        for hop in range(hops):
            at, computed = (epoch, batch, hop), len(rows)
            (starts, columns, values), arcs = self._draw(sampler, at, rows)
            new, halo = without_number(columns, number, nown)
            halo -= nown
            kept = halo[:0]
            if sampler.layered and hop == hops - 1:
                here = self._kept[halo]
                kept, halo = halo[here], halo[~here]
            owners, there = self.owners_of(halo)
            asked, received = yield from asking(self._comm, owners, there)
            if sampler.layered:
                number[new] = np.arange(len(rows), len(rows) + len(new))
                rows = np.concatenate((rows, new))
                new = np.unique(asked[number[asked] < 0])
                new = np.concatenate((new, nown + kept))
                number[new] = np.arange(len(rows), len(rows) + len(new))
                rows = np.concatenate((rows, new))
                counts.append(len(rows))
            number[nown + halo] = np.arange(len(rows), len(rows) + len(halo))
            shape = computed, len(rows) + len(halo)
            cut = sp.csr_array((values, number[columns], starts), shape=shape)
            here = owners, number[asked].astype(np.int64), received
            asked_for.append((cut, halo, arcs, *here))
            number[nown + halo] = -1
        number[rows] = -1
        vertices = ids[rows]
        layers = [
            Layer(plan_of(vertices[:own], ids[nown + halo], *rest), cut, halo, arcs)
            for own, (cut, halo, arcs, *rest) in zip(counts[-hops:], asked_for, strict=True)
        ]
        return Batch(rows, vertices, counts, layers)

    def _draw(self, sampler: Sampler, at: At, rows: np.ndarray) -> tuple[Rows, Arcs | None]:
        """The entries that the rows of a layer keep, and which arcs they are."""
        if isinstance(self._entries, ArcEntries):
            return self._entries.kept(sampler, at, rows)
        return self._entries.kept(sampler, at, rows), None


def sent_once(config: Config) -> Config:
    """The configuration of exchanges that are made a few times: no messages are prepared."""
    scheme = ExchangeOptions(transport="isend", progress_chunks=1)
    return dataclasses.replace(config, scheme=scheme)


class Cuts:
    """The batches of each epoch, cut by all ranks together, one at a time.

    ``candidates``, (nown,) int64, has the number of each own row among those that the sampler draws
    from; −1: none of them.
    """

    def __init__(self, cutter: Cutter, sampler: Sampler, candidates: np.ndarray) -> None:
        self._cutter, self._sampler = cutter, sampler
        self._rows = RowsByBatch(sampler, candidates)

    def of(self, epoch: int, batch: int) -> Work[Batch]:
        """Cut a batch of an epoch."""
        return self._cutter.cut(self._sampler, self._rows.of(epoch, batch), epoch, batch)


def threads_ahead(comm: Comm, kernel: Kernel, wanted: str) -> Executor | None:
    """The thread that draws the next batch: where a core is free for it, unless told.

    ``wanted`` is "yes", "no" or "auto". Two threads that share a core take turns at Python, which
    costs more than they gain.
    """
    free = share_of_cores(comm) > kernel.threads or kernel.device is not None
    return ThreadPoolExecutor(1) if wanted == "yes" or (wanted == "auto" and free) else None


class Memory:
    """Memory for the matrices of a batch, which the next one uses again; it grows as needed."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._pieces, self._taken = kernel, list[Array](), 0

    def rewind(self) -> None:
        """All matrices that were taken are free."""
        self._taken = 0

    def take(self, rows: int, width: int) -> Array:
        """A matrix whose numbers have no meaning yet."""
        if self._taken == len(self._pieces):
            self._pieces.append(self._kernel.empty(0, 1))
        needed = rows * width
        if len(self._pieces[self._taken]) < needed:
            self._pieces[self._taken] = self._kernel.empty(needed + needed // 4, 1)
        piece = self._pieces[self._taken][:needed].reshape(rows, width)
        self._taken += 1
        return piece


class BatchScheme(WholeRows):
    """The products of a batch that was cut from a graph with these facts.

    Its memory is that of the batch before, which ends with this one. With ``gives_rows``, the
    network looks at whole rows of neighbours.
    """

    name = "p2p"

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        facts: Facts,
        batch: Batch,
        memory: Memory,
        gives_rows: bool,
    ) -> None:
        super().__init__(runtime)
        config = sent_once(config)
        self._facts, self._batch = facts, batch
        self._memory, layers = memory, batch.layers
        memory.rewind()
        self._plans = [layer.plan for layer in layers]
        self._products = [HaloProduct(runtime, plan, config, lasts=False) for plan in self._plans]
        self._operands: dict[tuple[int, bool], Operand] = {}  # by layer and whether it is folded
        self._halos = []
        if gives_rows:
            ids = [np.concatenate((plan.own, plan.halo)) for plan in self._plans]
            self._halos = [
                ExchangedHalo(runtime, product, layer.matrix, own, layer.groups)
                for product, layer, own in zip(self._products, layers, ids, strict=True)
            ]

    def describe(self) -> dict[str, object]:
        """The name: nothing was chosen."""
        return {"name": self.name}

    def layout(self, place: Place) -> Hashable:
        """One for each layer."""
        return place.layer if self._batch.layered else None

    def block(self, place: Place, width: int) -> Block:
        """The rows of a space that the layer has here, all columns."""
        columns = slice(0, width)
        if place.space is Space.OWN:
            return Block.of(self._batch.vertices[: self._count(place)], columns)
        if place.space is Space.WHOLE:
            return Block.of(self._halos[self._layer(place.layer)].ids, columns)
        arcs = self._arcs(place)
        if place.space is Space.ENTRIES:
            return Block(len(arcs.some), lambda: arcs.keys, columns)
        return Block.of(arcs.groups.keys, columns)

    def empty(self, place: Place, width: int, exchanged: bool = False) -> Matrix:
        """Own rows; with space for those of others where a step looks at these."""
        if place.space is Space.WHOLE:
            return self._halos[self._layer(place.layer)].empty(place, width)
        if place.space.of_arcs:
            arcs = self._arcs(place)
            rows = arcs.some if place.space is Space.ENTRIES else arcs.groups.relations
            return Matrix(place, self._memory.take(len(rows), width))
        if exchanged and self._halos:
            return self._halos[self._layer(place.layer + 1)].empty(place, width)
        if exchanged and not self._batch.layered:
            return self._products[0].empty(place, width)
        return Matrix(place, self._memory.take(self._count(place), width))

    def move(self, x: Matrix, out: Matrix, width: int) -> None:
        """Rows that both have: the first ones. Others become 0, in the gradient of such a move."""
        rows = min(len(x.array), len(out.array))
        self._kernel.copy(x.array[:rows], out.array[:rows])
        out.array[rows:] = 0

    def release(self) -> None:
        """Free the buffers of a product that is made once."""
        for product in self._products:
            product.release()
        for halo in self._halos:
            halo.release()

    def halo_of(self, k: int) -> Halo | None:
        """That of the layer."""
        return self._halos[self._layer(k)] if self._halos else None

    def aggregate(self, k: int, x: Matrix, out: Array, epilogue: Epilogue | None = None) -> None:
        """The product with the layer's matrix."""
        layer = self._layer(k)
        self._products[layer].multiply(self._operand(layer, False), x, out, epilogue)

    def aggregate_t(self, k: int, x: Matrix, out: Array, epilogue: Epilogue | None = None) -> None:
        """The product with its transpose."""
        layer = self._layer(k)
        self._products[layer].multiply(self._operand(layer, True), x, out, epilogue)

    def load(self, place: Place, array: Readable) -> np.ndarray:
        """Not offered: a batch takes rows that its ranks have loaded."""
        raise TypeError("a batch is cut out of what is loaded")

    def original(self, place: Place, piece: np.ndarray, width: int) -> np.ndarray:
        """Not offered: a batch does not have all rows."""
        raise TypeError("a batch does not have all rows")

    def volume(self, product: Operation, k: int, *sizes: int) -> Volume:
        """Rows × bytes of a row in a message."""
        if product not in EXCHANGES:
            return NOTHING
        plan, message = self._plans[self._layer(k)], self._facts.message_bytes(sizes[0])
        if product in (Operation.FOLD, Operation.AGGREGATE_T):
            return Volume(plan.nhalo * message, plan.nsend * message, len(plan.recv_peers))
        return Volume(plan.nsend * message, plan.nhalo * message, len(plan.send_peers))

    def _layer(self, k: int) -> int:
        """Which of the layers belongs to the scheme's layer k, from 1."""
        return len(self._products) - k if self._batch.layered else 0

    def _operand(self, layer: int, folds: bool) -> Operand:
        if (layer, folds) not in self._operands:
            product = self._products[layer]
            make = product.folding if folds else product.expanding
            self._operands[layer, folds] = make(self._batch.layers[layer].matrix)
        return self._operands[layer, folds]

    def arcs_of(self, given: str, place: Place) -> np.ndarray:
        """Relations or shares of arcs, relations or parts of groups: a number for each row."""
        arcs = self._arcs(place)
        if given == SHARE:
            return self._batch.layers[self._layer(place.layer)].matrix.data
        of_groups = {GROUP: arcs.groups.relations, PART: arcs.groups.parts}
        return of_groups.get(given, arcs.relations)

    def _arcs(self, place: Place) -> Arcs:
        arcs = self._batch.layers[self._layer(place.layer)].arcs
        assert arcs is not None, "entries are no arcs"
        return arcs

    def _count(self, place: Place) -> int:
        return self._batch.counts[self._batch.number(place.layer)]


class RowBatches:
    """The batches of a scheme whose ranks own rows: see :class:`~gcnmpi.run.minibatch.Batches`.

    ``gives_rows`` as for :class:`BatchScheme`.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        laid: Laid,
        cutter: Cutter,
        cuts: Cuts,
        gives_rows: bool,
    ) -> None:
        self.laid, self.cutter, self.comm, self.of = laid, cutter, cutter.comm, cuts.of
        memory = Memory(runtime.kernel)
        self._of_graph, self._beside = (runtime, config, laid.facts), (memory, gives_rows)

    def counts(self, part: Batch) -> Sequence[int]:
        """Its rows, as :attr:`Batch.counts` has them."""
        return part.counts

    def rows(self, part: Batch, place: Place) -> np.ndarray:
        """The rows of Hᵏ; at the end, of H⁰, rows of others that the rank keeps."""
        return part.rows[: part.counts[part.number(place.layer)]]

    def rows_of_all(self, part: Batch, sums: np.ndarray, place: Place) -> int:
        """Of all ranks: they are on one rank each."""
        return int(sums[part.number(place.layer)])

    def scheme(self, part: Batch, sums: np.ndarray) -> BatchScheme:
        """The exchange that was found when the batch was cut."""
        return BatchScheme(*self._of_graph, part, *self._beside)

    def counted(self, part: Batch) -> dict[str, int]:
        """Rows and messages that this rank sends in one expand of each layer."""
        plans = [layer.plan for layer in part.layers]
        return {
            "batch_rows_sent": sum(plan.nsend for plan in plans),
            "batch_messages_sent": sum(len(plan.send_peers) for plan in plans),
        }
