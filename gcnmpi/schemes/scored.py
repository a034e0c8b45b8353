"""The products of a decoder, whose arcs are pairs of vertices and whose features are their rows."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from gcnmpi.core.precision import row_bytes
from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.halo.matrix import Matrix
from gcnmpi.halo.pairs import ScoredPairs
from gcnmpi.halo.product import HaloProduct
from gcnmpi.halo.rows import ExchangedHalo
from gcnmpi.kernels.epilogues import Epilogue
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.layout.loading import Readable
from gcnmpi.layout.place import Block, Place, Space
from gcnmpi.layout.runtime import Runtime
from gcnmpi.options.config import Config
from gcnmpi.schemes.operations import Operation
from gcnmpi.schemes.sampled import sent_once
from gcnmpi.schemes.whole_rows import WholeRows


class PairScheme(WholeRows):
    """Rows of vertices and of the pairs that a rank scores; made by all ranks together.

    Parameters
    ----------
    pairs : ScoredPairs
    keys : (entries,) uint64
        The key of each pair for dropout.
    total : int
        Pairs of all ranks.
    lasts : bool
        Whether its exchanges are made again and again.
    """

    name = "p2p"

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        pairs: ScoredPairs,
        keys: np.ndarray,
        total: int,
        lasts: bool = False,
    ) -> None:
        super().__init__(runtime)
        config = config if lasts else sent_once(config)
        self._products = HaloProduct(runtime, pairs.plan, config, lasts)
        order = np.arange(len(pairs.ids))  # entries of a row are by local number
        self.halo = ExchangedHalo(runtime, self._products, pairs.pattern, order)
        self._plan, self._total = pairs.plan, total
        self._keys = {Space.OWN: pairs.plan.own, Space.WHOLE: pairs.ids, Space.ENTRIES: keys}
        self._itemsize, self._precision = runtime.kernel.dtype.itemsize, config.comm.precision

    def all_rows(self, space: Space) -> int:
        """The pairs of all ranks."""
        return self._total

    def describe(self) -> dict[str, object]:
        """The name: nothing was chosen."""
        return {"name": self.name}

    def block(self, place: Place, width: int) -> Block:
        """All columns of the rows of a space."""
        return Block.of(self._keys[place.space], slice(0, width))

    def layout(self, place: Place) -> Hashable:
        """One for all places."""
        return None

    def empty(self, place: Place, width: int, exchanged: bool = False) -> Matrix:
        """Own rows or pairs; with space for the rows of others where these are wanted."""
        if exchanged or place.space is Space.WHOLE:
            return self._products.empty(place, width)
        return Matrix(place, self._kernel.empty(len(self._keys[place.space]), width))

    def release(self) -> None:
        """Free the buffers of what is exchanged once."""
        self._products.release()

    def aggregate(self, k: int, x: Matrix, out: Array, epilogue: Epilogue | None = None) -> None:
        """Not offered: a decoder has no matrix."""
        raise TypeError("a decoder multiplies with no matrix M")

    aggregate_t = aggregate

    def load(self, place: Place, array: Readable) -> np.ndarray:
        """Not offered: rows of vertices come from a network."""
        raise TypeError("a decoder takes the rows that a network gives")

    def original(self, place: Place, piece: np.ndarray, width: int) -> np.ndarray:
        """Not offered: pairs are in no file's order."""
        raise TypeError("pairs have no order of their own")

    def volume(self, product: Operation, k: int, *sizes: int) -> Volume:
        """Rows × bytes of a row in a message."""
        if product not in (Operation.EXPAND, Operation.FOLD):
            return NOTHING
        plan, width = self._plan, sizes[0]
        row = width * self._itemsize
        message = row_bytes(self._precision, width, self._itemsize)
        if product is Operation.FOLD:
            found = Volume(plan.nhalo * message, plan.nsend * message, len(plan.recv_peers))
        else:
            found = Volume(plan.nsend * message, plan.nhalo * message, len(plan.send_peers))
        return self._products.kept.off(found, message, row, product is Operation.FOLD)
