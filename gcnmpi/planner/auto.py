"""Values for "auto" in the options of a scheme: those that make an epoch shortest, as predicted.

Nothing is measured: the same graph, partition, configuration, machine file, number of ranks and of
ranks on a node give the same choice, on all ranks and in every run.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gcnmpi.layout.runtime import Source
from gcnmpi.options.config import Config
from gcnmpi.options.frames import ends
from gcnmpi.options.scheme import (
    SCHEMES,
    ExchangeOptions,
    GridOptions,
    SchemeConfig,
    exchange_of,
)
from gcnmpi.planner.batches import expected_sizes, tile_cases
from gcnmpi.planner.costmodel import predict
from gcnmpi.planner.machine import Machine, read_machine
from gcnmpi.planner.ranking import Candidate, Setting
from partition.errors import UserError
from partition.graph.store import (
    Partition,
    StoredGraph,
    has_partition,
    list_partitions,
    members,
    pair_names,
    read_partition,
)

# A mixed exchange has to shorten the epoch to this share; predictions are not better than that.
GAIN = 0.99
# Where no file describes the machine, it has to do so with a network of 1 Gbit/s, and with that of
# the default machine, 100 Gbit/s, it may lengthen the epoch to this share.
ETHERNET = Machine(latency_inter=5e-5, bandwidth_inter=1.25e8)
LOSS = 1.02


def setting_of(
    stored: StoredGraph, config: Config, ranks_per_node: int, locality: bool = False
) -> Setting:
    """A graph and a configuration on the default machine, to be forecast.

    A graph without labels may be meant for inference: a width that is missing decides nothing.
    """
    widths = ends(config.task, config.model, stored.manifest)
    return Setting(stored, config, Machine(), ranks_per_node, *widths, locality=locality)


def resolved_options(
    stored: StoredGraph,
    name: str | None,
    config: Config,
    size: int,
    ranks_per_node: int,
    whole_rows: bool = False,
    setting: Callable[[], Setting] | None = None,
) -> tuple[Partition | None, SchemeConfig]:
    """The partition that a run on ``size`` ranks uses, and the options of its scheme.

    ``name`` is that of the partition, or of a pair; ``setting`` gives what :func:`setting_of` does.
    A UserError says that graph, partition, scheme and number of ranks do not fit together.
    """
    setting = setting or functools.cache(lambda: setting_of(stored, config, ranks_per_node))
    path = stored.path
    if size > stored.manifest.n:
        raise UserError(
            f"{size} ranks for {stored.manifest.n} vertices: use no more ranks than those"
        )
    names = [] if name is None else members(path, name)
    pair = [read_partition(path, each, parts=False) for each in names]
    partition = pair[0] if pair else None
    wanted = config.scheme
    if pair and isinstance(wanted, GridOptions) and wanted.permutation != "auto":
        raise UserError(
            "scheme.permutation and --partition both give an order of the vertices",
            "leave one of the two out",
        )
    scheme = resolved_grid(stored, partition, config, size, ranks_per_node)
    needed = SCHEMES.get(scheme.name).parts(scheme, size)
    if partition is None and needed > 1:
        message = f"{size} ranks need a partition of {path} into {needed} parts"
        raise UserError(message, _fitting(path, needed))
    if partition is not None and needed and partition.k != needed:
        ranks = f"{size} rank{'s' * (size > 1)}"
        takes, hint = f"this run has {ranks}", _fitting(path, needed, partition)
        start = f"mpirun -n {partition.k}"
        if size == 1:
            hint = f"one rank needs no partition: leave it out; or start {partition.k}: {start}"
        elif needed == size:
            hint = f"start it with {start}, or {hint}"
        else:
            takes = f"scheme {scheme.name!r} on {ranks} takes {needed}"
        raise UserError(f"partition {name!r} has {partition.k} parts, and {takes}", hint)
    resolved = replace(config, scheme=scheme)
    if pair:
        partition = resolved_partition(setting, pair, resolved, size, whole_rows)
    return partition, resolved_exchange(setting, partition, resolved, size)


def resolved_grid(
    stored: StoredGraph,
    partition: Partition | None,
    config: Config,
    size: int,
    ranks_per_node: int,
) -> SchemeConfig:
    """The options with ``grid = "auto"`` replaced by the fastest grid by the cost model.

    Of mini-batches, for one of the mean size. Other options stay as they are. The machine is that
    of ``scheme.machine``, or the default one.
    """
    wanted = config.scheme
    if not isinstance(wanted, GridOptions) or wanted.grid != "auto":
        return wanted
    options: list[GridOptions] = SCHEMES.get(wanted.name).variants(wanted, size)
    grids = [o for o in options if replace(o, grid="auto") == wanted]
    if len(grids) < 2:
        return grids[0] if grids else wanted
    machine = read_machine(wanted.machine)[0] if wanted.machine else Machine()
    setting = setting_of(stored, config, ranks_per_node, locality=True)
    setting = setting.on(setting.config, machine, ranks_per_node)
    sizes = expected_sizes(stored, config)

    def seconds(scheme: SchemeConfig) -> float:
        case = setting.case(Candidate(scheme, {}, 0, partition), size)
        if sizes is not None:
            (case,) = tile_cases(case, scheme, [sizes])
        return predict(case).seconds

    return min(grids, key=seconds)


def resolved_partition(
    setting: Callable[[], Setting],
    found: Sequence[Partition],
    config: Config,
    size: int,
    whole_rows: bool = False,
) -> Partition:
    """Of the partitions that one name stands for, the one for the exchange that a run will use.

    ``found`` is one; or those of a pair, for rows and for the mixed exchange. With ``whole_rows``,
    whole rows will be sent, whatever the configuration says.
    """
    if len(found) == 1 or whole_rows:
        return found[0]
    rows, mixed = found
    scheme = resolved_exchange(setting, mixed, config, size, rows)
    return mixed if exchange_of(scheme).exchange == "mixed" else rows


def misused(source: Source, config: Config, whole_rows: bool = False) -> list[str]:
    """Warnings if the partition was made for another direction of M, or for the mixed exchange.

    And if the network could read features of edges that the graph has, and does not.
    """
    stored, found, direction = source.stored, source.partition, source.direction
    warnings = []
    if found is not None and found.direction != direction and stored.manifest.directed:
        warnings.append(
            f"partition {found.name!r} was made for direction {found.direction!r}, this run "
            f"uses {direction!r}: it works, but sends more rows than needed"
        )
    if stored.manifest.arc_features and getattr(config.model, "arc_features", None) is False:
        warnings.append(
            f"the features of edges, {stored.manifest.arc_features} columns, are not read: "
            "--set model.arc_features=true reads them"
        )
    return warnings + other_exchange(stored, found, direction, config.scheme, whole_rows)


def other_exchange(
    stored: StoredGraph,
    partition: Partition | None,
    direction: str,
    scheme: SchemeConfig,
    whole_rows: bool = False,
) -> list[str]:
    """A warning, with numbers, if rows are sent with a partition made for the mixed exchange.

    The exchange of the scheme is resolved.
    """
    if partition is None or partition.exchange != "mixed":
        return []
    if not isinstance(scheme, ExchangeOptions) or (scheme.exchange == "mixed" and not whole_rows):
        return []
    path, k = stored.path, partition.k
    rows, mixed = partition.metrics[direction], partition.mixed[direction]
    other = partition.name.removesuffix("-mixed") + "-rows"
    take = f"take --partition {other}"
    if not has_partition(path, other):
        made = pair_names(f"auto-{k}")["rows"]
        take = f"gcn-partition add {path} --model auto --exchange rows -k {k}, then {made}"
    return [
        f"partition {partition.name!r} was made for the mixed exchange, but this run sends whole "
        f"rows: {rows.volume:,} at an imbalance of {rows.imbalance:.2f}, not {mixed.volume:,} at "
        f"{mixed.imbalance:.2f}; {take}"
    ]


def resolved_exchange(
    setting: Callable[[], Setting],
    partition: Partition | None,
    config: Config,
    size: int,
    for_rows: Partition | None = None,
) -> SchemeConfig:
    """The options with ``exchange = "auto"`` replaced by what makes an epoch shorter.

    By the cost model on the machine of ``scheme.machine``. Without it, a network of 1 Gbit/s has
    to gain, and one of 100 Gbit/s must hardly lose: what is saved there is little, and what is lost
    on a slow network is much. Rows would be sent with the partition ``for_rows``, by default the
    same.
    """
    wanted = config.scheme
    if not isinstance(wanted, ExchangeOptions) or wanted.exchange != "auto":
        return wanted
    given = setting()
    found = given.exchanges(Candidate(wanted, {}, size, partition), size)
    if not found:
        return replace(wanted, exchange="rows")
    if for_rows is not None:
        found[0] = replace(found[0], partition=for_rows)
    cases = [given.case(each, size) for each in found]

    def share(machine: Machine) -> float:
        """Seconds of the mixed exchange over those of rows."""
        rows, mixed = (predict(replace(case, machine=machine)).seconds for case in cases)
        return mixed / rows

    if wanted.machine:
        gains = share(read_machine(wanted.machine)[0]) < GAIN
    else:
        gains = share(ETHERNET) < GAIN and share(Machine()) < LOSS
    return found[gains].scheme


def _fitting(path: Path, k: int, other: Partition | None = None) -> str:
    """Which partitions of a graph have so many parts, and how one is made, perhaps of another."""
    names = []
    for name in list_partitions(path):
        with contextlib.suppress(UserError):  # a damaged one, or one of another graph
            if read_partition(path, name, parts=False).k == k:
                names.append(name)
    make = f"make one: gcn-partition add {path} --model hp -k {k}"
    if other is not None and other.k % k == 0:
        make = f"join the parts of {other.name}: gcn-partition refine {path} {other.name} -k {k}"
    return f"take {' or '.join(names[:5])}, or {make}" if names else make
