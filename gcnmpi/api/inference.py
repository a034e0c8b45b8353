"""Inference, scores of pairs and metrics of given weights, from Python."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from gcnmpi.api.graph import Graph
from gcnmpi.api.ranks import ranks_of
from gcnmpi.api.record import Run
from gcnmpi.api.settings import Network, Settings, configured
from gcnmpi.api.training import ALIKE, path_of
from gcnmpi.mpi.comm import Comm, agreed, check_same
from gcnmpi.mpi.watch import watchdog
from gcnmpi.options.config import Config
from gcnmpi.options.outputs import (
    RESULTS,
    TABLES,
    Inferring,
    Scoring,
    check_distinct,
    check_suffix,
    features_path,
)
from gcnmpi.options.task import LINKS
from gcnmpi.report.outcome import undescribed
from gcnmpi.run import inference
from gcnmpi.run.claims import Claims
from gcnmpi.run.inference import evaluate_weights
from gcnmpi.run.links.asked import score_pairs, top_partners
from gcnmpi.run.samples.inference import infer_samples
from gcnmpi.run.weights_file import task_of

SCORED: Mapping[str, object] = {"task.name": LINKS}
"""What is to be scored, of weights that do not say their task."""


def infer(
    graph: Graph | str | os.PathLike,
    weights: Run | str | os.PathLike,
    *,
    partition: str | None = None,
    what: str = "logits",
    layer: int | None = None,
    rows: ArrayLike | None = None,
    samples: str | None = None,
    out: str | os.PathLike | None = None,
    model: Network = None,
    config: Settings = None,
    force: bool = False,
    comm: Comm | None = None,
    **settings: object,
) -> np.ndarray | None:
    """Run a network with given weights over the whole graph, as ``gcnmpi infer``: a row a vertex.

    All ranks call it with the same arguments.

    Parameters
    ----------
    graph, partition, config, comm, **settings
        See :func:`gcnmpi.train`. Network and matrix are those of the weights.
    weights : Run or path
        A run, whose last weights are taken (``run.weights_file("best")`` are the best ones); or a
        file of weights of this or another program.
    what : {"logits", "probabilities", "embeddings", "classes"}
    layer : int, optional
        The output of this layer, from 1, in place of the logits.
    rows : vertices, arcs or path, optional
        Only these vertices, in this order: as they were called in the source file; or a file with
        one a line. Where rows are of arcs: their numbers in the folder, or (m, 2) both ends.
    samples : {"train", "val", "test", "all"}, optional
        Of weights of ``task.name = "samples"``: which samples are predicted, and written to
        ``out``, an ``.npy`` (samples, n, columns).
    out : path, optional
        File to write: ``.npy``, ``.npz``, ``.csv`` or ``.parquet``; without it, rank 0 gets the
        array.
    model : str or function, optional
        The network, where the weights do not describe it or it is one's own.
    force : bool
        Start although a node has less memory than was forecast.

    Returns
    -------
    array or None
        On rank 0, unless ``out`` is given: (n, width) of the run's dtype, or (n,) int64 classes.

    Raises
    ------
    UserError
        On all ranks, for whatever ``gcnmpi infer`` refuses.
    """
    picked = Path(rows) if isinstance(rows, str | os.PathLike) else rows
    if picked is not None and not isinstance(picked, Path):
        picked = np.asarray(picked)
    words = {"what": what, "layer": layer, "samples": samples}
    with _asking(
        graph, weights, partition, out, RESULTS, model, config, force, comm, settings, words, {}
    ) as (ranks, asked):
        asked = dataclasses.replace(asked, what=what, layer=layer, rows=picked)
        if samples is None:
            done = inference.infer(ranks, asked)
        else:
            done = infer_samples(ranks, asked, samples).done
    _warn(ranks, done)
    return done.values


def score(
    graph: Graph | str | os.PathLike,
    weights: Run | str | os.PathLike,
    pairs: ArrayLike | str | os.PathLike,
    *,
    of: str | None = None,
    partition: str | None = None,
    out: str | os.PathLike | None = None,
    model: Network = None,
    config: Settings = None,
    force: bool = False,
    comm: Comm | None = None,
    **settings: object,
) -> np.ndarray | None:
    """Score pairs of vertices with weights of the task links, as ``gcnmpi score --pairs``.

    All ranks call it with the same arguments.

    Parameters
    ----------
    graph, weights, partition, model, config, force, comm, **settings
        See :func:`infer`.
    pairs : (m, 2) vertices, path or str
        As they were called in the source file; a table or an ``.npy`` of them; or the name of a set
        of pairs in the folder.
    of : {"train", "val", "test"}, optional
        Which pairs of such a set; without it, those of "test".
    out : path, optional
        File to write: ``.npy``, ``.npz``, ``.csv`` or ``.parquet``; without it, rank 0 gets the
        array.

    Returns
    -------
    array or None
        On rank 0, unless ``out`` is given: (m,) of the run's dtype, in the order of the pairs.

    Raises
    ------
    UserError
        On all ranks, for whatever ``gcnmpi score`` refuses.
    """
    given = pairs if isinstance(pairs, str | os.PathLike) else np.asarray(pairs)
    words = {"of": of, "pairs": None if isinstance(given, np.ndarray) else str(given)}
    with _asking(
        graph, weights, partition, out, RESULTS, model, config, force, comm, settings, words
    ) as (ranks, asked):
        done = score_pairs(ranks, Scoring(asked, given, of or ""))
    _warn(ranks, done)
    return done.values


def top(
    graph: Graph | str | os.PathLike,
    weights: Run | str | os.PathLike,
    k: int,
    vertices: ArrayLike | str | os.PathLike = "all",
    *,
    with_arcs: bool = False,
    relation: str | None = None,
    partition: str | None = None,
    out: str | os.PathLike | None = None,
    model: Network = None,
    config: Settings = None,
    force: bool = False,
    comm: Comm | None = None,
    **settings: object,
) -> dict[str, np.ndarray] | None:
    """The k best partners of vertices among all others, as ``gcnmpi score --top``: exact.

    All ranks call it with the same arguments.

    Parameters
    ----------
    graph, weights, partition, model, config, force, comm, **settings
        See :func:`infer`.
    vertices : vertices, path or "all"
        As they were called in the source file; or a file with one a line.
    with_arcs : bool
        Whether a partner may be a vertex that there is an arc with already.
    relation : str, optional
        That of the partners: they are of the type that it leads to.
    out : path, optional
        File to write: ``.npz``, ``.csv`` or ``.parquet``; without it, rank 0 gets the columns.

    Returns
    -------
    dict of three arrays, or None
        On rank 0, unless ``out`` is given: "vertex", "partner" and "score", a row for each vertex
        and each of its partners, the best one first. Fewer than k, where there are no more.

    Raises
    ------
    UserError
        On all ranks, for whatever ``gcnmpi score`` refuses.
    """
    given = vertices if isinstance(vertices, str | Path) else np.asarray(vertices)
    words = {"k": k, "with_arcs": with_arcs, "relation": relation}
    with _asking(
        graph, weights, partition, out, TABLES, model, config, force, comm, settings, words
    ) as (ranks, asked):
        scoring = Scoring(asked, None, "", k, given, with_arcs, relation=relation)
        done, table = top_partners(ranks, scoring)
    _warn(ranks, done)
    return table


@contextmanager
def _asking(
    graph: Graph | str | os.PathLike,
    weights: Run | str | os.PathLike,
    partition: str | None,
    out: str | os.PathLike | None,
    suffixes: Sequence[str],
    model: Network,
    config: Settings,
    force: bool,
    comm: Comm | None,
    settings: Mapping[str, object],
    words: Mapping[str, object],
    under: Mapping[str, object] = SCORED,
) -> Iterator[tuple[Comm, Inferring]]:
    """The ranks, and what gives the rows of vertices; they ask for the same in this block.

    ``under``: values of keys that neither weights nor settings may say.
    """
    ranks, path = ranks_of(comm), path_of(graph)
    with agreed(ranks):
        file, target = _file_of(weights), None if out is None else Path(out)
        check_suffix("out", target, suffixes)
        inputs = {"graph": path, "weights": file, "its features": features_path(file)}
        check_distinct({**inputs, "out": target})
    with (
        configured(ranks, config, model, settings, {**under, **task_of(file)}) as (full, given),
        _guarded(ranks, full, path, partition, {**words, "out": target}),
    ):
        yield ranks, Inferring(path, partition, full, file, target, given, force=force)


def _warn(ranks: Comm, done: inference.Inference) -> None:
    """Say on rank 0 what the user should know, as of the line that called this module."""
    if ranks.rank == 0:
        unsaid = () if done.weights.described else (undescribed(done),)
        for text in (*unsaid, *done.warnings):
            warnings.warn(text, stacklevel=3)


def evaluate(
    graph: Graph | str | os.PathLike,
    weights: Run | str | os.PathLike,
    *,
    partition: str | None = None,
    model: Network = None,
    config: Settings = None,
    comm: Comm | None = None,
    **settings: object,
) -> dict[str, float | None]:
    """The metrics of given weights on a graph: "train_accuracy", "val_accuracy" …, on all ranks.

    Parameters
    ----------
    graph, weights, partition, model, config, comm, **settings
        See :func:`infer`. The task is that of the weights; ``task_metrics`` chooses what is
        measured.

    Returns
    -------
    dict of str to float
        None for a mask that the graph does not have, and where a metric is not defined.

    Raises
    ------
    UserError
        On all ranks: as :func:`infer`; or if the graph has not the labels of the task.
    """
    ranks = ranks_of(comm)
    with agreed(ranks):
        file = _file_of(weights)
    with (
        configured(ranks, config, model, settings, task_of(file)) as (full, given),
        _guarded(ranks, full, path_of(graph), partition, {}),
    ):
        asked = Inferring(path_of(graph), partition, full, file, given=given)
        found, told = evaluate_weights(ranks, asked)
    for text in told if ranks.rank == 0 else ():
        warnings.warn(text, stacklevel=2)
    return found


@contextmanager
def _guarded(
    ranks: Comm, config: Config, graph: Path, partition: str | None, asked: Mapping[str, object]
) -> Iterator[None]:
    """Ranks that ask for the same, while the graph is theirs."""
    with watchdog(config.comm.timeout, ranks.rank), Claims(ranks, "gcnmpi.infer") as claims:
        check_same(ranks, {"configuration": config, "partition": partition, **asked}, ALIKE)
        claims.graph(graph, partition)
        yield


def _file_of(weights: Run | str | os.PathLike) -> Path:
    return weights.weights_file() if isinstance(weights, Run) else Path(weights)
