"""A surrogate of the heat equation on a plate with a hole, by scikit-fem and a MeshGraphNet.

    python examples/heat_surrogate.py --samples 200 --ranks 4

solves a step of time from so many temperatures, makes one graph of all of them, trains on four
fifths of it on several ranks, and prints the relative error on solutions that were not seen in
training. docs/meshes.md explains the steps. A fifth of 20 samples, the default, are four.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

import gcnmpi

STEP = 0.01  # of time; the plate is the square −1 … 1
UNIT = 6.0  # features of arcs are ways times this, to be about 1

SETTINGS = {
    "task": {"name": "regression"},
    "model": {"name": "mgn", "hidden": [24], "layers": 5, "mlp_layers": 1},
    "train": {"lr": 0.01, "schedule": "cosine", "warmup": 10, "clip_norm": 1.0, "eval_every": 10},
}


def solutions(samples, cells):
    """Points (n, 2), triangles (m, 3), which points are cold, temperatures before and after."""
    from scipy.sparse import csc_matrix
    from scipy.sparse.linalg import splu
    from skfem import Basis, ElementTriP1, MeshTri, enforce
    from skfem.models.poisson import laplace, mass

    line = np.linspace(-1, 1, cells + 1)
    mesh = MeshTri.init_tensor(line, line)
    middles = mesh.p[:, mesh.t].mean(axis=1)
    mesh = mesh.remove_elements(np.flatnonzero(np.abs(middles).max(axis=0) < 0.25))
    cold = mesh.nodes_satisfying(lambda x: np.abs(x).max(axis=0) < 0.3)

    basis = Basis(mesh, ElementTriP1())
    masses = mass.assemble(basis)
    implicit = enforce(masses + STEP * laplace.assemble(basis), D=cold)

    random = np.random.default_rng(0)
    waves = np.pi * random.uniform(0.5, 3, (4, samples, 2)) @ mesh.p
    before = np.cos(waves + random.uniform(0, 2 * np.pi, (4, samples, 1))).sum(axis=0) / 2
    before[:, cold] = 0
    known = masses @ before.T
    known[cold] = 0
    after = splu(csc_matrix(implicit)).solve(known).T
    return mesh.p.T, mesh.t.T, np.isin(np.arange(len(mesh.p.T)), cold), before, after


def graph_of(samples, cells, folder):
    """One graph of all samples, each a copy of the mesh, in a folder."""
    points, triangles, cold, before, after = solutions(samples, cells)
    ends = triangles[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2)
    ends = np.unique(np.vstack([ends, ends[:, ::-1]]), axis=0)
    way = UNIT * (points[ends[:, 1]] - points[ends[:, 0]])
    of_arcs = np.column_stack([way, np.linalg.norm(way, axis=1)])
    n, unseen = len(points), samples // 5
    sample = np.repeat(np.arange(samples), n)
    return gcnmpi.graph.from_arrays(
        np.concatenate([ends.T + n * number for number in range(samples)], axis=1),
        x=np.column_stack([before.ravel(), np.tile(cold, samples)]),
        targets=after.ravel(),
        arc_features=np.tile(of_arcs, (samples, 1)),
        test_mask=sample < unseen,
        val_mask=(sample >= unseen) & (sample < unseen + max(1, unseen // 2)),
        train_mask=sample >= unseen + max(1, unseen // 2),
        folder=folder,
    )


def learn(graph, partition, settings, out):
    """Train and predict all samples: the same call on every rank; seconds of an epoch."""
    run = gcnmpi.train(graph, partition, config=settings, out=f"{out}/run")
    gcnmpi.infer(graph, run, partition=partition, out=f"{out}/after.npy")
    return float(np.median(run.epochs["seconds"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=20, help="solutions, at least 5")
    parser.add_argument("--cells", type=int, default=12, help="squares along a side of the plate")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=400)
    asked = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        graph = graph_of(asked.samples, asked.cells, Path(folder) / "heat.graph")
        made = graph.add_partition("gp", asked.ranks, objective="vol", name="parts")
        settings = SETTINGS | {"train": SETTINGS["train"] | {"epochs": asked.epochs}}
        told = {"graph": graph, "partition": made.name, "settings": settings, "out": folder}
        seconds = gcnmpi.launch(learn, asked.ranks, told)
        found = np.load(Path(folder) / "after.npy")[:, 0]

        print(f"{graph.n} vertices, {graph.nnz} arcs, {seconds:.3f} s an epoch")
        for name, mask in graph.masks.items():
            after, before = graph.targets[mask, 0], graph.features[mask, 0]
            error, still = (
                np.linalg.norm(given - after) / np.linalg.norm(after)
                for given in (found[mask], before)
            )
            print(f"{name}: relative error {error:.4f}; of no change at all {still:.4f}")


if __name__ == "__main__":
    main()
