"""Features that are kept as a sparse matrix give what dense ones do, on any number of ranks."""

import functools

import numpy as np
import pytest
from stored_graphs import graph_of, store
from words import sets

from gcnmpi.run.record import read_run
from partition.graph.store import open_graph

N, WIDTH, CLASSES = 90, 150, 4
RANKS = (1, 2, 3, 4, 6, 7)
CASES = {
    "gcn": ["model.input_dropout=0.4", "model.dropout=0.3"],
    "normalised": ["graph.feature_norm=row", "model.residual=linear"],
    # Without biases: in front of a batch norm their gradients are rounding, which Adam makes large.
    "sage": ["model.name=sage", "model.norm=batch", "model.bias=false", "model.input_dropout=0.2"],
    "gat": ["model.name=gat", "model.heads=2", "model.input_dropout=0.5"],
    "scipy": ["kernel=scipy", "model.input_dropout=0.4"],
    "gin": ["model.name=gin"],  # which adds features and their aggregate: they are dense then
    "batches": ["graph.feature_norm=row", "model.input_dropout=0.4", "train.batches=labor,20,3,3"],
    "bcast": ["scheme.name=bcast", "model.input_dropout=0.4"],
    "replicated": ["scheme.name=replicated", "model.input_dropout=0.4"],
    "dense copies": ["scheme.name=replicated", "scheme.sparse=false"],
    "summa": ["scheme.name=summa", "model.input_dropout=0.4"],
}
# Rows of others that ranks keep for batches.
CASES["rows kept"] = [*CASES["batches"], "train.cache_mb=1"]


def parts(case, ranks):
    """Parts of the partition that a case takes; 0: it is not run."""
    if "scheme.name=replicated" in CASES[case]:
        return 0 if ranks % 2 else ranks // 2
    return ranks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same graph twice; directed, with isolated vertices and vertices without features."""
    root = tmp_path_factory.mktemp("sparse")
    random = np.random.default_rng(4)
    dense = random.random((N, N)) < 0.06
    dense[-2:] = dense[:, -2:] = False
    features = np.where(random.random((N, WIDTH)) < 0.03, random.uniform(0.1, 2, (N, WIDTH)), 0)
    features[5:8] = 0
    labels = random.integers(0, CLASSES, N).astype(np.int32)
    graph = graph_of(dense, features=features.astype(np.float32), labels=labels)
    for form in ("sparse", "dense"):
        path = store(root / f"{form}.graph", graph, *RANKS[1:], keep_features=form)
        assert bool(open_graph(path).manifest.feature_entries) == (form == "sparse")
    return root


@pytest.fixture(scope="module")
def results(folder, gcnmpi_lines):
    """``results(kind of features, ranks)`` → of every case, losses, weights and logits."""

    @functools.cache
    def run(kind, ranks):
        lines, outs = [], {}
        for case in CASES:
            if not (k := parts(case, ranks)):
                continue
            outs[case] = out = folder / f"{ranks} {kind} {case}"
            common = [folder / f"{kind}.graph", *(["--partition", f"rp-{k}"] if k > 1 else [])]
            settings, weights = ["dtype=float64", *CASES[case]], out.with_suffix(".npz")
            words = sets(*settings, "train.epochs=3", "train.eval_every=1")
            lines.append(["train", *common, *words, "--quiet", "--out", out,
                          "--save-weights", weights])  # fmt: skip
            words = sets(*(s for s in settings if not s.startswith(("model", "graph"))))
            lines.append(["infer", *common, *words, "--weights", weights,
                          "--out", out.with_suffix(".npy")])  # fmt: skip
        complaints = gcnmpi_lines(ranks, lines, timeout=240)
        assert complaints == [[None] * ranks] * len(lines)
        return {case: read(out) for case, out in outs.items()}

    return run


def read(out):
    """Losses and accuracies, weights, and logits of a run."""
    with np.load(out.with_suffix(".npz")) as weights:
        return (
            [[epoch["loss"], epoch["train_accuracy"]] for epoch in read_run(out).epochs],
            dict(weights.items()),
            np.load(out.with_suffix(".npy")),
        )


@pytest.mark.parametrize("ranks", RANKS)
def test_losses_weights_and_logits_are_those_of_dense_features(results, ranks):
    dense, sparse = results("dense", 2), results("sparse", ranks)
    for case, (losses, weights, logits) in sparse.items():
        expected, others, theirs = dense[case]
        np.testing.assert_allclose(losses, expected, rtol=1e-10, err_msg=case)
        np.testing.assert_allclose(logits, theirs, rtol=1e-10, atol=1e-10, err_msg=case)
        for name, array in others.items():
            np.testing.assert_allclose(weights[name], array, rtol=1e-8, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("ranks", [2])
def test_a_run_verifies_itself(folder, gcnmpi_lines, ranks):
    lines = [
        ["verify", folder / "sparse.graph", "--partition", f"rp-{ranks}",
         *sets(*CASES[case], "train.epochs=4")]
        for case in ("gcn", "sage", "gat")
    ]  # fmt: skip
    assert gcnmpi_lines(ranks, lines, timeout=120) == [[None] * ranks] * len(lines)
