"""Every network: its file of weights names it, and infer computes its logits on other ranks."""

import numpy as np
import pytest
from stored_graphs import graph_of, store
from words import sets

from gcnmpi.options.config import load_config
from gcnmpi.proof import oracle
from gcnmpi.run.record import read_run
from gcnmpi.run.weights import as_trained, read_weights

N, CLASSES = 61, 3
SETTINGS = {
    "gcn": "norm=batch residual=linear activation=prelu",
    "sage": "norm=layer aggregation=max normalize_output=true",
    "gin": "norm=batch train_eps=true jk=cat",
    "gin-fixed": "eps=0.25 activation=gelu",
    "gat": "heads=2 out_heads=3 attention_dropout=0.5 activation=elu norm=l2",
    "gatv2": "heads=3 concat=false linear_after=true",
    "gcnii": "layers=3 norm=batch",
    "appnp": "hops=3",
    "sgc": "hops=3",
    "sign": "hops=2 norm=batch",
    "mlp": "residual=linear jk=sum",
}


@pytest.fixture(scope="module")
def graph():
    """Directed, weighted, with isolated vertices and a loop."""
    random = np.random.default_rng(8)
    dense = random.random((N, N)) < 0.07
    dense[-3:] = dense[:, -3:] = False
    dense[4, 4] = True
    return graph_of(
        np.where(dense, random.uniform(0.1, 2.0, (N, N)), 0),
        features=random.standard_normal((N, 5)).astype(np.float32),
        labels=(np.arange(N) % CLASSES).astype(np.int32),
    )


def settings_of(name):
    """The settings with which a case is trained."""
    hidden = [] if name == "sgc" else ["hidden=6", "dropout=0.3"]
    settings = [f"name={name.split('-')[0]}", *hidden, *SETTINGS[name].split()]
    return ["dtype=float64", "train.epochs=3", *(f"model.{each}" for each in settings)]


@pytest.fixture(scope="module")
def results(graph, gcnmpi_lines, tmp_path_factory):
    """Trained on 2 ranks, inferred on 3, without a word on the network."""
    root = tmp_path_factory.mktemp("weights")
    path = store(root / "g.graph", graph, 2, 3)
    train = [
        ["train", path, "--partition", "rp-2", "--quiet", "--out", root / name,
         "--save-weights", root / f"{name}.npz", *sets(*settings_of(name))]
        for name in SETTINGS
    ]  # fmt: skip
    infer = [
        ["infer", path, "--partition", "rp-3", "--weights", root / f"{name}.npz",
         "--out", root / f"{name}.npy", "--set", "dtype=float64"]
        for name in SETTINGS
    ]  # fmt: skip
    trained, inferred = gcnmpi_lines(2, train), gcnmpi_lines(3, infer)
    mistakes = zip(trained, inferred, strict=True)
    return root, dict(zip(SETTINGS, mistakes, strict=True))


@pytest.mark.parametrize("name", list(SETTINGS))
def test_logits_of_other_ranks_are_those_of_the_oracle(name, graph, results):
    root, mistakes = results
    assert mistakes[name] == ([None] * 2, [None] * 3)
    found = read_weights(root / f"{name}.npz", load_config())
    config = as_trained(found, load_config(None, ["dtype=float64"]), (), "in")
    assert config.model.name == name.split("-")[0]
    expected = oracle.Problem(graph, "in", config).logits(found.parameters)
    logits = np.load(root / f"{name}.npy")
    np.testing.assert_allclose(logits, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())
    # And it is the network that was trained.
    losses = [epoch["loss"] for epoch in read_run(root / name).epochs]
    curve = oracle.train(graph, "in", load_config(None, settings_of(name)), 3)
    np.testing.assert_allclose(losses, curve.losses, rtol=1e-10)
