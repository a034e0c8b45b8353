"""Cases of every order of a rank's rows, under the schemes that keep rows whole.

On three ranks, of which one has no rows, each order with each scheme; elsewhere they take turns.
"""

DROPOUT = ["model.dropout=0.4", "model.input_dropout=0.2", "model.train_features=true"]
ORDERS = ("none", "auto", "rcm", "degree")


def cases(nranks):
    """(graph, partition, settings) on a number of ranks; with three or more, part 1 is empty."""
    if nranks > 4:
        return []
    partition = f"uneven-{nranks}"
    found = []
    for turn, order in enumerate(ORDERS):
        common = ["model.hidden=[7]", f"loading.order={order}", "train.epochs=6", *DROPOUT]
        kinds = [
            ("directed", partition, common),
            ("symmetric", partition, [*common, "graph.normalize=row", "graph.direction=out"]),
            ("directed", partition, ["scheme.name=bcast", *common]),
        ]
        found += kinds if nranks == 3 else [kinds[(turn + nranks) % len(kinds)]]
    copied = ["scheme.name=replicated", "model.hidden=[7]", "train.epochs=6", *DROPOUT]
    if nranks in (2, 4):
        parts = f"uneven-{nranks // 2}"
        found += [
            ("directed", parts, [*copied, "loading.order=rcm"]),
            ("directed", parts, [*copied, "loading.order=degree", "scheme.sparse=false"]),
        ]
    return found
