"""Cases of the scheme "summa": square and rectangular grids, orders from partitions and not."""

from words import epochs

DROPOUT = ["model.dropout=0.4", "model.input_dropout=0.2"]
UNEVEN = ["kernel=scipy", "model.hidden=[11,3,5]", "scheme.block=2", *DROPOUT]
RANDOM = ["model.hidden=[7]", "graph.direction=out", "model.order=aggregate",
          "model.cache_input=false", "graph.normalize=row", "model.dropout=0.3"]  # fmt: skip
# With more ranks in a process row than columns in a matrix.
TRAINED = ["model.hidden=[3]", "model.train_features=true", "scheme.permutation=none",
           "model.dropout=0.3"]  # fmt: skip
SINGLE = ["dtype=float32", "kernel=scipy", "model.hidden=[7]"]
# Grid → partition and settings. On 12 ranks, stages are parts of blocks. 12 parts are a multiple of
# the number of blocks of most grids here; where they are not, blocks are even.
CASES = {
    1: [("1x1", "directed", "uneven-12", UNEVEN)],
    2: [("1x2", "directed", "uneven-12", UNEVEN), ("2x1", "directed", None, RANDOM)],
    3: [("1x3", "directed", "uneven-12", UNEVEN), ("3x1", "directed", None, RANDOM)],
    4: [("2x2", "directed", "uneven-12", UNEVEN), ("2x2", "directed", None, RANDOM),
        ("1x4", "symmetric", None, TRAINED)],
    6: [("2x3", "directed", "uneven-12", UNEVEN), ("3x2", "symmetric", None, SINGLE)],
    8: [("4x2", "directed", None, RANDOM)],
    9: [("3x3", "directed", "uneven-9", UNEVEN)],
    12: [("3x4", "directed", "uneven-12", RANDOM)],
    16: [("4x4", "directed", "uneven-12", ["kernel=scipy", "model.hidden=[7]"])],
}  # fmt: skip


def cases(nranks):
    """(graph, partition, settings) on a number of ranks."""
    common = ["scheme.name=summa", f"train.epochs={epochs(nranks)}"]
    return [
        (graph, parts, [*common, f"scheme.grid={grid}", *settings])
        for grid, graph, parts, settings in CASES[nranks]
    ]
