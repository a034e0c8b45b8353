"""Features, labels and masks from ``.npy`` files, or random ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from partition.errors import UserError, unknown_name
from partition.graph import MASKS, UNLABELLED, Graph
from partition.readers.files import (
    MAX_CLASSES,
    check_memory,
    class_labels,
    finite_features,
    read_errors,
)
from partition.records import map_npy

FEATURE_STREAM, LABEL_STREAM = 1, 2


def attach(
    graph: Graph,
    *,
    features: str | os.PathLike | None = None,
    labels: str | os.PathLike | None = None,
    masks: Mapping[str, str | os.PathLike] | None = None,
    seed: int = 0,
) -> Graph:
    """The graph with vertex data from ``.npy`` files or from a generator.

    Row i of a file belongs to vertex i: where the graph has ``ids``, to the i-th smallest id.

    Parameters
    ----------
    features : path or "random:D"
        (n, d) finite numbers, or D columns of normal random numbers. Replaces the graph's own,
        as do the following.
    labels : path or "random:C"
        (n,) integers, −1 for a vertex without a label; or uniform over 0..C−1.
    masks : mapping of "train" / "val" / "test" to path
        (n,) bool, or the numbers of the vertices that are in.
    seed : int
        Of the random features and labels; independent streams.

    Raises
    ------
    UserError
        If a file is missing or damaged, has the wrong shape or type, or holds numbers out of
        range; or if a mask has a vertex without a label.
    """
    masks = dict(masks or {})
    check_vertex_data(features, labels, masks, seed)
    n = graph.n
    if features is not None:
        width = _random_size(features)
        graph = replace(
            graph,
            features=_random_features(n, width, seed)
            if width
            else finite_features(_load(features, n), str(features)),
        )
    if labels is not None:
        classes = _random_size(labels)
        graph = replace(
            graph,
            labels=generator(seed, LABEL_STREAM).integers(classes, size=n, dtype=np.int32)
            if classes
            else class_labels(_load(labels, n), str(labels)),
        )
    loaded = {name: _load_mask(path, n) for name, path in masks.items()}
    graph = replace(graph, masks=dict(graph.masks) | loaded)
    for name, mask in graph.masks.items():
        where = f"{masks[name]}: the " if name in masks else "the "
        if graph.labels is None:
            raise UserError(f"{where}{name} mask needs a graph with labels", "give --labels too")
        lacking = mask & (graph.labels == UNLABELLED)
        if lacking.any():
            vertex = int(np.argmax(lacking))
            raise UserError(f"{where}{name} mask has vertex {vertex}, which has no label")
    return graph


def check_vertex_data(
    features: str | os.PathLike | None,
    labels: str | os.PathLike | None,
    masks: Mapping[str, str | os.PathLike],
    seed: int,
) -> None:
    """The mistakes in the arguments of :func:`attach` that show before any file is read."""
    for name in masks:
        if name not in MASKS:
            raise unknown_name("mask", name, MASKS)
    generator(seed, FEATURE_STREAM)
    for value in (features, labels, *masks.values()):
        if value is not None and _random_size(value) is None and not Path(value).is_file():
            raise UserError(f"there is no file {value}")
    if labels is not None and (_random_size(labels) or 0) > MAX_CLASSES:
        raise UserError(f"{labels!r}: there can be at most {MAX_CLASSES} classes")
    if any(str(path).startswith("random:") for path in masks.values()):
        raise UserError("a mask is a .npy file, not random")


def generator(seed: int, stream: int) -> np.random.Generator:
    """The random numbers of one purpose: each ``stream`` of a seed is independent of the others."""
    if not 0 <= seed < 2**64:
        raise UserError(f"seed {seed} is outside 0..2^64-1")
    return np.random.Generator(np.random.Philox(key=np.array([seed, stream], np.uint64)))


def _random_size(value: str | os.PathLike) -> int | None:
    """D of "random:D"; None where ``value`` is a path."""
    text = str(value)
    if not text.startswith("random:"):
        return None
    size = text.removeprefix("random:")
    if not (size.isdecimal() and size.isascii() and 0 < int(size) < 2**31):
        raise UserError(f"{text!r} is not 'random:NUMBER', such as random:16")
    return int(size)


def _random_features(n: int, width: int, seed: int) -> np.ndarray:
    check_memory(4 * n * width, f"{n} x {width} random features")
    return generator(seed, FEATURE_STREAM).standard_normal((n, width), dtype=np.float32)


def _load(path: str | os.PathLike, n: int | None) -> np.ndarray:
    """A mapped .npy file, with a row for each of ``n`` vertices where n is given."""
    with read_errors(Path(path)):
        array = map_npy(path)
    if array.ndim == 0:
        raise UserError(f"{path} is not a .npy file of one array with a row for each vertex")
    if n is not None and len(array) != n:
        raise UserError(f"{path} has {len(array)} rows, the graph has {n} vertices")
    return array


def _load_mask(path: str | os.PathLike, n: int) -> np.ndarray:
    array = _load(path, None)
    if array.ndim != 1 or array.dtype.kind not in "biu":
        raise UserError(
            f"{path}: a mask is a vector of bool or of vertex numbers, "
            f"not {array.dtype} {array.shape}"
        )
    if array.dtype.kind == "b":
        if len(array) != n:
            raise UserError(f"{path} has {len(array)} rows, the graph has {n} vertices")
        return np.array(array)
    if len(array) and (array.min() < 0 or array.max() >= n):
        raise UserError(f"{path} names a vertex outside 0..{n - 1}")
    mask = np.zeros(n, bool)
    mask[array] = True
    return mask
