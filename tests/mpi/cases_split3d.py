"""Cases of the scheme "split3d": cubic and other grids, with one layer and with several."""

DROPOUT = ["model.dropout=0.4", "model.input_dropout=0.2"]
GRIDS = {
    1: ("1x1x1",), 2: ("1x1x2",), 3: ("1x1x3", "3x1x1"), 4: ("2x1x2", "1x2x2"),
    6: ("1x2x3", "3x1x2"), 8: ("2x2x2", "1x4x2"), 9: ("1x3x3",), 12: ("2x3x2", "3x2x2"),
    16: ("2x4x2", "2x2x4"),
}  # fmt: skip


def cases(nranks):
    """(graph, partition, settings) on a number of ranks."""
    first, last = (f"scheme.grid={GRIDS[nranks][place]}" for place in (0, -1))
    found = [
        ("directed", "uneven-12",
         [first, "model.hidden=[11,3,5]", "graph.direction=out", "scheme.block=3", *DROPOUT]),
        ("directed", None,
         [last, "kernel=scipy", "model.hidden=[7]", "model.order=combine",
          "graph.normalize=row", "model.dropout=0.3"]),
    ]  # fmt: skip
    symmetric = {
        4: ["model.train_features=true", "model.order=aggregate", "model.dropout=0.3"],
        8: ["dtype=float32", "model.hidden=[7]", "model.order=aggregate"],
    }
    if nranks in symmetric:
        found.append(("symmetric", f"uneven-{nranks}", [last, *symmetric[nranks]]))
    return [(graph, parts, ["scheme.name=split3d", *settings]) for graph, parts, settings in found]
