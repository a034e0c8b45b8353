"""From a graph folder to a named partition in it: graph → model → parts → metrics → folder."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from partition.backends import TOOLS, Tool
from partition.backends.process import run_apart
from partition.balance import DEFAULT as DEFAULT_BALANCE
from partition.balance import constraint_weights, parse_balance, repair, single_weight
from partition.catalogue import MODELS, all_options, describe, settled
from partition.errors import UserError, unknown_name
from partition.graph import DIRECTIONS, Graph
from partition.metrics import Metrics, measure
from partition.models import graph_model
from partition.partfile import read_parts
from partition.store import (
    Manifest,
    Partition,
    has_partition,
    list_partitions,
    open_graph,
    read_partition,
    write_partition,
)


class PartitionWarning(UserWarning):
    """A partition was made, but is not all that was asked for."""


def add_partition(
    path: str | os.PathLike,
    model: str,
    k: int,
    *,
    imbalance: float = 0.01,
    seed: int = 0,
    name: str | None = None,
    tool: str | None = None,
    direction: str | None = None,
    balance: str = DEFAULT_BALANCE,
    overwrite: bool = False,
    **options: Any,
) -> Partition:
    """Partition the graph folder ``path`` and store the result in it.

    Parameters
    ----------
    model : str
        A name in ``MODELS``.
    k : int
        Number of parts, 1 ≤ k ≤ n.
    imbalance : float
        What the heaviest part may weigh above the average one, as a fraction of it. Ignored by
        models that do not balance.
    seed : int
    name : str, optional
        Default: ``MODEL-K``, or ``MODEL-OBJECTIVE-K`` for an objective that is not the default.
    tool : str, optional
        One of the model's tools; default: its first.
    direction : {"in", "out"}, optional
        The direction of M; default: the graph's own.
    balance : str
        What weighs: names in ``partition.balance.CONSTRAINTS``, separated by commas; the default
        is the entries of M. Several are met at once as far as vertices can be moved to do so.
    overwrite : bool
        Replace a partition of that name.
    options
        Options of the model and of the tool, such as ``objective="vol"``.

    Returns
    -------
    Partition
        As stored, with its metrics in both directions.

    Raises
    ------
    UserError
        For a bad argument, before anything is computed; if a library is not installed; or if
        the tool fails. Nothing is written then.

    Warns
    -----
    PartitionWarning
        If the balance asked for was not reached, with the reason where a row is too heavy.
    """
    # Everything the user may have got wrong, before minutes of work.
    stored = open_graph(path)
    direction = _check_direction(direction or stored.manifest.direction)
    chosen, backend = _choose_tool(model, tool)
    settings = all_options(model, chosen, backend, options)
    names = _check_balance(balance, chosen, backend)
    check_parts_wanted(k, stored.manifest)
    _check_numbers(imbalance, seed)
    name = name or default_name(model, k, backend, settings)
    _check_name(stored.path, name, overwrite)

    start = time.perf_counter()
    settings = settled(stored.graph, model, k, seed, direction, settings)
    parts = make_parts(
        stored.graph, model, k, imbalance=imbalance, seed=seed, tool=chosen, direction=direction,
        balance=balance, **settings,
    )  # fmt: skip
    seconds = time.perf_counter() - start

    metrics = measure_both(stored.graph, stored.manifest, parts, k)
    partition = Partition(
        name=name,
        parts=parts,
        k=k,
        graph_id=stored.manifest.id,
        model=model,
        tool=chosen,
        tool_version=_version(backend),
        direction=direction,
        seed=seed if backend.seeded or MODELS[model].options else None,
        imbalance=imbalance if backend.balanced else None,
        options=settings | ({} if balance == DEFAULT_BALANCE else {"balance": balance}),
        metrics={key: asdict(value) for key, value in metrics.items()},
        seconds=seconds,
        deterministic=backend.deterministic(settings),
    )
    if backend.balanced:
        _warn_of_imbalance(stored.graph, metrics[direction], imbalance, names)
    return write_partition(stored.path, partition, overwrite=overwrite)


def make_parts(
    graph: Graph,
    model: str,
    k: int,
    *,
    imbalance: float = 0.01,
    seed: int = 0,
    tool: str | None = None,
    direction: str = "in",
    balance: str = DEFAULT_BALANCE,
    **options: Any,
) -> np.ndarray:
    """Partition a graph in memory: (n,) int32 part numbers, no part empty.

    Parameters are those of :func:`add_partition`.

    Raises
    ------
    UserError
        If the tool fails, or what it returns is no partition into k parts.
    """
    chosen, backend = _choose_tool(model, tool)
    settings = all_options(model, chosen, backend, options)
    constraints = _check_balance(balance, chosen, backend)
    if k == 1:
        return np.zeros(graph.n, dtype=np.int32)

    description = describe(graph, model, k, seed=seed, direction=direction, **settings)
    weights = constraint_weights(graph, direction, constraints)
    if balance != DEFAULT_BALANCE:
        description = replace(description, weights=single_weight(weights))
    # No part can weigh less than the heaviest row: a tool that is asked for less may give up.
    weight = description.weights
    allowed = max(imbalance, float(weight.max() * k / weight.sum()) - 1 + 1e-6)
    arguments = {"imbalance": allowed, "seed": seed}
    arguments |= {key: settings[key] for key in backend.options}
    if backend.distribution is None:
        parts = backend.partition(description, k, **arguments)
    else:
        parts = run_apart(TOOLS.entries[chosen], description, k, **arguments)
    parts = _checked(chosen, parts, k, weight)
    if len(constraints) > 1:
        neighbours = graph_model(graph, direction)
        parts = repair(parts, k, weights, imbalance, neighbours.indptr, neighbours.indices)
    return parts


def import_parts(
    path: str | os.PathLike,
    file: str | os.PathLike,
    name: str,
    k: int | None = None,
    *,
    direction: str | None = None,
    overwrite: bool = False,
) -> Partition:
    """Store a partition that another program made: one part number per line, vertex by vertex.

    Parameters
    ----------
    k : int, optional
        Number of parts; default: the largest part number + 1. Parts may be empty.

    Raises
    ------
    UserError
        If the file cannot be read, has not n lines, or a line is no number in 0..k−1.
    """
    stored = open_graph(path)
    direction = _check_direction(direction or stored.manifest.direction)
    _check_name(stored.path, name, overwrite)
    parts = read_parts(file, stored.manifest.n, k)
    if k is None:
        k = int(parts.max(initial=0)) + 1
    check_parts_wanted(k, stored.manifest)
    metrics = measure_both(stored.graph, stored.manifest, parts, k)
    partition = Partition(
        name=name,
        parts=parts,
        k=k,
        graph_id=stored.manifest.id,
        model="imported",
        tool="import-parts",
        tool_version=version("gcnmpi"),
        direction=direction,
        options={"file": Path(file).name},
        metrics={key: asdict(value) for key, value in metrics.items()},
    )
    return write_partition(stored.path, partition, overwrite=overwrite)


def compare(
    path: str | os.PathLike, names: Iterable[str] = (), direction: str | None = None
) -> list[dict[str, Any]]:
    """The figures of partitions of one graph, beside those of random rows with as many parts.

    Parameters
    ----------
    names : iterable of str
        The partitions; all there are if empty.
    direction : {"in", "out"}, optional
        Of M; default: the graph's own.

    Returns
    -------
    list of dict
        One per partition, by k and then by volume: ``name``, ``model``, ``tool``, ``k``,
        ``direction``, ``seconds``, the figures of :meth:`partition.metrics.Metrics.summary`;
        ``relative``: each of these over that of the ``baseline`` (None over 0), which is the
        first stored partition of model rp with that k, or one made on the fly with seed 0.
    """
    stored = open_graph(path)
    direction = _check_direction(direction or stored.manifest.direction)
    existing = [read_partition(path, name, parts=False) for name in list_partitions(path)]
    wanted = [read_partition(path, name, parts=False) for name in names] or existing
    baselines: dict[int, tuple[str, dict[str, float]]] = {}
    for partition in existing:
        if partition.model == "rp":
            summary = Metrics(**partition.metrics[direction]).summary()
            baselines.setdefault(partition.k, (partition.name, summary))
    for k in {partition.k for partition in wanted} - baselines.keys():
        parts = make_parts(stored.graph, "rp", k)
        summary = measure(stored.graph, parts, k, direction).summary()
        baselines[k] = "rp, seed 0, computed", summary

    rows = []
    for partition in wanted:
        label, yardstick = baselines[partition.k]
        summary = Metrics(**partition.metrics[direction]).summary()
        facts = {key: getattr(partition, key) for key in ("name", "model", "tool", "k", "seconds")}
        relative = {
            key: value / yardstick[key] if yardstick.get(key) else None
            for key, value in summary.items()
        }
        rows.append(
            facts | {"direction": direction} | summary | {"baseline": label, "relative": relative}
        )
    return sorted(rows, key=lambda row: (row["k"], row["volume"], row["name"]))


def measure_both(graph: Graph, manifest: Manifest, parts: np.ndarray, k: int) -> dict[str, Metrics]:
    """The metrics in both directions; one measurement where the pattern is symmetric."""
    metrics = {"in": measure(graph, parts, k, "in")}
    if manifest.symmetric_pattern:
        metrics["out"] = replace(metrics["in"], direction="out")
    else:
        metrics["out"] = measure(graph, parts, k, "out")
    return metrics


def default_name(model: str, k: int, tool: Tool, options: Mapping[str, Any]) -> str:
    """``MODEL-K``, with the objective between where it is not the tool's default."""
    objective = tool.options.get("objective")
    if objective is not None and options["objective"] != objective.default:
        return f"{model}-{options['objective']}-{k}"
    return f"{model}-{k}"


def check_parts_wanted(k: int, manifest: Manifest) -> None:
    """A UserError unless 1 ≤ k ≤ n."""
    if k < 1:
        raise UserError(f"k = {k}: a partition has at least one part")
    if k > max(manifest.n, 1):
        raise UserError(
            f"k = {k} parts, but {manifest.name} has {manifest.n} vertices",
            "a part has at least one vertex: choose a smaller k",
        )


def _choose_tool(model: str, tool: str | None) -> tuple[str, Tool]:
    if model not in MODELS:
        raise unknown_name("model", model, MODELS)
    tools = MODELS[model].tools
    chosen = tool or tools[0]
    if chosen in TOOLS and chosen not in tools:
        raise UserError(
            f"the tool {chosen!r} does not take the model {model!r}",
            f"tools for {model}: {', '.join(tools)}",
        )
    return chosen, TOOLS.get(chosen)


def _check_balance(balance: str, chosen: str, backend: Tool) -> tuple[str, ...]:
    names = parse_balance(balance)
    if balance != DEFAULT_BALANCE and not backend.balanced:
        raise UserError(f"balance = {balance}: the tool {chosen!r} does not balance anything")
    return names


def _check_direction(direction: str) -> str:
    if direction not in DIRECTIONS:
        raise unknown_name("direction", direction, DIRECTIONS)
    return direction


def _check_numbers(imbalance: float, seed: int) -> None:
    if not 0 <= imbalance < float("inf"):
        raise UserError(f"imbalance = {imbalance}: it is a fraction, 0.01 for one percent")
    if not 0 <= seed < 2**31:
        raise UserError(f"seed = {seed} is not in 0..{2**31 - 1}")


def _check_name(path: Path, name: str, overwrite: bool) -> None:
    if has_partition(path, name) and not overwrite:
        raise UserError(
            f"{path} has a partition {name!r} already",
            "give --name or --force, or remove it first",
        )


def _checked(tool: str, parts: np.ndarray, k: int, weights: np.ndarray) -> np.ndarray:
    """What a tool returned, if it is a partition; a few parts that it left empty are filled."""
    parts = np.asarray(parts)
    if parts.shape != weights.shape or parts.dtype.kind not in "iu":
        raise UserError(f"{tool} returned {parts.dtype} {parts.shape} for {len(weights)} vertices")
    if parts.min() < 0 or parts.max() >= k:
        raise UserError(f"{tool} returned part numbers outside 0..{k - 1}")
    parts = parts.astype(np.int32)
    rows = np.bincount(parts, minlength=k)
    empty = np.flatnonzero(rows == 0)
    if 2 * len(empty) > k:
        raise UserError(
            f"{tool} returned only {k - len(empty)} of {k} parts",
            "choose a smaller k or another tool",
        )
    for part in empty:
        # The lightest vertex of the fullest part.
        donors = np.flatnonzero(parts == rows.argmax())
        parts[donors[weights[donors].argmin()]] = part
        rows = np.bincount(parts, minlength=k)
    return parts


def _warn_of_imbalance(graph: Graph, metrics: Metrics, asked: float, names: Iterable[str]) -> None:
    for name in names:
        (weights,) = constraint_weights(graph, metrics.direction, (name,))
        loads = {"nnz": metrics.nnz, "rows": metrics.rows, "train": metrics.train}[name] or [0]
        heaviest, average = int(weights.argmax()), sum(loads) / metrics.k
        reached = max(loads) / average - 1 if average else 0.0
        # Units cannot be cut: one more than the average is no imbalance.
        if reached <= asked + 5e-4 or max(loads) <= math.ceil(average):
            continue
        what = "" if name == DEFAULT_BALANCE else f" of {name}"
        message = f"imbalance {reached:.4f}{what} was reached, {asked:g} was asked for"
        if name == "nnz" and weights[heaviest] > (1 + asked) * average:
            message += (
                f": the row of vertex {heaviest} alone has {weights[heaviest]} entries, "
                f"{weights[heaviest] / average:.2f} average parts"
            )
        warnings.warn(message, PartitionWarning, stacklevel=3)


def _version(tool: Tool) -> str:
    try:
        return version(tool.distribution or "gcnmpi")
    except PackageNotFoundError:
        return "unknown"
