"""The oracle's operators: each one's value and how it passes a gradient on, from its formula.

In NumPy and SciPy, float64, on whole matrices; short rather than fast. The meaning of an operator
is told in :mod:`gcnmpi.nn.operators`; nothing here comes from the gradient rules, kernels and
schemes that are to be checked.

A rule takes (operator, inputs, parameters, epoch) and gives the operator's value and a function:
from the gradient of the loss with respect to that value it makes those with respect to the inputs,
in their order, and to the operator's trained parameters, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import pi, sqrt

import numpy as np
import scipy.sparse as sp

from gcnmpi.core import rng
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.operators.degrees import ScaleByDegree
from gcnmpi.nn.operators.dense import Linear
from gcnmpi.nn.operators.elementwise import (
    Activate,
    Add,
    Bias,
    Columns,
    Drop,
    Fill,
    Join,
    Maximum,
    MeanOfHeads,
    Reciprocal,
    Scale,
    StopGradient,
)
from gcnmpi.nn.operators.neighbours import Aggregate, AggregateT, Attend, AttendV2, MaxAggregate
from gcnmpi.nn.operators.norms import BatchNorm, LayerNorm, Normalize
from gcnmpi.proof.arcs import ARC_RULES
from gcnmpi.proof.passes import Arrays, Backward, Gradients, Pass, summed

EQUAL = 2.0**-37  # what a column of equal numbers deviates by, relative to its mean
CANCELLED = 1e-12  # what is left of a sum of terms that cancel, relative to theirs


def reads_values(operators: Sequence[Operator]) -> bool:
    """Whether any of them multiplies with M, and not only looks at its pattern."""
    return any(isinstance(operator, Aggregate | AggregateT) for operator in operators)


def keeps(
    run: Pass, stream: int, p: float, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray | float:
    """1 / (1 − p) where an entry is kept and 0 where it is dropped, (rows, columns)."""
    if run.epoch is None or p == 0:
        return 1.0
    keys = rng.row_keys(run.seed, run.epoch, stream, rows), rng.column_keys(columns)
    hashes = np.empty((len(rows), len(columns)), np.uint32)
    rng.hash_block(*keys, hashes, np.empty_like(hashes))
    return (hashes >= rng.threshold(p)) / (1 - p)


def _linear(op: Linear, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    weight = w[op.weight]
    return x[0] @ weight, lambda g: ([g @ weight.T], {op.weight: x[0].T @ g})


def _bias(op: Bias, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    return x[0] + w[op.bias], lambda g: ([g], {op.bias: _column_sums(g)})


def _aggregate(op: Aggregate, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    return run.matrix @ x[0], lambda g: ([run.matrix.T @ g], {})


def _aggregate_t(op: AggregateT, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    return run.matrix.T @ x[0], lambda g: ([run.matrix @ g], {})


def _max_aggregate(op: MaxAggregate, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    i, j = _arcs(run.matrix)
    largest, best = np.full(x[0].shape, -np.inf), np.full(x[0].shape, len(x[0]))
    for c in range(op.width):
        np.maximum.at(largest[:, c], i, x[0][j, c])
        attains = x[0][j, c] == largest[i, c]
        np.minimum.at(best[:, c], i[attains], j[attains])
    some = best < len(x[0])

    def backward(g: np.ndarray) -> Gradients:
        dx = np.zeros_like(g)
        np.add.at(dx, (best[some], np.nonzero(some)[1]), g[some])
        return [dx], {}

    return np.where(some, largest, 0.0), backward


def _attend(op: Attend, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    i, j = _arcs(run.matrix)
    source, target = (w[name].reshape(op.heads, -1) for name in op.parameters)
    rows = _by_head(x[0], op.heads)
    scores = [(row @ b)[i] + (row @ a)[j] for row, a, b in zip(rows, source, target, strict=True)]
    attention = [
        Attention(h, op, row, _leaky(e, op.slope), run)
        for h, (row, e) in enumerate(zip(rows, scores, strict=True))
    ]

    def backward(g: np.ndarray) -> Gradients:
        dx, dsource, dtarget = [], [], []
        for h, grad in enumerate(_by_head(g, op.heads)):
            into, de = attention[h].backward(grad)
            de = de * _leaky_slope(scores[h], op.slope)
            dt, ds = (np.bincount(ends, de, len(g)) for ends in (j, i))
            dx.append(into + np.outer(dt, source[h]) + np.outer(ds, target[h]))
            dsource.append(dt @ rows[h])
            dtarget.append(ds @ rows[h])
        vectors = {op.source: np.concatenate(dsource), op.target: np.concatenate(dtarget)}
        return [np.hstack(dx)], vectors

    return np.hstack([a.value for a in attention]), backward


def _attend_v2(op: AttendV2, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    i, j = _arcs(run.matrix)
    sources, targets = (_by_head(each, op.heads) for each in x)
    vectors = w[op.vector].reshape(op.heads, -1)
    sums = [a[j] + b[i] for a, b in zip(sources, targets, strict=True)]
    attention = [
        Attention(h, op, sources[h], _leaky(sums[h], op.slope) @ vectors[h], run)
        for h in range(op.heads)
    ]

    def backward(g: np.ndarray) -> Gradients:
        dsource, dtarget, dvector = [], [], []
        for h, grad in enumerate(_by_head(g, op.heads)):
            into, de = attention[h].backward(grad)
            dvector.append(de @ _leaky(sums[h], op.slope))
            dsum = np.outer(de, vectors[h]) * _leaky_slope(sums[h], op.slope)
            dsource.append(into + summed(dsum, j, len(g)))
            dtarget.append(summed(dsum, i, len(g)))
        return [np.hstack(dsource), np.hstack(dtarget)], {op.vector: np.concatenate(dvector)}

    return np.hstack([a.value for a in attention]), backward


class Attention:
    """One head: y[i] = Σ keep[i, j]·α[i, j]·x[j], with α the softmax of scores of the arcs."""

    def __init__(
        self, head: int, op: Attend | AttendV2, x: np.ndarray, scores: np.ndarray, run: Pass
    ) -> None:
        self._i, self._j = i, j = _arcs(run.matrix)
        self._x, self._keep = x, np.ones(len(i))
        largest = np.full(len(x), -np.inf)
        np.maximum.at(largest, i, scores)
        exponentials = np.exp(scores - largest[i])
        self._alpha = exponentials / np.bincount(i, exponentials, len(x))[i]
        if run.epoch is not None and op.p:
            rows = rng.row_keys(run.seed, run.epoch, op.stream, np.arange(len(x)))[i]
            columns = rng.column_keys(j.astype(np.int64) * op.heads + head)[:, np.newaxis]
            hashes = np.empty((len(i), 1), np.uint32)
            rng.hash_block(rows, columns, hashes, np.empty_like(hashes))
            self._keep = (hashes[:, 0] >= rng.threshold(op.p)) / (1 - op.p)
        weights = (self._alpha * self._keep, run.matrix.indices, run.matrix.indptr)
        self._matrix = sp.csr_array(weights, shape=run.matrix.shape)
        self.value = self._matrix @ x

    def backward(self, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """dL/dx along the sum, and dL/dscores."""
        dalpha = self._keep * np.sum(g[self._i] * self._x[self._j], axis=1)
        mean = np.bincount(self._i, self._alpha * dalpha, len(g))
        return self._matrix.T @ g, self._alpha * (dalpha - mean[self._i])


def _columns(op: Columns, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    around = op.first, x[0].shape[1] - op.first - op.width
    some = x[0][:, op.first : op.first + op.width]
    return some, lambda g: ([np.pad(g, ((0, 0), around))], {})


def _join(op: Join, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    stops = np.cumsum([part.shape[1] for part in x])[:-1]
    return np.hstack(x), lambda g: (np.split(g, stops, axis=1), {})


def _stop_gradient(op: StopGradient, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    return x[0], lambda g: ([np.zeros_like(g)], {})


def _fill(op: Fill, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    return np.full((len(x[0]), op.width), op.value), lambda g: ([np.zeros_like(x[0])], {})


def _reciprocal(op: Reciprocal, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    y = np.divide(1.0, x[0], out=np.zeros_like(x[0]), where=x[0] != 0)
    return y, lambda g: ([-g * y**2], {})


def _mean_of_heads(op: MeanOfHeads, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    y = np.mean(_by_head(x[0], op.heads), axis=0)
    return y, lambda g: ([np.tile(g, op.heads) / op.heads], {})


def _add(op: Add, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    return x[0] + x[1], lambda g: ([g, g], {})


def _scale(op: Scale, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    factor = op.factor + (w[op.epsilon][0] if op.epsilon else 0.0)

    def backward(g: np.ndarray) -> Gradients:
        return [factor * g], {op.epsilon: np.array([np.sum(g * x[0])])} if op.epsilon else {}

    return factor * x[0], backward


def _maximum(op: Maximum, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    first = np.argmax(x, axis=0)
    return np.max(x, axis=0), lambda g: ([np.where(first == i, g, 0) for i in range(len(x))], {})


def _activate(op: Activate, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    z = x[0]
    if op.kind == "prelu":
        slope = w[op.parameter][0]
        below = np.where(z < 0, z, 0)

        def backward(g: np.ndarray) -> Gradients:
            return [_leaky_slope(z, slope) * g], {op.parameter: np.array([np.sum(g * below)])}

        return _leaky(z, slope), backward
    value, slopes = _ACTIVATIONS[op.kind](z, op.slope)
    return value, lambda g: ([slopes * g], {})


def _gelu(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from scipy.special import erf  # takes 0.2 s, which most networks are spared

    below = (1 + erf(z / sqrt(2))) / 2
    return z * below, below + z * np.exp(-(z**2) / 2) / sqrt(2 * pi)


# The value and the slope at z; the third is given a slope below 0.
_ACTIVATIONS: dict[str, Callable[[np.ndarray, float], tuple[np.ndarray, np.ndarray]]] = {
    "relu": lambda z, _: (np.maximum(z, 0), z > 0),
    "elu": lambda z, _: (np.where(z > 0, z, np.expm1(np.minimum(z, 0))), np.exp(np.minimum(z, 0))),
    "leaky_relu": lambda z, slope: (_leaky(z, slope), _leaky_slope(z, slope)),
    "gelu": lambda z, _: _gelu(z),
    "tanh": lambda z, _: (np.tanh(z), 1 / np.cosh(np.minimum(np.abs(z), 300)) ** 2),
    "sigmoid": lambda z, _: (1 / (1 + np.exp(-z)), 1 / (2 + np.exp(z) + np.exp(-z))),
}


def _scale_by_degree(
    op: ScaleByDegree, x: list, w: Arrays, run: Pass
) -> tuple[np.ndarray, Backward]:
    degree = run.arcs.degrees[:, np.newaxis]
    some, linear, logarithm = np.maximum(degree, 1), w[op.linear][0], w[op.logarithm][0]
    factor = {
        "amplification": np.log(degree + 1) / logarithm,
        "attenuation": logarithm / np.log(some + 1),
        "linear": degree / linear,
        "inverse_linear": linear / some,
    }[op.kind]
    return factor * x[0], lambda g: ([factor * g], {})


def _drop(op: Drop, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    rows, columns = map(np.arange, x[0].shape)
    keep = keeps(run, op.stream, op.p, rows if run.keys is None else run.keys, columns)
    return x[0] * keep, lambda g: ([g * keep], {})


def _layer_norm(op: LayerNorm, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    mean, variance = x[0].mean(axis=1, keepdims=True), x[0].var(axis=1, keepdims=True)
    return _normalized(op, x[0], mean, variance, w, axis=1)


def _batch_norm(op: BatchNorm, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    if run.epoch is None:
        return _normalized(op, x[0], w[op.mean], w[op.variance], w, axis=None)
    # With more digits, so that what should be 0 is small against what it is the sum of.
    wide, n = x[0].astype(np.longdouble), len(x[0])
    mean, variance = wide.mean(axis=0), wide.var(axis=0)
    equal = np.sqrt(variance) <= EQUAL * np.abs(mean)
    variance[equal] = 0
    wide = np.where(equal, mean, wide)
    unbiased = variance * (n / (n - 1) if n > 1 else 1.0)
    for name, moment in ((op.mean, mean), (op.variance, unbiased)):
        before = run.moments.get(name, w[name])  # of what was normalised before with the same
        run.moments[name] = before + op.momentum * (moment.astype(np.float64) - before)
    infinite = np.where(equal & (not run.trained_features), np.inf, variance)
    value, backward = _normalized(op, wide, mean, infinite, w, axis=0)
    return value.astype(np.float64), backward


def _normalized(
    op: LayerNorm | BatchNorm,
    x: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    w: Arrays,
    axis: int | None,
) -> tuple[np.ndarray, Backward]:  # fmt: skip
    """With moments along an axis of x, or with given ones (None)."""
    deviation = np.sqrt(variance + op.eps)
    z = (x - mean) / deviation

    def backward(g: np.ndarray) -> Gradients:
        dz = g * w[op.weight]
        dx = dz
        if axis is not None:
            dx = dz - dz.mean(axis, keepdims=True) - z * (dz * z).mean(axis, keepdims=True)
        back = (dx / deviation).astype(np.float64)
        of_weight = np.sum(g * z, axis=0).astype(np.float64)
        return [back], {op.weight: of_weight, op.bias: _column_sums(g)}

    return z * w[op.weight] + w[op.bias], backward


def _normalize(op: Normalize, x: list, w: Arrays, run: Pass) -> tuple[np.ndarray, Backward]:
    length = np.linalg.norm(x[0], axis=1, keepdims=True)
    y = x[0] / np.maximum(length, op.eps)

    def backward(g: np.ndarray) -> Gradients:
        along = np.where(length > op.eps, y * np.sum(g * y, axis=1, keepdims=True), 0)
        return [(g - along) / np.maximum(length, op.eps)], {}

    return y, backward


def _column_sums(g: np.ndarray) -> np.ndarray:
    """Of a gradient; one that is nothing but rounding errors of its terms is 0."""
    sums = g.sum(axis=0)
    return np.where(np.abs(sums) <= CANCELLED * np.abs(g).sum(axis=0), 0, sums)


def _arcs(matrix: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every entry of M."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)), matrix.indices


def _by_head(x: np.ndarray, heads: int) -> list[np.ndarray]:
    return np.split(x, heads, axis=1)


def _leaky(z: np.ndarray, slope: float) -> np.ndarray:
    return np.where(z > 0, z, slope * z)


def _leaky_slope(z: np.ndarray, slope: float) -> np.ndarray:
    return np.where(z > 0, 1.0, slope)


RULES: Mapping[type[Operator], Callable[..., tuple[np.ndarray, Backward]]] = {
    Linear: _linear,
    Bias: _bias,
    Aggregate: _aggregate,
    AggregateT: _aggregate_t,
    MaxAggregate: _max_aggregate,
    Attend: _attend,
    AttendV2: _attend_v2,
    Columns: _columns,
    Join: _join,
    StopGradient: _stop_gradient,
    Fill: _fill,
    Reciprocal: _reciprocal,
    MeanOfHeads: _mean_of_heads,
    Add: _add,
    Scale: _scale,
    ScaleByDegree: _scale_by_degree,
    Maximum: _maximum,
    Activate: _activate,
    Drop: _drop,
    LayerNorm: _layer_norm,
    BatchNorm: _batch_norm,
    Normalize: _normalize,
    **ARC_RULES,
}
