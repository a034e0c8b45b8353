"""Opening a graph folder: every rank gets its part."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from gcnmpi.core.resident import keep_large_arrays, return_freed_memory
from gcnmpi.layout.arcs import check_content
from gcnmpi.layout.entries import RELATION, EntryRows, load_entry_rows
from gcnmpi.layout.placing import Arriving
from gcnmpi.layout.runtime import Demand, Runtime, Source
from gcnmpi.mpi.comm import Comm, agreed
from gcnmpi.mpi.process import world
from gcnmpi.mpi.reduction import NCCL, joined, usable_reduction
from gcnmpi.options.config import Config, from_table
from gcnmpi.options.task import LINKS
from gcnmpi.run.opening import make_plan, start
from gcnmpi.run.own_rows import (
    check_labels,
    own_arc_features,
    own_features,
    own_relations,
)
from gcnmpi.schemes.p2p import lay_out
from gcnmpi.schemes.row_scheme import Laid
from gcnmpi.torch.graph import Graph
from gcnmpi.torch.memory import memory_of, on_host
from gcnmpi.torch.moves import Moves
from gcnmpi.torch.objects import Folder, folder_of
from gcnmpi.torch.ranks import Ranks
from partition.errors import UserError, check_name
from partition.graph.graph import MASKS, TARGET_FILES, UNLABELLED, VERTICES
from partition.graph.store import StoredGraph

# Not those with memory that all ranks share: rows of a tensor may be a rank's own matter.
_CARRIERS = "persistent", "isend", "neighbor", "alltoallv", "nccl"


def open(
    graph: str | os.PathLike | object,
    partition: str | None = None,
    *,
    direction: str = "auto",
    normalize: str = "sym",
    self_loops: bool = True,
    feature_norm: str = "none",
    exchange: str = "auto",
    order: str = "auto",
    split: int = 0,
    pairs: str = "",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    threads: int = 0,
    check_weights: bool = True,
    groups: int = 1,
    device: str | torch.device = "cpu",
    transport: str = "persistent",
    duplicates: str | None = None,
    comm: Comm | None = None,
) -> Graph:
    """Open a graph; called by all ranks together, under ``mpirun`` or by a process alone.

    MPI is started with it, and ended with Python. From then on an exception that nobody catches
    ends all ranks.

    Parameters
    ----------
    graph : path or object
        The folder, ``NAME.graph``; or a graph that :func:`gcnmpi.graph.from_object` takes, such as
        a ``Data`` of PyTorch Geometric, or a list of them. Rank 0 makes a temporary folder of it,
        which is deleted with the result; what other ranks give, such as None, does not matter.
    partition : str, optional
        Name of a partition in it, with as many parts as there are ranks; none for one rank. Of a
        pair that ``auto`` has made, the one for rows, unless ``exchange`` is "mixed". For an
        object, the model by which it is partitioned, "hp" by default.
    direction : {"auto", "in", "out"}
        Row of M that an arc belongs to; "in": that of its target, as in PyTorch Geometric; "auto":
        as imported.
    normalize : {"sym", "row", "none"}
        The values of M: D^-1/2·A·D^-1/2, the mean of neighbours, or the weights of arcs.
    self_loops : bool
        Put a 1 on the diagonal of A where it is missing.
    feature_norm : {"none", "row"}
        "row": divide each row of features by its sum.
    exchange : {"auto", "rows", "mixed"}
        What ``aggregate`` sends: rows, or rows and partial sums, the fewest of two ranks.
    order : {"auto", "rcm", "degree", "none"}
        Of own rows; "none": by vertex number, so that graphs of the same vertices that are opened
        with the same parts have the same rows in the same order. "auto" of an object on one rank is
        "none": rows are those of the object. ``Graph.ids`` has the number of each own row.
    split : int
        Which split of the masks, where the graph has several.
    pairs : str
        Name of pairs in the folder, for :meth:`Graph.pairs`: arcs that are held out leave M.
    dtype : torch.float32 or torch.float64
    seed : int
        Of :meth:`Graph.dropout`, and of nothing else: weights are PyTorch's matter.
    threads : int
        Of a rank, for PyTorch too; 0: its share of the available cores.
    check_weights : bool
        Compare the weights of all ranks in some calls of ``mean`` and ``metrics``, the 1st, 2nd,
        4th, 8th …, and stop if they differ. False where ranks have weights of their own on purpose.
    groups : int
        Divide the ranks into so many groups, each of which has the graph, with as many parts as it
        has ranks: for :meth:`Graph.samples`.
    device : {"cpu", "cuda"} or torch.device
        Where tensors are. "cuda": on GPUs, dealt to the ranks of a node in turn; "cuda:1": on that
        one. No GPU has run it yet.
    transport : {"persistent", "isend", "neighbor", "alltoallv", "nccl"}
        What carries rows; "nccl": from device to device.
    duplicates : {"merge", "sum", "keep", "error"}, optional
        Of an object, the rule for edges that it lists more than once, as of an import: "sum" counts
        each, as layers of PyTorch Geometric do. Without it they are merged, with a warning.
    comm : communicator, optional
        Of mpi4py, with the ranks that share the graph; all ranks without it.

    Returns
    -------
    Graph

    Raises
    ------
    UserError
        On all ranks, if graph, partition and options do not fit together.
    """
    comm = world() if comm is None else comm
    with agreed(comm):
        if dtype not in (torch.float32, torch.float64):
            raise UserError(f"dtype is torch.float32 or torch.float64, not {dtype}")
        if groups < 1 or comm.size % groups:
            raise UserError(
                f"groups={groups} does not divide {comm.size} ranks",
                "start as many ranks for each part of the partition",
            )
        check_name("transport", transport, _CARRIERS)
        made, place = memory_of(device)
        config = from_table({
            "kernel": made.kernel,
            "dtype": str(dtype).removeprefix("torch."),
            "threads": threads,
            "graph": {"direction": direction, "normalize": normalize, "self_loops": self_loops,
                      "feature_norm": feature_norm},
            "scheme": {"exchange": exchange, "transport": transport},
            "loading": {"order": order},
            "train": {"seed": seed, "split": split},
            "task": {"name": LINKS, "pairs": pairs} if pairs else {},
        })  # fmt: skip
        # Not a key of this table: of the command, only samples have groups.
        config = replace(config, train=replace(config.train, groups=groups))
    folder = folder_of(graph, partition, comm, groups=groups, duplicates=duplicates)
    if folder.temporary is not None and comm.size == groups and order == "auto":
        config = replace(config, loading=replace(config.loading, order="none"))
    # g.expand sends whole rows; programs that only call g.aggregate may choose mixed exchanges.
    whole_rows = exchange != "mixed"
    plan = make_plan(comm, folder.path, folder.partition, config, whole_rows)
    source, config = plan.source, plan.config
    opened = start(comm, source, config, whole_rows, place)
    runtime, config = _with_summation(opened.runtime, opened.config), opened.config
    opened = replace(opened, runtime=runtime)
    group = runtime.comm
    torch.set_num_threads(runtime.kernel.threads)
    if comm.rank == 0:
        for line in opened.told:
            warnings.warn(line, stacklevel=2)
    laid = lay_out(runtime, source, config, Demand(batches=True))  # values are asked for
    ranks = Ranks(runtime, made())
    stored, entries = source.stored, Entries(ranks, source, laid, config)
    arcs = entries.features(), entries.numbers, entries.typed
    moves = Moves(ranks, laid, config)
    g = Graph(ranks, opened, laid, moves, check_weights, *arcs)
    if stored.manifest.inputs:
        x = own_features(group, stored, config, g._own_rows)
        g.x = ranks.placed(x.astype(config.dtype, copy=False))
    _load_labels(g, group, stored)
    _load_groups(g, folder)
    return_freed_memory()
    keep_large_arrays()
    return g


def _with_summation(runtime: Runtime, config: Config) -> Runtime:
    """With sums over ranks on their devices, where NCCL can."""
    comm, kernel = runtime.everyone, runtime.kernel
    if comm.size == 1 or usable_reduction(comm, kernel, config.comm.nccl) != NCCL:
        return runtime
    summation = joined(comm, kernel, lambda network: network.Summation)
    return replace(runtime, summation=summation)


class Entries:
    """The entries of M on a rank as arcs of the folder, in the order of ``edge_index``.

    Everything is loaded by all ranks together.
    """

    def __init__(self, ranks: Ranks, source: Source, laid: Laid, config: Config) -> None:
        self._comm, self._placed = ranks.comm, ranks.placed
        self._source, self._laid, self._config = source, laid, config

    def numbers(self) -> torch.Tensor:
        """The number of each entry's arc in the folder, −1 of those that stand for none."""
        entries, order = self._ordered
        return self._placed(entries.arcs()[order])

    def features(self) -> torch.Tensor | None:
        """A row for each entry; None where arcs have none. Nor of parallel arcs: one entry of M."""
        stored = self._source.stored
        if stored.graph.arc_data.features is None or stored.graph.parallel:
            return None
        entries, order = self._ordered
        rows = own_arc_features(self._comm, stored, partial(entries.load, loops="zero"))
        return self._placed(rows[order].astype(self._config.dtype))

    def typed(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Both ends of each arc, and its relation."""
        stored, (entries, order) = self._source.stored, self._ordered
        of_arcs = np.ones(len(order), bool)
        of_arcs[entries.loops] = False
        order = order[of_arcs[order]]
        kinds = own_relations(self._comm, stored, partial(entries.load, loops=RELATION))
        ends = entries.places, entries.local_rows
        pairs = self._placed(np.stack([each[order] for each in ends]).astype(np.int64))
        return pairs, self._placed(kinds[order, 0].astype(np.int64))

    @property
    def _ordered(self) -> tuple[EntryRows, np.ndarray]:
        """They come by global columns, and M is sorted by local ones."""
        plan, parts = self._laid.plan, self._laid.rows.parts
        limit, loops = self._config.loading.max_bytes, self._config.graph.self_loops
        arriving = Arriving.to_owners(self._comm, self._source, parts, limit)
        entries = load_entry_rows(arriving, loops, plan.own, plan.halo)
        return entries, np.lexsort((entries.places, entries.local_rows))


def _load_labels(g: Graph, comm: Comm, stored: StoredGraph) -> None:
    graph = stored.graph
    check_content(comm, stored, TARGET_FILES[VERTICES])
    known = torch.ones(g.num_own, dtype=torch.bool, device=g.device)
    if graph.labels is not None:
        g.y = g.load(graph.labels).long()
        check_labels(comm, stored, on_host(g.y), stored.manifest.classes)
        known = g.y != UNLABELLED
    elif graph.targets is not None:
        g.y = g.load(graph.targets).to(g.dtype)
    for name in MASKS:
        if name in graph.masks:
            setattr(g, f"{name}_mask", g.load(graph.masks[name]) & known)
    if g.train_mask is None and g.y is not None:
        g.train_mask = known


def _load_groups(g: Graph, folder: Folder) -> None:
    g._folder, groups = folder, folder.groups
    if groups is None:
        return
    g.graphs, g.num_graphs = g.load(groups.index), groups.size
    if groups.y is not None:
        y = g._ranks.placed(groups.y)
        g.graph_y = y.to(g.dtype) if y.is_floating_point() else y.long()
