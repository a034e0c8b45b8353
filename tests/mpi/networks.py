"""Networks that the tests run: name → settings. With dropout wherever there is one."""

DROPOUT = ("model.dropout=0.4", "model.input_dropout=0.2")
ATTENTION = ("model.heads=3", "model.out_heads=2", "model.attention_dropout=0.3")

# One of each, with different norms, residuals and activations.
NETWORKS = {
    "gcn": ("model.hidden=9,6", "model.norm=layer", "model.residual=linear"),
    "sage": ("model.hidden=7,5", "model.norm=batch"),
    "sage-max": ("model.name=sage", "model.aggregation=max", "model.hidden=7,5"),
    "gin": ("model.hidden=6,6", "model.train_eps=true", "model.norm=batch"),
    "gat": ("model.hidden=6,9", "model.activation=elu", *ATTENTION),
    "gatv2": ("model.hidden=6,9", "model.residual=linear", *ATTENTION),
    "gcnii": (
        "model.hidden=6,6,6",
        "model.norm=layer",
        "train.weight_decay=1e-3",
        "train.weight_decay_convs=0.01",
    ),
    "appnp": ("model.hidden=8", "model.hops=3"),
    "sgc": ("model.hops=3",),
    "sign": ("model.hidden=5", "model.hops=2"),
    "mlp": ("model.hidden=8,8", "model.norm=batch", "model.activation=prelu"),
}
# Variants of these that each kernel and scheme need not see.
VARIANTS = {
    "gcn-none": ("model.name=gcn", "model.hidden=[]"),
    "gcn-jk-sum": ("model.name=gcn", "model.hidden=8,8", "model.jk=sum", "model.norm=l2"),
    "gcn-jk-cat": ("model.name=gcn", "model.hidden=8,5", "model.jk=cat", "model.activation=gelu"),
    "gcn-jk-max": ("model.name=gcn", "model.hidden=8,8", "model.jk=max", "model.activation=none"),
    "gcn-linear": (
        "model.name=gcn", "model.hidden=8,8", "model.linear_before=true", "model.linear_after=true",
        "model.residual=identity", "model.activation=leaky_relu",
    ),
    "gcn-trained": ("model.name=gcn", "model.hidden=6", "model.train_features=true"),
    "sage-sum": (
        "model.name=sage", "model.aggregation=sum", "model.normalize_output=true",
        "model.root_weight=false", "model.hidden=7", "model.include_self=true",
    ),
    "gin-eps": ("model.name=gin", "model.hidden=7", "model.eps=0.3", "model.activation=elu"),
    "gat-mean": (
        "model.name=gat", "model.hidden=5", "model.concat=false", "model.heads=2",
        "model.norm=layer", "model.jk=cat",
    ),
    "appnp-row": ("model.name=appnp", "model.hops=2", "graph.normalize=row", "model.norm=batch"),
}  # fmt: skip
WHOLE_ROWS = ("sage-max", "gat", "gatv2", "gat-mean")
"""Those that look at neighbours one by one."""


def settings_of(name):
    """All settings of a network."""
    own = {**NETWORKS, **VARIANTS}[name]
    named = () if any(s.startswith("model.name") for s in own) else (f"model.name={name}",)
    dropout = () if name in ("sgc", "gcn-none") else DROPOUT
    return [*named, *own, *dropout]
