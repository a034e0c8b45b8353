"""The section ``[model]`` of the configuration: the network and its options."""

from __future__ import annotations

from dataclasses import dataclass

from gcnmpi.core.settings import key
from gcnmpi.nn.networks import (
    NETWORKS,
    AttentionOptions,
    GinOptions,
    HiddenOptions,
    HopsOptions,
    IdentityOptions,
    JumpOptions,
    LinearOptions,
    ResidualOptions,
    SageOptions,
    ShareOptions,
)

MODELS = NETWORKS


@dataclass(frozen=True)
class ModelConfig(
    HiddenOptions,
    ResidualOptions,
    JumpOptions,
    LinearOptions,
    SageOptions,
    GinOptions,
    AttentionOptions,
    HopsOptions,
    ShareOptions,
    IdentityOptions,
):
    """``[model]``: the network. What only some networks have, those own."""

    name: str = key("gcn", "network, or FILE.py:NAME of one's own", choices=MODELS)
    input_dropout: float = key(0.0, "dropout on the input features", low=0, below=1, example=0.5)
    bias: bool = key(True, "add a bias to each layer")
    order: str = key(
        "auto",
        "which product first: M(HW) or (MH)W; auto: the one that sends fewer bytes",
        choices=("auto", "combine", "aggregate"),
    )
    cache_input: bool = key(True, "compute M times fixed features only once")
    train_features: bool = key(False, "learn the input features too, from those of the graph")
