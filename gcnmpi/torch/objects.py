"""Graph folders that are made for a while: of a graph that a program holds, or of a part of one."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gcnmpi.api.graph import Graph, from_arrays, from_object
from gcnmpi.api.ranks import on_root
from gcnmpi.mpi.comm import Comm, agreed, from_root, has_all_ranks
from partition.errors import DataWarning, UserError
from partition.graph.graph import Graph as Arrays
from partition.graph.graph import segments
from partition.graph.store import open_graph


@dataclass(frozen=True)
class Groups:
    """The graphs that one graph is made of: (n,) which one a vertex is of, how many; their data."""

    index: np.ndarray
    size: int
    y: np.ndarray | None = None


@dataclass(frozen=True)
class Folder:
    """A graph folder and a partition in it; a temporary one is deleted with this object."""

    path: str
    partition: str | None
    temporary: Graph | None = None
    groups: Groups | None = None


def folder_of(
    graph: object,
    partition: str | None,
    comm: Comm,
    model: str = "hp",
    groups: int = 1,
    duplicates: str | None = None,
) -> Folder:
    """The folder that a path leads to, or a temporary one of a graph of another library.

    Rank 0 makes it; what other ranks give as ``graph`` does not matter then. Its partition has a
    part for each rank of one of ``groups`` groups; for an object, ``partition`` is the model. A
    UserError on all ranks as of :func:`gcnmpi.graph.from_object` and of ``add_partition``; or if
    the ranks are not all there are.
    """
    if isinstance(graph, Folder):
        return graph if comm.size > 1 else replace(graph, partition=None)
    path = from_root(
        comm, lambda: os.fspath(graph) if isinstance(graph, str | os.PathLike) else None
    )
    if path is not None:
        with agreed(comm):
            if duplicates is not None:
                raise UserError(
                    "duplicates: the edges of a folder are as they were imported",
                    "gcn-partition import --duplicates",
                )
        return Folder(path, partition)
    if not has_all_ranks(comm):
        raise UserError(
            "an object is opened by all ranks, and not by those of another communicator",
            "make a folder of it, with gcnmpi.graph.from_object(…, folder=…)",
        )
    whole: list[Any] = []  # on rank 0

    def begin() -> Groups | None:
        if isinstance(graph, list | tuple):
            from torch_geometric.data import Batch

            whole.append(Batch.from_data_list(graph))
        else:
            whole.append(graph)
        return _groups(whole[0])

    graphs = on_root(begin)
    without: dict[str, Any] = {}
    if graphs is not None and graphs.y is not None:
        without = {"labels": None, "targets": None, "masks": None}
    rule = duplicates or "merge"
    made = from_object(whole[0] if whole else None, **without, duplicates=rule)
    facts = made.manifest.source.get("duplicates")
    found = facts.get("found", 0) if isinstance(facts, Mapping) else 0
    if found and duplicates is None and comm.rank == 0:
        warnings.warn(
            f"{found:,} edges are listed more than once, and merged: duplicates='sum' counts each, "
            "'merge' says that this is meant",
            DataWarning,
            stacklevel=3,
        )
    return _partitioned(made, partition or model, comm.size // groups, graphs)


def sample_of(path: str, vertices: int, comm: Comm) -> Folder:
    """A temporary folder of a part of a graph, with a random partition.

    It has the arcs among so many vertices, or all: those that searches from a few arcs meet first,
    and a tenth that are drawn at random, most of which have no arcs then.
    """

    def sampled() -> tuple[dict[str, Any], str, bool]:
        stored = open_graph(path)
        chosen = _some(stored.graph, vertices)
        return _induced(stored.graph, chosen), stored.manifest.direction, stored.graph.parallel

    arrays, direction, parallel = on_root(sampled)
    duplicates = "keep" if parallel else "merge"
    return _partitioned(
        from_arrays(**arrays, direction=direction, duplicates=duplicates), "rp", comm.size
    )


def _partitioned(made: Graph, model: str, k: int, groups: Groups | None = None) -> Folder:
    partition = made.add_partition(model, k).name if k > 1 else None
    return Folder(str(made.path), partition, made, groups)


def _groups(graph: Any) -> Groups | None:
    """The graphs of a ``Batch`` of PyTorch Geometric."""
    index, size = getattr(graph, "batch", None), getattr(graph, "num_graphs", None)
    if index is None or size is None:
        return None
    y = getattr(graph, "y", None)
    if y is not None and (not y.ndim or len(y) != size or size == len(index)):
        y = None  # of vertices
    return Groups(index.numpy(), int(size), None if y is None else y.numpy())


def _some(graph: Arrays, count: int) -> np.ndarray:
    """So many vertices of a graph, in increasing order."""
    if graph.n <= count:
        return np.arange(graph.n)
    random, found = np.random.default_rng(0), np.zeros(graph.n, bool)
    arcs = random.integers(graph.nnz, size=min(graph.nnz, 1 + count // 100))
    new, left = np.unique(graph.indices[np.sort(arcs)]), count - count // 10
    while len(new := new[~found[new]][:left]):
        found[new] = True
        left -= len(new)
        new = np.unique(graph.indices[segments(graph.indptr, new)[0]])
    rest = np.flatnonzero(~found)
    found[random.choice(rest, count - np.count_nonzero(found), replace=False)] = True
    return np.flatnonzero(found)


def _induced(graph: Arrays, vertices: np.ndarray) -> dict[str, Any]:
    """The arcs among vertices, and the data of both, as arguments of ``from_arrays``."""
    (places, degrees), data = segments(graph.indptr, vertices), graph.arc_data
    source, target = np.repeat(np.arange(len(vertices)), degrees), graph.indices[places]
    number = np.full(graph.n, -1)
    number[vertices] = np.arange(len(vertices))
    among = number[target] >= 0
    places = places[among]

    def rows(array: Any, chosen: np.ndarray) -> np.ndarray | None:
        return None if array is None else np.asarray(array[chosen])

    masks = {f"{name}_mask": rows(mask, vertices) for name, mask in graph.masks.items()}
    if not np.any(masks.get("train_mask", True)):  # all with a class, then
        masks = {}
    return {
        "edge_index": np.stack([source[among], number[target[among]]]),
        "x": rows(graph.features, vertices), "y": rows(graph.labels, vertices),
        "targets": rows(graph.targets, vertices), "edge_weight": rows(graph.weights, places),
        "arc_features": rows(data.features, places), "n": len(vertices), **masks,
    }  # fmt: skip
