"""The oracle's operators on rows of arcs, and between these and rows of vertices.

Rules as those of :mod:`gcnmpi.proof.rules`: from the formulas, on whole matrices. The meaning of
the operators is told in :mod:`gcnmpi.nn.operators.spaces` and :mod:`gcnmpi.nn.operators.arcs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import numpy as np

from gcnmpi.nn.operator import Operator
from gcnmpi.nn.operators.arcs import (
    ArcInput,
    EndDots,
    HeadDots,
    RowDots,
    ScaleHeads,
    Softmax,
    WeighedSum,
)
from gcnmpi.nn.operators.relations import LinearBy, MeanOf, ScaleBy
from gcnmpi.nn.operators.spaces import Expand, Pick, Reduce, Source, Spread, Target
from gcnmpi.nn.operators.spectra import Spectrum, SpectrumProduct
from gcnmpi.nn.operators.triples import ComplexProduct, RowBy
from gcnmpi.proof.passes import ArcRows, Arrays, Backward, Gradients, Pass
from partition.graph.graph import ARCS, VERTICES

CONSTANT = 1e-5  # numbers whose variance is up to this do not deviate

Made = tuple[np.ndarray, Backward]

GROUPS, OF_TYPE = "groups", "of type"


def rows_of(operator: Operator, inputs: Sequence[str]) -> str:
    """The rows of a value, by those of its inputs: vertices, arcs or groups."""
    if isinstance(operator, ArcInput):
        if operator.given.startswith("type"):
            return VERTICES
        return GROUPS if operator.given in ("group", "part") else ARCS
    if isinstance(operator, Source | EndDots):
        return ARCS
    if isinstance(operator, Pick | Spread):
        return OF_TYPE if isinstance(operator, Pick) else VERTICES
    if isinstance(operator, Target | Reduce | WeighedSum | MeanOf):
        return _ROWS[operator.to]
    return next((one for one in inputs if one != VERTICES), VERTICES)


def arcs_of(operator: Operator, arcs: ArcRows, rows: Sequence[str]) -> ArcRows:
    """The arcs as an operator sees them, whose inputs and value have ``rows``."""
    if isinstance(operator, ArcInput) or GROUPS not in (
        *rows,
        _ROWS.get(getattr(operator, "within", "")),
    ):
        return arcs
    goes_over_arcs = ARCS in rows or isinstance(operator, WeighedSum | EndDots)
    return arcs.grouped if goes_over_arcs else arcs.of_groups


_ROWS = {"own": VERTICES, "entries": ARCS, "groups": GROUPS, "of_type": OF_TYPE}


def _arc_input(op: ArcInput, x: list, w: Arrays, run: Pass) -> Made:
    return run.arcs.features(op.given), lambda g: ([], {})


def _expand(op: Expand, x: list, w: Arrays, run: Pass) -> Made:
    return x[0], lambda g: ([g], {})


def _source(op: Source, x: list, w: Arrays, run: Pass) -> Made:
    return x[0][run.arcs.source], lambda g: ([run.arcs.out_of(g)], {})


def _target(op: Target, x: list, w: Arrays, run: Pass) -> Made:
    return x[0][run.arcs.target], lambda g: ([run.arcs.into(g)], {})


def _pick(op: Pick, x: list, w: Arrays, run: Pass) -> Made:
    some = run.arcs.of_type(op.type)

    def backward(g: np.ndarray) -> Gradients:
        found = np.zeros_like(x[0])
        found[some] = g
        return [found], {}

    return x[0][some], backward


def _spread(op: Spread, x: list, w: Arrays, run: Pass) -> Made:
    some = run.arcs.of_type(op.type)
    found = np.zeros((len(some), x[0].shape[1]))
    found[some] = x[0]
    return found, lambda g: ([g[some]], {})


def _mean_of(op: MeanOf, x: list, w: Arrays, run: Pass) -> Made:
    arcs = run.arcs
    of_arcs = np.isin(arcs.relation, op.which)[:, np.newaxis] * arcs.features("share")
    found = arcs.into(of_arcs * x[0][arcs.source])
    some = slice(None) if op.type is None else arcs.of_type(op.type)

    def backward(g: np.ndarray) -> Gradients:
        back = np.zeros_like(found)
        back[some] = g
        return [arcs.out_of(of_arcs * back[arcs.target])], {}

    return found[some], backward


def _reduce(op: Reduce, x: list, w: Arrays, run: Pass) -> Made:
    made = [_FUNCTIONS[kind](x[0], run.arcs) for kind in op.kinds]

    def backward(g: np.ndarray) -> Gradients:
        shares = zip(made, np.split(g, len(made), axis=1), strict=True)
        return [np.sum([back(share) for (_, back), share in shares], axis=0)], {}

    return np.hstack([value for value, _ in made]), backward


_Function = tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]


def _sum(x: np.ndarray, arcs: ArcRows) -> _Function:
    return arcs.into(x), lambda g: g[arcs.target]


def _mean(x: np.ndarray, arcs: ArcRows) -> _Function:
    counts = np.maximum(arcs.into(np.ones((len(x), 1))), 1)
    return arcs.into(x) / counts, lambda g: (g / counts)[arcs.target]


def _std(x: np.ndarray, arcs: ArcRows) -> _Function:
    away = x - _mean(x, arcs)[0][arcs.target]
    variance, back = _mean(away**2, arcs)
    deviates = variance > CONSTANT
    deviation = np.sqrt(np.where(deviates, variance, 1.0))
    # That the mean moves too has no effect, since deviations from it add up to 0.
    return deviates * deviation, lambda g: away * back(deviates * g / deviation)


def _extreme(x: np.ndarray, arcs: ArcRows, sign: float) -> _Function:
    """The largest number, or with a sign of −1 the smallest."""
    largest = np.full((arcs.count, x.shape[1]), -np.inf)
    np.maximum.at(largest, arcs.target, sign * x)
    attains = np.where(sign * x == largest[arcs.target], np.arange(len(x))[:, np.newaxis], len(x))
    first = np.full(largest.shape, len(x))
    np.minimum.at(first, arcs.target, attains)
    some = first < len(x)

    def backward(g: np.ndarray) -> np.ndarray:
        dx = np.zeros_like(x)
        dx[first[some], np.nonzero(some)[1]] = g[some]
        return dx

    return np.where(some, sign * largest, 0.0), backward


_FUNCTIONS: dict[str, Callable[[np.ndarray, ArcRows], _Function]] = {
    "sum": _sum,
    "mean": _mean,
    "std": _std,
    "max": lambda x, arcs: _extreme(x, arcs, 1.0),
    "min": lambda x, arcs: _extreme(x, arcs, -1.0),
}


def _softmax(op: Softmax, x: list, w: Arrays, run: Pass) -> Made:
    arcs = run.arcs
    exponentials = np.exp(x[0] - _extreme(x[0], arcs, 1.0)[0][arcs.target])
    y = exponentials / arcs.into(exponentials)[arcs.target]
    return y, lambda g: ([y * (g - arcs.into(y * g)[arcs.target])], {})


def _weighed_sum(op: WeighedSum, x: list, w: Arrays, run: Pass) -> Made:
    arcs, (values, rows) = run.arcs, x

    def backward(g: np.ndarray) -> Gradients:
        back = g[arcs.target]
        dots = _dots(back, rows[arcs.source], values.shape[1])
        return [dots, arcs.out_of(_wide(values, op.width) * back)], {}

    return arcs.into(_wide(values, op.width) * rows[arcs.source]), backward


def _end_dots(op: EndDots, x: list, w: Arrays, run: Pass) -> Made:
    arcs = run.arcs
    target, source = x[0][arcs.target], x[1][arcs.source]

    def backward(g: np.ndarray) -> Gradients:
        wide = _wide(g, target.shape[1])
        return [arcs.into(wide * source), arcs.out_of(wide * target)], {}

    return _dots(target, source, op.width), backward


def _row_dots(op: RowDots, x: list, w: Arrays, run: Pass) -> Made:
    def backward(g: np.ndarray) -> Gradients:
        wide = _wide(g, x[0].shape[1])
        return [wide * x[1], wide * x[0]], {}

    return _dots(x[0], x[1], op.width), backward


def _scale_heads(op: ScaleHeads, x: list, w: Arrays, run: Pass) -> Made:
    values, rows = x
    wide = _wide(values, op.width)
    return wide * rows, lambda g: ([_dots(g, rows, values.shape[1]), wide * g], {})


def _head_dots(op: HeadDots, x: list, w: Arrays, run: Pass) -> Made:
    vector = w[op.vector]

    def backward(g: np.ndarray) -> Gradients:
        wide = _wide(g, len(vector))
        return [wide * vector], {op.vector: np.sum(wide * x[0], axis=0)}

    return _dots(x[0], vector[np.newaxis], op.width), backward


def _linear_by(op: LinearBy, x: list, w: Arrays, run: Pass) -> Made:
    kinds, rows = x[0][:, 0].astype(int), x[1]
    mix, weight = w.get(op.mix, np.eye(op.kinds)), w[op.weight]
    shape = mix.shape[1], op.blocks, rows.shape[1] // op.blocks, op.width // op.blocks
    parts = rows.reshape(len(rows), *shape[1:3])
    own = np.einsum("kb,bdio->kdio", mix, weight.reshape(shape))[kinds]

    def backward(g: np.ndarray) -> Gradients:
        back = g.reshape(len(g), op.blocks, shape[3])
        of_own = np.zeros((op.kinds, *shape[1:]))
        np.add.at(of_own, kinds, np.einsum("edi,edo->edio", parts, back))
        found = {op.weight: np.einsum("kb,kdio->bdio", mix, of_own).reshape(weight.shape)}
        if op.mix:
            found[op.mix] = np.einsum("kdio,bdio->kb", of_own, weight.reshape(shape))
        return [
            np.zeros_like(x[0]),
            np.einsum("edio,edo->edi", own, back).reshape(rows.shape),
        ], found

    return np.einsum("edi,edio->edo", parts, own).reshape(len(rows), op.width), backward


def _scale_by(op: ScaleBy, x: list, w: Arrays, run: Pass) -> Made:
    factors = np.take(op.factors, x[0][:, 0].astype(int))[:, np.newaxis]
    return factors * x[1], lambda g: ([np.zeros_like(x[0]), factors * g], {})


def _row_by(op: RowBy, x: list, w: Arrays, run: Pass) -> Made:
    kinds, arrays = x[0][:, 0].astype(int), [w[name] for name in op.parameters]
    tables, turn = list(accumulate(arrays, np.matmul)), _transform if op.spectrum else _same
    found, turn_back = turn(tables[-1])

    def backward(g: np.ndarray) -> Gradients:
        back, of_maps = np.zeros((op.kinds, op.width)), {}
        np.add.at(back, kinds, g)
        back = turn_back(back)
        for name, before, matrix in zip(op.maps[::-1], tables[-2::-1], arrays[:0:-1], strict=True):
            back, of_maps[name] = back @ matrix.T, before.T @ back
        return [np.zeros_like(x[0])], {**of_maps, op.table: back}

    return found[kinds], backward


def _spectrum(op: Spectrum, x: list, w: Arrays, run: Pass) -> Made:
    if not op.inverse:
        found, back = _transform(x[0])
        return found, lambda g: ([back(g)], {})
    counts = np.full(op.columns // 2 + 1, 2 / op.columns)
    counts[:: op.columns // 2 if op.columns % 2 == 0 else len(counts)] /= 2

    def backward(g: np.ndarray) -> Gradients:
        return [_in_turn(counts * np.fft.rfft(g))], {}

    return np.fft.irfft(_complex(x[0]), op.columns), backward


def _transform(x: np.ndarray) -> _Function:
    """The spectrum of each row."""
    columns = x.shape[1]

    def backward(g: np.ndarray) -> np.ndarray:
        return columns * np.fft.ifft(_complex(g), columns).real

    return _in_turn(np.fft.rfft(x)), backward


def _same(x: np.ndarray) -> _Function:
    return x, lambda g: g


def _spectrum_product(op: SpectrumProduct, x: list, w: Arrays, run: Pass) -> Made:
    first, second = map(_complex, x)

    def backward(g: np.ndarray) -> Gradients:
        whole = _complex(g)
        return [_in_turn(whole.conj() * second), _in_turn(whole * first)], {}

    return _in_turn(first.conj() * second), backward


def _complex(x: np.ndarray) -> np.ndarray:
    return x[:, ::2] + 1j * x[:, 1::2]


def _in_turn(z: np.ndarray) -> np.ndarray:
    return np.stack((z.real, z.imag), axis=2).reshape(len(z), 2 * z.shape[1])


def _complex_product(op: ComplexProduct, x: list, w: Arrays, run: Pass) -> Made:
    first, second = (part[:, : op.width // 2] + 1j * part[:, op.width // 2 :] for part in x)

    def backward(g: np.ndarray) -> Gradients:
        whole = g[:, : op.width // 2] + 1j * g[:, op.width // 2 :]
        return [_parts(whole * second.conj()), _parts(whole * first.conj())], {}

    return _parts(first * second), backward


def _parts(z: np.ndarray) -> np.ndarray:
    return np.hstack((z.real, z.imag))


def _wide(values: np.ndarray, width: int) -> np.ndarray:
    """A number for each head, for each of its columns."""
    return np.repeat(values, width // values.shape[1], axis=1)


def _dots(x: np.ndarray, y: np.ndarray, heads: int) -> np.ndarray:
    """Of each row and head, (rows, heads)."""
    return np.stack([np.sum(part, axis=1) for part in np.split(x * y, heads, axis=1)], axis=1)


ARC_RULES: Mapping[type[Operator], Callable[..., Made]] = {
    ArcInput: _arc_input,
    Expand: _expand,
    Source: _source,
    Target: _target,
    Reduce: _reduce,
    Softmax: _softmax,
    WeighedSum: _weighed_sum,
    EndDots: _end_dots,
    RowDots: _row_dots,
    ScaleHeads: _scale_heads,
    HeadDots: _head_dots,
    LinearBy: _linear_by,
    MeanOf: _mean_of,
    ScaleBy: _scale_by,
    Pick: _pick,
    Spread: _spread,
    RowBy: _row_by,
    Spectrum: _spectrum,
    SpectrumProduct: _spectrum_product,
    ComplexProduct: _complex_product,
}
