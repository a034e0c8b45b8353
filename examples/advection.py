"""Heat that is carried around and spreads: rollouts of a surrogate, by scikit-fem.

    python examples/advection.py --snapshots 500 --ranks 2 --groups 1

solves ∂u/∂t + b·∇u = κ·Δu on a square, with b a whirl, from several starts; trains a MeshGraphNet
to predict the next state, once for one step and once for rollouts, in which it is applied to what
it predicted; and prints the error after 1, 10 and 50 steps relative to the size of the states, on
a start that was not seen in training. docs/samples.md explains the parts.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

import gcnmpi

STEP, SPREAD = 0.02, 0.002  # of time; κ
LEADS = 50
SETTINGS = {
    "task": {"name": "samples", "batch": 8, "difference": True},
    "model": {"name": "mgn", "hidden": [32], "layers": 4, "mlp_layers": 1},
    "train": {"lr": 0.003, "schedule": "cosine", "warmup": 1, "clip_norm": 1.0},
}


def solutions(snapshots, runs, cells):
    """Points (n, 2), triangles (m, 3), and states (runs · snapshots, n, 1), run after run."""
    from scipy.sparse import csc_matrix
    from scipy.sparse.linalg import splu
    from skfem import Basis, BilinearForm, ElementTriP1, MeshTri
    from skfem.helpers import dot, grad
    from skfem.models.poisson import laplace, mass

    @BilinearForm
    def carried(u, v, w):
        x, y = w.x
        whirl = np.stack([-np.sin(np.pi * x) * np.cos(np.pi * y),
                          np.cos(np.pi * x) * np.sin(np.pi * y)])  # fmt: skip
        return dot(whirl, grad(u)) * v

    line = np.linspace(0, 1, cells + 1)
    mesh = MeshTri.init_tensor(line, line)
    basis = Basis(mesh, ElementTriP1())
    masses = mass.assemble(basis)
    moved = carried.assemble(basis) + SPREAD * laplace.assemble(basis)
    solver = splu(csc_matrix(masses + STEP / 2 * moved))
    random, states = np.random.default_rng(0), []
    for _ in range(runs):
        middles = random.uniform(0.2, 0.8, (5, 2, 1))
        heights = random.uniform(-1, 1, (5, 1))
        apart = ((mesh.p[None] - middles) ** 2).sum(axis=1)
        u = (heights * np.exp(-apart / 0.01)).sum(axis=0)
        for _ in range(snapshots):
            states.append(u)
            u = solver.solve(masses @ u - STEP / 2 * (moved @ u))
    return mesh.p.T, mesh.t.T, np.array(states)[:, :, None]


def graph_of(asked, folder):
    """The mesh as a graph, with the ways along its arcs, and the states as samples of it."""
    runs = 10
    snapshots = asked.snapshots // runs
    points, triangles, states = solutions(snapshots + LEADS, runs, asked.cells)
    ends = triangles[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2)
    ends = np.unique(np.vstack([ends, ends[:, ::-1]]), axis=0)
    way = asked.cells * (points[ends[:, 1]] - points[ends[:, 0]])
    of_arcs = np.column_stack([way, np.linalg.norm(way, axis=1)])
    graph = gcnmpi.graph.from_arrays(
        ends.T, x=2 * points - 1, arc_features=of_arcs, folder=folder / "square.graph"
    )
    each = snapshots + LEADS
    borders = [(run * each, run * each + snapshots) for run in range(runs)]
    ranges = {
        "train": borders[:-2],
        "val": borders[-2:-1],
        "test": [((runs - 1) * each, runs * each)],
    }
    graph.add_samples(states.astype(np.float32), ranges=ranges)
    return graph, states


def learn(graph, partition, settings, out):
    """Train, and predict 50 steps from each state of the start that was not seen."""
    run = gcnmpi.train(graph, partition, config=settings, out=f"{out}/run")
    rollout = {"task": {"name": "samples", "rollout": LEADS, "batch": settings["train"]["groups"]}}
    gcnmpi.infer(
        graph, run, partition=partition, samples="test", out=f"{out}/predicted.npy",
        config=rollout | {"train": {"groups": settings["train"]["groups"]}},
    )  # fmt: skip
    return float(np.median(run.epochs["seconds"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--snapshots", type=int, default=100, help="of all ten starts together")
    parser.add_argument("--cells", type=int, default=10, help="cells along a side of the square")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rollout", type=int, default=3)
    asked = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graph, states = graph_of(asked, folder)
        made = graph.add_partition("gp", asked.ranks // asked.groups, name="parts")
        for rollout in (1, asked.rollout):
            train = SETTINGS["train"] | {"epochs": asked.epochs, "groups": asked.groups}
            task = SETTINGS["task"] | {"rollout": rollout}
            settings = SETTINGS | {"train": train, "task": task}
            out = folder / f"rollout-{rollout}"
            told = {"graph": graph, "partition": made.name, "settings": settings, "out": out}
            seconds = gcnmpi.launch(learn, asked.ranks, told)
            found = np.load(out / "predicted.npy")  # (samples, n, steps)
            steps = np.load(out / "predicted.steps.npy")
            print(f"trained on rollouts of {rollout}, {seconds:.3f} s an epoch:")
            for lead in (1, 10, LEADS):
                truth = states[steps + lead, :, 0]
                error = np.linalg.norm(found[:, :, lead - 1] - truth) / np.linalg.norm(truth)
                still = np.linalg.norm(states[steps, :, 0] - truth) / np.linalg.norm(truth)
                print(f"  after {lead:2} steps: error {error:.4f}; of no change at all {still:.4f}")


if __name__ == "__main__":
    main()
