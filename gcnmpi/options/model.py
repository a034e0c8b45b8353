"""The section ``[model]`` of the configuration: the networks, and what each can be told."""

from __future__ import annotations

from typing import Any

from gcnmpi.core.functions import FUNCTIONS
from gcnmpi.options.own_code import is_own, load_network
from gcnmpi.options.settings import key, options_of
from partition.graph.graph import NORMALIZATIONS
from partition.registry import Registry

# Layers, and hops: each is compiled to steps of its own, in time that grows with their square, and
# the deepest networks that have been published have about 1000.
DEEPEST = 2000


class Networks(Registry):
    """The networks that come along, and those of a user's files: see
    :mod:`gcnmpi.options.own_code`.
    """

    def get(self, name: str) -> Any:
        """The function that builds a network."""
        return load_network(name) if is_own(name) else super().get(name)

    def kinds(self, name: str) -> tuple[Any, ...]:
        """The classes of the options of a network."""
        return (OwnOptions, MatrixOptions) if is_own(name) else super().kinds(name)

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
        "gcnii": "gcnmpi.nn.networks.gcnii:build",
        "appnp": "gcnmpi.nn.networks.appnp:build",
        "sgc": "gcnmpi.nn.networks.sgc:build",
        "sign": "gcnmpi.nn.networks.sign:build",
        "mlp": "gcnmpi.nn.networks.mlp:build",
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
    },
)


@options_of("model", of_all=True)
class ModelConfig:
    """``[model]``: the network. Each has a class below, which adds its options."""

    name: str = key("gcn", "network, or FILE.py:NAME of one's own", choices=NETWORKS)
    input_dropout: float = key(0.0, "dropout on the input features", low=0, below=1, example=0.5)
    bias: bool = key(True, "add a bias to each layer")
    order: str = key(
        "auto",
        "which product first: M(HW) or (MH)W; auto: the one that sends fewer bytes",
        choices=("auto", "combine", "aggregate"),
    )
    cache_input: bool = key(True, "compute M times fixed features only once")
    train_features: bool = key(False, "learn the input features too, from those of the graph")


@options_of("model")
class HiddenOptions(ModelConfig):
    """Of networks with hidden layers."""

    hidden: tuple[int, ...] = key(
        (16,), "widths of the hidden layers", low=1, below=2**24, most=DEEPEST, example=(64, 32)
    )
    layers: int = key(
        0, "number of hidden layers: the last width is repeated; 0: as hidden says", low=0,
        most=DEEPEST,
    )  # fmt: skip
    dropout: float = key(0.0, "dropout on the output of hidden layers", low=0, below=1, example=0.5)
    norm: str = key(
        "none",
        "normalisation of the output of hidden layers; batch: exact moments of all vertices",
        choices=("none", "layer", "batch", "l2"),
    )
    activation: str = key(
        "relu",
        "activation of hidden layers",
        choices=("relu", "elu", "leaky_relu", *FUNCTIONS, "prelu", "none"),
    )


@options_of("model")
class ResidualOptions(HiddenOptions):
    """Of networks that may add to the output of a layer."""

    residual: str = key(
        "none",
        "what is added to a layer's output; identity: its input, where that is as wide",
        choices=("none", "identity", "linear"),
    )


@options_of("model")
class JumpOptions(ResidualOptions):
    """Of networks whose last linear layer may take all hidden layers."""

    jk: str = key(
        "none",
        "jumping knowledge: what the last linear layer takes of all hidden layers",
        choices=("none", "sum", "cat", "max"),
    )


@options_of("model")
class ConvolutionOptions(JumpOptions):
    """Of networks that may begin or end with linear layers."""

    linear_before: bool = key(False, "a linear layer before the first convolution")
    linear_after: bool = key(False, "a linear layer gives the logits; convolutions are hidden")


@options_of("model")
class SageOptions(ConvolutionOptions):
    """Of GraphSAGE: how neighbours and the vertex itself count."""

    aggregation: str = key(
        "mean", "sage: how neighbours are aggregated", choices=("mean", "sum", "max")
    )
    include_self: bool = key(False, "sage: count each vertex among its own neighbours too")
    root_weight: bool = key(True, "sage: a second weight for the vertex itself")
    normalize_output: bool = key(False, "sage: divide each row of a layer's output by its length")


@options_of("model")
class GinOptions(ConvolutionOptions):
    """Of the graph isomorphism network."""

    eps: float = key(0.0, "gin: weight of the vertex itself, less 1")
    train_eps: bool = key(False, "gin: learn eps, from that value")


@options_of("model")
class AttentionOptions(ConvolutionOptions):
    """Of networks with attention."""

    heads: int = key(1, "gat, gatv2: heads of a hidden layer", low=1, example=8)
    out_heads: int = key(1, "gat, gatv2: heads of the layer that gives the logits", low=1)
    concat: bool = key(True, "gat, gatv2: concatenate the heads of hidden layers, else their mean")
    attention_dropout: float = key(
        0.0, "gat, gatv2: dropout on attention", low=0, below=1, example=0.6
    )
    negative_slope: float = key(0.2, "gat, gatv2: slope of attention's leaky ReLU", low=0)


@options_of("model")
class HopsOptions(ModelConfig):
    """Of networks that aggregate the same rows several times."""

    hops: int = key(
        0, "appnp, sgc, sign: how often features are aggregated; 0: 10, 2, 3", low=0, most=DEEPEST,
        example=10,
    )  # fmt: skip


@options_of("model")
class ShareOptions(ModelConfig):
    """Of networks that mix the first rows in."""

    alpha: float = key(0.1, "appnp, gcnii: share of the first rows in every step", low=0, below=1)


@options_of("model")
class GcniiOptions(JumpOptions, ShareOptions):
    """Of GCNII, which applies a part of a weight."""

    theta: float = key(0.5, "gcnii: how much of a weight, log(theta/k + 1), layer k applies", low=0)


@options_of("model")
class AppnpOptions(ResidualOptions, HopsOptions, ShareOptions):
    """Of APPNP: a multilayer perceptron, then hops that mix its rows in."""


@options_of("model")
class SignOptions(HiddenOptions, HopsOptions):
    """Of SIGN: hops, then a hidden layer."""


@options_of("model")
class OwnOptions(SageOptions, GinOptions, AttentionOptions, GcniiOptions, AppnpOptions):
    """Of a user's network, which may read any."""


@options_of("graph")
class MatrixOptions:
    """Of networks that leave the aggregation matrix to the user."""

    normalize: str = key("sym", "weights of M", choices=NORMALIZATIONS)
    self_loops: bool = key(True, "put a 1 on the diagonal of A where it is missing")


NETWORKS.options.update(
    gcn=(ConvolutionOptions, MatrixOptions),
    sage=(SageOptions,),
    gin=(GinOptions,),
    gine=(GinOptions,),
    gat=(AttentionOptions,),
    gatv2=(AttentionOptions,),
    gcnii=(GcniiOptions, MatrixOptions),
    appnp=(AppnpOptions, MatrixOptions),
    sgc=(HopsOptions, MatrixOptions),
    sign=(SignOptions, MatrixOptions),
    mlp=(JumpOptions,),
)
