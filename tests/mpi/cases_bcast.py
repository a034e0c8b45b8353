"""Cases of the scheme "bcast" for test_schemes.py."""

BCAST = ["scheme.name=bcast", "train.epochs=6"]
DROPOUT = ["model.dropout=0.4", "model.input_dropout=0.2"]


def cases(nranks):
    """(graph, partition, settings) on a number of ranks; parts are grouped where they are more."""
    grouped = f"uneven-{nranks * 4 if nranks < 4 else nranks}"
    found = [("directed", grouped, [*BCAST, "model.hidden=[7]", *DROPOUT])]
    if nranks in (3, 4):
        found += [
            ("symmetric", None, [*BCAST, "kernel=scipy", "model.hidden=[11,3,5]",
                                 "graph.normalize=row", "graph.direction=out"]),
            ("symmetric", grouped, [*BCAST, "scheme.overlap=false", "dtype=float32",
                                    "model.hidden=[7]", "model.train_features=true"]),
        ]  # fmt: skip
    return found
