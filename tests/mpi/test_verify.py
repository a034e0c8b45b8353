"""``gcnmpi verify``: sound runs pass, and every check fails where it should."""

import json
from dataclasses import replace

import numpy as np
import pytest
from stored_graphs import store, with_uneven_parts
from words import latest, sets

from partition.graph.store import read_partition, write_partition
from partition.importing.arcs import build_graph
from partition.importing.readers.source import Source
from partition.importing.synthetic import sbm

DOT = "⟨M·x, y⟩ = ⟨x, Mᵀ·y⟩"
TRAFFIC = [f"{when} {what}" for when in ("training", "evaluation")
           for what in ("bytes", "received", "messages")]  # fmt: skip
STEPS = ["optimizer in float64", "optimizer in float32"]
# Everything that comes out of training itself.
NUMBERS = ["loss curve", "final weights", "logits"]
SCHEMES = ("p2p", "bcast", "replicated", "summa", "split3d", "tensor3d")
# Vertices, and (source, target, weight) of the arcs.
CANCELLING = [(0, 4, 0.1), (1, 4, 0.2), (2, 4, -0.3), (3, 5, 1e16), (4, 5, 1.0), (5, 5, -1e16),
              *((i, 6, 0.1) for i in range(6)), (7, 6, -0.6), (8, 7, 0.7), (0, 7, 0.2),
              (1, 8, 1 / 3), (2, 8, -1 / 3), (4, 8, 0.5), (6, 8, -0.4)]  # fmt: skip
SMALL = {
    "bipartite": (4, [(0, 2, 1.0), (0, 3, 1.0), (1, 2, 1.0), (1, 3, 1.0)]),
    "one": (1, []),
    "cancelling": (9, CANCELLING),
}
KINDS = ("directed", "mirrored", "undirected", "ones", "arcless", *SMALL)


def make_graph(kind):
    """Weighted and directed with isolated vertices; or of symmetric pattern only; …"""
    if kind in ("undirected", "ones"):
        graph = sbm(90, 3, degree=6, features=4, train=0.4, val=0.2)
        return graph if kind == "undirected" else replace(graph, features=graph.features * 0 + 1)
    rng, masks = np.random.default_rng(5), {}
    if kind in SMALL:
        n, entries = SMALL[kind]
        source, target, weights = np.array(entries, np.float64).reshape(-1, 3).T
        source, target, labels = source.astype(int), target.astype(int), np.arange(n) % 2
        weights = None if (weights == 1).all() else weights
    else:
        n, narcs = (7, 0) if kind == "arcless" else (61, 230)
        source, target = rng.integers(0, max(1, n - 9), (2, narcs))
        if kind == "mirrored":
            source, target = np.append(source, target), np.append(target, source)
        else:
            masks = {name: rng.random(n) < 0.4 for name in ("train", "val", "test")}
            masks["train"][:2] = True
        labels = rng.integers(-1, 4, n)
        labels[:4] = range(4)
        weights = rng.uniform(0.2, 1.5, len(source))
    features, labels = rng.standard_normal((n, 5)).astype(np.float32), labels.astype(np.int32)
    return build_graph(Source(n, source, target, weights, features, labels, masks))[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify")
    for kind in KINDS:
        path = store(folder / f"{kind}.graph", make_graph(kind))
        with_uneven_parts(path, (1, 2, 3, 4), mixed=False)
        false = replace(read_partition(path, "uneven-3"), name="false-3")
        false.metrics["in"].send_rows[2] += 1
        write_partition(path, false)
    return folder


def case(folder, nranks, kind, settings, name="uneven"):
    """A case to be verified; two copies with "replicated"; other schemes than p2p need no parts."""
    settings = latest("train.epochs=5", *settings.split())
    scheme = next((word[12:] for word in settings if word.startswith("scheme.name=")), "p2p")
    parts = {"p2p": nranks, "replicated": max(1, nranks // 2)}.get(scheme)
    return folder / f"{kind}.graph", parts and f"{name}-{parts}", settings


DROPOUT = "model.dropout=0.5 model.input_dropout=0.3"
SOUND = [
    ("directed", f"model.hidden=[7] {DROPOUT}"),
    ("directed", "model.hidden=[3,6,9] graph.direction=out graph.normalize=row kernel=scipy "
     "train.optimizer=sgd train.momentum=0.9 train.lr=0.1 train.weight_decay=0.01 "
     "train.eval_every=4"),
    ("directed", "model.hidden=[7] model.order=aggregate model.cache_input=false "
     "graph.normalize=none graph.self_loops=false model.dropout=0.2"),
    ("directed", "model.hidden=[] graph.feature_norm=row graph.normalize=none train.eval_every=0"),
    ("directed", f"model.hidden=[11,3] dtype=float32 {DROPOUT}"),
    ("mirrored", "model.hidden=[7] model.order=combine scheme.backward=expand"),
    ("mirrored", f"model.hidden=[9,2,5] graph.normalize=row kernel=scipy {DROPOUT}"),
    ("mirrored", "graph.normalize=none scheme.backward=fold graph.direction=out model.bias=false"),
    ("undirected", f"graph.normalize=row train.weight_decay=5e-4 {DROPOUT} "
     "train.weight_decay_layers=first"),
    ("arcless", "model.hidden=[3] model.dropout=0.5"),
    ("directed", f"model.train_features=true train.optimizer=sgd train.lr=0.1 {DROPOUT}"),
    ("mirrored", "model.hidden=[4,3] model.train_features=true graph.feature_norm=row "
     "model.order=combine train.weight_decay=0.01"),
    # A bias in front of a batch norm; columns of equal numbers there; both.
    ("undirected", "model.norm=batch model.hidden=[16,16] train.weight_decay=5e-4 "
     "model.residual=linear train.epochs=20"),
    ("ones", "graph.normalize=row model.norm=batch model.hidden=[8,8] model.activation=elu "
     "model.linear_before=true train.weight_decay=5e-4"),
    ("ones", "model.norm=batch model.hidden=[8,8] train.weight_decay=5e-4 "
     "task.metrics=roc_auc,average_precision"),
]  # fmt: skip


def test_sound_runs_pass(verified, folder):
    cases = [case(folder, 3, *about) for about in SOUND]
    found = verified(3, cases, *NUMBERS, *TRAFFIC, DOT, "plan = metrics", directions=2)
    for (_, settings), checks in zip(SOUND, found, strict=True):
        assert ("finite differences" in checks) == ("dtype=float32" not in settings)


# Networks whose products with M are made once, before the first epoch; and one without any.
ONCE, NO_PRODUCT = "model.name=sgc model.hops=2", "model.name=mlp model.hidden=[4]"


def test_products_that_are_made_once_are_looked_at(verified, folder):
    cases = [
        case(folder, 4, "directed", f"{network} scheme.name={scheme} train.epochs=2")
        for network in (ONCE, "model.name=gcn model.hidden=[]", NO_PRODUCT)
        for scheme in SCHEMES
    ]
    for (_, _, settings), checks in zip(cases, verified(4, cases), strict=True):
        assert (DOT in checks) == ("model.name=mlp" not in settings), settings


@pytest.mark.parametrize(
    ("nranks", "kinds"), [(1, ["one"]), (2, ["arcless", "bipartite", "cancelling"])]
)
def test_every_normalisation_where_rows_sum_to_nothing(verified, folder, nranks, kinds):
    """Ranks without arcs; rows whose sums cancel, up to rounding errors that depend on an order."""
    own = "graph.self_loops=false train.epochs=2 model.dropout=0.3"
    cases = [
        case(folder, nranks, kind, f"{own} scheme.name={scheme} graph.normalize={normalize}")
        for kind in kinds
        for normalize in ("sym", "row", "none")
        for scheme in SCHEMES
        if (scheme, nranks) != ("replicated", 1)
        if kind != "cancelling" or normalize == "row"
    ]
    verified(nranks, cases)


FOLD = "model.hidden=[7] model.order=combine"
# Fault → what must miss, and nothing else; further settings, or another partition.
FAULTY = {
    "fold_overwrites": ["Mᵀ·y", DOT, "first gradient", "finite differences", *NUMBERS],
    "byte_not_counted": ["training bytes"],
    "message_not_counted": ["training messages", "evaluation messages"],
    "reading_not_counted": ["training shared", "evaluation shared"],
    "row_too_many": [*TRAFFIC[:2], *TRAFFIC[3:5], "plan = metrics"],
    "other_initial_weight": ["first gradient", *NUMBERS],
    "gradient_counted_twice": ["first gradient", "finite differences", *NUMBERS],
    "rows_not_in_original_order": ["logits", "predictions", "metrics", "M·x", "Mᵀ·y"],
    "one_more_right": ["metrics"],
    "adam_without_correction": [*NUMBERS, *STEPS],
    "adam_wrong_in_float32": STEPS[1:],
    "loss_of_rank_zero": ["loss curve", "finite differences"],
    "nothing": ["training bytes", "training received", "evaluation bytes", "recorded metrics"],
}
ADDED = {
    "reading_not_counted": "scheme.transport=shared",
    "rows_not_in_original_order": "loading.order=none",
}


def test_every_check_can_miss(run_cases, folder):
    faulty = [
        (fault, "directed", f"{FOLD} {ADDED.get(fault, '')}", *["false"] * (fault == "nothing"))
        for fault in FAULTY
    ]
    faulty += [
        ("rows_not_in_original_order", "directed", f"{ONCE} loading.order=none"),
        ("fold_of_halo_twice", "directed", "model.name=gat model.hidden=[4] scheme.name=bcast"),
    ]
    names = ("graph", "partition", "settings", "fault", "directions")
    cases = [(*case(folder, 3, *about), fault, 4) for fault, *about in faulty]
    asked = [dict(zip(names, one, strict=True)) for one in cases]
    *results, once, attention = run_cases("verify_cases", 3, asked)
    seen = set()
    for (fault, expected), result in zip(FAULTY.items(), results, strict=True):
        missed = set(result["missed"])
        assert result["code"] == 1, fault
        assert missed >= set(expected), fault
        # A class may change with the weights, or may not.
        more = missed - {"predictions"} - set(expected)
        assert not more or fault == "row_too_many", fault
        seen |= missed
    assert seen == set(results[0]["checks"])
    assert {"M·x", "Mᵀ·y"} <= set(once["missed"])
    assert {"halo dot test", "first gradient"} <= set(attention["missed"])


def test_the_command_prints_a_table_or_one_object_and_exits_with_the_verdict(mpirun, folder):
    arguments = ("verify", folder / "directed.graph", "--set", "train.epochs=3", "--partition")
    done = mpirun(3, "gcnmpi", *arguments, "uneven-3", *sets("dtype=float32"), "--json")
    facts = json.loads(done.stdout)
    assert facts["ok"]
    assert (facts["dtype"], facts["ranks"], facts["config"]["train"]["epochs"]) == ("float32", 3, 3)
    assert all(check["measured"] <= check["tolerance"] for check in facts["checks"])
    mpirun(3, "gcnmpi", *arguments, "false-3", code=1)
