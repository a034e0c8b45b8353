"""Networks that tell relations apart, against the oracle, for every number of ranks."""

import numpy as np
import pytest
from axes import daily
from stored_graphs import store, with_uneven_parts

from partition.graph.links import split_pairs, write_pairs
from partition.graph.relations import Relation
from partition.graph.store import open_graph
from partition.importing.readers.typed_source import RelationArcs, TypedSource
from partition.importing.typed import build_typed

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
NETWORKS = [
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
    ("typed", [*COMPGCN, "model.composition=corr", "model.bases=2", "train.memory=least"]),
    ("typed", [*COMPGCN, "model.composition=sub", "graph.direction=out", "model.hidden=[6,6]"]),
    ("schema", [*COMPGCN, "task.name=links", "task.decoder=distmult"]),
    ("schema", [*COMPGCN, "model.composition=corr", "model.train_features=true"]),
    ("schema", [*SEHGNN, "model.dropout=0.3", "model.norm=batch"]),
    ("typed", [*SEHGNN, "model.hidden=[6,5]", "model.hops=3", "model.norm=layer"]),
    ("typed", [*SEHGNN, "model.input_dropout=0.3", "model.cache_input=false"]),
    ("schema", [*SEHGNN, "model.train_features=true", "model.hops=1"]),
    ("typed", ["model.name=gcn", "model.hidden=[6]"]),
    ("typed", ["model.name=sage", "model.hidden=[6]", "scheme.name=summa"]),
]
BCAST = ["scheme.name=bcast"]
COPIES = ["scheme.name=replicated", "scheme.replication=2"]
# Schemes, which the networks take in turn.
SCHEMES = {2: [BCAST, []], 3: [[]], 4: [COPIES, []]}


@pytest.mark.parametrize("nranks", daily(3, *sorted({*SCHEMES} - {3})))
def test_a_run_is_that_of_one_process(verified, schemas, nranks):
    """All networks on three ranks, every second one on others."""
    cases, turns = [], SCHEMES[nranks]
    for i, (graph, settings) in enumerate(NETWORKS[nranks // 4 :: 2 - nranks % 2]):
        alone = {"task.name=links", "scheme.name=summa", MIXED, SHARED}.intersection(settings)
        scheme = [] if alone else turns[i % len(turns)]
        copies = 2 if scheme is COPIES else 1
        whole = scheme is BCAST or "scheme.name=summa" in settings
        partition = None if whole else f"uneven-{nranks // copies}"
        settings = ["train.epochs=3", *settings, *scheme]
        cases.append((schemas / f"{graph}.graph", partition, settings))
    verified(nranks, cases, *TRAFFIC, "loss curve", "first gradient")
