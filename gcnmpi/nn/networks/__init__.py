"""Networks: one short file each, which describes it with a builder. And what each can be told."""

from partition.registry import Registry

# Keys of the configuration: of networks with hidden layers, of stacks of them, of those that leave
# the aggregation matrix to the user, of attention.
_HIDDEN = (
    "model.hidden", "model.layers", "model.dropout", "model.norm", "model.activation",
)  # fmt: skip
_STACK = (*_HIDDEN, "model.residual", "model.jk")
_LINEAR = ("model.linear_before", "model.linear_after")
_MATRIX = ("graph.normalize", "graph.self_loops")
_ATTENTION = (
    "model.heads", "model.out_heads", "model.concat", "model.attention_dropout",
    "model.negative_slope",
)  # fmt: skip

NETWORKS = Registry(
    "model",
    {
        "gcn": "gcnmpi.nn.networks.gcn:build",
        "sage": "gcnmpi.nn.networks.sage:build",
        "gin": "gcnmpi.nn.networks.gin:build",
        "gat": "gcnmpi.nn.networks.gat:build",
        "gatv2": "gcnmpi.nn.networks.gatv2:build",
        "gcnii": "gcnmpi.nn.networks.gcnii:build",
        "appnp": "gcnmpi.nn.networks.appnp:build",
        "sgc": "gcnmpi.nn.networks.sgc:build",
        "sign": "gcnmpi.nn.networks.sign:build",
        "mlp": "gcnmpi.nn.networks.mlp:build",
    },
    options={
        "gcn": (*_STACK, *_LINEAR, *_MATRIX),
        "sage": (
            *_STACK, *_LINEAR,
            "model.aggregation", "model.root_weight", "model.normalize_output",
        ),
        "gin": (*_STACK, *_LINEAR, "model.eps", "model.train_eps"),
        "gat": (*_STACK, *_LINEAR, *_ATTENTION),
        "gatv2": (*_STACK, *_LINEAR, *_ATTENTION),
        "gcnii": (*_STACK, *_MATRIX, "model.alpha", "model.theta"),
        "appnp": (*_HIDDEN, *_MATRIX, "model.residual", "model.hops", "model.alpha"),
        "sgc": (*_MATRIX, "model.hops"),
        "sign": (*_HIDDEN, *_MATRIX, "model.hops"),
        "mlp": _STACK,
    },
)  # fmt: skip

# Networks whose aggregation is part of what they are: model → (graph.normalize, graph.self_loops).
MATRICES = Registry(
    "model",
    {
        "sage": "gcnmpi.nn.networks.sage:matrix",
        "gin": "gcnmpi.nn.networks.gin:matrix",
        "gat": "gcnmpi.nn.networks.gat:matrix",
        "gatv2": "gcnmpi.nn.networks.gat:matrix",
    },
)
