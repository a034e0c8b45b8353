"""The oracle's operators: the value of each, from its formula; autograd derives the gradients.

In float64, on whole matrices; short rather than fast. The meaning of an operator is told in
:mod:`gcnmpi.nn.operators`; nothing here comes from the gradient rules, kernels and schemes that are
to be checked. Gradients come from HIPS/autograd, by reverse accumulation through NumPy's functions.

A value is a function of (operator, inputs, parameters, pass). :data:`RULES` makes a rule of each:
it gives the value and a function, which takes the gradient of the loss with respect to that value
and gives those with respect to the inputs, in their order, and to the operator's parameters, by
name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import prod, sqrt
from typing import Any

import autograd.numpy as np
import numpy
import scipy.sparse as sp
from autograd import make_vjp
from autograd.extend import defvjp, primitive
from autograd.scipy.special import erf
from autograd.tracer import getval

from gcnmpi.core import rng
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.operators import arcs, dense, elementwise, neighbours, norms, relations, spaces
from gcnmpi.nn.operators.degrees import ScaleByDegree
from gcnmpi.nn.operators.triples import ComplexProduct, RowBy
from gcnmpi.proof import passes
from gcnmpi.proof.passes import ArcRows, Arrays, Backward, Pass

EQUAL = 2.0**-37  # what a column of equal numbers deviates by, relative to its mean
CANCELLED = 1e-12  # what is left of a sum of terms that cancel, relative to theirs
_CONSTANT = 1e-5  # numbers whose variance is up to this do not deviate

Value = Callable[[Any, Sequence, Arrays, Pass], numpy.ndarray]


def reads_values(operators: Sequence[Operator]) -> bool:
    """Whether any of them multiplies with M, and not only looks at its pattern."""
    kinds = neighbours.Aggregate | neighbours.AggregateT
    return any(isinstance(operator, kinds) for operator in operators)


@primitive
def product(matrix: sp.csr_array, x: numpy.ndarray) -> numpy.ndarray:
    """A sparse matrix, which is constant, times x."""
    return matrix @ x


@primitive
def taken(x: numpy.ndarray, places: numpy.ndarray) -> numpy.ndarray:
    """Rows of x by their places, each as often as it is named."""
    return x[places]


@primitive
def summed(x: numpy.ndarray, places: numpy.ndarray, n: int) -> numpy.ndarray:
    """The sum of the rows of x with the same place, (n, …)."""
    return passes.summed(x.reshape(len(x), prod(x.shape[1:])), places, n).reshape(n, *x.shape[1:])


@primitive
def shifted(x: numpy.ndarray, bias: numpy.ndarray) -> numpy.ndarray:
    """The rows of x plus a bias, whose gradient is 0 where it is rounding errors of its terms."""
    return x + bias


def _of_bias(g: numpy.ndarray) -> numpy.ndarray:
    sums = g.sum(axis=0)
    return numpy.where(abs(sums) <= CANCELLED * abs(g).sum(axis=0), 0, sums)


defvjp(product, lambda y, matrix, x: lambda g: product(matrix.T, g), argnums=(1,))
defvjp(taken, lambda y, x, places: lambda g: summed(g, places, len(x)), argnums=(0,))
defvjp(summed, lambda y, x, places, n: lambda g: taken(g, places), argnums=(0,))
defvjp(shifted, lambda y, x, bias: lambda g: g, lambda y, x, bias: _of_bias)


def keeps(
    run: Pass, stream: int, p: float, rows: numpy.ndarray, columns: numpy.ndarray
) -> numpy.ndarray | float:
    """1 / (1 − p) where an entry is kept and 0 where it is dropped, (rows, columns)."""
    if run.epoch is None or p == 0:
        return 1.0
    keys = rng.row_keys(run.seed, run.epoch, stream, rows), rng.column_keys(columns)
    hashes = numpy.empty((len(rows), len(columns)), numpy.uint32)
    rng.hash_block(*keys, hashes, numpy.empty_like(hashes))
    return (hashes >= rng.threshold(p)) / (1 - p)


def _largest(
    x: numpy.ndarray, places: numpy.ndarray, n: int, numbers: numpy.ndarray
) -> numpy.ndarray:
    """The number of the row with the largest value in each place, (n, columns); −1: none.

    The smallest number among rows of equal values.
    """
    most = numpy.full((n, x.shape[1]), -numpy.inf)
    numpy.maximum.at(most, places, x)
    first = numpy.full(most.shape, none := numpy.iinfo(int).max)
    attained = numpy.where(x == most[places], numbers.astype(int)[:, numpy.newaxis], none)
    numpy.minimum.at(first, places, attained)
    return numpy.where(first == none, -1, first)


def _picked(x: np.ndarray, rows: numpy.ndarray) -> np.ndarray:
    """Of each column of x the numbers in some rows; 0 in place of row −1."""
    columns = rows.shape[1]
    return np.concatenate((x, numpy.zeros((1, columns))))[rows, numpy.arange(columns)]


def _ends(matrix: sp.csr_array) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Row and column of every entry of M."""
    rows = numpy.repeat(numpy.arange(matrix.shape[0]), numpy.diff(matrix.indptr))
    return rows, matrix.indices


def _by_head(x: np.ndarray, heads: int) -> np.ndarray:
    return np.reshape(x, (len(x), heads, x.shape[1] // heads))


def _wide(values: np.ndarray, width: int) -> np.ndarray:
    """A number for each head, for each of its columns."""
    return np.repeat(values, width // values.shape[1], axis=1)


def _dots(x: np.ndarray, y: np.ndarray, heads: int) -> np.ndarray:
    """Of each row and head, (rows, heads)."""
    return np.sum(_by_head(x * y, heads), axis=2)


def _leaky(z: np.ndarray, slope: float) -> np.ndarray:
    return np.where(getval(z) > 0, z, slope * z)


def _softmax(scores: np.ndarray, places: numpy.ndarray, n: int) -> np.ndarray:
    """Over the rows with the same place, of each column."""
    largest = numpy.full((n, scores.shape[1]), -numpy.inf)
    numpy.maximum.at(largest, places, getval(scores))
    exponentials = np.exp(scores - largest[places])
    return exponentials / taken(summed(exponentials, places, n), places)


def _attended(op: Any, x: np.ndarray, scores: np.ndarray, run: Pass) -> np.ndarray:
    """Per head y[i] = Σ keep[i, j]·α[i, j]·x[j], with α the softmax of the scores of arcs."""
    i, j = _ends(run.matrix)
    attention = _softmax(scores, i, len(x))
    if run.epoch is not None and op.p:
        rows = rng.row_keys(run.seed, run.epoch, op.stream, numpy.arange(len(x)))[i]
        hashes = numpy.empty((len(i), op.heads), numpy.uint32)
        for head in range(op.heads):
            columns = rng.column_keys(j.astype(numpy.int64) * op.heads + head)[:, numpy.newaxis]
            found = numpy.empty((len(i), 1), numpy.uint32)
            rng.hash_block(rows, columns, found, numpy.empty_like(found))
            hashes[:, head] = found[:, 0]
        attention = attention * ((hashes >= rng.threshold(op.p)) / (1 - op.p))
    terms = attention[:, :, numpy.newaxis] * taken(_by_head(x, op.heads), j)
    return np.reshape(summed(terms, i, len(x)), x.shape)


def _attend(op: neighbours.Attend, x: Sequence, w: Arrays, run: Pass) -> np.ndarray:
    i, j = _ends(run.matrix)
    source, target = (
        np.sum(_by_head(x[0], op.heads) * np.reshape(w[name], (1, op.heads, -1)), axis=2)
        for name in op.parameters
    )
    return _attended(op, x[0], _leaky(taken(target, i) + taken(source, j), op.slope), run)


def _attend_v2(op: neighbours.AttendV2, x: Sequence, w: Arrays, run: Pass) -> np.ndarray:
    i, j = _ends(run.matrix)
    sums = taken(_by_head(x[0], op.heads), j) + taken(_by_head(x[1], op.heads), i)
    vector = np.reshape(w[op.vector], (1, op.heads, -1))
    return _attended(op, x[0], np.sum(_leaky(sums, op.slope) * vector, axis=2), run)


def _max_aggregate(op: neighbours.MaxAggregate, x: Sequence, w: Arrays, run: Pass) -> np.ndarray:
    i, j = _ends(run.matrix)
    return _picked(x[0], _largest(getval(x[0])[j], i, len(x[0]), j))


def _reciprocal(op: elementwise.Reciprocal, x: Sequence, w: Arrays, run: Pass) -> np.ndarray:
    zero = getval(x[0]) == 0
    return np.where(zero, 0.0, 1 / np.where(zero, 1.0, x[0]))


def _maximum(op: elementwise.Maximum, x: Sequence, w: Arrays, run: Pass) -> np.ndarray:
    first = numpy.argmax([getval(each) for each in x], axis=0)
    return sum(np.where(first == number, each, 0) for number, each in enumerate(x))


def _activate(op: elementwise.Activate, x: Sequence, w: Arrays, run: Pass) -> np.ndarray:
    if op.kind == "prelu":
        return _leaky(x[0], w[op.parameter][0])
    return _ACTIVATIONS[op.kind](x[0], op.slope)


_ACTIVATIONS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "relu": lambda z, _: _leaky(z, 0.0),
    "elu": lambda z, _: np.where(getval(z) > 0, z, np.expm1(np.where(getval(z) > 0, 0.0, z))),
    "leaky_relu": _leaky,
    "gelu": lambda z, _: z * (1 + erf(z / sqrt(2))) / 2,
    "tanh": lambda z, _: np.tanh(z),
    "sigmoid": lambda z, _: (1 + np.tanh(z / 2)) / 2,
}


def _scale_by_degree(op: ScaleByDegree, x: Sequence, w: Arrays, run: Pass) -> np.ndarray:
    degree = run.arcs.degrees[:, numpy.newaxis]
    some, linear, logarithm = numpy.maximum(degree, 1), w[op.linear][0], w[op.logarithm][0]
    factor = {
        "amplification": numpy.log(degree + 1) / logarithm,
        "attenuation": logarithm / numpy.log(some + 1),
        "linear": degree / linear,
        "inverse_linear": linear / some,
    }[op.kind]
    return factor * x[0]


def _drop(op: elementwise.Drop, x: Sequence, w: Arrays, run: Pass) -> np.ndarray:
    rows, columns = map(numpy.arange, x[0].shape)
    return x[0] * keeps(run, op.stream, op.p, rows if run.keys is None else run.keys, columns)


def _normalized(op: Any, away: np.ndarray, variance: np.ndarray, w: Arrays) -> np.ndarray:
    return shifted(away / np.sqrt(variance + op.eps) * w[op.weight], w[op.bias])


def _layer_norm(op: norms.LayerNorm, x: Sequence, w: Arrays, run: Pass) -> np.ndarray:
    away = x[0] - np.mean(x[0], axis=1, keepdims=True)
    return _normalized(op, away, np.mean(away**2, axis=1, keepdims=True), w)


def _batch_norm(op: norms.BatchNorm, x: Sequence, w: Arrays, run: Pass) -> np.ndarray:
    if run.epoch is None:
        return _normalized(op, x[0] - w[op.mean], w[op.variance], w)
    n, mean = len(x[0]), np.mean(x[0], axis=0)
    away = x[0] - mean
    variance = np.mean(away**2, axis=0)
    equal = numpy.sqrt(getval(variance)) <= EQUAL * abs(getval(mean))
    away = away - numpy.where(equal, getval(away), 0)  # 0, with the gradient of the deviation
    unbiased = numpy.where(equal, 0, getval(variance)) * (n / (n - 1) if n > 1 else 1.0)
    for name, moment in ((op.mean, getval(mean)), (op.variance, unbiased)):
        before = run.moments.get(
            name, getval(w[name])
        )  # of what was normalised before with the same
        run.moments[name] = before + op.momentum * (moment - before)
    variance = np.where(equal, 0.0 if run.trained_features else numpy.inf, variance)
    return _normalized(op, away, variance, w)


def _normalize(op: norms.Normalize, x: Sequence, w: Arrays, run: Pass) -> np.ndarray:
    squares = np.sum(x[0] ** 2, axis=1, keepdims=True)
    long = numpy.sqrt(getval(squares)) > op.eps
    return x[0] / np.where(long, np.sqrt(np.where(long, squares, 1.0)), op.eps)


def _pick(op: spaces.Pick, x: Sequence, w: Arrays, run: Pass) -> np.ndarray:
    return taken(x[0], numpy.flatnonzero(run.arcs.of_type(op.type)))


def _spread(op: spaces.Spread, x: Sequence, w: Arrays, run: Pass) -> np.ndarray:
    some = run.arcs.of_type(op.type)
    return summed(x[0], numpy.flatnonzero(some), len(some))


def _into(x: np.ndarray, arcs: ArcRows) -> np.ndarray:
    """The sum over the arcs into each vertex, (n, columns)."""
    return summed(x, arcs.target, arcs.count)


def _mean_of(op: relations.MeanOf, x: Sequence, w: Arrays, run: Pass) -> np.ndarray:
    shares = numpy.isin(run.arcs.relation, op.which)[:, numpy.newaxis] * run.arcs.features("share")
    found = _into(shares * taken(x[0], run.arcs.source), run.arcs)
    return found if op.type is None else taken(found, numpy.flatnonzero(run.arcs.of_type(op.type)))


def _mean(x: np.ndarray, arcs: ArcRows) -> np.ndarray:
    return _into(x, arcs) / numpy.maximum(arcs.degrees, 1)[:, numpy.newaxis]


def _std(x: np.ndarray, arcs: ArcRows) -> np.ndarray:
    variance = _mean((x - taken(_mean(x, arcs), arcs.target)) ** 2, arcs)
    deviates = getval(variance) > _CONSTANT
    return deviates * np.sqrt(np.where(deviates, variance, 1.0))


def _extreme(x: np.ndarray, arcs: ArcRows, sign: float) -> np.ndarray:
    """The largest number, or with a sign of −1 the smallest."""
    every = numpy.arange(len(x))
    return _picked(x, _largest(sign * getval(x), arcs.target, arcs.count, every))


_REDUCED: dict[str, Callable[[np.ndarray, ArcRows], np.ndarray]] = {
    "sum": _into,
    "mean": _mean,
    "std": _std,
    "max": lambda x, arcs: _extreme(x, arcs, 1.0),
    "min": lambda x, arcs: _extreme(x, arcs, -1.0),
}


def _linear_by(op: relations.LinearBy, x: Sequence, w: Arrays, run: Pass) -> np.ndarray:
    mix, rows = w[op.mix] if op.mix else numpy.eye(op.kinds), x[1]
    shape = mix.shape[1], op.blocks, rows.shape[1] // op.blocks, op.width // op.blocks
    of_kinds = np.einsum("kb,bdio->kdio", mix, np.reshape(w[op.weight], shape))
    parts, own = np.reshape(rows, (len(rows), *shape[1:3])), taken(of_kinds, _kinds(x[0]))
    return np.reshape(np.einsum("edi,edio->edo", parts, own), (len(rows), op.width))


def _kinds(x: np.ndarray) -> numpy.ndarray:
    return getval(x)[:, 0].astype(int)


def _row_by(op: RowBy, x: Sequence, w: Arrays, run: Pass) -> np.ndarray:
    table = list(accumulate([w[name] for name in op.parameters], np.dot))[-1]
    return taken(table, _kinds(x[0]))


def _complex_product(op: ComplexProduct, x: Sequence, w: Arrays, run: Pass) -> np.ndarray:
    (a, b), (c, d) = ((each[:, : op.width // 2], each[:, op.width // 2 :]) for each in x)
    return np.hstack((a * c - b * d, a * d + b * c))


VALUES: Mapping[type[Operator], Value] = {
    dense.Linear: lambda op, x, w, run: x[0] @ w[op.weight],
    elementwise.Bias: lambda op, x, w, run: shifted(x[0], w[op.bias]),
    neighbours.Aggregate: lambda op, x, w, run: product(run.matrix, x[0]),
    neighbours.AggregateT: lambda op, x, w, run: product(run.matrix.T, x[0]),
    neighbours.MaxAggregate: _max_aggregate,
    neighbours.Attend: _attend,
    neighbours.AttendV2: _attend_v2,
    elementwise.Columns: lambda op, x, w, run: x[0][:, op.first : op.first + op.width],
    elementwise.Join: lambda op, x, w, run: np.hstack(x),
    elementwise.StopGradient: lambda op, x, w, run: getval(x[0]).copy(),
    elementwise.Fill: lambda op, x, w, run: numpy.full((len(x[0]), op.width), op.value),
    elementwise.Reciprocal: _reciprocal,
    elementwise.MeanOfHeads: lambda op, x, w, run: np.mean(_by_head(x[0], op.heads), axis=1),
    elementwise.Add: lambda op, x, w, run: x[0] + x[1],
    elementwise.Scale: lambda op, x, w, run: (
        (op.factor + (w[op.epsilon][0] if op.epsilon else 0.0)) * x[0]
    ),
    elementwise.Maximum: _maximum,
    elementwise.Activate: _activate,
    ScaleByDegree: _scale_by_degree,
    elementwise.Drop: _drop,
    norms.LayerNorm: _layer_norm,
    norms.BatchNorm: _batch_norm,
    norms.Normalize: _normalize,
    arcs.ArcInput: lambda op, x, w, run: run.arcs.features(op.given),
    spaces.Expand: lambda op, x, w, run: 1.0 * x[0],
    spaces.Source: lambda op, x, w, run: taken(x[0], run.arcs.source),
    spaces.Target: lambda op, x, w, run: taken(x[0], run.arcs.target),
    spaces.Pick: _pick,
    spaces.Spread: _spread,
    spaces.Reduce: lambda op, x, w, run: np.hstack([_REDUCED[k](x[0], run.arcs) for k in op.kinds]),
    arcs.Softmax: lambda op, x, w, run: _softmax(x[0], run.arcs.target, run.arcs.count),
    arcs.WeighedSum: lambda op, x, w, run: _into(
        _wide(x[0], op.width) * taken(x[1], run.arcs.source), run.arcs
    ),
    arcs.EndDots: lambda op, x, w, run: _dots(
        taken(x[0], run.arcs.target), taken(x[1], run.arcs.source), op.width
    ),
    arcs.RowDots: lambda op, x, w, run: _dots(x[0], x[1], op.width),
    arcs.ScaleHeads: lambda op, x, w, run: _wide(x[0], op.width) * x[1],
    arcs.HeadDots: lambda op, x, w, run: _dots(x[0], w[op.vector], op.width),
    relations.LinearBy: _linear_by,
    relations.MeanOf: _mean_of,
    relations.ScaleBy: lambda op, x, w, run: (
        numpy.take(op.factors, _kinds(x[0]))[:, numpy.newaxis] * x[1]
    ),
    RowBy: _row_by,
    ComplexProduct: _complex_product,
}


def with_gradient(value: Value) -> Callable[..., tuple[numpy.ndarray, Backward]]:
    """The rule of an operator: its value, and how a gradient goes back through it."""

    def rule(op: Operator, x: Sequence, w: Arrays, run: Pass) -> tuple[numpy.ndarray, Backward]:
        own = {name: numpy.asarray(w[name], float) for name in op.parameters if name in w}
        inputs = tuple(numpy.asarray(each, float) for each in x)
        with warnings.catch_warnings():  # of operators that take but the width of their inputs
            warnings.simplefilter("ignore")
            back, made = make_vjp(lambda given: value(op, given[0], {**w, **given[1]}, run))(
                (inputs, own)
            )
        return made, back

    return rule


RULES = {kind: with_gradient(value) for kind, value in VALUES.items()}
