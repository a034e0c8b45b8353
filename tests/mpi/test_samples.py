"""Samples on one graph: one curve for all groups and ranks, that of copies of the graph.

The judge (gcnmpi/proof/samples.py) trains each step on a graph of so many copies, in one process.
Bytes counted are bytes predicted, also of what is read from disk.
"""

import numpy as np
import pytest
from stored_graphs import store, store_parts, with_uneven_parts
from typed_graphs import typed_graph
from words import latest, line

from gcnmpi.run.record import read_run
from partition.graph.graph import ArcData, Graph
from partition.graph.samples import read_samples, write_samples
from partition.graph.store import write_graph

N, STEPS = 37, 26
PARTS = (1, 2, 3, 4)
GROUPED = {4: ((1, 4), (2, 2), (4, 1)), 6: ((2, 3),)}  # groups, ranks of each
COMMON = (
    "task.name=samples", "dtype=float64", "train.epochs=2", "train.seed=5", "train.lr=0.02",
    "task.batch=4", "model.hidden=6", "threads=1",
)  # fmt: skip
CASES = {
    "batch-norm": "task.history=2 model.norm=batch model.dropout=0.3",
    "rollout": "task.history=2 task.rollout=3 task.predicted=1 task.difference=true "
    "model.norm=batch model.dropout=0.3",
    "horizon": "task.horizon=3 model.name=sage model.aggregation=max task.loss=huber",
    "targets": "task.samples=targets model.name=gin train.clip_norm=0.1",
    "attention": "model.name=gat model.heads=2 model.attention_dropout=0.4",
    "attention-2": "model.name=gatv2 model.heads=2 model.attention_dropout=0.4",
    "mesh": "model.name=mgn model.hidden=6,6 model.dropout=0.2 task.rollout=2 "
    "task.rollout_gradient=last train.memory=least",
    "recurrent": "model.name=gconvgru task.history=3 model.filter_size=3 model.dropout=0.3 "
    "task.rollout=2",
    "diffusion": "model.name=dcrnn task.history=2 task.horizon=2 task.predicted=1",
    "over time": "model.name=stgcn task.history=4 model.kernel_size=2 model.norm=batch "
    "task.difference=true",
    "plain": "model.name=pna task.standardize=false train.optimizer=sgd train.lr=1e-4",
    "broadcast": "scheme.name=bcast task.history=2 model.name=gin",
    "mixed": "scheme.exchange=mixed model.hidden=5,7",
    "plateau": "train.schedule=plateau train.plateau_patience=0 train.epochs=5 train.lr=0.1 "
    "task.metrics=mae,r2 train.optimizer=sgd",
    "unknown": "task.samples=unknown task.batch=8 train.epochs=1 task.metrics=r2,rmse",
}
TYPED = {
    "rgcn": "model.dropout=0.2", "hetero": "model.norm=batch", "compgcn": "", "hgt": "",
    "rgat": "model.attention_dropout=0.3", "sehgnn": "model.target=paper",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directed graph with features of vertices and arcs, isolated vertices, and samples of it."""
    rng, path = np.random.default_rng(3), tmp_path_factory.mktemp("samples") / "g.graph"
    ends = np.unique(rng.integers(0, N - 3, (190, 2)), axis=0)
    starts = np.searchsorted(ends[:, 0], np.arange(N + 1))
    graph = Graph(
        starts.astype(np.int64), ends[:, 1].astype(np.int32),
        features=rng.normal(size=(N, 2)).astype(np.float32),
        labels=np.arange(N, dtype=np.int32) % 3,
        arc_data=ArcData(features=rng.normal(size=(len(ends), 3)).astype(np.float32)),
    )  # fmt: skip
    with_uneven_parts(store(path, graph), PARTS)
    states = rng.normal(size=(STEPS, N, 2)).cumsum(axis=0) + 7
    states[rng.random(states.shape) < 0.05] = np.nan
    ranges = {"train": [(0, 8), (8, 17)], "val": [(17, 21)], "test": [(21, 26)]}
    write_samples(path, "samples", states, None, ranges, made="drawn")
    targets = rng.normal(size=(STEPS, N, 3)).astype(np.float32)
    write_samples(path, "targets", states.astype(np.float32), targets, ranges, made="drawn")
    states[:, :, 0] = states[12] = np.nan  # a column, and the targets of a step
    states[19, 5, 0] = 7  # of which a single one is known
    write_samples(path, "unknown", states, None, ranges, made="drawn")
    states[1:] = np.nan  # the first step is read, and never predicted
    write_samples(path, "nothing", states, None, ranges, made="drawn")
    return path


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """The graph of typed_graphs.py, with samples of its vertices of all types."""
    path, graph = tmp_path_factory.mktemp("typed") / "g.graph", typed_graph()
    write_graph(path, graph, source={})
    for k in (1, 2, 4):
        store_parts(path, f"uneven-{k}", np.arange(graph.n) % k, k)
    states = np.random.default_rng(1).normal(size=(12, graph.n, 2))
    ranges = {"train": [(0, 9)], "val": [(9, 12)]}
    write_samples(path, "samples", states, None, ranges, made="drawn")
    return path


def run_of(folder, groups, size, *settings):
    """A case: graph, partition and settings."""
    return folder, f"uneven-{size}", [*COMMON, *settings, f"train.groups={groups}"]


def test_networks_of_relations_have_one_curve(trained, typed):
    cases = {
        (name, size): run_of(typed, 4 // size, size, f"model.name={name}", *settings.split())
        for name, settings in TYPED.items()
        for size in (1, 2)
    }
    found = trained(4, cases)
    for name in TYPED:
        losses = [found[name, some]["losses"] for some in (1, 2)]
        np.testing.assert_allclose(*losses, rtol=1e-10, err_msg=name)
    for record in found.values():
        for counted, predicted in record["traffic"]:
            assert counted == predicted


@pytest.mark.parametrize("ranks", GROUPED)
def test_one_curve_that_of_copies_of_the_graph(verified, folder, ranks):
    """On 4 ranks the groups take turns; every third case runs on 6."""
    some = list(CASES.values())[:: 1 if ranks == 4 else 3]
    ways = GROUPED[ranks]
    cases = [run_of(folder, *ways[i % len(ways)], *own.split()) for i, own in enumerate(some)]
    verified(ranks, cases, "loss curve", "final weights", "test_rmse", "training bytes")


@pytest.fixture
def launch(succeed):
    """``launch(command, graph, groups, size, *settings, **options)`` on so many ranks."""

    def run(command, graph, groups, size, *settings, **options):
        own = (*settings, f"train.groups={groups}")
        words = line(command, graph, settings=own, partition=f"uneven-{size}", **options)
        succeed(groups * size, words)

    return run


def test_a_run_goes_on_with_other_groups_and_ranks(launch, folder, tmp_path):
    losses = []
    own = [*COMMON, *CASES["rollout"].split(), "train.checkpoint_every=1"]
    for name, ways in {"whole": ((1, 1),), "parts": ((2, 2), (2, 3), (1, 4))}.items():
        for number, (groups, size) in enumerate(ways):
            epochs = 6 if number + 1 == len(ways) else 2 + 2 * number
            epochs = f"train.epochs={epochs}"
            launch("train", folder, groups, size, *own, epochs, out=tmp_path / name)
        losses.append([epoch["loss"] for epoch in read_run(tmp_path / name).epochs])
    assert len(losses[1]) == 6
    np.testing.assert_allclose(*losses, rtol=1e-10)


def test_own_rows_are_read_and_no_others(launch, tmp_path):
    """Rows of more than a page: those of others, that lie between own ones, are left out."""
    n, width, steps, path = 11, 1500, 6, tmp_path / "wide.graph"
    write_graph(path, Graph(np.zeros(n + 1, np.int64), np.zeros(0, np.int32)), source={})
    parts = np.arange(n, dtype=np.int32) % 2
    store_parts(path, "uneven-2", parts, 2)
    states = np.random.default_rng(0).normal(size=(steps, n, width)).astype(np.float32)
    write_samples(path, "samples", states, None, {"train": [(0, steps)]}, made="drawn")
    own = "task.name=samples", "task.batch=5", "train.epochs=1", "model.hidden=2"
    launch("train", path, 1, 2, *own, out=tmp_path / "run")
    end = read_run(tmp_path / "run").end
    own = np.bincount(parts)
    assert end["sample_bytes"] == (own * width * 4 * steps).tolist()  # each step once


def test_what_is_predicted_has_an_error_for_each_lead(launch, folder, tmp_path):
    own = *COMMON, "task.horizon=3", "task.metrics=mae,r2"
    launch("train", folder, 2, 2, *own, out=tmp_path)
    record = read_run(tmp_path)
    for mask in ("val", "test"):
        leads = record.end["leads"][mask]
        assert {name: len(of) for name, of in leads.items()} == {"rmse": 3, "mae": 3, "r2": 3}
        assert np.mean(leads["rmse"]) == pytest.approx(record.epochs[-1][f"{mask}_rmse"])
    assert record.start["groups"] == 2
    assert record.start["sample_set"]["train"] == 17
    assert record.start["samples_id"] == read_samples(folder, "samples").id


def test_weights_serve_any_rollout_and_say_so_elsewhere(launch, hear_mistakes, folder, tmp_path):
    """Of a network applied once, given its own predictions by hand: the rollout of it."""
    own = *COMMON, "model.name=sage", "task.history=2", "task.difference=true"
    weights = tmp_path / "w.npz"
    launch("train", folder, 1, 1, *own, out=tmp_path / "run", save_weights=weights)

    def predicted(name, *more):
        out = {"weights": weights, "out": tmp_path / f"{name}.npy", "samples": "test"}
        launch("infer", folder, 1, 1, "dtype=float64", "task.name=samples", *more, **out)
        return np.load(out["out"])

    rolled = predicted("rolled", "task.rollout=3")
    step = 22  # the first of the test steps that has a history
    states = np.array(read_samples(folder, "samples").states[:, :, :], np.float64)
    for lead in range(3):
        ranges = {"train": [(0, 17)], "test": [(lead + step - 1, lead + step + 2)]}
        write_samples(folder, "by-hand", states, None, ranges, made="fed", force=True)
        (once,) = predicted("once", "task.samples=by-hand", "task.rollout=1")
        np.testing.assert_allclose(rolled[0, :, 2 * lead : 2 * lead + 2], once, rtol=1e-9)
        states[step + lead + 1] = once
    given = {"partition": "uneven-2", "weights": weights}
    infer = line("infer", folder, out=tmp_path / "y.npy", **given)
    says = ("weights of task.name = samples", "gcnmpi infer --samples test")
    told = [(line("evaluate", folder, **given), says), (infer, says)]
    hear_mistakes(2, [*told, ([*infer, "--samples", "tset"], "did you mean 'test'")])


def test_predictions_are_written_in_the_numbers_of_the_data(launch, folder, tmp_path):
    own = *COMMON, "task.history=2", "task.horizon=2", "model.norm=batch"
    run, weights, found = tmp_path / "run", tmp_path / "w.npz", {}
    launch("train", folder, 1, 1, *own, out=run, save_weights=weights)
    for which, (groups, size) in {"test": (2, 2), "all": (1, 3)}.items():
        out = {"weights": weights, "samples": which, "out": tmp_path / f"{which}.npy"}
        launch("infer", folder, groups, size, "dtype=float64", **out)
        found[which] = np.load(out["out"]), np.load(tmp_path / f"{which}.steps.npy")
    (rows, steps), (every, all_steps) = found["test"], found["all"]
    assert rows.shape == (len(steps), N, 4)
    np.testing.assert_allclose(rows, every[np.searchsorted(all_steps, steps)], rtol=1e-10)
    ranges = (1, 8), (9, 17), (18, 21), (22, 26)
    assert all_steps.tolist() == [step for ends in ranges for step in range(*ends)]
    states = read_samples(folder, "samples").states
    truth = np.concatenate([states[steps + 1], states[steps + 2]], axis=2)
    errors = np.sqrt(np.nanmean((rows - truth) ** 2, axis=(0, 1)))
    assert np.mean(errors) == pytest.approx(read_run(run).epochs[-1]["test_rmse"])


# Complaints of settings with the task, and on one part for each of two groups.
TOLD = {
    "task.samples=sample": "samples",
    "train.groups=3": "does not divide 2 ranks",
    "task.history=9": ("have 0 to train on", "task.history"),
    "task.batch=18": ("have 15 to train on", "task.batch = 15"),
    "task.history=4 train.patience=2": ("have none to validate on", "predicted, 5"),
    "task.columns=5": "have 2",
    "task.samples=targets task.horizon=2": "task.targets",
    "scheme.name=summa": ("cuts the rows of samples", "p2p"),
    "train.batches=vertex,9": "task.batch",
    "task.metric=auc": "no metric of task.name = samples",
}
OF_GROUPS = {
    "task.name=classes": "has no samples to divide",
    "task.batch=3": ("does not divide the 3 samples", "task.batch"),
    "task.samples=nothing task.batch=2": "no known number",
    # An error of each group, which all of them have.
    "task.batch=2 model.name=gat scheme.exchange=mixed": "needs whole rows",
}


def test_mistakes_are_told_in_one_line(hear_mistakes, folder):
    told = []
    for some, k, more in ((TOLD, 2, ()), (OF_GROUPS, 1, ("train.groups=2",))):
        for words, says in some.items():
            own = latest("task.name=samples", *more, *words.split())
            told.append((line("train", folder, settings=own, partition=f"uneven-{k}"), says))
    hear_mistakes(2, told)
