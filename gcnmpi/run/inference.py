"""Exact full-graph inference on any number of ranks, written in the original vertex order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
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
from gcnmpi.options.config import Config
from gcnmpi.options.frames import ROLLOUT, ends, with_frames
from gcnmpi.options.requests import InferRequest, features_path
from gcnmpi.options.task import LINKS, TASKS, LinkOptions, SampleOptions
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
from partition.errors import UserError, unknown_name
from partition.graph.graph import ARCS, examples_of
from partition.graph.samples import read_samples
from partition.graph.store import open_graph
from partition.graph.vertex_pairs import list_pairs
from partition.records import map_npy

WHAT = ("logits", "probabilities", "embeddings", "classes")
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
class Computed:
    """The output of a layer on the ranks."""

    problem: Problem
    weights: Weights
    result: Matrix
    depth: int  # the layer, from 1
    picked: np.ndarray | None  # (m,) int64 or None: the vertices or arcs that are wanted
    memory: int  # bytes that were forecast for the rank that needs most
    classes: Classes


def infer(
    comm: Comm, asked: InferRequest, tell: Callable[[str], None] = lambda line: None
) -> Inference:
    """Run a network with given weights over the whole graph: one row a vertex or arc.

    On rank 0, ``tell`` is called with lines for the user before the start. A UserError as of
    :func:`compute`; or if the file cannot be written.
    """
    with agreed(comm):
        if asked.what not in WHAT:
            raise unknown_name("output", asked.what, WHAT)
    check_writable(comm, asked.out)
    done = compute(comm, asked, tell)
    problem, stored = done.problem, done.problem.source.stored
    rows = _rows(done, _wanted(problem, done.result, done.depth, asked.what))
    named: dict[str, Any] = {}
    ids, classes = examples_of(stored.graph, _on(done.result)).ids, done.classes
    # Of a layer before the logits, columns are no classes.
    of_logits = done.depth == len(done.weights.widths) - 1
    if asked.what == "classes" and any(map(str.__ne__, classes.names, map(str, count()))):
        named = {"names": classes.names, "arrays": {"class_names": np.array(classes.names)}}
    max_bytes = problem.config.loading.max_bytes
    whole = deliver(comm, asked.out, rows, ids, max_bytes, **named)
    return Inference(
        done.weights, problem.config, problem.source.direction, rows.shape, rows.values.dtype,
        done.memory, whole, (*problem.told, *(classes.warnings if of_logits else ())),
    )  # fmt: skip


def _held_out(graph: Path, name: str) -> str:
    """The set of pairs whose held-out arcs M is without, as in training; "" where there is none.

    A UserError if the folder has other sets only.
    """
    sets = list_pairs(graph)
    if sets and name not in sets:
        raise UserError(
            f"{graph} has no pairs {name!r}, whose held-out arcs M was without in training",
            f"--set task.pairs=NAME names others: {', '.join(sets)}",
        )
    return name if sets else ""


def compute(
    comm: Comm, asked: InferRequest, tell: Callable[[str], None] = lambda line: None
) -> Computed:
    """The output of a layer of a network with given weights, on the whole graph.

    ``tell``: as :func:`infer` takes it. A UserError as of :func:`prepared`.
    """
    ready = prepared(comm, asked, tell)
    problem, found, depth = ready.problem, ready.weights, ready.depth
    if isinstance(problem.config.task, SampleOptions):
        error = UserError(
            f"{asked.weights} holds weights of task.name = samples",
            "gcnmpi infer --samples test predicts; a run has its errors in its record",
        )
        with agreed(comm):
            raise error
    result = evaluate(
        problem.scheme, problem.runtime.kernel, problem.network, problem.program,
        problem.source.stored.graph.n, found.parameters, [load_features(problem)], depth,
        load_arcs(problem),
    )  # fmt: skip
    return Computed(problem, found, result, depth, ready.picked, ready.memory, ready.classes)


@dataclass(frozen=True)
class Prepared:
    """A problem that is open, and the weights that its network will run with."""

    problem: Problem
    weights: Weights
    depth: int  # the layer that is wanted, from 1
    picked: np.ndarray | None  # (m,) int64 or None: the vertices or arcs that are wanted
    memory: int  # bytes that were forecast for the rank that needs most
    classes: Classes  # of the weights and of the graph


def prepared(comm: Comm, asked: InferRequest, tell: Callable[[str], None]) -> Prepared:
    """Open a graph for an inference with given weights.

    On all ranks a UserError if the weights do not fit the graph or the configuration, a node has
    too little memory, or a file cannot be read.
    """
    graph, weights, config = asked.graph, asked.weights, asked.config
    what, layer, rows = asked.what, asked.layer, asked.rows

    def read() -> tuple[Weights, Config, int, np.ndarray | None, Classes]:
        if layer is not None and what != "logits":
            raise UserError(f"--layer {layer} and --what {what} exclude each other")
        stored = open_graph(graph, check=False)
        manifest = stored.manifest
        of_graph = manifest.inputs, manifest.schema
        found = read_weights(weights, config, asked.given, *of_graph)
        if what == SCORES and found.network.get("task.name", LINKS) != LINKS:
            raise UserError(
                f"{weights} holds weights of the task {found.network['task.name']}, which gives no "
                "scores of pairs",
                "train with --set task.name=links",
            )
        taken = as_trained(found, config, asked.given, resolved_direction(stored, config))
        if isinstance(taken.task, LinkOptions) and "task.pairs" not in asked.given:
            pairs = _held_out(graph, found.pairs or taken.task.pairs)
            taken = dataclasses.replace(taken, task=dataclasses.replace(taken.task, pairs=pairs))
        features = stored.manifest.inputs
        if isinstance(taken.task, SampleOptions):
            of_samples = _of_samples(taken, taken.task, found, asked.given)
            taken = dataclasses.replace(taken, task=of_samples)
            samples = read_samples(graph, of_samples.samples)
            of_samples = dataclasses.replace(of_samples, rollout=found.network[ROLLOUT])
            trained_as = with_frames(dataclasses.replace(taken, task=of_samples), samples)
            features, _ = ends(trained_as.task, taken.model, manifest)
        if not taken.model.train_features and features not in (0, found.widths[0] or features):
            raise UserError(
                f"{graph} has {features} features a vertex, the weights take {found.widths[0]}"
            )
        if found.arc_features not in (0, stored.manifest.arc_features):
            raise UserError(
                f"{graph} has {stored.manifest.arc_features} features an arc, the weights take "
                f"{found.arc_features}"
            )
        known, there = found.schema, manifest.schema
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
        if taken.model.train_features:
            _trained_features(features_path(weights), (stored.manifest.n, found.widths[0]))
        depth = _depth(found, layer, what)
        _check_logits(taken, what)
        of_arcs = taken.task.on == ARCS and depth == len(found.widths) - 1
        pick = picked_arcs if of_arcs else picked_vertices
        names = class_names(manifest, taken.task)
        as_many = names if len(names) == found.widths[-1] else ()
        classes = Classes(found.classes or as_many, names)
        return found, taken, depth, None if rows is None else pick(stored, rows), classes

    found, config, depth, picked, classes = from_root(comm, read)
    trained = config.model.train_features
    given_features = dataclasses.replace(config.model, input_dropout=0.0, train_features=False)
    loading = config.loading
    if loading.order == "auto":  # a few products do not pay for another order of rows
        loading = dataclasses.replace(loading, order="none")
    config = dataclasses.replace(config, model=given_features, loading=loading)
    widths: tuple[int, int] | None = (found.widths[0], found.widths[-1])
    if isinstance(config.task, SampleOptions):
        widths = None  # as many as the frames have that are predicted now
    memory = 0

    def before(source: Source, config: Config) -> None:
        nonlocal memory
        here = widths or ends(config.task, config.model, source.stored.manifest)
        memory = check_evaluation(comm, source, config, here, depth, asked.force, tell)

    where = graph, asked.partition
    problem = open_problem(comm, *where, config, widths, trains=False, before=before)
    if trained:
        problem = _with_features(problem, features_path(weights), found.widths[0])
    with agreed(comm):
        check_parameters(found, problem.network)
        found = of_relations(found, problem.source.stored, problem.config.task)
    return Prepared(problem, found, depth, picked, memory, classes)


def _of_samples(
    config: Config, task: SampleOptions, weights: Weights, given: Collection[str]
) -> SampleOptions:
    """The task with the set that the weights are of, and a sample for each group.

    Unless the user gave others.
    """
    name = task.samples if "task.samples" in given else weights.samples or task.samples
    batch = task.batch if "task.batch" in given else config.train.groups
    return dataclasses.replace(task, samples=name, batch=batch)


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
        scored = "; gcnmpi score gives the scores of pairs" if task == LINKS else ""
        raise UserError(
            f"--what {what}: the network was trained for {task}, and its output has no {what}",
            f"--what logits writes its output as it is{scored}",
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
    comm, scheme = problem.runtime.comm, problem.scheme
    n = examples_of(problem.source.stored.graph, _on(result)).n
    order = done.classes.order if done.depth == len(done.weights.widths) - 1 else None
    width = problem.network.widths[done.depth]
    if scheme.whole_rows and result.place.space is Space.OWN:
        block = scheme.block(result.place, width)
        own = block.rows if block.copy == 0 else block.rows[:0]
    else:
        values = scheme.original(result.place, values, width)
        mine = slice_of(n, comm.rank, comm.size)
        own = np.arange(mine.start, mine.stop)
    if order is not None:  # as the graph has its classes
        values = values[:, order] if values.ndim == 2 else np.argsort(order)[values]
    if done.picked is None:
        return Rows(own, np.arange(len(own)), values, n)
    return Rows(*_picked(own, done.picked), values, len(done.picked), done.picked)


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
