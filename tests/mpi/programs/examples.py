"""Under mpirun: the examples of docs/adding-a-{kernel,model,scheme}.md, registered and trained.

Usage: examples.py FOLDER GRAPH PARTITION NAME...

FOLDER holds the examples as panels.py, sgc.py and local.py; NAME is "kernel", "model" or "scheme".
"""

import sys
from pathlib import Path

import numpy as np
import pytest

from gcnmpi.core.config import MODELS, from_table
from gcnmpi.kernels import KERNELS
from gcnmpi.layout.place import Place
from gcnmpi.mpi import comm as mpi
from gcnmpi.mpi.comm import slice_of
from gcnmpi.planner.costmodel import workload
from gcnmpi.proof.verify import verify
from gcnmpi.run.inference import infer
from gcnmpi.run.problem import open_problem
from gcnmpi.run.trainer import Step, train
from gcnmpi.run.weights import save_weights
from gcnmpi.schemes import SCHEMES
from partition.errors import UserError


def prepare(comm, **settings):
    table = {
        "dtype": "float64",
        "kernel": "scipy",
        "model": {"hidden": [12, 5], "dropout": 0.3},
        "train": {"epochs": 5},
    }
    partition = sys.argv[3] if comm.size > 1 else None
    return open_problem(comm, Path(sys.argv[2]), partition, from_table(table | settings))


def losses(result):
    return [epoch.loss for epoch in result.epochs]


def check_kernel(comm):
    expected, found = train(prepare(comm)), train(prepare(comm, kernel="panels"))
    np.testing.assert_allclose(losses(found), losses(expected), rtol=1e-12)


def check_scheme(comm):
    expected, found = train(prepare(comm)), train(prepare(comm, scheme={"name": "local"}))
    np.testing.assert_allclose(losses(found), losses(expected), rtol=1e-12)


def check_model(comm):
    model = {"name": "sgc", "hidden": [1]}
    result = train(prepare(comm, model=model, train={"epochs": 60, "lr": 0.1}))
    assert result.epochs[-1].loss < 0.5 * result.epochs[0].loss
    assert result.epochs[-1].test_accuracy > 0.9
    assert not any(result.end["bytes_sent"])
    assert result.end["bytes_sent"] == result.end["bytes_predicted"]

    # The file of weights brings the network back; what would describe a gcn says that it cannot.
    file, out = Path(sys.argv[1]) / "w.npz", Path(sys.argv[1]) / "y.npy"
    problem = prepare(comm, model=model | {"hidden": [12, 5]})
    partition = sys.argv[3] if comm.size > 1 else None
    result = train(problem)
    save_weights(file, problem, result.model, result.model.parameters.flat)
    infer(comm, sys.argv[2], partition, from_table({"dtype": "float64"}), file, out)
    logits = result.model.forward()
    mine = problem.scheme.original(Place(1), logits, logits.shape[1])
    rows = slice_of(len(problem.stored.graph.indptr) - 1, comm.rank, comm.size)
    np.testing.assert_allclose(np.load(out)[rows], mine, rtol=1e-12)
    for command in (
        lambda: verify(comm, sys.argv[2], partition, problem.config),
        lambda: workload(problem.stored, problem.config),
    ):
        with pytest.raises(UserError, match="does not know model 'sgc'"):
            command()

    step = Step(prepare(comm, model=model))
    weights, h = step.model.parameters.flat, 1e-6
    gradient = step.gradient(1)[1].copy()
    start, towards = weights.copy(), np.random.default_rng(0).standard_normal(len(weights))
    sides = []
    for shift in (h, -h):
        weights[...] = start + shift * towards
        sides.append(step.gradient(1)[0])
    np.testing.assert_allclose((sides[0] - sides[1]) / (2 * h), gradient @ towards, rtol=1e-6)


CHECKS = {"kernel": check_kernel, "model": check_model, "scheme": check_scheme}


def main(comm) -> int:
    sys.path.insert(0, sys.argv[1])
    KERNELS.entries["panels"] = "panels:PanelKernel"
    MODELS.entries["sgc"] = "sgc:SGC"
    SCHEMES.entries["local"] = "local:ENTRY"
    for name in sys.argv[4:]:
        CHECKS[name](comm)
    if comm.rank == 0:
        print(f"{len(sys.argv[4:])} examples work")
    return 0


if __name__ == "__main__":
    mpi.run(main)
