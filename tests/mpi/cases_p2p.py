"""Cases of the scheme "p2p" for test_schemes.py; more of it are in test_verify.py."""

DROPOUT = ["model.dropout=0.4", "model.input_dropout=0.2"]


def cases(nranks):
    """(graph, partition, settings) on a number of ranks; of many, every other one; of most, one."""
    partition = f"uneven-{nranks}"
    mixed = "scheme.exchange=mixed"
    by_rows = ["kernel=scipy", "model.hidden=[7]", "scheme.exchange=rows", *DROPOUT]
    # All ranks sum the length of the gradient, though one part is empty where there are three.
    clipped = ["model.train_features=true", "train.clip_norm=0.01", "model.hidden=[5]"]
    found = [
        ("directed", partition, by_rows),
        ("directed", partition, [mixed, "model.hidden=[7]", "graph.normalize=row", *DROPOUT]),
        *(
            ("hubs", partition, [mixed, f"kernel={kernel}", "model.hidden=[6]", *DROPOUT])
            for kernel in ("native", "graphblas", "scipy")
        ),
        ("symmetric", partition, [mixed, "graph.normalize=row", "model.hidden=[6]", *DROPOUT]),
        ("symmetric", partition, [mixed, "scheme.backward=fold", "model.hidden=[6]", *DROPOUT]),
        ("directed", partition, clipped),
        ("symmetric", partition, ["model.hidden=[11,3,5]", "graph.normalize=row", *DROPOUT]),
    ]
    found = found if nranks in (1, 2, 3, 4, 7) else found[nranks // 4 % 2 :: 2]
    return found if nranks <= 9 else found[:1]
