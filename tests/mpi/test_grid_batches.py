"""Mini-batches of vertices on grids: the curve of ``p2p``, and what was counted is as predicted.

The graph has weights, self-loops and isolated vertices, and is directed in all cases but one; parts
are uneven, and one is empty. There are batches in which some blocks of a grid have no rows.
"""

import pytest
from stored_graphs import store
from test_minibatch import COMMON, is_that_of_one_rank
from test_task_runs import make_graph

VERTEX, CLUSTER = "train.batches=vertex,13", "train.batches=cluster,uneven-12,4"
# Name → graph, settings.
CASES = {
    "gcn": ("directed", "model.hidden=6", "model.residual=linear", VERTEX),
    "gin": ("directed", "model.name=gin", "model.hidden=5", "model.norm=layer", VERTEX),
    "sage": ("directed", "model.name=sage", "model.hidden=5", "model.norm=batch", CLUSTER),
    "deep": (
        "directed", "model.hidden=5,5,6", "model.residual=identity", "graph.direction=out", VERTEX,
    ),
    "clipped": (
        "directed", "model.hidden=6", "train.clip_norm=0.1", "task.label_smoothing=0.1", CLUSTER,
    ),
    "symmetric": ("symmetric", "model.hidden=6,5", VERTEX),
    "small": ("directed", "model.hidden=6", "train.batches=vertex,5"),
    "labels": ("tasks", "task.name=labels", "train.batches=vertex,31"),
    "numbers": ("tasks", "task.name=regression", "train.batches=vertex,31", "model.norm=layer"),
    "huber": ("tasks", "task.name=regression", "task.loss=huber", "train.batches=vertex,50"),
    "smooth": ("tasks", "task.label_smoothing=0.1", "train.batches=vertex,50", "train.split=1"),
}  # fmt: skip
GRIDS = {
    4: {
        "summa 1x4": ("scheme.name=summa", "scheme.grid=1x4", "scheme.permutation=single"),
        "tensor3d": ("scheme.name=tensor3d", "scheme.grid=2x1x2", "scheme.chunks=3"),
    },
    6: {
        "summa 2x3": ("scheme.name=summa", "scheme.grid=2x3", "scheme.block=2"),
        "split3d": ("scheme.name=split3d", "scheme.grid=1x2x3", "scheme.permutation=none"),
        "tensor3d": ("scheme.name=tensor3d", "scheme.grid=3x2x1"),  # in the parts of a partition
    },
}
# Cases that grids of one number of ranks have in turn, so that each has one of each number.
TURNS = [
    (nranks, case, list(grids)[i % len(grids)])
    for i, case in enumerate(CASES)
    for nranks, grids in GRIDS.items()
]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    return store(tmp_path_factory.mktemp("tasks") / "tasks.graph", make_graph(), 6)


def wanted(nranks, schemes_folder, tasks):
    found = {}
    for name, (kind, *settings) in CASES.items():
        graph = tasks if kind == "tasks" else schemes_folder / f"{kind}.graph"
        if nranks == 1:
            found[name] = graph, None, [*COMMON, *settings]
        for grid in [grid for ranks, case, grid in TURNS if (ranks, case) == (nranks, name)]:
            parts = "rp-6" if kind == "tasks" else "uneven-6"
            own = [*COMMON, *settings, *GRIDS[nranks][grid]]
            found[name] = graph, parts if (nranks, grid) == (6, "tensor3d") else None, own
    return found


@pytest.mark.parametrize(("nranks", "case", "grid"), TURNS)
def test_one_curve_and_what_was_counted(results, nranks, case, grid):
    record, alone = results(nranks)[case], results(1)[case]
    is_that_of_one_rank(record, alone, nranks)
    assert record["batches"] == [alone["batches"][0]] * nranks


def test_an_interrupted_epoch_goes_on_where_it_was_and_elsewhere(
    run_cases, schemes_folder, tmp_path
):
    graph = schemes_folder / "directed.graph"
    summa, split, tensor = (
        (f"scheme.name={name}", f"scheme.grid={grid}")
        for name, grid in (("summa", "2x2"), ("split3d", "1x2x2"), ("tensor3d", "2x2x1"))
    )
    cases = [
        (graph, "uneven-4", tmp_path / first[0], "vertex,13", first, *others)
        for first, *others in ((summa, tensor, ["scheme.name=p2p"]), (tensor, split))
    ]
    run_cases("interrupted", 4, cases)
