"""The sections ``[model]`` and ``[graph]``: the networks, and the options that each has."""

from __future__ import annotations

from typing import Any

from gcnmpi.core.functions import ACTIVATIONS, REDUCTIONS, SCALERS
from gcnmpi.options.settings import Options, key
from gcnmpi.options.user_network import is_user_network, load_network
from partition.registry import Registry

# Layers, and hops: each is compiled to steps of its own, in time that grows with their square, and
# the deepest networks that have been published have about 1000.
_DEEPEST = 2000
_USER_NETWORK = "FILE.py:NAME"  # stands for networks of users in the table of options


class Networks(Registry):
    """The networks that come along, and those of a user's files.

    See :mod:`gcnmpi.options.user_network`.
    """

    def get(self, name: str) -> Any:
        """The function that builds a network."""
        return load_network(name) if is_user_network(name) else super().get(name)

    def kinds(self, name: str) -> tuple[Any, ...]:
        """The classes of the options of a network."""
        return super().kinds(_USER_NETWORK if is_user_network(name) else name)

    def __contains__(self, name: object) -> bool:
        return is_user_network(name) or super().__contains__(name)


NETWORKS = Networks("model", {})
MATRICES = Registry("model", {})
"""Networks whose aggregation is part of what they are: (graph.normalize, graph.self_loops)."""


class ModelConfig(Options, section="model", of_all=True):
    """``[model]``: the network. Each has a class below, which adds its options.

    Attributes
    ----------
    name
        network, docs/networks.md, or FILE.py:NAME of one's own,
        docs/python.md#a-network-of-your-own
    input_dropout
        probability of dropout on the input features; M·H⁰ is then not cached
    bias
        add a bias to each layer
    order
        which product first: combine: M·(H·W), aggregate: (M·H)·W, auto: fewer columns sent in an
        epoch; attention always multiplies with W first
    cache_input
        compute M·H⁰ once and keep it, where it never changes
    train_features
        learn the input features too, from those of the graph
    """

    name: str = key("gcn", choices=NETWORKS)
    input_dropout: float = key(0.0, low=0, below=1, example=0.5)
    bias: bool = True
    order: str = key("auto", choices=("auto", "combine", "aggregate"))
    cache_input: bool = True
    train_features: bool = False

    @property
    def fewest_outputs(self) -> int:
        """Columns of the outputs are a multiple of this."""
        return 1


class HiddenOptions(ModelConfig):
    """Of networks with hidden layers.

    Attributes
    ----------
    hidden
        widths of the hidden layers; []: one layer
    layers
        number of hidden layers, the last width being repeated; 0: that of model.hidden
    dropout
        probability of dropout on the output of hidden layers
    activation
        activation of hidden layers
    """

    hidden: tuple[int, ...] = key((16,), low=1, below=2**24, most=_DEEPEST, example=(64, 32))
    layers: int = key(0, low=0, most=_DEEPEST)
    dropout: float = key(0.0, low=0, below=1, example=0.5)
    activation: str = key("relu", choices=ACTIVATIONS)


class NormOptions(HiddenOptions):
    """Of networks whose hidden layers may be normalised.

    Attributes
    ----------
    norm
        normalisation of the output of hidden layers; batch: exact moments of all vertices
    """

    norm: str = key("none", choices=("none", "layer", "batch", "l2"))


class ResidualOptions(NormOptions):
    """Of networks that may add to the output of a layer.

    Attributes
    ----------
    residual
        what is added to a layer's output: identity: its input, where that is as wide; linear: its
        input times a weight
    """

    residual: str = key("none", choices=("none", "identity", "linear"))


class JumpOptions(ResidualOptions):
    """Of networks whose last linear layer may take all hidden layers.

    Attributes
    ----------
    jk
        jumping knowledge: the last linear layer takes the sum, concatenation or maximum of all
        hidden layers
    """

    jk: str = key("none", choices=("none", "sum", "cat", "max"))


class ConvolutionOptions(JumpOptions):
    """Of networks that may begin or end with linear layers.

    Attributes
    ----------
    linear_before
        a linear layer before the first convolution
    linear_after
        a linear layer gives the logits; all convolutions are hidden layers
    """

    linear_before: bool = False
    linear_after: bool = False


class _RootOptions(ConvolutionOptions):
    """Of networks that may leave the vertex itself out.

    Attributes
    ----------
    root_weight
        a second weight, for the vertex itself
    """

    root_weight: bool = True


class ArcOptions(ConvolutionOptions):
    """Of networks that may read features of arcs.

    Attributes
    ----------
    arc_features
        read the features of arcs, docs/networks.md#features-of-arcs; gine and mgn always do
    """

    arc_features: bool = False


class _AggregationOptions(_RootOptions):
    """Of networks that may aggregate neighbours in other ways than by means.

    Attributes
    ----------
    aggregation
        how neighbours are aggregated (of hetero: by the convolution sage); several: mean+max
    """

    aggregation: str = key("mean", choices=REDUCTIONS, several=True)


class ScoreOptions(ConvolutionOptions):
    """Of networks with attention.

    Attributes
    ----------
    heads
        heads of a hidden layer
    out_heads
        heads of the layer that gives the logits, which are averaged; those of hgt share its columns
    attention_dropout
        dropout on attention
    """

    heads: int = key(1, low=1, example=8)
    out_heads: int = key(1, low=1)
    attention_dropout: float = key(0.0, low=0, below=1, example=0.6)


class _SlopeOptions(ScoreOptions):
    """Of networks whose attention has a leaky ReLU.

    Attributes
    ----------
    negative_slope
        slope of attention's leaky ReLU
    """

    negative_slope: float = key(0.2, low=0)


class ConcatOptions(ScoreOptions):
    """Of networks that may average the heads of hidden layers.

    Attributes
    ----------
    concat
        concatenate the heads of hidden layers, or else average them
    """

    concat: bool = True


class HopsOptions(ModelConfig):
    """Of networks that aggregate the same rows several times.

    Attributes
    ----------
    hops
        number of aggregations; 0: 10 (appnp), 2 (sgc, sehgnn) or 3 (sign)
    """

    hops: int = key(0, low=0, most=_DEEPEST, example=10)


class _ShareOptions(ModelConfig):
    """Of networks that mix the first rows in.

    Attributes
    ----------
    alpha
        share of the first rows in every step
    """

    alpha: float = key(0.1, low=0, below=1)


class SageOptions(_AggregationOptions):
    """Of GraphSAGE: how neighbours and the vertex itself count.

    Attributes
    ----------
    include_self
        count each vertex among its own neighbours too
    normalize_output
        divide each row of a layer's output by its length
    """

    include_self: bool = False
    normalize_output: bool = False


class GinOptions(ConvolutionOptions):
    """Of the graph isomorphism network.

    Attributes
    ----------
    eps
        weight of the vertex itself, less 1
    train_eps
        learn model.eps, from that value
    """

    eps: float = 0.0
    train_eps: bool = False


class _HeadOptions(ConcatOptions, ArcOptions):
    """Of those that may read features of arcs for attention."""


class AttentionOptions(_HeadOptions, _SlopeOptions):
    """Of the two networks of that kind."""


class TransformerOptions(_HeadOptions, _RootOptions):
    """Of the graph transformer, which may have a gate.

    Attributes
    ----------
    beta
        a gate between the neighbours and the vertex itself
    """

    beta: bool = False


class GatedOptions(_RootOptions, ArcOptions):
    """Of graph convolutions with gates."""


class PnaOptions(ArcOptions):
    """Of principal neighbourhood aggregation.

    Attributes
    ----------
    aggregators
        functions of the messages into a vertex, joined by +
    scalers
        functions of the degree that scale these, docs/networks.md#features-of-arcs
    towers
        kinds of messages, each with weights of its own
    pre_layers
        linear layers that make a message
    post_layers
        linear layers of each tower after it
    """

    aggregators: str = key("mean+min+max+std", choices=REDUCTIONS, several=True)
    scalers: str = key(
        "identity+amplification+attenuation", choices=("identity", *SCALERS), several=True
    )
    towers: int = key(1, low=1)
    pre_layers: int = key(1, low=1, most=_DEEPEST)
    post_layers: int = key(1, low=1, most=_DEEPEST)

    @property
    def fewest_outputs(self) -> int:
        """A column for each tower."""
        return self.towers


class MeshOptions(HiddenOptions):
    """Of MeshGraphNet: how many layers, and how arcs are joined.

    Attributes
    ----------
    reduction
        how the arcs into a vertex are joined
    mlp_layers
        hidden layers of each multilayer perceptron
    """

    reduction: str = key("sum", choices=REDUCTIONS)
    mlp_layers: int = key(2, low=1, most=_DEEPEST)


class _BasesOptions(ConvolutionOptions):
    """Of networks whose weights or vectors of relations may be sums of fewer ones.

    Attributes
    ----------
    bases
        weights (of compgcn vectors) of relations are sums of this many; 0: each has its own
    """

    bases: int = key(0, low=0, below=2**16, example=30)


class CompgcnOptions(_BasesOptions):
    """Of CompGCN, with a vector for each relation.

    Attributes
    ----------
    composition
        how the row x of a neighbour and the vector z of a relation are composed: sub: x − z, mult:
        entry by entry
    """

    composition: str = key("mult", choices=("sub", "mult"))


class _BlocksOptions(_BasesOptions):
    """Of networks whose weights of relations may have blocks.

    Attributes
    ----------
    blocks
        blocks on the diagonal of each weight, zeros elsewhere
    """

    blocks: int = key(1, low=1, below=2**16)


class RelationOptions(_RootOptions, _BlocksOptions):
    """Of R-GCN, with a weight for each relation."""


class RgatOptions(ConcatOptions, _SlopeOptions, _BlocksOptions):
    """Of relational graph attention.

    Attributes
    ----------
    softmax
        attention is over all arcs into a vertex, or over those of each relation
    """

    softmax: str = key("vertex", choices=("vertex", "relation"))


class HeteroOptions(ConcatOptions, _SlopeOptions, _AggregationOptions):
    """Of networks with a convolution for each relation.

    Attributes
    ----------
    convolution
        the convolution of each relation
    relation_reduction
        how the results of the relations into a type are joined
    """

    convolution: str = key("sage", choices=("sage", "gat", "gatv2"))
    relation_reduction: str = key("sum", choices=("sum", "mean"))


class GcniiOptions(JumpOptions, _ShareOptions):
    """Of GCNII, which applies a part of a weight.

    Attributes
    ----------
    theta
        layer k applies log(theta/k + 1) of its weight
    """

    theta: float = key(0.5, low=0)


class AppnpOptions(ResidualOptions, HopsOptions, _ShareOptions):
    """Of APPNP: a multilayer perceptron, then hops that mix its rows in."""


class SignOptions(NormOptions, HopsOptions):
    """Of SIGN: hops, then a hidden layer."""


class SehgnnOptions(SignOptions):
    """Of SeHGNN: metapaths to vertices of one type.

    Attributes
    ----------
    target
        the type of vertices that is learned; needed if there are several
    """

    target: str = key("", example="paper")


class FilterOptions(HiddenOptions):
    """Of networks whose convolutions look several times at neighbours.

    Attributes
    ----------
    filter_size
        K weights of a graph convolution (dcrnn: each way), with up to K − 1 aggregations
    """

    filter_size: int = key(2, low=1, most=_DEEPEST)


class StgcnOptions(FilterOptions, NormOptions):
    """Of STGCN, with convolutions over time.

    Attributes
    ----------
    kernel_size
        frames that a convolution over time takes
    """

    kernel_size: int = key(3, low=1, below=2**12)


class UserNetworkOptions(
    SageOptions, GinOptions, AttentionOptions, TransformerOptions, PnaOptions, MeshOptions,
    RelationOptions, RgatOptions, CompgcnOptions, HeteroOptions, GcniiOptions, AppnpOptions,
    StgcnOptions,
):  # fmt: skip
    """Of a user's network, which may read any."""


# Network: its options, and the module that has its matrix; None: the user chooses it.
_TABLE: dict[str, tuple[type[ModelConfig], str | None]] = {
    "gcn": (ConvolutionOptions, None),
    "sage": (SageOptions, "sage"),
    "gin": (GinOptions, "gin"),
    "gine": (GinOptions, "gin"),
    "gat": (AttentionOptions, "gat"),
    "gatv2": (AttentionOptions, "gat"),
    "transformer": (TransformerOptions, "gin"),
    "gatedgcn": (GatedOptions, "gin"),
    "pna": (PnaOptions, "gin"),
    "mgn": (MeshOptions, "gin"),
    "rgcn": (RelationOptions, "rgcn"),
    "rgat": (RgatOptions, "rgcn"),
    "compgcn": (CompgcnOptions, "rgcn"),
    "hetero": (HeteroOptions, "rgcn"),
    "hgt": (ScoreOptions, "rgcn"),
    "sehgnn": (SehgnnOptions, "rgcn"),
    "gcnii": (GcniiOptions, None),
    "appnp": (AppnpOptions, None),
    "sgc": (HopsOptions, None),
    "sign": (SignOptions, None),
    "mlp": (JumpOptions, ""),  # which aggregates nothing
    "gconvgru": (FilterOptions, "chebyshev"),
    "dcrnn": (FilterOptions, "gin"),
    "stgcn": (StgcnOptions, "chebyshev"),
}
_FOLDER, _MATRIX = "gcnmpi.nn.networks", ("graph.normalize", "graph.self_loops")
for _name, (_kind, _of) in _TABLE.items():
    NETWORKS.entries[_name] = f"{_FOLDER}.{_name}:build"
    NETWORKS.options[_name] = (_kind, *_MATRIX) if _of is None else (_kind,)
    if _of:
        MATRICES.entries[_name] = f"{_FOLDER}.{_of}:matrix"
NETWORKS.options[_USER_NETWORK] = UserNetworkOptions, *_MATRIX
