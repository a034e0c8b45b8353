"""From a graph folder to a named partition in it: graph → model → parts → metrics → folder."""

from __future__ import annotations

import contextlib
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partition.backends import TOOLS, Tool
from partition.backends.catalogue import MODELS, all_options, settled
from partition.deadline import deadline_for
from partition.errors import UserError, unknown_name
from partition.graph.graph import DIRECTIONS, Graph, row_sizes
from partition.graph.metrics import (
    Metrics,
)
from partition.graph.pairs import members
from partition.graph.store import (
    Manifest,
    Partition,
    has_partition,
    open_graph,
    partition_lock,
    read_partition,
    write_partition,
)
from partition.importing.partfile import read_parts
from partition.pipeline.balance import DEFAULT as DEFAULT_BALANCE
from partition.pipeline.balance import constraint_weights, part_loads
from partition.pipeline.measuring import (
    measure_both,
    measure_nodes,
    measured,
    measuring_share,
    mixed_record,
)
from partition.pipeline.memory import within
from partition.pipeline.solving import (
    BEFORE_REFINING,
    MAPPINGS,
    NODES_FIRST,
    check_balance,
    choose_tool,
    make_parts,
    mapped,
    refined,
)
from partition.resident import taken

if TYPE_CHECKING:
    from partition.refinement.objective import Objective


# What default names of refined partitions end in, and of those refined for a mixed exchange.
REFINED, MIXED = "+refined", "+mixed"


class PartitionWarning(UserWarning):
    """A partition was made, but is not all that was asked for."""


def add_partition(
    path: str | os.PathLike,
    model: str,
    k: int,
    *,
    imbalance: float = 0.01,
    seed: int = 0,
    name: str | None = None,
    tool: str | None = None,
    direction: str | None = None,
    balance: str = DEFAULT_BALANCE,
    refine: Objective | None = None,
    ranks_per_node: int | None = None,
    mapping: str = NODES_FIRST,
    overwrite: bool = False,
    memory: float | None = None,
    time_limit: float | None = None,
    report: Callable[[str], None] = lambda line: None,
    working: Callable[[str], None] = lambda stage: None,
    **options: Any,
) -> Partition:
    """Partition the graph folder ``path`` and store the result in it.

    Parameters
    ----------
    model : str
        A name in ``MODELS``.
    k : int
        Number of parts, 1 ≤ k ≤ n.
    imbalance : float
        What the heaviest part may weigh above the average one, as a fraction of it. Ignored by
        models that do not balance.
    seed : int
    name : str, optional
        Default: ``MODEL-K``, or ``MODEL-OBJECTIVE-K`` for an objective that is not the default;
        ``-s1`` and ``-e0.03`` follow for another seed than 0 and another imbalance than 0.01.
    tool : str, optional
        One of the model's tools; default: its first.
    direction : {"in", "out"}, optional
        The direction of M; default: the graph's own.
    balance : str
        What weighs: names in ``partition.pipeline.balance.CONSTRAINTS``, separated by commas; the
        default is the entries of M. Several are met at once as far as vertices can be moved to do
        so.
    refine : Objective, optional
        Move vertices afterwards so that this falls: see :func:`partition.refinement.search.refine`.
    ranks_per_node : int, optional
        R: parts b·R … b·R+R−1 will share node b, and little is to travel between nodes. Traffic
        between nodes is measured too.
    mapping : {"nodes-first", "flat"}
        With ``ranks_per_node``: partition into nodes first, then each node into its parts; or
        into parts at once. In both cases, and where nodes-first is not possible because R does
        not divide k, parts are then renumbered so that those that exchange most share a node.
    overwrite : bool
        Replace a partition of that name.
    memory : float, optional
        Bytes that this process and the tool may take together: what is left open is chosen so that
        it fits, see :func:`partition.pipeline.memory.within`.
    time_limit : float, optional
        Seconds, about: tools are stopped, and searches end with what they have. If that changed
        anything, the result is not recorded as deterministic.
    report : callable
        Told how much memory will be taken, and was, where ``memory`` is given.
    working : callable
        Told what is being done.
    options
        Options of the model and of the tool, such as ``objective="vol"``.

    Returns
    -------
    Partition
        As stored, with its metrics in both directions.

    Raises
    ------
    UserError
        For a bad argument, before anything is computed; if it does not fit into ``memory``; if a
        library is not installed; or if the tool fails, or is stopped. Nothing is written then.

    Warns
    -----
    PartitionWarning
        If the balance asked for was not reached, with the reason where a row is too heavy.
    """
    deadline = deadline_for(time_limit)
    # Everything the user may have got wrong, before minutes of work.
    stored = open_graph(path)
    direction = check_direction(direction or stored.manifest.direction)
    chosen, backend = choose_tool(model, tool)
    settings = all_options(stored.graph, model, chosen, backend, options)
    names = check_balance(balance, chosen, backend)
    check_parts_wanted(k, stored.manifest)
    check_imbalance(imbalance, stored.graph, k, direction)
    check_seed(seed)
    check_nodes(ranks_per_node, mapping)
    if memory is not None:
        way = within(
            stored.graph, model, k, memory, tool=tool, direction=direction, refine=refine,
            constraints=len(names), nodes=ranks_per_node is not None, options=options,
        )  # fmt: skip
        report(f"memory: {way}")
        chosen, backend, settings = way.tool, TOOLS.get(way.tool), dict(way.options)
        check_balance(balance, chosen, backend)
    if name is None:
        moved = refine is not None
        numbers = name_of_numbers(
            imbalance if backend.balanced or moved else USUAL_IMBALANCE,
            seed if backend.seeded or moved else 0,
        )
        name = default_name(model, k, backend, settings) + numbers + name_of_nodes(ranks_per_node)
        name += REFINED if moved else ""
    with new_partition(stored.path, (name,), "gcn-partition add", overwrite):
        start = time.perf_counter()
        deadline = deadline.part(1 - measuring_share(stored.manifest, time_limit))
        settings = settled(stored.graph, model, k, seed, direction, settings)
        parts = make_parts(
            stored.graph, model, k, imbalance=imbalance, seed=seed, tool=chosen,
            direction=direction, balance=balance, ranks_per_node=ranks_per_node, mapping=mapping,
            reassign=refine is None or refine.exchange == "rows", working=working,
            deadline=deadline if refine is None else deadline.part(BEFORE_REFINING), **settings,
        )  # fmt: skip
        history = []
        record = settings | ({} if balance == DEFAULT_BALANCE else {"balance": balance})
        if refine is not None:
            made = time.perf_counter()
            before = measured(refine)(stored.graph, parts, k, direction)
            history.append(step(chosen, made - start, before))
            working("refining")
            parts = refined(
                stored.graph, parts, k, refine, imbalance=imbalance, seed=seed, direction=direction,
                balance=balance, deadline=deadline,
            )  # fmt: skip
            record |= {"refine": asdict(refine)}
            refining = time.perf_counter() - made
        if ranks_per_node is not None:
            parts = mapped(stored.graph, parts, k, ranks_per_node, direction, seed)
            record |= {"ranks_per_node": ranks_per_node, "mapping": mapping}
        record |= {} if time_limit is None else {"time_limit": time_limit}
        seconds = time.perf_counter() - start

        working("measuring rows")
        metrics = measure_both(stored.graph, stored.manifest, parts, k)
        working("measuring the mixed exchange")
        mixed = measure_both(stored.graph, stored.manifest, parts, k, mixed=True)
        aim = MODELS[model].exchange if refine is None else refine.exchange
        reached = (mixed if aim == "mixed" else metrics)[direction]
        if refine is not None:  # mapping only renumbers the parts
            history.append(step("refine", refining, reached))
        partition = Partition(
            name=name,
            parts=parts,
            k=k,
            graph_id=stored.manifest.id,
            model=model,
            tool=chosen,
            tool_version=tool_version(backend),
            direction=direction,
            seed=seed if backend.seeded or MODELS[model].random or refine is not None else None,
            imbalance=imbalance if backend.balanced or refine is not None else None,
            options=record,
            metrics={key: asdict(value) for key, value in metrics.items()},
            mixed={key: asdict(value) for key, value in mixed.items()},
            nodes=measure_nodes(stored.graph, stored.manifest, parts, k, ranks_per_node),
            history=history,
            seconds=seconds,
            deterministic=backend.deterministic(settings) and not deadline.decided,
        )
        if backend.balanced or refine is not None:
            warn_of_imbalance(stored.graph, reached, imbalance, names)
        if memory is not None:
            own, other = taken()
            report(f"memory: taken {own / 1e9:.2f} GB, by the tool {other / 1e9:.2f} GB")
        return write_partition(stored.path, partition, overwrite=overwrite)


def import_parts(
    path: str | os.PathLike,
    file: str | os.PathLike,
    name: str,
    k: int | None = None,
    *,
    first: int = 0,
    direction: str | None = None,
    overwrite: bool = False,
) -> Partition:
    """Store a partition that another program made: one part number per line, vertex by vertex.

    Parameters
    ----------
    k : int, optional
        Number of parts; default: the largest part number + 1. Parts may be empty.
    first : int
        The number of the first part in the file: 0 or 1.

    Raises
    ------
    UserError
        If the file cannot be read, has not n lines, or a line is no number in 0..k−1.
    """
    stored = open_graph(path)
    direction = check_direction(direction or stored.manifest.direction)
    with new_partition(stored.path, (name,), "gcn-partition import-parts", overwrite):
        parts = read_parts(file, stored.manifest.n, k, first)
        if k is None:
            k = int(parts.max(initial=0)) + 1
        check_parts_wanted(k, stored.manifest)
        metrics = measure_both(stored.graph, stored.manifest, parts, k)
        partition = Partition(
            name=name,
            parts=parts,
            k=k,
            graph_id=stored.manifest.id,
            model="imported",
            tool="import-parts",
            tool_version=version("gcnmpi"),
            direction=direction,
            options={"file": Path(file).name},
            metrics={key: asdict(value) for key, value in metrics.items()},
            mixed=mixed_record(stored.graph, stored.manifest, parts, k),
        )
        return write_partition(stored.path, partition, overwrite=overwrite)


def existing_partitions(path: Path, name: str | None, k: int, overwrite: bool) -> list[Partition]:
    """The partition of that name and of this graph, or those of a pair; none if there is none.

    Raises
    ------
    UserError
        If it has not k parts; or there is no name, or what has it was to be replaced.
    """
    if name is None or overwrite:
        raise UserError("--if-missing needs --name, and excludes --force")
    names = [each for each in members(path, name) if has_partition(path, each)]
    found = [read_partition(path, each) for each in names]
    for partition in found:
        if partition.k != k:
            raise UserError(
                f"{path} has a partition {partition.name!r} into {partition.k} parts, not {k}",
                "give another --name, or remove it first",
            )
    return found


def default_name(model: str, k: int, tool: Tool, options: Mapping[str, Any]) -> str:
    """``MODEL-K``, with the objective between where it is not the tool's default."""
    objective = tool.options.get("objective")
    if objective is not None and options["objective"] != objective.default:
        return f"{model}-{options['objective']}-{k}"
    return f"{model}-{k}"


def step(name: str, seconds: float, metrics: Metrics) -> dict[str, Any]:
    """A row of a partition's history: the figures that partitions are compared by."""
    facts = {"step": name, "seconds": seconds, "direction": metrics.direction}
    return facts | {"exchange": metrics.exchange} | metrics.summary()


USUAL_IMBALANCE = 0.01


def name_of_numbers(imbalance: float, seed: int) -> str:
    """What default names say of a seed and an imbalance that are not the usual ones.

    >>> name_of_numbers(0.01, 0), name_of_numbers(0.03, 1)
    ('', '-s1-e0.03')
    """
    of_imbalance = "" if imbalance == USUAL_IMBALANCE else f"-e{imbalance:g}"
    return (f"-s{seed}" if seed else "") + of_imbalance


def name_of_nodes(ranks_per_node: int | None) -> str:
    """What default names of partitions that are mapped to nodes end in."""
    return "" if ranks_per_node is None else f"-{ranks_per_node}pernode"


def check_nodes(ranks_per_node: int | None, mapping: str) -> None:
    """A UserError unless R ≥ 1 and the mapping is one there is."""
    if ranks_per_node is not None and ranks_per_node < 1:
        raise UserError(f"ranks per node = {ranks_per_node}: a node runs at least one")
    if mapping not in MAPPINGS:
        raise unknown_name("mapping", mapping, MAPPINGS)


def check_parts_wanted(k: int, manifest: Manifest) -> None:
    """A UserError unless 1 ≤ k ≤ n."""
    if k < 1:
        raise UserError(f"k = {k}: a partition has at least one part")
    if k > max(manifest.n, 1):
        raise UserError(
            f"k = {k} parts, but {manifest.name} has {manifest.n} vertices",
            "a part has at least one vertex: choose a smaller k",
        )


def check_direction(direction: str) -> str:
    """The direction, if it is one."""
    if direction not in DIRECTIONS:
        raise unknown_name("direction", direction, DIRECTIONS)
    return direction


def check_imbalance(imbalance: float, graph: Graph, k: int, direction: str) -> None:
    """A UserError unless it is a fraction; above 1 only if one row alone weighs so much.

    Otherwise "3", meant as three percent, would put a small graph into a single part.
    """
    if not 0 <= imbalance < math.inf:
        raise UserError(f"imbalance = {imbalance}: it is a fraction, 0.01 for one percent")
    if imbalance < 1:
        return
    sizes = row_sizes(graph, direction)
    alone = int(sizes.max(initial=1)) * k / max(int(sizes.sum()), 1) - 1
    if imbalance > max(1.0, 1.1 * alone):
        raise UserError(
            f"imbalance = {imbalance:g}: a part could weigh {1 + imbalance:g} times the average",
            f"it is a fraction: {imbalance / 100:g} for {imbalance:g} percent",
        )


def check_seed(seed: int) -> None:
    """A UserError unless it is in range."""
    if not 0 <= seed < 2**31:
        raise UserError(f"seed = {seed} is not in 0..{2**31 - 1}")


@contextlib.contextmanager
def new_partition(
    path: Path, names: Sequence[str], purpose: str, overwrite: bool
) -> Iterator[None]:
    """Keep names for the partitions that are being made.

    Raises
    ------
    UserError
        If a name is malformed, taken and not to be overwritten, or another process is making,
        removing or using a partition of that name; or if the folder cannot be written to.
    """
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(partition_lock(path, name, purpose))
            if has_partition(path, name) and not overwrite:
                raise UserError(
                    f"{path} has a partition {name!r} already",
                    "give --name or --force, or remove it first",
                )
        yield


def warn_of_imbalance(graph: Graph, metrics: Metrics, asked: float, names: Iterable[str]) -> None:
    """Warn where the balance asked for was not reached, by name of constraint."""
    for name in names:
        (weights,) = constraint_weights(graph, metrics.direction, (name,))
        loads = part_loads(metrics, name) or [0]
        heaviest, average = int(weights.argmax()), sum(loads) / metrics.k
        reached = max(loads) / average - 1 if average else 0.0
        # Units cannot be cut: one more than the average is no imbalance.
        if reached <= asked + 5e-4 or max(loads) <= math.ceil(average):
            continue
        what = "" if name == DEFAULT_BALANCE else f" of {name}"
        message = f"imbalance {reached:.4f}{what} was reached, not {asked:g}"
        if name == "nnz" and weights[heaviest] > (1 + asked) * average:
            message += (
                f": the row of vertex {heaviest} alone has {weights[heaviest]} entries, "
                f"{weights[heaviest] / average:.2f} average parts"
            )
        warnings.warn(message, PartitionWarning, stacklevel=3)


def tool_version(tool: Tool) -> str:
    """The version of the library behind a tool, or of this distribution."""
    try:
        return version(tool.distribution or "gcnmpi")
    except PackageNotFoundError:
        return "unknown"
