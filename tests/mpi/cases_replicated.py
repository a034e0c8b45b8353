"""Cases of the scheme "replicated" for test_schemes.py."""

DROPOUT = ["model.dropout=0.4", "model.input_dropout=0.2"]
# One part; parts that copies divide, or do not; fewer parts than copies.
COPIES = {1: 1, 2: 2, 3: 3, 4: 2, 6: 2, 8: 4, 9: 3, 12: 3, 16: 4}


def cases(nranks):
    """(graph, partition, settings) on a number of ranks."""
    copies = COPIES[nranks]
    partition = f"uneven-{nranks // copies}"
    sparse = ["scheme.name=replicated", f"scheme.replication={copies}", "train.epochs=6"]
    whole = [*sparse, "scheme.sparse=false"]
    found = [
        ("directed", partition, [*sparse, "model.hidden=[7]", *DROPOUT]),
        ("directed", partition, [*whole, "kernel=scipy", "model.hidden=[11,3,5]"]),
    ]
    if nranks == 16:  # copies and parts as of four: many ranks, and no more
        return found[:1]
    mixed = [*sparse, "scheme.exchange=mixed", *DROPOUT]
    found += [
        ("hubs", partition, [*mixed, "model.hidden=[7]"]),
        ("symmetric", partition, [*mixed, "graph.normalize=row", "model.hidden=[6]"]),
    ]
    if nranks in (4, 6):
        found += [
            ("symmetric", partition, [*sparse, "kernel=scipy", "model.hidden=[11,3,5]",
                                      "graph.normalize=row", "graph.direction=out"]),
            ("symmetric", partition, [*sparse, "dtype=float32", "scheme.backward=fold",
                                      "model.hidden=[7]", "model.train_features=true"]),
            ("symmetric", partition, [*whole, "scheme.overlap=false", "model.hidden=[7]"]),
        ]  # fmt: skip
    return found
