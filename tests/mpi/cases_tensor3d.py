"""Cases of the scheme "tensor3d" for test_schemes.py: grids, orderings, one way of everything."""

DROPOUT = ["model.dropout=0.4", "model.input_dropout=0.2"]
# Ranks → grids (x, y, z); all are tried, in turn, with the settings below.
GRIDS = {
    1: ["1x1x1"],
    2: ["auto", "2x1x1"],
    3: ["1x3x1", "3x1x1", "1x1x3"],
    4: ["2x2x1", "1x2x2"],
    6: ["3x2x1", "1x2x3"],
    8: ["2x2x2"],
    9: ["3x1x3"],
    12: ["2x3x2"],
    16: ["2x4x2"],
}
DEEP = ["model.hidden=[11,3,5]", *DROPOUT]
TRAINED = ["model.train_features=true", "model.dropout=0.2"]


def cases(nranks):
    """(graph, partition, settings) on a number of ranks."""
    grids = GRIDS[nranks]
    settings = [
        ("directed", "uneven-6", [*DEEP, "kernel=scipy", "scheme.chunks=3"]),
        ("directed", None, [*DEEP, "graph.direction=out", "scheme.transpose_grad=true"]),
        ("symmetric", None, ["model.hidden=[7]", "scheme.permutation=single"]),
        ("directed", None, ["model.hidden=[11,3,5,2,6,4,3]", "graph.normalize=row", *TRAINED]),
    ]
    if nranks == 4:
        settings.append(("symmetric", "uneven-4", ["model.hidden=[7]", "dtype=float32", *TRAINED]))
    if nranks > 4:  # more ranks than cores: the first two, and one that differs
        settings = [*settings[:2], settings[2 + nranks // 3 % 2]]
    scheme = "scheme.name=tensor3d"
    return [
        (graph, partition, [scheme, f"scheme.grid={grids[i % len(grids)]}", *rest])
        for i, (graph, partition, rest) in enumerate(settings)
    ]
