"""The section ``[model]`` of the configuration: the network and its options."""

from __future__ import annotations

from dataclasses import dataclass

from gcnmpi.core.settings import key
from gcnmpi.nn.networks import NETWORKS

MODELS = NETWORKS


@dataclass(frozen=True)
class ModelConfig:
    """``[model]``: the network."""

    name: str = key("gcn", "network", choices=MODELS)
    hidden: tuple[int, ...] = key((16,), "widths of the hidden layers", low=1, example=(64, 32))
    layers: int = key(
        0, "number of hidden layers: the last width is repeated; 0: as hidden says", low=0
    )
    dropout: float = key(0.0, "dropout on the output of hidden layers", low=0, below=1, example=0.5)
    input_dropout: float = key(0.0, "dropout on the input features", low=0, below=1, example=0.5)
    bias: bool = key(True, "add a bias to each layer")
    residual: str = key(
        "none",
        "what is added to a layer's output; identity: its input, where that is as wide",
        choices=("none", "identity", "linear"),
    )
    norm: str = key(
        "none",
        "normalisation of the output of hidden layers; batch: exact moments of all vertices",
        choices=("none", "layer", "batch", "l2"),
    )
    activation: str = key(
        "relu",
        "activation of hidden layers",
        choices=("relu", "elu", "leaky_relu", "gelu", "prelu", "none"),
    )
    jk: str = key(
        "none",
        "jumping knowledge: what the last linear layer takes of all hidden layers",
        choices=("none", "sum", "cat", "max"),
    )
    linear_before: bool = key(False, "a linear layer before the first convolution")
    linear_after: bool = key(False, "a linear layer gives the logits; convolutions are hidden")
    aggregation: str = key(
        "mean", "sage: how neighbours are aggregated", choices=("mean", "sum", "max")
    )
    root_weight: bool = key(True, "sage: a second weight for the vertex itself")
    normalize_output: bool = key(False, "sage: divide each row of a layer's output by its length")
    eps: float = key(0.0, "gin: weight of the vertex itself, less 1")
    train_eps: bool = key(False, "gin: learn eps, from that value")
    heads: int = key(1, "gat, gatv2: heads of a hidden layer", low=1, example=8)
    out_heads: int = key(1, "gat, gatv2: heads of the layer that gives the logits", low=1)
    concat: bool = key(True, "gat, gatv2: concatenate the heads of hidden layers, else their mean")
    attention_dropout: float = key(
        0.0, "gat, gatv2: dropout on attention", low=0, below=1, example=0.6
    )
    negative_slope: float = key(0.2, "gat, gatv2: slope of attention's leaky ReLU", low=0)
    hops: int = key(
        0, "appnp, sgc, sign: how often features are aggregated; 0: 10, 2, 3", low=0, example=10
    )
    alpha: float = key(0.1, "appnp, gcnii: share of the first rows in every step", low=0, below=1)
    theta: float = key(0.5, "gcnii: how much of a weight, log(theta/k + 1), layer k applies", low=0)
    order: str = key(
        "auto",
        "which product first: M(HW) or (MH)W; auto: the one that sends fewer bytes",
        choices=("auto", "combine", "aggregate"),
    )
    cache_input: bool = key(True, "compute M times fixed features only once")
    train_features: bool = key(False, "learn the input features too, from those of the graph")
