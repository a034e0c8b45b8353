"""Features that are kept as a sparse matrix give what dense ones do, on any number of ranks."""

import numpy as np
import pytest
from stored_graphs import graph_of, store
from words import line

from partition.graph.store import open_graph

N, WIDTH, CLASSES = 90, 150, 4
DROPPED = "model.input_dropout=0.4"
CASES = {
    "gcn": f"{DROPPED} model.dropout=0.3",
    "normalised": "graph.feature_norm=row model.residual=linear",
    "sage": f"model.name=sage model.norm=batch {DROPPED}",
    "gat": f"model.name=gat model.heads=2 {DROPPED}",
    "scipy": f"kernel=scipy {DROPPED}",
    "gin": "model.name=gin",  # which adds features and their aggregate: they are dense then
    "bcast": f"scheme.name=bcast {DROPPED}",
    "replicated": f"scheme.name=replicated {DROPPED}",
    "dense copies": "scheme.name=replicated scheme.sparse=false",
    "summa": f"scheme.name=summa {DROPPED}",
}
BATCHES = (
    f"dtype=float64 train.epochs=3 graph.feature_norm=row {DROPPED} train.batches=labor,20,3,3"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same graph twice; directed, with isolated vertices and vertices without features."""
    root, random = tmp_path_factory.mktemp("sparse"), np.random.default_rng(4)
    dense = random.random((N, N)) < 0.06
    dense[-2:] = dense[:, -2:] = False
    features = np.where(random.random((N, WIDTH)) < 0.03, random.uniform(0.1, 2, (N, WIDTH)), 0)
    features[5:8] = 0
    labels = random.integers(0, CLASSES, N).astype(np.int32)
    graph = graph_of(dense, features=features.astype(np.float32), labels=labels)
    for form in ("sparse", "dense"):
        path = store(root / f"{form}.graph", graph, 2, 4, keep_features=form)
        assert bool(open_graph(path).manifest.feature_entries) == (form == "sparse")
    return root


def test_runs_are_those_of_one_process(verified, folder):
    cases = []
    for settings in CASES.values():
        parts = "rp-2" if "replicated" in settings else None if "name=summa" in settings else "rp-4"
        given = [*settings.split(), "train.epochs=3"]
        cases.append((folder / "sparse.graph", parts, given))
    verified(4, cases, "loss curve", "final weights", "logits")


def test_batches_and_inference_are_those_of_dense_features(trained, succeed, folder, tmp_path):
    """Also where ranks keep rows of others."""
    own = BATCHES.split()
    cases = {
        (form, len(more)): (folder / f"{form}.graph", "rp-4", [*own, *more])
        for form in ("dense", "sparse")
        for more in ((), ("train.cache_mb=1",))
    }
    losses = [record["losses"] for record in trained(4, cases).values()]
    for found in losses[1:]:
        np.testing.assert_allclose(found, losses[0], rtol=1e-10)
    placed, weights = {"partition": "rp-2"}, tmp_path / "w.npz"
    outs = {form: tmp_path / f"{form}.npy" for form in ("dense", "sparse")}
    train = {"settings": own, "out": tmp_path / "run", "save_weights": weights}
    infer = {"settings": ["dtype=float64"], "weights": weights}
    succeed(
        2,
        line("train", folder / "sparse.graph", **train, **placed),
        *(line("infer", folder / f"{f}.graph", out=o, **infer, **placed) for f, o in outs.items()),
    )
    logits = [np.load(out) for out in outs.values()]
    np.testing.assert_allclose(*logits, rtol=1e-10, atol=1e-10)
