"""The operators that a network is described with, one frozen dataclass each.

A network is a list of operators in the order of evaluation. Each of them gives one dense matrix
of n rows and ``width`` columns; its ``inputs`` are the numbers of earlier operators in the list.
``layer`` counts the aggregations from the features to here, at least 1 but for what lies before
the first: schemes whose layout rotates with the layers need it, and ``gcnmpi infer --layer``.

What an operator means stands in its docstring, for whole matrices: x, x₁, x₂ are its inputs,
M is the aggregation matrix (n, n), N(i) the columns of the entries of row i of M (its pattern).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Parameter:
    """A trained array, or a running moment.

    Attributes
    ----------
    name : str
        PyTorch Geometric's: "convs.0.lin.weight".
    shape : tuple of int
        (d_in, d_out) of a weight that a :class:`Linear` multiplies with; (columns,) of all others,
        which are whole on every rank.
    layer : int
        Of the operator that reads it.
    init : str
        Its initial values: "glorot", "uniform" (±1/√fan_in, PyTorch's ``Linear``), or a number.
    fan_in, fan_out : int
        What "glorot" and "uniform" are computed from.
    stream : int
        Which random numbers "glorot" and "uniform" draw, together with the seed.
    stored : tuple of int or None
        Shape of the array in a file of weights where it is not stored as it is: weights are
        transposed, everything else is reshaped.
    part_of : str
        Name of the array in a file of weights where that holds several parameters: their stored
        arrays, joined along the last axis in the order of the network's parameters.
    trained : bool
        False for running moments.
    """

    name: str
    shape: tuple[int, ...]
    layer: int
    init: str = "0"
    fan_in: int = 1
    fan_out: int = 1
    stream: int = 0
    stored: tuple[int, ...] | None = None
    trained: bool = True
    part_of: str = ""

    @property
    def is_weight(self) -> bool:
        """Whether it is a matrix, which schemes may cut over ranks."""
        return len(self.shape) == 2


@dataclass(frozen=True)
class Operator:
    """What all operators have."""

    inputs: tuple[int, ...]
    width: int
    layer: int

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters that it reads, without those that are empty."""
        return ()


@dataclass(frozen=True)
class Features(Operator):
    """H⁰, the features of the graph. No inputs; always the first operator."""


@dataclass(frozen=True)
class Linear(Operator):
    """x·W."""

    weight: str = ""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The weight."""
        return (self.weight,)


@dataclass(frozen=True)
class Bias(Operator):
    """x + 1·bᵀ."""

    bias: str = ""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The bias."""
        return (self.bias,)


@dataclass(frozen=True)
class Aggregate(Operator):
    """M·x."""


@dataclass(frozen=True)
class MaxAggregate(Operator):
    """y[i, c] = max over j in N(i) of x[j, c]; 0 in rows without entries.

    Its gradient goes to the j that attains it, the lowest of equals.
    """


@dataclass(frozen=True)
class Attend(Operator):
    """Attention with ``heads`` heads (Veličković et al. 2018, equations 1 to 4, without σ).

    The columns of head h are its own: x = [x⁰ | x¹ | …], equally wide. With t[j, h] =
    x[j]ʰ·source[h] and s[i, h] = x[i]ʰ·target[h]:
    α[i, j, h] = softmax over j in N(i) of leaky_relu(s[i, h] + t[j, h]);
    y[i]ʰ = Σ over j in N(i) of drop(α[i, j, h])·x[j]ʰ; 0 in rows without entries.

    ``drop`` is dropout with probability ``p``, a function of (seed, epoch, stream, target i,
    source j, head h): row key of vertex i, column key of number j·heads + h.
    """

    source: str = ""
    target: str = ""
    heads: int = 1
    slope: float = 0.2
    p: float = 0.0
    stream: int = 0

    @property
    def parameters(self) -> tuple[str, ...]:
        """Both vectors, (heads·columns of a head,) each."""
        return (self.source, self.target)


@dataclass(frozen=True)
class AttendV2(Operator):
    """Attention of GATv2 (Brody, Alon and Yahav 2022, equation 7): inputs x₁ (source), x₂ (target).

    e[i, j, h] = vector[h]·leaky_relu(x₁[j]ʰ + x₂[i]ʰ); α = softmax over j in N(i) of e;
    y[i]ʰ = Σ drop(α[i, j, h])·x₁[j]ʰ. Otherwise as :class:`Attend`.
    """

    vector: str = ""
    heads: int = 1
    slope: float = 0.2
    p: float = 0.0
    stream: int = 0

    @property
    def parameters(self) -> tuple[str, ...]:
        """The vector, (heads·columns of a head,)."""
        return (self.vector,)


@dataclass(frozen=True)
class MeanOfHeads(Operator):
    """(x⁰ + x¹ + …) / heads, of x = [x⁰ | x¹ | …]."""

    heads: int = 1


@dataclass(frozen=True)
class Add(Operator):
    """x₁ + x₂."""


@dataclass(frozen=True)
class Scale(Operator):
    """(factor + ε)·x, with a trained number ε (1,) if there is one."""

    factor: float = 1.0
    epsilon: str = ""

    @property
    def parameters(self) -> tuple[str, ...]:
        """ε, if it is trained."""
        return (self.epsilon,) if self.epsilon else ()


@dataclass(frozen=True)
class Maximum(Operator):
    """Entry-wise maximum of any number of inputs; its gradient goes to the first of equals."""


@dataclass(frozen=True)
class Activate(Operator):
    """f(x) with f of ``kind`` "relu", "elu" (α = 1), "leaky_relu", "gelu" (exact, erf) or "prelu".

    ``slope`` is that of "leaky_relu" below 0; "prelu" trains it: ``parameter``, (1,).
    """

    kind: str = "relu"
    slope: float = 0.01
    parameter: str = ""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The slope of "prelu"."""
        return (self.parameter,) if self.parameter else ()


@dataclass(frozen=True)
class Drop(Operator):
    """Dropout: x[i, c]/(1 − p) where a hash of (seed, epoch, stream, vertex i, column c) keeps it.

    Nothing in an evaluation. The entry is kept if ``rng.hash_block`` of ``rng.row_keys(seed, epoch,
    stream, vertices)`` and ``rng.column_keys(columns)`` gives at least ``rng.threshold(p)``.
    """

    p: float = 0.5
    stream: int = 0


@dataclass(frozen=True)
class LayerNorm(Operator):
    """(x − mean)/√(variance + eps)·weight + bias, moments over the columns of a row (biased)."""

    weight: str = ""
    bias: str = ""
    eps: float = 1e-5

    @property
    def parameters(self) -> tuple[str, ...]:
        """Weight and bias, (columns,) each."""
        return (self.weight, self.bias)


@dataclass(frozen=True)
class BatchNorm(Operator):
    """(x − mean)/√(variance + eps)·weight + bias, moments over all n rows of a column (biased).

    An evaluation takes the running moments, which training moves after each epoch by
    ``momentum``·(moment − running), the variance unbiased, n/(n − 1), as PyTorch does.

    In training, numbers of a column that differ by rounding errors only are equal: where √variance
    is at most 2⁻³⁷ (in float32: 2⁻²⁰) times |mean|, the variance is 0. The value is then the bias,
    to the bit, and the input has no gradient: the weights in front of equal numbers, which they
    are equal for, have none. It has one where features are trained, which need it to differ.
    """

    weight: str = ""
    bias: str = ""
    mean: str = ""
    variance: str = ""
    eps: float = 1e-5
    momentum: float = 0.1

    @property
    def parameters(self) -> tuple[str, ...]:
        """Weight, bias and running moments, (columns,) each."""
        return (self.weight, self.bias, self.mean, self.variance)


@dataclass(frozen=True)
class Normalize(Operator):
    """x[i] / max(‖x[i]‖₂, eps)."""

    eps: float = 1e-12
