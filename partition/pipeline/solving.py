"""From a graph in memory to part numbers: graph → model → tool → parts."""

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
from partition.deadline import Deadline, at_once, deadline_for
from partition.errors import UserError
from partition.graph.graph import Graph
from partition.graph.hashing import key
from partition.graph.metrics import exchange_matrix
from partition.models import Description
from partition.models.graph import graph_model
from partition.models.hypergraph import HypergraphModel, connectivity, hypergraph_model
from partition.pipeline import balance
from partition.pipeline.balance import Recipe
from partition.pipeline.nodes import join_parts, map_to_nodes, partition_nodes_first
from partition.refinement.objective import OBJECTIVES, Objective
from partition.registry import Settings
from partition.resident import let_go

_USUAL = Recipe()
_UNSEEN = 3  # of the batches that partitions are compared by
_LONGER = 2  # effort of the second refinement for mini-batches, of the best of several starts
_REASSIGNED = 0.1  # effort of the refinement that is part of models of a mixed exchange
# Of the time that is left: for a tool whose result is refined, or compared with others.
BEFORE_REFINING, _BEFORE_OTHERS = 0.7, 0.3


def make_parts(
    graph: Graph,
    model: str,
    k: int,
    recipe: Recipe = _USUAL,
    *,
    tool: str | None = None,
    deadline: Deadline | None = None,
    reassign: bool = True,
    working: Callable[[str], None] = lambda line: None,
    options: Settings | None = None,
) -> np.ndarray:
    """Partition a graph in memory: (n,) int32 part numbers, no part empty.

    Tool and options are those of :func:`partition.pipeline.adding.add_partition`. When the deadline
    is over, tools are stopped, and searches end with what they have; TimeIsUp is raised where no
    tool has made a partition by then. With ``reassign``, models of a mixed exchange end with a
    short refinement for it, which is not needed where another one follows. ``working`` is told
    what is being done.
    """
    deadline = deadline or Deadline()
    chosen, backend = choose_tool(model, tool)
    settings = all_options(graph, model, chosen, backend, options or {})
    check_balance(recipe, chosen, backend)
    if k == 1:
        return np.zeros(graph.n, dtype=np.int32)

    working(f"building {model}")
    with at_once():
        description = describe(
            graph, model, k, seed=recipe.seed, direction=recipe.direction, **settings
        )
    weights = balance.constraint_weights(graph, recipe.direction, recipe.constraints)
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
        if backend.distribution is None:
            parts = _run_here(chosen, backend, piece, parts_wanted, arguments)
        else:
            entry, left = TOOLS.entries[chosen], of_tool.timeout()
            let_go(graph.indptr, graph.indices, graph.weights)
            (parts,) = run_each(entry, piece, parts_wanted, [arguments], left)
        return checked(chosen, parts, parts_wanted, weight)

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
            near = graph_model(graph, recipe.direction)
            parts = balance.repair(parts, k, weights, recipe.imbalance, near.indptr, near.indices)
    if mixes:
        assert parts is not None
        working("refining")
        # The assignment that the tool was shown is not the best one for what it made of it.
        aim = OBJECTIVES["mixed"]
        parts = refined(graph, parts, k, aim, recipe, effort=_REASSIGNED, deadline=deadline)
    if share_of is not None:
        share = share_of(graph.n, settings)
        # For large batches rows matter, for small ones arcs.
        others: list[tuple[str, str | None]] = [("hp", None)]
        if share is not None:
            others += [("gp", "metis")] + [("gp", "mtkahypar")] * (graph.nnz <= HUGE)
        starts = [] if parts is None else [parts]
        for other, tool in others:
            part = deadline.part(_BEFORE_OTHERS)
            try:
                made = make_parts(
                    graph, other, k, recipe, tool=tool, working=working, deadline=part
                )
                starts.append(made)
            except TimeIsUp as error:
                stopped = stopped or error
        if not starts:
            assert stopped is not None
            raise stopped
        working("refining")
        if share is not None:
            return _for_batches(graph, starts, k, recipe, weights, share, deadline)
        if len(starts) > 1 and not deadline.over():
            # By batches that neither of them has seen.
            with at_once():
                unseen, direction = key(recipe.seed, _UNSEEN), recipe.direction
                judge = describe(graph, model, k, seed=unseen, direction=direction, **settings)
                assert isinstance(judge, HypergraphModel)
                return min(starts, key=lambda parts: connectivity(judge, parts, k))
        parts = starts[0]
    assert parts is not None
    return parts


@at_once()
def _for_batches(
    graph: Graph, starts: Sequence[np.ndarray], k: int, recipe: Recipe, weights: np.ndarray,
    share: float, deadline: Deadline,
) -> np.ndarray:  # fmt: skip
    """Some partitions, refined for batches with that share of the vertices: the best, once more."""
    # The compiler behind it takes a second to import.
    from partition.refinement.batches import refine_for_batches

    model = replace(hypergraph_model(graph, recipe.direction), weights=weights[0])
    wanted: dict[str, Any] = {"imbalance": recipe.imbalance, "seed": recipe.seed}
    wanted["extra_weights"] = weights[1:].T if len(weights) > 1 else None
    found = []
    for i, parts in enumerate(starts):  # the last one is as long as _LONGER of these
        part = deadline.part(1 / (len(starts) - i + _LONGER))
        found.append(refine_for_batches(model, parts, k, share, deadline=part, **wanted))
    best = min(found, key=lambda result: result[1])[0]
    return refine_for_batches(model, best, k, share, effort=_LONGER, deadline=deadline, **wanted)[0]


def _run_here(name: str, tool: Tool, model: Description, k: int, arguments: Settings) -> np.ndarray:
    """Call a tool in this process: what it raises becomes one line that says where."""
    try:
        return tool.partition(model, k, **arguments)
    except UserError:
        raise
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error} ({Path(at.filename).name}, line {at.lineno})"
        hint = "try another tool or other options"
        raise UserError(f"the tool {name!r} failed: {what}", hint) from error


@at_once()
def refined(
    graph: Graph,
    parts: np.ndarray,
    k: int,
    objective: Objective,
    recipe: Recipe,
    *,
    effort: float = 1.0,
    deadline: Deadline | None = None,
) -> np.ndarray:
    """The parts after a refinement for the exchange that the objective names: (n,) int32.

    ``effort`` and ``deadline`` are those of :func:`~partition.refinement.search.refine`.
    """
    # The compiler behind them takes a second to import.
    from partition.refinement.mixed import refine_mixed
    from partition.refinement.search import refine

    if k == 1:
        return parts
    names, direction = recipe.constraints, recipe.direction
    wanted: dict[str, Any] = {"imbalance": recipe.imbalance, "seed": recipe.seed}
    wanted |= {"objective": objective, "effort": effort, "deadline": deadline or Deadline()}
    if objective.exchange == "mixed":
        fixed = balance.fixed_weights(graph, direction, names).T
        counted = tuple(
            name in balance.ENTRIES for name in balance.single_constraints(graph, names)
        )
        return refine_mixed(
            graph, parts, k, direction=direction, fixed=fixed, counted=counted, **wanted
        )
    weights = balance.constraint_weights(graph, direction, names)
    extra = weights[1:].T if len(weights) > 1 else None
    # No name for the model: it goes as soon as its nets are those of the finest level.
    return refine(
        replace(hypergraph_model(graph, direction), weights=weights[0]),
        parts, k, extra_weights=extra, **wanted,
    )  # fmt: skip


def deadline_with_refinement(
    time_limit: float | None, exchanges: Sequence[str], *, paced: bool = True
) -> Deadline:
    """A deadline that begins when the refinements for some exchanges are compiled.

    After an installation that takes half a minute, else two seconds. It compiles what refines a
    small random graph.
    """
    deadline_for(time_limit)  # which refuses what is no time
    n = _COMPILED_FOR
    arcs = np.random.default_rng(0).integers(0, n, (2, 6 * n))
    matrix = sp.csr_array((np.ones(6 * n), arcs), (n, n))
    matrix.sum_duplicates()
    graph = Graph(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32))
    for exchange in () if time_limit is None else exchanges:
        parts, objective = np.arange(n, dtype=np.int32) % 2, Objective(exchange=exchange)
        refined(graph, parts, 2, objective, _USUAL, effort=0.05)
    return deadline_for(time_limit, paced=paced)


_COMPILED_FOR = 400  # vertices: with fewer, not all levels of a refinement are there


@at_once()
def joined(graph: Graph, parts: np.ndarray, count: int, k: int, recipe: Recipe) -> np.ndarray:
    """Of so many parts, k of as many each that exchange much with each other: (n,) int32."""
    if count == k:
        return parts
    exchange = exchange_matrix(graph, parts, count, recipe.direction)
    return join_parts(exchange, k, recipe.seed)[parts]


@at_once()
def mapped(graph: Graph, parts: np.ndarray, k: int, recipe: Recipe) -> np.ndarray:
    """The same parts, numbered so that those of one node, if any, exchange much with each other."""
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


def check_balance(recipe: Recipe, chosen: str, backend: Tool) -> None:
    """A UserError unless constraints are known, and the tool balances them."""
    if recipe.constraints and recipe.balance != balance.DEFAULT_BALANCE and not backend.balanced:
        raise UserError(
            f"balance = {recipe.balance}: the tool {chosen!r} does not balance anything"
        )


def checked(tool: str, parts: np.ndarray, k: int, weights: np.ndarray) -> np.ndarray:
    """The parts that a tool returned, if they are a partition; a few empty ones are filled."""
    parts = np.asarray(parts)
    if parts.shape != weights.shape or parts.dtype.kind not in "iu":
        raise UserError(f"{tool} returned {parts.dtype} {parts.shape} for {len(weights)} vertices")
    if parts.min() < 0 or parts.max() >= k:
        raise UserError(f"{tool} returned part numbers outside 0..{k - 1}")
    empty = k - len(np.unique(parts))
    # With fewer than two rows a part, tools leave many parts empty, and there is little to lose.
    if 2 * empty > k and len(parts) >= 2 * k:
        message = f"{tool} returned only {k - empty} of {k} parts"
        raise UserError(message, "choose a smaller k or another tool")
    return _filled(parts.astype(np.int32), k, weights)


def _filled(parts: np.ndarray, k: int, weights: np.ndarray) -> np.ndarray:
    """Every empty part gets the lightest vertex of the part that has most vertices by then."""
    rows = np.bincount(parts, minlength=k)
    empty = np.flatnonzero(rows == 0)
    if not len(empty):
        return parts
    order = np.lexsort((weights, parts))  # part by part, the lightest first
    start = np.concatenate(([0], np.cumsum(rows)))
    fullest = [(-count, part) for part, count in enumerate(rows.tolist()) if count > 1]
    heapq.heapify(fullest)
    for part in empty:
        count, donor = fullest[0]
        parts[order[start[donor]]] = part
        start[donor] += 1
        heapq.heapreplace(fullest, (count + 1, donor))
    return parts
