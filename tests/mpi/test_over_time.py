"""Networks over time, of one's own, have the curve of the oracle on every scheme that runs them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stored_graphs import store, with_uneven_parts
from words import sets

from partition.graph.graph import ArcData
from partition.importing.synthetic import rmat

FILE = Path(__file__).parents[1] / "over_time.py"
COMMON = "train.epochs=4 train.lr=0.02 train.eval_every=2"
NETWORKS = {
    "rolled_gcn": "model.hidden=[6] model.norm=batch model.dropout=0.3",
    "rolled_given": "model.hidden=6,5 model.residual=linear model.input_dropout=0.2",
    "rolled_mgn": "model.hidden=6,6 model.dropout=0.2",
    "rolled_mgn again": "model.hidden=6,6 model.dropout=0.2 train.memory=least",
    "frames_gru": "model.hidden=6,5 model.filter_size=3 model.dropout=0.3",
    "frames_dcrnn": "model.hidden=[6] model.filter_size=3",
    "rolled_dcrnn": "model.hidden=[4] graph.direction=out",
    "frames_stgcn": "model.hidden=[4] model.kernel_size=2 model.norm=batch",
}
COPIES = ["scheme.name=replicated", "scheme.replication=2"]
SCHEMES = {2: [[], ["scheme.name=bcast"], COPIES], 3: [[]]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directed graph with weights, features of arcs and vertices without neighbours."""
    graph = rmat(6, 260, seed=3, features=6, classes=3)
    random = np.random.default_rng(1)
    arcs = ArcData(random.standard_normal((graph.nnz, 2)).astype(np.float32))
    graph = replace(graph, arc_data=arcs, weights=random.uniform(0.5, 2, graph.nnz))
    return with_uneven_parts(store(tmp_path_factory.mktemp("time") / "g.graph", graph), (1, 2, 3))


def settings_of(network):
    own = NETWORKS[network].split()
    return [*COMMON.split(), f"model.name={FILE}:{network.split()[0]}", *own]


@pytest.mark.parametrize("nranks", SCHEMES)
def test_every_network_has_one_curve(verified, folder, nranks):
    cases = []
    for i, network in enumerate(NETWORKS):
        scheme = SCHEMES[nranks][i % len(SCHEMES[nranks])]
        parts = f"uneven-{1 if scheme is COPIES else nranks}"
        cases.append((folder, parts, [*settings_of(network), *scheme]))
    verified(nranks, cases, "loss curve", "first gradient", "logits")


def test_what_cannot_be_is_one_line(hear_mistakes, folder):
    told = {
        "frames_gru": ("takes columns apart", "scheme.name=summa"),
        "rolled_gcn": ("cuts weights by layers", "scheme.name=tensor3d"),
    }
    words = ["train", folder, "--partition", "uneven-2"]
    lines = [
        ([*words, *sets(*settings_of(name), more)], says) for name, (says, more) in told.items()
    ]
    hear_mistakes(2, lines)
