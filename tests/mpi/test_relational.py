"""Networks that tell relations apart, against the oracle, for every number of ranks.

On mini-batches: one curve for any number of ranks. One rank has every case; three, of which one has
no rows, have all with smaller batches. A step is that of a loop over arcs.
"""

import numpy as np
import pytest
from axes import daily
from stored_graphs import store, with_uneven_parts
from test_minibatch import COMMON as PLAIN
from test_minibatch import as_planned, as_simulated, is_that_of_one_rank
from words import latest, sets

from gcnmpi.core import rng
from gcnmpi.options.config import load_config
from gcnmpi.options.train import sampler_of
from gcnmpi.proof import oracle
from partition.graph.relations import Relation
from partition.graph.store import open_graph
from partition.graph.vertex_pairs import split_pairs, write_pairs
from partition.importing.arcs import build_typed
from partition.importing.readers.source import RelationArcs, TypedSource

TRAFFIC = {f"{when} {what}" for when in ("training", "evaluation")
           for what in ("bytes", "received", "messages")}  # fmt: skip
COUNTS = {"paper": 23, "author": 17, "venue": 5, "field": 4}
# Arcs of each relation, as many as it has: none of one, a single one, some between one type; one
# is called the reverse of another.
ARCS = {
    Relation("author", "writes", "paper"): 60,
    Relation("author", "reviews", "paper"): 40,
    Relation("paper", "cites", "paper"): 70,
    Relation("paper", "at", "venue"): 30,
    Relation("venue", "rev_at", "paper"): 25,
    Relation("paper", "about", "field"): 1,
    Relation("field", "within", "field"): 0,
}


SAME, TYPED = dict.fromkeys(COUNTS, 6), {"paper": 5, "author": 3, "field": 2}
# Features, and how often there are so many arcs; "parallel" has some of one relation.
GRAPHS = {
    "schema": (SAME, {}),
    "typed": (TYPED, {}),
    "parallel": (TYPED, {"duplicates": "keep"}),
    "without arcs": (SAME, {"times": 0}),
}


def schema(widths, times=1, **options):
    """Of four types and seven relations; the same two vertices may be joined by several."""
    random, tables = np.random.default_rng(4), []
    for one, count in ARCS.items():
        ends = [
            random.integers(0, COUNTS[kind], times * count) for kind in (one.source, one.target)
        ]
        tables.append(RelationArcs(one, *ends))
    features = {
        name: random.standard_normal((COUNTS[name], width)).astype(np.float32)
        for name, width in widths.items()
    }
    labels = {"paper": random.integers(0, 4, COUNTS["paper"])}
    masks = {"train": {"paper": np.arange(23) % 2 == 0}, "val": {"paper": np.arange(23) % 2 == 1}}
    data = {"features": features, "labels": labels, "masks": masks, "format": "test"}
    return build_typed(TypedSource(COUNTS, tables, **data), **options)[0]


@pytest.fixture(scope="module")
def schemas(tmp_path_factory):
    """With pairs: some arcs are held out for a task on these."""
    folder = tmp_path_factory.mktemp("relational")
    for name, (widths, options) in GRAPHS.items():
        graph = schema(widths, **options)
        path = with_uneven_parts(store(folder / f"{name}.graph", graph), (1, 2, 3, 4, 7))
        if graph.nnz:
            facts = {"directed": True, "graph_id": open_graph(path).manifest.id}
            write_pairs(path, split_pairs(graph, (0.7, 0.1, 0.2), 3, **facts))
    return folder


RGCN = ["model.name=rgcn", "model.hidden=[6]"]
HGT = ["model.name=hgt", "model.hidden=[6,6]", "model.heads=2", "model.attention_dropout=0.3"]
GAT = ["model.name=hetero", "model.convolution=gat", "model.hidden=[6]", "model.heads=2"]
MEAN = "model.relation_reduction=mean"
RGAT = ["model.name=rgat", "model.hidden=[6]", "model.heads=2", "model.norm=layer"]
COMPGCN = ["model.name=compgcn", "model.hidden=[6]"]
SEHGNN = ["model.name=sehgnn", "model.target=paper", "model.hidden=[6]"]
MIXED, SHARED = "scheme.exchange=mixed", "scheme.transport=shared"
CASES = [
    ("schema", [*RGCN, "model.dropout=0.4"]),
    ("schema", [*RGCN, "model.dropout=0.4", MIXED]),
    ("schema", [*RGCN, "model.hidden=[6,6]", SHARED]),
    ("typed", [*RGCN, "model.bases=2", "graph.direction=out", "model.norm=batch"]),
    ("schema", [*RGCN, "model.blocks=2", "model.root_weight=false", "model.linear_after=true"]),
    ("typed", [*RGCN, "task.name=links", "model.bases=2"]),
    ("typed", [*RGCN, "task.name=links", "model.bases=2", MIXED]),
    ("typed", ["model.name=hetero", "model.hidden=[6,5]", "graph.direction=out", MIXED]),
    ("parallel", [*RGCN, "model.dropout=0.4", MIXED]),
    ("parallel", [*RGCN, "model.hidden=[]", "task.name=links", MIXED, "comm.precision=bf16"]),
    ("without arcs", [*RGCN, MIXED]),
    ("schema", [*RGCN, "model.train_features=true", "train.memory=least", MIXED]),
    ("schema", [*RGCN, "model.hidden=[6,6]", "model.residual=identity", "train.memory=least"]),
    ("schema", [*RGCN, "model.bases=3", "model.train_features=true", "model.jk=cat"]),
    ("typed", [*RGCN, "model.norm=layer", "graph.feature_norm=row", "kernel=scipy"]),
    ("typed", ["model.name=hetero", "model.hidden=[6]", "model.dropout=0.3"]),
    ("schema", [*HGT, "model.dropout=0.3", "model.residual=linear"]),
    ("typed", [*HGT, "model.norm=layer", "train.memory=least"]),
    ("schema", [*GAT, "model.attention_dropout=0.3"]),
    ("schema", [*GAT, "model.convolution=gatv2", MEAN, "train.memory=least"]),
    ("typed", ["model.name=hetero", "model.hidden=[6]", MEAN, "model.norm=batch"]),
    ("schema", ["model.name=hetero", "model.hidden=[6]", "model.aggregation=sum+max"]),
    ("typed", [*RGAT, "model.bases=2", "model.attention_dropout=0.3"]),
    ("schema", [*RGAT, "model.softmax=relation", "model.blocks=2", "train.memory=least"]),
    ("typed", [*GAT, "model.out_heads=3", "graph.direction=out", "train.memory=least"]),
    ("schema", [*COMPGCN, "model.dropout=0.4", "model.norm=batch"]),
    ("typed", [*COMPGCN, "model.composition=sub", "model.bases=2", "train.memory=least"]),
    ("typed", [*COMPGCN, "model.composition=sub", "graph.direction=out", "model.hidden=[6,6]"]),
    ("schema", [*COMPGCN, "task.name=links", "task.decoder=distmult"]),
    ("schema", [*COMPGCN, "model.composition=sub", "model.train_features=true"]),
    ("schema", [*SEHGNN, "model.dropout=0.3", "model.norm=batch"]),
    ("typed", [*SEHGNN, "model.hidden=[6,5]", "model.hops=3", "model.norm=layer"]),
    ("typed", [*SEHGNN, "model.input_dropout=0.3", "model.cache_input=false"]),
    ("schema", [*SEHGNN, "model.train_features=true", "model.hops=1"]),
    ("typed", ["model.name=gcn", "model.hidden=[6]"]),
    ("typed", ["model.name=sage", "model.hidden=[6]", "scheme.name=summa"]),
]
BCAST = ["scheme.name=bcast"]
COPIES = {k: ["scheme.name=replicated", f"scheme.replication={k}"] for k in (2, 3)}
# Schemes, which the networks take in turn.
SCHEMES = {2: [BCAST, []], 3: [*[[]] * 4, COPIES[3]], 4: [COPIES[2], []]}


@pytest.mark.parametrize("nranks", daily(3, *sorted({*SCHEMES} - {3})))
def test_a_run_is_that_of_one_process(verified, schemas, nranks):
    """All networks on three ranks, every second one on others."""
    cases, turns = [], SCHEMES[nranks]
    for i, (graph, settings) in enumerate(CASES[nranks // 4 :: 2 - nranks % 2]):
        alone = {"task.name=links", "scheme.name=summa", MIXED, SHARED}.intersection(settings)
        scheme = [] if alone else turns[i % len(turns)]
        copies = next((k for k in COPIES if scheme is COPIES[k]), 1)
        whole = scheme in (BCAST, COPIES[3]) or "scheme.name=summa" in settings
        partition = None if whole else f"uneven-{nranks // copies}"
        settings = ["train.epochs=3", *settings, *scheme]
        cases.append((schemas / f"{graph}.graph", partition, settings))
    verified(nranks, cases, *TRAFFIC, "loss curve", "first gradient")


COMMON = (*PLAIN, "model.hidden=[6]")
HEADS = "model.heads=2 model.attention_dropout=0.3"
NETWORKS = {
    "rgcn": "model.bases=2 model.norm=layer",
    "rgat": HEADS,
    "rgat-within": f"model.softmax=relation {HEADS}",
    "compgcn": "model.composition=sub model.norm=layer model.hidden=[5]",
    "hetero": "model.norm=batch model.hidden=[6,6]",
    "hetero-max": "model.aggregation=max+mean",
    "hetero-gat": f"model.convolution=gat {HEADS}",
    # Scores of arcs on one side of the slope leave rounding errors, which adam would divide by.
    "hetero-gatv2": f"model.convolution=gatv2 {MEAN} {HEADS} train.optimizer=sgd",
    "hgt": f"model.hidden=[6,6] model.out_heads=2 {HEADS}",
}
DEEP = ("hetero", "hgt")
GRAPH_OF = {"rgcn": "typed", "hetero-gat": "typed", "hgt": "typed"}
SAMPLERS = ("vertex,13", "cluster,uneven-7,3", "neighbor,4,3,2", "labor,4,3,2")
OWN = "train.fanouts=writes=1; author,reviews,paper=0; cites=-1"
WHOLE = ("vertex,100%", "cluster,uneven-7,100%", "neighbor,100%,-1,-1", "labor,100%,-1,-1")


def settings_of(network, sampler=None, *more):
    """With a fan-out more for a layer more."""
    found = [f"model.name={network.partition('-')[0]}", *NETWORKS[network].split(), *more]
    if sampler is None:
        return found
    deeper = sampler.partition(",")[0] in ("neighbor", "labor") and network in DEEP
    return [*found, f"train.batches={sampler}{',' + sampler[-1] if deeper else ''}"]


def cases():
    """Name → network, settings: of rgcn with every sampler, of others with one."""
    found = {}
    for i, network in enumerate(NETWORKS):
        for sampler in SAMPLERS if network == "rgcn" else (SAMPLERS[i % 4],):
            found[f"{network}-{sampler}"] = network, settings_of(network, sampler)
        if network in ("rgcn", "compgcn", "hgt"):
            for sampler in SAMPLERS[2 + (network == "hgt") :]:
                found[f"{network}-{sampler} own"] = network, settings_of(network, sampler, OWN)
    first, kept = SAMPLERS[2], "train.cache_mb=0.0005"
    for network in ("rgcn", "hgt"):
        found[f"{network}-{first}"] = network, settings_of(network, first)
        found[f"{network}-{first} kept"] = network, settings_of(network, first, kept)
    found["out"] = "rgcn", settings_of("rgcn", first, "graph.direction=out")
    found["scipy"] = "hgt", settings_of("hgt", SAMPLERS[3], "kernel=scipy")
    found["ahead"] = "rgcn", settings_of("rgcn", first, "train.draw_ahead=yes")
    return found


def whole():
    """Name → network, settings: of full batches, and of batches of everything."""
    found = {}
    for i, network in enumerate(NETWORKS):
        # Moments of a batch norm are those of the rows that seeds reach.
        sampler = WHOLE[0 if network == "hetero" else i % 4]
        found[f"{network} whole"] = network, settings_of(network)
        found[f"{network} parts"] = network, settings_of(network, sampler)
    return found


PLANNED = {
    f"planned {network}-{sampler}": (network, settings_of(network, sampler, "train.epochs=1", *own))
    for network, sampler, *own in (
        ("rgcn", SAMPLERS[0]), ("rgcn", SAMPLERS[2], OWN), ("rgcn", SAMPLERS[3]),
        ("hgt", SAMPLERS[2]),
    )
}  # fmt: skip
# Epochs whose batches all have the initial weights.
STILL = {
    f"still {sampler}": (
        "still", ["model.name=rgcn", "train.lr=0", "model.dropout=0", f"train.batches={sampler}",
                  *own],
    )
    for sampler, *own in ((SAMPLERS[0],), (SAMPLERS[2], OWN), (SAMPLERS[3],))
}  # fmt: skip


def sampled_loss(graph, config, epoch):
    """The loss of such an epoch, one arc after the other, on all vertices."""
    rows = oracle.Rows(graph, "in", config, int(graph.labels.max()) + 1)
    weights, x = rows.initial(), rows.features
    column = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    row, relation = np.array(graph.indices), np.array(graph.arc_type)
    order = np.lexsort((column, relation, row))
    row, relation, column = row[order], relation[order], column[order]
    sizes = np.zeros((graph.n, len(graph.relations)))
    np.add.at(sizes, (row, relation), 1)
    trained = np.flatnonzero(graph.masks["train"] & (graph.labels >= 0))
    sampler = sampler_of(config.train, graph.n, len(trained), None, graph.relations)
    total = 0.0
    for batch in range(sampler.batches):
        number = (epoch - 1) * sampler.batches + batch + 1
        members, h = sampler.members(epoch, batch), x * kept_numbers(x.shape, number)
        seeds = trained[members] if sampler.layered else np.intersect1d(members, trained)
        for layer in (0, 1):
            place = epoch, batch, 1 - layer if sampler.layered else 0
            kept, factors = sampler.arcs(place, row, relation, column)
            name = f"convs.{layer}"
            of = weights[f"{name}.weight"].reshape(len(graph.relations), h.shape[1], -1)
            y = h @ weights[f"{name}.root"] + weights[f"{name}.bias"]
            for e, factor in zip(np.flatnonzero(kept), factors, strict=True):
                y[row[e]] += factor / sizes[row[e], relation[e]] * (h[column[e]] @ of[relation[e]])
            h = np.maximum(y, 0) if layer == 0 else y
        norms = np.log(np.exp(h[seeds]).sum(axis=1))
        total += (norms - h[seeds, graph.labels[seeds]]).sum()
    return total / len(trained)


def kept_numbers(shape, number, p=0.2):
    """Input dropout of a batch: 0, or by how much a number is larger."""
    keys = rng.row_keys(0, number, 0, np.arange(shape[0]))
    hashes, scratch = np.empty((2, *shape), np.uint32)
    rng.hash_block(keys, rng.column_keys(np.arange(shape[1])), hashes, scratch)
    return (hashes >= rng.threshold(p)) / (1 - p)


def wanted(nranks, schemas):
    some = cases() | STILL | (whole() if nranks == 1 else PLANNED)
    return {
        name: (
            schemas / f"{GRAPH_OF.get(network, 'schema')}.graph",
            f"uneven-{nranks}" if nranks > 1 else None,
            [*COMMON, *settings],
        )
        for name, (network, settings) in some.items()
    }


@pytest.mark.parametrize("name", cases())
def test_one_curve_and_what_was_counted(results, name):
    is_that_of_one_rank(results(3)[name], results(1)[name.removesuffix(" kept")], 3)


@pytest.mark.parametrize("network", NETWORKS)
def test_batches_of_everything_are_full_batches(results, network):
    losses = [results(1)[f"{network} {kind}"]["losses"] for kind in ("parts", "whole")]
    np.testing.assert_allclose(*losses, rtol=1e-10)


@pytest.mark.parametrize("name", STILL)
def test_a_batch_is_what_the_sampler_says(results, schemas, name):
    """Its dropout is its own, and so is its share in the loss of the epoch."""
    config = load_config(None, latest(*COMMON, *STILL[name][1]))
    graph = open_graph(schemas / "schema.graph").graph
    expected = [sampled_loss(graph, config, epoch) for epoch in (1, 2)]
    assert abs(expected[0] - expected[1]) > 1e-3
    for nranks in (1, 3):
        np.testing.assert_allclose(results(nranks)[name]["losses"], expected, rtol=1e-10)


@pytest.mark.parametrize("name", PLANNED)
def test_bytes_and_messages_are_those_that_are_planned(results, schemas, name):
    network, settings = PLANNED[name]
    config = load_config(None, latest(*COMMON, *settings))
    as_planned(open_graph(schemas / f"{GRAPH_OF[network]}.graph"), config, 3, results(3)[name])


@pytest.mark.parametrize("sampler", SAMPLERS[2:])
@pytest.mark.parametrize("own", ["", " own"])
def test_a_simulation_by_relation_counts_what_a_run_counts(results, schemas, sampler, own):
    fanouts = [one.strip() for one in OWN.partition("=")[2].split(";") if own]
    record = results(3)[f"rgcn-{sampler}{own}"]
    path = schemas / "typed.graph"
    as_simulated(record, path, sampler, relations=True, fanouts_of=fanouts)


def test_mistakes_are_told(hear_mistakes, schemas, tmp_path):
    batch, rgcn = "train.batches=neighbor,6,3,2", "model.name=rgcn"
    own = "train.fanouts=writes=2"
    mistakes = {
        (own, rgcn, "train.batches=vertex,6"): "neighbours are drawn by train.batches",
        (own, batch, "model.name=gcn"): "does not tell relations apart",
        ("train.fanouts=wrties=2", batch, rgcn): "did you mean 'writes'",
        (rgcn, batch, "model.train_features=true"): "features that are trained",
        (rgcn, batch, "scheme.name=bcast"): "use scheme.name = p2p",
    }
    words = ["train", schemas / "schema.graph", "--out", tmp_path / "run"]
    hear_mistakes(1, [([*words, *sets(*keys)], says) for keys, says in mistakes.items()])
