"""From a graph file to a graph folder: read, build the CSR arrays, attach vertex data, write."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from partition.errors import UserError, unknown_name
from partition.graph.graph import DIRECTIONS, MASKS, Graph, index_dtype
from partition.graph.store import Manifest, check_target, open_graph, write_graph
from partition.importing.readers import LAYOUTS, Layout, Source, read_source
from partition.importing.splits import RandomSplit
from partition.importing.vertex_data import SORTED, attach, check_ids_are_used, check_vertex_data

__all__ = ["attach", "attach_files", "build_graph", "import_graph"]

DUPLICATES = ("merge", "sum", "error")
SELF_LOOPS = ("keep", "drop")
# Beyond, source · n + target does not fit an int64.
MAX_VERTICES = 3_037_000_499


def import_graph(
    source_path: str | os.PathLike,
    out_path: str | os.PathLike,
    *,
    format: str = "auto",
    layout: Layout | None = None,
    undirected: bool = False,
    direction: str = "in",
    duplicates: str = "merge",
    self_loops: str = "keep",
    features: str | os.PathLike | None = None,
    labels: str | os.PathLike | None = None,
    targets: str | os.PathLike | None = None,
    masks: Mapping[str, str | os.PathLike] | None = None,
    mask_numbers: str | None = None,
    split: RandomSplit | None = None,
    seed: int = 0,
    keep_features: str = "auto",
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> Manifest:
    """Make a graph folder out of a graph file.

    Parameters
    ----------
    source_path, format, layout
        See :func:`partition.importing.readers.read_source`. ``layout.ids`` may also be "sorted",
        and is for the files of features, labels and masks, too.
    out_path, direction, overwrite, report, keep_features
        See :func:`partition.graph.store.write_graph`.
    undirected, duplicates, self_loops
        See :func:`build_graph`.
    features, labels, targets, masks, mask_numbers, split, seed
        See :func:`attach`.

    Raises
    ------
    UserError
        For a mistake in the arguments, before anything is read; for a bad file; or if the folder
        cannot be written.
    """
    source_path, out_path = Path(source_path), Path(out_path)
    _check_rules(duplicates, self_loops)
    if direction not in DIRECTIONS:
        raise unknown_name("direction", direction, DIRECTIONS)
    layout = layout or Layout()
    ids = layout.ids
    check_vertex_data(features, labels, targets, masks or {}, seed, ids, mask_numbers, split)
    check_target(out_path, overwrite)

    in_order = replace(layout, ids=None) if str(ids) == SORTED else layout
    source = read_source(source_path, format, in_order)
    if str(ids) == SORTED or "ids" not in LAYOUTS.get(source.format, ()):
        check_ids_are_used(ids, features, labels, targets, masks)
    try:
        graph, facts = build_graph(
            source, undirected=undirected, duplicates=duplicates, self_loops=self_loops
        )
    except UserError as error:
        raise UserError(f"{source_path}: {error.message}", error.hint) from error
    del source
    graph = attach(
        graph,
        features=features,
        labels=labels,
        targets=targets,
        masks=masks,
        ids=ids,
        mask_numbers=mask_numbers,
        split=split,
        seed=seed,
    )
    facts = {"file": source_path.name} | facts
    facts |= attached_facts(features, labels, targets, masks, ids, split, seed)
    return write_graph(
        out_path, graph, source=facts, direction=direction, overwrite=overwrite, report=report,
        keep_features=keep_features,
    )  # fmt: skip


def attach_files(
    path: str | os.PathLike,
    *,
    features: str | os.PathLike | None = None,
    labels: str | os.PathLike | None = None,
    targets: str | os.PathLike | None = None,
    masks: Mapping[str, str | os.PathLike] | None = None,
    ids: str | os.PathLike | None = None,
    mask_numbers: str | None = None,
    split: RandomSplit | None = None,
    seed: int = 0,
    keep_features: str = "auto",
) -> Manifest:
    """Add vertex data to a graph folder; arcs and partitions stay as they are.

    Parameters
    ----------
    path : path
        The folder.
    features, labels, targets, masks, ids, mask_numbers, split, seed
        See :func:`attach`.
    keep_features
        See :func:`partition.graph.store.write_graph`.

    Raises
    ------
    UserError
        As :func:`attach`; or if the folder cannot be written.
    """
    check_vertex_data(features, labels, targets, masks or {}, seed, ids, mask_numbers, split)
    check_ids_are_used(ids, features, labels, targets, masks)
    stored = open_graph(path)
    graph = attach(
        stored.graph,
        features=features,
        labels=labels,
        targets=targets,
        masks=masks,
        ids=ids,
        mask_numbers=mask_numbers,
        split=split,
        seed=seed,
    )
    facts = dict(stored.manifest.source)
    before = facts.pop("attached", {})
    if masks or split is not None:  # what masks were drawn or read before is no longer so
        facts.pop("split", None)
    if split is not None:
        before = {name: file for name, file in before.items() if name not in MASKS}
    new = attached_facts(features, labels, targets, masks, ids, split, seed)
    if attached := before | new.pop("attached", {}):
        new["attached"] = attached
    return write_graph(
        path, graph, source=facts | new, direction=stored.manifest.direction, overwrite=True,
        keep_features=keep_features,
    )  # fmt: skip


def attached_facts(
    features: str | os.PathLike | None,
    labels: str | os.PathLike | None,
    targets: str | os.PathLike | None,
    masks: Mapping[str, str | os.PathLike] | None,
    ids: str | os.PathLike | None,
    split: RandomSplit | None,
    seed: int,
) -> dict[str, Any]:
    """What the manifest says of vertex data: names of files, seed, and how masks were drawn."""
    given = {"features": features, "labels": labels, "targets": targets}
    given |= dict(masks or {}) | {"ids": ids}
    attached = {name: Path(value).name for name, value in given.items() if value is not None}
    facts: dict[str, Any] = {"attached": attached} if attached else {}
    if any(value.startswith("random:") for value in attached.values()):
        facts["seed"] = seed
    if split is not None:
        facts["split"] = split.facts()
    return facts


def build_graph(
    source: Source,
    *,
    undirected: bool = False,
    duplicates: str = "merge",
    self_loops: str = "keep",
) -> tuple[Graph, dict[str, Any]]:
    """Sort arcs into CSR form, and settle self-loops and duplicates by the rules given.

    Self-loops are settled first, then duplicates, then the graph is made undirected.

    Parameters
    ----------
    source : Source
    undirected : bool
        Take the union of A and its transpose; where both arcs exist with different weights, each
        gets their mean.
    duplicates : {"merge", "sum", "error"}
        Arcs listed more than once: one arc with the first weight; one arc with the sum of the
        weights (of ones, where the file has none); or an error. In a symmetric source i–j and
        j–i are the same edge.
    self_loops : {"keep", "drop"}

    Returns
    -------
    graph : Graph
    facts : dict
        For the manifest: ``format``, ``arcs_read`` (entries of the file), ``symmetric_file``,
        ``self_loops`` and ``duplicates`` (``found`` and ``rule`` each; copies beyond the first
        are duplicates), ``undirected``.

    Raises
    ------
    UserError
        For an unknown rule, a vertex outside 0..n−1, too many vertices, duplicates where they
        are an error, or a sum of weights that is not finite.
    """
    _check_rules(duplicates, self_loops)
    _check_vertices(source)
    n = source.n

    key, weights, nloops = _keys(source, drop_loops=self_loops == "drop")
    key, weights, ncopies = _settle_duplicates(key, weights, duplicates, source)
    if source.symmetric or undirected:
        key, weights = _symmetrise(key, weights, n)

    indptr = np.searchsorted(key, np.arange(n + 1) * n)
    indices = (key % n).astype(index_dtype(n))
    graph = Graph(
        indptr=indptr,
        indices=indices,
        weights=weights,
        features=source.features,
        labels=source.labels,
        masks=dict(source.masks),
        class_names=source.class_names,
        ids=source.ids,
    )
    facts = {
        "format": source.format,
        "arcs_read": len(source.source),
        "symmetric_file": source.symmetric,
        "self_loops": {"found": nloops, "rule": self_loops},
        "duplicates": {"found": ncopies, "rule": duplicates},
        "undirected": undirected,
    } | dict(source.notes)
    return graph, facts


def _check_rules(duplicates: str, self_loops: str) -> None:
    if duplicates not in DUPLICATES:
        raise unknown_name("rule for duplicates", duplicates, DUPLICATES)
    if self_loops not in SELF_LOOPS:
        raise unknown_name("rule for self-loops", self_loops, SELF_LOOPS)


def _check_vertices(source: Source) -> None:
    if source.n > MAX_VERTICES:
        raise UserError(f"{source.n} vertices are more than the {MAX_VERTICES} that are supported")
    for ends in (source.source, source.target):
        if len(ends) and (ends.min() < 0 or ends.max() >= source.n):
            raise UserError(f"an arc has a vertex outside 0..{source.n - 1}")


def _keys(source: Source, drop_loops: bool) -> tuple[np.ndarray, np.ndarray | None, int]:
    """source · n + target of each arc, which orders arcs as CSR does; and how many are loops."""
    row, column = source.source, source.target
    if source.symmetric:  # edges in the lower triangle, so that i–j and j–i are duplicates
        row, column = np.maximum(row, column), np.minimum(row, column)
    key = np.multiply(row, source.n, dtype=np.int64)
    key += column
    loop = row == column
    nloops = int(np.count_nonzero(loop))
    weights = source.weights
    if drop_loops and nloops:
        key = key[~loop]
        weights = None if weights is None else weights[~loop]
    return key, weights, nloops


def _settle_duplicates(
    key: np.ndarray, weights: np.ndarray | None, rule: str, source: Source
) -> tuple[np.ndarray, np.ndarray | None, int]:
    """Sorted keys, each once, their weights, and how many copies there were."""
    key, weights = _sorted(key, weights)
    first = _first_of_each(key)
    ncopies = len(key) - int(np.count_nonzero(first))
    if ncopies == 0:
        return key, weights, 0
    if rule == "error":
        arc = np.array(divmod(int(key[np.argmin(first)]), source.n))
        i, j = arc if source.ids is None else source.ids[arc]
        raise UserError(
            f"the arc {i} -> {j} is listed more than once; there are {ncopies} such copies",
            "the rules merge and sum accept duplicates",
        )
    start = np.flatnonzero(first)
    if rule == "sum" and weights is None:
        weights = np.diff(start, append=len(key)).astype(np.float64)
    elif weights is not None and rule == "sum":
        with np.errstate(over="ignore"):
            weights = np.add.reduceat(weights, start)
        if not np.isfinite(weights).all():
            raise UserError("the weights of duplicate arcs add up to more than a float64 holds")
    elif weights is not None:
        weights = weights[start]
    return key[start], weights, ncopies


def _symmetrise(
    key: np.ndarray, weights: np.ndarray | None, n: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Add the reverse of every arc; where it is there already, both get the mean weight."""
    row, column = np.divmod(key, n)
    column *= n
    column += row
    del row
    both = np.concatenate([key, column])
    del column
    both, weights = _sorted(both, None if weights is None else np.tile(weights, 2))
    first = _first_of_each(both)
    if weights is not None:
        # A key occurs at most twice (and a self-loop twice with one weight).
        start = np.flatnonzero(first)
        one, other = weights[start], weights[start + np.diff(start, append=len(both)) - 1]
        weights = np.where(one == other, one, one / 2 + other / 2)
    return both[first], weights


def _sorted(key: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Sorted by key, copies of a key in their old order; ``key`` itself is overwritten."""
    if weights is None:
        key.sort()
        return key, None
    order = np.argsort(key, kind="stable")
    return key[order], weights[order]


def _first_of_each(key: np.ndarray) -> np.ndarray:
    first = np.ones(len(key), bool)
    np.not_equal(key[1:], key[:-1], out=first[1:])
    return first
