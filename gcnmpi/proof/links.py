"""A part of the oracle: link prediction in one process, in float64, written from the formulas.

It takes from the trainer which pairs hashes draw, as it takes those of dropout, and nothing else:
arcs leave the graph in a loop over its arcs, the decoder is evaluated by the oracle's own rules,
losses are written out for one positive after the other, and metrics count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gcnmpi.nn.tasks.drawing import drawer_of
from gcnmpi.nn.tasks.links import with_relations
from gcnmpi.options.config import Config
from gcnmpi.options.task import LinkOptions, chosen_metrics, hits_of, ranks_all, tells_relations
from gcnmpi.proof import oracle
from gcnmpi.proof.arcs import rows_of
from gcnmpi.proof.passes import ArcRows, Backward, Pass
from gcnmpi.proof.rules import RULES
from gcnmpi.proof.updates import UPDATES, Weights, clipped, rate, without_noise
from partition.graph.graph import ARCS, VERTICES, ArcData, Graph
from partition.graph.vertex_pairs import PairSet, drawn_candidates

Pair = tuple[int, ...]
EQUAL = 1e-11  # how far apart scores are that count as equal


class LinkProblem:
    """The loss of a step, and scores, at any weights of the network and its decoder."""

    def __init__(self, graph: Graph, pairs: PairSet, direction: str, config: Config) -> None:
        config = with_relations(config, pairs)
        task = config.task
        assert isinstance(task, LinkOptions)
        self.config, self.task, self.pairs, self._direction = config, task, pairs, direction
        self._whole, self.graph = graph, training_graph(graph, pairs)
        self.rows = oracle.Rows(self.graph, direction, config)
        self.drawer = drawer_of(task, pairs, graph.n, config.train.seed, graph.vertex_types)
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

    def gradient(
        self, weights: Mapping[str, np.ndarray], epoch: int, batch: int
    ) -> tuple[float, Weights, Weights]:
        """Loss of a batch, its gradient and the next running moments."""
        drawer, task = self.drawer, self.task
        step = (epoch - 1) * drawer.sampler.batches + batch + 1
        every = np.arange(drawer.sampler.n)
        numbers = every[drawer.batches_of(epoch, every) == batch]
        rows = self.rows
        if task.supervise < 1:
            hidden = {(u, v) for u, v, _ in edges_of(self.pairs, "train", numbers)}
            left = without(self.graph, hidden)
            rows = oracle.Rows(left, self._direction, self.config)
        values, backwards, moments = rows.forward(weights, step)
        drawn = drawer.draw(epoch, batch, numbers)
        of, count = drawn.counts.shape
        pairs = np.concatenate((drawn.pairs, drawn.negatives.reshape(-1, 2)))
        keys = np.concatenate((drawn.keys, drawn.negative_keys.ravel()))
        own = self._relations["train"][numbers]
        relations = np.concatenate((own, np.repeat(own, count)))
        scores, back = self._decoded(values[-1], pairs, relations, keys, weights, step)
        counts = drawn.counts.ravel().copy()
        if task.filter:
            counts &= [each not in self._known for each in _triples(pairs, relations)[of:]]
        loss, slopes = _loss(task.objective, scores[:of], scores[of:], counts, count)
        of_rows, gradient = back(slopes)
        gradient |= rows.backward(backwards, values, of_rows, weights)
        return loss, gradient, moments

    def scores(
        self,
        weights: Mapping[str, np.ndarray],
        pairs: np.ndarray,
        relations: np.ndarray | None = None,
    ) -> np.ndarray:
        """Scores of pairs (m, 2), of relations (m,), in an evaluation."""
        rows = self.rows.forward(weights, None)[0][-1]
        keys, of = np.zeros(len(pairs), np.uint64), np.zeros(len(pairs), int)
        of = of if relations is None else relations
        return self._decoded(rows, pairs, of, keys, weights, None)[0]

    def metrics(self, weights: Mapping[str, np.ndarray]) -> dict[str, float | None]:
        """All metrics of the task, as the trainer names them."""
        found: dict[str, float | None] = {}
        for mask in ("val", "test"):
            positives = np.asarray(self.pairs.positives[mask], np.int64)
            common = np.asarray(self.pairs.negatives.get(mask, np.zeros((0, 2))), np.int64)
            of = self._relations[mask]
            best = self.scores(weights, positives, of)
            kinds = self.pairs.relations.get(f"{mask}_negatives")
            told = kinds is not None and tells_relations(self.task)
            others = self.scores(weights, common, np.array(kinds, int) if told else None)
            ranked, among = self._ranked(mask, positives), None
            if ranks_all(self.task):
                best_of, among = self._filtered(weights, mask)
                for metric in chosen_metrics(self.task):
                    own = best_of if metric == "mrr" or hits_of(metric) else best
                    found[f"{mask}_{metric}"] = metric_of(metric, own, others, among)
                continue
            if ranked is not None and len(positives):
                of_ranked = np.repeat(of, ranked.shape[1])
                among = self.scores(weights, ranked.reshape(-1, 2), of_ranked)
                among = among.reshape(len(positives), -1)
            for metric in chosen_metrics(self.task):
                found[f"{mask}_{metric}"] = metric_of(metric, best, others, among)
        return found

    def _filtered(
        self, weights: Mapping[str, np.ndarray], mask: str
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
                scores = self.scores(weights, np.vstack((pair, others)), np.append(of[i], kinds_of))
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
        weights: Mapping[str, np.ndarray],
        step: int | None,
    ) -> tuple[np.ndarray, Callable[[np.ndarray], tuple[np.ndarray, Weights]]]:
        """Scores of pairs, and from their gradient that of the rows and of parameters."""
        first, second = pairs[:, 0], pairs[:, 1]
        none = np.zeros((len(pairs), 0))
        arcs = ArcRows(len(rows), first, second, keys, none, relations, first)
        of_rows = Pass(self.rows.matrix, arcs, self.config.train.seed, step, {}, True)
        of_pairs = replace(of_rows, keys=keys)
        values, given = [rows], [VERTICES]
        backwards: list[Backward] = [lambda g: ([], {})]
        operators = self.decoder.operators
        for operator in operators[1:]:
            inputs = [values[i] for i in operator.inputs]
            given.append(rows_of(operator, [given[i] for i in operator.inputs]))
            run = of_pairs if given[-1] == ARCS else of_rows
            value, backward = RULES[type(operator)](operator, inputs, weights, run)
            values.append(value)
            backwards.append(backward)

        def back(slopes: np.ndarray) -> tuple[np.ndarray, Weights]:
            grads = [np.zeros_like(value) for value in values]
            grads[-1][:, 0] = slopes
            gradient = {name: np.zeros_like(weights[name]) for name in self.decoder.parameters}
            for number in range(len(operators) - 1, 0, -1):
                shares, parameters = backwards[number](grads[number])
                for source, share in zip(operators[number].inputs, shares, strict=True):
                    grads[source] = grads[source] + share
                for name, share in parameters.items():
                    gradient[name] = gradient[name] + share
            return grads[0], gradient

        return values[-1][:, 0], back


def train(
    graph: Graph, pairs: PairSet, direction: str, config: Config, epochs: int
) -> oracle.Curve:
    """Train as :func:`gcnmpi.proof.oracle.train`; the logits are the rows of vertices."""
    problem = LinkProblem(graph, pairs, direction, config)
    weights, sampler = problem.rows.initial(), problem.drawer.sampler
    update = UPDATES[config.train.optimizer](config.train, problem.rows.first_layer)
    losses: list[float] = []
    first: Weights = {}
    values: list[float | None] = []
    for epoch in range(1, epochs + 1):
        total = 0.0
        lr = rate(config.train, epoch, values, False)
        for batch in range(sampler.batches):
            loss, gradient, moments = problem.gradient(weights, epoch, batch)
            gradient = without_noise(gradient, loss)
            first = first or gradient
            total += loss * sampler.count(batch) / sampler.n
            weights = update(weights, clipped(config.train, gradient), lr) | moments
        losses.append(total)
        if config.train.schedule == "plateau":
            values.append(problem.metrics(weights)[f"val_{chosen_metrics(problem.task)[0]}"])
    rows = problem.rows.forward(weights, None)[0][-1]
    return oracle.Curve(losses, first, weights, rows, problem.rows.matrix)


def training_graph(graph: Graph, pairs: PairSet | None) -> Graph:
    """The graph without the arcs that are held out, where there are pairs."""
    if pairs is None:
        return graph
    kinds = np.zeros(graph.nnz, int) if graph.arc_type is None else graph.arc_type
    if pairs.relations and graph.arc_type is not None:
        return without(graph, edges_of(pairs, "val") | edges_of(pairs, "test"), kinds)
    back = {twin.other for twin in pairs.twins or () if twin.turned}
    ends = {pair for mask in ("val", "test") for pair in _listed(pairs.positives[mask])}
    ends |= set() if pairs.directed else {(v, u) for u, v in ends}
    source = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    every = _triples(np.column_stack([source, graph.indices]), kinds)
    held = {(u, v, r) for u, v, r in every if (u, v) in ends or (r in back and (v, u) in ends)}
    return without(graph, held, kinds)


def edges_of(pairs: PairSet, mask: str, numbers: np.ndarray | None = None) -> set[Pair]:
    """(u, v, relation) of some positives and of all arcs that leave with them; one relation: 0."""
    some = np.arange(len(pairs.positives[mask])) if numbers is None else numbers
    kinds = pairs.relations.get(mask)
    relations = np.zeros(len(some), int) if kinds is None else kinds[some]
    found = set[Pair]()
    for u, v, r in _triples(pairs.positives[mask][some], relations):
        ways = [(u, v)] if pairs.directed else [(u, v), (v, u)]
        for first, second in ways:
            found.add((first, second, r))
            for relation, other, turned in pairs.twins or ():
                if kinds is None or relation == r:
                    ends = (second, first) if turned else (first, second)
                    found.add((*ends, other))
    return found


def without(graph: Graph, gone: Collection[Pair], kinds: np.ndarray | None = None) -> Graph:
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


def metric_of(
    metric: str, positives: np.ndarray, negatives: np.ndarray, among: np.ndarray | None
) -> float | None:
    """A metric of scores, by counting; ``among`` are those of each positive's candidates."""
    if not len(positives):
        return None
    if k := hits_of(metric):
        if among is not None:
            return float(np.mean(ranks_of(positives, among) <= k))
        if len(negatives) < k:
            return 1.0
        return float(np.mean(positives > sorted(negatives.tolist())[-k] + EQUAL))
    if metric == "mrr":
        every = np.tile(negatives, (len(positives), 1)) if among is None else among
        return float(np.mean(1 / ranks_of(positives, every)))
    if not len(negatives):
        return None
    if metric == "auc":
        apart = positives[:, np.newaxis] - negatives
        return float(np.mean((apart > EQUAL) + (abs(apart) <= EQUAL) / 2))
    found = []
    for s in positives:  # precision at the threshold of each positive
        hits, misses = np.sum(positives >= s - EQUAL), np.sum(negatives >= s - EQUAL)
        found.append(hits / (hits + misses))
    return float(np.mean(found))


def ranks_of(positives: np.ndarray, among: np.ndarray) -> np.ndarray:
    """The rank of each positive, (m,), among candidates (m, C), by counting."""
    s = positives[:, np.newaxis]
    return ((among > s + EQUAL).sum(axis=1) + (among >= s - EQUAL).sum(axis=1)) / 2 + 1


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


def _listed(pairs: np.ndarray) -> list[Pair]:
    return [(int(u), int(v)) for u, v in pairs]


def _triples(pairs: np.ndarray, relations: np.ndarray) -> list[Pair]:
    return [(int(u), int(v), int(r)) for (u, v), r in zip(pairs, relations, strict=True)]
