"""Cases of the scheme "summa": square and rectangular grids, orders from partitions and not."""

DROPOUT = ["model.dropout=0.4", "model.input_dropout=0.2"]
# Rows and columns; 8 and 12 ranks also with stages that are parts of blocks.
GRIDS = {
    1: ("1x1",), 2: ("1x2", "2x1"), 3: ("3x1", "1x3"), 4: ("2x2", "1x4"), 6: ("2x3", "3x2"),
    8: ("4x2", "2x4"), 9: ("3x3",), 12: ("3x4", "4x3"), 16: ("4x4", "2x8"),
}  # fmt: skip


def cases(nranks):
    """(graph, partition, settings) on a number of ranks."""
    first, last = (f"scheme.grid={GRIDS[nranks][place]}" for place in (0, -1))
    # 12 parts are a multiple of the blocks of most grids here, of which others make even blocks.
    found = [
        ("directed", "uneven-12",
         [first, "kernel=scipy", "model.hidden=[11,3,5]", "scheme.block=2", *DROPOUT]),
        ("directed", None,
         [last, "model.hidden=[7]", "graph.direction=out", "model.order=aggregate",
          "model.cache_input=false", "graph.normalize=row", "model.dropout=0.3"]),
    ]  # fmt: skip
    symmetric = {
        4: ["model.train_features=true", "scheme.permutation=none", "model.dropout=0.3"],
        6: ["dtype=float32", "kernel=scipy", "model.hidden=[7]"],
        9: ["graph.normalize=row", "scheme.block=1", "model.bias=false"],
    }
    if nranks in symmetric:
        found.append(("symmetric", f"uneven-{nranks}", [last, *symmetric[nranks]]))
    return [(graph, parts, ["scheme.name=summa", *settings]) for graph, parts, settings in found]
