"""Training on mini-batches: one curve for any number of ranks, and that of full batches in the end.

The graph is directed, with weights, self-loops and isolated vertices; parts are uneven, and one is
empty.
"""

import math

import numpy as np
import pytest
from axes import settings_of
from words import latest, sets

from gcnmpi.options.config import load_config
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.ranking import Candidate, Setting
from partition.graph.store import open_graph, read_partition
from partition.reporting.simulate import simulate

RANKS = (1, 4)
EPOCHS = 2
WIDTH = 7  # of the features
COMMON = (
    "dtype=float64", f"train.epochs={EPOCHS}", "train.lr=0.02", "train.weight_decay=1e-3",
    "model.dropout=0.4", "model.input_dropout=0.2",
)  # fmt: skip
SAMPLERS = ("vertex,13", "cluster,uneven-12,4", "neighbor,6,3,2", "labor,6,3,2")
ATTENTION = ("model.hidden=6", "model.heads=2", "model.attention_dropout=0.3")
NETWORKS = {
    "gcn": ("model.hidden=6", "model.residual=linear"),
    "sage": ("model.name=sage", "model.hidden=5", "model.norm=batch"),
    "gin": ("model.name=gin", "model.hidden=5", "model.norm=layer"),
    "gat": ("model.name=gat", *ATTENTION),
    "sage-max": ("model.name=sage", "model.aggregation=max", "model.hidden=5"),
    "sage-layer": ("model.name=sage", "model.hidden=5", "model.norm=layer"),
    "appnp": ("model.name=appnp", "model.hidden=8", "model.hops=2"),
    "gcnii": ("model.name=gcnii", "model.hidden=6,6", "model.norm=layer"),
}
# All neighbours of all seeds, and all vertices: what is computed is the full batch.
# Of networks that are built in other ways, the layers in which a product with M comes.
DEPTHS = {
    "gcn-none": 1, "gcnii": 3, "appnp": 3, "sign": 2, "gcn-jk-sum": 2, "gcn-jk-cat": 2,
    "gcn-jk-max": 2, "gcn-linear": 2, "sage-sum": 2, "gin-eps": 2, "gat": 3, "gatv2": 3,
    "gat-mean": 1,
}  # fmt: skip
# Input rows of others that a rank keeps: three of them, and all that were observed.
KEPT = {"some": 3, "all": 10**6}
# One epoch of each is planned too.
PLANNED = {"gcn": SAMPLERS, "gat": ("vertex,13", "neighbor,6,3,2")}
WHOLE = ("full", "vertex,100%", "cluster,uneven-12,100%", "neighbor,100%,-1,-1", "labor,100%,-1,-1")


def cache_of(rows, itemsize=8):
    """The setting by which a rank keeps so many rows."""
    return f"train.cache_mb={rows * WIDTH * itemsize / 2**20!r}"


def cases():
    """Name → settings of every case; of each network a sampler of vertices and one of seeds."""
    found = {}
    for i, (network, settings) in enumerate(NETWORKS.items()):
        for sampler in SAMPLERS if network == "gcn" else (SAMPLERS[i % 2], SAMPLERS[2 + i % 2]):
            name, batches = f"{network}-{sampler}", f"train.batches={sampler}"
            found[name] = (*settings, batches)
            for kept, rows in KEPT.items() if sampler in SAMPLERS[2:] else ():
                if network == "gcn" or kept == "some":
                    found[f"{name} kept {kept}"] = (*settings, batches, cache_of(rows))
    found["scipy"] = (*NETWORKS["gcn"], "train.batches=neighbor,6,3,2", "kernel=scipy")
    found["graphblas"] = (*NETWORKS["gcn"], "train.batches=labor,6,3,2", "kernel=graphblas")
    found["mixed"] = (*NETWORKS["gcn"], "train.batches=vertex,13", "scheme.exchange=mixed")
    for sampler in ("", *WHOLE):
        found[f"whole {sampler}"] = (*NETWORKS["gcn"], f"train.batches={sampler}")
    for sampler in ("", *WHOLE[:3]):
        found[f"gat whole {sampler}"] = (*NETWORKS["gat"], f"train.batches={sampler}")
    return found


def planned():
    """Name → settings, of one epoch."""
    return {
        f"planned {network}-{sampler}{kept}": (
            *NETWORKS[network], f"train.batches={sampler}", *rows, "train.epochs=1",
        )
        for network, samplers in PLANNED.items()
        for sampler in samplers
        for kept, rows in {"": (), " kept": (cache_of(3),)}.items()
        if not kept or sampler in SAMPLERS[2:]
    }  # fmt: skip


def wanted(nranks, schemes_folder):
    """Of networks of other depths, one rank has full batches, and four batches of seeds."""
    deep = {
        name: settings_of(name) if nranks == 1 else
        [*settings_of(name), "train.batches=neighbor,100%" + ",-1" * depth]
        for name, depth in DEPTHS.items()
    }  # fmt: skip
    partition = None if nranks == 1 else f"uneven-{nranks}"
    return {
        name: (schemes_folder / "directed.graph", partition, [*COMMON, *settings])
        for name, settings in (cases() | planned() | deep).items()
    }


@pytest.mark.parametrize("name", [*cases(), *DEPTHS])
def test_one_curve_and_what_was_counted(results, name):
    """Rows that no later layer reads are left out of every network."""
    is_that_of_one_rank(results(4)[name], results(1)[name.partition(" kept ")[0]], 4)


def is_that_of_one_rank(record, alone, nranks):
    """One curve, and bytes and messages that are those predicted."""
    assert len(record["losses"]) == EPOCHS
    assert math.isfinite(sum(record["losses"]))
    np.testing.assert_allclose(record["losses"], alone["losses"], rtol=1e-10)
    for counted, predicted in record["traffic"]:
        assert counted == predicted
    if nranks > 1:
        assert sum(record["traffic"][0][0]) > 0


@pytest.mark.parametrize("nranks", RANKS)
def test_batches_of_everything_are_full_batches(results, nranks):
    found = results(nranks)
    for network in ("", "gat "):
        full = found[f"{network}whole "]["losses"]
        assert found[f"{network}whole full"]["losses"] == full  # bit for bit
        for sampler in WHOLE[1:] if not network else WHOLE[1:3]:
            losses = found[f"{network}whole {sampler}"]["losses"]
            np.testing.assert_allclose(losses, full, rtol=1e-10)


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


@pytest.mark.parametrize("sampler", ["vertex,13", "neighbor,6,3,2", "labor,6,3,2"])
def test_rows_and_messages_are_those_of_the_simulation(results, schemes_folder, sampler):
    as_simulated(results(4)[f"gcn-{sampler}"], schemes_folder / "directed.graph", sampler)


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("sampler", SAMPLERS[2:])
def test_rows_that_are_kept_are_not_sent(results, schemes_folder, sampler, kept):
    without = results(4)[f"gcn-{sampler}"]
    record, rows = results(4)[f"gcn-{sampler} kept {kept}"], KEPT[kept]
    assert 0 < sum(record["batch_rows_sent"]) < sum(without["batch_rows_sent"])
    assert sum(record["traffic"][0][0]) < sum(without["traffic"][0][0])
    for held, size in zip(record["kept_rows"], record["kept_bytes"], strict=True):
        assert held <= rows
        assert size == held * WIDTH * 8
    assert sum(record["kept_rows_read"]) > 0
    cache = float(cache_of(rows, itemsize=4).partition("=")[2])
    as_simulated(record, schemes_folder / "directed.graph", sampler, cache_mb=cache)


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
@pytest.mark.parametrize("nranks", RANKS)
def test_bytes_and_messages_are_those_that_are_planned(results, schemes_folder, nranks, name):
    config = load_config(None, latest(*COMMON, *planned()[name]))
    stored = open_graph(schemes_folder / "directed.graph")
    cost = as_planned(stored, config, nranks, results(nranks)[name])
    assert set(cost.phases) >= {"sample", "bind"}


def test_samples_differ_from_full_batches(results):
    found = results(1)
    full = found["whole "]["losses"]
    for sampler in SAMPLERS:
        assert not np.allclose(found[f"gcn-{sampler}"]["losses"], full, rtol=1e-3)


def test_mistakes_are_told(hear_mistakes, schemes_folder, tmp_path):
    mistakes = {
        "train.batches=neighbor": "gives no size",
        "train.batches=cluster,2": "gives no size",
        "train.batches=cluster,nowhere,2": "nowhere",
        "train.batches=nieghbor,6": "unknown sampler",
        "train.batches=neighbor,6,3": "1 fan-outs, the network looks at neighbours 2 times",
        "train.batches=vertex,6,3": "has no fan-outs",
        "train.batches=vertex,0": "a batch of 0 vertices",
        "train.batches=neighbor,6,3,2 model.name=mlp": "looks at no neighbours",
        "train.cache_mb=1": "rows are kept for mini-batches",
        "train.batches=vertex,6 train.cache_mb=1": "batches of seeds",
        "train.batches=neighbor,6,3,3 model.name=appnp model.hops=2 model.norm=batch "
        "train.cache_mb=1": "a batch norm before",
        "train.batches=vertex,6 scheme.name=bcast": "use scheme.name = p2p, summa, split3d or",
        "train.batches=neighbor,6,3,2 scheme.name=summa": "draws no neighbours",
        "train.batches=labor,6,3,2 scheme.name=tensor3d": "use train.batches = vertex or cluster",
        "train.batches=vertex,6 task.class_weights=balanced": "weights of classes",
        "train.batches=vertex,6 model.train_features=true": "features that are trained",
    }
    words = ["train", schemes_folder / "directed.graph", "--out", tmp_path / "run"]
    hear_mistakes(1, [([*words, *sets(*key.split())], says) for key, says in mistakes.items()])


def test_an_interrupted_epoch_gives_the_same_bits(run_cases, schemes_folder, tmp_path):
    graph, batches = schemes_folder / "directed.graph", "neighbor,6,3,2"
    run_cases("interrupted", 3, [(graph, "uneven-3", tmp_path, batches, [])])
