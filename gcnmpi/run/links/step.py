"""Link prediction: of each batch of pairs all rows of vertices, scores, and their gradient.

With ``task.supervise`` below 1, the arcs of a batch leave M: a network must not see what it is to
predict. They leave both ways (pairs with a direction one way, unless the reverse of their relation
is in M too), and degrees are those of the arcs that are left. Rows travel by the plan of all arcs:
those that no arc needs any more are few, and both ends of an exchange know without a message what
is sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.halo.exchange import Exchange
from gcnmpi.halo.transports import Persistent
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.kernels.rows import entry_rows
from gcnmpi.layout.runtime import Runtime
from gcnmpi.mpi.comm import agreed, redistribute, slice_of
from gcnmpi.nn.model import PASSES, Passes
from gcnmpi.nn.program import products
from gcnmpi.nn.tasks.drawing import Drawer, Drawn, drawer_of
from gcnmpi.nn.tasks.links import GROUPED, TASK, each_alone
from gcnmpi.options.config import Config
from gcnmpi.options.kernel import KERNELS
from gcnmpi.options.task import LinkOptions
from gcnmpi.run.links.evaluation import LinkEvaluation
from gcnmpi.run.links.scoring import Decoder, KnownPairs, Scored, pairs_of
from gcnmpi.run.problem import Problem, load_features
from gcnmpi.run.step import BatchLoss, Interrupt, Work
from gcnmpi.schemes.operations import EXCHANGES
from gcnmpi.schemes.row_scheme import Laid, RowScheme
from gcnmpi.schemes.sampled import Batch, BatchScheme, Layer, Memory
from partition.graph.aggregation import entry_values, row_sums
from partition.graph.graph import index_dtype


@dataclass(frozen=True)
class _PairBatch:
    """The pairs of a batch, ready to be scored.

    Attributes
    ----------
    scored : Scored
        Those that this rank scores.
    positive, counts : (entries,) bool
        Whether each of them is a positive, and whether it counts.
    drawn : (int, int)
        How many positives this rank drew, and how many negatives for each.
    """

    scored: Scored
    positive: np.ndarray
    counts: np.ndarray
    drawn: tuple[int, int]


class LinkWork(Work):
    """Batches of pairs of vertices, which all ranks score together.

    Attributes
    ----------
    decoder : Decoder
    """

    def __init__(self, problem: Problem) -> None:
        task, config, comm = problem.config.task, problem.config, problem.runtime.comm
        assert isinstance(task, LinkOptions)
        masked, self._features = TASK.steps(task).matrix, load_features(problem)
        super().__init__(problem, self._features, ("evaluation",) if masked else PASSES)
        stored = problem.source.stored
        n, types = stored.manifest.n, stored.graph.vertex_types
        with agreed(comm):
            self._drawer = drawer_of(task, pairs_of(problem), n, config.train.seed, types)
        self.batches = self._drawer.sampler.batches
        self.decoder = Decoder(problem)
        self._grouped = GROUPED.get(task.objective)
        self._known = KnownPairs(problem, self.decoder, n) if task.filter else None
        mine = slice_of(self._drawer.sampler.n, comm.rank, comm.size)
        # This rank draws for these positives, whoever scores them.
        self._numbers, self._epoch = np.arange(mine.start, mine.stop), 0
        self._batches = self._numbers
        self._predicted, self._kept = NOTHING, list[_PairBatch]()
        self._masked: _MaskedMatrix | None = None
        # The volume of the network's products, where M is the same in every step.
        every = () if masked else self.model.products(backward=True)
        self._of_network = sum((problem.scheme.volume(*each) for each in every), NOTHING)
        if masked:
            scheme = problem.scheme
            assert isinstance(scheme, RowScheme)
            assert scheme.laid is not None
            self._laid: Laid = scheme.laid
            self._memory = Memory(problem.runtime.kernel)
            direction = problem.source.direction
            facts = problem.runtime, scheme.laid, self._drawer, direction, config
            self._masked = _MaskedMatrix(*facts)
            steps = (*problem.program.forward, *problem.program.backward)
            all_products = products(problem.program, steps, lambda place: 0)
            self._exchanged = [each for each in all_products if each[0] in EXCHANGES]

    def predicted(self, epochs: int) -> Volume:
        """The volume of the epochs that were run, from the plans of their batches."""
        return self._predicted

    def evaluation(self) -> LinkEvaluation:
        """The metrics of pairs that are held out."""
        return LinkEvaluation(self._problem, self.model, self.decoder, self.model.parameters)

    def gradient(self, epoch: int, batch: int, interrupt: Interrupt) -> BatchLoss:
        """All rows of vertices, and the scores of the pairs of a batch."""
        sampler, number = self._drawer.sampler, (epoch - 1) * self.batches + batch + 1
        passes = self._passes(epoch, batch)
        passes.forward(number)
        with self._problem.runtime.phases("sample"):
            prepared = self._prepared(epoch, batch, passes)
        decoder, phases = prepared.scored.passes, self._problem.runtime.phases
        scores = decoder.forward(number)
        with phases("loss"):
            loss = self._loss(prepared, batch, scores)
        decoder.backward(number)
        passes.backward(number)
        self._predicted += self._volume(prepared)
        return BatchLoss(loss, sampler.count(batch), sampler.n)

    def _loss(self, prepared: _PairBatch, batch: int, scores: Array) -> float:
        """This rank's share of the loss of a batch; the gradient of scores is written."""
        kernel, (drawn, negatives) = self._problem.runtime.kernel, prepared.drawn
        count = self._drawer.sampler.count(batch)
        found = kernel.to_host(scores)[:, 0].astype(np.float64)
        found[~prepared.counts] = -np.inf
        if self._grouped is None:
            loss, slope = each_alone(found, prepared.positive)
            weights = np.where(prepared.positive, 1.0, 1.0 / max(1, self._drawer.negatives.count))
            total, slope = float(loss @ weights), slope * weights
        else:
            home = prepared.scored.pairs.home
            assert home is not None
            every = home.bring(found)
            others = every[drawn:].reshape(drawn, negatives)
            losses, of_pairs, of_negatives = self._grouped(every[:drawn], others)
            total = float(losses.sum())
            slope = home.back(np.concatenate((of_pairs, of_negatives.ravel())))
        gradient = prepared.scored.passes.output_grad
        slope = np.where(prepared.counts, slope, 0.0) / count
        kernel.copy(kernel.from_host(slope[:, np.newaxis]), gradient)
        return total / count

    def _prepared(self, epoch: int, batch: int, passes: Passes) -> _PairBatch:
        """The pairs of a batch, brought to where they are scored."""
        if self._kept:
            return self._kept[0]
        here = self._drawer.draw(epoch, batch, self._drawn(epoch, batch))
        drawn, fixed = here.counts.shape, self._drawer.fixed
        relations, grouped = here.every_relation, self._grouped is not None
        placed = self.decoder.place(*_flat(here), fixed, grouped, relations)
        del here
        positive, counts = placed.given[:2]
        if self._known is not None:
            counts = counts & (positive | ~self._known.among(placed))
        model = self.model
        training = model.gradients, passes.output_grad
        rows, lasts = passes.logits, fixed and self._masked is None
        scored = self.decoder.scored(placed, rows, model.parameters, training, lasts)
        prepared = _PairBatch(scored, positive, counts, drawn)
        if lasts:
            self._kept.append(prepared)
        return prepared

    def _drawn(self, epoch: int, batch: int) -> np.ndarray:
        """The numbers of the positives of a batch that this rank draws for."""
        if self.batches == 1:
            return self._numbers
        if self._epoch != epoch:
            self._epoch, self._batches = epoch, self._drawer.batches_of(epoch, self._numbers)
        return self._numbers[self._batches == batch]

    def _passes(self, epoch: int, batch: int) -> Passes:
        """Of the network: on M, or on what is left of it."""
        if self._masked is None:
            return self.model
        problem, model, program = self._problem, self.model, self._problem.program
        runtime, n = problem.runtime, problem.source.stored.manifest.n
        with runtime.phases("sample"):
            drawn = self._masked.without(epoch, batch)
        scheme = BatchScheme(
            runtime, problem.config, self._laid.facts, drawn, self._memory, program.needs_halo
        )
        self._scheme = scheme
        return Passes(
            scheme, runtime.kernel, program, problem.config.train.seed, lambda place: n,
            self._features, model.parameters, model.gradients, ("training",),
        )  # fmt: skip

    def _volume(self, prepared: _PairBatch) -> Volume:
        """The volume of a step, by the plans of its exchanges."""
        found = self._of_network + self.decoder.volume(prepared.scored, backward=True)
        if self._masked is not None:
            found = sum((self._scheme.volume(*each) for each in self._exchanged), found)
            found = found + self._masked.volume
        home = prepared.scored.pairs.home
        if home is not None:
            found = found + home.volume(back=False) + home.volume(back=True)
        return found


def _flat(drawn: Drawn) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Positives, then their negatives: the pairs, their keys; which are positives, which count."""
    pairs = drawn.every
    keys = np.concatenate((drawn.keys, drawn.negative_keys.ravel()))
    positive = np.arange(len(pairs)) < len(drawn.pairs)
    counts = np.concatenate((np.ones(len(drawn.pairs), bool), drawn.counts.ravel()))
    return pairs, keys, [positive, counts]


class _MaskedMatrix:
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
