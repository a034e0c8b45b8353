"""Graph folders from Python: made of arrays or files, opened, partitioned.

Under mpirun all ranks call these functions; rank 0 does the work, which is serial.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from gcnmpi.api.ranks import on_root
from partition.errors import UserError, installing
from partition.graph import store
from partition.graph.graph import ArcData, SparseRows, arcs
from partition.graph.graph import Graph as StoredArcs
from partition.graph.manifest import Manifest
from partition.graph.samples import (
    SampleSet,
    Steps,
    read_samples,
    shares_of_steps,
    with_columns,
    write_samples,
)
from partition.graph.store import Partition, StoredGraph, member

if TYPE_CHECKING:
    import scipy.sparse as sp
    import torch
    from torch_geometric.data import Data, HeteroData


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """A graph folder.

    Attributes
    ----------
    path : Path
    manifest : Manifest
        What the folder says of itself.
    """

    path: Path
    manifest: Manifest
    _stored: StoredGraph
    _temporary: tempfile.TemporaryDirectory | None = field(default=None)

    @property
    def n(self) -> int:
        """Number of vertices of the graph."""
        return self.manifest.n

    @property
    def nnz(self) -> int:
        """Number of arcs of the graph."""
        return self.manifest.nnz

    @property
    def directed(self) -> bool:
        """Whether there is an arc without its reverse."""
        return self.manifest.directed

    @property
    def features(self) -> np.ndarray | SparseRows | None:
        """(n, d) float32, mapped from the file; None without features."""
        return self._stored.graph.features

    @property
    def labels(self) -> np.ndarray | None:
        """(n,) int32, −1 for a vertex without one, mapped from the file; None without labels."""
        return self._stored.graph.labels

    @property
    def targets(self) -> np.ndarray | None:
        """(n, c) numbers, NaN where unknown, mapped from the file; None without targets."""
        return self._stored.graph.targets

    @property
    def masks(self) -> Mapping[str, np.ndarray]:
        """ "train", "val" and "test", those that there are: (n,) bool, or (n, splits) bool."""
        return self._stored.graph.masks

    @property
    def ids(self) -> np.ndarray | None:
        """(n,) ids of the vertices in the source file; None where they were 0..n−1."""
        return self._stored.graph.ids

    @property
    def arc_data(self) -> ArcData:
        """Data of the arcs: features, labels, masks, and their numbers in the source."""
        return self._stored.graph.arc_data

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes; None where they are their numbers."""
        return self._stored.graph.class_names

    @property
    def classes(self) -> int:
        """Number of classes; 0 without labels."""
        return self.manifest.classes

    def adjacency(self) -> sp.csr_array:
        """A as a SciPy CSR matrix with a row for each source, in memory.

        Weights of parallel arcs are added.
        """
        return self._stored.merged.adjacency()

    def partitions(self) -> list[str]:
        """Names of the partitions in the folder, sorted."""
        return store.list_partitions(self.path)

    def partition(self, name: str, exchange: str = "rows") -> Partition:
        """A partition: ``parts`` (n,) int32, ``k``, its metrics and how it was made.

        Parameters
        ----------
        name : str
        exchange : {"rows", "mixed"}
            Which one of a pair that ``auto`` has made.

        Raises
        ------
        UserError
            If there is none of that name, or it is damaged.
        """
        return store.read_partition(self.path, member(self.path, name, exchange))

    def add_partition(
        self,
        model: str = "hp",
        k: int = 2,
        *,
        name: str | None = None,
        refine: bool = False,
        if_missing: bool = False,
        overwrite: bool = False,
        **options: Any,
    ) -> Partition:
        """Partition the graph, as ``gcn-partition add``, and store the result in its folder.

        Parameters
        ----------
        model : str
            ``gp``, ``hp``, ``mg``, ``rp``, ``block``, ``shp``; or ``auto``, which tries several,
            and keeps the best for each exchange, ``NAME-rows`` and ``NAME-mixed``. The first is
            returned; ``partition="auto-4"`` of a run takes the one that suits it.
        k : int
            Number of parts: one for each rank.
        name : str, optional
            Default: ``MODEL-K``.
        refine : bool
            Refine the result, so that fewer rows are sent.
        if_missing : bool
            Return the partition of that name if the folder has it.
        overwrite : bool
            Replace a partition of that name.
        **options
            See :func:`partition.pipeline.adding.add_partition`; for ``auto``,
            :func:`partition.pipeline.portfolio.add_best`.

        Raises
        ------
        UserError
            As ``gcn-partition add``, on all ranks.
        """

        def make() -> str:
            from partition.backends.catalogue import AUTO, MODELS
            from partition.pipeline.adding import add_partition, existing_partitions
            from partition.pipeline.portfolio import add_best
            from partition.refinement.objective import OBJECTIVES

            called = name or (f"{model}-{k}" if if_missing else None)
            if if_missing:
                there = existing_partitions(self.path, called, k, overwrite)
                if there:
                    return there[0].name
            shared: dict[str, Any] = {"name": called, "overwrite": overwrite, **options}
            if refine:
                exchange = MODELS[model].exchange if model in MODELS else "rows"
                shared["objective" if model == AUTO else "refine"] = OBJECTIVES[exchange]
            if model == AUTO:
                return add_best(self.path, k, **shared)[0].name
            return add_partition(self.path, model, k, **shared).name

        return self.partition(on_root(make))

    def add_samples(
        self,
        states: ArrayLike,
        targets: ArrayLike | None = None,
        *,
        name: str = "samples",
        split: tuple[float, float, float] = (0.7, 0.1, 0.2),
        ranges: Mapping[str, Sequence[tuple[int, int]]] | None = None,
        ids: ArrayLike | str | os.PathLike | None = None,
        overwrite: bool = False,
    ) -> SampleSet:
        """Put many states of the graph into its folder, as ``gcn-partition samples``.

        Parameters
        ----------
        states, targets : (steps, n, columns) arrays
            Perhaps memory-mapped; NaN where unknown. Without targets, later states are predicted.
            Of two axes, the last one is that of the only column.
        split : three numbers
            Shares of the steps to train, validate and test on, in this order.
        ranges : mapping of "train", "val", "test" to lists of (start, stop), optional
            Steps instead; no sample reaches over a border.
        ids : (n,) integers or texts, path or "sorted", optional
            The id of each vertex in the order of the arrays; ``graph.ids``: as in the graph. A
            graph whose ids are not consecutive numbers needs it.

        Raises
        ------
        UserError
            As ``gcn-partition samples``, on all ranks.
        """

        def make() -> None:
            from partition.importing.data_files import RowMap  # it imports Arrow

            of_rows = ids if ids is None or isinstance(ids, str | os.PathLike) else np.asarray(ids)
            row_map = RowMap(self._stored.graph, of_rows)

            def ordered(array: ArrayLike, name: str) -> Steps:
                return row_map.steps(with_columns(np.asanyarray(array)), name)

            given = ordered(states, "states")
            of = ranges or shares_of_steps(given.shape[0] if given.shape else 0, split)
            aims = None if targets is None else ordered(targets, "targets")
            write_samples(self.path, name, given, aims, of, made="of arrays", force=overwrite)

        on_root(make)
        return read_samples(self.path, name)

    def remove_partition(self, *names: str) -> None:
        """Delete partitions: all, or none and a UserError if one does not exist or is in use."""
        on_root(lambda: store.remove_partition(self.path, *names))

    def to_pyg(self) -> Data | HeteroData:
        """A ``torch_geometric.data.Data`` with what the folder holds, in memory of its own.

        Of a heterogeneous graph, a ``HeteroData`` with the same of each type, and ``edge_index``
        and ``edge_weight`` of each relation.

        ``x`` float32, ``y`` int64 classes or the targets, ``edge_index`` int64 in the order of the
        sources, ``edge_weight`` float32 where arcs have weights, ``train_mask`` and so on, and
        ``ids`` where vertices have them: a tensor, or a list of texts. Of the arcs, in the order
        of ``edge_index``, ``edge_attr`` float32, ``edge_label``, ``edge_train_mask`` and so on, and
        ``edge_ids``, where they have other numbers in the source.

        Raises
        ------
        UserError
            If PyTorch Geometric is not installed.
        """
        return _pyg_of(self._stored.graph)

    def __repr__(self) -> str:
        kind = "directed" if self.directed else "undirected"
        return f"<graph {self.path}: {self.n} vertices, {self.nnz} arcs, {kind}>"


def open(path: str | os.PathLike) -> Graph:
    """Open a graph folder; nothing is read but what is asked for.

    Raises
    ------
    UserError
        If it is none, of another version, or damaged.
    """
    on_root(lambda: store.open_graph(path, check=False).path)  # its mistake is that of all ranks
    stored = store.open_graph(path, check=False)
    return Graph(stored.path, stored.manifest, stored)


def from_arrays(
    edge_index: object,
    x: object = None,
    y: object = None,
    *,
    folder: str | os.PathLike | None = None,
    train_mask: object = None,
    val_mask: object = None,
    test_mask: object = None,
    targets: object = None,
    edge_weight: object = None,
    n: int | None = None,
    ids: object = None,
    split: str | None = None,
    splits: int = 1,
    seed: int = 0,
    **options: object,
) -> Graph:
    """Make a graph folder out of arrays: of NumPy, SciPy or PyTorch, or what NumPy takes for one.

    Parameters
    ----------
    edge_index : (2, E) integers, or SciPy sparse matrix
        Sources and targets of the arcs, as in PyTorch Geometric; or an (n, n) matrix with a row for
        each source.
    x : (n, d) numbers, or SciPy sparse matrix, optional
        Features.
    y : (n,) integers or texts, optional
        Classes, −1 for a vertex without one.
    folder : path, optional
        Where to make it; its name ends in ``.graph``. Without it, a temporary one, which is deleted
        with the graph that is returned.
    train_mask, val_mask, test_mask : arrays, optional
        (n,) bool, or numbers of vertices; or (n, splits) bool.
    targets : (n,) or (n, c) numbers, optional
        To learn in place of classes: NaN where unknown.
    edge_weight : (E,) numbers, optional
    n : int, optional
        Number of vertices, where neither ``x`` nor ``y`` has a row for each.
    ids : (n,) integers or texts, optional
        What the vertices are called, in their order.
    split : str, optional
        How masks are drawn in place of those: "random:0.6,0.2,0.2", "per-class:20,500,1000".
    splits, seed : int
        How many are drawn, and their seed.
    **options
        ``missing_labels``: words in ``y`` for no label; ``arc_features``, ``arc_labels``,
        ``arc_masks``, with a row for each arc of ``edge_index``;
        ``undirected``, ``direction``, ``duplicates``, ``self_loops``, ``overwrite``: see
        :func:`partition.importing.assemble.import_arrays`.

    Raises
    ------
    UserError
        On all ranks: as ``gcn-partition import``.
    """
    masks = {"train": train_mask, "val": val_mask, "test": test_mask}
    given = {name: mask for name, mask in masks.items() if mask is not None}
    arrays = {"edge_index": edge_index, "edge_weight": edge_weight, "n": n, "ids": ids}
    arrays |= {"features": x, "labels": y, "targets": targets, "masks": given}
    return _made(lambda: arrays, folder, split, splits, seed, options)


def from_object(
    graph: object,
    *,
    folder: str | os.PathLike | None = None,
    split: str | None = None,
    splits: int = 1,
    seed: int = 0,
    **options: Any,
) -> Graph:
    """Make a graph folder out of a graph of another library.

    Parameters
    ----------
    graph : networkx.Graph, igraph.Graph, torch_geometric.data.Data, dgl.DGLGraph,
            pandas.DataFrame or a SciPy sparse matrix
        What is taken of each: :func:`partition.importing.readers.libraries.arrays_of`. A data frame
        is a list of arcs. Also ``HeteroData`` and heterogeneous graphs of DGL.
    folder, split, splits, seed
        See :func:`from_arrays`. Masks that are drawn replace those of the graph.
    **options
        In place of what the graph holds: ``features``, ``labels``, ``targets``, ``masks``;
        ``arc_features="w1,w2"`` and ``arc_label="kind"`` name attributes of edges that are data of
        the arcs; and as of :func:`from_arrays`. Of heterogeneous graphs ``reverse``, ``direction``,
        ``duplicates``, ``self_loops``, ``overwrite``: see
        :func:`partition.importing.assemble.import_typed`.

    Raises
    ------
    UserError
        On all ranks: if it is no such graph; if it is undirected, and ``undirected=False``; or as
        :func:`from_arrays`.
    """

    def arrays() -> dict[str, Any]:
        from partition.importing.readers.libraries import arrays_of, typed_of

        if (typed := typed_of(graph)) is not None:
            return {"typed": typed}
        names = {
            name: options.pop(name)
            for name in ("arc_features", "arc_label")
            if isinstance(options.get(name), str)
        }
        found = arrays_of(graph, **names)
        if found.get("undirected") and not options.get("undirected", True):
            raise UserError(
                "the graph is undirected: with undirected=False, one of the two arcs of each edge "
                "would be missing",
                "leave undirected out, or give a graph with directed edges",
            )
        if split is not None:
            found.pop("masks", None)
        return found

    return _made(arrays, folder, split, splits, seed, options)


def _made(
    arrays: Callable[[], dict[str, Any]],
    folder: str | os.PathLike | None,
    split: str | None,
    splits: int,
    seed: int,
    options: dict[str, Any],
) -> Graph:
    """The folder of what :func:`partition.importing.assemble.import_arrays` takes, opened."""
    temporary = None

    def make() -> Path:
        from partition.importing.assemble import import_arrays, import_typed
        from partition.importing.data_files import RandomSplit

        nonlocal temporary
        if folder is not None:
            path = Path(folder)
        else:
            temporary = tempfile.TemporaryDirectory(prefix="gcnmpi-", ignore_cleanup_errors=True)
            path = Path(temporary.name) / "arrays.graph"
        drawn = None if split is None else RandomSplit(split, splits, seed)
        given = arrays()
        if (typed := given.pop("typed", None)) is not None:
            import_typed(path, typed, **options, split=drawn)
        else:
            import_arrays(path, **(given | options), split=drawn)
        return path

    path = on_root(make)
    stored = store.open_graph(path, check=False)
    return Graph(stored.path, stored.manifest, stored, temporary)


def from_file(source: str | os.PathLike, folder: str | os.PathLike, **options: Any) -> Graph:
    """Make a graph folder out of a graph file, as ``gcn-partition import``.

    Parameters
    ----------
    source : path
    folder : path
        Its name ends in ``.graph``.
    **options
        See :func:`partition.importing.assemble.import_graph`.

    Raises
    ------
    UserError
        On all ranks: as ``gcn-partition import``.
    """

    def make() -> None:
        from partition.importing.assemble import import_graph

        import_graph(source, folder, **options)

    on_root(make)
    return open(folder)


def _pyg_of(graph: StoredArcs) -> Data | HeteroData:
    """The object that :meth:`Graph.to_pyg` describes."""
    try:
        import torch
        from torch_geometric.data import Data
    except ModuleNotFoundError as error:
        raise UserError(
            f"to_pyg needs the Python package {error.name!r}",
            installing("torch", "torch_geometric"),
        ) from error

    def tensor(values: ArrayLike, dtype: DTypeLike | None = None) -> torch.Tensor:
        return torch.from_numpy(np.array(values, dtype))  # a copy: files are mapped read-only

    if graph.vertex_types is not None:
        return _hetero_data(graph, tensor)
    data = Data(edge_index=tensor(np.stack([arcs(graph), graph.indices]), np.int64))
    data.num_nodes = graph.n
    if graph.weights is not None:
        data.edge_weight = tensor(graph.weights, np.float32)
    if graph.features is not None:
        data.x = tensor(graph.features)
    if graph.labels is not None and graph.classes:
        data.y = tensor(graph.labels, np.int64)
    elif graph.targets is not None:
        data.y = tensor(graph.targets)
    for name, mask in graph.masks.items():
        data[f"{name}_mask"] = tensor(mask)
    for name, column in graph.arc_data.columns().items():
        called = {"features": "attr", "labels": "label"}
        part = name.removeprefix("arc_")
        data[f"edge_{called.get(part, part)}"] = tensor(column)
    if graph.ids is not None:
        data.ids = tensor(graph.ids) if graph.ids.dtype.kind == "i" else graph.ids.tolist()
    return data


def _hetero_data(graph: StoredArcs, tensor: Callable[..., torch.Tensor]) -> HeteroData:
    """A ``HeteroData`` with all of a heterogeneous graph; ``tensor`` copies an array into one."""
    from torch_geometric.data import HeteroData

    from partition.importing.assemble import taken_apart

    parts, data = taken_apart(graph), HeteroData()
    for name, count in parts.counts.items():
        one = data[name]
        one.num_nodes = count
        if name in parts.features:
            one.x = tensor(parts.features[name])
        if name in parts.labels:
            one.y = tensor(parts.labels[name], np.int64)
        elif name in parts.targets:
            one.y = tensor(parts.targets[name])
        for mask, rows in parts.masks.items():
            if name in rows:
                one[f"{mask}_mask"] = tensor(rows[name])
        if name in parts.ids:
            ids = parts.ids[name]
            one.ids = tensor(ids) if ids.dtype.kind == "i" else ids.tolist()
    for arcs_of in parts.arcs:
        found = data[tuple(arcs_of.relation)]
        found.edge_index = tensor(np.stack([arcs_of.source, arcs_of.target]), np.int64)
        if arcs_of.weights is not None:
            found.edge_weight = tensor(arcs_of.weights, np.float32)
    return data
