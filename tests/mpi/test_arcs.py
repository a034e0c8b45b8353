"""Networks with rows of arcs against the oracle, on the schemes that bring whole rows together."""

from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest
from stored_graphs import store, with_uneven_parts

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
    rng = np.random.default_rng(8)
    target = np.append(np.arange(n), [1, 4])
    source = np.append(rng.integers(0, n, n), [2, 7])
    source, target = np.stack((source, target))[:, np.lexsort((target, source))]
    return Graph(
        np.searchsorted(source, np.arange(n + 1)).astype(np.int64),
        target.astype(np.int32),
        features=np.ones((n, 3), np.float32),
        labels=(np.arange(n) % 3).astype(np.int32),
        arc_data=ArcData(rng.standard_normal((len(source), 2)).astype(np.float32)),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arcs")
    graphs = {"parallel": parallel(47, 200), "edges": undirected(), "arcless": parallel(9, 0)}
    graphs["equal"] = equal_neighbours()
    for name, graph in graphs.items():
        with_uneven_parts(store(folder / f"{name}.graph", graph), (1, 2, 3, 4), mixed=False)
    (folder / "own.py").write_text(dedent(OWN), "utf-8")
    return folder


GINE = ["model.name=gine", "model.hidden=[6]"]
ATTENTION = ["model.hidden=[6]", "model.heads=2", "model.arc_features=true"]
PNA = ["model.name=pna", "model.hidden=[6]", "model.linear_after=true"]
NETWORKS = [
    ("parallel", [*GINE, "model.dropout=0.4", "model.train_eps=true"]),
    ("parallel", [*GINE, "graph.direction=out", "model.norm=batch", "model.eps=0.3"]),
    ("edges", [*GINE, "kernel=scipy", "model.input_dropout=0.3", "train.eval_every=2"]),
    ("edges", [*GINE, "model.norm=layer", "model.residual=linear", "model.jk=cat"]),
    ("arcless", GINE),
    ("parallel", [*ATTENTION, "model.name=gat", "model.attention_dropout=0.4"]),
    ("parallel", [*ATTENTION, "model.name=gatv2", "model.concat=false", "model.norm=layer"]),
    ("parallel", [*ATTENTION, "model.name=transformer", "model.beta=true", "model.dropout=0.3"]),
    ("edges", ["model.name=gatedgcn", "model.hidden=[6]", "model.arc_features=true"]),
    ("parallel", [*PNA, "model.scalers=identity+attenuation+linear", "model.arc_features=true"]),
    ("edges", [*PNA, "model.towers=3", "model.pre_layers=2", "model.aggregators=mean+std"]),
    ("arcless", PNA),
    ("parallel", ["model.name=mgn", "model.hidden=6,6", "model.dropout=0.2"]),
    ("arcless", ["model.name=mgn", "model.hidden=[6]", "model.reduction=mean"]),
    ("parallel", ["model.name=sage", "model.hidden=[6]", "model.aggregation=mean+max+min"]),
]
OWN_NETWORK = ["parallel", "edges", "arcless"]
BCAST = ["scheme.name=bcast"]
COPIES = ["scheme.name=replicated", "scheme.replication=2"]
# Of a number of ranks, the schemes that the networks take in turn.
SCHEMES = {
    1: [[[]]],
    2: [[[], BCAST], [[], COPIES]],
    3: [[[]], [[], BCAST]],
    4: [[[]], [COPIES], [[*COPIES, "scheme.sparse=false"]]],
}


@pytest.mark.parametrize("nranks", list(SCHEMES))
def test_a_run_is_that_of_one_process(verified, folder, nranks):
    cases = []
    networks = [*NETWORKS, *((kind, [f"model.name={folder}/own.py:build"]) for kind in OWN_NETWORK)]
    turns = SCHEMES[nranks]
    for i, (kind, settings) in enumerate(networks):
        for scheme in turns[i % len(turns)]:
            copies = 2 if "scheme.replication=2" in scheme else 1
            partition = None if "scheme.name=bcast" in scheme else f"uneven-{nranks // copies}"
            given = ["train.epochs=3", *settings, *scheme]
            cases.append((folder / f"{kind}.graph", partition, given))
    verified(nranks, cases, *CHECKS)


# The other networks with rows of arcs, each once.
OTHERS = [
    ("parallel", ["model.name=gat", "model.heads=2", "model.attention_dropout=0.4"]),
    ("edges", ["model.name=gatv2", "model.heads=2", "model.concat=false"]),
    ("parallel", ["model.name=transformer", "model.beta=true", "model.attention_dropout=0.4"]),
    ("edges", ["model.name=gatedgcn", "model.norm=batch", "model.residual=linear"]),
    ("parallel", ["model.name=pna", "model.hidden=[6]"]),
]  # fmt: skip
WITHOUT_FEATURES = [
    ("parallel", ["model.name=mgn", "model.hidden=[6,6]", "model.dropout=0.3"]),
    ("parallel", ["model.name=sage", "model.aggregation=mean+max+std"]),
    ("edges", ["model.name=pna", "model.scalers=attenuation+linear"]),
    ("edges", ["model.name=gatedgcn"]),
]


def test_every_network_is_that_of_one_process(verified, folder):
    """Keeping as little as it can, and on a scheme in turn."""
    given = [(kind, [*settings, "model.arc_features=true"]) for kind, settings in OTHERS]
    cases = []
    for i, (kind, settings) in enumerate((*given, *WITHOUT_FEATURES)):
        path, few = folder / f"{kind}.graph", ["train.epochs=3", *settings]
        cases.append((path, "uneven-3", [*few, "train.memory=least"]))
        cases.append(
            (path, None, [*few, "scheme.name=bcast"]) if i % 2 else (path, "uneven-3", few)
        )
    verified(3, cases, *CHECKS)


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
