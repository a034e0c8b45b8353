"""Networks that PyTorch Geometric and DGL trained: their logits, on any number of ranks.

``tests/foreign`` has their state dicts as ``torch.save`` wrote them, what network each is, and the
logits they gave.
"""

from itertools import product

import numpy as np
import pytest
from foreign_networks import FOREIGN, NETWORKS
from scipy.special import expit
from stored_graphs import graph_of, store
from tensor_files import call, write_safetensors, write_state, write_torch
from words import sets

from partition.graph.graph import ArcData
from partition.tensor_files import read_tensors

CASES = sorted(NETWORKS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("foreign")
    with np.load(FOREIGN / "graph.npz") as arrays:
        edges, features, of_arcs = (arrays[n] for n in ("edges", "features", "arc_features"))
    n = len(features)
    dense = np.zeros((n, n), bool)
    dense[tuple(edges)] = True
    # Without masks, and one without labels: inference does not need them.
    classes = {"labels": (np.arange(n) % 3).astype(np.int32), "class_names": CLASSES}
    for name, matrix, data in (
        ("pyg", dense, {"arc_data": ArcData(of_arcs[np.lexsort(edges[::-1])])}),
        ("dgl", dense | dense.T, {"ids": np.arange(n) * 10, **classes}),
    ):
        store(root / f"{name}.graph", graph_of(matrix, features=features, **data), 2, 3)
    for case, text in NETWORKS.items():
        (root / f"{case}.toml").write_text(text)
    return root


def expected(case):
    of_dgl = case.startswith("dgl-")
    with np.load(FOREIGN / ("dgl.npz" if of_dgl else "pyg.npz")) as arrays:
        return arrays[case.removeprefix("dgl-")]


SCHEMES = {
    "p2p": [],
    "shared": ["--set", "scheme.transport=shared"],
    "bcast": ["--set", "scheme.name=bcast"],
    "summa": ["--set", "scheme.name=summa"],
    "tensor3d": ["--set", "scheme.name=tensor3d"],
}
ASKED = {
    "probabilities": ["--what", "probabilities"],
    "probabilities of labels": ["--what", "probabilities", "--set", "task.name=labels"],
    "embeddings": ["--what", "embeddings"],
    "layer 1": ["--layer", 1],
    "rows of classes": ["--rows", "ids.txt", "--what", "classes"],
    "small buffers": ["--set", "loading.max_buffer_mb=0.0002"],
}
CLASSES = ("a, b", "ü", "c")
PICKED = [390, 0, 170, 170, 20]


@pytest.fixture(scope="module")
def results(folder, gcnmpi_lines):
    """``results(name)`` → what an inference on 3 ranks wrote."""
    (folder / "ids.txt").write_text("\n".join(map(str, PICKED)) + "\n\n")
    lines = []

    def add(case, name, *words, dtype="float64"):
        graph = folder / f"{'dgl' if case.startswith('dgl-') else 'pyg'}.graph"
        out = folder / f"{name}{'' if '.' in name else '.npy'}"
        network = ["--weights", FOREIGN / f"{case}.pt", "--network", folder / f"{case}.toml"]
        words = [*network, *words, *sets(f"dtype={dtype}"), "--out", out]
        lines.append(["infer", graph, "--partition", "rp-3", *words])

    for case in CASES:
        for dtype in ("float32", "float64"):
            add(case, f"{case} {dtype}", dtype=dtype)
    for case, (name, options) in product(("sage", "gat"), SCHEMES.items()):
        if case == "sage" or name not in ("summa", "tensor3d"):
            add(case, f"{case} {name}", *options)
    for name, words in ASKED.items():
        words = [folder / word if word == "ids.txt" else word for word in words]
        add("dgl-gat", name, *words)
    assert gcnmpi_lines(3, lines) == [[None] * 3] * len(lines)
    return lambda name: np.load(folder / f"{name}.npy")


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_library_that_trained(results, case):
    theirs = expected(case)
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-10)):
        logits = results(f"{case} {dtype}")
        assert logits.dtype == dtype
        most = tolerance * max(1, np.abs(theirs).max())
        np.testing.assert_allclose(logits, theirs, rtol=0, atol=most)
    for scheme in SCHEMES if case in ("sage", "gat") else ():
        if case == "sage" or scheme not in ("summa", "tensor3d"):
            logits = results(f"{case} {scheme}")
            np.testing.assert_allclose(logits, theirs, rtol=1e-10, atol=1e-10)


def test_what_is_asked_for_is_written(results):
    logits = expected("dgl-gat")
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    np.testing.assert_allclose(
        results("probabilities"), shifted / shifted.sum(axis=1, keepdims=True), atol=1e-12
    )
    np.testing.assert_allclose(results("probabilities of labels"), expit(logits), atol=1e-12)
    assert results("embeddings").shape == (len(logits), 6)
    np.testing.assert_array_equal(results("embeddings"), results("layer 1"))
    np.testing.assert_allclose(results("small buffers"), logits, atol=1e-12)
    picked = np.array(PICKED) // 10  # the graph's vertices are called 0, 10, 20 …
    np.testing.assert_array_equal(results("rows of classes"), logits[picked].argmax(axis=1))


def test_what_does_not_fit_is_told_by_name(folder, gcnmpi_lines, hear_mistakes):
    """And a whole configuration serves as a network."""
    (folder / "none.txt").write_text("3\nseven\n")
    state = read_tensors(FOREIGN / "sage.pt")
    network = (folder / "sage.toml").read_text()
    (folder / "whole.toml").write_text(f"dtype = 'float64'\n{network}[train]\nlr = 0.1\n")
    (folder / "graph.toml").write_text("[graph]\nnormalize = 'sym'\n")
    (folder / "config.toml").write_text("dtype = 'float64'\n[model]\nhidden = [6, 6]\n")
    (folder / "numbers.toml").write_text(f"{network}[task]\nname = 'regression'\n")
    write_state(folder / "missing.pt", {n: a for n, a in state.items() if n != "norms.1.bias"})
    first = {n: a for n, a in state.items() if not n.startswith("convs.0.lin_l")}
    write_state(folder / "first.pt", first)
    write_state(folder / "extra.pt", state | {"convs.1.gate": np.ones(3)})
    wrong = state["residuals.1.weight"][:, :5].copy()
    write_state(folder / "wrong.pt", state | {"residuals.1.weight": wrong})
    write_state(folder / "wide.pt", state | {"convs.0.lin_l.weight": np.ones((6, 9))})
    write_safetensors(folder / "good.safetensors", state)
    nan = state | {"convs.0.lin_l.bias": np.full(6, np.nan)}
    write_safetensors(folder / "nan.safetensors", nan)
    write_torch(folder / "evil.pt", {"state_dict": call("os", "system", "true")}, {})

    def line(weights, network="sage", *more):
        given = ["--network", folder / f"{network}.toml"] if network else []
        place = folder if (folder / weights).exists() else FOREIGN
        words = ["--weights", place / weights, *given, *more, "--out", folder / "bad.npy"]
        return ["infer", folder / "pyg.graph", "--partition", "rp-2", *words]

    good = [line("good.safetensors"), line("good.safetensors", "whole")]
    assert gcnmpi_lines(2, good) == [[None] * 2] * 2
    told = {
        ("missing.pt",): ("missing.pt", "norms.1.bias (norms.1.module.bias)", "(6,)"),
        ("first.pt",): "convs.0.lin_l.weight is missing",
        ("extra.pt",): "'convs.1.gate' is not a parameter",
        ("wrong.pt",): ("residuals.1.weight is float64 (6, 5)", "(6, 6)"),
        ("nan.safetensors",): "convs.0.lin_l.bias is not all finite",
        ("evil.pt",): ("evil.pt names os.system", "nothing of it was run"),
        ("sage.pt", "graph"): "graph.toml has no table [model]",
        ("sage.pt", ""): ("a GCNConv layer", "--set model.name=NAME", "may be sage"),
        ("wide.pt",): ("convs.0.lin_l.weight is float64 (6, 9)", "(6, 5)"),
        ("sage.pt", "gin"): "sage.pt: convs.0.eps is missing",
        ("sage.pt", "sage", "--config", folder / "config.toml"): "both have a table [model]",
        ("sage.pt", "sage", "--rows", folder / "none.txt"): "none.txt, line 2: 'seven'",
        ("sage.pt", "numbers", "--what", "probabilities"): "has no probabilities",
    }
    hear_mistakes(2, [(line(*given), says) for given, says in told.items()])
