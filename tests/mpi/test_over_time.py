"""Networks over time against the oracle; rollouts whose states are remade."""

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stored_graphs import store, with_uneven_parts
from words import sets

from gcnmpi.options.config import load_config
from gcnmpi.proof import oracle
from partition.graph.arc_data import ArcData
from partition.graph.store import open_graph
from partition.importing.synthetic import rmat

FILE = Path(__file__).parents[1] / "over_time.py"
EPOCHS = 4
COMMON = ["dtype=float64", f"train.epochs={EPOCHS}", "train.lr=0.02", "train.eval_every=2"]
NETWORKS = {
    "rolled_gcn": ["model.hidden=[6]", "model.norm=batch", "model.dropout=0.3"],
    "rolled_given": ["model.hidden=6,5", "model.residual=linear", "model.input_dropout=0.2"],
    "rolled_mgn": ["model.hidden=6,6", "model.dropout=0.2"],
    "frames_gru": ["model.hidden=6,5", "model.filter_size=3", "model.dropout=0.3"],
    "frames_dcrnn": ["model.hidden=[6]", "model.filter_size=3"],
    "rolled_dcrnn": ["model.hidden=[4]", "graph.direction=out"],
    "frames_stgcn": ["model.hidden=[4]", "model.kernel_size=2", "model.norm=batch"],
}
SCHEMES = {
    2: [[], ["scheme.name=bcast"], ["scheme.name=replicated", "scheme.replication=2"]],
    3: [[]],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directed graph with weights, features of arcs and vertices without neighbours."""
    graph = rmat(6, 260, seed=3, features=6, classes=3)
    random = np.random.default_rng(1)
    arcs = ArcData(random.standard_normal((graph.nnz, 2)).astype(np.float32))
    graph = replace(graph, arc_data=arcs, weights=random.uniform(0.5, 2, graph.nnz))
    path = tmp_path_factory.mktemp("time") / "g.graph"
    return with_uneven_parts(store(path, graph), (1, 2, 3, 4))


def settings_of(network):
    return [*COMMON, f"model.name={FILE}:{network}", *NETWORKS[network]]


@functools.cache
def expected(path, network):
    config = load_config(None, settings_of(network))
    direction = "out" if config.graph.direction == "out" else "in"
    return oracle.train(open_graph(path).graph, direction, config, EPOCHS).losses


@pytest.mark.parametrize("nranks", SCHEMES)
def test_every_network_has_one_curve(trained, folder, nranks):
    cases = {}
    for i, network in enumerate(NETWORKS):
        scheme = SCHEMES[nranks][i % len(SCHEMES[nranks])]
        parts = f"uneven-{nranks // (2 if 'scheme.replication=2' in scheme else 1)}"
        more = ["graph.direction=in"] if network != "rolled_dcrnn" else []
        cases[network] = (folder, parts, [*settings_of(network), *scheme, *more])
    *where, settings = cases["rolled_mgn"]
    cases["again"] = (*where, [*settings, "train.memory=least"])
    for name, record in trained(nranks, cases).items():
        losses = expected(folder, "rolled_mgn" if name == "again" else name)
        np.testing.assert_allclose(record["losses"], losses, rtol=1e-10, err_msg=name)
        assert losses[-1] < losses[0], name
        for counted, predicted in record["traffic"]:
            assert counted == predicted, name


def test_what_cannot_be_is_one_line(hear_mistakes, folder):
    words = ["train", folder]
    told = {
        "frames_gru": ("takes columns apart", ["scheme.name=summa"]),
        "rolled_gcn": ("cuts weights by layers", ["scheme.name=tensor3d"]),
        "frames_dcrnn": ("M transposed", ["train.batches=neighbor,8,2,2"]),
        "frames_stgcn": ("reads at least 5 frames", ["model.kernel_size=3"]),
    }
    lines = [
        ([*words, "--partition", "uneven-2", *sets(*settings_of(name), *more)], (says,))
        for name, (says, more) in told.items()
    ]
    hear_mistakes(2, lines)
