"""The oracle: any network in one process, in SciPy and float64, written from the formulas.

What a distributed run must equal. It takes the network's description, the matrix M, the initial
parameters and the hash behind dropout from this program, and nothing else: values and gradients of
operators come from :mod:`gcnmpi.proof.rules`, loss and optimizers from here. It is short rather
than fast, and keeps every matrix of a pass.

The loss is the mean over the training vertices of log Σ exp(z) − z[label], and its gradient with
respect to the logits (softmax(z) − onehot(label)) / count in training rows, else 0.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.config import Config, TrainConfig
from gcnmpi.nn.describe import graph_of, network_of
from gcnmpi.nn.initial import initial
from gcnmpi.nn.network import Network
from gcnmpi.proof.rules import RULES, Backward, Pass
from partition.graph.graph import UNLABELLED, Graph, aggregation_matrix

Weights = dict[str, np.ndarray]  # by the names and with the shapes of the network's parameters
FEATURES = "0.features"  # among them where they are trained, (n, width)


@dataclass(frozen=True)
class Curve:
    """What a serial run gave.

    Attributes
    ----------
    losses : list of float
        Loss of each epoch, before its update, with its dropout, without weight decay.
    gradient : mapping of str to array
        Gradient of the loss at the initial weights, with the dropout of epoch 1.
    weights : mapping of str to array
        After the last epoch, with running moments.
    logits : (n, classes) float64
        Logits with the final weights, in an evaluation.
    matrix : (n, n) csr_array
        M.
    """

    losses: list[float]
    gradient: Weights
    weights: Weights
    logits: np.ndarray
    matrix: sp.csr_array


def train(graph: Graph, direction: str, config: Config, epochs: int) -> Curve:
    """Train ``epochs`` epochs on the whole graph, whatever ``config.train.epochs`` says.

    Parameters
    ----------
    graph : Graph
        With features and labels.
    direction : {"in", "out"}
        The direction of M.
    config : Config
        ``graph``, ``model`` and ``train`` are obeyed; dtype, kernel, scheme, the order of the
        products and caching are not.
    """
    problem = Problem(graph, direction, config)
    weights = problem.initial()
    update = UPDATES[config.train.optimizer](config.train, problem.first_layer)
    losses: list[float] = []
    first: Weights = {}
    for epoch in range(1, epochs + 1):
        loss, gradient, moments = problem.gradient(weights, epoch)
        losses.append(loss)
        first = first or gradient
        weights = update(weights, gradient) | moments
    return Curve(losses, first, weights, problem.logits(weights), problem.matrix)


class Problem:
    """A network on a graph: its loss, gradient and logits at any weights.

    Parameters
    ----------
    network : Network, optional
        Another one than the configuration asks for.

    Attributes
    ----------
    network : Network
    matrix : (n, n) csr_array
        M.
    first_layer : set of str
        The parameters of the first layer.
    """

    def __init__(
        self, graph: Graph, direction: str, config: Config, network: Network | None = None
    ) -> None:
        assert graph.features is not None
        assert graph.labels is not None
        self.config, options = config, graph_of(config)
        self.matrix = aggregation_matrix(graph, direction, options.self_loops, options.normalize)
        self.features = np.asarray(graph.features, np.float64)
        if options.feature_norm == "row":
            sums = self.features.sum(axis=1, keepdims=True)
            self.features = self.features / np.where(sums == 0, np.inf, sums)
        labels = np.asarray(graph.labels)
        self.train = np.flatnonzero(graph.masks.get("train", True) & (labels != UNLABELLED))
        self.labels = labels[self.train]
        ends = self.features.shape[1], graph.classes
        self.network = network or network_of(config.model, *ends)
        parameters = self.network.parameters
        self.first_layer = {name for name, p in parameters.items() if p.layer == 1}

    def initial(self) -> Weights:
        """All parameters before the first epoch."""
        parameters = self.network.parameters
        weights = {name: initial(p, self.config.train.seed) for name, p in parameters.items()}
        if self.config.model.train_features:
            weights[FEATURES] = self.features
        return weights

    def gradient(
        self, weights: Mapping[str, np.ndarray], epoch: int
    ) -> tuple[float, Weights, Weights]:
        """Loss, its gradient and the next running moments, with the dropout of an epoch.

        The gradient is that of the trained parameters, without weight decay.
        """
        values, backwards, moments = self._forward(weights, epoch)
        loss, grad = self._loss(values[-1])
        grads = [np.zeros_like(value) for value in values]
        grads[-1] = grad
        trained = {n for n, p in self.network.parameters.items() if p.trained}
        gradient = {name: np.zeros_like(weights[name]) for name in weights if name in trained}
        operators = self.network.operators
        for number in range(len(operators) - 1, 0, -1):
            inputs, parameters = backwards[number](grads[number])
            for source, share in zip(operators[number].inputs, inputs, strict=True):
                grads[source] = grads[source] + share
            for name, share in parameters.items():
                if name in trained:
                    gradient[name] = gradient[name] + share
        if FEATURES in weights:
            gradient[FEATURES] = grads[0]
        return loss, gradient, moments

    def logits(self, weights: Mapping[str, np.ndarray]) -> np.ndarray:
        """The logits of an evaluation, (n, classes)."""
        return self._forward(weights, None)[0][-1]

    def _forward(
        self, weights: Mapping[str, np.ndarray], epoch: int | None
    ) -> tuple[list[np.ndarray], list[Backward], Weights]:
        """Value and backward function of every operator."""
        run = Pass(self.matrix, self.config.train.seed, epoch, {})
        values = [weights.get(FEATURES, self.features)]
        backwards: list[Backward] = [lambda g: ([], {})]
        for operator in self.network.operators[1:]:
            inputs = [values[i] for i in operator.inputs]
            value, backward = RULES[type(operator)](operator, inputs, weights, run)
            values.append(value)
            backwards.append(backward)
        return values, backwards, run.moments

    def _loss(self, logits: np.ndarray) -> tuple[float, np.ndarray]:
        """Softmax cross-entropy, and its gradient with respect to the logits."""
        count, z = len(self.train), logits[self.train]
        exponentials = np.exp(z - z.max(axis=1, keepdims=True))
        softmax = exponentials / exponentials.sum(axis=1, keepdims=True)
        right = np.arange(count), self.labels
        # −log softmax from the shifted exponentials would be −log 0 for a hopeless label.
        logsumexp = z.max(axis=1) + np.log(exponentials.sum(axis=1))
        softmax[right] -= 1
        grad = np.zeros_like(logits)
        grad[self.train] = softmax / count
        return float(np.sum(logsumexp - z[right]) / count), grad


def _decayed(
    config: TrainConfig, weights: Weights, gradient: Weights, name: str, first: Container[str]
) -> np.ndarray:
    if config.weight_decay_layers == "first" and name not in first:
        return gradient[name]
    of_convs = config.weight_decay_convs if name.startswith("convs.") else 0.0
    return gradient[name] + (of_convs or config.weight_decay) * weights[name]


def _sgd(config: TrainConfig, first: Container[str] = ()) -> Callable[[Weights, Weights], Weights]:
    """``torch.optim.SGD``: v = μ·v + g; p = p − lr·v."""
    velocity: Weights = {}

    def update(weights: Weights, gradient: Weights) -> Weights:
        for name in gradient:
            g = _decayed(config, weights, gradient, name, first)
            velocity[name] = config.momentum * velocity.get(name, 0.0) + g
        return weights | {name: weights[name] - config.lr * velocity[name] for name in gradient}

    return update


def _adam(config: TrainConfig, first: Container[str] = ()) -> Callable[[Weights, Weights], Weights]:
    """``torch.optim.Adam``: p = p − lr·m̂ / (√v̂ + ε), m̂ = m/(1−β₁ᵗ), v̂ = v/(1−β₂ᵗ)."""
    moments: tuple[Weights, Weights] = ({}, {})
    (beta1, beta2), t = config.betas, 0

    def update(weights: Weights, gradient: Weights) -> Weights:
        nonlocal t
        t += 1
        new = dict(weights)
        for name in gradient:
            g = _decayed(config, weights, gradient, name, first)
            for moment, beta, term in zip(moments, config.betas, (g, g**2), strict=True):
                moment[name] = beta * moment.get(name, 0.0) + (1 - beta) * term
            m, v = moments[0][name] / (1 - beta1**t), moments[1][name] / (1 - beta2**t)
            new[name] = weights[name] - config.lr * m / (np.sqrt(v) + config.eps)
        return new

    return update


UPDATES = {"sgd": _sgd, "adam": _adam}
