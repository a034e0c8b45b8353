"""Inference, metrics, scores of pairs and propagation, from Python."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from gcnmpi.api.calls import Network, Settings, in_session, warn
from gcnmpi.api.graph import Graph
from gcnmpi.api.record import Run
from gcnmpi.mpi.comm import Comm
from gcnmpi.options.requests import EvaluateRequest, InferRequest, ScoreRequest
from gcnmpi.report.progress import undescribed
from gcnmpi.run import inference
from gcnmpi.run.inference import evaluate_weights
from gcnmpi.run.links.asked import score_pairs, top_partners
from gcnmpi.run.samples.inference import infer_samples

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm


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
    arguments = InferRequest, comm, config, model, settings
    with in_session(
        "gcnmpi.infer", *arguments, graph=graph, weights=weights, partition=partition, what=what,
        layer=layer, rows=rows, samples=samples, out=out, force=force,
    ) as (ranks, request, _):  # fmt: skip
        if samples is None:
            done = inference.infer(ranks, request)
        else:
            done = infer_samples(ranks, request, samples).done
    warn(ranks, _warnings(done))
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
    arguments = ScoreRequest, comm, config, model, settings
    with in_session(
        "gcnmpi.score", *arguments, graph=graph, weights=weights, partition=partition, pairs=pairs,
        of=of or "", out=out, force=force,
    ) as (ranks, request, _):  # fmt: skip
        done = score_pairs(ranks, request)
    warn(ranks, _warnings(done))
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
    arguments = ScoreRequest, comm, config, model, settings
    with in_session(
        "gcnmpi.top", *arguments, graph=graph, weights=weights, partition=partition, top=k,
        vertices=vertices, with_arcs=with_arcs, relation=relation, out=out, force=force,
    ) as (ranks, request, _):  # fmt: skip
        done, table = top_partners(ranks, request)
    warn(ranks, _warnings(done))
    return table


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
    arguments = EvaluateRequest, comm, config, model, settings
    options = {"graph": graph, "weights": weights, "partition": partition}
    with in_session("gcnmpi.evaluate", *arguments, **options) as (ranks, request, _):
        found, warnings = evaluate_weights(ranks, request)
    warn(ranks, warnings)
    return found


def propagate(
    graph: Graph | str | os.PathLike,
    method: str,
    /,
    *,
    partition: str | None = None,
    out: str | os.PathLike | None = None,
    config: Settings = None,
    force: bool = False,
    comm: Comm | None = None,
    **settings: object,
) -> np.ndarray | dict[str, np.ndarray] | None:
    """Compute a method on a graph, as ``gcnmpi propagate``: a row for each vertex.

    All ranks call it with the same arguments.

    Parameters
    ----------
    graph : Graph or path
    method : str
        "pagerank", "label-propagation", "correct-and-smooth", "sgc", "sign", "appnp",
        "laplacian-eigenvectors", "embed", "components" or "core-numbers".
    partition : str, optional
        Into as many parts as there are ranks; one rank needs none.
    out : path, optional
        File to write: ``.npy``, ``.npz``, ``.csv`` or ``.parquet``; without it, rank 0 gets the
        arrays.
    config : path or mapping, optional
        A TOML file, or keys with their values.
    force : bool
        Start although a node has less memory than was forecast; go on from a checkpoint of another
        partition, with other rounding.
    comm : communicator of mpi4py, optional
    **settings
        Options of the method, such as ``damping=0.9``, and keys of the configuration with a "_"
        for the dot, such as ``scheme_name="bcast"``.

    Returns
    -------
    array, dict of str to array, or None
        On rank 0, unless ``out`` is given: (n,) or (n, width); of "laplacian-eigenvectors",
        "values" and "vectors".

    Raises
    ------
    UserError
        On all ranks, for whatever ``gcnmpi propagate`` refuses.
    """
    from gcnmpi.propagation.running import propagate as run
    from gcnmpi.propagation.settings import PropagateRequest

    arguments = PropagateRequest, comm, config, None, settings
    options = {"graph": graph, "partition": partition, "out": out, "force": force}
    with in_session("gcnmpi.propagate", *arguments, method=method, **options) as call:
        ranks, request, claims = call
        if request.checkpoints is not None:
            claims.folder(request.checkpoints[0])
        done = run(ranks, request)
    notes = [note for note in done.outcome.notes if note.startswith("warning: ")]
    warn(ranks, (*done.warnings, *(note.removeprefix("warning: ") for note in notes)))
    if done.values is None or not done.outcome.arrays:
        return done.values
    return {done.outcome.name: done.values, **done.outcome.arrays}


def _warnings(done: inference.Inference) -> tuple[str, ...]:
    return (*(() if done.weights.described else (undescribed(done),)), *done.warnings)
