"""Cases of the scheme "columns" for test_schemes.py."""

COLUMNS = ["scheme.name=columns", "train.epochs=6"]
DROPOUT = ["model.dropout=0.4", "model.input_dropout=0.2"]
# Chains of products that are made in every epoch: their inputs are trained, or dropped out.
APPNP = ["model.name=appnp", "model.hidden=[7]", "model.hops=3", *DROPOUT]
SGC = ["model.name=sgc", "model.hops=3", "model.train_features=true"]
SIGN = ["model.name=sign", "model.hops=2", "model.hidden=[5]", "model.train_features=true"]


def cases(nranks):
    """(graph, partition, settings) on a number of ranks; parts are grouped where they are more."""
    grouped = f"uneven-{nranks * 4 if nranks < 4 else nranks}"
    found = [
        ("directed", grouped, [*COLUMNS, *APPNP]),
        ("directed", f"uneven-{nranks}", [*COLUMNS, *SGC, "kernel=scipy"]),
        ("directed", grouped, [*COLUMNS, "model.hidden=[7]", *DROPOUT]),
    ]
    if nranks in (3, 4):
        found += [
            ("symmetric", None, [*COLUMNS, *SIGN, "graph.normalize=row", "graph.direction=out"]),
            ("symmetric", grouped, [*COLUMNS, *APPNP, "dtype=float32", "loading.order=rcm"]),
            ("directed", None, [*COLUMNS, "model.name=sign", "model.hidden=[5]"]),  # made once
        ]
    return found if nranks <= 9 else found[:1]
