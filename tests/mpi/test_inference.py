"""``gcnmpi infer``: exact, in the original vertex order, for any number of ranks."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from stored_graphs import small_graph, store
from words import line

import gcnmpi
from gcnmpi.run.record import read_run
from partition.graph.aggregation import aggregation_matrix

WIDTHS, FLOAT64, GRAPH = (7, 6, 5, 5), "dtype=float64", small_graph("directed")
RANDOM = np.random.default_rng(6)
# Weights of three GCNConv layers as PyTorch Geometric's ``GCN`` names them.
STATE = {}
for k, (d_in, d_out) in enumerate(pairwise(WIDTHS)):
    STATE[f"convs.{k}.bias"] = RANDOM.standard_normal(d_out)
    STATE[f"convs.{k}.lin.weight"] = RANDOM.standard_normal((d_out, d_in))
# Files of weights, further settings and options.
CASES = {
    "logits": ("w", FLOAT64, {}),
    "layer 1": ("w", FLOAT64, {"layer": 1}),
    "layer 3": ("w", FLOAT64, {"layer": 3}),
    "classes": ("w", FLOAT64, {"classes": True}),
    "float32": ("w", "kernel=auto", {}),
    "other names": ("conv", "kernel=scipy", {}),
    "no bias": ("no-bias", f"{FLOAT64} model.dropout=0.5", {}),
    "out row": ("w", f"{FLOAT64} graph.direction=out graph.normalize=row", {}),
    "combine": ("w", f"{FLOAT64} model.order=combine", {}),
}


def forward(graph, state, depth, direction="in", normalize="sym"):
    """Output of layer ``depth``, serially; ReLU behind all but the last layer."""
    matrix = aggregation_matrix(graph, direction, True, normalize)
    h, last = np.asarray(graph.features, np.float64), sum("weight" in name for name in state)
    for k in range(depth):
        h = matrix @ h @ state[f"convs.{k}.lin.weight"].T + state.get(f"convs.{k}.bias", 0)
        h = np.maximum(h, 0) if k + 1 < last else h
    return h


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return store(tmp_path_factory.mktemp("inference") / "g.graph", GRAPH, 3)


@pytest.mark.quick
def test_results_equal_scipy_in_the_original_order(succeed, path, tmp_path):
    weights = {name: array for name, array in STATE.items() if "weight" in name}
    conv = {f"conv{int(name[6]) + 1}{name[7:]}": a.astype(np.float32) for name, a in STATE.items()}
    for name, arrays in {"w": STATE, "no-bias": weights, "conv": conv}.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
    out = tmp_path / "out"
    lines = [
        line("infer", path, settings=own.split(), partition="rp-3", out=out / f"{name}.npy",
             weights=tmp_path / f"{of}.npz", **options)
        for name, (of, own, options) in CASES.items()
    ]  # fmt: skip
    succeed(3, *lines)
    assert len(list(out.iterdir())) == len(lines)  # no temporary files
    results = {name: np.load(out / f"{name}.npy") for name in CASES}
    logits = forward(GRAPH, STATE, 3)
    every = dict.fromkeys(("logits", "layer 3", "combine", "float32", "other names"), logits)
    every |= {"layer 1": forward(GRAPH, STATE, 1), "no bias": forward(GRAPH, weights, 3)}
    every["out row"] = forward(GRAPH, STATE, 3, "out", "row")
    for name, expected in every.items():
        exact = FLOAT64 in CASES[name][1]
        assert results[name].dtype == (np.float64 if exact else np.float32)
        bound = 1e-10 if exact else 1e-4
        np.testing.assert_allclose(results[name], expected, bound, bound, err_msg=name)
    np.testing.assert_array_equal(results["classes"], logits.argmax(axis=1))


def test_trained_weights_go_to_inference_and_give_the_recorded_accuracy(
    succeed, hear_mistakes, path, tmp_path
):
    weights = tmp_path / "made" / "w.npz"  # the folder is made
    own = ("graph.normalize=row", "graph.self_loops=false", "graph.feature_norm=row",
           "graph.direction=out")  # fmt: skip

    def go(verb, *settings, **options):
        return line(verb, path, settings=(FLOAT64, *settings), partition="rp-3", **options)

    infer = {"weights": weights, "out": tmp_path / "c.npy", "classes": True}
    few, run = ("train.epochs=30", "model.hidden=[8]"), tmp_path / "run"
    train = go("train", *own, *few, quiet=True, out=run, save_weights=weights)
    # The network and its matrix come from the file.
    succeed(3, train, go("infer", **infer), go("infer", *own, **infer))
    told = ("graph.normalize", '"row"')
    hear_mistakes(3, [(go("infer", "graph.normalize=sym", **infer), told)])
    with np.load(weights) as arrays:
        assert {name: array.shape for name, array in arrays.items()} == {
            "convs.0.lin.weight": (8, 7), "convs.0.bias": (8,),
            "convs.1.lin.weight": (5, 8), "convs.1.bias": (5,),
        }  # fmt: skip
    classes, last = np.load(tmp_path / "c.npy"), read_run(run).epochs[-1]
    for name, mask in GRAPH.masks.items():
        known = mask & (GRAPH.labels >= 0)
        accuracy = np.mean(classes[known] == GRAPH.labels[known])
        assert last[f"{name}_accuracy"] == pytest.approx(accuracy, abs=1e-15)


def test_names_of_classes_and_vertices(succeed, tmp_path):
    """Classes are matched by their names, wherever they stand; rows have their ids."""
    names, ids = np.array(["cat", "dog", "fox", "hen"]), np.arange(GRAPH.n)[::-1] * 3
    graph = replace(GRAPH, labels=(np.arange(GRAPH.n) % 4).astype(np.int32), ids=ids)
    orders = {"same": names, "turned": np.roll(names, 1), "other": np.array([*names[1:], "owl"])}
    for name, classes in orders.items():
        places = np.array([3, 0, 1, 2]) if name == "other" else classes.argsort()
        labels = places[graph.labels].astype(np.int32)
        named = replace(graph, labels=labels, class_names=tuple(classes.tolist()))
        store(tmp_path / f"{name}.graph", named, 2)
    weights, float64 = tmp_path / "w.npz", {"settings": [FLOAT64]}
    train = {"settings": [FLOAT64, "train.epochs=9"], "out": tmp_path / "run", "quiet": True}
    succeed(1, line("train", tmp_path / "same.graph", save_weights=weights, **train))

    def infer(name, out, **options):
        placed = {"partition": "rp-2", "weights": weights, "out": tmp_path / out}
        return line("infer", tmp_path / f"{name}.graph", **placed, **float64, **options)

    (tmp_path / "rows.txt").write_text("12\n0\n")
    lines = [infer(name, f"{name}.npy") for name in orders]
    lines += [infer(name, f"{name}.csv", classes=True) for name in orders]
    succeed(2, *lines, infer("same", "rows.csv", rows=tmp_path / "rows.txt"))
    logits = {name: np.load(tmp_path / f"{name}.npy") for name in orders}
    np.testing.assert_allclose(logits["turned"], np.roll(logits["same"], 1, axis=1), rtol=1e-12)
    np.testing.assert_allclose(logits["other"], logits["same"], rtol=1e-12)
    best = logits["same"].argmax(axis=1)
    expected = ["id,class", *(f"{i},{names[c]}" for i, c in zip(ids, best, strict=True))]
    for name in orders:
        assert (tmp_path / f"{name}.csv").read_text().splitlines() == expected
    head, *rows = (tmp_path / "rows.csv").read_text().splitlines()
    assert head.startswith("id,")
    values = np.array([row.split(",") for row in rows], float)
    assert values[:, 0].tolist() == [12, 0]
    np.testing.assert_allclose(values[:, 1:], logits["same"][[-5, -1]], rtol=1e-12)
    same, turned = (
        gcnmpi.evaluate(tmp_path / f"{name}.graph", weights, dtype="float64")
        for name in ("same", "turned")
    )
    assert same == turned
    # A cat, in the graph an owl, is nothing that the weights could be right about.
    cats = np.count_nonzero(graph.labels == 0)
    with pytest.warns(UserWarning, match=f"{cats} vertices are of classes .* \\(owl\\)"):
        other = gcnmpi.evaluate(tmp_path / "other.graph", weights, dtype="float64")
    mask = graph.masks["test"] & (graph.labels != 0)
    assert other["test_accuracy"] == pytest.approx((best == graph.labels)[mask].mean(), rel=1e-12)


def test_trained_features_are_kept_and_used(succeed, hear_mistakes, path, tmp_path):
    weights, placed = tmp_path / "w.npz", {"partition": "rp-3"}
    own = ["model.train_features=true", "graph.feature_norm=row", FLOAT64, "train.epochs=3",
           "model.hidden=[5]"]  # fmt: skip
    train = line("train", path, settings=own, out=tmp_path, save_weights=weights, **placed)
    out = {"weights": weights, "out": tmp_path / "y.npy"}
    infer = line("infer", path, settings=[FLOAT64], **out, **placed)
    succeed(3, train, infer)
    features, rows = np.load(tmp_path / "w.features.npy"), GRAPH.features.astype(np.float64)
    rows /= rows.sum(axis=1, keepdims=True)
    # Adam moved all that have an influence on the loss, by about its learning rate each epoch.
    assert 0.02 < np.abs(features - rows).max() < 0.04
    expected = forward(replace(GRAPH, features=features), dict(np.load(weights)), 2)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, atol=1e-12)
    (tmp_path / "w.features.npy").unlink()
    hear_mistakes(3, [(infer, "cannot read the trained features")])
