"""The cost of link prediction: the pairs of a step are drawn, and the cost model is asked for them.

A decoder is to the cost model what a network is, with pairs for arcs: its program, on the rows,
pairs and halos that each rank has in a step. The pairs are those of a run's first step, and they
are shared among the ranks as there, so that bytes and messages are those that a run counts. To
seconds and memory comes what is there once for each pair: drawing it, bringing it to the rank that
scores it, its loss; and, where a step takes arcs out of M, for each entry of M.

Of steps with more than ``MOST`` pairs a part is drawn: pairs grow with it in proportion, and rows
as if pairs met any rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.halo.pairs import deciding, scored_here, who_scores
from gcnmpi.mpi.comm import slice_of
from gcnmpi.nn.compile.on_scheme import decoder_program
from gcnmpi.nn.decoders import symmetric
from gcnmpi.nn.program import INPUT
from gcnmpi.nn.tasks.drawing import CANDIDATES_AT_ONCE, RANKED_AT_ONCE, TILE, Drawer, drawer_of
from gcnmpi.nn.tasks.links import GROUPED, TASK
from gcnmpi.options.config import Config
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.options.task import FILTERED, LinkOptions
from gcnmpi.planner import memory
from gcnmpi.planner.batch_memory import evaluation_held, training_held
from gcnmpi.planner.case import Case
from gcnmpi.planner.costmodel import (
    Cost,
    cost_of,
    evaluation_seconds,
    passes_seconds,
    products_seconds,
    step_seconds,
)
from gcnmpi.planner.ranking import Candidate, Epochs, Setting
from gcnmpi.schemes.forecast import Facts, Span, exchange_volume
from gcnmpi.schemes.sampled_forecast import LISTED
from partition.graph.graph import distinct
from partition.graph.metrics import Metrics
from partition.graph.store import StoredGraph
from partition.graph.vertex_pairs import HELD_OUT, read_pairs

MOST = 1 << 20  # positives and negatives that are drawn here
SCORE_BYTES = 8  # of a score on its way to where the pair was drawn, and of its gradient
DEGREE_BYTES = 8
# Bytes for each pair of a step: of those that a rank draws and then brings to others, or keeps;
# while they are placed; once they are placed; and while their loss is computed.
DRAWN, PLACING, PLACED, LOSS = 90, 90, 60, 60
# For each candidate that is scored at once; of which a rank owns the vertex.
CANDIDATE, OWN_CANDIDATE = 30, 140
KNOWN_ENDS = 64  # of a positive that is ranked among all vertices: which of these are known
ROW = 40  # for each row of vertices, own or not: its numbers, and which rank wants it
NUMBERED = 24  # for each pair to be learned: its number, and its batch of the epoch
# Bytes for each entry of M where arcs leave it in each step: what is known of entries; and while M
# is made without them. How often what is left is in memory, beside the products of evaluations.
KNOWN_ENTRY, LEAVING, CUT = 36, 56, 2
DRAWING = 0.5  # seconds of drawing a pair, or of placing it: of ``Machine.hashed_entry``


@dataclass(frozen=True)
class DrawnPairs:
    """The pairs of a run's first step.

    Attributes
    ----------
    drawer : Drawer
    pairs : (m, 2) int64
        Some of its positives, and their negatives, in the order of the positives.
    numbers : (m,) int64
        The number of the positive that each of them belongs to.
    share : float
        Which share of the pairs of the step they are.
    who : str
        Who scores them: see :mod:`gcnmpi.halo.pairs`.
    """

    drawer: Drawer
    pairs: np.ndarray
    numbers: np.ndarray
    share: float
    who: str

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return self.drawer.sampler.batches

    @property
    def count(self) -> int:
        """Pairs of a step, negatives among them."""
        return round(len(self.pairs) / self.share)

    def placed(self, parts: np.ndarray, k: int, direction: str) -> tuple[Metrics, list[Volume]]:
        """The share of each of k ranks under a partition.

        Its rows, pairs (``nnz``) and rows of others, as metrics of an exchange; and the volume of
        scores that go to where the pairs were drawn, and of their gradients back.
        """
        first, second = self.pairs.T
        r, s = parts[first], parts[second]
        decides = deciding(r, s, self.who, k)
        order = np.argsort(decides, kind="stable")
        bounds = np.searchsorted(decides[order], np.arange(k + 1))
        scores = np.empty(len(first), parts.dtype)
        for rank in range(k):
            some = order[bounds[rank] : bounds[rank + 1]]
            ends = first[some], second[some]
            here = scored_here(rank, k, parts, *ends, self.who)
            other = np.where(r[some] == rank, s[some], r[some])
            scores[some] = np.where(here, rank, other)
        rows = np.bincount(parts, minlength=k)
        n = np.int64(len(parts))
        away = np.concatenate([scores[owner != scores] * n + ends[owner != scores] for owner, ends
                               in ((r, first), (s, second))])  # fmt: skip
        to, vertex = np.divmod(distinct(away.astype(np.int64)), n)
        owner = parts[vertex]
        between = distinct(owner.astype(np.int64) * k + to)
        (senders, receivers), others = np.divmod(between, k), np.full(k, k - 1)
        sent, received = (np.bincount(of, minlength=k) for of in (owner, to))
        metrics = Metrics(
            k,
            direction,
            rows.tolist(),
            np.round(np.bincount(scores, minlength=k) / self.share).astype(int).tolist(),
            _grown(sent, rows * (k - 1), self.share),
            _grown(received, len(parts) - rows, self.share),
            _grown(np.bincount(senders, minlength=k), others, self.share),
            _grown(np.bincount(receivers, minlength=k), others, self.share),
        )
        starts = [slice_of(self.drawer.sampler.n, rank, k).start for rank in range(k)]
        drawn = np.searchsorted(starts, self.numbers, side="right") - 1
        return metrics, _ways(scores[drawn != scores], drawn[drawn != scores], k, self.share)


class LinkEpochs(Epochs):
    """Epochs of steps, each with all rows of vertices and some pairs."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._drawn = draw_pairs(setting.stored, setting.work.config)

    def cost(self, candidate: Candidate, case: Case) -> Cost:
        """The cost of an epoch."""
        return predict_links(case, self._drawn, *self._where(candidate, case))

    def memory(self, candidate: Candidate, case: Case) -> int:
        """Peak bytes of the rank that needs most: of the network, and the pairs of a step."""
        parts, direction = self._where(candidate, case)
        metrics, _ = self._drawn.placed(parts, case.size, direction)
        return _memory(case, pairs_case(case, metrics), self._drawn)

    def _where(self, candidate: Candidate, case: Case) -> tuple[np.ndarray, str]:
        """The rank of each vertex, and the direction of M."""
        return self._setting.parts(candidate, case), self._setting.direction


def draw_pairs(stored: StoredGraph, config: Config) -> DrawnPairs:
    """The pairs of a run's first step; a UserError if the folder has not those of the task."""
    task = config.task
    assert isinstance(task, LinkOptions)
    pairs = stored.pairs or read_pairs(stored.path, task.pairs)
    drawer = drawer_of(task, pairs, stored.manifest.n, config.train.seed, stored.graph.vertex_types)
    sampler, negatives = drawer.sampler, drawer.negatives.count
    numbers = np.arange(sampler.n)
    if sampler.batches > 1:
        numbers = sampler.members(1, 0)
    step, most = len(numbers), max(1, MOST // (1 + negatives))
    # Evenly over all, as their numbers may say something of them.
    numbers = numbers[:: -(-step // most)]
    drawn = drawer.draw(1, 0, numbers)
    who = who_scores(symmetric(task), drawer.fixed)
    of = np.concatenate((numbers, np.repeat(numbers, drawn.negatives.shape[1])))
    return DrawnPairs(drawer, drawn.every, of, len(numbers) / step, who)


def pairs_case(case: Case, metrics: Metrics) -> Case:
    """The case of the decoder on the pairs of a step, from that of the network."""
    config, network = case.work.config, case.work.network
    entries = sum(metrics.nnz)
    facts = Facts(
        case.work.n, entries, False, True, 1, case.work.itemsize, vars(metrics),
        precision=config.comm.precision, arcs=entries,
    )  # fmt: skip
    forecast = SCHEMES.get("p2p").forecast(config.scheme, case.size, facts)
    return replace(case, forecast=forecast, program=decoder_program(network))


def predict_links(case: Case, drawn: DrawnPairs, parts: np.ndarray, direction: str) -> Cost:
    """The cost of an epoch: of its steps, each with all rows of vertices and some pairs.

    ``case`` is that of the network; the vertices are on the ranks that ``parts`` says.
    """
    metrics, ways = drawn.placed(parts, case.size, direction)
    pairs = pairs_case(case, metrics)
    phases, moved = defaultdict[str, float](float), dict[int, Volume]()
    ranks: Sequence[int] = range(case.size)
    if case.size > LISTED:
        ranks = sorted({*case.forecast.ranks(), *pairs.forecast.ranks()})
    of_decoder = products_seconds(pairs, pairs.steps, ranks)
    for seconds, volumes in (step_seconds(case, ranks), of_decoder):
        for name, value in seconds.items():
            phases[name] += value
        for rank, volume in volumes.items():
            moved[rank] = moved.get(rank, NOTHING) + volume
    phases["passes"] += max(_passes_seconds(pairs, rank) for rank in ranks)
    phases["sample"] += max(_sample_seconds(case, pairs, drawn, rank) for rank in ranks)
    epoch = {
        rank: (volume + _beside(case, ways, rank)) * drawn.steps for rank, volume in moved.items()
    }
    needed = _memory(case, pairs, drawn)
    seconds_of = {name: value * drawn.steps for name, value in phases.items()}
    return cost_of(case, seconds_of, epoch, needed, evaluation_seconds(case))


def _memory(case: Case, pairs: Case, drawn: DrawnPairs) -> int:
    """Peak bytes of the rank that needs most.

    Beside the matrices of the network come the pairs of a step, those of its decoder, and the
    number that every vertex has on its rank, which the ranks of a node share.
    """
    config, n = case.work.config, case.work.n
    masks = TASK.steps(config.task).matrix
    numbers = 4 * n // min(case.size, case.ranks_per_node)

    def trains(one: Case, rank: int) -> int:
        program, of_pairs = one.program, _pairs_memory(pairs, drawn, rank)
        state = memory.state_memory(one, rank) + numbers
        if not masks:
            held = memory.passes_memory(one, rank, one.steps, memory.matrices(program))
            return state + held + max(of_pairs, _candidates_memory(one, drawn, rank))
        entries, each = one.arcs(rank)[2], memory.ENTRY_INDEX + one.work.itemsize
        state += memory.passes_memory(one, rank, program.evaluation, evaluation_held(program))
        state += KNOWN_ENTRY * entries
        passes = memory.passes_memory(one, rank, one.steps, training_held(program))
        first = program.values[INPUT]  # which both have
        passes -= one.work.itemsize * one.piece_numbers(rank, first.place, first.width)
        return state + max(
            LEAVING * entries, passes + CUT * one.forecast.entries(rank) * each + of_pairs
        )

    return memory.memory(case, trains)


def _pairs_memory(pairs: Case, drawn: DrawnPairs, rank: int) -> int:
    """Bytes of a step's pairs on a rank, and of what the decoder makes of them."""
    own, columns, scored = pairs.arcs(rank)
    here, program = drawn.count // pairs.size, pairs.program
    placing = DRAWN * here + PLACING * scored
    held = memory.pattern_memory(own, columns, scored) + PLACED * scored
    passes = memory.passes_memory(pairs, rank, pairs.steps, memory.matrices(program))
    # Rows of vertices, and their gradient, are the network's.
    rows = program.values[INPUT]
    passes -= 2 * pairs.work.itemsize * pairs.piece_numbers(rank, rows.place, rows.width)
    learned = NUMBERED * drawn.drawer.sampler.n // pairs.size if drawn.steps > 1 else 0
    learned += ROW * columns
    return learned + max(placing, held + passes + LOSS * scored)


def _candidates_memory(case: Case, drawn: DrawnPairs, rank: int) -> int:
    """Bytes of an evaluation with candidates for each positive.

    They are some candidates, and own rows behind which those of positives fit. Where all vertices
    are candidates, a tile of scores, and the known ones.
    """
    pairs, logits = drawn.drawer.pairs, case.program.values[case.program.logits]
    filtered = getattr(case.work.config.task, "ranked", "") == FILTERED
    if not filtered and not pairs.drawn and not pairs.candidates:
        return 0
    rows = case.piece_numbers(rank, logits.place, logits.width) * case.work.itemsize
    if filtered:
        held = sum(len(pairs.positives[mask]) for mask in HELD_OUT)
        sent = 4 * RANKED_AT_ONCE * logits.width * case.work.itemsize
        return rows + sent + TILE * (2 * case.work.itemsize + 2) + KNOWN_ENDS * held
    return rows + CANDIDATES_AT_ONCE * (CANDIDATE + OWN_CANDIDATE // case.size)


def _passes_seconds(pairs: Case, rank: int) -> float:
    """Seconds of what the decoder does entry by entry, and of the loss."""
    loss = pairs.machine.copy_seconds(LOSS * pairs.arcs(rank)[2])
    return passes_seconds(pairs, rank, pairs.steps) + loss


def _sample_seconds(case: Case, pairs: Case, drawn: DrawnPairs, rank: int) -> float:
    """Seconds of drawing pairs and placing them; of M without their arcs."""
    machine, scored = pairs.machine, pairs.arcs(rank)[2]
    seconds = DRAWING * machine.hashed_entry * (drawn.count / pairs.size + scored)
    if pairs.size > 1:
        nbytes = (DRAWN + PLACING) // 4 * scored
        span = [Span(pairs.size, 1, all_pairs=True)]
        asked = Volume(nbytes, nbytes, 2 * (pairs.size - 1))
        seconds += machine.transfer_seconds(asked, span, pairs.ranks_per_node)
    if TASK.steps(case.work.config.task).matrix:
        seconds += machine.drawing_seconds(case.arcs(rank)[2], 0, None)
    return seconds


def _beside(case: Case, ways: Sequence[Volume], rank: int) -> Volume:
    """Scores of losses that look at pairs together; degrees, where arcs leave M."""
    config, found = case.work.config, NOTHING
    assert isinstance(config.task, LinkOptions)
    if config.task.objective in GROUPED:
        found += ways[rank]
    if TASK.steps(config.task).matrix and config.graph.normalize == "sym":
        found += exchange_volume(case.forecast.facts.figures, rank, DEGREE_BYTES, False)
    return found


def _ways(scored: np.ndarray, drawn: np.ndarray, k: int, share: float) -> list[Volume]:
    """The volume of scores on both ways, of each of k ranks.

    Of the pairs that one rank scores and another one drew, these two.
    """
    sent, received = (np.bincount(of, minlength=k) / share for of in (scored, drawn))
    between = distinct(scored.astype(np.int64) * k + drawn)
    to, back = (np.bincount(of, minlength=k) for of in np.divmod(between, k))
    both = SCORE_BYTES * np.round(sent + received).astype(int)
    return [Volume(n, n, m) for n, m in zip(both.tolist(), (to + back).tolist(), strict=True)]


def _grown(rows: np.ndarray, most: np.ndarray, share: float) -> list[int]:
    """Rows (or ranks) that all pairs meet, from those that a share of them meets, of ``most``."""
    missed = 1 - rows / np.maximum(most, 1)
    return np.round(most * (1 - missed ** (1 / share))).astype(int).tolist()
