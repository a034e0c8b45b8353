"""Under mpirun: the examples of docs/adding-a-{kernel,scheme}.md, registered and trained.

Usage: examples.py FOLDER GRAPH PARTITION NAME...

FOLDER holds the examples as panels.py and local.py; NAME is "kernel" or "scheme".
"""

import sys
from pathlib import Path

import numpy as np

from gcnmpi.core.config import from_table
from gcnmpi.kernels import KERNELS
from gcnmpi.mpi import comm as mpi
from gcnmpi.run.problem import open_problem
from gcnmpi.run.trainer import train
from gcnmpi.schemes import SCHEMES


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


CHECKS = {"kernel": check_kernel, "scheme": check_scheme}


def main(comm) -> int:
    sys.path.insert(0, sys.argv[1])
    KERNELS.entries["panels"] = "panels:PanelKernel"
    SCHEMES.entries["local"] = "local:ENTRY"
    for name in sys.argv[4:]:
        CHECKS[name](comm)
    if comm.rank == 0:
        print(f"{len(sys.argv[4:])} examples work")
    return 0


if __name__ == "__main__":
    mpi.run(main)
