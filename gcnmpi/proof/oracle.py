"""The oracle: a GCN in one process, in SciPy and float64, written from the formulas.

What a distributed run must equal. It shares no code with layers, models, loss, optimizers,
kernels and schemes: of this program it takes the matrix M, the initial weights and the hash
behind dropout. It is short rather than fast, and keeps every matrix of a pass.

==========  =====================================================================
forward     T = M·H;  Z = T·W + 1·bᵀ;  H' = dropout(max(Z, 0));  logits: the last Z
loss        mean over the training vertices of log Σ exp(z) − z[label]
backward    G = (softmax(z) − onehot(label)) / count in training rows, else 0;
            dW = Tᵀ·G;  db = Gᵀ·1;  dH = Mᵀ·(G·Wᵀ);  G' = dH ⊙ dropout ⊙ [Z' > 0];
            trained features: dH⁰ ⊙ dropout
==========  =====================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from gcnmpi.core import rng
from gcnmpi.core.config import Config, TrainConfig
from partition.graph.graph import UNLABELLED, Graph, aggregation_matrix

Weights = dict[str, np.ndarray]  # "1.weight" (d_in, d_out), "1.bias" (d_out,), "2.weight" …
KNOWN = ("gcn",)  # models whose formulas are written here
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
        After the last epoch.
    logits : (n, classes) float64
        Logits with the final weights, without dropout.
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
    network = Network(graph, direction, config)
    weights = initial_weights(network.widths, config)
    if config.model.train_features:
        weights[FEATURES] = network.features
    update = UPDATES[config.train.optimizer](config.train)
    losses: list[float] = []
    first: Weights = {}
    for epoch in range(1, epochs + 1):
        loss, gradient = network.gradient(weights, epoch)
        losses.append(loss)
        first = first or gradient
        weights = update(weights, gradient)
    return Curve(losses, first, weights, network.logits(weights), network.matrix)


def initial_weights(widths: tuple[int, ...], config: Config) -> Weights:
    """Glorot weights from (seed, layer), biases 0."""
    weights = {}
    for k, (d_in, d_out) in enumerate(pairwise(widths), start=1):
        weights[f"{k}.weight"] = rng.glorot(config.train.seed, k, d_in, d_out)
        if config.model.bias:
            weights[f"{k}.bias"] = np.zeros(d_out)
    return weights


class Network:
    """M, H⁰, labels and training vertices of a graph; loss, gradient and logits at any weights.

    Attributes
    ----------
    widths : tuple of int
        Widths of H⁰ … Hᴸ.
    """

    def __init__(self, graph: Graph, direction: str, config: Config) -> None:
        assert graph.features is not None
        assert graph.labels is not None
        self.config, options = config, config.graph
        self.matrix = aggregation_matrix(graph, direction, options.self_loops, options.normalize)
        self.features = np.asarray(graph.features, np.float64)
        if options.feature_norm == "row":
            sums = self.features.sum(axis=1, keepdims=True)
            self.features = self.features / np.where(sums == 0, np.inf, sums)
        labels = np.asarray(graph.labels)
        self.train = np.flatnonzero(graph.masks.get("train", True) & (labels != UNLABELLED))
        self.labels = labels[self.train]
        self.widths = (self.features.shape[1], *config.model.hidden, graph.classes)
        self.depth = len(self.widths) - 1

    def gradient(self, weights: Weights, epoch: int) -> tuple[float, Weights]:
        """Loss and its gradient, without weight decay, with the dropout of an epoch."""
        aggregates, outputs, masks = self._forward(weights, epoch)
        count = len(self.train)
        z = outputs[-1][self.train]
        exponentials = np.exp(z - z.max(axis=1, keepdims=True))
        softmax = exponentials / exponentials.sum(axis=1, keepdims=True)
        right = np.arange(count), self.labels
        # −log softmax from the shifted exponentials would be −log 0 for a hopeless label.
        logsumexp = z.max(axis=1) + np.log(exponentials.sum(axis=1))
        loss = float(np.sum(logsumexp - z[right]) / count)

        softmax[right] -= 1
        grad = np.zeros_like(outputs[-1])
        grad[self.train] = softmax / count
        gradient = {}
        for k in range(self.depth, 0, -1):
            gradient[f"{k}.weight"] = aggregates[k - 1].T @ grad
            if self.config.model.bias:
                gradient[f"{k}.bias"] = grad.sum(axis=0)
            if k > 1 or FEATURES in weights:
                grad = self.matrix.T @ (grad @ weights[f"{k}.weight"].T) * masks[k - 1]
                if k > 1:
                    grad = grad * (outputs[k - 2] > 0)
        if FEATURES in weights:
            gradient[FEATURES] = grad
        return loss, gradient

    def logits(self, weights: Weights) -> np.ndarray:
        """Output of the last layer without dropout, (n, classes)."""
        return self._forward(weights, None)[1][-1]

    def _forward(self, weights: Weights, epoch: int | None) -> tuple[list, list, list]:
        """T and Z of every layer, and what dropout multiplied each layer's input with."""
        aggregates, outputs, masks = [], [], []
        h = weights.get(FEATURES, self.features)
        for k in range(1, self.depth + 1):
            masks.append(self._dropout(k - 1, epoch))
            aggregates.append(self.matrix @ (h * masks[-1]))
            outputs.append(aggregates[-1] @ weights[f"{k}.weight"] + weights.get(f"{k}.bias", 0.0))
            h = np.maximum(outputs[-1], 0)
        return aggregates, outputs, masks

    def _dropout(self, k: int, epoch: int | None) -> Any:
        """1 / (1 − p) where an entry of Hᵏ is kept and 0 where it is dropped."""
        p = self.config.model.dropout if k else self.config.model.input_dropout
        if epoch is None or p == 0:
            return 1.0
        rows = rng.row_keys(self.config.train.seed, epoch, k, np.arange(len(self.features)))
        columns = rng.column_keys(np.arange(self.widths[k]))
        hashes = np.empty((len(rows), len(columns)), np.uint32)
        rng.hash_block(rows, columns, hashes, np.empty_like(hashes))
        return (hashes >= rng.threshold(p)) / (1 - p)


def _decayed(config: TrainConfig, weights: Weights, gradient: Weights, name: str) -> np.ndarray:
    if config.weight_decay_layers == "first" and not name.startswith("1."):
        return gradient[name]
    return gradient[name] + config.weight_decay * weights[name]


def _sgd(config: TrainConfig) -> Callable[[Weights, Weights], Weights]:
    """``torch.optim.SGD``: v = μ·v + g; p = p − lr·v."""
    velocity: Weights = {}

    def update(weights: Weights, gradient: Weights) -> Weights:
        for name in weights:
            g = _decayed(config, weights, gradient, name)
            velocity[name] = config.momentum * velocity.get(name, 0.0) + g
        return {name: p - config.lr * velocity[name] for name, p in weights.items()}

    return update


def _adam(config: TrainConfig) -> Callable[[Weights, Weights], Weights]:
    """``torch.optim.Adam``: p = p − lr·m̂ / (√v̂ + ε), m̂ = m/(1−β₁ᵗ), v̂ = v/(1−β₂ᵗ)."""
    first: Weights = {}
    second: Weights = {}
    (beta1, beta2), t = config.betas, 0

    def update(weights: Weights, gradient: Weights) -> Weights:
        nonlocal t
        t += 1
        new = {}
        for name, p in weights.items():
            g = _decayed(config, weights, gradient, name)
            first[name] = beta1 * first.get(name, 0.0) + (1 - beta1) * g
            second[name] = beta2 * second.get(name, 0.0) + (1 - beta2) * g**2
            m, v = first[name] / (1 - beta1**t), second[name] / (1 - beta2**t)
            new[name] = p - config.lr * m / (np.sqrt(v) + config.eps)
        return new

    return update


UPDATES = {"sgd": _sgd, "adam": _adam}
