"""The oracle: any network in one process, in SciPy and float64, written from the formulas.

A distributed run must equal it. It takes the network's description, the matrix M, the initial
parameters and the hash behind dropout from this program, and nothing else: values and gradients of
operators come from :mod:`gcnmpi.proof.rules`, losses from :mod:`gcnmpi.proof.losses`, optimizers
and learning rates from :mod:`gcnmpi.proof.updates`. It is short rather than fast, and keeps every
matrix of a pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from gcnmpi.nn.describe import graph_of, network_of
from gcnmpi.nn.initial import initial
from gcnmpi.nn.network import Network
from gcnmpi.options.config import Config
from gcnmpi.options.task import LinkOptions, chosen_metrics
from gcnmpi.proof.arcs import GROUPS, OF_TYPE, arcs_of, rows_of
from gcnmpi.proof.losses import labels_of, loss_of
from gcnmpi.proof.passes import ArcRows, Backward, Pass
from gcnmpi.proof.rules import RULES, reads_values
from gcnmpi.proof.scores import score
from gcnmpi.proof.updates import UPDATES, Weights, clipped, rate, without_noise
from partition.graph.aggregation import aggregation_matrix
from partition.graph.graph import ARCS, UNLABELLED, VERTICES, Graph, examples_of

FEATURES = "0.features"  # among them where they are trained, (n, width)


@dataclass(frozen=True)
class Curve:
    """The results of a serial run."""

    losses: list[float]  # of each epoch, before its update, with its dropout, without weight decay
    gradient: Weights  # of the loss at the initial weights, with the dropout of epoch 1
    weights: Weights  # after the last epoch, with running moments
    # (vertices or arcs, columns) float64, with the final weights, in an evaluation
    logits: np.ndarray
    matrix: sp.csr_array  # M, (n, n)


def train(graph: Graph, direction: str, config: Config, epochs: int) -> Curve:
    """Train ``epochs`` epochs on the whole graph, whatever ``config.train.epochs`` says.

    The graph has features and labels, and the masks of one split; M has the given direction, "in"
    or "out". ``graph``, ``model``, ``task`` and ``train`` of the configuration are obeyed, but for
    the end of training; dtype, kernel, scheme, the order of the products and caching are not.
    """
    problem = Problem(graph, direction, config)
    weights = problem.initial()
    update = UPDATES[config.train.optimizer](config.train, problem.first_layer)
    losses: list[float] = []
    first: Weights = {}
    values: list[float | None] = []
    for epoch in range(1, epochs + 1):
        loss, gradient, moments = problem.gradient(weights, epoch)
        losses.append(loss)
        gradient = without_noise(gradient, loss)
        first = first or gradient
        metric = chosen_metrics(config.task)[0]
        lr = rate(config.train, epoch, values, metric in ("mae", "rmse"))
        weights = update(weights, clipped(config.train, gradient), lr) | moments
        if config.train.schedule == "plateau":
            values.append(problem.validation(metric, weights))
    return Curve(losses, first, weights, problem.logits(weights), problem.matrix)


def inputs(graph: Graph) -> np.ndarray:
    """The features, or those of each type of vertices side by side, 0 in rows of other types."""
    if graph.features is not None:
        return np.asarray(graph.features, np.float64)
    assert graph.vertex_types is not None
    columns = [
        np.pad(x, ((own.start, graph.n - own.stop), (0, 0)))
        for name, x in graph.type_features.items()
        for own in [graph.vertex_types.range(name)]
    ]
    return np.hstack(columns).astype(np.float64)


class Rows:
    """The rows that a network gives to a graph's vertices and arcs, at any weights.

    The network is the one that the configuration asks for, or another one that is given, with
    logits of so many columns. ``first_layer`` are the names of the parameters of the first layer.
    """

    def __init__(
        self,
        graph: Graph,
        direction: str,
        config: Config,
        width: int = 0,
        network: Network | None = None,
    ) -> None:
        self.config, options = config, graph_of(config)
        self.features = inputs(graph)
        if options.feature_norm == "row":
            sums = self.features.sum(axis=1, keepdims=True)
            self.features = self.features / np.where(sums == 0, np.inf, sums)
        task, model = config.task, config.model
        if isinstance(task, LinkOptions):
            width = task.width or (64, *getattr(model, "hidden", ()))[-1]
        ends = self.features.shape[1], width, graph.arc_data.width, task, graph.schema
        self.network = network or network_of(model, *ends)
        # Values that nobody reads are not asked for: M of a network without products with it.
        normalize = options.normalize if reads_values(self.network.operators) else "none"
        self.matrix = aggregation_matrix(graph, direction, options.self_loops, normalize)
        of_arcs = graph.arc_data.features, graph.arc_type
        one_loop = self.network.one_loop
        self.arcs = ArcRows.of(graph, direction, options.self_loops, *of_arcs, one_loop)
        parameters = self.network.parameters
        self.first_layer = {name for name, p in parameters.items() if p.layer == 1}

    def initial(self) -> Weights:
        """All parameters before the first epoch."""
        parameters = self.network.parameters
        degrees, seed = self.arcs.degrees, self.config.train.seed
        weights = {
            name: initial(p, seed, lambda of: float(of(degrees).mean()))
            for name, p in parameters.items()
        }
        if self.config.model.train_features:
            weights[FEATURES] = self.features
        return weights

    def forward(
        self, weights: Mapping[str, np.ndarray], epoch: int | None
    ) -> tuple[list[np.ndarray], list[Backward], Weights]:
        """Value and backward function of every operator."""
        seed = self.config.train.seed
        of_vertices = Pass(self.matrix, self.arcs, seed, epoch, {}, FEATURES in weights)
        keys = {VERTICES: None, ARCS: self.arcs.keys, GROUPS: self.arcs.group_keys}
        if (of_type := self.network.type) is not None:
            keys[OF_TYPE] = np.flatnonzero(self.arcs.of_type(of_type))
        values, rows = [weights.get(FEATURES, self.features)], [VERTICES]
        backwards: list[Backward] = [lambda g: ([], {})]
        for operator in self.network.operators[1:]:
            inputs = [values[i] for i in operator.inputs]
            given = [rows[i] for i in operator.inputs]
            rows.append(rows_of(operator, given))
            arcs = arcs_of(operator, self.arcs, [*given, rows[-1]])
            run = replace(of_vertices, arcs=arcs, keys=keys[rows[-1]])
            value, backward = RULES[type(operator)](operator, inputs, weights, run)
            values.append(value)
            backwards.append(backward)
        return values, backwards, of_vertices.moments

    def backward(
        self,
        backwards: Sequence[Backward],
        values: Sequence[np.ndarray],
        grad: np.ndarray,
        weights: Mapping[str, np.ndarray],
    ) -> Weights:
        """The gradient of the trained parameters, from that of the last value."""
        grads = [np.zeros_like(value) for value in values]
        grads[-1] = grad
        operators = self.network.operators
        read = {name for operator in operators for name in operator.parameters}
        trained = {n for n, p in self.network.parameters.items() if p.trained and n in read}
        gradient = {name: np.zeros_like(weights[name]) for name in weights if name in trained}
        for number in range(len(operators) - 1, 0, -1):
            inputs, parameters = backwards[number](grads[number])
            for source, share in zip(operators[number].inputs, inputs, strict=True):
                grads[source] = grads[source] + share
            for name, share in parameters.items():
                if name in trained:
                    gradient[name] = gradient[name] + share
        if FEATURES in weights:
            gradient[FEATURES] = grads[0]
        return gradient


class Problem(Rows):
    """A network on a graph: its loss, gradient and logits at any weights, as :class:`Rows`."""

    def __init__(
        self, graph: Graph, direction: str, config: Config, network: Network | None = None
    ) -> None:
        examples = examples_of(graph, config.task.on)
        self._labels, self._loss = labels_of(examples, config.task), loss_of(examples, config.task)
        self._validation = examples.masks.get("val", np.zeros(examples.n, bool))
        width = examples.classes if self._labels.ndim == 1 else self._labels.shape[1]
        super().__init__(graph, direction, config, width, network)
        # The rows of the output that have labels, in the order of the graph.
        self._rows = self.arcs.places if config.task.on == ARCS else np.arange(graph.n)

    def gradient(
        self, weights: Mapping[str, np.ndarray], epoch: int
    ) -> tuple[float, Weights, Weights]:
        """Loss, its gradient and the next running moments, with the dropout of an epoch.

        The gradient is that of the trained parameters, without weight decay.
        """
        values, backwards, moments = self.forward(weights, epoch)
        loss, of_rows = self._loss(values[-1][self._rows])
        grad = np.zeros_like(values[-1])
        grad[self._rows] = of_rows
        return loss, self.backward(backwards, values, grad, weights), moments

    def logits(self, weights: Mapping[str, np.ndarray]) -> np.ndarray:
        """The output of an evaluation, (n, columns); of arcs, those of the graph in its order."""
        return self.forward(weights, None)[0][-1][self._rows]

    def validation(self, metric: str, weights: Mapping[str, np.ndarray]) -> float | None:
        """A metric of what is to be validated, in an evaluation."""
        some = np.array(self._validation)
        if self._labels.ndim == 1:
            some &= self._labels != UNLABELLED
        return score(metric, self.logits(weights)[some], self._labels[some])
