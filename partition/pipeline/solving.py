"""From a graph in memory to part numbers: graph → model → tool → parts, and numbers by nodes.

Process mapping: ``mpirun`` puts ranks 0 … R−1 on the first node, R … 2R−1 on the next one, and so
on. Parts are therefore renumbered: those that exchange most get numbers of one node. Nothing else
of the partition changes, neither its volume nor its balance. A hierarchical partition is made of
nodes first, and then of each node's ranks.
"""

from __future__ import annotations

import contextlib
import heapq
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from partition.backends import HUGE, TOOLS, Tool
from partition.backends.catalogue import MODELS, all_options, describe, unknown_model
from partition.backends.process import TimeIsUp, in_files, run_each
from partition.deadline import Deadline, deadline_for
from partition.errors import UserError
from partition.graph.graph import Graph, row_sizes
from partition.graph.hashing import key
from partition.graph.metrics import exchange_matrix
from partition.graph.sampling import pointers
from partition.models import descriptions
from partition.models.descriptions import Description, GraphModel, HypergraphModel, RowModel
from partition.pipeline import balance
from partition.pipeline.balance import Recipe
from partition.refinement.objective import OBJECTIVES, Objective
from partition.registry import Settings
from partition.resident import let_go
from partition.signals import at_once

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
    k, nodes = weights.shape[0], np.full(weights.shape[0], -1)
    traffic = weights.sum(axis=1).astype(np.float64)
    for part in range(k):
        node, first = divmod(part, size)
        if first == 0:
            pull = traffic.copy()
        pull[nodes >= 0] = -1
        chosen = int(pull.argmax())
        nodes[chosen] = node
        if first == 0:
            pull = np.zeros(k)
        row = slice(weights.indptr[chosen], weights.indptr[chosen + 1])
        pull[weights.indices[row]] += weights.data[row]
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


_USUAL = Recipe()
_UNSEEN = 3  # of the batches that partitions are compared by
_LONGER = 2  # effort of the second refinement for mini-batches, of the best of several starts
_REASSIGNED = 0.1  # effort of the refinement that is part of models of a mixed exchange
# Of the time that is left: for a tool whose result is refined, or compared with others.
BEFORE_REFINING, _BEFORE_OTHERS = 0.7, 0.3


def make_parts(
    graph: Graph, model: str, k: int, recipe: Recipe = _USUAL, *, tool: str | None = None,
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
    chosen, backend, settings = chosen_tool(graph, model, tool, recipe, options or {})
    if k == 1:
        return np.zeros(graph.n, dtype=np.int32)

    working(f"building {model}")
    with at_once():
        description = describe(graph, model, k, seed=recipe.seed, direction=direction, **settings)
    weights = balance.constraint_weights(graph, direction, recipe.constraints)
    if recipe.balance != balance.DEFAULT_BALANCE:
        description = replace(description, weights=balance.single_weight(weights))
    mixes, share_of = MODELS[model].exchange == "mixed" and reassign, MODELS[model].share
    of_tool = deadline.part(_BEFORE_OTHERS if share_of else BEFORE_REFINING if mixes else 1.0)

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
        refined(graph, parts, 2, objective, _USUAL, effort=0.05)
    return deadline_for(time_limit, paced=paced)


@at_once()
def joined(graph: Graph, parts: np.ndarray, count: int, k: int, recipe: Recipe) -> np.ndarray:
    """Merge ``count`` parts into k equal groups that exchange many rows: (n,) int32."""
    if count == k:
        return parts
    exchange = exchange_matrix(graph, parts, count, recipe.direction)
    return join_parts(exchange, k, recipe.seed)[parts]


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


def chosen_tool(
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
