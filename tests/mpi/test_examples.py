"""The examples of networks with states of arcs: a network in a file, and a surrogate of heat."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import Delaunay
from stored_graphs import with_uneven_parts

import gcnmpi

EXAMPLES = Path(__file__).parents[2] / "examples"
EGNN = [f"model.name={EXAMPLES / 'egnn.py'}:egnn", "model.hidden=8,8", "task.name=regression"]
SETTINGS = [word for setting in EGNN for word in ("--set", setting)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A triangulation, and the same one turned; partitions uneven-1 to uneven-3."""
    folder, rng = tmp_path_factory.mktemp("meshes"), np.random.default_rng(0)
    points = rng.random((70, 2))
    ends = Delaunay(points).simplices[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2)
    ends = np.unique(np.vstack([ends, ends[:, ::-1]]), axis=0)
    x, y = rng.standard_normal((70, 2)), rng.standard_normal(70)
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    for name, where in (("mesh", points), ("turned", points @ turn)):
        graph = gcnmpi.graph.from_arrays(
            ends.T,
            x,
            targets=y,
            arc_features=4 * (where[ends[:, 1]] - where[ends[:, 0]]),
            train_mask=np.arange(70) < 40,
            val_mask=np.arange(70) >= 40,
            folder=folder / f"{name}.graph",
        )
        with_uneven_parts(graph.path, (1, 2, 3), mixed=False)
    return folder


def test_a_network_with_states_of_arcs_in_a_file_is_that_of_one_process(verified, folder):
    path, settings = folder / "mesh.graph", ["train.epochs=3", "model.dropout=0.2", *EGNN]
    cases = [(path, "uneven-3", [*settings, "train.memory=least"]), (path, "uneven-3", settings)]
    cases.append((path, None, [*settings, "scheme.name=bcast"]))
    verified(3, cases, "loss curve", "first gradient", "training bytes", "halo dot test")


def test_it_is_trained_planned_and_inferred(gcnmpi_lines, hear_mistakes, mpirun, folder):
    graph, weights = folder / "mesh.graph", folder / "w.npz"
    train = ["train", graph, "--partition", "uneven-3", *SETTINGS, "--set", "train.epochs=5",
             "--out", folder / "run", "--save-weights", weights]  # fmt: skip
    assert gcnmpi_lines(3, [train]) == [[None] * 3]
    for nranks, kind in ((1, "mesh"), (3, "mesh"), (2, "turned")):
        infer = ["infer", folder / f"{kind}.graph", "--partition", f"uneven-{nranks}", *SETTINGS,
                 "--weights", weights, "--out", folder / f"{kind}-{nranks}.npy"]  # fmt: skip
        assert gcnmpi_lines(nranks, [infer]) == [[None] * nranks]
    alone, *others = (np.load(folder / f"{name}.npy") for name in ("mesh-1", "mesh-3", "turned-2"))
    for other in others:
        np.testing.assert_allclose(other, alone, atol=1e-5)
    other = folder / "other.graph"
    gcnmpi.graph.from_arrays([[0], [1]], np.eye(2), y=[0, 1], arc_features=[[1.0]], folder=other)
    words = ["infer", other, *SETTINGS, "--weights", weights, "--out", folder / "none.npy"]
    hear_mistakes(1, [(words, "has 1 features an arc, the weights take 2")])
    plan = mpirun(1, "gcnmpi", "plan", graph, "-P", "3", *SETTINGS, "--partition", "uneven-3")
    assert "uneven-3" in plan.stdout
    assert "looks at whole rows of neighbours" in " ".join(plan.stdout.split())


@pytest.mark.nightly
@pytest.mark.skipif(find_spec("skfem") is None, reason="scikit-fem is not installed")
def test_the_surrogate_of_heat_learns(shell):
    script = EXAMPLES / "heat_surrogate.py"
    done = shell(f"silent python {script} --samples 5 --cells 8 --epochs 40", timeout=120)
    (test,) = [line for line in done.stdout.splitlines() if line.startswith("test: ")]
    error, still = (float(words.split()[-1]) for words in test.split(";"))
    assert error < still / 1.5


@pytest.mark.nightly
@pytest.mark.skipif(find_spec("skfem") is None, reason="scikit-fem is not installed")
def test_rollouts_of_carried_heat_are_predicted(shell):
    script = EXAMPLES / "advection.py"
    words = "--snapshots 60 --cells 6 --epochs 2 --ranks 2 --groups 2"
    done = shell(f"silent python {script} {words}", timeout=120)
    lines = [line for line in done.stdout.splitlines() if "after" in line]
    assert len(lines) == 6
    errors = [float(line.partition("error ")[2].partition(";")[0]) for line in lines]
    assert np.isfinite(errors).all()
    assert errors[0] < errors[2]
