"""``import gcnmpi``, as far as it needs no MPI: graphs, records, data for ranks, settings."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refuses
from test_pyg_files import Tensor

import gcnmpi
from gcnmpi.mpi import launch
from gcnmpi.run.weights_file import write_weights
from partition.importing.assemble import import_graph
from partition.importing.readers.source import Layout

N = 40


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No rank, even if the tests are run by one."""
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"):
        monkeypatch.delenv(name, raising=False)


def arrays():
    random, kind = np.random.default_rng(3), np.arange(N) % 4
    return {
        "edge_index": random.integers(0, N, (2, 160)),
        "x": random.standard_normal((N, 5)),
        "y": random.integers(0, 3, N),
        "train_mask": kind == 0,
        "val_mask": kind == 1,
        "test_mask": np.flatnonzero(kind == 2),
    }


def test_importing_it_imports_nothing_else():
    packages = "('numpy', 'mpi4py', 'partition')"
    show = f"any(name.startswith({packages}) for name in sys.modules)"
    for program in (show, "g.graph, g.Run, g.launch, 'mpi4py' in sys.modules"):
        words = [sys.executable, "-c", f"import gcnmpi as g, sys; print(({program},)[-1])"]
        assert subprocess.check_output(words, text=True) == "False\n"


def test_type_checkers_are_told_the_same_names():
    tree = ast.parse(Path(gcnmpi.__file__).with_suffix(".pyi").read_text())
    nodes = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    told = {alias.asname: f"{node.module}:{alias.name}" for node in nodes for alias in node.names}
    assert told | {"graph": "gcnmpi.api.graph"} == gcnmpi._NAMES
    for name in told:
        assert getattr(gcnmpi, name) is not None
        assert name in dir(gcnmpi)
    refuses("has no attribute 'trian'", getattr, gcnmpi, "trian", error=AttributeError)


def test_arrays_give_the_folder_that_files_give(tmp_path):
    given = arrays()
    graph = gcnmpi.graph.from_arrays(**given, folder=tmp_path / "a.graph", undirected=True)
    file = {name: tmp_path / f"{name}.npy" for name in given}
    for name, array in given.items():
        np.save(file[name], array)
    manifest = import_graph(
        file["edge_index"], tmp_path / "f.graph", layout=Layout(vertices=f"0..{N - 1}"),
        features=file["x"], labels=file["y"], undirected=True,
        masks={name: file[f"{name}_mask"] for name in ("train", "val", "test")},
    )  # fmt: skip
    assert (graph.manifest.id, graph.manifest.data_id) == (manifest.id, manifest.data_id)
    assert (graph.nnz, graph.features.shape) == (manifest.nnz, (N, 5))
    opened = gcnmpi.graph.open(tmp_path / "a.graph")
    np.testing.assert_array_equal(opened.labels, given["y"])


def test_matrices_and_tensors_are_arrays(tmp_path):
    given = arrays()
    expected = gcnmpi.graph.from_arrays(**given)
    tensors = {name: Tensor(array) for name, array in given.items()}
    tensors["y"] = Tensor(given["y"][:, np.newaxis])
    tensors["x"] = sp.coo_array(given["x"])
    found = gcnmpi.graph.from_arrays(**tensors)
    assert found.manifest.data_id == expected.manifest.data_id
    matrix = sp.csc_array(expected.adjacency())
    again = gcnmpi.graph.from_arrays(matrix)
    assert again.manifest.id == expected.manifest.id
    weighted = gcnmpi.graph.from_arrays(matrix * 2)
    assert weighted.manifest.weighted
    given = {name: given[name] for name in ("edge_index", "y")}
    drawn = gcnmpi.graph.from_arrays(**given, split="random:0.5,0.25,0.25")
    assert [int(drawn.masks[name].sum()) for name in ("train", "val", "test")] == [20, 10, 10]
    ones = np.full(160, 2.0)
    merged = gcnmpi.graph.from_arrays(given["edge_index"], edge_weight=ones, n=N)
    assert merged.manifest.id == weighted.manifest.id
    two = gcnmpi.graph.from_arrays(np.array([[0, 1], [1, 2]]))  # arcs are columns
    assert two.adjacency().toarray().tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]


def test_mistakes_in_arrays_are_refused():
    for changed, message in (
        ({"edge_index": np.zeros((3, 4))}, r"edge_index holds float64 \(3, 4\), not integers"),
        ({"edge_index": [[0], [N]]}, f"an arc has a vertex outside 0..{N - 1}"),
        ({"edge_index": sp.eye_array(3, 4, format="csr")}, "3 x 4, not square"),
        ({"edge_weight": [1.0]}, r"edge_weight holds float64 \(1,\), not a number for each of 160"),
        ({"edge_index": [[0, None]]}, "edge_index is no array of numbers"),
        ({"arc_features": np.ones((3, 2))}, "arc_features has 3 rows, there are 160 arcs"),
        ({"edge_weight": np.full(160, np.inf)}, "weight of entry 1 is inf"),
        ({"x": np.full((N, 1), np.nan)}, "x: features of vertex 0, column 0 are not finite"),
        ({"y": np.zeros(7, int)}, "y has 7 rows, the graph has 40 vertices"),
        ({"val_mask": np.arange(N) % 4 == 0}, "the train mask and the val mask have 10"),
        ({"split": "random:0.5,0.5,0"}, "draws all masks"),
        ({"folder": "g"}, "a graph folder's name ends in .graph"),
    ):
        refuses(message, gcnmpi.graph.from_arrays, **arrays() | changed)


def test_partitions_of_a_graph(tmp_path):
    graph = gcnmpi.graph.from_arrays(**arrays(), folder=tmp_path / "p.graph")
    made = graph.add_partition("rp", 2, if_missing=True)
    assert graph.add_partition("rp", 2, if_missing=True, seed=5).id == made.id
    assert graph.add_partition("rp", 2, overwrite=True, seed=5, name="rp-2").seed == 5
    refuses("has a partition", graph.add_partition, "rp", 2)
    refuses("did you mean", graph.partition, "rp-3")
    graph.remove_partition("rp-2")
    assert graph.partitions() == []
    best = graph.add_partition("auto", 2, refine=True, time_limit=20)
    assert (best.name, best.id) == ("auto-2-rows", graph.partition("auto-2").id)
    refuses("there is no graph folder", gcnmpi.graph.open, tmp_path / "q.graph")


def test_a_record_is_arrays(tmp_path, monkeypatch):
    lines = [{"event": "start", "graph": "g", "config": {"train": {"epochs": 3}}}]
    for epoch, loss, accuracy in ((1, 1.5, None), (2, 0.5, 0.25)):
        scores = {"epoch": epoch, "loss": loss, "val_accuracy": accuracy}
        lines.append({"event": "epoch", **scores, "seconds": 0.1, "time": float(epoch)})
    file = tmp_path / "run.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = gcnmpi.Run(tmp_path)
    assert (run.finished, run.best_epoch, run.best) == (False, None, {})
    assert run.last == {"epoch": 2, "loss": 0.5, "val_accuracy": 0.25, "seconds": 0.1}
    assert run.epochs["epoch"].dtype == np.int64
    np.testing.assert_array_equal(run.epochs["val_accuracy"], [np.nan, 0.25])
    assert set(run.epochs) == set(run.last)
    monkeypatch.setitem(sys.modules, "pandas", None)
    refuses("pip install pandas", run.epochs_frame)
    file.open("a").write(json.dumps({"event": "end", "best_epoch": 2, "epochs": 2}) + "\n")
    run = gcnmpi.Run(tmp_path)
    assert (run.finished, run.best) == (True, run.last)
    found = run.summary["graph"], run.summary["epochs"], run.config["train"]["epochs"]
    assert found == ("g", 2, 3)
    refuses(r"no weights .*weights\.npz", run.weights)
    for loss in (0.75, 0.5):
        facts = {"format": "gcnmpi-weights", "version": 1, "epoch": 2, "loss": loss}
        write_weights(tmp_path / "weights.npz", {"w": np.ones(2)}, facts)
        if loss == 0.75:
            refuses("does not hold the weights of the last epoch", run.weights)
    assert run.weights()["w"].tolist() == [1, 1]
    refuses("unknown weights 'bset'", run.weights, "bset")
    refuses("cannot read", gcnmpi.Run, tmp_path / "nothing")


def nothing():
    """A function for ranks."""


def test_who_is_no_launcher_and_what_cannot_be_given_to_ranks(monkeypatch):
    for function, ranks, arguments, message in (
        (lambda: None, 2, {}, "within another function|no name"),
        ("nothing", 2, {}, "'nothing' names no function"),
        (nothing, 2, {"x": object()}, r"call\['arguments'\]\['x'\] is a object"),
        (np.sum.__call__, 2, {}, "no function"),
        (nothing, 0, {}, "0 ranks"),
    ):
        refuses(message, gcnmpi.launch, function, ranks, arguments)
    with monkeypatch.context() as patch:
        patch.setenv("PMIX_RANK", "1")
        refuses("launch was called by a rank", gcnmpi.launch, nothing, 2)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(launch, "PYTHON", ("/nowhere/python",))
    refuses("there is no mpirun", gcnmpi.launch, nothing, 2)


@pytest.mark.parametrize(("user", "ranks"), [(0, 2), (1000, 1), (1000, 10**6)])
def test_ranks_of_this_host_start_as_root_and_beyond_the_cores(monkeypatch, user, ranks):
    monkeypatch.setattr("os.geteuid", lambda: user)
    wanted = {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"} if user == 0 else set()
    if ranks > len(os.sched_getaffinity(0)):
        wanted |= {"OMPI_MCA_mpi_yield_when_idle"}
    for name in [name for name in os.environ if name.startswith("OMPI_")]:
        monkeypatch.delenv(name)
    assert {*launch.local_environment(ranks)} - {*os.environ} == wanted
    monkeypatch.setenv("OMPI_MCA_mpi_yield_when_idle", "0")
    assert launch.local_environment(ranks)["OMPI_MCA_mpi_yield_when_idle"] == "0"
