"""The oracle: any network in one process, in SciPy and float64, written from the formulas.

A distributed run must equal it. It takes the network's description, the matrix M, the initial
parameters and the hash behind dropout from this program, and nothing else: values and gradients of
operators come from :mod:`gcnmpi.proof.rules`, losses from :mod:`gcnmpi.proof.losses`, optimizers
and learning rates from :mod:`gcnmpi.proof.updates`. It is short rather than fast, and keeps every
matrix of a pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from gcnmpi.nn.describe import graph_of, network_of
from gcnmpi.nn.initial import initial
from gcnmpi.nn.network import Network
from gcnmpi.options.config import Config
from gcnmpi.options.task import LOWER_IS_BETTER, chosen_metrics
from gcnmpi.proof.losses import labels_of, loss_of
from gcnmpi.proof.passes import GROUPS, OF_TYPE, ArcRows, Backward, Pass, arcs_of, rows_of
from gcnmpi.proof.rules import RULES, reads_values
from gcnmpi.proof.scores import score
from gcnmpi.proof.updates import UPDATES, Weights, clipped, rate, without_noise
from partition.graph.aggregation import aggregation_matrix
from partition.graph.graph import ARCS, UNLABELLED, VERTICES, Graph, examples_of
from partition.graph.store import StoredGraph

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


class Serial(ABC):
    """A task in one process: what a run of it has to equal.

    Attributes
    ----------
    rows : Rows
        The network, and the rows that it gives.
    batches : int
        Updates of an epoch.
    exact : bool
        Whether metrics of a run are those of its outputs; else near those of the serial run.
    of_classes : bool
        Whether a row is of one class, that of its largest output.
    """

    rows: Rows
    batches = 1
    exact = True
    of_classes = False

    @abstractmethod
    def gradient(
        self, weights: Weights, epoch: int, batch: int = 0
    ) -> tuple[float, Weights, Weights]:
        """Loss of a batch, its gradient and the next running moments, with the epoch's dropout.

        The gradient is that of the trained parameters, without weight decay.
        """

    @abstractmethod
    def outputs(self, weights: Weights) -> np.ndarray:
        """The output of an evaluation, (rows, columns)."""

    @abstractmethod
    def metrics(
        self, weights: Weights, outputs: np.ndarray | None = None
    ) -> dict[str, float | None]:
        """The metrics that are configured; of these outputs, if they are given."""

    def share(self, batch: int) -> float:
        """The share of a batch in the loss of an epoch."""
        return 1 / self.batches


def train(serial: Serial, epochs: int) -> Curve:
    """Train so many epochs, whatever ``train.epochs`` says.

    ``graph``, ``model``, ``task`` and ``train`` of the configuration are obeyed, but for the end of
    training; dtype, kernel, scheme, the order of the products and caching are not.
    """
    config = serial.rows.config.train
    metric = chosen_metrics(serial.rows.config.task)[0]
    weights, update = serial.rows.initial(), UPDATES[config.optimizer]
    step = update(config, serial.rows.first_layer)
    losses: list[float] = []
    first: Weights = {}
    values: list[float | None] = []
    for epoch in range(1, epochs + 1):
        lr, total = rate(config, epoch, values, metric in LOWER_IS_BETTER), 0.0
        for batch in range(serial.batches):
            loss, gradient, moments = serial.gradient(weights, epoch, batch)
            gradient = without_noise(gradient, loss)
            first = first or gradient
            total += loss * serial.share(batch)
            weights = step(weights, clipped(config, gradient), lr) | moments
        losses.append(total)
        if config.schedule == "plateau":
            values.append(serial.metrics(weights)[f"val_{metric}"])
    return Curve(losses, first, weights, serial.outputs(weights), serial.rows.matrix)


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
        ends = self.features.shape[1], width, graph.arc_data.width, config.task, graph.schema
        self.network = network or network_of(config.model, *ends)
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

    def forward(self, weights: Weights, epoch: int | None) -> tuple[Passed, Weights]:
        """A pass over the network, and the next running moments."""
        seed, arcs = self.config.train.seed, self.arcs
        run = Pass(self.matrix, arcs, seed, epoch, {}, FEATURES in weights)
        keys = {VERTICES: None, ARCS: arcs.keys, GROUPS: arcs.group_keys}
        if (of_type := self.network.type) is not None:
            keys[OF_TYPE] = np.flatnonzero(arcs.of_type(of_type))
        first = weights.get(FEATURES, self.features)
        return Passed.of(self.network, first, weights, run, keys), run.moments


@dataclass(frozen=True)
class Passed:
    """A pass over the operators of a network: their values, and how gradients go back."""

    network: Network
    weights: Weights
    values: list[np.ndarray]
    backwards: list[Backward]

    @classmethod
    def of(
        cls,
        network: Network,
        first: np.ndarray,
        weights: Weights,
        run: Pass,
        keys: Mapping[str, np.ndarray | None],
    ) -> Passed:
        """The pass from the first value; ``keys`` are those of rows, for dropout."""
        values, rows = [first], [VERTICES]
        backwards: list[Backward] = [lambda g: ([], {})]
        for operator in network.operators[1:]:
            given = [rows[i] for i in operator.inputs]
            rows.append(rows_of(operator, given))
            arcs = arcs_of(operator, run.arcs, [*given, rows[-1]])
            own = replace(run, arcs=arcs, keys=keys[rows[-1]])
            read = [values[i] for i in operator.inputs]
            value, backward = RULES[type(operator)](operator, read, weights, own)
            values.append(value)
            backwards.append(backward)
        return cls(network, weights, values, backwards)

    @property
    def output(self) -> np.ndarray:
        """The value of the last operator."""
        return self.values[-1]

    def back(self, grad: np.ndarray) -> tuple[np.ndarray, Weights]:
        """From the gradient of the output that of the first value, and of trained parameters."""
        grads = [np.zeros_like(value) for value in self.values]
        grads[-1] = grad
        operators, parameters = self.network.operators, self.network.parameters
        read = {name for operator in operators for name in operator.parameters}
        gradient = {
            name: np.zeros_like(self.weights[name])
            for name, one in parameters.items()
            if one.trained and name in read
        }
        for number in range(len(operators) - 1, 0, -1):
            shares, of_parameters = self.backwards[number](grads[number])
            for source, share in zip(operators[number].inputs, shares, strict=True):
                grads[source] = grads[source] + share
            for name, share in of_parameters.items():
                if name in gradient:
                    gradient[name] = gradient[name] + share
        if FEATURES in self.weights:
            gradient[FEATURES] = grads[0]
        return grads[0], gradient


class Problem(Rows, Serial):
    """A network on a graph with labelled rows."""

    def __init__(
        self, graph: Graph, direction: str, config: Config, network: Network | None = None
    ) -> None:
        examples = examples_of(graph, config.task.on)
        self._labels, self._loss = labels_of(examples, config.task), loss_of(examples, config.task)
        known = self._labels != UNLABELLED
        known = known if self._labels.ndim == 1 else np.ones(examples.n, bool)
        self.of_classes = self._labels.ndim == 1
        masks = {name: known & mask for name, mask in examples.masks.items()}
        self._masks, self.rows = {"train": known, **masks}, self
        width = examples.classes if self._labels.ndim == 1 else self._labels.shape[1]
        super().__init__(graph, direction, config, width, network)
        # The rows of the output that have labels, in the order of the graph.
        self._places = self.arcs.places if config.task.on == ARCS else np.arange(graph.n)

    def gradient(
        self, weights: Weights, epoch: int, batch: int = 0
    ) -> tuple[float, Weights, Weights]:
        """Of all labelled rows at once."""
        passed, moments = self.forward(weights, epoch)
        loss, of_rows = self._loss(passed.output[self._places])
        grad = np.zeros_like(passed.output)
        grad[self._places] = of_rows
        return loss, passed.back(grad)[1], moments

    def logits(self, weights: Weights) -> np.ndarray:
        """The output of an evaluation, (n, columns); of arcs, those of the graph in its order."""
        return self.forward(weights, None)[0].output[self._places]

    outputs = logits

    def metrics(
        self, weights: Weights, outputs: np.ndarray | None = None
    ) -> dict[str, float | None]:
        """Of every mask there is."""
        logits = self.logits(weights) if outputs is None else outputs
        return {
            f"{mask}_{metric}": score(metric, logits[some], self._labels[some])
            for mask, some in self._masks.items()
            for metric in chosen_metrics(self.config.task)
        }


def of_rows(stored: StoredGraph, direction: str, config: Config) -> Serial:
    """The twin of a task on labelled rows."""
    return Problem(stored.graph, direction, config)
