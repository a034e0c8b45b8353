"""Networks that PyTorch Geometric and DGL trained: their logits, on any number of ranks.

``tests/foreign`` has their state dicts as ``torch.save`` wrote them, what network each is, and the
logits they gave.
"""

import csv
from itertools import product

import numpy as np
import pytest
from foreign_networks import FOREIGN, NETWORKS
from scipy.special import expit
from stored_graphs import store
from tensor_files import call, write_safetensors, write_state, write_torch
from words import sets

from partition.graph.arc_data import ArcData
from partition.graph.graph import Graph
from partition.tensor_files import read_tensors

CASES = sorted(NETWORKS)
RANKS = (1, 3, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("foreign")
    with np.load(FOREIGN / "graph.npz") as arrays:
        edges, features, of_arcs = (arrays[n] for n in ("edges", "features", "arc_features"))
    n = len(features)
    both = np.unique(np.concatenate((edges, edges[::-1]), axis=1), axis=1)
    for name, (source, target), ids in (("pyg", edges, None), ("dgl", both, np.arange(n) * 10)):
        order = np.lexsort((target, source))
        indptr = np.searchsorted(source[order], np.arange(n + 1)).astype(np.int64)
        # Without masks, and one without labels: inference does not need them.
        labels = None if ids is None else (np.arange(n) % 3).astype(np.int32)
        names = None if ids is None else CLASSES
        arcs = indptr, target[order].astype(np.int32)
        data = ArcData(of_arcs[order]) if name == "pyg" else ArcData()
        given = {"features": features, "labels": labels, "class_names": names, "ids": ids}
        graph = Graph(*arcs, **given, arc_data=data)
        store(root / f"{name}.graph", graph, *RANKS[1:], 2)
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
    "classes": ["--what", "classes"],
    "classes.csv": ["--what", "classes"],
    "rows": ["--rows", "ids.txt"],
    "rows of classes": ["--rows", "ids.txt", "--what", "classes"],
    "small buffers": ["--set", "loading.max_buffer_mb=0.0002"],
}
CLASSES = ("a, b", "ü", "c")
PICKED = [390, 0, 170, 170, 20]


@pytest.fixture(scope="module")
def results(folder, gcnmpi_lines):
    """The folder, with the files that all inferences wrote, called "RANKS NAME"."""
    (folder / "ids.txt").write_text("\n".join(map(str, PICKED)) + "\n\n")
    for ranks in RANKS:
        placed, lines = ["--partition", f"rp-{ranks}"] if ranks > 1 else [], []

        def add(case, name, *words, dtype="float64", placed=placed, lines=lines, ranks=ranks):
            graph = folder / f"{'dgl' if case.startswith('dgl-') else 'pyg'}.graph"
            out = folder / f"{ranks} {name}{'' if '.' in name else '.npy'}"
            words = [*words, *sets(f"dtype={dtype}"), "--out", out]
            network = ["--weights", FOREIGN / f"{case}.pt", "--network", folder / f"{case}.toml"]
            lines.append(["infer", graph, *placed, *network, *words])

        for case in CASES:
            for dtype in ("float32", "float64"):
                add(case, f"{case} {dtype}", dtype=dtype)
        for case, (name, options) in product(("sage", "gat"), SCHEMES.items()):
            if case == "sage" or name not in ("summa", "tensor3d"):
                add(case, f"{case} {name}", *options)
        for name, words in ASKED.items():
            words = [folder / word if word == "ids.txt" else word for word in words]
            add("dgl-gat", name, *words)
        assert gcnmpi_lines(ranks, lines) == [[None] * ranks] * len(lines)
    return folder


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_library_that_trained(results, case, ranks):
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-10)):
        logits, theirs = np.load(results / f"{ranks} {case} {dtype}.npy"), expected(case)
        assert logits.dtype == dtype
        np.testing.assert_allclose(
            logits, theirs, rtol=0, atol=tolerance * max(1, np.abs(theirs).max())
        )


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_logits_are_the_same_under_every_scheme(results, scheme, ranks):
    for case in ("sage", "gat"):
        path = results / f"{ranks} {case} {scheme}.npy"
        if path.exists():
            np.testing.assert_allclose(np.load(path), expected(case), rtol=1e-10, atol=1e-10)
        else:
            assert (case, scheme) in {("gat", "summa"), ("gat", "tensor3d")}


@pytest.mark.parametrize("ranks", RANKS)
def test_what_is_asked_for_is_written(results, ranks):
    logits = expected("dgl-gat")

    def found(name):
        return np.load(results / f"{ranks} {name}.npy")

    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    np.testing.assert_allclose(
        found("probabilities"), shifted / shifted.sum(axis=1, keepdims=True), atol=1e-12
    )
    np.testing.assert_allclose(found("probabilities of labels"), expit(logits), atol=1e-12)
    np.testing.assert_array_equal(found("classes"), logits.argmax(axis=1))
    with open(results / f"{ranks} classes.csv", newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    of_rows = [CLASSES[number] for number in logits.argmax(axis=1)]
    assert lines == [["id", "class"], *([str(10 * i), c] for i, c in enumerate(of_rows))]
    assert found("embeddings").shape == (len(logits), 6)
    np.testing.assert_array_equal(found("embeddings"), found("layer 1"))
    np.testing.assert_allclose(found("small buffers"), logits, atol=1e-12)
    picked = np.array(PICKED) // 10  # the graph's vertices are called 0, 10, 20 …
    np.testing.assert_allclose(found("rows"), logits[picked], atol=1e-12)
    np.testing.assert_array_equal(found("rows of classes"), logits[picked].argmax(axis=1))


@pytest.fixture(scope="module")
def complaints(folder, gcnmpi_lines):
    """The complaints of two ranks of files that do not fit."""
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
    write_safetensors(
        folder / "nan.safetensors", state | {"convs.0.lin_l.bias": np.full(6, np.nan)}
    )
    evil = {"state_dict": call("os", "system", "true")}
    write_torch(folder / "evil.pt", evil, {})
    toml = ["--network", folder / "sage.toml"]
    files = {
        name: ["--weights", folder / name, *toml]
        for name in ("missing.pt", "first.pt", "extra.pt", "wrong.pt", "wide.pt",
                     "good.safetensors", "nan.safetensors", "evil.pt")
    } | {
        "whole": ["--weights", folder / "good.safetensors", "--network", folder / "whole.toml"],
        "no model": ["--weights", FOREIGN / "sage.pt", "--network", folder / "graph.toml"],
        "no network": ["--weights", FOREIGN / "sage.pt"],
        "other network": ["--weights", FOREIGN / "sage.pt", "--network", folder / "gin.toml"],
        "config": ["--weights", FOREIGN / "sage.pt", *toml, "--config", folder / "config.toml"],
        "no rows": ["--weights", FOREIGN / "sage.pt", *toml, "--rows", folder / "none.txt"],
        "both": ["--weights", FOREIGN / "sage.pt", *toml, "--what", "classes", "--layer", 1],
        "numbers": ["--weights", FOREIGN / "sage.pt", "--network", folder / "numbers.toml",
                    "--what", "probabilities"],
    }  # fmt: skip
    lines = [
        ["infer", folder / "pyg.graph", "--partition", "rp-2", *words, "--out",
         folder / "bad" / f"{number}.npy"]
        for number, words in enumerate(files.values())
    ]  # fmt: skip
    return dict(zip(files, gcnmpi_lines(2, lines, timeout=120), strict=True))


@pytest.mark.parametrize(
    ("name", "says"),
    {
        "missing.pt": ["missing.pt", "norms.1.bias (norms.1.module.bias) is missing", "(6,)"],
        "first.pt": ["convs.0.lin_l.weight is missing"],
        "extra.pt": ["'convs.1.gate' is not a parameter"],
        "wrong.pt": ["residuals.1.weight is float64 (6, 5)", "(6, 6)"],
        "nan.safetensors": ["convs.0.lin_l.bias is not all finite"],
        "evil.pt": ["evil.pt names os.system", "nothing of it was run"],
        "no model": ["graph.toml has no table [model]"],
        "no network": [
            "is not a weight of a GCNConv layer",
            "--set model.name=sage --set model.hidden=6,6 ",
        ],
        "wide.pt": ["convs.0.lin_l.weight is float64 (6, 9)", "the network's is (6, 5)"],
        "other network": ["sage.pt: convs.0.eps is missing"],
        "config": ["both have a table [model]"],
        "no rows": ["none.txt, line 2: 'seven' is no vertex"],
        "both": ["exclude each other"],
        "numbers": ["trained for regression, and its output has no probabilities"],
    }.items(),
)
def test_what_does_not_fit_is_told_by_name(complaints, name, says):
    for rank in complaints[name]:
        assert rank is not None
        for each in says:
            assert each in rank


def test_a_whole_configuration_serves_as_a_network(complaints):
    assert complaints["good.safetensors"] == complaints["whole"] == [None, None]
