"""Every network: its file of weights names it, and infer computes its logits on other ranks."""

import numpy as np
import pytest
from axes import NETWORKS, settings_of
from words import sets

from gcnmpi.options.config import load_config
from gcnmpi.proof import oracle
from gcnmpi.run.weights import as_trained, read_weights
from partition.graph.store import open_graph

NAMES = [*NETWORKS, "gcn-jk-cat", "gin-eps", "gat-mean", "sage-sum"]


@pytest.fixture(scope="module")
def results(schemes_folder, gcnmpi_lines, tmp_path_factory):
    """Trained on 2 ranks, inferred on 3, without a word on the network."""
    root, path = tmp_path_factory.mktemp("weights"), schemes_folder / "directed.graph"
    train, infer = [], []
    for name in NAMES:
        file, own = (
            root / f"{name}.npz",
            sets("dtype=float64", "train.epochs=2", *settings_of(name)),
        )
        train.append(["train", path, "--partition", "uneven-2", "--quiet", "--out", root / name,
                      "--save-weights", file, *own])  # fmt: skip
        infer.append(["infer", path, "--partition", "uneven-3", "--weights", file,
                      "--out", root / f"{name}.npy", "--set", "dtype=float64"])  # fmt: skip
    for ranks, lines in ((2, train), (3, infer)):
        assert gcnmpi_lines(ranks, lines) == [[None] * ranks] * len(lines)
    return root


@pytest.mark.parametrize("name", NAMES)
def test_logits_of_other_ranks_are_those_of_the_oracle(name, schemes_folder, results):
    found = read_weights(results / f"{name}.npz", load_config())
    config = as_trained(found, load_config(None, ["dtype=float64"]), (), "in")
    assert config.model.name == name.split("-")[0]
    graph = open_graph(schemes_folder / "directed.graph").graph
    expected = oracle.Problem(graph, "in", config).logits(found.parameters)
    logits = np.load(results / f"{name}.npy")
    np.testing.assert_allclose(logits, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())
