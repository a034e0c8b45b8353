"""Exact full-graph inference on any number of ranks, written in the original vertex order."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi.halo.matrix import Matrix
from gcnmpi.layout.runtime import Source, resolved_direction
from gcnmpi.mpi.comm import Comm, agreed, from_root, slice_of
from gcnmpi.nn.evaluator import evaluate
from gcnmpi.options.config import Config
from gcnmpi.options.outputs import RESULT_WRITERS, features_path
from gcnmpi.options.task import TASKS
from gcnmpi.run.preflight import make_room
from gcnmpi.run.problem import Problem, load_features, open_problem
from gcnmpi.run.room import check_evaluation
from gcnmpi.run.vertices import picked_vertices
from gcnmpi.run.weights import Weights, as_trained, check_parameters, read_weights
from gcnmpi.run.writing import Rows, on_root, write
from partition.errors import UserError, unknown_name
from partition.graph.store import open_graph
from partition.records import map_npy

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
    values : array or None
        On rank 0, where nothing was to be written.
    warnings : tuple of str
        For the user, those about cores last.
    """

    weights: Weights
    config: Config
    direction: str
    shape: tuple[int, ...]
    dtype: np.dtype
    memory: int
    values: np.ndarray | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Computed:
    """The output of a layer on the ranks.

    Attributes
    ----------
    problem : Problem
    weights : Weights
    result : Matrix
    depth : int
        The layer, from 1.
    picked : (m,) int64 or None
        The vertices that are wanted.
    memory : int
        Bytes that were forecast for the rank that needs most.
    """

    problem: Problem
    weights: Weights
    result: Matrix
    depth: int
    picked: np.ndarray | None
    memory: int


def infer(
    comm: Comm,
    graph: str | os.PathLike,
    partition: str | None,
    config: Config,
    weights: str | os.PathLike,
    out: str | os.PathLike | None,
    *,
    what: str = "logits",
    **options: Any,
) -> Inference:
    """Run a network with given weights over the whole graph: one row a vertex.

    Parameters
    ----------
    graph, partition, config, weights, options
        See :func:`compute`.
    out : path or None
        File to write, (n, width) of the run's dtype, or (n,) int64 for classes: an array
        (``.npy``), the array ``values`` (``.npz``), a line a vertex with commas (``.csv``), or
        columns (``.parquet``): see :mod:`gcnmpi.run.results`. Tables have the names of classes,
        where the graph knows them; an ``.npz`` has them beside their numbers, in ``class_names``.
        None: rank 0 gets the array.
    what : {"logits", "probabilities", "embeddings", "classes"}
        Without ``layer``: logits; their softmax, of several labels their sigmoid; the output of the
        layer before; or the column of the largest logit.

    Raises
    ------
    UserError
        As :func:`compute`; or if the file cannot be written.
    """
    if out is not None:
        with agreed(comm):  # a library that is missing is told before the work
            if Path(out).suffix in RESULT_WRITERS:
                RESULT_WRITERS.get(Path(out).suffix)
        make_room(comm, Path(out), "--out")
    done = compute(comm, graph, partition, config, weights, what=what, **options)
    problem = done.problem
    values = _wanted(problem, done.result, done.depth, what)
    rows = _rows(done, values)
    max_bytes = problem.config.loading.max_buffer_mb * 2**20
    whole = None
    if out is None:
        whole = on_root(comm, rows, max_bytes)
    else:
        named: dict[str, Any] = {}
        names = problem.source.stored.graph.class_names
        if what == "classes" and names is not None and len(names) == done.weights.widths[-1]:
            named = {"names": names, "arrays": {"class_names": np.array(names)}}
        write(comm, Path(out), rows, problem.source.stored.graph.ids, max_bytes, **named)
    return Inference(
        done.weights, problem.config, problem.source.direction, rows.shape, rows.values.dtype,
        done.memory, whole, problem.told,
    )  # fmt: skip


def compute(
    comm: Comm,
    graph: str | os.PathLike,
    partition: str | None,
    config: Config,
    weights: str | os.PathLike,
    *,
    given: Container[str] = (),
    layer: int | None = None,
    what: str = "logits",
    rows: Path | np.ndarray | None = None,
    force: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Computed:
    """The output of a layer of a network with given weights, on the whole graph.

    Parameters
    ----------
    config : Config
        How to compute. Network, matrix and task are those of the weights, where the file says so:
        see :func:`gcnmpi.run.weights.as_trained`.
    weights : path
        ``.npz`` of ``train --save-weights``, or a file of another program: see
        :func:`gcnmpi.run.weights.read_weights`. Features that were trained are beside it.
    given : container of str
        Keys of the configuration that the user gave, which the weights may not contradict.
    layer : int, optional
        This layer, from 1; without it, the last one, or that before it for "embeddings".
    what : str
        As :func:`infer` takes it.
    rows : path or array of vertices, optional
        Only these vertices are wanted, in this order: see :mod:`gcnmpi.run.vertices`.
    force : bool
        Start although a node has less memory than was forecast.
    tell : callable
        Called on rank 0 with what is to be said before the start.

    Raises
    ------
    UserError
        On all ranks, if the weights do not fit the graph or the configuration, a node has too
        little memory, or a file cannot be read.
    """

    def read() -> tuple[Weights, Config, int, np.ndarray | None]:
        if what not in WHAT:
            raise unknown_name("output", what, WHAT)
        if layer is not None and what != "logits":
            raise UserError(f"--layer {layer} and --what {what} exclude each other")
        stored = open_graph(graph, check=False)
        found = read_weights(weights, config, given, stored.manifest.features)
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
        return found, taken, depth, None if rows is None else picked_vertices(stored, rows)

    found, config, depth, picked = from_root(comm, read)
    trained = config.model.train_features
    given_features = dataclasses.replace(config.model, input_dropout=0.0, train_features=False)
    loading = config.loading
    if loading.order == "auto":  # a few products do not pay for another order of rows
        loading = dataclasses.replace(loading, order="none")
    config = dataclasses.replace(config, model=given_features, loading=loading)
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
        problem.scheme, problem.runtime.kernel, problem.network, problem.program,
        problem.source.stored.graph.n, found.parameters, [load_features(problem)], depth,
    )  # fmt: skip
    return Computed(problem, found, result, depth, picked, memory)


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
    kernel, scheme, k = problem.runtime.kernel, problem.scheme, result.place.layer
    if what == "classes":
        return scheme.row_argmax(k, result.array, problem.network.widths[depth])
    if what == "probabilities":
        probabilities = TASKS.get(problem.config.task.name).probabilities
        assert probabilities is not None, "checked before the start"
        return probabilities(scheme, kernel, k, result.array)
    return kernel.to_host(result.array)


def _rows(done: Computed, values: np.ndarray) -> Rows:
    """Rows of the result that this rank has."""
    problem, result = done.problem, done.result
    comm, scheme, n = problem.runtime.comm, problem.scheme, problem.source.stored.graph.n
    width = problem.network.widths[done.depth]
    if scheme.whole_rows:
        block = scheme.block(result.place, width)
        own = block.rows if block.copy == 0 else block.rows[:0]
    else:
        values = scheme.original(result.place, values, width)
        mine = slice_of(n, comm.rank, comm.size)
        own = np.arange(mine.start, mine.stop)
    if done.picked is None:
        return Rows(own, np.arange(len(own)), values, n)
    return Rows(*_picked(own, done.picked), values, len(done.picked), done.picked)


def _picked(own: np.ndarray, picked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of the picked vertices are own ones: their numbers in ``picked``, and in ``own``."""
    order = np.argsort(own)
    places = np.searchsorted(own, picked, sorter=order)
    inside = np.flatnonzero(places < len(own))
    inside = inside[own[order[places[inside]]] == picked[inside]]
    return inside, order[places[inside]]


def _with_features(problem: Problem, path: Path, width: int) -> Problem:
    """The problem with features that were trained, which are as the network takes them."""
    with agreed(problem.runtime.comm):
        features = _trained_features(path, (problem.source.stored.graph.n, width))
    stored = problem.source.stored
    stored = dataclasses.replace(stored, graph=dataclasses.replace(stored.graph, features=features))
    as_given = dataclasses.replace(problem.config.graph, feature_norm="none")
    return dataclasses.replace(
        problem,
        source=dataclasses.replace(problem.source, stored=stored),
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
