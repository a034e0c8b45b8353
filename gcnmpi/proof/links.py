"""A part of the oracle: link prediction in one process, in float64, written from the formulas.

It takes from the trainer which pairs hashes draw, as it takes those of dropout, and nothing else:
arcs leave the graph in a loop over its arcs, the decoder is evaluated by the oracle's own rules,
losses are written out for one positive after the other, and metrics count.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from gcnmpi.nn.tasks.drawing import drawer_of
from gcnmpi.nn.tasks.links import with_relations
from gcnmpi.options.config import Config
from gcnmpi.options.task import FILTERED, LinkOptions, chosen_metrics, hits_of, tells_relations
from gcnmpi.proof.oracle import Passed, Rows, Serial
from gcnmpi.proof.passes import ArcRows, Pass
from gcnmpi.proof.scores import score_pairs
from gcnmpi.proof.updates import Weights
from partition.graph.graph import ARCS, VERTICES, ArcData, Graph
from partition.graph.store import StoredGraph
from partition.graph.vertex_pairs import HELD_OUT, PairSet, drawn_candidates

_Pair = tuple[int, ...]


class LinkProblem(Serial):
    """The loss of a step, and scores, at any weights of the network and its decoder."""

    def __init__(self, graph: Graph, pairs: PairSet, direction: str, config: Config) -> None:
        config = with_relations(config, pairs)
        task = config.task
        assert isinstance(task, LinkOptions)
        self.config, self.task, self.pairs, self._direction = config, task, pairs, direction
        self._whole, self.graph = graph, training_graph(graph, pairs)
        self._width = task.width or (64, *getattr(config.model, "hidden", ()))[-1]
        self.rows = Rows(self.graph, direction, config, self._width)
        self.drawer = drawer_of(task, pairs, graph.n, config.train.seed, graph.vertex_types)
        self.batches = self.drawer.sampler.batches
        decoder = self.rows.network.decoder
        assert decoder is not None
        self.decoder = decoder
        told = tells_relations(task)
        self._relations = {
            mask: np.array(pairs.relations[mask], int) if told else np.zeros(len(of), int)
            for mask, of in pairs.positives.items()
        }
        self._known = set(_triples(pairs.positives["train"], self._relations["train"]))
        if not pairs.directed or task.decoder not in ("concat", "transe", "complex"):
            self._known |= {(v, u, r) for u, v, r in self._known}

    def share(self, batch: int) -> float:
        """The share of its positives."""
        return self.drawer.sampler.count(batch) / self.drawer.sampler.n

    def gradient(
        self, weights: Weights, epoch: int, batch: int = 0
    ) -> tuple[float, Weights, Weights]:
        """Loss of a batch, its gradient and the next running moments."""
        drawer, task, rows = self.drawer, self.task, self.rows
        step = (epoch - 1) * self.batches + batch + 1
        every = np.arange(drawer.sampler.n)
        numbers = every[drawer.batches_of(epoch, every) == batch]
        if task.supervise < 1:
            hidden = {(u, v) for u, v, _ in _edges_of(self.pairs, "train", numbers)}
            rows = Rows(_without(self.graph, hidden), self._direction, self.config, self._width)
        network, moments = rows.forward(weights, step)
        drawn = drawer.draw(epoch, batch, numbers)
        of, count = drawn.counts.shape
        pairs = np.concatenate((drawn.pairs, drawn.negatives.reshape(-1, 2)))
        keys = np.concatenate((drawn.keys, drawn.negative_keys.ravel()))
        own = self._relations["train"][numbers]
        relations = np.concatenate((own, np.repeat(own, count)))
        decoder = self._decoded(network.output, pairs, relations, keys, weights, step)
        scores, counts = decoder.output[:, 0], drawn.counts.ravel().copy()
        if task.filter:
            counts &= [each not in self._known for each in _triples(pairs, relations)[of:]]
        loss, slopes = _loss(task.objective, scores[:of], scores[of:], counts, count)
        of_rows, of_decoder = decoder.back(slopes[:, np.newaxis])
        return loss, of_decoder | network.back(of_rows)[1], moments

    def outputs(self, weights: Weights) -> np.ndarray:
        """The rows of vertices, in an evaluation."""
        return self.rows.forward(weights, None)[0].output

    def scores(
        self,
        weights: Weights,
        pairs: np.ndarray,
        relations: np.ndarray | None = None,
        rows: np.ndarray | None = None,
    ) -> np.ndarray:
        """Scores of pairs (m, 2), of relations (m,), in an evaluation; of these rows, if given."""
        rows = self.outputs(weights) if rows is None else rows
        keys, of = np.zeros(len(pairs), np.uint64), np.zeros(len(pairs), int)
        of = of if relations is None else relations
        return self._decoded(rows, pairs, of, keys, weights, None).output[:, 0]

    def metrics(
        self, weights: Weights, outputs: np.ndarray | None = None
    ) -> dict[str, float | None]:
        """Of pairs that are held out."""
        found: dict[str, float | None] = {}
        rows, pairs = self.outputs(weights), self.pairs
        for mask in HELD_OUT:
            positives = np.asarray(pairs.positives[mask], np.int64)
            common = np.asarray(pairs.negatives.get(mask, np.zeros((0, 2))), np.int64)
            of, kinds = self._relations[mask], pairs.relations.get(f"{mask}_negatives")
            told = kinds is not None and tells_relations(self.task)
            best = ranked = self.scores(weights, positives, of, rows)
            others = self.scores(weights, common, np.array(kinds, int) if told else None, rows)
            among, candidates = None, self._ranked(mask, positives)
            if self.task.ranked == FILTERED:
                ranked, among = self._filtered(weights, mask, rows)
            elif candidates is not None and len(positives):
                of_ranked = np.repeat(of, candidates.shape[1])
                among = self.scores(weights, candidates.reshape(-1, 2), of_ranked, rows)
                among = among.reshape(len(positives), -1)
            for metric in chosen_metrics(self.task):
                own = ranked if metric == "mrr" or hits_of(metric) else best
                found[f"{mask}_{metric}"] = score_pairs(metric, own, others, among)
        return found

    def _filtered(
        self, weights: Weights, mask: str, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The scores of positives, and of each with all vertices in place of its ends.

        (2m,) and (2m, n); those of known pairs are −∞, and of vertices of another type.
        """
        pairs, graph, known = self.pairs, self._whole, set()
        listed: dict[str, Any] = dict(pairs.relations)
        for name, ends in pairs.positives.items():
            known |= set(_triples(ends, listed.get(name, np.zeros(len(ends), int))))
        if graph.arc_type is not None or not pairs.relations:
            source = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
            listed_kinds: Any = graph.arc_type if pairs.relations else np.zeros(graph.nnz, int)
            known |= set(_triples(np.column_stack([source, graph.indices]), listed_kinds))
        if not pairs.directed:
            known |= {(v, u, r) for u, v, r in known}
        positives = np.asarray(pairs.positives[mask], int)
        relations = np.asarray(listed.get(mask, np.zeros(len(positives), int)), int)
        of, every = self._relations[mask], np.arange(graph.n)
        types = graph.vertex_types
        kinds = [0] * graph.n if types is None else [t for t in types.names for _ in types.range(t)]
        best, among = [], []
        for end in (0, 1):
            for i, (pair, relation) in enumerate(zip(positives, relations, strict=True)):
                others = np.repeat(pair[np.newaxis], graph.n, axis=0)
                others[:, 1 - end] = every
                kinds_of = np.full(graph.n, of[i])
                of_both = np.vstack((pair, others)), np.append(of[i], kinds_of)
                scores = self.scores(weights, *of_both, rows)
                same = np.full(graph.n, relation)
                scores[1:][[each in known for each in _triples(others, same)]] = -np.inf
                scores[1:][[kind != kinds[pair[1 - end]] for kind in kinds]] = -np.inf
                best.append(scores[0])
                among.append(scores[1:])
        return np.array(best), np.array(among).reshape(len(best), graph.n)

    def _ranked(self, mask: str, positives: np.ndarray) -> np.ndarray | None:
        """The pairs that each positive is ranked among, (m, C, 2); None: the common negatives."""
        given = self.pairs.candidates.get(mask)
        if given is None and not self.pairs.drawn:
            return None
        if given is None:
            some, n, types = slice(0, len(positives)), self.graph.n, self.graph.vertex_types
            given = drawn_candidates(self.pairs, mask, some, n, types)
        found = np.repeat(positives[:, np.newaxis], given.shape[1], axis=1)
        for c in range(given.shape[1]):
            first = self.pairs.replaced == "both" and c >= given.shape[1] // 2
            found[:, c, 0 if first else 1] = given[:, c]
        return found

    def _decoded(
        self,
        rows: np.ndarray,
        pairs: np.ndarray,
        relations: np.ndarray,
        keys: np.ndarray,
        weights: Weights,
        step: int | None,
    ) -> Passed:
        """The pass of the decoder over pairs, from rows of vertices."""
        none = np.zeros((len(pairs), 0))
        arcs = ArcRows(len(rows), pairs[:, 0], pairs[:, 1], keys, none, relations, pairs[:, 0])
        run = Pass(self.rows.matrix, arcs, self.config.train.seed, step, {}, True)
        return Passed.of(self.decoder, rows, weights, run, {VERTICES: None, ARCS: keys})


def of_links(stored: StoredGraph, direction: str, config: Config) -> Serial:
    """The twin of a task on pairs."""
    assert stored.pairs is not None
    return LinkProblem(stored.graph, stored.pairs, direction, config)


def training_graph(graph: Graph, pairs: PairSet | None) -> Graph:
    """The graph without the arcs that are held out, where there are pairs."""
    if pairs is None:
        return graph
    kinds = np.zeros(graph.nnz, int) if graph.arc_type is None else graph.arc_type
    if pairs.relations and graph.arc_type is not None:
        return _without(graph, _edges_of(pairs, "val") | _edges_of(pairs, "test"), kinds)
    back = {twin.other for twin in pairs.twins or () if twin.turned}
    ends = {pair for mask in ("val", "test") for pair in _listed(pairs.positives[mask])}
    ends |= set() if pairs.directed else {(v, u) for u, v in ends}
    source = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    every = _triples(np.column_stack([source, graph.indices]), kinds)
    held = {(u, v, r) for u, v, r in every if (u, v) in ends or (r in back and (v, u) in ends)}
    return _without(graph, held, kinds)


def _edges_of(pairs: PairSet, mask: str, numbers: np.ndarray | None = None) -> set[_Pair]:
    """(u, v, relation) of some positives and of all arcs that leave with them; one relation: 0."""
    some = np.arange(len(pairs.positives[mask])) if numbers is None else numbers
    kinds = pairs.relations.get(mask)
    relations = np.zeros(len(some), int) if kinds is None else kinds[some]
    found = set[_Pair]()
    for u, v, r in _triples(pairs.positives[mask][some], relations):
        ways = [(u, v)] if pairs.directed else [(u, v), (v, u)]
        for first, second in ways:
            found.add((first, second, r))
            for relation, other, turned in pairs.twins or ():
                if kinds is None or relation == r:
                    ends = (second, first) if turned else (first, second)
                    found.add((*ends, other))
    return found


def _without(graph: Graph, gone: Collection[_Pair], kinds: np.ndarray | None = None) -> Graph:
    """The graph without some arcs, (u, v), or (u, v, kind) with the ``kinds`` of arcs."""
    source = np.repeat(np.arange(graph.n), np.diff(graph.indptr)).tolist()
    columns = [source, np.asarray(graph.indices).tolist()]
    columns += [] if kinds is None else [np.asarray(kinds).tolist()]
    stay = np.array([arc not in gone for arc in zip(*columns, strict=True)], bool)
    counts = np.bincount(np.array(source, int)[stay], minlength=graph.n)
    indptr = np.concatenate(([0], np.cumsum(counts)))
    weights, features, relations = (
        None if array is None else np.asarray(array)[stay]
        for array in (graph.weights, graph.arc_data.features, graph.arc_type)
    )
    left = {"indptr": indptr, "indices": np.asarray(graph.indices)[stay], "weights": weights}
    data = ArcData(features=features)
    return replace(graph, **left, arc_data=data, arc_type=relations)  # type: ignore[arg-type]


def _loss(
    objective: str, positives: np.ndarray, negatives: np.ndarray, counts: np.ndarray, k: int
) -> tuple[float, np.ndarray]:
    """The mean loss of positives, and its derivative by all scores."""
    m, total = len(positives), 0.0
    slopes = np.zeros(m + len(negatives))
    for i, s in enumerate(positives.tolist()):
        places = [j for j in range(i * k, i * k + k) if counts[j]]
        others = [float(negatives[j]) for j in places]
        if objective == "bce":
            total += math.log1p(math.exp(-s))
            slopes[i] = -1 / (1 + math.exp(s))
            for j, z in zip(places, others, strict=True):
                total += math.log1p(math.exp(z)) / k
                slopes[m + j] = 1 / (1 + math.exp(-z)) / k
        elif objective == "softmax":
            whole = math.fsum(math.exp(x) for x in (s, *others))
            total += math.log(whole) - s
            slopes[i] = math.exp(s) / whole - 1
            for j, z in zip(places, others, strict=True):
                slopes[m + j] = math.exp(z) / whole
        else:
            for j, z in zip(places, others, strict=True):
                total += (1 - s + z) ** 2 / k
                slopes[i] -= 2 * (1 - s + z) / k
                slopes[m + j] = 2 * (1 - s + z) / k
    return total / m, slopes / m


def _listed(pairs: np.ndarray) -> list[_Pair]:
    return [(int(u), int(v)) for u, v in pairs]


def _triples(pairs: np.ndarray, relations: np.ndarray) -> list[_Pair]:
    return [(int(u), int(v), int(r)) for (u, v), r in zip(pairs, relations, strict=True)]
