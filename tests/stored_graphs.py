"""Graphs and partitions that tests of several files train on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from partition.graph.graph import Graph
from partition.graph.manifest import read_manifest
from partition.graph.store import Partition, open_graph, write_graph, write_partition
from partition.importing.arcs import build_graph
from partition.importing.readers.source import Source
from partition.pipeline.adding import add_partition, figures_of


def graph_of(dense: np.ndarray, **data) -> Graph:
    """The graph whose arcs are the entries of a matrix; without weights if that is boolean."""
    source, target = np.nonzero(dense)
    indptr = np.searchsorted(source, np.arange(len(dense) + 1)).astype(np.int64)
    weights = None if dense.dtype == bool else dense[source, target]
    return Graph(indptr, target.astype(np.int32), weights, **data)


def store(path: Path, graph: Graph, *sizes: int, **options) -> Path:
    """Write a graph, and a partition "rp-K" for each number of parts K."""
    write_graph(path, graph, source={}, **options)
    for k in sizes:
        add_partition(path, "rp", k)
    return path


def store_parts(path: Path, name: str, parts: np.ndarray, k: int, mixed: bool = True) -> None:
    """A partition that a test has made; ``mixed``: with its metrics of the mixed exchange too."""
    stored = open_graph(path)
    figures, about = figures_of(stored, parts, k), (stored.manifest.id, "test", "numpy", "1", "in")
    known = vars(figures) if mixed else {"metrics": figures.metrics}
    partition = Partition(name, parts.astype(np.int32), k, *about, **known)
    write_partition(path, partition)


def uneven_parts(n: int, k: int) -> np.ndarray:
    """Uneven, in no order, and part 1 is empty where there are three or more."""
    shares = np.arange(k, 0, -1.0)
    if k > 2:
        shares[1] = 0
    return np.random.default_rng(k).choice(k, n, p=shares / shares.sum())


def with_uneven_parts(path: Path, sizes: Iterable[int], mixed: bool = True) -> Path:
    """Store those, "uneven-K", for each number of parts K."""
    n = read_manifest(path).n
    for k in sizes:
        store_parts(path, f"uneven-{k}", uneven_parts(n, k), k, mixed)
    return path


def small_graph(kind: str) -> Graph:
    """61 vertices of which some are isolated; weights of both directions differ if directed.

    "hubs": some vertices have arcs to half of the others, other ones from half of them; and
    self-loops.
    """
    rng = np.random.default_rng(3)
    n, narcs, symmetric = 61, 260, kind == "symmetric"
    source, target = rng.integers(0, n - 7, (2, narcs))
    if kind == "hubs":
        near, far = np.repeat([2, 3, 40], 27), np.tile(np.arange(0, n - 7, 2), 3)
        loops = np.arange(0, n, 5)
        source = np.concatenate([source[:60], near, far, loops])
        target = np.concatenate([target[:60], far, near + 6, loops])
        narcs = len(source)
    weights = rng.uniform(0.2, 1.5, narcs)
    if symmetric:
        source, target = np.append(source, target), np.append(target, source)
        weights = np.append(weights, weights)
    labels = rng.integers(-1, 5, n).astype(np.int32)
    labels[:5] = range(5)
    masks = {name: rng.random(n) < 0.5 for name in ("train", "val", "test")}
    masks["train"][:2] = True
    features = rng.standard_normal((n, 7)).astype(np.float32)
    source = Source(n, source, target, weights, features, labels, {} if symmetric else masks)
    return build_graph(source)[0]


def change_json(file: Path, *gone: str, **changes: object) -> None:
    """Take fields out of a file, and change others."""
    facts = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: facts[key] for key in facts if key not in gone}))


def change_array(folder: Path, name: str, place: object, value: object) -> None:
    """Change numbers of an array of a graph folder."""
    array = np.load(folder / f"{name}.npy")
    array[place] = value
    np.save(folder / f"{name}.npy", array)


def store_small_graphs(folder: Path) -> Path:
    """The small graphs of all kinds, with partitions uneven-K for K = 1 … 16."""
    for kind in ("directed", "symmetric", "hubs"):
        with_uneven_parts(store(folder / f"{kind}.graph", small_graph(kind)), range(1, 17))
    return folder
