"""A GCN that shares nothing with this program: dense matrices and PyTorch's autograd, in float64.

The definition of a run, which has to be computed alike, is written here a second time: initial
weights (Glorot, from NumPy's Philox) and the hash behind dropout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from draw import Example

torch.set_num_threads(1)  # beside it, other ranks wait
torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # the first one imports for many seconds
AMBIGUOUS = 1e-11  # values that differ by less, relative to the largest, may be rounding


@dataclass
class Outcome:
    """The right results of a run; ``epochs_certain`` epochs do not hang on a rounding error."""

    losses: list[float] = field(default_factory=list)
    accuracies: list[dict[str, float]] = field(default_factory=list)
    certain: list[bool] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    features: np.ndarray | None = None
    logits: np.ndarray | None = None
    epochs_certain: int = 0


def matrix(example: Example, direction: str, self_loops: bool, normalize: str) -> np.ndarray | None:
    """M as a dense array; None where a symmetric normalisation meets a negative row sum."""
    rows: list[dict[int, float]] = [{} for _ in range(example.n)]
    for source, target, weight in example.arcs:
        row, column = (target, source) if direction == "in" else (source, target)
        rows[row][column] = weight
    if self_loops:
        for i in range(example.n):
            rows[i].setdefault(i, 1.0)
    degree = [math.fsum(row.values()) for row in rows]
    if normalize == "sym" and any(d < 0 for d in degree):
        return None
    dense = np.zeros((example.n, example.n))
    for i, row in enumerate(rows):
        for j, weight in row.items():
            if normalize == "none":
                dense[i, j] = weight
            elif normalize == "row":
                dense[i, j] = weight / degree[i] if degree[i] else 0.0
            elif degree[i] and degree[j]:
                dense[i, j] = weight / math.sqrt(degree[i] * degree[j])
    return dense


def train(example: Example, m: np.ndarray, s: dict) -> Outcome:
    """Train with settings ``s``, a mapping of full names of keys to values."""
    aggregate = torch.from_numpy(m)
    features = example.features.astype(np.float64)
    if s["graph.feature_norm"] == "row":
        sums = features.sum(axis=1)
        features = np.array([x / t if t else x * 0 for x, t in zip(features, sums, strict=True)])
    features = torch.from_numpy(features)
    widths = [features.shape[1], *s["model.hidden"], int(example.labels.max()) + 1]
    layers, depth = [], len(widths) - 1
    for k in range(1, depth + 1):
        generator = np.random.Generator(np.random.Philox(key=[s["train.seed"], k]))
        bound = math.sqrt(6 / (widths[k - 1] + widths[k]))
        weight = torch.from_numpy(generator.uniform(-bound, bound, (widths[k - 1], widths[k])))
        bias = torch.zeros(widths[k], dtype=torch.float64) if s["model.bias"] else None
        layers.append([t.requires_grad_() for t in (weight, bias) if t is not None])
    if s["model.train_features"]:
        features.requires_grad_()
    optimizer = _optimizer(layers, features, s)
    rows = torch.from_numpy(np.flatnonzero(example.training()))
    target = torch.from_numpy(example.labels.astype(np.int64))[rows]

    found, certain = Outcome(), True
    for epoch in range(1, s["train.epochs"] + 1):
        logits, clear = _forward(aggregate, features, layers, s, epoch, widths)
        loss = torch.nn.functional.cross_entropy(logits[rows], target)
        found.losses.append(loss.item())
        if not math.isfinite(loss.item()):
            return found
        found.epochs_certain += certain
        certain &= clear  # a unit at zero has two gradients: the next loss may be another
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            logits, _ = _forward(aggregate, features, layers, s, None, widths)
        _evaluate(found, example, logits.numpy())
    found.logits = logits.numpy()
    found.features = features.detach().numpy() if s["model.train_features"] else None
    for k, (weight, *bias) in enumerate(layers):
        found.weights[f"convs.{k}.lin.weight"] = weight.detach().numpy().T
        if bias:
            found.weights[f"convs.{k}.bias"] = bias[0].detach().numpy()
    found.epochs_certain += certain  # whether the final weights are
    return found


def _optimizer(layers: list, features: torch.Tensor, s: dict) -> torch.optim.Optimizer:
    decay, first_only = s["train.weight_decay"], s["train.weight_decay_layers"] == "first"
    groups = [{"params": layers[0], "weight_decay": decay}]
    others = [t for layer in layers[1:] for t in layer]
    others += [features] if features.requires_grad else []
    if others:
        groups.append({"params": others, "weight_decay": 0.0 if first_only else decay})
    if s["train.optimizer"] == "sgd":
        return torch.optim.SGD(groups, lr=s["train.lr"], momentum=s["train.momentum"])
    options = {"betas": tuple(s["train.betas"]), "eps": s["train.eps"]}
    return torch.optim.Adam(groups, lr=s["train.lr"], **options)


def _forward(aggregate, features, layers, s, epoch, widths):
    """Logits, and whether no unit is so near to zero that rounding decides on its side."""
    h, clear = features, True
    for k, (weight, *bias) in enumerate(layers):
        p = s["model.dropout"] if k else s["model.input_dropout"]
        if epoch is not None and p:
            h = h * torch.from_numpy(kept(s["train.seed"], epoch, k, *h.shape, p) / (1 - p))
        z = aggregate @ h @ weight
        if bias:
            z = z + bias[0]
        if k + 1 < len(layers):
            size = z.detach().abs()
            # Zero is certain of nothing but zeros: other terms may cancel but for their rounding.
            terms = aggregate.abs() @ h.detach().abs() @ weight.detach().abs()
            if bias:
                terms = terms + bias[0].detach().abs()
            clear &= not bool(((terms > 0) & (size < AMBIGUOUS * size.max())).any())
            h = torch.relu(z)
    return z, clear


def kept(seed: int, epoch: int, layer: int, n: int, width: int, p: float) -> np.ndarray:
    """Which entries dropout keeps, (n, width) bool: a hash of what they are, not of who asks."""
    base = seed
    for number in (epoch, layer):
        base = _splitmix(base) ^ number
    base = _splitmix(base)
    keep = np.empty((n, width), bool)
    columns = [_splitmix(j) >> 32 for j in range(width)]
    limit = min(round(p * 2**32), 2**32 - 1)
    for i in range(n):
        key = _splitmix((i * 0x9E3779B97F4A7C15 + base) % 2**64)
        low, high = key % 2**32, key >> 32
        for j, column in enumerate(columns):
            x = low ^ column
            x = ((x ^ (x >> 16)) * 0x7FEB352D + high) % 2**32
            x = ((x ^ (x >> 15)) * 0x846CA68B) % 2**32
            keep[i, j] = (x ^ (x >> 16)) >= limit
    return keep


def _splitmix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)


def _evaluate(found: Outcome, example: Example, logits: np.ndarray) -> None:
    right = logits.argmax(axis=1) == example.labels
    masks = {name: mask & (example.labels >= 0) for name, mask in example.masks.items()}
    masks["train"] = example.training()
    found.accuracies.append(
        {name: right[mask].mean() for name, mask in masks.items() if mask.any()}
    )
    two = np.sort(logits, axis=1)[:, -2:]
    gap = two[:, -1] - two[:, 0] if logits.shape[1] > 1 else np.ones(len(logits))
    found.certain.append(bool((gap > 1e-7 * (1 + np.abs(logits).max())).all()))
