"""Exact full-graph inference on any number of ranks, written in the original vertex order."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from gcnmpi.comm import Comm, agreed, from_root
from gcnmpi.config import Config
from gcnmpi.loading import write_rows
from gcnmpi.models import from_state
from gcnmpi.problem import Problem, features_path, make_model, open_problem
from gcnmpi.schemes.interface import Place
from partition.errors import UserError
from partition.records import make_room_for, map_npy, read_npz


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
        ``.npz`` of GCNConv weights, with trained features beside it where the configuration has
        ``model.train_features``; depth, widths and biases are taken from it, everything else
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
        config.model, hidden=widths[1:-1], bias="1.bias" in parameters, input_dropout=0.0,
        train_features=False,
    )  # fmt: skip
    trained = config.model.train_features
    config = dataclasses.replace(config, model=model_config)
    problem = open_problem(comm, graph, partition, config)
    if trained:
        problem = _with_features(problem, features_path(weights))
    with agreed(comm):
        array = problem.stored.graph.features
        features = 0 if array is None else array.shape[1]
        if features not in (0, widths[0]):
            raise UserError(
                f"{graph} has {features} features a vertex, the weights take {widths[0]}"
            )
    model = make_model(problem, widths)
    model.load_state(parameters)
    rows = model.forward(depth=layer)
    values, k = problem.kernel.to_host(rows), layer or depth
    if classes:
        values = problem.scheme.row_argmax(k, rows, widths[k])
    whole = problem.scheme.original(Place(k), values, widths[k])
    write_rows(comm, Path(out), whole, problem.stored.graph.n)


def _with_features(problem: Problem, path: Path) -> Problem:
    """The problem with features that were trained, which are as the network takes them."""
    with agreed(problem.comm):
        n = problem.stored.graph.n
        try:
            features = map_npy(path)
        except UserError as error:
            raise UserError(
                f"cannot read the trained features: {error.message}",
                "they are written beside --save-weights by runs with model.train_features",
            ) from error
        if features.ndim != 2 or len(features) != n or features.dtype.kind != "f":
            raise UserError(f"{path} is not one row of numbers for each of {n} vertices")
    graph = dataclasses.replace(problem.stored.graph, features=features)
    as_given = dataclasses.replace(problem.config.graph, feature_norm="none")
    return dataclasses.replace(
        problem,
        stored=dataclasses.replace(problem.stored, graph=graph),
        config=dataclasses.replace(problem.config, graph=as_given),
    )
