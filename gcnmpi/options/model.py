"""The section ``[model]`` of the configuration: what each network can be told.

That which several can be told, and the table of networks, are in :mod:`gcnmpi.options.stacks`.
"""

from __future__ import annotations

from gcnmpi.core.functions import REDUCTIONS, SCALERS
from gcnmpi.options.settings import Several, key, options_of
from gcnmpi.options.stacks import (
    DEEPEST,
    NETWORKS,
    OWN,
    AggregationOptions,
    ArcOptions,
    ConcatOptions,
    ConvolutionOptions,
    HiddenOptions,
    HopsOptions,
    JumpOptions,
    MatrixOptions,
    NormOptions,
    ResidualOptions,
    RootOptions,
    ScoreOptions,
    ShareOptions,
    SlopeOptions,
)
from gcnmpi.options.stacks import MATRICES as MATRICES
from gcnmpi.options.stacks import ModelConfig as ModelConfig


@options_of("model")
class SageOptions(AggregationOptions):
    """Of GraphSAGE: how neighbours and the vertex itself count."""

    include_self: bool = key(False, "count each vertex among its own neighbours too")
    normalize_output: bool = key(False, "divide each row of a layer's output by its length")


@options_of("model")
class GinOptions(ConvolutionOptions):
    """Of the graph isomorphism network."""

    eps: float = key(0.0, "weight of the vertex itself, less 1")
    train_eps: bool = key(False, "learn model.eps, from that value")


@options_of("model")
class HeadOptions(ConcatOptions, ArcOptions):
    """Of those that may read features of arcs for attention."""


@options_of("model")
class AttentionOptions(HeadOptions, SlopeOptions):
    """Of the two networks of that kind."""


@options_of("model")
class TransformerOptions(HeadOptions, RootOptions):
    """Of the graph transformer, which may have a gate."""

    beta: bool = key(False, "a gate between the neighbours and the vertex itself")


@options_of("model")
class GatedOptions(RootOptions, ArcOptions):
    """Of graph convolutions with gates."""


@options_of("model")
class PnaOptions(ArcOptions):
    """Of principal neighbourhood aggregation."""

    aggregators: str = key(
        "mean+min+max+std", "functions of the messages into a vertex, joined by +",
        choices=Several(REDUCTIONS),
    )  # fmt: skip
    scalers: str = key(
        "identity+amplification+attenuation",
        "functions of the degree that scale these, docs/networks.md#features-of-arcs",
        choices=Several(("identity", *SCALERS)),
    )  # fmt: skip
    towers: int = key(1, "kinds of messages, each with weights of its own", low=1)
    pre_layers: int = key(1, "linear layers that make a message", low=1, most=DEEPEST)
    post_layers: int = key(1, "linear layers of each tower after it", low=1, most=DEEPEST)

    @property
    def fewest_outputs(self) -> int:
        """A column for each tower."""
        return self.towers


@options_of("model")
class MeshOptions(HiddenOptions):
    """Of MeshGraphNet: how many layers, and how arcs are joined."""

    reduction: str = key("sum", "how the arcs into a vertex are joined", choices=REDUCTIONS)
    mlp_layers: int = key(2, "hidden layers of each multilayer perceptron", low=1, most=DEEPEST)


@options_of("model")
class BasesOptions(ConvolutionOptions):
    """Of networks whose weights or vectors of relations may be sums of fewer ones."""

    bases: int = key(
        0,
        "weights (of compgcn vectors) of relations are sums of this many; 0: each has its own",
        low=0,
        below=2**16,
        example=30,
    )


@options_of("model")
class CompgcnOptions(BasesOptions):
    """Of CompGCN, with a vector for each relation."""

    composition: str = key(
        "mult",
        "how the row x of a neighbour and the vector z of a relation are composed: sub: x − z, "
        "mult: entry by entry", choices=("sub", "mult"),
    )  # fmt: skip


@options_of("model")
class BlocksOptions(BasesOptions):
    """Of networks whose weights of relations may have blocks."""

    blocks: int = key(
        1, "blocks on the diagonal of each weight, zeros elsewhere", low=1, below=2**16
    )


@options_of("model")
class RelationOptions(RootOptions, BlocksOptions):
    """Of R-GCN, with a weight for each relation."""


@options_of("model")
class RgatOptions(ConcatOptions, SlopeOptions, BlocksOptions):
    """Of relational graph attention."""

    softmax: str = key(
        "vertex", "attention is over all arcs into a vertex, or over those of each relation",
        choices=("vertex", "relation"),
    )  # fmt: skip


@options_of("model")
class HeteroOptions(ConcatOptions, SlopeOptions, AggregationOptions):
    """Of networks with a convolution for each relation."""

    convolution: str = key(
        "sage", "the convolution of each relation", choices=("sage", "gat", "gatv2")
    )
    relation_reduction: str = key(
        "sum", "how the results of the relations into a type are joined",
        choices=("sum", "mean"),
    )  # fmt: skip


@options_of("model")
class GcniiOptions(JumpOptions, ShareOptions):
    """Of GCNII, which applies a part of a weight."""

    theta: float = key(0.5, "layer k applies log(theta/k + 1) of its weight", low=0)


@options_of("model")
class AppnpOptions(ResidualOptions, HopsOptions, ShareOptions):
    """Of APPNP: a multilayer perceptron, then hops that mix its rows in."""


@options_of("model")
class SignOptions(NormOptions, HopsOptions):
    """Of SIGN: hops, then a hidden layer."""


@options_of("model")
class SehgnnOptions(SignOptions):
    """Of SeHGNN: metapaths to vertices of one type."""

    target: str = key(
        "", "the type of vertices that is learned; needed if there are several",
        example="paper",
    )  # fmt: skip


@options_of("model")
class FilterOptions(HiddenOptions):
    """Of networks whose convolutions look several times at neighbours."""

    filter_size: int = key(
        2,
        "K weights of a graph convolution (dcrnn: each way), with up to K − 1 aggregations",
        low=1,
        most=DEEPEST,
    )


@options_of("model")
class StgcnOptions(FilterOptions, NormOptions):
    """Of STGCN, with convolutions over time."""

    kernel_size: int = key(3, "frames that a convolution over time takes", low=1, below=2**12)


@options_of("model")
class OwnOptions(
    SageOptions, GinOptions, AttentionOptions, TransformerOptions, PnaOptions, MeshOptions,
    RelationOptions, RgatOptions, CompgcnOptions, HeteroOptions, GcniiOptions, AppnpOptions,
    StgcnOptions,
):  # fmt: skip
    """Of a user's network, which may read any."""


NETWORKS.options.update(
    gcn=(ConvolutionOptions, MatrixOptions),
    sage=(SageOptions,),
    gin=(GinOptions,),
    gine=(GinOptions,),
    gat=(AttentionOptions,),
    gatv2=(AttentionOptions,),
    transformer=(TransformerOptions,),
    gatedgcn=(GatedOptions,),
    pna=(PnaOptions,),
    mgn=(MeshOptions,),
    rgcn=(RelationOptions,),
    rgat=(RgatOptions,),
    compgcn=(CompgcnOptions,),
    hetero=(HeteroOptions,),
    hgt=(ScoreOptions,),
    sehgnn=(SehgnnOptions,),
    gcnii=(GcniiOptions, MatrixOptions),
    appnp=(AppnpOptions, MatrixOptions),
    sgc=(HopsOptions, MatrixOptions),
    sign=(SignOptions, MatrixOptions),
    mlp=(JumpOptions,),
    gconvgru=(FilterOptions,),
    dcrnn=(FilterOptions,),
    stgcn=(StgcnOptions,),
)
NETWORKS.options[OWN] = OwnOptions, MatrixOptions
