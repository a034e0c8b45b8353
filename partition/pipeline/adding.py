"""From a graph folder to a named partition in it: graph → model → tool → parts → metrics → folder.

Or from a partition that is in it to a refined one.

Process mapping: ``mpirun`` puts ranks 0 … R−1 on the first node, R … 2R−1 on the next one, and so
on. Parts are therefore renumbered: those that exchange most get numbers of one node. Nothing else
of the partition changes, neither its volume nor its balance. A hierarchical partition is made of
nodes first, and then of each node's ranks.
"""

import contextlib
import heapq
import math
import os
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from partition.backends import HUGE, TOOLS, Tool
from partition.backends.catalogue import MODELS, all_options, describe, settled, unknown_model
from partition.backends.process import TimeIsUp, in_files, run_each
from partition.deadline import Deadline, at_once, deadline_for
from partition.errors import UserError, require
from partition.graph import metrics as measuring
from partition.graph import store
from partition.graph.graph import DIRECTIONS, Graph, row_sizes
from partition.graph.hashing import key
from partition.graph.metrics import Metrics, NodeTraffic, exchange_matrix
from partition.graph.sampling import pointers
from partition.graph.sparse import sp
from partition.graph.store import Manifest, Partition, StoredGraph
from partition.models import descriptions
from partition.models.descriptions import Description, GraphModel, HypergraphModel, RowModel
from partition.pipeline import balance
from partition.pipeline.balance import Recipe
from partition.pipeline.memory import within
from partition.refinement.objective import OBJECTIVES, Objective
from partition.registry import Settings
from partition.resident import let_go, taken

# The time that measuring takes, of rows and mixed, in both directions; and the most of a time
# limit that is kept for it.
_SECONDS_PER_ARC, _MOST_SHARE = 0.8e-6, 0.3
# Endings of default names of refined partitions, and of those refined for a mixed exchange.
REFINED, _MIXED = "+refined", "+mixed"
# Facts that are recorded of the partition that another one was refined from, and those of its
# options that hold for the result.
_STARTED_FROM = (
    "name", "id", "k", "model", "tool", "tool_version", "direction", "seed", "options",
)  # fmt: skip
_KEPT = ("balance", "ranks_per_node")
_USUAL = balance.Recipe()
# How an exchange is measured.
_MEASURES = {"rows": measuring.measure, "mixed": measuring.measure_mixed}


class PartitionWarning(UserWarning):
    """A partition was made, but is not all that was asked for."""


def add_partition(
    path: str | os.PathLike[str], model: str, k: int, *, name: str | None = None,
    tool: str | None = None, refine: Objective | None = None, overwrite: bool = False,
    memory: float | None = None, time_limit: float | None = None,
    report: Callable[[str], None] = lambda line: None,
    working: Callable[[str], None] = lambda stage: None, **options: Any,
) -> Partition:  # fmt: skip
    """Partition the graph folder ``path`` and store the result in it.

    Parameters
    ----------
    model : str
        A name in ``MODELS``.
    k : int
        Number of parts, 1 ≤ k ≤ n.
    name : str, optional
        Default: ``MODEL-K``, or ``MODEL-OBJECTIVE-K`` for an objective that is not the default;
        ``-s1`` and ``-e0.03`` follow for another seed than 0 and another imbalance than 0.01.
    tool : str, optional
        One of the model's tools; default: its first.
    refine : Objective, optional
        Move vertices afterwards so that this falls: see :func:`partition.refinement.search.refine`.
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
        Fields of :class:`Recipe`, whose direction is the graph's own by default; and options of the
        model and of the tool, such as ``objective="vol"``.

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
    deadline = deadline_with_refinement(time_limit, [] if refine is None else [refine.exchange])
    # Everything the user may have got wrong, before minutes of work.
    stored = store.open_graph(path)
    graph, recipe = stored.merged, balance.recipe_of(stored, options)
    chosen, backend, settings = _chosen_tool(graph, model, tool, recipe, options)
    recipe.check(stored, k)
    if memory is not None:
        way = within(graph, model, k, memory, recipe, tool=tool, refine=refine, options=options)
        report(f"memory: {way}")
        chosen, backend, settings = _chosen_tool(graph, model, way.tool, recipe, dict(way.options))
    balanced, seeded = (does or refine is not None for does in (backend.balanced, backend.seeded))
    if name is None:
        imbalance = recipe.imbalance if balanced else balance.USUAL_IMBALANCE
        objective, wanted = backend.options.get("objective"), settings.get("objective")
        usual = objective is None or wanted == objective.default
        name = f"{model}-{k}" if usual else f"{model}-{wanted}-{k}"
        name += replace(recipe, imbalance=imbalance, seed=recipe.seed * seeded).ending
        name += "" if refine is None else REFINED
    with new_partition(stored.path, (name,), "gcn-partition add", overwrite):
        start, history, refining = time.perf_counter(), [], None
        deadline = deadline.part(1 - measuring_share(stored.manifest, time_limit))
        settings = settled(graph, model, k, recipe.seed, recipe.direction, settings)
        parts = make_parts(
            graph, model, k, recipe, tool=chosen, working=working, options=settings,
            reassign=refine is None or refine.exchange == "rows",
            deadline=deadline if refine is None else deadline.part(_BEFORE_REFINING),
        )  # fmt: skip
        made = time.perf_counter()
        if refine is not None:
            before = _MEASURES[refine.exchange](graph, parts, k, recipe.direction)
            history.append(step(chosen, made - start, before))
            working("refining")
            parts = refined(graph, parts, k, refine, recipe, deadline=deadline)
            refining = time.perf_counter() - made
        parts = mapped(graph, parts, k, recipe)  # which only renumbers the parts
        record = settings | recipe.record()
        record |= {} if refine is None else {"refine": asdict(refine)}
        record |= {} if time_limit is None else {"time_limit": time_limit}
        partition = store_partition(
            stored, recipe, refine.exchange if refine else MODELS[model].exchange, overwrite,
            refining, working, name=name, parts=parts, k=k, model=model, tool=chosen,
            options=record, history=history, seconds=time.perf_counter() - start,
            seed=recipe.seed if seeded or MODELS[model].random else None,
            imbalance=recipe.imbalance if balanced else None,
            deterministic=backend.deterministic(settings) and not deadline.decided,
        )  # fmt: skip
    if memory is not None:
        own, other = taken()
        report(f"memory: taken {own / 1e9:.2f} GB, by the tool {other / 1e9:.2f} GB")
    return partition


def refine_partition(
    path: str | os.PathLike[str], start: str, *, k: int | None = None, name: str | None = None,
    objective: Objective | None = None, imbalance: float | None = None, seed: int = 0,
    effort: float = 1.0, time_limit: float | None = None, direction: str | None = None,
    overwrite: bool = False,
) -> Partition:  # fmt: skip
    """Refine the partition ``start`` of a graph folder and store the result beside it.

    The weights that it was balanced by stay, and the ranks per node.

    Parameters
    ----------
    start : str
        Name of any partition, imported ones too. Of a pair, the one for the exchange that is
        refined for.
    k : int, optional
        Join its parts into so many first, the same number into each, so that the work that made it
        serves a run on fewer ranks.
    name : str, optional
        Default: ``START+refined``, or ``START+mixed`` for a mixed exchange, with ``-in-K`` between
        where parts are joined; ``-s1`` and ``-e0.03`` follow for another seed than 0 and another
        imbalance than that of ``start``.
    objective : Objective, optional
        What is to be small: see :class:`partition.refinement.search.Objective`.
    imbalance : float, optional
        Default: what ``start`` was asked for; 0.01 where it was not.
    effort : float
        Multiplies the work.
    time_limit : float, optional
        Seconds after which it ends with what it has. The result is then not recorded as
        deterministic.
    direction : {"in", "out"}, optional
        Default: that of ``start``.

    Returns
    -------
    Partition
        As stored; its ``history`` has the figures before and after.

    Warns
    -----
    PartitionWarning
        If the balance asked for was not reached.
    """
    objective = objective or Objective()
    deadline = deadline_with_refinement(time_limit, [objective.exchange])
    start = store.member(path, start, objective.exchange)
    stored, before = store.open_graph(path), store.read_partition(path, start)
    graph, k = stored.merged, before.k if k is None else k
    usual = balance.USUAL_IMBALANCE if before.imbalance is None else before.imbalance
    recipe = balance.Recipe(
        usual if imbalance is None else imbalance,
        seed,
        stored.direction(direction or before.direction),
        before.options.get("balance", balance.DEFAULT_BALANCE),
        before.options.get("ranks_per_node"),
    )
    recipe.check(stored, k)
    if before.k % k:
        what = f"k = {k}: the {before.k} parts of {start!r} cannot be joined by as many each"
        hint = f"choose a divisor of {before.k}, or make a partition by gcn-partition add"
        raise UserError(what, hint)
    require(0 < effort < math.inf, f"effort = {effort}: it multiplies the work, 1 is the default")
    if name is None:
        differs = balance.USUAL_IMBALANCE if recipe.imbalance == usual else recipe.imbalance
        ending = _MIXED if objective.exchange == "mixed" else REFINED
        ending = ending if k == before.k else f"-in-{k}{ending}"
        name = start + ending + balance.name_of_numbers(differs, seed)
    with new_partition(stored.path, (name,), "gcn-partition refine", overwrite):
        begun = time.perf_counter()
        deadline = deadline.part(1 - measuring_share(stored.manifest, time_limit))
        first = before.parts
        if k != before.k:
            with at_once():
                exchange = exchange_matrix(graph, first, before.k, recipe.direction)
                first = join_parts(exchange, k, seed)[first]
        limits = {"effort": effort, "deadline": deadline}
        parts = refined(graph, first, k, objective, recipe, **limits)
        parts = mapped(graph, parts, k, recipe)
        seconds = time.perf_counter() - begun
        was = _MEASURES[objective.exchange](graph, first, k, recipe.direction)
        told = start if k == before.k else f"{start} joined"
        record = {
            "start": {key: getattr(before, key) for key in _STARTED_FROM},
            "refine": asdict(objective) | {"effort": effort, "time_limit": time_limit},
        }
        record |= {key: before.options[key] for key in _KEPT if key in before.options}
        return store_partition(
            stored, recipe, objective.exchange, overwrite, seconds, name=name, parts=parts, k=k,
            model=before.model, tool="refine", seed=seed, imbalance=recipe.imbalance,
            options=record, history=[step(told, before.seconds, was)], seconds=seconds,
            deterministic=before.deterministic and not deadline.decided,
        )  # fmt: skip


def import_parts(
    path: str | os.PathLike[str], file: str | os.PathLike[str], name: str, k: int | None = None,
    *, first: int = 0, direction: str | None = None, overwrite: bool = False,
) -> Partition:  # fmt: skip
    """Store a partition that another program made: one part number per line, vertex by vertex.

    The number of parts is by default the largest part number + 1; parts may be empty. The first
    part has the number ``first`` in the file, 0 or 1.
    """
    stored = store.open_graph(path)
    direction = stored.direction(direction)
    with new_partition(stored.path, (name,), "gcn-partition import-parts", overwrite):
        from partition.importing.readers.metis_files import read_parts  # PyArrow takes 0.05 s

        parts = read_parts(file, stored.manifest.n, k, first)
        if k is None:
            k = int(parts.max(initial=0)) + 1
        balance.check_parts_wanted(k, stored.manifest)
        return put_partition(
            stored, figures_of(stored, parts, k), overwrite, name=name, parts=parts, k=k,
            model="imported", tool="import-parts", direction=direction,
            options={"file": Path(file).name},
        )  # fmt: skip


@dataclass(frozen=True)
class Figures:
    """Figures of a stored partition: metrics of both exchanges and traffic of nodes, by direction.

    ``nodes`` is empty where parts are not mapped to nodes, ``by_relation`` where there are no
    relations.
    """

    metrics: dict[str, Metrics]
    mixed: dict[str, Metrics]
    by_relation: dict[str, Metrics]
    nodes: dict[str, NodeTraffic]

    def of(self, exchange: str, direction: str) -> Metrics:
        """The metrics of an exchange."""
        return (self.mixed if exchange == "mixed" else self.metrics)[direction]


def store_partition(
    stored: StoredGraph, recipe: balance.Recipe, exchange: str, overwrite: bool,
    refining: float | None = None, working: Callable[[str], None] = lambda stage: None,
    **facts: Any,
) -> Partition:  # fmt: skip
    """Measure and store a partition that was made for an exchange.

    ``refining`` are the seconds of a refinement, the last step of the history; ``facts`` are other
    fields of :class:`Partition`. A warning where the balance asked for was not reached.
    """
    graph, found = stored.merged, figures_of(stored, facts["parts"], facts["k"], recipe, working)
    reached = found.of(exchange, recipe.direction)
    if refining is not None:
        facts["history"] = [*facts["history"], step("refine", refining, reached)]
    names = balance.single_constraints(graph, recipe.constraints)
    for name in names if facts["imbalance"] is not None else ():
        (weights,) = balance.constraint_weights(graph, recipe.direction, (name,))
        heaviest = int(weights.argmax())
        message = imbalance_fault(reached, name, recipe.imbalance, heaviest, int(weights[heaviest]))
        if message is not None:
            warnings.warn(message, PartitionWarning, stacklevel=3)
    return put_partition(stored, found, overwrite, direction=recipe.direction, **facts)


def figures_of(
    stored: StoredGraph, parts: np.ndarray, k: int, recipe: balance.Recipe = _USUAL,
    working: Callable[[str], None] = lambda stage: None,
) -> Figures:  # fmt: skip
    """Measure a partition that is to be stored."""
    working("measuring rows")
    metrics = measure_field("metrics", stored, parts, k)
    working("measuring the mixed exchange")
    mixed, by_relation = (measure_field(of, stored, parts, k) for of in ("mixed", "by_relation"))
    nodes = measure_field("nodes", stored, parts, k, recipe.ranks_per_node)
    return Figures(metrics, mixed, by_relation, nodes)


@at_once()
def measure_field(
    of: str, stored: StoredGraph, parts: np.ndarray, k: int, ranks_per_node: int | None = None
) -> dict[str, Any]:
    """Figures of a partition by direction: a field of :class:`Figures`.

    There is one measurement where the pattern is symmetric.
    """
    graph, symmetric = stored.merged, stored.manifest.symmetric_pattern
    if of == "by_relation":
        related = bool(stored.manifest.relations)
        whole = stored.graph
        return measuring.measure_mixed_both(whole, parts, k, by_relation=True) if related else {}
    ways = DIRECTIONS[:1] if symmetric else DIRECTIONS
    found: dict[str, Any] = {}
    if of == "mixed":
        found |= measuring.measure_mixed_both(graph, parts, k, ways)
    elif of == "metrics":
        found = {way: measuring.measure(graph, parts, k, way) for way in ways}
    elif ranks_per_node is not None:
        sent = {way: measuring.exchange_matrix(graph, parts, k, way) for way in ways}
        found = {way: measuring.node_traffic(sent[way], ranks_per_node) for way in ways}
    if found and symmetric:
        found["out"] = found["in"] if of == "nodes" else replace(found["in"], direction="out")
    return found


def measuring_share(manifest: Manifest, time_limit: float | None) -> float:
    """The share of a time limit that is kept for measuring what was made."""
    if time_limit is None:
        return 0.0
    return min(_MOST_SHARE, _SECONDS_PER_ARC * manifest.nnz / time_limit)


def put_partition(
    stored: StoredGraph, found: Figures, overwrite: bool, *, tool: str, **facts: Any
) -> Partition:
    """Store a partition with its figures; ``facts`` are other fields of :class:`Partition`."""
    behind = TOOLS.get(tool).distribution if tool in TOOLS else None
    try:
        tool_version = version(behind or "gcnmpi")
    except PackageNotFoundError:
        tool_version = "unknown"
    facts |= {"graph_id": stored.manifest.id, "tool": tool, "tool_version": tool_version}
    made = Partition(**facts, **vars(found))
    return store.write_partition(stored.path, made, overwrite=overwrite)


def existing_partitions(path: Path, name: str | None, k: int, overwrite: bool) -> list[Partition]:
    """The partition of that name and of this graph, or those of a pair, which have k parts."""
    if name is None or overwrite:
        raise UserError("--if-missing needs --name, and excludes --force")
    names = [each for each in store.members(path, name) if store.has_partition(path, each)]
    found = [store.read_partition(path, each) for each in names]
    for partition in found:
        if partition.k != k:
            what = f"{path} has a partition {partition.name!r} into {partition.k} parts, not {k}"
            raise UserError(what, "give another --name, or remove it first")
    return found


def step(name: str, seconds: float, metrics: Metrics) -> dict[str, object]:
    """A row of a partition's history: the figures that partitions are compared by."""
    facts: dict[str, object] = {"step": name, "seconds": seconds, "direction": metrics.direction}
    return facts | {"exchange": metrics.exchange} | metrics.summary()


@contextlib.contextmanager
def new_partition(
    path: Path, names: Sequence[str], purpose: str, overwrite: bool
) -> Iterator[None]:
    """Keep names for the partitions that are being made: free ones, or to be overwritten."""
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(store.partition_lock(path, name, purpose))
            store.check_free(path, name, overwrite)
        yield


def imbalance_fault(
    metrics: Metrics, name: str, asked: float, heaviest: int, weight: int
) -> str | None:
    """How the balance of a constraint was missed, if it was, and whether one row is the reason.

    ``heaviest`` is the vertex of most weight.
    """
    loads = balance.part_loads(metrics, name) or [0]
    average = sum(loads) / metrics.k
    reached = max(loads) / average - 1 if average else 0.0
    # Units cannot be cut: one more than the average is no imbalance.
    if reached <= asked + 5e-4 or max(loads) <= math.ceil(average):
        return None
    what = "" if name == balance.DEFAULT_BALANCE else f" of {name}"
    message = f"imbalance {reached:.4f}{what} was reached, not {asked:g}"
    if name == "nnz" and weight > (1 + asked) * average:
        parts = f"{weight / average:.2f} average parts"
        message += f": the row of vertex {heaviest} alone has {weight} entries, {parts}"
    return message


_Solve = Callable[[Description, int, float], np.ndarray]
_RANDOM_STARTS = 8
_SMALL = 256  # parts: more of them start from two groupings only
_MAX_SWEEPS = 50


def map_to_nodes(exchange: sp.csr_array, ranks_per_node: int, seed: int = 0) -> np.ndarray:
    """New numbers for the parts, such that the rows sent between nodes are few.

    The parts are grouped from several starts (as they are numbered, grown greedily, at random),
    each improved by swaps of two parts until none helps (Kernighan and Lin 1970, without their
    hill climbing), and the best is taken. A sweep takes O(k²) time, the memory is
    O(k·nodes + messages).

    ``exchange``, (k, k), has the rows from part to part, as
    :func:`partition.graph.metrics.exchange_matrix` counts them. An expand and a fold count alike: M
    and its transpose get the same mapping. A node has R ≥ 1 parts, the last one what is left.
    Returns a permutation of 0..k−1, (k,) int32: the new number of each part. Ties go to the numbers
    there are.
    """
    if ranks_per_node < 1:
        raise ValueError(f"{ranks_per_node} ranks per node")
    k = exchange.shape[0]
    if ranks_per_node == 1 or ranks_per_node >= k:
        return np.arange(k, dtype=np.int32)
    weights = (exchange + exchange.T).tocsr()
    full, rng = np.arange(k) // ranks_per_node, np.random.default_rng(seed)
    starts = [full, _grown(weights, ranks_per_node)]
    starts += [full[rng.permutation(k)] for _ in range(_RANDOM_STARTS if k <= _SMALL else 0)]
    found = [_swap(weights, start) for start in starts]
    (sender, receiver), rows = weights.tocoo().coords, weights.tocoo().data
    between = [int(rows[nodes[sender] != nodes[receiver]].sum()) for nodes in found]
    return _numbers(found[int(np.argmin(between))], ranks_per_node)


def join_parts(exchange: sp.csr_array, k: int, seed: int = 0) -> np.ndarray:
    """Parts put together into k of as many each, such that the rows between these are few.

    Parts of one node of :func:`map_to_nodes` are one part then. ``exchange`` is (c·k, c·k).
    Returns (c·k,) int32 numbers of 0..k−1.
    """
    each, rest = divmod(exchange.shape[0], k)
    if rest:
        raise ValueError(f"{exchange.shape[0]} parts into {k} of as many each")
    return map_to_nodes(exchange, each, seed) // np.int32(each)


def _grown(weights: sp.csr_array, size: int) -> np.ndarray:
    """Nodes filled one after the other: the busiest part left, then what it talks to most."""
    nodes, traffic = np.full(weights.shape[0], -1), weights.sum(axis=1)
    toward = traffic
    for part in range(len(nodes)):
        node, others = divmod(part, size)
        chosen = int(np.where(nodes >= 0, -1, toward if others else traffic).argmax())
        nodes[chosen] = node
        row = _dense_row(weights, chosen)
        toward = toward + row if others else row
    return nodes


def _swap(weights: sp.csr_array, start: np.ndarray) -> np.ndarray:
    """Swap pairs of parts of different nodes, the best partner for each, until none gains."""
    k = weights.shape[0]
    nodes = start.copy()
    everyone = np.arange(k)
    membership = sp.csr_array((np.ones(k, np.int64), (everyone, nodes)))
    toward = (weights @ membership).toarray()  # rows exchanged by a part with each node
    for _ in range(_MAX_SWEEPS):
        swapped = False
        for part in range(k):
            here = nodes[part]
            row = _dense_row(weights, part)
            gain = toward[part, nodes] - toward[part, here] + toward[:, here]
            gain -= toward[everyone, nodes] + 2 * row
            gain[nodes == here] = 0
            other = int(gain.argmax())
            if gain[other] <= 0:
                continue
            there = nodes[other]
            change = _dense_row(weights, other) - row
            toward[:, here] += change
            toward[:, there] -= change
            nodes[part], nodes[other] = there, here
            swapped = True
        if not swapped:
            break
    return nodes


def _dense_row(weights: sp.csr_array, part: int) -> np.ndarray:
    dense = np.zeros(weights.shape[0], dtype=np.int64)
    row = slice(weights.indptr[part], weights.indptr[part + 1])
    dense[weights.indices[row]] = weights.data[row]
    return dense


def _numbers(nodes: np.ndarray, size: int) -> np.ndarray:
    """Part numbers: nodes by their least member, one that is not full last; order kept inside."""
    k = len(nodes)
    least = np.full(nodes.max() + 1, k)
    np.minimum.at(least, nodes, np.arange(k))
    least[np.bincount(nodes) < size] = k
    numbers = np.empty(k, dtype=np.int32)
    numbers[np.lexsort((np.arange(k), least[nodes]))] = np.arange(k, dtype=np.int32)
    return numbers


def partition_nodes_first(
    model: Description, k: int, ranks_per_node: int, solve: _Solve, imbalance: float
) -> np.ndarray | None:
    """Partition into k / R nodes, then each node into R parts; node b gets b·R … b·R+R−1.

    A flat partition cuts k ways at once, this one k / R ways first, so that less is cut between
    nodes. Nodes get half of the imbalance, their parts what then is left. ``solve(model, k,
    imbalance)`` gives (n,) part numbers. None where it cannot be done: nodes of unequal numbers of
    parts, or a node with fewer vertices than parts.
    """
    nodes, rest = divmod(k, ranks_per_node)
    if rest or nodes < 2 or ranks_per_node < 2:
        return None
    home = solve(model, nodes, imbalance / 2)
    parts = np.empty(len(model.weights), dtype=np.int32)
    allowed = (1 + imbalance) * model.weights.sum() / k
    for node in range(nodes):
        members = np.flatnonzero(home == node)
        if len(members) < ranks_per_node:
            return None
        piece = induced(model, members)
        left = max(0.0, float(allowed * ranks_per_node / piece.weights.sum()) - 1)
        parts[members] = node * ranks_per_node + solve(piece, ranks_per_node, left)
    return parts


def induced(model: Description, members: np.ndarray) -> Description:
    """The model of some vertices (increasing numbers), renumbered 0..m−1.

    Of a hypergraph, nets keep their pins among the members, and go where fewer than two are left;
    an owner that is no member gives its place to a pin that is.
    """
    weights = np.asarray(model.weights)[members]
    if isinstance(model, RowModel):
        return replace(model, weights=weights)
    number = np.full(len(model.weights), -1, dtype=np.int64)
    number[members] = np.arange(len(members))
    if isinstance(model, GraphModel):
        row = np.repeat(number, np.diff(model.indptr))
        neighbours = number[np.asarray(model.indices)]
        kept = (row >= 0) & (neighbours >= 0)
        degree = np.bincount(row[kept], minlength=len(weights))
        return GraphModel(weights, pointers(degree), neighbours[kept])
    net = np.repeat(np.arange(model.nets), np.diff(model.indptr))
    pins = number[np.asarray(model.pins)]
    sizes = np.bincount(net[pins >= 0], minlength=model.nets)
    nets = np.flatnonzero(sizes >= 2)
    indptr, pins = pointers(sizes[nets]), pins[(pins >= 0) & (sizes >= 2)[net]]
    costs, owners, folds = model.facts_of(nets)
    owners = number[owners]
    owners = np.where(owners >= 0, owners, pins[indptr[:-1]])
    return HypergraphModel(weights, indptr, pins, costs, owners, folds)


_USUAL_RECIPE = Recipe()
_UNSEEN = 3  # of the batches that partitions are compared by
_LONGER = 2  # effort of the second refinement for mini-batches, of the best of several starts
_REASSIGNED = 0.1  # effort of the refinement that is part of models of a mixed exchange
# Of the time that is left: for a tool whose result is refined, or compared with others.
_BEFORE_REFINING, _BEFORE_OTHERS = 0.7, 0.3


def make_parts(
    graph: Graph, model: str, k: int, recipe: Recipe = _USUAL_RECIPE, *, tool: str | None = None,
    deadline: Deadline | None = None, reassign: bool = True,
    working: Callable[[str], None] = lambda line: None, options: Settings | None = None,
) -> np.ndarray:  # fmt: skip
    """Partition a graph in memory: (n,) int32 part numbers, no part empty.

    Tool and options are those of :func:`partition.pipeline.adding.add_partition`. When the deadline
    is over, tools are stopped, and searches end with what they have; TimeIsUp is raised where no
    tool has made a partition by then. With ``reassign``, models of a mixed exchange end with a
    short refinement for it, which is not needed where another one follows. ``working`` is told
    what is being done.
    """
    deadline, direction = deadline or Deadline(), recipe.direction
    chosen, backend, settings = _chosen_tool(graph, model, tool, recipe, options or {})
    if k == 1:
        return np.zeros(graph.n, dtype=np.int32)

    working(f"building {model}")
    with at_once():
        description = describe(graph, model, k, seed=recipe.seed, direction=direction, **settings)
    weights = balance.constraint_weights(graph, direction, recipe.constraints)
    if recipe.balance != balance.DEFAULT_BALANCE:
        description = replace(description, weights=balance.single_weight(weights))
    mixes, share_of = MODELS[model].exchange == "mixed" and reassign, MODELS[model].share
    of_tool = deadline.part(_BEFORE_OTHERS if share_of else _BEFORE_REFINING if mixes else 1.0)

    def solve(piece: Description, parts_wanted: int, imbalance: float) -> np.ndarray:
        # No part can weigh less than the heaviest row: a tool asked for less may give up.
        working(f"{model}, {chosen}")
        weight = piece.weights
        heaviest = float(weight.max() * parts_wanted / weight.sum()) - 1 + 1e-6
        arguments: Settings = {"imbalance": max(imbalance, heaviest), "seed": recipe.seed}
        arguments |= {key: settings[key] for key in backend.options}
        if backend.distribution is not None:
            entry, left = TOOLS.entries[chosen], of_tool.timeout()
            let_go(graph.indptr, graph.indices, graph.weights)
            (parts,) = run_each(entry, piece, parts_wanted, [arguments], left)
            return checked(chosen, parts, parts_wanted, weight)
        try:
            parts = backend.partition(piece, parts_wanted, **arguments)
            return checked(chosen, parts, parts_wanted, weight)
        except UserError:
            raise
        except Exception as error:  # in this process: one line that says where
            at = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error} ({Path(at.filename).name}, line {at.lineno})"
            hint = "try another tool or other options"
            raise UserError(f"the tool {chosen!r} failed: {what}", hint) from error

    parts, stopped = None, None
    with contextlib.ExitStack() as stack:
        if backend.distribution is not None:  # the tool's process has the memory to itself
            description = stack.enter_context(in_files(description))
        try:
            per_node = recipe.ranks_per_node if recipe.mapping == balance.NODES_FIRST else None
            if per_node is not None and backend.balanced:
                parts = partition_nodes_first(description, k, per_node, solve, recipe.imbalance)
            if parts is None:
                parts = solve(description, k, recipe.imbalance)
        except TimeIsUp as error:
            deadline.decide()
            if share_of is None:
                raise
            stopped = error  # other tools are tried
        del description
    if parts is not None and len(weights) > 1:
        with at_once():
            near = descriptions.graph_model(graph, direction)
            parts = balance.repair(parts, k, weights, recipe.imbalance, near.indptr, near.indices)
    if mixes:
        assert parts is not None
        working("refining")
        # The assignment that the tool was shown is not the best one for what it made of it.
        limits = {"effort": _REASSIGNED, "deadline": deadline}
        parts = refined(graph, parts, k, OBJECTIVES["mixed"], recipe, **limits)
    if share_of is None:
        assert parts is not None
        return parts

    share = share_of(graph.n, settings)
    # For large batches rows matter, for small ones arcs.
    others: list[tuple[str, str | None]] = [("hp", None)]
    if share is not None:
        others += [("gp", "metis")] + [("gp", "mtkahypar")] * (graph.nnz <= HUGE)
    starts = [] if parts is None else [parts]
    for other, tool in others:
        how: dict[str, Any] = {"tool": tool, "deadline": deadline.part(_BEFORE_OTHERS)}
        try:
            starts.append(make_parts(graph, other, k, recipe, working=working, **how))
        except TimeIsUp as error:
            stopped = stopped or error
    if not starts:
        assert stopped is not None
        raise stopped
    working("refining")
    if share is not None:
        return _for_batches(graph, starts, k, recipe, weights, share, deadline)
    if len(starts) == 1 or deadline.over():
        return starts[0]
    with at_once():  # by batches that neither of them has seen
        unseen = key(recipe.seed, _UNSEEN)
        judge = describe(graph, model, k, seed=unseen, direction=direction, **settings)
        assert isinstance(judge, HypergraphModel)
        return min(starts, key=lambda parts: descriptions.connectivity(judge, parts, k))


@at_once()
def _for_batches(
    graph: Graph, starts: Sequence[np.ndarray], k: int, recipe: Recipe, weights: np.ndarray,
    share: float, deadline: Deadline,
) -> np.ndarray:  # fmt: skip
    """Some partitions, refined for batches with that share of the vertices: the best, once more."""
    # The compiler behind it takes a second to import.
    from partition.refinement.search import refine_for_batches

    model = replace(descriptions.hypergraph_model(graph, recipe.direction), weights=weights[0])
    wanted: dict[str, Any] = {"imbalance": recipe.imbalance, "seed": recipe.seed}
    wanted["extra_weights"] = weights[1:].T
    found = []
    for i, parts in enumerate(starts):  # the last one is as long as _LONGER of these
        part = deadline.part(1 / (len(starts) - i + _LONGER))
        found.append(refine_for_batches(model, parts, k, share, deadline=part, **wanted))
    best = min(found, key=lambda result: result[1])[0]
    return refine_for_batches(model, best, k, share, effort=_LONGER, deadline=deadline, **wanted)[0]


@at_once()
def refined(
    graph: Graph, parts: np.ndarray, k: int, objective: Objective, recipe: Recipe, **limits: Any
) -> np.ndarray:
    """The parts after a refinement for the exchange that the objective names: (n,) int32.

    The limits, ``effort`` and ``deadline``, are those of
    :class:`~partition.refinement.search.Annealing`.
    """
    # The compiler behind them takes a second to import.
    from partition.refinement.mixed import refine_mixed
    from partition.refinement.search import refine

    if k == 1:
        return parts
    names, direction = recipe.constraints, recipe.direction
    limits |= {"imbalance": recipe.imbalance, "seed": recipe.seed, "objective": objective}
    weights = balance.constraint_weights(graph, direction, names)
    if objective.exchange == "mixed":
        # Entries are the work that a mixed exchange may move: the others are fixed.
        counted = [name in balance.ENTRIES for name in balance.single_constraints(graph, names)]
        fixed = (weights - np.outer(counted, row_sizes(graph, direction))).T
        return refine_mixed(graph, parts, k, fixed, counted, direction=direction, **limits)
    # No name for the model: it goes as soon as its nets are those of the finest level.
    return refine(
        replace(descriptions.hypergraph_model(graph, direction), weights=weights[0]),
        parts, k, extra_weights=weights[1:].T, **limits,
    )  # fmt: skip


def deadline_with_refinement(
    time_limit: float | None, exchanges: Sequence[str], *, paced: bool = True
) -> Deadline:
    """A deadline that begins when the refinements for some exchanges are compiled.

    After an installation that takes half a minute, else two seconds. It compiles what refines a
    small random graph.
    """
    deadline_for(time_limit)  # which refuses what is no time
    n = 400  # with fewer, not all levels of a refinement are there
    arcs = np.random.default_rng(0).integers(0, n, (2, 6 * n))
    matrix = sp.csr_array((np.ones(6 * n), arcs), (n, n))
    matrix.sum_duplicates()
    graph = Graph(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32))
    for exchange in () if time_limit is None else exchanges:
        parts, objective = np.arange(n, dtype=np.int32) % 2, Objective(exchange=exchange)
        refined(graph, parts, 2, objective, _USUAL_RECIPE, effort=0.05)
    return deadline_for(time_limit, paced=paced)


@at_once()
def mapped(graph: Graph, parts: np.ndarray, k: int, recipe: Recipe) -> np.ndarray:
    """The same parts, numbered so that those of one node, if any, exchange many rows."""
    if recipe.ranks_per_node is None:
        return parts
    exchange = exchange_matrix(graph, parts, k, recipe.direction)
    return map_to_nodes(exchange, recipe.ranks_per_node, recipe.seed)[parts]


def choose_tool(model: str, tool: str | None) -> tuple[str, Tool]:
    """A tool that takes the model, by name or the default; a UserError for anything else."""
    if model not in MODELS:
        raise unknown_model(model)
    tools = MODELS[model].tools
    chosen = tool or tools[0]
    if chosen in TOOLS and chosen not in tools:
        hint = f"tools for {model}: {', '.join(tools)}"
        raise UserError(f"the tool {chosen!r} does not take the model {model!r}", hint)
    return chosen, TOOLS.get(chosen)


def _chosen_tool(
    graph: Graph, model: str, tool: str | None, recipe: Recipe, given: Settings
) -> tuple[str, Tool, Settings]:
    """A tool that takes the model, and all options of both.

    A UserError unless options and constraints are known, and the tool balances these.
    """
    chosen, backend = choose_tool(model, tool)
    settings = all_options(graph, model, chosen, backend, given)
    if recipe.constraints and recipe.balance != balance.DEFAULT_BALANCE and not backend.balanced:
        what = f"balance = {recipe.balance}: the tool {chosen!r} does not balance anything"
        raise UserError(what)
    return chosen, backend, settings


def checked(tool: str, parts: np.ndarray, k: int, weights: np.ndarray) -> np.ndarray:
    """The parts that a tool returned, if they are a partition; a few empty ones are filled.

    Every empty part gets the lightest vertex of the part that has most vertices by then.
    """
    parts = np.asarray(parts)
    if parts.shape != weights.shape or parts.dtype.kind not in "iu":
        raise UserError(f"{tool} returned {parts.dtype} {parts.shape} for {len(weights)} vertices")
    if parts.min() < 0 or parts.max() >= k:
        raise UserError(f"{tool} returned part numbers outside 0..{k - 1}")
    parts, rows = parts.astype(np.int32), np.bincount(parts, minlength=k)
    empty = np.flatnonzero(rows == 0)
    # With fewer than two rows a part, tools leave many parts empty, and there is little to lose.
    if 2 * len(empty) > k and len(parts) >= 2 * k:
        message = f"{tool} returned only {k - len(empty)} of {k} parts"
        raise UserError(message, "choose a smaller k or another tool")
    # Part by part, the lightest first.
    order = np.lexsort((weights, parts)) if len(empty) else parts
    start = pointers(rows)
    fullest = [(-count, part) for part, count in enumerate(rows.tolist()) if count > 1]
    heapq.heapify(fullest)
    for part in empty:
        count, donor = fullest[0]
        parts[order[start[donor]]] = part
        start[donor] += 1
        heapq.heapreplace(fullest, (count + 1, donor))
    return parts
