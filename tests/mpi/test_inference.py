"""``gcnmpi infer``: exact, in the original vertex order, for any number of ranks."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from stored_graphs import small_graph, store
from words import sets

import gcnmpi
from gcnmpi.run.record import read_run
from partition.graph.aggregation import aggregation_matrix
from partition.graph.store import open_graph
from partition.importing.assemble import import_graph
from partition.pipeline.adding import add_partition

WIDTHS = (7, 6, 5, 5)


@pytest.fixture(scope="module")
def graph():
    return small_graph("directed")


@pytest.fixture(scope="module")
def folder(graph, tmp_path_factory):
    path = store(tmp_path_factory.mktemp("inference") / "g.graph", graph, 3)
    return path.parent


@pytest.fixture(scope="module")
def state():
    """Weights of three GCNConv layers as PyTorch Geometric's ``GCN`` names them."""
    random = np.random.default_rng(6)
    arrays = {}
    for k, (d_in, d_out) in enumerate(pairwise(WIDTHS)):
        arrays[f"convs.{k}.bias"] = random.standard_normal(d_out)
        arrays[f"convs.{k}.lin.weight"] = random.standard_normal((d_out, d_in))
    return arrays


def forward(graph, state, depth, direction="in", normalize="sym"):
    """Output of layer ``depth``, serially; ReLU behind all but the last layer."""
    matrix = aggregation_matrix(graph, direction, True, normalize)
    h = np.asarray(graph.features, np.float64)
    last = len(state) // 2
    for k in range(depth):
        h = matrix @ h @ state[f"convs.{k}.lin.weight"].T + state[f"convs.{k}.bias"]
        h = np.maximum(h, 0) if k + 1 < last else h
    return h


@pytest.fixture(scope="module")
def results(gcnmpi_lines, folder, state):
    """The arrays that ``infer`` wrote on 3 ranks, by name."""
    np.savez(folder / "w.npz", **state)
    conv = {f"conv{int(name[6]) + 1}{name[7:]}": array for name, array in state.items()}
    np.savez(folder / "conv.npz", **{name: a.astype(np.float32) for name, a in conv.items()})
    no_bias = {name: array for name, array in state.items() if "weight" in name}
    np.savez(folder / "no-bias.npz", **no_bias)
    float64 = ("--set", "dtype=float64")
    cases = {
        "logits": ("w.npz", *float64),
        "layer 1": ("w.npz", *float64, "--layer", 1),
        "layer 3": ("w.npz", *float64, "--layer", 3),
        "classes": ("w.npz", *float64, "--classes"),
        "float32": ("w.npz",),
        "other names": ("conv.npz", "--set", "kernel=scipy"),
        "no bias": ("no-bias.npz", *float64, "--set", "model.dropout=0.5"),
        "out row": ("w.npz", *float64, *sets("graph.direction=out", "graph.normalize=row")),
        "combine": ("w.npz", *float64, "--set", "model.order=combine"),
    }  # fmt: skip
    out, others = folder / "out", folder / "others"
    lines = [
        ["infer", folder / "g.graph", "--partition", "rp-3", "--weights", folder / weights,
         *options, "--out", out / f"{name}.npy"]
        for name, (weights, *options) in cases.items()
    ]  # fmt: skip
    written = {line[-1].stem: line for line in lines}
    for name in ("logits", "classes", "float32"):
        for suffix in ("csv", "npz"):
            lines.append([*written[name][:-1], others / f"{name}.{suffix}"])
    assert gcnmpi_lines(3, lines) == [[None] * 3] * len(lines)
    assert {path.stem for path in out.iterdir()} == cases.keys()
    return {name: np.load(out / f"{name}.npy", allow_pickle=False) for name in cases}


@pytest.mark.quick
def test_results_equal_scipy_in_the_original_order(results, folder, graph, state):
    without_bias = {n: a if "weight" in n else np.zeros_like(a) for n, a in state.items()}
    logits = forward(graph, state, 3)
    for name, expected in {
        "logits": logits,
        "layer 1": forward(graph, state, 1),
        "layer 3": logits,
        "no bias": forward(graph, without_bias, 3),
        "out row": forward(graph, state, 3, "out", "row"),
        "combine": logits,
    }.items():
        assert results[name].dtype == np.float64
        np.testing.assert_allclose(results[name], expected, rtol=1e-10, atol=1e-10, err_msg=name)
    np.testing.assert_array_equal(results["classes"], logits.argmax(axis=1))
    assert results["classes"].dtype == np.int64
    for name in ("float32", "other names"):
        assert results[name].dtype == np.float32
        np.testing.assert_allclose(results[name], logits, rtol=1e-4, atol=1e-4)
    # A result is written as its name says.
    others = folder / "others"
    assert len(list(others.iterdir())) == 6  # no temporary files
    for name in ("logits", "classes", "float32"):
        expected = results[name]
        with np.load(others / f"{name}.npz", allow_pickle=False) as arrays:
            np.testing.assert_array_equal(arrays["values"], expected)
            assert arrays["values"].dtype == expected.dtype
        text = np.loadtxt(others / f"{name}.csv", delimiter=",", dtype=expected.dtype)
        np.testing.assert_array_equal(text, expected)


def test_trained_weights_go_to_inference_and_give_the_recorded_accuracy(
    gcnmpi_lines, folder, graph, tmp_path
):
    common = [folder / "g.graph", "--partition", "rp-3", "--set", "dtype=float64"]
    other = sets("graph.normalize=row", "graph.self_loops=false", "graph.feature_norm=row",
                 "graph.direction=out")  # fmt: skip
    weights = tmp_path / "made" / "w.npz"  # the folder is made
    train = ["train", *common, *other, "--quiet", "--out", tmp_path / "run", "--save-weights",
             weights, *sets("train.epochs=30", "model.hidden=[8]")]  # fmt: skip
    # The network and its matrix come from the file.
    infer = ["infer", *common, "--weights", weights, "--out", tmp_path / "c.npy", "--classes"]
    against = ["--set", "graph.normalize=sym"]
    done = gcnmpi_lines(3, [train, infer, [*infer, *other], [*infer, *against]])
    assert done[:3] == [[None] * 3] * 3
    assert all("graph.normalize" in said and '"row"' in said for said in done[3])
    with np.load(weights) as arrays:
        trained = dict(arrays)
    shapes = {name: array.shape for name, array in trained.items()}
    assert shapes == {
        "convs.0.lin.weight": (8, WIDTHS[0]),
        "convs.0.bias": (8,),
        "convs.1.lin.weight": (WIDTHS[-1], 8),
        "convs.1.bias": (WIDTHS[-1],),
    }
    classes = np.load(tmp_path / "c.npy")
    last = read_run(tmp_path / "run").epochs[-1]
    assert last["epoch"] == 30
    for name, mask in graph.masks.items():
        known = mask & (graph.labels >= 0)
        accuracy = np.mean(classes[known] == graph.labels[known])
        assert last[f"{name}_accuracy"] == pytest.approx(accuracy, abs=1e-15)


def test_classes_are_matched_by_their_names(gcnmpi_lines, graph, tmp_path):
    names = np.array(["cat", "dog", "fox", "hen"])
    graph = dataclasses.replace(graph, labels=(np.arange(graph.n) % 4).astype(np.int32))
    there = {"same": names, "turned": np.roll(names, 1), "other": np.array([*names[1:], "owl"])}
    for name, classes in there.items():
        labels = np.array([3, 0, 1, 2], np.int32)[graph.labels] if name == "other" else (
            np.searchsorted(names, classes).argsort()[graph.labels].astype(np.int32)
        )  # fmt: skip
        named = dataclasses.replace(graph, labels=labels, class_names=tuple(classes.tolist()))
        store(tmp_path / f"{name}.graph", named, 2)
    weights, out = tmp_path / "w.npz", {name: tmp_path / f"{name}.npy" for name in there}
    train = ["train", tmp_path / "same.graph", *sets("dtype=float64", "train.epochs=9"), "--quiet",
             "--out", tmp_path / "run", "--save-weights", weights]  # fmt: skip
    assert gcnmpi_lines(1, [train]) == [[None]]
    more = "--partition", "rp-2", "--weights", weights, "--set", "dtype=float64", "--out"
    infer = {name: ["infer", tmp_path / f"{name}.graph", *more] for name in there}
    lines = [[*infer[name], out[name]] for name in there]
    lines += [[*infer[name], tmp_path / f"{name}.npz", "--classes"] for name in there]
    assert gcnmpi_lines(2, lines) == [[None] * 2] * 6
    logits = {name: np.load(path) for name, path in out.items()}
    np.testing.assert_allclose(logits["turned"], np.roll(logits["same"], 1, axis=1), rtol=1e-12)
    np.testing.assert_allclose(logits["other"], logits["same"], rtol=1e-12)
    for name in there:
        with np.load(tmp_path / f"{name}.npz") as arrays:
            found = arrays["class_names"][arrays["values"]]
        np.testing.assert_array_equal(found, names[logits["same"].argmax(axis=1)])
    metrics = {
        name: gcnmpi.evaluate(tmp_path / f"{name}.graph", weights, dtype="float64")
        for name in ("same", "turned")
    }
    assert metrics["same"] == metrics["turned"]
    # A cat, in the graph an owl, is nothing that the weights could be right about.
    cats = np.count_nonzero(graph.labels == 0)
    with pytest.warns(UserWarning, match=f"{cats} vertices are of classes .* \\(owl\\)"):
        other = gcnmpi.evaluate(tmp_path / "other.graph", weights, dtype="float64")
    mask = graph.masks["test"] & (graph.labels != 0)
    right = logits["same"].argmax(axis=1)[mask] == graph.labels[mask]
    assert other["test_accuracy"] == pytest.approx(right.mean(), rel=1e-12)


def test_trained_features_are_kept_and_used(folder, graph, gcnmpi_lines):
    run = folder / "trained"
    common, weights = [folder / "g.graph", "--partition", "rp-3"], run / "w.npz"
    settings = sets("model.train_features=true", "graph.feature_norm=row", "dtype=float64",
                    "train.epochs=3", "model.hidden=[5]")  # fmt: skip
    train = ["train", *common, *settings, "--quiet", "--out", run, "--save-weights", weights]
    infer = ["infer", *common, "--set", "dtype=float64", "--weights", weights, "--out",
             run / "y.npy"]  # fmt: skip
    run.mkdir()
    assert gcnmpi_lines(3, [train, infer]) == [[None] * 3] * 2

    features = np.load(run / "w.features.npy")
    rows = graph.features.astype(np.float64)
    rows /= rows.sum(axis=1, keepdims=True)
    assert features.shape == rows.shape
    # Adam moved all that have an influence on the loss, by about its learning rate each epoch.
    assert 0.02 < np.abs(features - rows).max() < 0.04
    state = dict(np.load(weights))
    expected = forward(dataclasses.replace(graph, features=features), state, 2)
    np.testing.assert_allclose(np.load(run / "y.npy"), expected, atol=1e-12)

    (run / "w.features.npy").unlink()
    (complaints,) = gcnmpi_lines(3, [infer])
    assert all("cannot read the trained features" in complaint for complaint in complaints)


def test_ids_of_the_source_come_back_with_their_rows_and_in_their_order(gcnmpi_lines, tmp_path):
    people = ["eve", "bob", "ann", "dan", "cat", "fay"]
    pairs = zip(people, people[1:] + people[:1], strict=True)
    (tmp_path / "e.csv").write_text("from,to\n" + "".join(f"{a},{b}\n" for a, b in pairs))
    table = [f"{name},{i}.5,{i % 3}" for i, name in enumerate(people)]
    (tmp_path / "x.csv").write_text("id,p,q\n" + "\n".join(reversed(table)) + "\n")
    roles = "".join(f"{name},{'red' if i % 2 else 'blue'}\n" for i, name in enumerate(people))
    (tmp_path / "y.csv").write_text(f"id,role\n{roles}")
    path = tmp_path / "g.graph"
    tables = {"features": tmp_path / "x.csv", "labels": tmp_path / "y.csv"}
    import_graph(tmp_path / "e.csv", path, undirected=True, **tables)
    graph = open_graph(path).graph
    assert graph.class_names == ("blue", "red")
    assert graph.features[:, 0].tolist() == [people.index(one) + 0.5 for one in graph.ids]
    people = graph.ids.tolist()
    add_partition(path, "rp", 2)
    (tmp_path / "rows.txt").write_text("dan\neve\n")
    common = [path, "--partition", "rp-2"]
    train = ["train", *common, "--quiet", "--out", tmp_path / "run", "--set", "train.epochs=2",
             "--save-weights", tmp_path / "w.npz"]  # fmt: skip
    infer = ["infer", *common, "--weights", tmp_path / "w.npz", "--out"]
    lines = [train, [*infer, tmp_path / "y.npy"], [*infer, tmp_path / "y.out.csv"],
             [*infer, tmp_path / "c.csv", "--classes"],
             [*infer, tmp_path / "r.csv", "--rows", tmp_path / "rows.txt"]]  # fmt: skip
    assert gcnmpi_lines(2, lines) == [[None] * 2] * len(lines)
    logits = np.load(tmp_path / "y.npy")
    for name, order in (("y.out", people), ("r", ["dan", "eve"])):
        header, *rows = (tmp_path / f"{name}.csv").read_text().splitlines()
        assert header == "id,0,1"
        assert [row.split(",")[0] for row in rows] == order
        values = np.array([row.split(",")[1:] for row in rows], logits.dtype)
        np.testing.assert_array_equal(values, logits[[people.index(one) for one in order]])
    names = [graph.class_names[k] for k in logits.argmax(1)]
    classes = [f"{one},{name}" for one, name in zip(people, names, strict=True)]
    assert (tmp_path / "c.csv").read_text().splitlines() == ["id,class", *classes]
