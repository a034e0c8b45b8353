"""Training, inference and verification start from a graph that is laid out over the ranks."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi.core.resident import return_freed_memory
from gcnmpi.halo.stacked import Stack
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.layout.arcs import check_content
from gcnmpi.layout.entries import OF_RELATIONS, TYPE, UNKNOWN, WHOLE_TYPE
from gcnmpi.layout.loading import Readable, load_sparse
from gcnmpi.layout.place import Place, Space
from gcnmpi.layout.runtime import Demand, Runtime, Source
from gcnmpi.mpi.comm import Comm, agreed, told_to
from gcnmpi.mpi.reduction import (
    NCCL,
    DeviceSum,
    HostSum,
    NoSum,
    joined,
    reduce_over_ranks,
    usable_reduction,
)
from gcnmpi.nn.compile.on_scheme import of_steps, program_of_batches, program_on
from gcnmpi.nn.describe import graph_of, network_of
from gcnmpi.nn.model import PASSES, Model
from gcnmpi.nn.network import Network
from gcnmpi.nn.operators.arcs import ArcInput
from gcnmpi.nn.program import Program
from gcnmpi.nn.scratch import Scratch
from gcnmpi.nn.sparse_input import SparseInput
from gcnmpi.nn.tasks.interface import Targets, task_of
from gcnmpi.options.config import Config
from gcnmpi.options.frames import ends
from gcnmpi.options.train import batches_of, ranks_of_group
from gcnmpi.planner.ranking import Setting
from gcnmpi.run.cuda_graph import resolve_cuda_graph
from gcnmpi.run.memory_check import check_scratch, within_memory
from gcnmpi.run.opening import Opened, Plan, load_matrix, make_plan, start
from gcnmpi.run.own_rows import (
    Load,
    check_finite,
    check_labels,
    check_trains,
    own_arc_features,
    own_features,
    own_relations,
    own_types,
)
from gcnmpi.schemes.interface import Scheme
from gcnmpi.schemes.row_scheme import RowScheme
from gcnmpi.schemes.stacked import StackedScheme
from partition.errors import UserError
from partition.graph.graph import (
    ARCS,
    MASKS,
    TARGET_FILES,
    UNLABELLED,
    SparseRows,
    examples_of,
    inputs_of,
)
from partition.graph.manifest import FEATURE_FILES
from partition.graph.store import StoredGraph

TYPES = {TYPE: Space.OWN, WHOLE_TYPE: Space.WHOLE}
"""The rows whose types may be given."""


@dataclass(frozen=True)
class Problem(Opened):
    """A graph, its distribution and the tools to compute on it."""

    network: Network  # what the configuration describes, for the widths of the graph
    program: Program  # the same, compiled for the scheme
    scheme: Scheme
    reduction: str  # "mpi" or "nccl": what sums the gradients, resolved
    setting: Callable[[], Setting]  # of forecasts, on rank 0

    @property
    def rows(self) -> int:
        """Rows of a matrix of vertices on all ranks: of all samples of a step, if there are any."""
        n, scheme = self.source.stored.manifest.n, self.scheme
        return n * scheme.stack.every if isinstance(scheme, StackedScheme) else n


def open_problem(
    comm: Comm,
    graph: str | os.PathLike | StoredGraph,
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
    graph : path, or StoredGraph as :func:`gcnmpi.run.opening.open_folder` gives it
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
    if trains:
        config = of_steps(config)
    plan = make_plan(comm, graph, partition, config)
    steps = task_of(config.task).steps(config.task)
    whole = batches_of(config.train) is None and not steps.matrix
    if trains and whole:
        plan = within_memory(comm, plan)
    with agreed(comm):
        network, program, demand = compiled(comm, plan, widths, trains)
        if trains:
            program_of_batches(plan.config, plan.source.stored, network, program)
            check_scratch(plan.config)
    if trains and not whole and program.needs_entries:
        plan = within_memory(comm, plan)
        network, program, _ = compiled(comm, plan, widths, trains)
    source, config, found = plan.source, plan.config, list[str]()
    if trains:
        config, found = resolve_cuda_graph(comm, config)
    before(source, config)
    opened = start(comm, source, config)
    runtime, config = opened.runtime, opened.config
    reduction = usable_reduction(comm, runtime.kernel, config.comm.nccl)
    if trains and comm.size > 1 and reduction == NCCL:
        with runtime.phases.as_one("load"):
            summation = joined(comm, runtime.kernel, lambda network: network.Summation)
            runtime = dataclasses.replace(runtime, summation=summation)
    # Each group has all of M: what a scheme sums over ranks, it sums over those of its group.
    of_group = dataclasses.replace(runtime, world=None)
    if runtime.world is not None:
        of_group = dataclasses.replace(of_group, summation=None)
    with told_to(runtime.everyone, runtime.comm):
        scheme = load_matrix(of_group, source, config, demand)
    if steps.samples:
        scheme = stacked(runtime, scheme, config, source.stored.manifest.n)
    warnings = (*opened.warnings, *found)
    return Problem(
        runtime, source, config, warnings, opened.machine,
        network, program, scheme, reduction, plan.setting,
    )  # fmt: skip


def compiled(
    comm: Comm, plan: Plan, widths: tuple[int, int] | None, trains: bool
) -> tuple[Network, Program, Demand]:
    """The network, its program, and what that asks of the scheme.

    Rank 0 may have compiled it for a forecast.
    """
    source, config, size = plan.source, plan.config, ranks_of_group(comm.size, plan.config.train)
    if trains and widths is None and comm.rank == 0:
        setting = plan.setting()
        program = setting.program(plan.candidate, size, config.train.memory)
        return setting.work.network, *program
    manifest = source.stored.manifest
    widths = widths or ends(config.task, config.model, manifest)
    network = network_of(config.model, *widths, manifest.arc_features, config.task, manifest.schema)
    return network, *program_on(network, source, config, size, trains)


def stacked(runtime: Runtime, scheme: Scheme, config: Config, n: int) -> StackedScheme:
    """The scheme for the samples of a step that this group of ranks has."""
    assert isinstance(scheme, RowScheme)
    every = task_of(config.task).steps(config.task).samples
    count, group = every // config.train.groups, runtime.everyone.rank // runtime.comm.size
    return StackedScheme(runtime, scheme, Stack(group * count, count, every, n))


def labels_in(stored: StoredGraph, config: Config) -> Readable:
    """The labels that a graph folder has for the task; a UserError if there are none."""
    labels: Readable = task_of(config.task).examples(stored, config.task).labels  # type: ignore[attr-defined]
    return labels


def check_trainable(stored: StoredGraph, config: Config) -> None:
    """Raise a UserError if a graph has no features, or not the labels of the task."""
    task = task_of(config.task)
    if not task.steps(config.task).samples:  # whose frames are features
        _there(stored, "features", inputs_of(stored.graph), "random:16")
    task.examples(stored, config.task)


def load_features(problem: Problem) -> Array | SparseInput:
    """This rank's piece of H⁰, normalised as configured, as an array of the kernel.

    Its share, where features are trained; a sparse matrix, where the program takes one.
    """
    runtime, scheme, stored = problem.runtime, problem.scheme, problem.source.stored
    kernel = runtime.kernel
    with agreed(runtime.comm):
        features = _there(stored, "features", inputs_of(stored.graph), "random:16")
    if problem.program.sparse and isinstance(features, SparseRows):
        return _sparse_features(problem, features)
    with runtime.phases.as_one("load"):
        load = partial(scheme.load, Place(0))
        piece = kernel.from_host(own_features(runtime.comm, stored, problem.config, load))
    if not problem.config.model.train_features:
        return piece
    block = scheme.input_block(features.shape[1])
    share = kernel.empty(block.count, block.columns.stop - block.columns.start)
    scheme.share_input(piece, share)
    return share


def load_arcs(problem: Problem) -> dict[str, Array]:
    """The rows of arcs that the program reads, one for each entry of this rank's rows of M.

    By ``given`` of :class:`ArcInput`. On all ranks a UserError if they are not what was imported.
    """
    runtime, scheme, stored = problem.runtime, problem.scheme, problem.source.stored
    found: dict[str, Array] = {}
    for operator in problem.program.operators:
        if not isinstance(operator, ArcInput):
            continue
        given = operator.given
        if given in TYPES:
            keys = scheme.block(Place(0, space=TYPES[given]), 1).rows
            rows = own_types(stored, keys % stored.manifest.n)  # those of all samples
        else:
            own = own_relations if given in OF_RELATIONS else own_arc_features
            with runtime.phases.as_one("load"):
                rows = own(runtime.comm, stored, partial(scheme.load_arcs, loops=given))
        dtype = rows.dtype if rows.dtype.kind == "f" else runtime.kernel.dtype
        found[given] = runtime.kernel.from_host(rows.astype(dtype, copy=False))
    return found


def _sparse_features(problem: Problem, features: SparseRows) -> SparseInput:
    runtime, scheme, config = problem.runtime, problem.scheme, problem.config
    comm, kernel, stored = runtime.comm, runtime.kernel, problem.source.stored
    normalised, max_bytes = config.graph.feature_norm == "row", config.loading.max_bytes
    with runtime.phases.as_one("load"):
        check_content(comm, stored, FEATURE_FILES)
        own = scheme.block(Place(0), features.width).rows
        matrix = load_sparse(comm, features, own, max_bytes, normalised, kernel.dtype)
        return_freed_memory()
        check_finite(comm, stored, matrix.data)
        summed = scheme.summed(len(own)) if problem.program.backward else None
        return SparseInput(kernel, runtime.phases, matrix, summed)


def _there(stored: StoredGraph, what: str, array: Any, example: str) -> Any:
    if array is None:
        raise UserError(
            f"{stored.path} has no {what}",
            f"import it with --{what} FILE.npy, or --{what} {example} for an experiment",
        )
    return array


def load_targets(problem: Problem, last: Place) -> Targets:
    """Labels and masks; without a training mask, all that is labelled trains.

    The logits are at ``last``. A UserError if the graph has no labels, or nothing to train on.
    """
    runtime, scheme, stored = problem.runtime, problem.scheme, problem.source.stored
    comm, task = runtime.comm, problem.config.task
    stored_masks = examples_of(stored.graph, task.on).masks
    load: Load = partial(scheme.load, last)
    if task.on == ARCS:
        load = partial(scheme.load_arcs, loops=UNKNOWN)
    with agreed(comm):
        given = labels_in(stored, problem.config)
    with runtime.phases.as_one("load"):
        check_content(comm, stored, TARGET_FILES[task.on])
        labels = load(given)
        of_classes = labels.ndim == 1
        # Of classes (rows,), of numbers (rows, columns).
        known = labels != UNLABELLED if of_classes else ~np.isnan(labels)
        some = known if of_classes else np.ones(len(labels), bool)
        masks = {name: load(stored_masks[name]) & some for name in MASKS if name in stored_masks}
    masks.setdefault("train", some)
    counts = np.array([np.count_nonzero(known[mask]) for mask in masks.values()], np.float64)
    block = scheme.block(last, 0)
    if not (block.counts_rows if of_classes else block.counts_entries):
        counts[:] = 0
    scheme.reduce(counts)
    _, width = task_of(task).ends(task, problem.config.model, stored.manifest)
    check_labels(comm, stored, labels, width)
    check_trains(comm, stored, task.on, bool(counts[list(masks).index("train")]))
    return Targets(labels, masks, dict(zip(masks, counts.astype(int).tolist(), strict=True)))


def make_model(
    problem: Problem,
    features: Array | SparseInput | None = None,
    kinds: tuple[str, ...] = PASSES,
) -> Model:
    """The problem's network on its features, with initial parameters.

    Features that are loaded already are given; ``kinds`` are the passes that are needed.
    """
    kernel = problem.runtime.kernel
    with problem.runtime.phases.as_one("load"):
        features = load_features(problem) if features is None else features
        scratch = _open_scratch(problem)
        model = Model(
            problem.scheme, kernel, problem.network, problem.program, problem.config,
            problem.rows, features, kinds, load_arcs(problem), scratch,
        )  # fmt: skip
        if scratch is not None:
            with agreed(problem.runtime.everyone):
                scratch.reserve()
        return model


def _open_scratch(problem: Problem) -> Scratch | None:
    """The file of this rank, if the program writes values to one; on all ranks a UserError."""
    program, runtime = problem.program, problem.runtime
    if not program.writes:
        return None
    with agreed(runtime.everyone):
        folder = Path(problem.config.train.scratch)
        return Scratch(folder, runtime.kernel, runtime.phases)
    raise AssertionError("an error of a rank is raised on all")


def make_sum(problem: Problem, count: int) -> HostSum | DeviceSum | NoSum:
    """The reduction that sums the loss and ``count`` gradients of each rank."""
    runtime, size = problem.runtime, problem.runtime.everyone.size
    if size == 1:
        return NoSum()
    if runtime.summation is not None:
        return DeviceSum(size, runtime.summation, runtime.phases, runtime.traffic, count)
    return HostSum(partial(_reduce, runtime), runtime.kernel, count)


def _reduce(runtime: Runtime, contributions: np.ndarray) -> None:
    """Sum a flat float64 array of the host over the ranks of all groups, in place."""
    reduce_over_ranks(runtime.everyone, contributions, runtime.phases, runtime.traffic)
