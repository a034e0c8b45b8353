"""Cases of the scheme "bcast" for test_schemes.py."""

BCAST = ["scheme.name=bcast"]
DROPOUT = ["model.dropout=0.4", "model.input_dropout=0.2"]


def cases(nranks):
    """(graph, partition, settings) on a number of ranks."""
    grouped = f"uneven-{2 * nranks if 2 * nranks <= 16 else nranks}"
    found = [
        ("directed", f"uneven-{nranks}", [*BCAST, "model.hidden=[7]", *DROPOUT]),
        ("symmetric", None, [*BCAST, "kernel=scipy", "model.hidden=[11,3,5]",
                             "graph.normalize=row", "graph.direction=out"]),
    ]  # fmt: skip
    if nranks in (2, 4):
        found += [
            ("directed", grouped, [*BCAST, "scheme.overlap=false", "model.hidden=[7]",
                                   "model.train_features=true", *DROPOUT]),
            ("symmetric", grouped, [*BCAST, "dtype=float32", "model.hidden=[7]"]),
        ]  # fmt: skip
    return found
