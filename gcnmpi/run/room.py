"""Whether the memory of the nodes suffices, forecast before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gcnmpi.core.config import Config
from gcnmpi.core.resident import free_bytes, resident_bytes
from gcnmpi.kernels import resolve
from gcnmpi.layout.runtime import Source
from gcnmpi.mpi.comm import Comm, from_root, host_name, maximum
from gcnmpi.mpi.hosts import node_of
from gcnmpi.planner.evaluation import evaluation_memory
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.ranking import MOST_DOUBLINGS, Candidate, Setting, candidates
from partition.errors import UserError

GIGA = 1e9


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

    Parameters
    ----------
    ends : (int, int)
        Widths of features and logits.
    layer : int
        The layer whose output is wanted, from 1.
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
    here, free = len(node_of(comm)), free_bytes()
    nodes = comm.allgather((free / here, here, host_name(), free))
    room, crowd, host, left = min(nodes)
    resolve(config.kernel)  # what it imports belongs to the process
    process = int(maximum(comm, resident_bytes()))

    def check() -> int:
        machine = Machine(process_bytes=process)
        setting = Setting(source.stored, config, machine, crowd, *ends, locality=False)
        chosen = Candidate(config.scheme, {}, 0, source.partition)
        needed = _needed(setting, chosen, comm.size, layer)
        # What the processes have already is not free any more.
        enough = needed - process <= room
        each = "" if comm.size == 1 else f" on each of {comm.size} ranks"
        has = f"{host} has {left / GIGA:.3g} GB free"
        has += "" if crowd == 1 else f" for {crowd} of them"
        tell(f"memory: needs {needed / GIGA:.3g} GB{each}; {has}")
        if not enough and not force:
            more = _ranks_that_suffice(setting, comm.size, layer, room + process)
            hint = f"use {more} ranks, {crowd} on each node" if more else "more ranks do not help"
            raise UserError(
                f"inference needs {needed / GIGA:.3g} GB{each}, and {has}",
                f"{hint}, or --force to start nevertheless",
            )
        return needed

    return from_root(comm, check)


def _needed(setting: Setting, candidate: Candidate, size: int, layer: int) -> int:
    case = setting.case(candidate, size, trains=False)
    return evaluation_memory(case, layer)


def _ranks_that_suffice(setting: Setting, size: int, layer: int, room: float) -> int | None:
    """``size`` doubled until the scheme fits into the memory of a rank, with random rows."""
    name = setting.config.scheme.name
    auto = replace(setting.config, scheme=replace(setting.config.scheme, grid="auto"))
    wide = Setting(
        setting.stored, auto, setting.machine, setting.ranks_per_node,
        setting.work.network.widths[0], setting.work.network.widths[-1], locality=False,
    )  # fmt: skip
    for more in (size << times for times in range(1, MOST_DOUBLINGS + 1)):
        if more > setting.stored.manifest.n:
            return None
        found, _ = candidates(wide, more, schemes=[name], estimate="always")
        if any(_needed(wide, other, more, layer) <= room for other in found):
            return more
    return None
