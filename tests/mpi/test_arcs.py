"""Networks with rows of arcs against the oracle, on the schemes that bring whole rows together."""

from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest
from stored_graphs import graph_of, store, with_uneven_parts

from partition.graph.arc_data import ArcData
from partition.graph.graph import Graph
from partition.importing.synthetic import sbm

CHECKS = {f"{when} {what}" for when in ("training", "evaluation")
          for what in ("bytes", "received", "messages")}  # fmt: skip
CHECKS |= {"loss curve", "first gradient", "halo dot test"}

# All that no network of the program has: norms and dropout of rows of arcs, weights for rows of
# neighbours, products of both ends, and states of arcs that two layers read.
OWN = """
    from gcnmpi.nn.network import Builder


    def matrix(model):
        return "none", True


    def build(model, features, classes, arcs):
        b = Builder(features, arcs)
        x = b.linear(b.input, 6, "first", bias=True)
        e = b.linear(b.arc_features("mean"), 6, "arcs", bias=True)
        for k in (1, 2):
            e = b.add(e, b.add(b.source(b.linear(x, 6, f"a{k}")), b.target(x)))
            e = b.batch_norm(e, f"bn{k}")
            e = b.drop(b.activate(e, "relu"), 0.4, 100 + k)
            scores = b.end_dots(x, x, 2)
            weights = b.softmax(b.add(scores, b.head_dots(e, f"dots{k}", 2, k)))
            y = b.weighed_sum(b.drop(weights, 0.3, 200 + k), x)
            z = b.linear(b.reduce(e, "std", "max", "mean", "min"), 6, f"b{k}")
            x = b.layer_norm(b.add(b.add(y, z), x), f"ln{k}")
            b.output(x)
        b.output(b.linear(x, classes, "last", bias=True))
        return b.build()
"""


def parallel(n, narcs, width=3):
    """Directed, with parallel arcs, self-loops, and vertices without arcs."""
    rng = np.random.default_rng(5)
    ends = rng.integers(0, n - 6, (2, narcs))
    ends = np.hstack((ends, ends[:, : narcs // 4]))
    source, target = ends[:, np.lexsort(ends[::-1])]
    labels = np.where(rng.random(n) < 0.1, -1, np.arange(n) % 4).astype(np.int32)
    return Graph(
        np.searchsorted(source, np.arange(n + 1)).astype(np.int64),
        target.astype(np.int32),
        features=rng.standard_normal((n, 5)).astype(np.float32),
        labels=labels,
        masks={"train": np.arange(n) % 3 == 0, "val": np.arange(n) % 3 == 1},
        arc_data=ArcData(rng.standard_normal((len(source), width)).astype(np.float32)),
        parallel=True,
    )


def undirected():
    graph = sbm(60, 3, degree=5, features=4, train=0.4, val=0.2)
    features = np.random.default_rng(2).standard_normal((graph.nnz, 2)).astype(np.float32)
    return replace(graph, arc_data=ArcData(features))


def equal_neighbours(n=12):
    """Vertices with one neighbour, or two with equal features."""
    rng, dense = np.random.default_rng(8), np.zeros((n, n), bool)
    dense[np.append(rng.integers(0, n, n), [2, 7]), np.append(np.arange(n), [1, 4])] = True
    data = ArcData(rng.standard_normal((dense.sum(), 2)).astype(np.float32))
    labels = (np.arange(n) % 3).astype(np.int32)
    return graph_of(dense, features=np.ones((n, 3), np.float32), labels=labels, arc_data=data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arcs")
    for name, graph in {
        "parallel": parallel(47, 200), "edges": undirected(), "arcless": parallel(9, 0),
        "equal": equal_neighbours(),
    }.items():  # fmt: skip
        with_uneven_parts(store(folder / f"{name}.graph", graph), (1, 2, 3, 4), mixed=False)
    (folder / "own.py").write_text(dedent(OWN), "utf-8")
    return folder


GINE = ["model.name=gine", "model.hidden=[6]"]
ATTENTION = ["model.hidden=[6]", "model.heads=2", "model.arc_features=true"]
PNA = ["model.name=pna", "model.hidden=[6]", "model.linear_after=true"]
LEAST = "train.memory=least"
NETWORKS = [
    ("parallel", [*GINE, "model.dropout=0.4", "model.train_eps=true"]),
    ("parallel", [*GINE, "graph.direction=out", "model.norm=batch", "model.eps=0.3"]),
    ("edges", [*GINE, "kernel=scipy", "model.input_dropout=0.3", "train.eval_every=2"]),
    ("edges", [*GINE, "model.norm=layer", "model.residual=linear", "model.jk=cat"]),
    ("arcless", GINE),
    ("parallel", [*ATTENTION, "model.name=gat", "model.attention_dropout=0.4"]),
    ("parallel", [*ATTENTION, "model.name=gatv2", "model.concat=false", "model.norm=layer"]),
    ("parallel", [*ATTENTION, "model.name=transformer", "model.beta=true", "model.dropout=0.3"]),
    ("parallel", [*PNA, "model.scalers=identity+attenuation+linear", "model.arc_features=true"]),
    ("edges", [*PNA, "model.towers=3", "model.pre_layers=2", "model.aggregators=mean+std"]),
    ("arcless", PNA),
    ("parallel", ["model.name=mgn", "model.hidden=6,6", "model.dropout=0.2"]),
    ("arcless", ["model.name=mgn", "model.hidden=[6]", "model.reduction=mean"]),
    ("parallel", ["model.name=sage", "model.hidden=[6]", "model.aggregation=mean+max+min"]),
    # Keeping as little as they can.
    ("parallel", [*ATTENTION, "model.name=gat", "model.attention_dropout=0.4", LEAST]),
    ("edges", [*ATTENTION, "model.name=gatv2", "model.concat=false", LEAST]),
    ("parallel", [*ATTENTION, "model.name=transformer", "model.attention_dropout=0.4", LEAST]),
    ("edges", ["model.name=gatedgcn", "model.arc_features=true", "model.norm=batch", LEAST]),
    ("edges", ["model.name=gatedgcn", "model.residual=linear", LEAST]),
    ("edges", ["model.name=pna", "model.scalers=attenuation+linear", LEAST]),
    ("parallel", ["model.name=mgn", "model.hidden=[6,6]", "model.dropout=0.3", LEAST]),
    ("parallel", ["model.name=sage", "model.aggregation=mean+max+std", LEAST]),
    *((kind, ["own"]) for kind in ("parallel", "edges", "arcless")),
]
COPIES = ["scheme.name=replicated", "scheme.replication=2"]
# Ranks, parts of the partition, and what the networks take in turn.
RUNS = {
    "whole rows": (3, "uneven-3", [[]]),
    "bcast": (2, None, [["scheme.name=bcast"]]),
    "copies": (4, "uneven-2", [COPIES, [*COPIES, "scheme.sparse=false"]]),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_that_of_one_process(verified, folder, name):
    """All networks on three ranks; half of them by each of the other schemes."""
    nranks, partition, turns = RUNS[name]
    start, step = {"whole rows": (0, 1), "bcast": (0, 2), "copies": (1, 2)}[name]
    cases = []
    for i, (kind, settings) in enumerate(NETWORKS[start::step]):
        own = [s if s != "own" else f"model.name={folder}/own.py:build" for s in settings]
        given = ["train.epochs=3", *own, *turns[i % len(turns)]]
        cases.append((folder / f"{kind}.graph", partition, given))
    verified(nranks, cases, *CHECKS)


# Gradients of 0 in exact arithmetic, of which Adam without an eps would make full steps.
EQUAL = ["train.epochs=4", "train.eps=1e-15", "train.lr=0.05", "model.hidden=[6]"]
OF_EQUAL = [
    ["model.name=transformer", "model.heads=2", "model.norm=batch"],
    ["model.name=gat", "model.heads=2", "model.norm=layer", "model.train_features=true"],
    ["model.name=gatv2", "model.heads=2", "model.arc_features=true", "train.optimizer=adamw"],
    ["model.name=gatedgcn", "model.norm=batch", "model.train_features=true", "kernel=scipy"],
]


def test_rounding_errors_of_a_gradient_of_0_are_0(verified, folder):
    cases = [(folder / "equal.graph", "uneven-3", [*EQUAL, *settings]) for settings in OF_EQUAL]
    verified(3, cases, "loss curve", "final weights", "logits")
