"""Cases of the scheme "split3d": cubic and other grids, with one layer and with several."""

from words import epochs

UNEVEN = ["model.hidden=[11,3,5]", "graph.direction=out", "scheme.block=3", "model.dropout=0.4",
          "model.input_dropout=0.2"]  # fmt: skip
RANDOM = ["kernel=scipy", "model.hidden=[7]", "model.order=combine", "graph.normalize=row",
          "model.dropout=0.3"]  # fmt: skip
TRAINED = ["model.train_features=true", "model.order=aggregate", "model.dropout=0.3"]
SINGLE = ["dtype=float32", "model.hidden=[3]", "model.order=aggregate"]
CASES = {
    1: [("1x1x1", "directed", None, RANDOM)],
    2: [("1x1x2", "directed", "uneven-12", UNEVEN)],
    3: [("1x1x3", "directed", None, RANDOM)],
    4: [("2x1x2", "directed", "uneven-12", UNEVEN), ("1x2x2", "symmetric", "uneven-4", TRAINED)],
    6: [("1x2x3", "directed", "uneven-12", UNEVEN)],
    8: [("2x2x2", "directed", None, RANDOM), ("1x4x2", "symmetric", None, SINGLE)],
    9: [("1x3x3", "directed", "uneven-9", RANDOM)],
    12: [("2x3x2", "directed", "uneven-12", UNEVEN)],
    16: [("2x4x2", "directed", None, ["kernel=scipy", "model.hidden=[7]"])],
}


def cases(nranks):
    """(graph, partition, settings) on a number of ranks."""
    common = ["scheme.name=split3d", f"train.epochs={epochs(nranks)}"]
    return [
        (graph, parts, [*common, f"scheme.grid={grid}", *settings])
        for grid, graph, parts, settings in CASES[nranks]
    ]
