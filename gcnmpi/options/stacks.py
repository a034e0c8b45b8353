"""The networks, their matrices, and the options that several of them have."""

from __future__ import annotations

from typing import Any

from gcnmpi.core.functions import ACTIVATIONS, REDUCTIONS
from gcnmpi.options.own_code import is_own, load_network
from gcnmpi.options.settings import Several, key, options_of
from partition.graph.aggregation import NORMALIZATIONS
from partition.registry import Registry

# Layers, and hops: each is compiled to steps of its own, in time that grows with their square, and
# the deepest networks that have been published have about 1000.
DEEPEST = 2000


OWN = "FILE.py:NAME"
"""Stands for a user's networks in the table of options."""


class Networks(Registry):
    """The networks that come along, and those of a user's files: see
    :mod:`gcnmpi.options.own_code`.
    """

    def get(self, name: str) -> Any:
        """The function that builds a network."""
        return load_network(name) if is_own(name) else super().get(name)

    def kinds(self, name: str) -> tuple[Any, ...]:
        """The classes of the options of a network."""
        return super().kinds(OWN if is_own(name) else name)

    def __contains__(self, name: object) -> bool:
        return is_own(name) or super().__contains__(name)


NETWORKS = Networks(
    "model",
    {
        "gcn": "gcnmpi.nn.networks.gcn:build",
        "sage": "gcnmpi.nn.networks.sage:build",
        "gin": "gcnmpi.nn.networks.gin:build",
        "gine": "gcnmpi.nn.networks.gine:build",
        "gat": "gcnmpi.nn.networks.gat:build",
        "gatv2": "gcnmpi.nn.networks.gatv2:build",
        "transformer": "gcnmpi.nn.networks.transformer:build",
        "gatedgcn": "gcnmpi.nn.networks.gatedgcn:build",
        "pna": "gcnmpi.nn.networks.pna:build",
        "mgn": "gcnmpi.nn.networks.mgn:build",
        "rgcn": "gcnmpi.nn.networks.rgcn:build",
        "rgat": "gcnmpi.nn.networks.rgat:build",
        "compgcn": "gcnmpi.nn.networks.compgcn:build",
        "hetero": "gcnmpi.nn.networks.hetero:build",
        "hgt": "gcnmpi.nn.networks.hgt:build",
        "sehgnn": "gcnmpi.nn.networks.sehgnn:build",
        "gcnii": "gcnmpi.nn.networks.gcnii:build",
        "appnp": "gcnmpi.nn.networks.appnp:build",
        "sgc": "gcnmpi.nn.networks.sgc:build",
        "sign": "gcnmpi.nn.networks.sign:build",
        "mlp": "gcnmpi.nn.networks.mlp:build",
        "gconvgru": "gcnmpi.nn.networks.gconvgru:build",
        "dcrnn": "gcnmpi.nn.networks.dcrnn:build",
        "stgcn": "gcnmpi.nn.networks.stgcn:build",
    },
)

# Networks whose aggregation is part of what they are: model → (graph.normalize, graph.self_loops).
MATRICES = Registry(
    "model",
    {
        "sage": "gcnmpi.nn.networks.sage:matrix",
        "gin": "gcnmpi.nn.networks.gin:matrix",
        "gine": "gcnmpi.nn.networks.gin:matrix",
        "gat": "gcnmpi.nn.networks.gat:matrix",
        "gatv2": "gcnmpi.nn.networks.gat:matrix",
        "transformer": "gcnmpi.nn.networks.gin:matrix",
        "gatedgcn": "gcnmpi.nn.networks.gin:matrix",
        "pna": "gcnmpi.nn.networks.gin:matrix",
        "mgn": "gcnmpi.nn.networks.gin:matrix",
        "rgcn": "gcnmpi.nn.networks.rgcn:matrix",
        "rgat": "gcnmpi.nn.networks.rgcn:matrix",
        "compgcn": "gcnmpi.nn.networks.rgcn:matrix",
        "hetero": "gcnmpi.nn.networks.rgcn:matrix",
        "hgt": "gcnmpi.nn.networks.rgcn:matrix",
        "sehgnn": "gcnmpi.nn.networks.rgcn:matrix",
        "gconvgru": "gcnmpi.nn.networks.chebyshev:matrix",
        "dcrnn": "gcnmpi.nn.networks.gin:matrix",
        "stgcn": "gcnmpi.nn.networks.chebyshev:matrix",
    },
)


@options_of("model", of_all=True)
class ModelConfig:
    """``[model]``: the network. Each has a class below, which adds its options."""

    name: str = key(
        "gcn",
        "network, docs/networks.md, or FILE.py:NAME of one's own, "
        "docs/python.md#a-network-of-your-own",
        choices=NETWORKS,
    )
    input_dropout: float = key(
        0.0,
        "probability of dropout on the input features; M·H⁰ is then not cached",
        low=0,
        below=1,
        example=0.5,
    )
    bias: bool = key(True, "add a bias to each layer")
    order: str = key(
        "auto",
        "which product first: combine: M·(H·W), aggregate: (M·H)·W, auto: fewer columns sent "
        "in an epoch; attention always multiplies with W first",
        choices=("auto", "combine", "aggregate"),
    )
    cache_input: bool = key(True, "compute M·H⁰ once and keep it, where it never changes")
    train_features: bool = key(False, "learn the input features too, from those of the graph")

    @property
    def fewest_outputs(self) -> int:
        """Columns of the outputs are a multiple of this."""
        return 1


@options_of("model")
class HiddenOptions(ModelConfig):
    """Of networks with hidden layers."""

    hidden: tuple[int, ...] = key(
        (16,),
        "widths of the hidden layers; []: one layer",
        low=1,
        below=2**24,
        most=DEEPEST,
        example=(64, 32),
    )
    layers: int = key(
        0, "number of hidden layers, the last width being repeated; 0: that of model.hidden", low=0,
        most=DEEPEST,
    )  # fmt: skip
    dropout: float = key(
        0.0, "probability of dropout on the output of hidden layers", low=0, below=1, example=0.5
    )
    activation: str = key(
        "relu",
        "activation of hidden layers",
        choices=ACTIVATIONS,
    )


@options_of("model")
class NormOptions(HiddenOptions):
    """Of networks whose hidden layers may be normalised."""

    norm: str = key(
        "none",
        "normalisation of the output of hidden layers; batch: exact moments of all vertices",
        choices=("none", "layer", "batch", "l2"),
    )


@options_of("model")
class ResidualOptions(NormOptions):
    """Of networks that may add to the output of a layer."""

    residual: str = key(
        "none",
        "what is added to a layer's output: identity: its input, where that is as wide; "
        "linear: its input times a weight",
        choices=("none", "identity", "linear"),
    )


@options_of("model")
class JumpOptions(ResidualOptions):
    """Of networks whose last linear layer may take all hidden layers."""

    jk: str = key(
        "none",
        "jumping knowledge: the last linear layer takes the sum, concatenation or maximum of "
        "all hidden layers",
        choices=("none", "sum", "cat", "max"),
    )


@options_of("model")
class ConvolutionOptions(JumpOptions):
    """Of networks that may begin or end with linear layers."""

    linear_before: bool = key(False, "a linear layer before the first convolution")
    linear_after: bool = key(
        False, "a linear layer gives the logits; all convolutions are hidden layers"
    )


@options_of("model")
class RootOptions(ConvolutionOptions):
    """Of networks that may leave the vertex itself out."""

    root_weight: bool = key(True, "a second weight, for the vertex itself")


@options_of("model")
class ArcOptions(ConvolutionOptions):
    """Of networks that may read features of arcs."""

    arc_features: bool = key(
        False,
        "read the features of arcs, docs/networks.md#features-of-arcs; gine and mgn always do",
    )


@options_of("model")
class AggregationOptions(RootOptions):
    """Of networks that may aggregate neighbours in other ways than by means."""

    aggregation: str = key(
        "mean",
        "how neighbours are aggregated (of hetero: by the convolution sage); several: mean+max",
        choices=Several(REDUCTIONS),
    )  # fmt: skip


@options_of("model")
class ScoreOptions(ConvolutionOptions):
    """Of networks with attention."""

    heads: int = key(1, "heads of a hidden layer", low=1, example=8)
    out_heads: int = key(
        1,
        "heads of the layer that gives the logits, which are averaged; those of hgt share its "
        "columns",
        low=1,
    )
    attention_dropout: float = key(
        0.0, "dropout on attention", low=0, below=1,
        example=0.6,
    )  # fmt: skip


@options_of("model")
class SlopeOptions(ScoreOptions):
    """Of networks whose attention has a leaky ReLU."""

    negative_slope: float = key(0.2, "slope of attention's leaky ReLU", low=0)


@options_of("model")
class ConcatOptions(ScoreOptions):
    """Of networks that may average the heads of hidden layers."""

    concat: bool = key(
        True,
        "concatenate the heads of hidden layers, or else average them",
    )


@options_of("model")
class HopsOptions(ModelConfig):
    """Of networks that aggregate the same rows several times."""

    hops: int = key(
        0,
        "number of aggregations; 0: 10 (appnp), 2 (sgc, sehgnn) or 3 (sign)", low=0, most=DEEPEST,
        example=10,
    )  # fmt: skip


@options_of("model")
class ShareOptions(ModelConfig):
    """Of networks that mix the first rows in."""

    alpha: float = key(0.1, "share of the first rows in every step", low=0, below=1)


@options_of("graph")
class MatrixOptions:
    """Of networks that leave the aggregation matrix to the user."""

    normalize: str = key(
        "sym",
        "weights of M: sym: D^-1/2·Ã·D^-1/2, row: the mean over neighbours, none: the sum",
        choices=NORMALIZATIONS,
    )
    self_loops: bool = key(True, "put a 1 on the diagonal of A where nothing is there")
