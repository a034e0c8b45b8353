"""Training, inference, propagation and PyTorch begin alike: all ranks open a graph folder.

:func:`open_folder` maps it on every rank, :func:`make_plan` resolves what rank 0 decides for all,
:func:`start` makes what is computed with, :func:`load_matrix` brings M to its owners. In between,
each checks what is its own.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from gcnmpi.core.resident import return_freed_memory
from gcnmpi.core.timing import Phases, Traffic
from gcnmpi.halo.transports import usable
from gcnmpi.kernels.interface.kernel import Kernel
from gcnmpi.layout.runtime import Demand, Runtime, Source, resolved_direction
from gcnmpi.mpi.comm import Comm, agreed, from_root, maximum, sees_devices, split
from gcnmpi.mpi.hosts import (
    crowded_node,
    host_names,
    most_ranks_a_node,
    node_around,
    share_of_cores,
    torn_groups,
)
from gcnmpi.nn.tasks.interface import task_of
from gcnmpi.options.config import Config
from gcnmpi.options.kernel import KERNELS, resolve
from gcnmpi.options.scheme import SCHEMES, ExchangeOptions
from gcnmpi.options.train import ranks_of_group
from gcnmpi.planner.auto import misused, resolved_options, setting_of
from gcnmpi.planner.ranking import Candidate, Setting
from gcnmpi.schemes.interface import Entry, Scheme
from partition.errors import UserError
from partition.graph.graph import of_split
from partition.graph.store import StoredGraph, open_graph, read_partition


@dataclass(frozen=True)
class Opened:
    """A graph folder, and what the ranks compute on it with."""

    runtime: Runtime
    source: Source  # its graph has the masks of the split that is configured
    config: Config  # with the options of the scheme as they are resolved
    warnings: tuple[str, ...]  # what the user should know, to be said once, at the start
    # The same about cores: to be said after the result, which is right nevertheless
    machine: tuple[str, ...]

    @property
    def told(self) -> tuple[str, ...]:
        """All that the user should know, where it is said together."""
        return *self.warnings, *self.machine


def open_folder(comm: Comm, path: str | os.PathLike, config: Config) -> StoredGraph:
    """A graph folder as :func:`open_split` opens it, mapped by every rank and the same on all.

    On all ranks a UserError if a rank cannot open it, or finds another graph or configuration.
    """
    with agreed(comm):
        stored = open_split(Path(path), config)
    first, manifest = comm.bcast((config, stored.manifest))
    with agreed(comm):
        if config != first:
            raise UserError(
                f"rank {comm.rank} has another configuration than rank 0",
                "put the configuration file where all hosts see the same one",
            )
        if stored.manifest != manifest:
            raise _another_one(comm, stored)
    return stored


@dataclass(frozen=True)
class Plan:
    """The graph, partition and options of a run, resolved alike on all ranks; nothing is loaded."""

    source: Source
    config: Config  # with the options of the scheme, and the relations of pairs
    # What forecasts are made of, on rank 0: made when the first one asks for it
    setting: Callable[[], Setting]

    @property
    def candidate(self) -> Candidate:
        """The scheme and partition that forecasts are about."""
        config, partition = self.config, self.source.partition
        return Candidate(config.scheme, {}, 0, partition, groups=config.train.groups)


def make_plan(
    comm: Comm,
    graph: str | os.PathLike | StoredGraph,
    partition: str | None,
    config: Config,
    whole_rows: bool = False,
) -> Plan:
    """A graph folder, its partition and the options of the scheme, as rank 0 resolves them.

    Parameters
    ----------
    graph : path, or StoredGraph as :func:`open_folder` gives it
    partition : str, optional
        Its name; or that of a pair, of which the one is taken that suits the run.
    whole_rows : bool
        Whether whole rows will be sent, whatever the configuration says.

    Raises
    ------
    UserError
        On all ranks, if the graph, the partition or the configuration do not fit together.
    """
    stored = graph if isinstance(graph, StoredGraph) else open_folder(comm, graph, config)
    per_node = most_ranks_a_node(comm)
    with agreed(comm):
        size = ranks_of_group(comm.size, config.train)
        config = task_of(config.task).resolve(config, stored)
    setting = functools.cache(lambda: setting_of(stored, config, per_node))
    where = size, per_node, whole_rows, setting
    found, scheme = from_root(comm, lambda: resolved_options(stored, partition, config, *where))
    with agreed(comm):  # on another host, the path may lead to another file
        if comm.rank and found is not None:
            mine = read_partition(stored.path, found.name, parts=False)
            if mine.id != found.id:
                raise _another_one(comm, stored)
    direction = resolved_direction(stored, config)
    resolved = dataclasses.replace(config, scheme=scheme)
    return Plan(Source(stored, found, direction), resolved, setting)


def _another_one(comm: Comm, stored: StoredGraph) -> UserError:
    return UserError(
        f"rank {comm.rank} finds another graph or partition at {stored.path} than rank 0",
        "put the graph where all hosts see the same one, or copy it to all of them",
    )


def start(
    comm: Comm,
    source: Source,
    config: Config,
    whole_rows: bool = False,
    place: int | None = None,
) -> Opened:
    """Make the kernel of this rank, and find out what carries its messages.

    Libraries that compute with threads are held to those of the kernel. With ``whole_rows``, whole
    rows will be sent, whatever the configuration says; ``place`` is as for :func:`kernel_of_rank`.
    On all ranks a UserError as of that; or if the transport does not work here.
    """
    threads = config.threads or share_of_cores(comm)
    _, warning = resolve(config.kernel, int(maximum(comm, threads)))
    crowded = crowded_node(comm, threads)
    threadpool_limits(threads)
    kernel = kernel_of_rank(comm, config, threads, place)
    scheme, replaced = config.scheme, None
    if isinstance(scheme, ExchangeOptions):
        transport, replaced = usable(comm, kernel, scheme.transport)
        scheme = dataclasses.replace(scheme, transport=transport)
    runtime, torn = Runtime(comm, kernel, Phases(), Traffic()), None
    if config.train.groups > 1:  # ranks that follow each other, as they do on a node
        size = ranks_of_group(comm.size, config.train)
        runtime = dataclasses.replace(runtime, comm=split(comm, comm.rank // size), world=comm)
        if count := torn_groups(host_names(comm), size):
            torn = (
                f"{count} of {config.train.groups} groups have ranks on several hosts: start a "
                f"multiple of {size} ranks on each"
            )
    return Opened(
        runtime,
        source,
        dataclasses.replace(config, scheme=scheme),
        (*misused(source, config, whole_rows), *filter(None, (warning, replaced, torn))),
        () if crowded is None else (crowded,),
    )


def kernel_of_rank(comm: Comm, config: Config, threads: int, place: int | None = None) -> Kernel:
    """The kernel of this rank; ranks of a node that compute on devices get different ones.

    Or that with the number ``place``.

    On all ranks a UserError if one has no device, not the libraries, or can compile nothing with
    them.
    """
    most = int(maximum(comm, threads))  # the same kernel on all ranks
    with agreed(comm):
        make: type[Kernel] = KERNELS.get(resolve(config.kernel, most)[0])
    of_node, wanted = node_around(comm).place, config.comm.cuda_aware
    place = of_node if place is None else place
    direct = bool(sees_devices()) if wanted == "auto" else wanted == "yes"
    with agreed(comm):
        return make.for_rank(np.dtype(config.dtype), threads, place, direct, config.gpu.spmm)
    raise AssertionError("an error of a rank is raised on all")


def load_matrix(runtime: Runtime, source: Source, config: Config, demand: Demand) -> Scheme:
    """The scheme that is configured, with the rows of M at their owners."""
    if not demand.products:  # nobody asks for values that nobody reads
        graph = dataclasses.replace(config.graph, normalize="none")
        config = dataclasses.replace(config, graph=graph)
    entry: Entry = SCHEMES.get(config.scheme.name)
    with runtime.phases.as_one("load"):
        scheme = entry.load(runtime, source, config, demand)
        return_freed_memory()
    return scheme


def open_split(path: str | os.PathLike, config: Config) -> StoredGraph:
    """A graph folder, unchecked, with the masks of the split and what the task reads of it.

    A UserError if it cannot be opened, or has no such split.
    """
    stored = open_graph(path, check=False)
    try:
        graph = of_split(stored.graph, config.train.split)
    except UserError as error:
        raise UserError(f"{path}: {error.message}", error.hint) from error
    stored = dataclasses.replace(stored, graph=graph)
    return task_of(config.task).read(stored, config.task)
