"""Exact full-graph inference on any number of ranks, written in the original vertex order."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gcnmpi.core.config import Config
from gcnmpi.core.outputs import features_path
from gcnmpi.layout.loading import write_rows
from gcnmpi.mpi.comm import Comm, agreed, from_root
from gcnmpi.planner.ranking import resolved_direction
from gcnmpi.run.preflight import make_room
from gcnmpi.run.problem import Problem, make_model, open_problem
from gcnmpi.run.weights import Weights, as_trained, check_parameters, read_weights
from partition.errors import UserError
from partition.graph.store import open_graph
from partition.records import atomic_file, map_npy, temporary_name

ROWS_AT_ONCE = 1 << 14  # that are written as text


@dataclass(frozen=True)
class Inference:
    """What was computed.

    Attributes
    ----------
    weights : Weights
    config : Config
        With the network and the matrix that were taken.
    direction : {"in", "out"}
        Direction of the matrix.
    shape : tuple of int
    dtype : dtype
        Type of the numbers that were written.
    """

    weights: Weights
    config: Config
    direction: str
    shape: tuple[int, ...]
    dtype: np.dtype


def infer(
    comm: Comm,
    graph: str | os.PathLike,
    partition: str | None,
    config: Config,
    weights: str | os.PathLike,
    out: str | os.PathLike,
    *,
    given: Container[str] = (),
    layer: int | None = None,
    classes: bool = False,
) -> Inference:
    """Run a network with given weights over the whole graph and write one row a vertex.

    Parameters
    ----------
    config : Config
        How to compute. Network and matrix are those of the weights, where the file says so: see
        :func:`gcnmpi.run.weights.as_trained`.
    weights : path
        ``.npz`` of ``train --save-weights``, or of PyTorch Geometric's GCNConv layers; features
        that were trained are beside it.
    out : path
        File to write, (n, width) of the run's dtype, or (n,) int64 for ``classes``: an array
        (``.npy``), the array ``values`` (``.npz``), or a line a vertex with commas (``.csv``).
    given : container of str
        Keys of the configuration that the user gave, which the weights may not contradict.
    layer : int, optional
        Write the output of this layer, from 1, instead of the logits of the last one.
    classes : bool
        Write the predicted classes.

    Returns
    -------
    Inference

    Raises
    ------
    UserError
        On all ranks, if the weights do not fit the graph or the configuration, or a file cannot
        be read or written.
    """

    def read() -> tuple[Weights, Config]:
        stored = open_graph(graph, check=False)
        found = read_weights(weights, config)
        taken = as_trained(found, config, given, resolved_direction(stored, config))
        features = stored.manifest.features
        if not taken.model.train_features and features not in (0, found.widths[0] or features):
            raise UserError(
                f"{graph} has {features} features a vertex, the weights take {found.widths[0]}"
            )
        depth = len(found.widths) - 1
        if layer is not None and not 1 <= layer <= depth:
            raise UserError(f"--layer {layer}: the weights have layers 1 to {depth}")
        if taken.model.train_features:
            _trained_features(features_path(weights), (stored.manifest.n, found.widths[0]))
        return found, taken

    make_room(comm, Path(out), "--out")
    found, config = from_root(comm, read)
    trained = config.model.train_features
    given_features = dataclasses.replace(config.model, input_dropout=0.0, train_features=False)
    config = dataclasses.replace(config, model=given_features)
    ends = found.widths[0], found.widths[-1]
    problem = open_problem(comm, graph, partition, config, ends)
    if trained:
        problem = _with_features(problem, features_path(weights), found.widths[0])
    model = make_model(problem)
    with agreed(comm):
        check_parameters(found, model)
        if layer is not None and layer > model.depth:
            raise UserError(f"--layer {layer}: the network has layers 1 to {model.depth}")
    model.load_state(found.parameters)
    rows = model.forward(depth=layer)
    place, width = model.output_place(layer or model.depth), model.widths[layer or model.depth]
    values = problem.kernel.to_host(rows)
    if classes:
        values = problem.scheme.row_argmax(place.layer, rows, width)
    whole = problem.scheme.original(place, values, width)
    _write(comm, Path(out), whole, problem.stored.graph.n)
    shape = (problem.stored.graph.n, *whole.shape[1:])
    return Inference(found, problem.config, problem.direction, shape, whole.dtype)


def _with_features(problem: Problem, path: Path, width: int) -> Problem:
    """The problem with features that were trained, which are as the network takes them."""
    with agreed(problem.comm):
        features = _trained_features(path, (problem.stored.graph.n, width))
    graph = dataclasses.replace(problem.stored.graph, features=features)
    as_given = dataclasses.replace(problem.config.graph, feature_norm="none")
    return dataclasses.replace(
        problem,
        stored=dataclasses.replace(problem.stored, graph=graph),
        config=dataclasses.replace(problem.config, graph=as_given),
    )


def _trained_features(path: Path, shape: tuple[int, int]) -> np.ndarray:
    try:
        features = map_npy(path)
    except UserError as error:
        raise UserError(
            f"cannot read the trained features: {error.message}",
            "they are written beside --save-weights by runs with model.train_features",
        ) from error
    if features.shape != shape or features.dtype.kind != "f":
        n, width = shape
        raise UserError(f"{path} is not one row of {width} numbers for each of {n} vertices")
    return features


def _write(comm: Comm, path: Path, rows: np.ndarray, n: int) -> None:
    """Write an array as its name says: all ranks together, then rank 0 in another format."""
    if path.suffix == ".npy":
        write_rows(comm, path, rows, n)
        return
    whole = from_root(comm, lambda: temporary_name(path))
    write_rows(comm, whole, rows, n)
    try:
        from_root(comm, lambda: _convert(whole, path))
    finally:
        if comm.rank == 0:
            whole.unlink(missing_ok=True)


def _convert(source: Path, path: Path) -> None:
    values = map_npy(source)
    if path.suffix == ".npz":
        with atomic_file(path) as file:
            np.savez(file, values=values)
        return
    # As many digits as bring back the same number.
    number = {"f4": "%.9g", "f8": "%.17g"}.get(values.dtype.str[1:], "%d")
    with atomic_file(path, "w") as file:
        for start in range(0, len(values), ROWS_AT_ONCE):
            np.savetxt(file, values[start : start + ROWS_AT_ONCE], number, ",")
