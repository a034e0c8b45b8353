"""Exact full-graph inference on any number of ranks, written in the original vertex order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi.halo.matrix import Matrix
from gcnmpi.layout.place import Space
from gcnmpi.layout.runtime import Source, resolved_direction
from gcnmpi.mpi.comm import Comm, agreed, from_root, slice_of
from gcnmpi.nn.describe import SPACES
from gcnmpi.nn.evaluator import evaluate
from gcnmpi.nn.tasks.interface import task_of
from gcnmpi.options.config import Config
from gcnmpi.options.frames import ends
from gcnmpi.options.requests import InferRequest, features_path
from gcnmpi.options.task import TASKS
from gcnmpi.run.classes import Classes, class_names
from gcnmpi.run.memory_check import check_evaluation
from gcnmpi.run.problem import Problem, load_arcs, load_features, open_problem
from gcnmpi.run.results import Rows, check_writable, deliver
from gcnmpi.run.vertices import picked_arcs, picked_vertices
from gcnmpi.run.weights import (
    Weights,
    as_trained,
    check_parameters,
    of_relations,
    read_weights,
)
from gcnmpi.schemes.stacked import StackedScheme
from partition.errors import UserError, unknown_name
from partition.graph.graph import ARCS, examples_of
from partition.graph.manifest import Manifest
from partition.graph.store import open_graph
from partition.records import map_npy
from partition.registry import resolved

_WHAT = ("logits", "probabilities", "embeddings", "classes")
SCORES = "scores"  # of pairs, from the logits: see gcnmpi.run.links.asked


@dataclass(frozen=True)
class Inference:
    """The output of a network with given weights."""

    weights: Weights
    config: Config  # with the network and the matrix that were taken
    direction: str  # "in" or "out": how the matrix was made
    shape: tuple[int, ...]
    dtype: np.dtype  # type of the numbers that were written
    memory: int  # bytes that were forecast for the rank that needs most
    values: np.ndarray | None = None  # on rank 0, where nothing was to be written
    warnings: tuple[str, ...] = ()  # for the user, those about cores last


@dataclass(frozen=True)
class Choice:
    """Weights on a graph, and what is wanted of them."""

    weights: Weights
    config: Config  # with the network, the matrix and the task of the weights
    depth: int  # the layer that is wanted, from 1
    picked: np.ndarray | None  # (m,) int64 or None: the vertices or arcs that are wanted
    classes: Classes  # of the weights and of the graph


@dataclass(frozen=True)
class _Prepared:
    """A problem that is open, and the weights that its network will run with."""

    problem: Problem
    choice: Choice
    memory: int  # bytes that were forecast for the rank that needs most

    @property
    def weights(self) -> Weights:
        """The weights that its network runs with."""
        return self.choice.weights

    def inference(
        self, shape: tuple[int, ...], dtype: np.dtype, values: np.ndarray | None, *warnings: str
    ) -> Inference:
        """The result of an inference for its caller."""
        problem = self.problem
        return Inference(
            self.weights, problem.config, problem.source.direction, shape, dtype, self.memory,
            values, (*problem.told, *warnings),
        )  # fmt: skip


@dataclass(frozen=True)
class Computed(_Prepared):
    """The output of a layer on the ranks."""

    result: Matrix


def infer(
    comm: Comm, asked: InferRequest, tell: Callable[[str], None] = lambda line: None
) -> Inference:
    """Run a network with given weights over the whole graph: one row a vertex or arc.

    On rank 0, ``tell`` is called with lines for the user before the start. A UserError as of
    :func:`compute`; or if the file cannot be written.
    """
    with agreed(comm):
        if asked.what not in _WHAT:
            raise unknown_name("output", asked.what, _WHAT)
    check_writable(comm, asked.out)
    done = compute(comm, asked, tell)
    problem, choice, result = done.problem, done.choice, done.result
    rows = _rows(done, _wanted(problem, result, choice.depth, asked.what))
    named: dict[str, Any] = {}
    ids = examples_of(problem.source.stored.graph, _on(result)).ids
    names = choice.classes.names
    if asked.what == "classes" and any(map(str.__ne__, names, map(str, count()))):
        named = {"names": names, "arrays": {"class_names": np.array(names)}}
    whole = deliver(comm, asked.out, rows, ids, problem.config.loading.max_bytes, **named)
    # Of a layer before the logits, columns are no classes.
    of_logits = choice.depth == len(done.weights.widths) - 1
    warnings = choice.classes.warnings if of_logits else ()
    return done.inference(rows.shape, rows.values.dtype, whole, *warnings)


def evaluate_weights(
    comm: Comm, asked: InferRequest
) -> tuple[dict[str, float | None], tuple[str, ...]]:
    """The metrics of the task, of every mask: "val_accuracy" …; None where there is no such mask.

    Of links, those of the pairs that are configured. With them, warnings for the user. On all
    ranks a UserError as :func:`compute`; or if the graph has not the examples of the task.
    """
    done = compute(comm, asked)
    found: tuple[dict[str, float | None], tuple[str, ...]]
    found = resolved(task_of(done.problem.config.task).of_weights)(done)
    return found


def compute(
    comm: Comm, asked: InferRequest, tell: Callable[[str], None] = lambda line: None
) -> Computed:
    """The output of a layer of a network with given weights, on the whole graph.

    ``tell``: as :func:`infer` takes it. A UserError as of :func:`prepared`.
    """
    ready = prepared(comm, asked, tell)
    problem, choice = ready.problem, ready.choice
    with agreed(comm):
        if isinstance(problem.scheme, StackedScheme):
            raise UserError(
                f"{asked.weights} holds weights of task.name = {problem.config.task.name}",
                "gcnmpi infer --samples test predicts; a run has its errors in its record",
            )
    result = evaluate(
        problem.scheme, problem.runtime.kernel, problem.network, problem.program,
        problem.source.stored.graph.n, choice.weights.parameters, [load_features(problem)],
        choice.depth, load_arcs(problem),
    )  # fmt: skip
    return Computed(problem, choice, ready.memory, result)


def prepared(comm: Comm, asked: InferRequest, tell: Callable[[str], None]) -> _Prepared:
    """Open a graph for an inference with given weights.

    On all ranks a UserError if the weights do not fit the graph or the configuration, a node has
    too little memory, or a file cannot be read.
    """
    choice = from_root(comm, lambda: _chosen(asked))
    found, config = choice.weights, choice.config
    trained, path = config.model.train_features, features_path(asked.weights)
    model = dataclasses.replace(config.model, input_dropout=0.0, train_features=False)
    loading = config.loading
    if loading.order == "auto":  # a few products do not pay for another order of rows
        loading = dataclasses.replace(loading, order="none")
    config = dataclasses.replace(config, model=model, loading=loading)
    widths: tuple[int, int] | None = (found.widths[0], found.widths[-1])
    if task_of(config.task).steps(config.task).samples:
        widths = None  # as many as the frames have that are predicted now
    memory = 0

    def before(source: Source, config: Config) -> None:
        nonlocal memory
        here = widths or ends(config.task, config.model, source.stored.manifest)
        memory = check_evaluation(comm, source, config, here, choice.depth, asked.force, tell)

    where = asked.graph, asked.partition
    problem = open_problem(comm, *where, config, widths, trains=False, before=before)
    if trained:
        problem = _with_features(problem, path, found.widths[0])
    with agreed(comm):
        check_parameters(found, problem.network)
        found = of_relations(found, problem.source.stored, problem.config.task)
    return _Prepared(problem, dataclasses.replace(choice, weights=found), memory)


def _chosen(asked: InferRequest) -> Choice:
    """The weights, and what is wanted of them, as rank 0 reads it; a UserError if that is wrong."""
    path, what, given = asked.weights, asked.what, asked.given
    if asked.layer is not None and what != "logits":
        raise UserError(f"--layer {asked.layer} and --what {what} exclude each other")
    stored = open_graph(asked.graph, check=False)
    manifest = stored.manifest
    found = read_weights(path, asked.config, given, manifest.inputs, manifest.schema)
    name = found.network.get("task.name")
    if what == SCORES and name is not None and not TASKS.get(name).scores_pairs:
        raise UserError(
            f"{path} holds weights of the task {name}, which gives no scores of pairs",
            "train with --set task.name=links",
        )
    config = as_trained(found, asked.config, given, resolved_direction(stored, asked.config))
    facts = {"pairs": found.pairs, "samples": found.samples, **found.network}
    config, features = task_of(config.task).for_weights(config, stored, given, facts)
    _check_fit(asked, found, manifest, config, features)
    depth = _depth(found, asked.layer, what)
    _check_logits(config, what)
    of_arcs = config.task.on == ARCS and depth == len(found.widths) - 1
    pick = picked_arcs if of_arcs else picked_vertices
    picked = None if asked.rows is None else pick(stored, asked.rows)
    names = class_names(manifest, config.task)
    as_many = names if len(names) == found.widths[-1] else ()
    return Choice(found, config, depth, picked, Classes(found.classes or as_many, names))


def _check_fit(
    asked: InferRequest, found: Weights, manifest: Manifest, config: Config, features: int
) -> None:
    """Raise a UserError if a graph has other features or relations than weights are of."""
    graph, known, there = asked.graph, found.schema, manifest.schema
    trained = config.model.train_features
    if not trained and features not in (0, found.widths[0] or features):
        raise UserError(
            f"{graph} has {features} features a vertex, the weights take {found.widths[0]}"
        )
    if found.arc_features not in (0, manifest.arc_features):
        raise UserError(
            f"{graph} has {manifest.arc_features} features an arc, the weights take "
            f"{found.arc_features}"
        )
    if len(known) and (known.types, known.relations) != (there.types, there.relations):
        raise UserError(
            f"{graph} has other relations than the weights are of, or in another order: "
            f"{' '.join(map(str, known.relations))}"
        )
    if not manifest.features and known.features not in ((), there.features):
        raise UserError(
            f"{graph} has features of types {dict(there.features)}, the weights take "
            f"{dict(known.features)}"
        )
    if trained:
        _trained_features(features_path(asked.weights), (manifest.n, found.widths[0]))


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
    task = task_of(config.task)
    if what in ("probabilities", "classes") and task.probabilities is None:
        scored = "; gcnmpi score gives the scores of pairs" if task.scores_pairs else ""
        raise UserError(
            f"--what {what}: the network was trained for {config.task.name}, and its output has "
            f"no {what}",
            f"--what logits writes its output as it is{scored}",
        )


def _wanted(problem: Problem, result: Matrix, depth: int, what: str) -> np.ndarray:
    """This rank's piece of what is written, on the host."""
    kernel, scheme, k = problem.runtime.kernel, problem.scheme, result.place.layer
    if what == "classes":
        return scheme.row_argmax(k, result.array, problem.network.widths[depth])
    if what == "probabilities":
        probabilities = task_of(problem.config.task).probabilities
        assert probabilities is not None, "checked before the start"
        return probabilities(scheme, kernel, k, result.array)
    return kernel.to_host(result.array)


def _rows(done: Computed, values: np.ndarray) -> Rows:
    """Rows of the result that this rank has."""
    problem, result = done.problem, done.result
    comm, scheme = problem.runtime.comm, problem.scheme
    n = examples_of(problem.source.stored.graph, _on(result)).n
    choice = done.choice
    order = choice.classes.order if choice.depth == len(done.weights.widths) - 1 else None
    width = problem.network.widths[choice.depth]
    if scheme.whole_rows and result.place.space is Space.OWN:
        block = scheme.block(result.place, width)
        own = block.rows if block.copy == 0 else block.rows[:0]
    else:
        values = scheme.original(result.place, values, width)
        mine = slice_of(n, comm.rank, comm.size)
        own = np.arange(mine.start, mine.stop)
    if order is not None:  # as the graph has its classes
        values = values[:, order] if values.ndim == 2 else np.argsort(order)[values]
    picked = choice.picked
    if picked is None:
        return Rows(own, np.arange(len(own)), values, n)
    return Rows(*_picked(own, picked), values, len(picked), picked)


def _on(result: Matrix) -> str:
    """Whether the rows of a result are those of vertices or of arcs, as ``task.on`` says it."""
    return next(on for on, space in SPACES.items() if space is result.place.space)


def _picked(own: np.ndarray, picked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of the picked rows are own ones: their numbers in ``picked``, and in ``own``."""
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
