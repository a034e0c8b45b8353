"""Exact full-graph inference on any number of ranks, written in the original vertex order."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gcnmpi.core.config import Config
from gcnmpi.core.outputs import features_path
from gcnmpi.halo.matrix import Matrix
from gcnmpi.layout.runtime import Source
from gcnmpi.layout.writing import write_picked
from gcnmpi.mpi.comm import Comm, agreed, from_root, slice_of
from gcnmpi.nn.evaluator import evaluate
from gcnmpi.nn.tasks import TASKS
from gcnmpi.planner.ranking import resolved_direction
from gcnmpi.run.preflight import make_room
from gcnmpi.run.problem import Problem, load_features, open_problem
from gcnmpi.run.room import check_evaluation
from gcnmpi.run.vertices import read_vertices
from gcnmpi.run.weights import Weights, as_trained, check_parameters, read_weights
from partition.errors import UserError
from partition.graph.store import open_graph
from partition.records import atomic_file, map_npy, temporary_name

ROWS_AT_ONCE = 1 << 14  # that are written as text
WHAT = ("logits", "probabilities", "embeddings", "classes")


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
    memory : int
        Bytes that were forecast for the rank that needs most.
    """

    weights: Weights
    config: Config
    direction: str
    shape: tuple[int, ...]
    dtype: np.dtype
    memory: int


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
    what: str = "logits",
    rows: str | os.PathLike | None = None,
    force: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Inference:
    """Run a network with given weights over the whole graph and write one row a vertex.

    Parameters
    ----------
    config : Config
        How to compute. Network, matrix and task are those of the weights, where the file says so:
        see :func:`gcnmpi.run.weights.as_trained`.
    weights : path
        ``.npz`` of ``train --save-weights``, or a file of another program: see
        :func:`gcnmpi.run.weights.read_weights`. Features that were trained are beside it.
    out : path
        File to write, (n, width) of the run's dtype, or (n,) int64 for classes: an array
        (``.npy``), the array ``values`` (``.npz``), or a line a vertex with commas (``.csv``).
    given : container of str
        Keys of the configuration that the user gave, which the weights may not contradict.
    layer : int, optional
        Write the output of this layer, from 1.
    what : {"logits", "probabilities", "embeddings", "classes"}
        Without ``layer``: logits; their softmax, of several labels their sigmoid; the output of the
        layer before; or the column of the largest logit.
    rows : path, optional
        Write the rows of these vertices only, in this order: see
        :func:`gcnmpi.run.vertices.read_vertices`.
    force : bool
        Start although a node has less memory than was forecast.
    tell : callable
        Called on rank 0 with what is to be said before the start.

    Returns
    -------
    Inference

    Raises
    ------
    UserError
        On all ranks, if the weights do not fit the graph or the configuration, a node has too
        little memory, or a file cannot be read or written.
    """

    def read() -> tuple[Weights, Config, int, np.ndarray | None]:
        stored = open_graph(graph, check=False)
        found = read_weights(weights, config, given)
        taken = as_trained(found, config, given, resolved_direction(stored, config))
        features = stored.manifest.features
        if not taken.model.train_features and features not in (0, found.widths[0] or features):
            raise UserError(
                f"{graph} has {features} features a vertex, the weights take {found.widths[0]}"
            )
        if taken.model.train_features:
            _trained_features(features_path(weights), (stored.manifest.n, found.widths[0]))
        depth = _depth(found, layer, what)
        _check_logits(taken, what)
        return found, taken, depth, None if rows is None else read_vertices(stored, Path(rows))

    make_room(comm, Path(out), "--out")
    found, config, depth, picked = from_root(comm, read)
    trained = config.model.train_features
    given_features = dataclasses.replace(config.model, input_dropout=0.0, train_features=False)
    config = dataclasses.replace(config, model=given_features)
    ends = found.widths[0], found.widths[-1]
    memory = 0

    def before(source: Source, config: Config) -> None:
        nonlocal memory
        memory = check_evaluation(comm, source, config, ends, depth, force, tell)

    problem = open_problem(comm, graph, partition, config, ends, trains=False, before=before)
    if trained:
        problem = _with_features(problem, features_path(weights), found.widths[0])
    with agreed(comm):
        check_parameters(found, problem.network)
    result = evaluate(
        problem.scheme, problem.kernel, problem.network, problem.program, problem.stored.graph.n,
        found.parameters, [load_features(problem)], depth,
    )  # fmt: skip
    values = _wanted(problem, result, depth, what)
    n = _write(problem, Path(out), result, values, depth, picked)
    direction = problem.direction
    return Inference(
        found, problem.config, direction, (n, *_columns(problem, values, depth)), values.dtype,
        memory,
    )  # fmt: skip


def _depth(weights: Weights, layer: int | None, what: str) -> int:
    """The layer whose output is written."""
    depth = len(weights.widths) - 1
    if layer is not None and not 1 <= layer <= depth:
        raise UserError(f"--layer {layer}: the weights have layers 1 to {depth}")
    if what == "embeddings" and depth == 1:
        raise UserError(
            "--what embeddings: the network has no layer before the one that gives the logits"
        )
    return layer or (depth - 1 if what == "embeddings" else depth)


def _check_logits(config: Config, what: str) -> None:
    """A UserError if the output of the network has none of what is wanted."""
    task = config.task.name
    if what in ("probabilities", "classes") and TASKS.get(task).probabilities is None:
        raise UserError(
            f"--what {what}: the network was trained for {task}, and its output has no {what}",
            "--what logits writes its output as it is",
        )


def _wanted(problem: Problem, result: Matrix, depth: int, what: str) -> np.ndarray:
    """This rank's piece of what is written, on the host."""
    kernel, scheme, k = problem.kernel, problem.scheme, result.place.layer
    if what == "classes":
        return scheme.row_argmax(k, result.array, problem.network.widths[depth])
    if what == "probabilities":
        probabilities = TASKS.get(problem.config.task.name).probabilities
        assert probabilities is not None, "checked before the start"
        return probabilities(scheme, kernel, k, result.array)
    return kernel.to_host(result.array)


def _write(
    problem: Problem,
    path: Path,
    result: Matrix,
    values: np.ndarray,
    depth: int,
    picked: np.ndarray | None,
) -> int:
    """Write what is wanted of all vertices or of some, in slices; returns how many rows it has."""
    comm, scheme, n = problem.comm, problem.scheme, problem.stored.graph.n
    max_bytes = problem.config.loading.max_buffer_mb * 2**20
    width = problem.network.widths[depth]
    if scheme.whole_rows:
        block = scheme.block(result.place, width)
        own = block.rows if block.copy == 0 else block.rows[:0]
    else:
        values = scheme.original(result.place, values, width)
        mine = slice_of(n, comm.rank, comm.size)
        own = np.arange(mine.start, mine.stop)
    numbers, places = own, np.arange(len(own))
    if picked is not None:
        numbers, places = _picked(own, picked)
        n = len(picked)
    whole = path if path.suffix == ".npy" else from_root(comm, lambda: temporary_name(path))
    write_picked(comm, whole, numbers, places, values, n, max_bytes)
    if whole is path:
        return n
    try:
        from_root(comm, lambda: _convert(whole, path))
    finally:
        if comm.rank == 0:
            whole.unlink(missing_ok=True)
    return n


def _picked(own: np.ndarray, picked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of the picked vertices are own ones: their numbers in ``picked``, and in ``own``."""
    order = np.argsort(own)
    places = np.searchsorted(own, picked, sorter=order)
    inside = np.flatnonzero(places < len(own))
    inside = inside[own[order[places[inside]]] == picked[inside]]
    return inside, order[places[inside]]


def _columns(problem: Problem, values: np.ndarray, depth: int) -> tuple[int, ...]:
    return () if values.ndim == 1 else (problem.network.widths[depth],)


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
