"""M without the arcs that a step is about: a network must not see what it is to predict.

The arcs of a batch leave M both ways (pairs with a direction one way, unless the reverse of their
relation is in M too), and degrees are those of the arcs that are left. Rows travel by the plan of
all arcs: those that no arc needs any more are few, and both ends of an exchange know without a
message what is sent.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.halo.exchange import Exchange
from gcnmpi.halo.transports import Persistent
from gcnmpi.kernels.rows import entry_rows
from gcnmpi.layout.runtime import Runtime
from gcnmpi.mpi.comm import redistribute, slice_of
from gcnmpi.nn.tasks.drawing import Drawer
from gcnmpi.options.config import Config
from gcnmpi.options.kernel import KERNELS
from gcnmpi.schemes.row_scheme import Laid
from gcnmpi.schemes.sampled import Batch, Layer
from partition.graph.aggregation import entry_values, row_sums
from partition.graph.graph import index_dtype


class MaskedMatrix:
    """A rank's rows of M without the arcs of a batch; made by all ranks together."""

    def __init__(
        self, runtime: Runtime, laid: Laid, drawer: Drawer, direction: str, config: Config
    ) -> None:
        plan, matrix = laid.plan, laid.valued
        self._plan, self._drawer, self._config = plan, drawer, config
        self._ids = np.concatenate((plan.own, plan.halo)).astype(np.int64)
        self._rows = entry_rows(matrix.indptr)
        self._columns, self._starts = matrix.indices, matrix.indptr.dtype
        self._weights = _weights_of(laid, self._rows, config.graph.normalize)
        # Entries that are pairs, and their numbers: one may be several, and leaves with any.
        self._learned, self._pairs = _of_entries(
            runtime, laid, drawer, direction, self._ids, self._rows, config
        )
        self._epoch, self._batches = 0, self._pairs
        transport = Persistent(runtime.comm, plan, KERNELS.get("scipy")(np.dtype(np.float64)))
        self._degrees = Exchange(transport, 1, runtime.traffic, runtime.phases)

    def without(self, epoch: int, batch: int) -> Batch:
        """All own rows, with M as it is in a batch; all ranks call it together."""
        if self._epoch != epoch:
            batches = self._drawer.batches_of(epoch, self._pairs)
            self._epoch, self._batches = epoch, batches.astype(self._pairs.dtype)
        stay = np.ones(len(self._rows), bool)
        stay[self._learned[self._batches == batch]] = False
        plan, normalize = self._plan, self._config.graph.normalize
        rows, columns, weights = self._rows[stay], self._columns[stay], self._weights[stay]
        degrees = self._of_all(row_sums(rows, weights, plan.nown), normalize)
        values = entry_values(rows, columns, weights, degrees, normalize, self._config.dtype)
        starts = np.zeros(plan.nown + 1, self._starts)
        np.cumsum(np.bincount(rows, minlength=plan.nown), out=starts[1:])
        matrix = sp.csr_array((values, columns, starts), shape=(plan.nown, len(self._ids)))
        layer = Layer(plan, matrix, np.arange(plan.nhalo))
        return Batch(np.arange(plan.nown), self._ids[: plan.nown], [plan.nown], [layer])

    @property
    def volume(self) -> Volume:
        """The volume of the degrees of a batch."""
        if self._config.graph.normalize != "sym":
            return NOTHING
        plan = self._plan
        return Volume(plan.nsend * 8, plan.nhalo * 8, len(plan.send_peers))

    def _of_all(self, own: np.ndarray, normalize: str) -> np.ndarray:
        """Degrees of own vertices and halo; of the halo only where they are read."""
        if normalize != "sym":
            return np.concatenate((own, np.ones(self._plan.nhalo)))
        exchange = self._degrees
        exchange.own[:, 0] = own
        exchange.start_expand()
        exchange.finish()
        return np.array(exchange.whole[:, 0])


def _weights_of(laid: Laid, rows: np.ndarray, normalize: str) -> np.ndarray:
    """The entries of Ã, float64, from those of M."""
    values, degree = laid.valued.data.astype(np.float64), laid.degree
    if normalize == "none":
        return values
    scale = degree[rows] if normalize == "row" else np.sqrt(degree[rows])
    if normalize == "sym":
        scale = scale * np.sqrt(degree[laid.valued.indices])
    return values * scale


def _of_entries(
    runtime: Runtime,
    laid: Laid,
    drawer: Drawer,
    direction: str,
    ids: np.ndarray,
    rows: np.ndarray,
    config: Config,
) -> tuple[np.ndarray, np.ndarray]:
    """The entries of own rows that are pairs, and the number of each pair: integers."""
    comm, parts, pairs = runtime.comm, laid.rows.parts, drawer.pairs
    every = pairs.positives["train"]
    mine = slice_of(len(every), comm.rank, comm.size)
    ends = np.asarray(every[mine], np.int64)
    index = index_dtype(max(len(every), 1))
    numbers = np.arange(mine.start, mine.stop, dtype=index)
    ways = [(ends[:, ::-1] if direction == "in" else ends, numbers)]  # row, then column
    turned = pairs.both_ways("train", mine)
    ways.append((ways[0][0][turned, ::-1], numbers[turned]))
    found = [
        redistribute(comm, parts[of[:, 0]], [of, some], config.loading.max_bytes)[0]
        for of, some in ways
    ]
    entries = np.concatenate([of for of, _ in found])
    numbers = np.concatenate([of for _, of in found])
    keys = entries[:, 0] * drawer.n + entries[:, 1]
    order = np.argsort(keys)
    keys, numbers = keys[order], numbers[order]
    wanted = ids[rows] * drawer.n + ids[laid.valued.indices]
    first = np.searchsorted(keys, wanted)
    counts = np.searchsorted(keys, wanted, side="right") - first
    learned = np.repeat(np.arange(len(wanted), dtype=index_dtype(max(len(wanted), 1))), counts)
    skipped = np.cumsum(counts) - counts
    places = np.repeat(first - skipped, counts) + np.arange(len(learned))
    return learned, numbers[places]
