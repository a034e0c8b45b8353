"""Features that are kept as a sparse matrix give what dense ones do, on any number of ranks."""

import numpy as np
import pytest
from stored_graphs import graph_of, store
from words import sets

from gcnmpi.run.record import read_run
from partition.graph.store import open_graph

N, WIDTH, CLASSES = 90, 150, 4
DROPPED = "model.input_dropout=0.4"
CASES = {
    "gcn": [DROPPED, "model.dropout=0.3"],
    "normalised": ["graph.feature_norm=row", "model.residual=linear"],
    # Without biases: in front of a batch norm their gradients are rounding, which Adam makes large.
    "sage": ["model.name=sage", "model.norm=batch", "model.bias=false", DROPPED],
    "gat": ["model.name=gat", "model.heads=2", DROPPED],
    "scipy": ["kernel=scipy", DROPPED],
    "gin": ["model.name=gin"],  # which adds features and their aggregate: they are dense then
    "batches": ["graph.feature_norm=row", DROPPED, "train.batches=labor,20,3,3"],
    "bcast": ["scheme.name=bcast", DROPPED],
    "replicated": ["scheme.name=replicated", DROPPED],
    "dense copies": ["scheme.name=replicated", "scheme.sparse=false"],
    "summa": ["scheme.name=summa", DROPPED],
}
# Rows of others that ranks keep for batches.
CASES["rows kept"] = [*CASES["batches"], "train.cache_mb=1"]


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


@pytest.fixture(scope="module")
def results(folder, gcnmpi_lines):
    """``results(kind of features, ranks)`` → of every case, losses, weights and logits."""

    def run(kind, ranks):
        lines = []
        for case, settings in CASES.items():
            parts = ranks // 2 if "scheme.name=replicated" in settings else ranks
            common = [folder / f"{kind}.graph", *(["--partition", f"rp-{parts}"] * (parts > 1))]
            out, settings = folder / f"{ranks} {kind} {case}", ["dtype=float64", *settings]
            words = [*sets(*settings, "train.epochs=3"), "--quiet", "--out", out]
            lines.append(["train", *common, *words, "--save-weights", out.with_suffix(".npz")])
            words = sets(*(s for s in settings if not s.startswith(("model", "graph"))))
            words += ["--weights", out.with_suffix(".npz"), "--out", out.with_suffix(".npy")]
            lines.append(["infer", *common, *words])
        assert gcnmpi_lines(ranks, lines) == [[None] * ranks] * len(lines)
        return {case: read(folder / f"{ranks} {kind} {case}") for case in CASES}

    return run


def read(out):
    """Losses and accuracies, weights, and logits of a run."""
    with np.load(out.with_suffix(".npz")) as weights:
        losses = [[epoch["loss"], epoch["train_accuracy"]] for epoch in read_run(out).epochs]
        return losses, dict(weights.items()), np.load(out.with_suffix(".npy"))


def test_losses_weights_and_logits_are_those_of_dense_features(results, verified, folder):
    dense, sparse = results("dense", 2), results("sparse", 4)
    for case, (losses, weights, logits) in sparse.items():
        expected, others, theirs = dense[case]
        np.testing.assert_allclose(losses, expected, rtol=1e-10, err_msg=case)
        np.testing.assert_allclose(logits, theirs, rtol=1e-10, atol=1e-10, err_msg=case)
        for name, array in others.items():
            np.testing.assert_allclose(weights[name], array, rtol=1e-8, atol=1e-10, err_msg=name)
    verified(2, [(folder / "sparse.graph", "rp-2", [*CASES["sage"], "train.epochs=4"])])
