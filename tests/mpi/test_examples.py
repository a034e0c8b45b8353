"""The examples of networks with states of arcs: a network in a file, and surrogates of heat."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import Delaunay
from stored_graphs import with_uneven_parts
from words import line

import gcnmpi

EXAMPLES = Path(__file__).parents[2] / "examples"
EGNN = (f"model.name={EXAMPLES / 'egnn.py'}:egnn", "model.hidden=8,8", "task.name=regression")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A triangulation, and the same one turned; partitions uneven-1 to uneven-3."""
    folder, rng = tmp_path_factory.mktemp("meshes"), np.random.default_rng(0)
    points = rng.random((70, 2))
    ends = Delaunay(points).simplices[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2)
    ends = np.unique(np.vstack([ends, ends[:, ::-1]]), axis=0)
    masks = {"train_mask": np.arange(70) < 40, "val_mask": np.arange(70) >= 40}
    data = {"x": rng.standard_normal((70, 2)), "targets": rng.standard_normal(70), **masks}
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    for name, where in (("mesh", points), ("turned", points @ turn)):
        data["arc_features"] = 4 * (where[ends[:, 1]] - where[ends[:, 0]])
        gcnmpi.graph.from_arrays(ends.T, **data, folder=folder / f"{name}.graph")
        with_uneven_parts(folder / f"{name}.graph", (1, 2, 3), mixed=False)
    return folder


def test_a_network_with_states_of_arcs_in_a_file_is_that_of_one_process(verified, folder):
    path, settings = folder / "mesh.graph", ["train.epochs=3", "model.dropout=0.2", *EGNN]
    cases = [(path, "uneven-3", [*settings, "train.memory=least"]), (path, "uneven-3", settings)]
    cases.append((path, None, [*settings, "scheme.name=bcast"]))
    verified(3, cases, "loss curve", "first gradient", "training bytes", "halo dot test")


def test_turning_a_graph_changes_nothing_that_is_inferred(succeed, hear_mistakes, folder):
    """On any number of ranks; of a graph with other features of arcs, nothing is."""
    weights, other = folder / "w.npz", folder / "other.graph"
    own = {"partition": "uneven-3", "settings": (*EGNN, "train.epochs=5"), "out": folder / "run"}
    succeed(3, line("train", folder / "mesh.graph", save_weights=weights, **own))
    found = []
    for nranks, kind in ((1, "mesh"), (3, "mesh"), (2, "turned")):
        given = {"weights": weights, "settings": EGNN, "out": folder / f"{kind}-{nranks}.npy"}
        placed = {"partition": f"uneven-{nranks}"}
        succeed(nranks, line("infer", folder / f"{kind}.graph", **given, **placed))
        found.append(np.load(given["out"]))
    np.testing.assert_allclose(found[1:], [found[0]] * 2, atol=1e-5)
    gcnmpi.graph.from_arrays([[0], [1]], np.eye(2), y=[0, 1], arc_features=[[1.0]], folder=other)
    hear_mistakes(1, [(line("infer", other, **given), "has 1 features an arc, the weights take 2")])


@pytest.mark.nightly
@pytest.mark.skipif(find_spec("skfem") is None, reason="scikit-fem is not installed")
def test_surrogates_of_heat_at_rest_and_carried_learn(shell):
    script = EXAMPLES / "heat_surrogate.py"
    done = shell(f"silent python {script} --samples 5 --cells 8 --epochs 40", timeout=120)
    (test,) = [text for text in done.stdout.splitlines() if text.startswith("test: ")]
    error, still = (float(words.split()[-1]) for words in test.split(";"))
    assert error < still / 1.5
    words = "--snapshots 60 --cells 6 --epochs 2 --ranks 2 --groups 2"
    done = shell(f"silent python {EXAMPLES / 'advection.py'} {words}", timeout=120)
    lines = [text for text in done.stdout.splitlines() if "after" in text]
    errors = [float(text.partition("error ")[2].partition(";")[0]) for text in lines]
    assert len(errors) == 6
    assert np.isfinite(errors).all()
    assert errors[0] < errors[2]
