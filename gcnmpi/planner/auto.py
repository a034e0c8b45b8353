"""What "auto" stands for in the options of a scheme: what makes an epoch shortest, as predicted.

Nothing is measured: the same graph, partition, configuration, machine file, number of ranks and of
ranks on a node give the same choice, on all ranks and in every run.
"""

from __future__ import annotations

from dataclasses import replace

from gcnmpi.core.config import Config, SchemeConfig
from gcnmpi.nn.tasks import outputs
from gcnmpi.planner.costmodel import predict
from gcnmpi.planner.machine import Machine, read_machine
from gcnmpi.planner.ranking import Candidate, Setting
from gcnmpi.schemes import SCHEMES
from gcnmpi.schemes.forecast import MIXING
from partition.graph.store import Partition, StoredGraph

# A mixed exchange has to shorten the epoch to this share; predictions are not better than that.
GAIN = 0.99
# Where no file describes the machine, it has to do so with a network of 1 Gbit/s, and with that of
# the default machine, 100 Gbit/s, it may lengthen the epoch to this share.
ETHERNET = Machine(latency_inter=5e-5, bandwidth_inter=1.25e8)
LOSS = 1.02


def resolved_grid(
    stored: StoredGraph,
    partition: Partition | None,
    config: Config,
    size: int,
    ranks_per_node: int,
) -> SchemeConfig:
    """The options with ``grid = "auto"`` replaced by the fastest grid by the cost model.

    Other options stay as they are. The machine is that of ``scheme.machine``, or the default one.

    Raises
    ------
    UserError
        If no grid fits so many ranks, or the machine's file cannot be read.
    """
    wanted = config.scheme
    if wanted.grid != "auto":
        return wanted
    options: list[SchemeConfig] = SCHEMES.get(wanted.name).variants(wanted, size)
    grids = [o for o in options if replace(o, grid="auto") == wanted]
    if len(grids) < 2:
        return grids[0] if grids else wanted
    machine = read_machine(wanted.machine)[0] if wanted.machine else Machine()
    # A graph without labels may be meant for inference: a width that is missing decides nothing.
    ends = (stored.manifest.features or 1, outputs(config.task.name, stored.manifest) or 1)
    setting = Setting(stored, config, machine, ranks_per_node, *ends)

    def seconds(scheme: SchemeConfig) -> float:
        return predict(setting.case(Candidate(scheme, {}, 0, partition), size)).seconds

    return min(grids, key=seconds)


def resolved_exchange(
    stored: StoredGraph,
    partition: Partition | None,
    config: Config,
    size: int,
    ranks_per_node: int,
) -> SchemeConfig:
    """The options with ``exchange = "auto"`` replaced by what makes an epoch shorter.

    By the cost model on the machine of ``scheme.machine``. Without it, a network of 1 Gbit/s has
    to gain, and one of 100 Gbit/s must hardly lose: what is saved there is little, and what is lost
    on a slow network is much.

    Raises
    ------
    UserError
        If the machine's file cannot be read.
    """
    wanted = config.scheme
    if wanted.name not in MIXING or wanted.exchange != "auto":
        return wanted
    ends = (stored.manifest.features or 1, outputs(config.task.name, stored.manifest) or 1)
    setting = Setting(stored, config, Machine(), ranks_per_node, *ends, locality=False)
    found = setting.exchanges(Candidate(wanted, {}, size, partition), size)
    if not found:
        return replace(wanted, exchange="rows")
    cases = [setting.case(each, size) for each in found]

    def share(machine: Machine) -> float:
        """Seconds of the mixed exchange over those of rows."""
        rows, mixed = (predict(replace(case, machine=machine)).seconds for case in cases)
        return mixed / rows

    if wanted.machine:
        gains = share(read_machine(wanted.machine)[0]) < GAIN
    else:
        gains = share(ETHERNET) < GAIN and share(Machine()) < LOSS
    return found[gains].scheme
