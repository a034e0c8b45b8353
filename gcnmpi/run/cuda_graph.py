"""Whether an epoch can be a CUDA graph: what a device is told once, and repeats (``gpu.graph``).

It can where one rank computes all of it on its device without a look at a number. All of that is
known before the graph is loaded.
"""

from __future__ import annotations

import dataclasses

from gcnmpi.mpi.comm import Comm, agreed
from gcnmpi.nn.tasks.interface import task_of
from gcnmpi.options.config import Config
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.options.train import batches_of
from partition.errors import UserError


def resolve_cuda_graph(comm: Comm, config: Config) -> tuple[Config, list[str]]:
    """The configuration with ``gpu.graph`` either "yes" or "no", and why "auto" became "no".

    On all ranks a UserError if it is "yes" and there can be no graph.
    """
    wanted = config.gpu.graph
    if wanted == "no":
        return config, []
    with agreed(comm):
        why = why_not(config, comm.size)
        if why is not None and wanted == "yes":
            hint = f"{why.hint}, or set gpu.graph=no"
            raise UserError(f"gpu.graph is 'yes', and {why.message}", hint)
    gpu = dataclasses.replace(config.gpu, graph="yes" if why is None else "no")
    warnings = [] if why is None else [f"gpu.graph: epochs are no CUDA graph: {why.message}"]
    return dataclasses.replace(config, gpu=gpu), warnings


def why_not(config: Config, size: int) -> UserError | None:
    """Why an epoch cannot be a graph; None: it can."""
    scheme, task = config.scheme.name, config.task.name
    reasons = (
        (
            config.kernel != "cupy",
            f"kernel {config.kernel!r} does not compute on a GPU", "set kernel=cupy",
        ),
        (size > 1, f"{size} ranks exchange rows within an epoch", "start one rank"),
        (
            batches_of(config.train) is not None,
            "no batch of train.batches is like the one before", "train on all vertices at once",
        ),
        (
            config.gpu.spmm != "own",
            f"CuPy makes no graphs with gpu.spmm = {config.gpu.spmm!r}", "set gpu.spmm=own",
        ),
        (
            not SCHEMES.get(scheme).gives_rows,
            f"the host computes within the products of scheme {scheme!r}", "set scheme.name=p2p",
        ),
        (
            not task_of(config.task).on_device,
            f"the host computes the loss of task {task!r}",
            "give it a loss that kernels have (docs/tasks.md)",
        ),
    )  # fmt: skip
    return next((UserError(why, hint) for is_so, why, hint in reasons if is_so), None)
