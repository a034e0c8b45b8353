"""Mini-batches of vertices on grids: the curve of ``p2p``, and what was counted is as predicted.

The graph has weights, self-loops and isolated vertices, and is directed in all cases but one; parts
are uneven, and one is empty. There are batches in which some blocks of a grid have no rows.
"""

import functools

import pytest
from stored_graphs import store
from test_minibatch import COMMON, is_that_of_one_rank
from test_task_runs import make_graph

VERTEX, CLUSTER = "train.batches=vertex,13", "train.batches=cluster,uneven-12,4"
NETWORKS = {
    "gcn": ("model.hidden=6", "model.residual=linear", VERTEX),
    "gin": ("model.name=gin", "model.hidden=5", "model.norm=layer", VERTEX),
    "sage": ("model.name=sage", "model.hidden=5", "model.norm=batch", CLUSTER),
    "deep": ("model.hidden=5,5,6", "model.residual=identity", "graph.direction=out", VERTEX),
    "clipped": ("model.hidden=6", "train.clip_norm=0.1", "task.label_smoothing=0.1", CLUSTER),
    "symmetric": ("model.hidden=6,5", VERTEX),
    "small": ("model.hidden=6", "train.batches=vertex,5"),
}
GRIDS = {
    4: {
        "summa 1x4": ("scheme.name=summa", "scheme.grid=1x4", "scheme.permutation=single"),
        "tensor3d": ("scheme.name=tensor3d", "scheme.grid=2x1x2", "scheme.chunks=3"),
    },
    6: {
        "summa 2x3": ("scheme.name=summa", "scheme.grid=2x3", "scheme.block=2"),
        "split3d": ("scheme.name=split3d", "scheme.grid=1x2x3", "scheme.permutation=none"),
        "tensor3d": ("scheme.name=tensor3d", "scheme.grid=3x2x1", "scheme.permutation=single"),
    },
}
TASKS = {
    "labels": ("task.name=labels", "train.batches=vertex,31"),
    "numbers": ("task.name=regression", "train.batches=vertex,31", "model.norm=layer"),
    "huber": ("task.name=regression", "task.loss=huber", "train.batches=vertex,50"),
    "smooth": ("task.label_smoothing=0.1", "train.batches=vertex,50", "train.split=1"),
}
PARTED = {"summa 2x3", "tensor3d"}  # with a partition where it has six parts


def wanted(nranks, schemes_folder):
    found = {}
    for network, settings in NETWORKS.items():
        kind = "symmetric" if network == "symmetric" else "directed"
        graph = schemes_folder / f"{kind}.graph"
        for name, grid in GRIDS.get(nranks, {"p2p": ()}).items():
            parted = nranks == 6 and name in PARTED and network == "gcn"
            if parted:
                grid = [one for one in grid if "permutation" not in one]
            partition = "uneven-6" if parted else None
            found[network, name] = graph, partition, [*COMMON, *settings, *grid]
    return found


@pytest.fixture(scope="module")
def tasks(trained, tmp_path_factory):
    """``tasks(nranks)`` → the same for each task."""
    graph = store(tmp_path_factory.mktemp("tasks") / "g.graph", make_graph())

    @functools.cache
    def run(nranks):
        return trained(
            nranks,
            {
                (task, name): (graph, None, [*COMMON, "model.hidden=6", *settings, *grid])
                for task, settings in TASKS.items()
                for name, grid in GRIDS.get(nranks, {"p2p": ()}).items()
            },
        )

    return run


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("nranks", "grid"), [(4, "summa 1x4"), (4, "tensor3d"), (6, "split3d")])
def test_every_task(tasks, nranks, grid, task):
    is_that_of_one_rank(tasks(nranks)[task, grid], tasks(1)[task, "p2p"], nranks)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("nranks", "grid"), [(n, grid) for n in GRIDS for grid in GRIDS[n]])
def test_one_curve_and_what_was_counted(results, nranks, grid, network):
    record, alone = results(nranks)[network, grid], results(1)[network, "p2p"]
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
