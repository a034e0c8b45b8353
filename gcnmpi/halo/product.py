"""Products in which a rank gets only the rows of others that it needs.

Matrices are arguments: one plan, with its buffers and messages, serves any number of them. A matrix
of own rows **expands**: while the rows of others are on their way, the block of own columns is
multiplied, then that of the halo's. The transpose of one **folds**: partial sums travel back the
same way. The key ``scheme.transport`` names what carries the rows.

With ``scheme.progress_chunks`` the own block is multiplied a few rows at a time, and the MPI
library looked after in between: most libraries move long messages only inside calls of MPI.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from gcnmpi.halo.exchange import Buffers, Exchange, addition_matrix
from gcnmpi.halo.matrix import Matrix
from gcnmpi.halo.messages import rounding_of
from gcnmpi.halo.plan import Plan
from gcnmpi.halo.transports import Transport
from gcnmpi.kernels.epilogues import Epilogue
from gcnmpi.kernels.interface.kernel import Array, Sparse
from gcnmpi.kernels.scaled import ScaledPattern
from gcnmpi.layout.place import Place
from gcnmpi.layout.runtime import Runtime
from gcnmpi.mpi.comm import EXCHANGE_TAG, slice_of
from gcnmpi.options.config import Config
from gcnmpi.options.scheme import TRANSPORTS, exchange_of

Rows: TypeAlias = sp.csr_array | ScaledPattern
"""Own rows of a sparse matrix: with values, or without."""


@dataclass(frozen=True)
class Operand:
    """A sparse matrix over local columns, cut at the end of the own ones (or rows, for a fold).

    The own half is in chunks of rows; a single rank has no halo. In a mixed exchange, ``packed``
    makes packed rows of own ones; in a fold, it adds packed rows to own ones. Own rows of x
    are first multiplied by ``scale``, (rows, 1), where values are products of numbers of rows and
    columns.
    """

    own: list[tuple[slice, Sparse]]
    folds: bool
    halo: Sparse | None = None
    packed: Sparse | None = None
    scale: Array | None = None


class HaloProduct:
    """The products of the ranks that exchange rows by one plan.

    Buffers and persistent requests are made when a matrix is asked for, and live as long as that.
    Rows that need no message are in ``kept``.

    Parameters
    ----------
    runtime : Runtime
        Its communicator is that of the ranks that the plan numbers.
    config : Config
        Of which ``scheme.transport``, ``scheme.progress_chunks``, ``comm.precision`` and
        ``train.seed``.
    lasts : bool
        Whether the matrices made by ``empty`` live as long on all ranks: those of a run do, those
        of a batch may be freed at any time. Only then can all ranks time their exchanges alone.
    rounds_always : bool
        Whether messages of the set-up are rounded, too, which are sent once.
    """

    def __init__(
        self,
        runtime: Runtime,
        plan: Plan,
        config: Config,
        lasts: bool = True,
        rounds_always: bool = False,
    ) -> None:
        comm, kernel = runtime.comm, runtime.kernel
        self._lasts, self._rounds_always = lasts, rounds_always
        exchange = exchange_of(config.scheme)
        self._transport: Transport = TRANSPORTS.get(exchange.transport)(comm, plan, kernel)
        self.kept = self._transport.kept
        # A device multiplies beside the host, which needs no breaks in between.
        self._alone = comm.size == 1
        at_once = self._alone or kernel.device is not None
        self._chunks = 1 if at_once else exchange.progress_chunks
        self._comm, self._plan, self._kernel = comm, plan, kernel
        self._config = config
        self._phases, self._traffic = runtime.phases, runtime.traffic
        self._exchanges: weakref.WeakSet[Exchange] = weakref.WeakSet()  # all that are in use
        # By width, for matrices without an exchange of their own: whose rows lie elsewhere, or are
        # copied.
        self._scratch: dict[int, Exchange] = {}
        self._whole: dict[int, Exchange] = {}

    @functools.cached_property
    def _add(self) -> Sparse:
        return self._kernel.sparse(addition_matrix(self._plan))

    @property
    def _added(self) -> Sparse | None:
        return None if self._alone else self._add

    def expanding(self, matrix: Rows, packing: sp.csr_array | None = None) -> Operand:
        """Own rows of a matrix over local columns, (nown, nown + nhalo); what packs, (nsend, nown).

        Without ``packing`` the plan's rows are sent as they are.
        """
        nown, sparse = self._plan.nown, self._kernel.sparse
        if isinstance(matrix, ScaledPattern):
            scale = None if matrix.right is None else self._numbers(matrix.right[:nown])
            if self._alone:
                return Operand(self._chunked(matrix), False, scale=scale)
            own, halo = matrix.halves(nown)
            return Operand(self._chunked(own), False, sparse(halo), scale=scale)
        if self._alone:
            return Operand(self._chunked(matrix), folds=False)
        packed = None if packing is None else sparse(packing)
        if not self._plan.nhalo:
            nothing = sp.csr_array((matrix.shape[0], 0), dtype=matrix.dtype)
            return Operand(self._chunked(matrix), False, sparse(nothing), packed)
        own, halo = matrix[:, :nown], matrix[:, nown:]
        return Operand(self._chunked(own), False, sparse(halo), packed)

    def folding(self, matrix: Rows, packing: sp.csr_array | None = None) -> Operand:
        """The transpose of such a matrix."""
        nown = self._plan.nown
        if isinstance(matrix, ScaledPattern):
            turned = matrix.transposed()
            scale = None if turned.right is None else self._numbers(turned.right)
            own, halo = turned.rows(0, nown), turned.rows(nown, turned.shape[0])
            other = None if self._alone else self._kernel.sparse(halo)
            return Operand(self._chunked(own), True, other, self._added, scale)
        own = matrix.T.tocsr()
        if self._alone:
            return Operand(self._chunked(own), folds=True)
        halo = _rows(own, nown, own.shape[0])
        if self._plan.nhalo:
            own = _rows(own, 0, nown)
        packed = self._add if packing is None else self._kernel.sparse(sp.csr_array(packing.T))
        return Operand(self._chunked(own), True, self._kernel.sparse(halo), packed)

    def both(
        self,
        forward: Rows,
        backward: Rows | None,
        packings: Sequence[sp.csr_array | None] = (None, None),
    ) -> tuple[Operand, Operand]:
        """A matrix and its transpose, both of own rows; ``backward`` may be ``forward`` itself.

        None: the transpose folds. ``packings``: what packs for the first, and for the last.
        """
        first = self.expanding(forward, packings[0])
        if backward is None:
            return first, self.folding(forward, packings[0])
        return first, first if backward is forward else self.expanding(backward, packings[-1])

    def empty(self, place: Place, width: int) -> Matrix:
        """A matrix whose own rows need not be copied: the head of an ``[own | halo]`` buffer."""
        return _matrix(place, self._new_exchange(width, timed=self._lasts))

    def release(self) -> None:
        """Free the exchanges made for matrices that have none of their own."""
        self._scratch.clear()
        self._whole.clear()

    def multiply(
        self, matrix: Operand, x: Matrix, out: Array, epilogue: Epilogue | None = None
    ) -> None:
        """out = epilogue(matrix · x): own rows; of a fold, of the sum over ranks."""
        if matrix.scale is not None:
            x = self._scaled(matrix.scale, x)
        if self._alone:
            self._multiply_own(matrix, None, x.array, out, epilogue)
            return
        product = self._fold if matrix.folds else self._expand
        product(matrix, x, out, epilogue)

    def gather(self, x: Matrix) -> Array:
        """The ``whole`` of x, which comes from ``empty``, with the rows of others in its halo."""
        if not self._alone:
            exchange = _own_exchange(x)
            exchange.start_expand()
            exchange.finish()
        return x.whole

    def gradient(self, place: Place, width: int) -> Matrix:
        """A matrix for :meth:`scatter`: one memory for each width."""
        return _matrix(place, self._whole_exchange(width))

    def scatter(self, gradient: Matrix, out: Array) -> None:
        """The adjoint of ``gather``: out = own rows + what other ranks' halos add to them.

        ``gradient`` comes from :meth:`gradient`.
        """
        if self._alone:
            self._kernel.copy(gradient.array, out)
        else:
            self._fold_to(_own_exchange(gradient), gradient.array, out)

    def add_halos(self, own: Array, halo: Array, out: Array) -> None:
        """out = own + what other ranks' ``halo`` add to it, of arrays that lie anywhere."""
        exchange = self._exchange_of(Matrix(Place(0), own), folds=True)
        self._kernel.copy(halo, exchange.halo)
        self._fold_to(exchange, own, out)

    def _fold_to(self, exchange: Exchange, own: Array, out: Array) -> None:
        exchange.start_fold()
        self._kernel.copy(own, out)
        exchange.finish()
        with self._phases("spmm"):
            self._kernel.spmm(self._add, exchange.packed, out, accumulate=True)

    def _expand(self, matrix: Operand, x: Matrix, out: Array, epilogue: Epilogue | None) -> None:
        exchange = self._exchange_of(x)
        exchange.start_expand(matrix.packed)
        alone = not self._plan.nhalo  # nothing is added to the own half
        self._multiply_own(matrix, exchange, exchange.own, out, epilogue if alone else None)
        exchange.finish()
        if not alone:
            assert matrix.halo is not None
            with self._phases("spmm"):
                self._kernel.spmm_then(matrix.halo, exchange.halo, out, True, epilogue)

    def _fold(self, matrix: Operand, x: Matrix, out: Array, epilogue: Epilogue | None) -> None:
        assert matrix.halo is not None
        assert matrix.packed is not None
        exchange = self._exchange_of(x, folds=True)
        with self._phases("spmm"):
            self._kernel.spmm(matrix.halo, x.array, exchange.halo)
        exchange.start_fold()
        self._multiply_own(matrix, exchange, x.array, out, None)
        exchange.finish()
        with self._phases("spmm"):
            self._kernel.spmm_then(matrix.packed, exchange.packed, out, True, epilogue)

    def _multiply_own(
        self,
        matrix: Operand,
        exchange: Exchange | None,
        x: Array,
        out: Array,
        epilogue: Epilogue | None,
    ) -> None:
        whole = len(matrix.own) == 1
        with self._phases("spmm"):
            for number, (rows, chunk) in enumerate(matrix.own):
                if number:
                    # A probe advances whatever is pending; a test looks at every request.
                    self._comm.Iprobe(tag=EXCHANGE_TAG)
                self._kernel.spmm_then(chunk, x, out[rows], False, epilogue if whole else None)
            self._kernel.follow(out, None if whole else epilogue)
        if exchange is not None:
            exchange.send()

    def _scaled(self, scale: Array, x: Matrix) -> Matrix:
        """x with each row times a number: in place where nobody reads x later."""
        to = x
        if not x.spent:
            exchange = self._whole_exchange(x.array.shape[1])
            to = Matrix(x.place, exchange.own, exchange.whole, exchange)
        with self._phases("spmm"):
            self._kernel.scale_heads(scale, x.array, to.array)
        return to

    def _numbers(self, of_rows: np.ndarray) -> Array:
        """Numbers of rows in the form of the kernel, (rows, 1)."""
        return self._kernel.from_host(of_rows[:, np.newaxis].astype(self._kernel.dtype))

    def _exchange_of(self, x: Matrix, folds: bool = False) -> Exchange:
        """The exchange whose own rows are x: its own one, or that of its width for a moment.

        One that folds reads none, so that x may have other rows, such as of groups of arcs.
        """
        if x.exchange is not None and x.exchange.transport is self._transport:
            return x.exchange
        width = x.array.shape[1]
        if not self._transport.own_anywhere:
            exchange = self._whole_exchange(width)
            if not folds:
                self._kernel.copy(x.array, exchange.own)
            return exchange
        if width not in self._scratch:
            self._scratch[width] = self._new_exchange(width, x.array)
        self._scratch[width].own = x.array
        return self._scratch[width]

    def _whole_exchange(self, width: int) -> Exchange:
        if width not in self._whole:
            self._whole[width] = self._new_exchange(width)
        return self._whole[width]

    def _new_exchange(self, width: int, own: Array | None = None, timed: bool = False) -> Exchange:
        buffers = None
        if self._transport.shares_packed:
            shared = (exchange.buffers for exchange in self._exchanges)
            buffers = next((one for one in shared if one.packed.shape[1] == width), None)
        if buffers is None:
            rounding = rounding_of(self._config, width, self._rounds_always)
            buffers = Buffers(self._transport, width, rounding)
        transport, traffic, phases = self._transport, self._traffic, self._phases
        exchange = Exchange(transport, width, traffic, phases, buffers, own, timed)
        self._exchanges.add(exchange)
        return exchange

    def _chunked(self, matrix: Rows) -> list[tuple[slice, Sparse]]:
        if self._chunks == 1:
            return [(slice(0, matrix.shape[0]), self._kernel.sparse(matrix))]
        pieces = [slice_of(matrix.shape[0], i, self._chunks) for i in range(self._chunks)]
        return [(p, self._kernel.sparse(_rows(matrix, p.start, p.stop))) for p in pieces]


def _matrix(place: Place, exchange: Exchange) -> Matrix:
    return Matrix(place, exchange.own, exchange.whole, exchange)


def _own_exchange(x: Matrix) -> Exchange:
    assert x.exchange is not None, "made without an exchange"
    return x.exchange


def _rows(matrix: Rows, start: int, stop: int) -> Rows:
    """Rows of a matrix, whose memory they share."""
    if isinstance(matrix, ScaledPattern):
        return matrix.rows(start, stop)
    first, last = matrix.indptr[[start, stop]]
    arrays = (matrix.data[first:last], matrix.indices[first:last])
    shape = (stop - start, matrix.shape[1])
    return sp.csr_array((*arrays, matrix.indptr[start : stop + 1] - first), shape=shape)
