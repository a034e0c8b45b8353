"""Features that are kept as a sparse matrix give what dense ones do, on any number of ranks."""

import functools
import json

import numpy as np
import pytest

from partition.graph.graph import Graph
from partition.graph.store import write_graph
from partition.pipeline.adding import add_partition

N, WIDTH, CLASSES = 90, 150, 4
RANKS = range(1, 8)
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
    source, target = np.nonzero(dense)
    features = np.where(random.random((N, WIDTH)) < 0.03, random.uniform(0.1, 2, (N, WIDTH)), 0)
    features[5:8] = 0
    graph = Graph(
        np.searchsorted(source, np.arange(N + 1)).astype(np.int64),
        target.astype(np.int32),
        None,
        features.astype(np.float32),
        random.integers(0, CLASSES, N).astype(np.int32),
    )
    for form in ("sparse", "dense"):
        written = write_graph(root / f"{form}.graph", graph, source={}, keep_features=form)
        assert bool(written.feature_entries) == (form == "sparse")
    for name in ("sparse", "dense"):
        for k in RANKS[1:]:
            add_partition(root / f"{name}.graph", "rp", k)
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
            settings = ["dtype=float64", *CASES[case]]
            words = [word for setting in settings for word in ("--set", setting)]
            lines.append(["train", *common, *words, "--set", "train.epochs=3", "--quiet",
                          "--set", "train.eval_every=1", "--out", out,
                          "--save-weights", out.with_suffix(".npz")])  # fmt: skip
            of_scheme = [s for s in settings if not s.startswith(("model", "graph"))]
            words = [word for setting in of_scheme for word in ("--set", setting)]
            lines.append(["infer", *common, *words, "--weights", out.with_suffix(".npz"),
                          "--out", out.with_suffix(".npy")])  # fmt: skip
        complaints = gcnmpi_lines(ranks, lines, timeout=240)
        assert complaints == [[None] * ranks] * len(lines)
        return {case: read(out) for case, out in outs.items()}

    return run


def read(out):
    """Losses and accuracies, weights, and logits of a run."""
    records = [json.loads(line) for line in (out / "run.jsonl").read_text().splitlines()]
    epochs = [record for record in records if record["event"] == "epoch"]
    with np.load(out.with_suffix(".npz")) as weights:
        return (
            [[epoch["loss"], epoch["train_accuracy"]] for epoch in epochs],
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
         *(word for setting in CASES[case] for word in ("--set", setting)),
         "--set", "train.epochs=4"]
        for case in ("gcn", "sage", "gat")
    ]  # fmt: skip
    assert gcnmpi_lines(ranks, lines, timeout=120) == [[None] * ranks] * len(lines)
