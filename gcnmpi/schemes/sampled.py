"""Mini-batches of ``p2p``: a part of its matrix and of its exchange, for the rows of a batch.

All ranks compute one batch together. Who is in it is decided by hashes of global ids
(:mod:`partition.graph.sampling`), each rank deciding for the rows that it owns; what a layer reads
of others is asked for, so that rows travel that a batch needs, and no others. Every product folds
backwards, since a sampled matrix is not symmetric.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.config import Config
from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.halo.matrix import Matrix
from gcnmpi.halo.plan import Plan, plan_of
from gcnmpi.halo.product import HaloProduct
from gcnmpi.halo.rows import ExchangedHalo
from gcnmpi.kernels.epilogues import Epilogue
from gcnmpi.kernels.interface import Array
from gcnmpi.kernels.sampling import sampled_entries
from gcnmpi.layout.loading import Readable
from gcnmpi.layout.place import Block, Place
from gcnmpi.layout.runtime import Runtime
from gcnmpi.mpi.comm import Comm, redistribute
from gcnmpi.schemes.forecast import EXCHANGES, Facts
from gcnmpi.schemes.p2p import Laid
from gcnmpi.schemes.whole_rows import WholeRows
from partition.graph.sampling import Sampler, pointers

TRANSPORT = "isend"  # a batch's messages are sent a few times: none are prepared


@dataclass(frozen=True)
class Layer:
    """What one layer of a batch multiplies with.

    Attributes
    ----------
    plan : Plan
    matrix : (rows, rows + halo) csr_array
        Over the batch's own rows and those that come from others; empty in rows that the layer
        does not compute.
    """

    plan: Plan
    matrix: sp.csr_array


@dataclass(frozen=True)
class Batch:
    """This rank's part of a batch.

    Attributes
    ----------
    rows : (rows,) integers
        Its rows among the rank's own, by local number, increasing.
    layers : sequence of Layer
        That of the seeds first; one, where all layers share it.
    """

    rows: np.ndarray
    layers: Sequence[Layer]


class Cutter:
    """Cuts batches out of a rank's rows of M; made by all ranks together.

    Parameters
    ----------
    comm : Comm
    laid : Laid
        With its exchange of rows.
    hops : int
        Layers of products with M.
    max_bytes : float
        Bound of the buffer in which a batch's rows are asked for.
    """

    def __init__(self, comm: Comm, laid: Laid, hops: int, max_bytes: float) -> None:
        plan = laid.plan
        self._comm, self._plan, self._matrix = comm, plan, laid.forward
        self._hops, self._max_bytes = hops, max_bytes
        self._ids = np.concatenate((plan.own, plan.halo)).astype(np.int64)
        self._owners = np.repeat(plan.recv_peers, np.diff(plan.recv_offsets))
        # The number of each row of the halo where it is owned, in the order of the halo.
        peers = np.repeat(plan.send_peers, np.diff(plan.send_offsets))
        (self._there,), _ = redistribute(comm, peers, [plan.send_rows], max_bytes)

    def cut(self, sampler: Sampler, members: np.ndarray, epoch: int, batch: int) -> Batch:
        """A batch, in which all ranks take part.

        Parameters
        ----------
        members : (nown,) bool
            Own rows that are in it to begin with: its seeds, or all that are in it.
        """
        nown, matrix, ids = self._plan.nown, self._matrix, self._ids
        reached, found = members.copy(), []
        for hop in range(self._hops if sampler.layered else 1):
            frontier = np.flatnonzero(reached)
            at = epoch, batch, hop
            row, entry, factor = sampled_entries(sampler, at, matrix, ids, frontier)
            column = matrix.indices[entry]
            values = (matrix.data[entry] * factor).astype(matrix.dtype)
            outside = column >= nown
            halo = np.unique(column[outside]) - nown
            (asked,), counts = redistribute(
                self._comm, self._owners[halo], [self._there[halo]], self._max_bytes
            )
            reached[column[~outside]] = True
            reached[asked] = True
            found.append((row, column, values, halo, asked, counts))
        rows = np.flatnonzero(reached)
        number = np.empty(nown + self._plan.nhalo, np.int32)
        number[rows] = np.arange(len(rows))
        layers = []
        for row, column, values, halo, asked, counts in found:
            number[nown + halo] = np.arange(len(rows), len(rows) + len(halo))
            sizes = np.bincount(number[row], minlength=len(rows))
            shape = len(rows), len(rows) + len(halo)
            cut = sp.csr_array((values, number[column], pointers(sizes)), shape=shape)
            plan = plan_of(
                ids[rows], ids[nown + halo], self._owners[halo],
                number[asked].astype(np.int64), counts,
            )  # fmt: skip
            layers.append(Layer(plan, cut))
        return Batch(rows, layers)


class BatchScheme(WholeRows):
    """The products of a batch.

    Parameters
    ----------
    facts : Facts
        Of the graph it is cut from.
    depth : int
        Layers of products with M.
    gives_rows : bool
        Whether the network looks at whole rows of neighbours, which all layers must share.
    """

    name = "p2p"

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        facts: Facts,
        vertices: np.ndarray,
        layers: Sequence[Layer],
        depth: int,
        gives_rows: bool,
    ) -> None:
        super().__init__(runtime)
        scheme = dataclasses.replace(config.scheme, transport=TRANSPORT)
        config = dataclasses.replace(config, scheme=scheme)
        self._vertices, self._facts, self._depth = vertices, facts, depth
        self._plans = [layer.plan for layer in layers]
        self._products = [HaloProduct(runtime, plan, config, lasts=False) for plan in self._plans]
        self._operands = [
            product.both(layer.matrix, None)
            for product, layer in zip(self._products, layers, strict=True)
        ]
        if gives_rows:
            ids = np.concatenate((vertices, self._plans[0].halo))
            self.halo = ExchangedHalo(runtime, self._products[0], layers[0].matrix, ids)

    def describe(self) -> dict[str, Any]:
        """Nothing was chosen."""
        return {"name": self.name}

    def block(self, place: Place, width: int) -> Block:
        """The batch's own rows, all columns, in every layer."""
        return Block(self._vertices, slice(0, width))

    def empty(self, place: Place, width: int, exchanged: bool = False) -> Matrix:
        """Own rows; with space for those of others where all layers need the same."""
        if exchanged and len(self._products) == 1:
            return (self.halo or self._products[0]).empty(place, width)
        return Matrix(place, self._kernel.empty(len(self._vertices), width))

    def release(self) -> None:
        """Free what was kept for a product that is made once."""
        for product in self._products:
            product.release()
        if self.halo is not None:
            self.halo.release()

    def aggregate(self, k: int, x: Matrix, out: Array, epilogue: Epilogue | None = None) -> None:
        """The product with the layer's matrix."""
        layer = self._layer(k)
        self._products[layer].multiply(self._operands[layer][0], x, out, epilogue)

    def aggregate_t(self, k: int, x: Matrix, out: Array, epilogue: Epilogue | None = None) -> None:
        """The product with its transpose."""
        layer = self._layer(k)
        self._products[layer].multiply(self._operands[layer][1], x, out, epilogue)

    def load(self, place: Place, array: Readable) -> np.ndarray:
        """Not offered: a batch takes rows of what its ranks have loaded."""
        raise TypeError("a batch is cut out of what is loaded")

    def original(self, place: Place, piece: np.ndarray, width: int) -> np.ndarray:
        """Not offered: a batch does not have all rows."""
        raise TypeError("a batch does not have all rows")

    def volume(self, product: str, k: int, *sizes: int) -> Volume:
        """Rows × bytes of a row in a message."""
        if product not in EXCHANGES:
            return NOTHING
        plan, message = self._plans[self._layer(k)], self._facts.message_bytes(sizes[0])
        if product in ("fold", "aggregate_t"):
            return Volume(plan.nhalo * message, plan.nsend * message, len(plan.recv_peers))
        return Volume(plan.nsend * message, plan.nhalo * message, len(plan.send_peers))

    def _layer(self, k: int) -> int:
        """Which of the layers belongs to the scheme's layer k, from 1."""
        return self._depth - k if len(self._products) > 1 else 0
