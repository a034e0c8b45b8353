"""Options of methods, and the files that they name, before MPI starts."""

import numpy as np
import pytest
from refusals import refuses
from small_graphs import from_arcs, make_folder

from gcnmpi.layout.runtime import Source
from gcnmpi.propagation.checks import predictions_of, weights_of
from gcnmpi.propagation.memory import memory
from gcnmpi.propagation.methods import METHODS
from gcnmpi.propagation.settings import PropagateRequest
from partition.graph.store import open_graph
from partition.importing.synthetic import sbm


def asked_for(name, settings=(), file=None, values=None):
    return PropagateRequest.read(file, settings, values=values, method=name, graph="G")


def test_options_and_keys_are_told_apart(tmp_path):
    asked = asked_for("pagerank", ["damping=0.5", "scheme.exchange=rows", "dtype=float32"])
    assert (asked.options.damping, asked.options.iterations) == (0.5, 1000)
    assert (asked.config.scheme.exchange, asked.config.dtype) == ("rows", "float32")
    assert (asked.config.graph.normalize, asked.config.graph.direction) == ("none", "in")
    typed = asked_for("embed", values={"weights": [1, 2.5], "graph.direction": "out"})
    assert (typed.options.weights, typed.config.graph.direction) == ((1.0, 2.5), "out")
    # A method has its own matrix and dtype until they are given.
    methods = "laplacian-eigenvectors", "sgc"
    assert [asked_for(name).config.dtype for name in methods] == ["float64", "float32"]
    for settings, expected in ((), ("sym", False)), (("graph.self_loops=true",), ("sym", True)):
        graph = asked_for("label-propagation", settings).config.graph
        assert (graph.normalize, graph.self_loops) == expected
    # A file of keys may be that of a training.
    file = tmp_path / "c.toml"
    file.write_text('dtype = "float64"\n[model]\nhidden = [8]\n[scheme]\nname = "bcast"\n')
    asked = asked_for("sgc", ["hops=4"], file)
    assert (asked.config.dtype, asked.config.scheme.name) == ("float64", "bcast")


def test_mistakes_in_words():
    for method, settings, said in (
        ("pagernk", [], "did you mean 'pagerank'?"),
        ("sgc", ["hop=2"], "did you mean 'hops'?"),
        ("sgc", ["damping=0.5"], "damping is an option of pagerank, not of sgc"),
        ("sgc", ["hops=two"], "such as --set hops=2"),
        ("sgc", ["hops=1", "hops=2"], "given twice"),
        ("sgc", ["train.epochs=3"], "has no effect on a propagation"),
        ("sgc", ["train.split=3"], "train.split has no effect on sgc"),
        ("pagerank", ["graph.feature_norm=row"], "graph.feature_norm has no effect on pagerank"),
        ("components", ["seed=1"], "options of components: none"),
        ("embed", ["theta=1"], "--set method=prone"),
        ("laplacian-eigenvectors", ["every=5"], "has no effect without checkpoint"),
    ):
        assert said in str(refuses(".", asked_for, method, settings))


@pytest.fixture
def stored(tmp_path):
    return open_graph(make_folder(tmp_path / "g.graph", from_arcs(4, [(0, 1), (1, 2)])))


def test_weights_of_vertices(stored, tmp_path):
    file = tmp_path / "seeds.txt"
    file.write_text("2\n\n0 0.5\n2 1.5\n")
    np.testing.assert_array_equal(weights_of(stored, file), [0.5, 0, 2.5, 0])
    for text, said in (
        ("4\n", "line 1: '4' is no vertex"),
        ("1 -2\n", "not negative"),
        ("1 x\n", "no vertex with a weight"),
        ("1 2 3\n", "no vertex with a weight"),
        ("1 0\n", "gives no vertex a weight above 0"),
        ("", "gives no vertex a weight above 0"),
    ):
        file.write_text(text)
        assert said in str(refuses(".", weights_of, stored, file))


OPTIONS = {"appnp": ["predictions={}"], "correct-and-smooth": ["predictions={}"]}


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_has_a_forecast_of_its_memory(tmp_path, name, written):
    graph = sbm(40, 3, degree=2, features=5)
    stored = open_graph(make_folder(tmp_path / "g.graph", graph))
    np.save(tmp_path / "p.npy", np.ones((40, 3)))
    settings = [text.format(tmp_path / "p.npy") for text in OPTIONS.get(name, [])]
    asked = asked_for(name, [*settings, *(["dimension=8"] if name == "embed" else [])])
    needed = memory(asked, Source(stored, None, "in"), asked.config, 1, 1, written)
    columns = asked.method.holds(stored, asked.options).columns
    assert 40 * 4 * columns < needed < 1e6
    if not written:  # rank 0 gathers what is else written
        assert needed >= memory(asked, Source(stored, None, "in"), asked.config, 1, 1, True)


def test_predictions_have_a_row_for_each_vertex(tmp_path):
    np.save(tmp_path / "p.npy", np.ones((4, 3)))
    np.save(tmp_path / "whole.npy", np.ones((4, 3), np.int64))
    assert predictions_of(str(tmp_path / "p.npy"), 4, 3).shape == (4, 3)
    for name, n, width, said in (
        ("p.npy", 5, 0, "4 × 3; the graph takes 5 rows"),
        ("p.npy", 4, 2, "4 × 3; the graph takes 4 × 2"),
        ("none.npy", 4, 0, "none.npy"),
        ("p.npz", 4, 0, "is no .npy"),
        ("whole.npy", 4, 0, "int64, not floating-point"),
    ):
        assert said in str(refuses(".", predictions_of, str(tmp_path / name), n, width))
