"""Whether the memory of the nodes suffices, forecast before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gcnmpi.core.resident import allowed_bytes, free_bytes, resident_bytes
from gcnmpi.layout.runtime import Source
from gcnmpi.mpi.comm import Comm, from_root, host_name, maximum
from gcnmpi.mpi.hosts import node_around
from gcnmpi.options.config import Config
from gcnmpi.options.kernel import resolve
from gcnmpi.options.scheme import GridOptions
from gcnmpi.options.train import Residences
from gcnmpi.planner.machine import Machine, read_machine
from gcnmpi.planner.memory import evaluation_memory
from gcnmpi.planner.ranking import Candidate, Setting, ranks_that_suffice
from gcnmpi.run.opening import Plan
from partition.errors import UserError

_GIGA = 1e9
Needs = Callable[[Candidate, int], int]  # bytes of a rank, on so many ranks


@dataclass(frozen=True)
class NodeMemory:
    """The memory that the nodes have for the ranks of this run."""

    process: int  # bytes that a rank has already, before anything is loaded
    ranks_per_node: int  # ranks on the node that has least for each of them
    free: float  # bytes there for each of them
    said: str  # the same in words


def check_evaluation(
    comm: Comm,
    source: Source,
    config: Config,
    ends: tuple[int, int],
    layer: int,
    force: bool,
    tell: Callable[[str], None],
) -> int:
    """Say what one evaluation needs, and refuse it where a node has less.

    As :func:`check_node_memory`. The ends are the widths of features and logits; the output of
    ``layer``, from 1, is wanted.
    """

    def setting_of(node: NodeMemory) -> tuple[Setting, Needs]:
        machine = Machine(process_bytes=node.process)
        auto = config
        if isinstance(config.scheme, GridOptions):
            auto = replace(config, scheme=replace(config.scheme, grid="auto"))
        setting = Setting(source.stored, auto, machine, node.ranks_per_node, *ends, locality=False)

        def needs(candidate: Candidate, size: int) -> int:
            return evaluation_memory(setting.case(candidate, size, trains=False), layer)

        return setting, needs

    return check_node_memory(comm, "inference", source, config, setting_of, force, tell)


def within_memory(comm: Comm, plan: Plan) -> Plan:
    """The plan with a ``train.memory`` that needs no forecast, the same on all ranks.

    As much is kept as a rank may take and its node has free. A UserError if a size that the user
    gave does not suffice.
    """
    config = plan.config
    if Residences.told(config.train.memory) is not None:
        return plan
    node = _node_memory(comm, config)

    def resolved() -> str:
        known = config.scheme.machine
        machine = read_machine(known)[0] if known else Machine()
        machine = replace(machine, process_bytes=node.process)
        limit = node.free + node.process
        setting = plan.setting().on(config, machine, node.ranks_per_node, limit)
        return setting.case(plan.candidate, comm.size).work.config.train.memory

    train = replace(config.train, memory=from_root(comm, resolved))
    return replace(plan, config=replace(config, train=train))


def check_scratch(config: Config) -> None:
    """A UserError if values cannot be written to the folder that is configured on this rank."""
    if not config.train.scratch:
        return
    if resolve(config.kernel)[0] == "cupy":
        raise UserError(
            "train.scratch: kernel 'cupy' keeps its values on the device",
            "leave train.scratch out: with train.memory=SIZE they are made again",
        )
    folder = Path(config.train.scratch)
    if not folder.is_dir():
        raise UserError(
            f"train.scratch: there is no folder {folder} on {host_name()}",
            "give a folder of a local disk that is there on all hosts",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"train.scratch: cannot write to {folder} on {host_name()}")


def check_node_memory(
    comm: Comm,
    what: str,
    source: Source,
    config: Config,
    setting_of: Callable[[NodeMemory], tuple[Setting, Needs]],
    force: bool,
    tell: Callable[[str], None],
) -> int:
    """Say what memory a rank needs, and refuse to start where a node has less.

    Parameters
    ----------
    what : str
        What is going to start: "inference".
    setting_of : callable
        Called on rank 0: what schemes with more ranks are looked for in, and what one takes.
    force : bool
        Only say it.
    tell : callable
        Called on rank 0 with a line for the user.

    Returns
    -------
    int
        Bytes of the rank that needs most.

    Raises
    ------
    UserError
        On all ranks, with the number of ranks that would do.
    """
    node = _node_memory(comm, config)

    def check() -> int:
        setting, needs = setting_of(node)
        needed = needs(Candidate(config.scheme, {}, 0, source.partition), comm.size)
        # Memory that the processes have already is not free any more.
        enough = needed - node.process <= node.free
        each = "" if comm.size == 1 else f" on each of {comm.size} ranks"
        tell(f"memory: needs {needed / _GIGA:.3g} GB{each}; {node.said}")
        if not enough and not force:
            name, limit = config.scheme.name, node.free + node.process

            def fits(candidate: Candidate, size: int) -> bool:
                return needs(candidate, size) <= limit

            more = ranks_that_suffice(setting, name, comm.size, fits, estimate="always")
            there = f"{node.ranks_per_node} on each node"
            hint = f"use {more} ranks, {there}" if more else "more ranks do not help"
            raise UserError(
                f"{what} needs {needed / _GIGA:.3g} GB{each}, and {node.said}",
                f"{hint}, or --force to start nevertheless",
            )
        return needed

    return from_root(comm, check)


def _node_memory(comm: Comm, config: Config) -> NodeMemory:
    here, free, own = len(node_around(comm).cores), free_bytes(), allowed_bytes()
    nodes = comm.allgather((min(free / here, own), here, host_name(), free, own))
    each, crowd, host, left, own = min(nodes)
    resolve(config.kernel)  # what it imports belongs to the process
    process = int(maximum(comm, resident_bytes()))
    said = f"{host} has {left / _GIGA:.3g} GB free" + (f" for {crowd} of them" if crowd > 1 else "")
    if own < left / crowd:
        said = f"the limits of a process on {host} (ulimit -v, -d) leave it {own / _GIGA:.3g} GB"
    return NodeMemory(process, crowd, each, said)
