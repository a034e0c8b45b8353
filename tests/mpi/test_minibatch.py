"""Training on mini-batches: one curve for any number of ranks, and that of full batches in the end.

The graph is directed, with weights, self-loops and isolated vertices; parts are uneven, and one is
empty. Batches of vertices run on grids too, in some of which blocks have no rows; and several are
one step, divided among groups of ranks.
"""

import math

import numpy as np
import pytest
from axes import ALL, settings_of
from stored_graphs import store, with_uneven_parts
from test_task_runs import make_graph
from words import latest, line, sets

from gcnmpi.options.config import load_config
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.ranking import Candidate, Setting
from partition.graph.store import open_graph, read_partition
from partition.importing.synthetic import sbm
from partition.reporting.comparison import simulate

EPOCHS, WIDTH = 2, 7  # of the features
COMMON = (
    "dtype=float64", f"train.epochs={EPOCHS}", "train.lr=0.02", "train.weight_decay=1e-3",
    "model.dropout=0.4", "model.input_dropout=0.2",
)  # fmt: skip
VERTEX, CLUSTER, NEIGHBOR, LABOR = SAMPLERS = (
    "vertex,13", "cluster,uneven-12,4", "neighbor,6,3,2", "labor,6,3,2",
)  # fmt: skip
NETWORKS = {
    "gcn": "model.hidden=6 model.residual=linear",
    "sage": "model.name=sage model.hidden=5 model.norm=batch",
    "gin": "model.name=gin model.hidden=5 model.norm=layer",
    "gat": "model.name=gat model.hidden=6 model.heads=2 model.attention_dropout=0.3",
    "sage-max": "model.name=sage model.aggregation=max model.hidden=5",
    "sage-layer": "model.name=sage model.hidden=5 model.norm=layer",
    "appnp": "model.name=appnp model.hidden=8 model.hops=2",
    "gcnii": "model.name=gcnii model.hidden=6,6 model.norm=layer",
}
# All neighbours of all seeds, and all vertices: what is computed is the full batch.
# Of networks that are built in other ways, the layers in which a product with M comes.
DEPTHS = {
    "gcn-none": 1, "gcnii": 3, "appnp": 3, "sign": 2, "gcn-jk-sum": 2, "gcn-jk-cat": 2,
    "gcn-jk-max": 2, "gcn-linear": 2, "sage-sum": 2, "gin-eps": 2, "gat": 3, "gatv2": 3,
    "gat-mean": 1,
}  # fmt: skip
DEEP = list(DEPTHS) if ALL else list(DEPTHS)[::2]
# Input rows of others that a rank keeps: three of them, and all that were observed.
KEPT = {"some": 3, "all": 10**6}
# One epoch of each is planned too.
PLANNED = {"gcn": SAMPLERS, "gat": (VERTEX, NEIGHBOR)}
WHOLE = ("full", "vertex,100%", "cluster,uneven-12,100%", "neighbor,100%,-1,-1", "labor,100%,-1,-1")
# A norm of few rows, of which the last batch has one, or whose columns are rounding errors.
FEW = ("model.name=sage model.hidden=8,8 model.norm=batch model.aggregation=max "
       "model.include_self=true model.activation=none model.dropout=0 model.input_dropout=0 "
       "train.epochs=8 train.batches=")  # fmt: skip


def cache_of(rows, itemsize=8):
    """The setting by which a rank keeps so many rows."""
    return f"train.cache_mb={rows * WIDTH * itemsize / 2**20!r}"


def with_batches(network, sampler, *more):
    return (*NETWORKS[network].split(), f"train.batches={sampler}", *more)


def cases():
    """Name → settings of every case; of each network a sampler of vertices and one of seeds."""
    found = {}
    for i, network in enumerate(NETWORKS):
        for sampler in SAMPLERS if network == "gcn" else (SAMPLERS[i % 2], SAMPLERS[2 + i % 2]):
            name = f"{network}-{sampler}"
            found[name] = with_batches(network, sampler)
            if network == "gcn" and sampler in (NEIGHBOR, LABOR):
                for kept, rows in KEPT.items():
                    found[f"{name} kept {kept}"] = with_batches(network, sampler, cache_of(rows))
    found[f"gat-{LABOR} kept some"] = with_batches("gat", LABOR, cache_of(3))
    found["scipy"] = with_batches("gcn", NEIGHBOR, "kernel=scipy")
    found["graphblas"] = with_batches("gcn", LABOR, "kernel=graphblas")
    found["mixed"] = with_batches("gcn", VERTEX, "scheme.exchange=mixed")
    for sampler in ("vertex,3", "vertex,2", "neighbor,2,2,2,2"):
        found[f"few {sampler}"] = (*FEW.split()[:-1], f"train.batches={sampler}")
    for sampler in ("", *WHOLE):
        found[f"whole {sampler}"] = with_batches("gcn", sampler)
    for sampler in ("", *WHOLE[:3]):
        found[f"gat whole {sampler}"] = with_batches("gat", sampler)
    return found


def planned():
    """Name → settings, of one epoch."""
    return {
        f"planned {network}-{sampler}{kept}": with_batches(
            network, sampler, *rows, "train.epochs=1"
        )
        for network, samplers in PLANNED.items()
        for sampler in samplers
        for kept, rows in {"": (), " kept": (cache_of(3),)}.items()
        if not kept or sampler in SAMPLERS[2:]
    }


# Of vertices, on grids: name → graph, settings; "tasks" has other targets.
ON_GRIDS = {
    "grid gcn": ("directed", NETWORKS["gcn"], VERTEX),
    "grid gin": ("directed", NETWORKS["gin"], VERTEX),
    "grid sage": ("directed", NETWORKS["sage"], CLUSTER),
    "deep": ("directed", "model.hidden=5,5,6 model.residual=identity graph.direction=out",
             VERTEX),
    "clipped": ("directed", "model.hidden=6 train.clip_norm=0.1 task.label_smoothing=0.1",
                CLUSTER),
    "symmetric": ("symmetric", "model.hidden=6,5", VERTEX),
    "small": ("directed", "model.hidden=6", "vertex,5"),
    "labels": ("tasks", "task.name=labels", "vertex,31"),
    "numbers": ("tasks", "task.name=regression model.norm=layer", "vertex,31"),
    "huber": ("tasks", "task.name=regression task.loss=huber", "vertex,50"),
    "smooth": ("tasks", "task.label_smoothing=0.1 train.split=1", "vertex,50"),
}  # fmt: skip
IN_PARTS = "scheme.name=tensor3d scheme.grid=3x2x1"  # those of a partition
GRIDS = {
    4: ("scheme.name=summa scheme.grid=1x4 scheme.permutation=single",
        "scheme.name=tensor3d scheme.grid=2x1x2 scheme.chunks=3"),
    6: ("scheme.name=summa scheme.grid=2x3 scheme.block=2",
        "scheme.name=split3d scheme.grid=1x2x3 scheme.permutation=none", IN_PARTS),
}  # fmt: skip
# Cases that grids of one number of ranks have in turn.
TURNS = [
    (nranks, case, grids[i // 2 % len(grids)])
    for i, case in enumerate(ON_GRIDS)
    for nranks, grids in [list(GRIDS.items())[i % 2]]
]
# With the initial weights, all neighbours and no dropout, of which some targets are unknown.
STILL = "train.lr=0 model.dropout=0 model.input_dropout=0 model.hidden=6 task.name=regression"
# Several in a step: of six batches, the last has two.
IN_STEPS = {
    "vertex": ["train.batches=vertex,11", "train.step_batches=4"],
    "neighbor": ["train.batches=neighbor,7,3,2", "train.step_batches=2", "model.name=sage",
                 "train.optimizer=sgd", "train.clip_norm=0.5"],
    "attention": ["train.batches=vertex,17", "train.step_batches=4", "model.name=gat"],
}  # fmt: skip
STEPPED = ("train.seed=3", "model.hidden=6", "threads=1")
# Name, groups, ranks of each, and their grid.
GROUPED = [
    *((name, 2, 2, ()) for name in IN_STEPS),
    ("vertex", 4, 1, ()),
    ("attention", 2, 3, ()),
    ("vertex", 2, 2, ("scheme.name=summa", "scheme.grid=1x2")),
    ("vertex", 2, 2, ("scheme.name=tensor3d", "scheme.grid=2x1x1")),
]


@pytest.fixture(scope="module")
def folder(schemes_folder, tmp_path_factory):
    """``folder(kind)`` → a graph."""
    root = tmp_path_factory.mktemp("batches")
    graphs = {"tasks": make_graph(), "few": sbm(13, 3, degree=3, features=4, train=0.6, val=0.3)}
    for name, graph in graphs.items():
        with_uneven_parts(store(root / f"{name}.graph", graph), (3, 6))
    return lambda kind: (root if kind in graphs else schemes_folder) / f"{kind}.graph"


def wanted(nranks, folder):
    """Of networks of other depths, one rank has full batches, and four batches of seeds."""
    deep = {
        name: settings_of(name) if nranks == 1 else
        [*settings_of(name), "train.batches=neighbor,100%" + ",-1" * DEPTHS[name]]
        for name in DEEP
    }  # fmt: skip
    parts = None if nranks == 1 else f"uneven-{nranks}"
    found = {}
    for name, settings in (cases() | planned() | deep).items() if nranks in (1, 3) else ():
        kind = "few" if name.startswith("few") else "directed"
        found[name] = folder(kind), parts, [*COMMON, *settings]
    for sampler in ("", "neighbor,17,-1,-1") if nranks in (1, 3) else ():
        own = [*COMMON, *STILL.split(), f"train.batches={sampler}"]
        found[f"still {sampler}"] = folder("tasks"), parts, own
    for name, (kind, settings, sampler) in ON_GRIDS.items():
        own = [*COMMON, *settings.split(), f"train.batches={sampler}"]
        if nranks == 1:
            found[name] = folder(kind), None, own
        for grid in [grid for ranks, case, grid in TURNS if (ranks, case) == (nranks, name)]:
            placed = "uneven-6" if grid == IN_PARTS else None
            found[name] = folder(kind), placed, [*own, *grid.split()]
    for name, groups, size, grid in [(name, 1, 1, ()) for name in IN_STEPS] + GROUPED:
        if groups * size == nranks:
            own = [*COMMON, *STEPPED, *IN_STEPS[name], *grid, f"train.groups={groups}"]
            placed = folder("directed"), None if grid else f"uneven-{size}"
            found["steps", name, groups, size, grid] = *placed, own
    return found


@pytest.mark.parametrize("name", [*cases(), *DEEP])
def test_one_curve_and_what_was_counted(results, name):
    """Rows that no later layer reads are left out of every network."""
    is_that_of_one_rank(results(3)[name], results(1)[name.partition(" kept ")[0]], 3)


def is_that_of_one_rank(record, alone, nranks):
    """One curve, and bytes and messages that are those predicted."""
    assert len(record["losses"]) >= EPOCHS
    assert math.isfinite(sum(record["losses"]))
    np.testing.assert_allclose(record["losses"], alone["losses"], rtol=1e-10)
    for counted, predicted in record["traffic"]:
        assert counted == predicted
    if nranks > 1:
        assert sum(record["traffic"][0][0]) > 0


@pytest.mark.parametrize(("nranks", "case", "grid"), TURNS)
def test_grids_have_that_curve(results, nranks, case, grid):
    record, alone = results(nranks)[case], results(1)[case]
    is_that_of_one_rank(record, alone, nranks)
    assert record["batches"] == [alone["batches"][0]] * nranks


@pytest.mark.parametrize("case", GROUPED)
def test_groups_of_ranks_have_that_curve(results, case):
    name, groups, size, _ = case
    alone = results(1)["steps", name, 1, 1, ()]
    is_that_of_one_rank(results(groups * size)["steps", *case], alone, size)


@pytest.mark.parametrize("nranks", [1, 3])
def test_batches_of_everything_are_full_batches(results, nranks):
    found = results(nranks)
    for network in ("", "gat "):
        full = found[f"{network}whole "]["losses"]
        assert found[f"{network}whole full"]["losses"] == full  # bit for bit
        for sampler in WHOLE[1:] if not network else WHOLE[1:3]:
            losses = found[f"{network}whole {sampler}"]["losses"]
            np.testing.assert_allclose(losses, full, rtol=1e-10)
    # A batch has a share in the loss of the epoch by its known targets.
    still = [found[f"still {sampler}"]["losses"] for sampler in ("", "neighbor,17,-1,-1")]
    np.testing.assert_allclose(*still, rtol=1e-10)
    for sampler in SAMPLERS:
        losses = found[f"gcn-{sampler}"]["losses"]
        assert not np.allclose(losses, found["whole "]["losses"], rtol=1e-3)


def as_simulated(record, path, sampler, **options):
    """Rows and messages are those that a simulation counts."""
    name, size, *fanouts = sampler.split(",")
    batches, nranks = record["batches"][0], len(record["batches"])
    facts = simulate(
        path, [f"uneven-{nranks}"], sampler=name, batch=size,
        fanouts=",".join(fanouts), batches=batches, as_trained=True, **options,
    )["partitions"][0]  # fmt: skip
    assert batches % EPOCHS == 0
    assert sum(record["batch_rows_sent"]) == round(facts["volume"]["mean"] * batches) > 0
    assert sum(record["batch_messages_sent"]) == round(facts["messages"]["mean"] * batches)


@pytest.mark.parametrize("sampler", [VERTEX, NEIGHBOR, LABOR])
def test_rows_and_messages_are_those_of_the_simulation(results, folder, sampler):
    """Rows that are kept are not sent."""
    without = results(3)[f"gcn-{sampler}"]
    as_simulated(without, folder("directed"), sampler)
    for kept, rows in KEPT.items() if sampler != VERTEX else ():
        record = results(3)[f"gcn-{sampler} kept {kept}"]
        assert 0 < sum(record["batch_rows_sent"]) < sum(without["batch_rows_sent"])
        assert sum(record["traffic"][0][0]) < sum(without["traffic"][0][0])
        assert max(record["kept_rows"]) <= rows
        assert record["kept_bytes"] == [held * WIDTH * 8 for held in record["kept_rows"]]
        assert sum(record["kept_rows_read"]) > 0
        cache = float(cache_of(rows, itemsize=4).partition("=")[2])
        as_simulated(record, folder("directed"), sampler, cache_mb=cache)


def as_planned(stored, config, nranks, record, near=0):
    """The cost of the case, whose bytes and messages are those of the record."""
    setting = Setting(stored, config, Machine(), nranks, locality=False)
    uneven = read_partition(stored.path, f"uneven-{nranks}") if nranks > 1 else None
    cost = setting.cost(Candidate(config.scheme, {}, nranks, uneven), nranks)
    drawn = setting.batches
    assert drawn is None or len(drawn.drawn) == drawn.sampler.batches  # all of the epoch
    (sent, _), (received, _), (messages, _), *_ = record["traffic"]
    found = max(sent), max(received), max(messages)
    assert (cost.sent, cost.received, cost.messages) == pytest.approx(found, rel=near, abs=0)
    assert (nranks > 1) == (cost.received > 0)
    return cost


@pytest.mark.parametrize("name", planned())
@pytest.mark.parametrize("nranks", [1, 3])
def test_bytes_and_messages_are_those_that_are_planned(results, folder, nranks, name):
    config = load_config(None, latest(*COMMON, *planned()[name]))
    cost = as_planned(open_graph(folder("directed")), config, nranks, results(nranks)[name])
    assert set(cost.phases) >= {"sample", "bind"}


def test_a_step_is_by_the_mean_of_the_gradients(succeed, folder, tmp_path):
    """Beside many updates of a tiny step, whose changes add up to the sum of the gradients.

    An epoch has two batches, fewer than a step.
    """

    def weights(name, lr, batches):
        own = "train.batches=vertex,31 train.epochs=1 train.optimizer=sgd train.weight_decay=0"
        own = *COMMON, *own.split(), f"train.lr={lr}", f"train.step_batches={batches}"
        out = {"out": tmp_path / name, "save_weights": tmp_path / f"{name}.npz"}
        succeed(1, line("train", folder("directed"), settings=own, **out))
        return np.load(tmp_path / f"{name}.npz")

    small, mean = weights("small", 1e-6, 1), weights("mean", 0.1, 4)
    start = weights("start", 0.0, 1)
    for name in start:
        of_sum, of_mean = (small[name] - start[name]) / 1e-6, (mean[name] - start[name]) / 0.1
        np.testing.assert_allclose(2 * of_mean, of_sum, rtol=1e-3, atol=1e-5)


def test_mistakes_are_told(hear_mistakes, folder, tmp_path):
    six, of_seeds = "train.batches=vertex,6", f"train.batches={NEIGHBOR}"
    mistakes = {
        "train.batches=neighbor": "gives no size",
        "train.batches=cluster,2": "gives no size",
        "train.batches=cluster,nowhere,2": "nowhere",
        f"{of_seeds} model.name=mlp": "looks at no neighbours",
        "train.cache_mb=1": "rows are kept for mini-batches",
        f"{six} train.cache_mb=1": "batches of seeds",
        "train.batches=neighbor,6,3,3 model.name=appnp model.hops=2 model.norm=batch "
        "train.cache_mb=1": "a batch norm before",
        f"{six} scheme.name=bcast": "use scheme.name = p2p, summa, split3d or",
        f"{of_seeds} scheme.name=summa": "draws no neighbours",
        "train.batches=labor,6,3,2 scheme.name=tensor3d": "use train.batches = vertex or cluster",
        f"{six} task.class_weights=balanced": "weights of classes",
        f"{six} model.train_features=true": "features that are trained",
        "train.step_batches=2": "there are no mini-batches",
    }
    of_groups = {
        f"train.groups=2 {six}": "does not divide the 1 mini-batches",
        f"train.step_batches=2 {six} train.groups=2 model.norm=batch": "batch norm",
    }
    words = ["train", folder("directed"), "--out", tmp_path / "run"]
    for nranks, told, more in ((1, mistakes, []), (2, of_groups, ["--partition", "uneven-1"])):
        lines = [([*words, *more, *sets(*key.split())], says) for key, says in told.items()]
        hear_mistakes(nranks, lines)


def test_an_interrupted_epoch_gives_the_same_bits_and_goes_on_elsewhere(
    run_cases, folder, tmp_path
):
    graph, tensor = folder("directed"), ("scheme.name=tensor3d", "scheme.grid=2x2x1")
    run_cases("interrupted", 3, [(graph, "uneven-3", tmp_path / "seeds", NEIGHBOR, [])])
    others = ["scheme.name=p2p"], ("scheme.name=summa", "scheme.grid=2x2")
    run_cases("interrupted", 4, [(graph, "uneven-4", tmp_path / "grid", VERTEX, tensor, *others)])
