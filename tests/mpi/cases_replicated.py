"""Cases of the scheme "replicated" for test_schemes.py."""

DROPOUT = ["model.dropout=0.4", "model.input_dropout=0.2"]


def cases(nranks):
    """(graph, partition, settings) on a number of ranks."""
    factors = [copies for copies in (2, 3, 4, 8) if nranks % copies == 0] or [1]
    found = []
    for number, copies in enumerate(factors):
        scheme = ["scheme.name=replicated", f"scheme.replication={copies}"]
        partition = f"uneven-{nranks // copies}"
        whole = [*scheme, "scheme.sparse=false"]
        found += [
            ("directed", partition, [*scheme, "model.hidden=[7]", *DROPOUT]),
            ("symmetric", partition, [*scheme, "kernel=scipy", "model.hidden=[11,3,5]",
                                      "graph.normalize=row"]),
        ][:: 1 if number == 0 else 2]  # fmt: skip
        found.append(
            ("directed", partition, [*whole, "kernel=scipy", "model.hidden=[7]", *DROPOUT])
        )
        if number == 0 and nranks in (4, 6):
            found += [
                ("symmetric", partition, [*whole, "scheme.overlap=false", "model.hidden=[7]",
                                          "model.train_features=true", "graph.direction=out"]),
                ("symmetric", partition, [*scheme, "dtype=float32", "scheme.backward=fold",
                                          "model.hidden=[7]", "model.train_features=true"]),
            ]  # fmt: skip
    return found
