"""Exact full-graph inference on any number of ranks, written in the original vertex order."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np

from gcnmpi.comm import Comm, agreed, from_root, slice_of
from gcnmpi.config import Config
from gcnmpi.models import from_state
from gcnmpi.problem import make_model, open_problem
from partition.errors import UserError
from partition.records import make_room_for, read_npz


def infer(
    comm: Comm,
    graph: str | os.PathLike,
    partition: str | None,
    config: Config,
    weights: str | os.PathLike,
    out: str | os.PathLike,
    *,
    layer: int | None = None,
    classes: bool = False,
) -> None:
    """Run a network with given weights over the whole graph and write one row a vertex.

    Parameters
    ----------
    weights : path
        ``.npz`` of GCNConv weights; depth, widths and biases are taken from it, everything else
        (normalisation, direction, …) from the configuration.
    out : path
        ``.npy`` to write, (n, width) of the run's dtype, or (n,) int64 for ``classes``.
    layer : int, optional
        Write the output of this layer, from 1, instead of the logits of the last one.
    classes : bool
        Write the predicted classes.

    Raises
    ------
    UserError
        On all ranks, if the weights do not fit the graph or a file cannot be read or written.
    """
    from_root(comm, lambda: make_room_for(out))
    parameters = from_root(comm, lambda: from_state(read_npz(weights)))
    depth = max(int(name.split(".")[0]) for name in parameters)
    widths = (
        parameters["1.weight"].shape[0],
        *(parameters[f"{k}.weight"].shape[1] for k in range(1, depth + 1)),
    )
    with agreed(comm):
        if layer is not None and not 1 <= layer <= depth:
            raise UserError(f"--layer {layer}: the weights have layers 1 to {depth}")
    model_config = dataclasses.replace(
        config.model, hidden=widths[1:-1], bias="1.bias" in parameters, input_dropout=0.0
    )
    config = dataclasses.replace(config, model=model_config)
    problem = open_problem(comm, graph, partition, config)
    with agreed(comm):
        features = problem.stored.manifest.features
        if features not in (0, widths[0]):
            raise UserError(
                f"{graph} has {features} features a vertex, the weights take {widths[0]}"
            )
    model = make_model(problem, widths)
    model.load_state(parameters)
    rows = model.forward(depth=layer)
    values = problem.kernel.to_host(rows)
    if classes:
        values = problem.scheme.row_argmax(rows)
    write_rows(comm, Path(out), problem.scheme.original_rows(values), problem.stored.graph.n)


def write_rows(comm: Comm, path: Path, rows: np.ndarray, n: int) -> None:
    """Write an (n, …) ``.npy`` together: each rank its contiguous rows, then rank 0 renames it.

    Parameters
    ----------
    rows : array
        Rows ``slice_of(n, rank, size)``.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    shape = (n, *rows.shape[1:])

    def make() -> int:
        try:
            np.lib.format.open_memmap(temporary, mode="w+", dtype=rows.dtype, shape=shape)
            return temporary.stat().st_size - int(np.prod(shape)) * rows.dtype.itemsize
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from error

    header_bytes = from_root(comm, make)
    row_bytes = rows.dtype.itemsize * int(np.prod(rows.shape[1:]))
    with agreed(comm):
        try:
            with open(temporary, "r+b") as file:
                file.seek(header_bytes + slice_of(n, comm.rank, comm.size).start * row_bytes)
                file.write(rows.tobytes())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from error
    from_root(comm, lambda: temporary.replace(path))
