"""What training, inference and verification start from: a graph laid out over the ranks."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi.core.arrays import Summation
from gcnmpi.core.resident import return_freed_memory
from gcnmpi.core.timing import Phases, Traffic
from gcnmpi.halo.transports import usable
from gcnmpi.kernels.choice import make_kernel
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.layout.loading import check_content, load_sparse
from gcnmpi.layout.normalised import RowNormalised
from gcnmpi.layout.place import Place
from gcnmpi.layout.runtime import Demand, Runtime, Source
from gcnmpi.mpi.comm import Comm, agreed, from_root
from gcnmpi.mpi.hosts import most_ranks_a_node
from gcnmpi.mpi.reduction import NCCL, DeviceSum, HostSum, NoSum, joined, usable_reduction
from gcnmpi.nn.compile.on_scheme import program_of_batches, program_on
from gcnmpi.nn.describe import graph_of, network_of
from gcnmpi.nn.model import PASSES, Model
from gcnmpi.nn.network import Network
from gcnmpi.nn.program import Program
from gcnmpi.nn.sparse_input import SparseInput
from gcnmpi.nn.tasks.interface import Targets, Task
from gcnmpi.options.config import Config, SchemeConfig
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.options.task import TASKS, outputs
from gcnmpi.options.train import batches_of
from gcnmpi.planner.auto import misused, resolved_options
from gcnmpi.planner.ranking import resolved_direction
from gcnmpi.run.captured import resolved_graph
from gcnmpi.schemes.interface import Entry, Scheme
from partition.errors import UserError
from partition.graph.content import FEATURE_FILES, TARGET_FILES
from partition.graph.graph import MASKS, UNLABELLED, of_split
from partition.graph.sparse_rows import SparseRows
from partition.graph.store import (
    Manifest,
    Partition,
    StoredGraph,
    open_graph,
    read_partition,
)


@dataclass(frozen=True)
class Problem:
    """A graph, its distribution and the tools to compute on it.

    Attributes
    ----------
    stored : StoredGraph
        With the masks of the split that is configured.
    partition : Partition or None
        Without its part vector.
    direction : {"in", "out"}
        The direction of M, resolved.
    network : Network
        What the configuration describes, for the widths of the graph.
    program : Program
        The same, compiled for the scheme.
    threads : int
        Threads a rank, resolved.
    reduction : {"mpi", "nccl"}
        What sums the gradients, resolved.
    summation : Summation or None
        What does so on devices, where it is "nccl" and there are several ranks that train.
    warnings : tuple of str
        What the user should know, to be said once, at the start.
    machine : tuple of str
        The same about cores: to be said after the result, which is right nevertheless.
    """

    comm: Comm
    stored: StoredGraph
    partition: Partition | None
    direction: str
    network: Network
    program: Program
    threads: int
    config: Config
    kernel: Kernel
    scheme: Scheme
    phases: Phases
    traffic: Traffic
    reduction: str
    summation: Summation | None
    warnings: tuple[str, ...]
    machine: tuple[str, ...]

    @property
    def told(self) -> tuple[str, ...]:
        """All that the user should know, where it is said together."""
        return *self.warnings, *self.machine


def open_problem(
    comm: Comm,
    graph: str | os.PathLike,
    partition: str | None,
    config: Config,
    widths: tuple[int, int] | None = None,
    *,
    trains: bool = True,
    before: Callable[[Source, Config], None] = lambda source, config: None,
) -> Problem:
    """Open a graph and bring its rows to their owners.

    Parameters
    ----------
    widths : (int, int), optional
        Of features and logits, where they are not the graph's features and what its task takes.
    trains : bool
        Without it, the program is one evaluation, and nothing of the backward pass is made.
    before : callable
        Called by all ranks together before the graph is loaded, with what will be.

    Raises
    ------
    UserError
        On all ranks, if the graph, the partition or the configuration do not fit together.
    """
    config = dataclasses.replace(config, graph=graph_of(config))
    if trains and batches_of(config.train):
        # A batch takes rows of H⁰, not of what M makes of it.
        model = dataclasses.replace(config.model, cache_input=False)
        config = dataclasses.replace(config, model=model)
    source, config = find_source(comm, graph, partition, config)
    with agreed(comm):
        network = network_of(config.model, *(widths or ends(config, source.stored.manifest)))
        program, demand = program_on(network, source, config, comm.size, trains)
        if trains:
            program_of_batches(config, source.stored, network, program)
        scheme_entry: Entry = SCHEMES.get(config.scheme.name)
    found: list[str] = []
    if trains:
        config, found = resolved_graph(comm, config)
    before(source, config)
    kernel, warnings, machine = make_kernel(comm, config)
    warnings = [*misused(source, config), *warnings, *found]
    reduction = usable_reduction(comm, kernel, config.comm.nccl)
    transport, warning = usable(comm, kernel, config.scheme.transport)
    if warning is not None:
        warnings.append(warning)
        scheme_config = dataclasses.replace(config.scheme, transport=transport)
        config = dataclasses.replace(config, scheme=scheme_config)
    phases, traffic = Phases(), Traffic()
    with phases.as_one("load"):
        on_devices = trains and comm.size > 1 and reduction == NCCL
        summation = joined(comm, kernel) if on_devices else None
        runtime = Runtime(comm, kernel, phases, traffic, summation)
        scheme = scheme_entry.load(runtime, source, _as_read(config, demand), demand)
        return_freed_memory()
    return Problem(
        comm, source.stored, source.partition, source.direction, network, program, kernel.threads,
        config, kernel, scheme, phases, traffic, reduction, summation, tuple(warnings),
        tuple(machine),
    )  # fmt: skip


def find_source(
    comm: Comm,
    graph: str | os.PathLike,
    partition: str | None,
    config: Config,
    whole_rows: bool = False,
) -> tuple[Source, Config]:
    """A graph folder and its partition, which all ranks find alike; nothing is loaded.

    Parameters
    ----------
    partition : str, optional
        Its name; or that of a pair, of which the one is taken that suits the run.
    whole_rows : bool
        Whether whole rows will be sent, whatever the configuration says.

    Returns
    -------
    source : Source
    config : Config
        With the options of the scheme as they are resolved.

    Raises
    ------
    UserError
        On all ranks, if the graph, the partition or the configuration do not fit together.
    """
    path, per_node = Path(graph), most_ranks_a_node(comm)
    found, manifest, first, scheme_config = from_root(
        comm, lambda: _check(path, partition, comm.size, per_node, config, whole_rows)
    )
    # Every rank maps the arrays itself; on another host, the path may lead to another file.
    with agreed(comm):
        if config != first:
            raise UserError(
                f"rank {comm.rank} has another configuration than rank 0",
                "put the configuration file where all hosts see the same one",
            )
        config = dataclasses.replace(config, scheme=scheme_config)
        stored = open_split(path, config)  # each rank checks what it reads
        same = found is None or read_partition(path, found.name, parts=False).id == found.id
        if not same or stored.manifest != manifest:
            raise UserError(
                f"rank {comm.rank} finds another graph or partition at {path} than rank 0",
                "put the graph where all hosts see the same one, or copy it to all of them",
            )
    return Source(stored, found, resolved_direction(stored, config)), config


def _as_read(config: Config, demand: Demand) -> Config:
    """The configuration that M is loaded with: nobody asks for values that nobody reads."""
    if demand.products:
        return config
    return dataclasses.replace(config, graph=dataclasses.replace(config.graph, normalize="none"))


def ends(config: Config, manifest: Manifest) -> tuple[int, int]:
    """Widths of features and logits; 1 where a graph has none, for what needs none."""
    return manifest.features or 1, outputs(config.task.name, manifest) or 1


def open_split(path: str | os.PathLike, config: Config) -> StoredGraph:
    """A graph folder, unchecked, with the masks of the split that is configured.

    Raises
    ------
    UserError
        If it cannot be opened, or has no such split.
    """
    stored = open_graph(path, check=False)
    try:
        graph = of_split(stored.graph, config.train.split)
    except UserError as error:
        raise UserError(f"{path}: {error.message}", error.hint) from error
    return dataclasses.replace(stored, graph=graph)


def task_of(config: Config) -> Task:
    """The task that is configured."""
    return TASKS.get(config.task.name)


def check_trainable(stored: StoredGraph, config: Config) -> None:
    """Raise a UserError if a graph has no features, or not the labels of the task."""
    _there(stored, "features", stored.graph.features, "random:16")
    task_of(config).labels(stored)


def load_features(problem: Problem) -> Array | SparseInput:
    """This rank's piece of H⁰, normalised as configured, as an array of the kernel.

    Its share, where features are trained; a sparse matrix, where the program takes one.
    """
    scheme = problem.scheme
    with agreed(problem.comm):
        features = _there(problem.stored, "features", problem.stored.graph.features, "random:16")
    with problem.phases.as_one("load"):
        check_content(problem.comm, problem.stored, FEATURE_FILES)
    normalised = problem.config.graph.feature_norm == "row"
    if problem.program.sparse and isinstance(features, SparseRows):
        return _sparse_features(problem, features, normalised)
    with problem.phases.as_one("load"):
        dtype = problem.kernel.dtype
        rows = scheme.load(Place(0), RowNormalised(features, dtype) if normalised else features)
    with agreed(problem.comm):
        _check_finite(problem, rows)
    piece = problem.kernel.from_host(rows)
    if not problem.config.model.train_features:
        return piece
    block = scheme.input_block(features.shape[1])
    share = problem.kernel.empty(len(block.rows), block.columns.stop - block.columns.start)
    scheme.share_input(piece, share)
    return share


def _sparse_features(problem: Problem, features: SparseRows, normalised: bool) -> SparseInput:
    comm, scheme, kernel = problem.comm, problem.scheme, problem.kernel
    max_bytes = problem.config.loading.max_buffer_mb * 2**20
    with problem.phases.as_one("load"):
        own = scheme.block(Place(0), features.width).rows
        matrix = load_sparse(comm, features, own, max_bytes, normalised, kernel.dtype)
        return_freed_memory()
        with agreed(comm):
            _check_finite(problem, matrix.data)
        summed = scheme.summed if problem.program.backward else None
        return SparseInput(kernel, problem.phases, matrix, summed)


def _check_finite(problem: Problem, numbers: np.ndarray) -> None:
    # A sum in float64 finds every NaN and infinity, and allocates nothing.
    if not np.isfinite(numbers.sum(dtype=np.float64)):
        raise UserError(f"{problem.stored.path} is damaged: its features are not all finite")


def _there(stored: StoredGraph, what: str, array: Any, example: str) -> Any:
    if array is None:
        raise UserError(
            f"{stored.path} has no {what}",
            f"import it with --{what} FILE.npy, or --{what} {example} for an experiment",
        )
    return array


def load_targets(problem: Problem, last: Place) -> Targets:
    """Labels and masks; without a training mask, all labelled vertices train.

    Parameters
    ----------
    last : Place
        Place of the logits.

    Raises
    ------
    UserError
        If the graph has no labels, or no vertex to train on.
    """
    graph, comm = problem.stored.graph, problem.comm
    with agreed(comm):
        stored = task_of(problem.config).labels(problem.stored)
    with problem.phases.as_one("load"):
        check_content(comm, problem.stored, TARGET_FILES)
        labels = problem.scheme.load(last, stored)
        of_classes = labels.ndim == 1
        # Of classes (rows,), of numbers (rows, columns).
        known = labels != UNLABELLED if of_classes else ~np.isnan(labels)
        some = known if of_classes else np.ones(len(labels), bool)
        masks = {
            name: problem.scheme.load(last, graph.masks[name]) & some
            for name in MASKS
            if name in graph.masks
        }
    masks.setdefault("train", some)
    counts = np.array([np.count_nonzero(known[mask]) for mask in masks.values()], np.float64)
    block = problem.scheme.block(last, 0)
    if not (block.counts_rows if of_classes else block.counts_entries):
        counts[:] = 0
    problem.scheme.reduce(counts)
    with agreed(comm):
        classes = problem.stored.manifest.classes
        if not of_classes:
            if np.isinf(labels).any():
                raise UserError(f"{problem.stored.path} is damaged: a target that is infinite")
        elif labels.max(initial=0) >= classes or labels.min(initial=0) < UNLABELLED:
            raise UserError(f"{problem.stored.path} is damaged: a label outside its classes")
        if counts[list(masks).index("train")] == 0:
            raise UserError(f"{problem.stored.path} has no labelled vertex to train on")
    return Targets(labels, masks, dict(zip(masks, counts.astype(int).tolist(), strict=True)))


def make_model(
    problem: Problem,
    features: Array | SparseInput | None = None,
    kinds: tuple[str, ...] = PASSES,
) -> Model:
    """The problem's network on its features, with initial parameters.

    Parameters
    ----------
    features : array or SparseInput, optional
        Where they are loaded already.
    kinds : tuple of str
        The passes that are needed.
    """
    with problem.phases.as_one("load"):
        features = load_features(problem) if features is None else features
        return Model(
            problem.scheme, problem.kernel, problem.network, problem.program, problem.config,
            problem.stored.manifest.n, features, kinds,
        )  # fmt: skip


def make_sum(problem: Problem, count: int) -> HostSum | DeviceSum | NoSum:
    """What sums the loss and ``count`` gradients of each rank."""
    size = problem.comm.size
    if size == 1:
        return NoSum()
    if problem.summation is not None:
        return DeviceSum(size, problem.summation, problem.phases, problem.traffic, count)
    return HostSum(problem.scheme, problem.kernel, count)


def _check(
    path: Path, name: str | None, size: int, ranks_per_node: int, config: Config, whole_rows: bool
) -> tuple[Partition | None, Manifest, Config, SchemeConfig]:
    """What rank 0 tells the others of the folder: never its arrays, which would travel whole.

    And the configuration, with the options of the scheme as they are resolved here.
    """
    stored = open_split(path, config)
    where = size, ranks_per_node, whole_rows
    partition, scheme = resolved_options(stored, name, config, *where)
    return partition, stored.manifest, config, scheme
