"""Cases of the scheme "tensor3d" for test_schemes.py: grids, orderings, one way of everything."""

# Ranks → grids (x, y, z), which the cases take in turn.
GRIDS = {
    1: ["1x1x1"],
    2: ["auto", "2x1x1"],
    3: ["1x3x1", "3x1x1", "1x1x3"],
    4: ["2x2x1", "1x2x2"],
    6: ["3x2x1", "1x2x3"],
    8: ["2x2x2"],
    9: ["3x1x3"],
    12: ["2x3x2"],
    16: ["4x2x2"],
}
DEEP = ["model.hidden=[11,3,5]", "model.dropout=0.4", "graph.direction=out"]
TRAINED = ["model.train_features=true", "model.dropout=0.2"]
PARTED = ["kernel=scipy", "scheme.chunks=3", "model.input_dropout=0.2"]


def cases(nranks):
    """(graph, partition, settings) on a number of ranks."""
    found = [
        ("directed", "uneven-6", [*DEEP, *PARTED]),
        ("directed", None, ["model.hidden=[7]", "graph.normalize=row", *TRAINED]),
    ]
    if nranks > 8:  # many more ranks than cores: one case, short
        partition = "uneven-6" if nranks == 12 else None
        found = [("directed", partition, [*DEEP, *PARTED, *TRAINED, "train.epochs=4"])]
    if nranks <= 4:
        # Seven layers: one more than the period with two orderings.
        deepest = ["model.hidden=[11,3,5,2,6,4]", "scheme.transpose_grad=true", "train.epochs=4"]
        found.append(("directed", None, deepest))
    if nranks == 4:
        single = ["model.hidden=[7]", "scheme.permutation=single", "dtype=float32", *TRAINED]
        found.append(("symmetric", None, single))
    grids = GRIDS[nranks]
    return [
        (graph, partition, ["scheme.name=tensor3d", f"scheme.grid={grids[i % len(grids)]}", *rest])
        for i, (graph, partition, rest) in enumerate(found)
    ]
