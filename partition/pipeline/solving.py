"""From a graph in memory to part numbers: graph → model → tool → parts."""

from __future__ import annotations

import contextlib
import heapq
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from partition.backends import HUGE, TOOLS, Tool
from partition.backends.catalogue import MODELS, all_options, describe, unknown_model
from partition.backends.process import in_files, run_apart
from partition.errors import UserError
from partition.graph.graph import Graph
from partition.graph.hashing import key
from partition.graph.metrics import exchange_matrix
from partition.mapping.hierarchy import partition_nodes_first
from partition.mapping.placement import map_to_nodes
from partition.models.graph import graph_model
from partition.models.hypergraph import connectivity, hypergraph_model
from partition.pipeline.balance import DEFAULT as DEFAULT_BALANCE
from partition.pipeline.balance import (
    ENTRIES,
    constraint_weights,
    fixed_weights,
    parse_balance,
    repair,
    single_weight,
)
from partition.refinement.objective import OBJECTIVES, Objective
from partition.resident import let_go

NODES_FIRST = "nodes-first"
MAPPINGS = (NODES_FIRST, "flat")
UNSEEN = 3  # of the batches that partitions are compared by
LONGER = 2  # effort of the second refinement for mini-batches, of the best of several starts
REASSIGNED = 0.1  # effort of the refinement that is part of models of a mixed exchange


def make_parts(
    graph: Graph,
    model: str,
    k: int,
    *,
    imbalance: float = 0.01,
    seed: int = 0,
    tool: str | None = None,
    direction: str = "in",
    balance: str = DEFAULT_BALANCE,
    ranks_per_node: int | None = None,
    mapping: str = NODES_FIRST,
    timeout: float | None = None,
    reassign: bool = True,
    working: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> np.ndarray:
    """Partition a graph in memory: (n,) int32 part numbers, no part empty.

    Parameters are those of :func:`partition.pipeline.adding.add_partition`; and

    Parameters
    ----------
    timeout : float, optional
        Seconds after which the tool is stopped.
    reassign : bool
        Whether models of a mixed exchange end with a short refinement for it; not needed where
        another one follows.
    working : callable
        Told what is being done.

    Raises
    ------
    UserError
        If the tool fails, or what it returns is no partition into k parts.
    TimeIsUp
        If it was stopped.
    """
    chosen, backend = choose_tool(model, tool)
    settings = all_options(graph, model, chosen, backend, options)
    constraints = check_balance(balance, chosen, backend)
    if k == 1:
        return np.zeros(graph.n, dtype=np.int32)

    working(f"building {model}")
    description = describe(graph, model, k, seed=seed, direction=direction, **settings)
    weights = constraint_weights(graph, direction, constraints)
    if balance != DEFAULT_BALANCE:
        description = replace(description, weights=single_weight(weights))
    deadline = None if timeout is None else time.perf_counter() + timeout

    def solve(piece: Any, parts_wanted: int, imbalance: float) -> np.ndarray:
        # No part can weigh less than the heaviest row: a tool asked for less may give up.
        working(f"{model}, {chosen}")
        weight = piece.weights
        heaviest = float(weight.max() * parts_wanted / weight.sum()) - 1 + 1e-6
        arguments = {"imbalance": max(imbalance, heaviest), "seed": seed}
        arguments |= {key: settings[key] for key in backend.options}
        if backend.distribution is None:
            parts = _run_here(chosen, backend, piece, parts_wanted, arguments)
        else:
            left = None if deadline is None else max(0.0, deadline - time.perf_counter())
            entry = TOOLS.entries[chosen]
            let_go(graph.indptr, graph.indices, graph.weights)
            parts = run_apart(entry, piece, parts_wanted, timeout=left, **arguments)
        return _checked(chosen, parts, parts_wanted, weight)

    parts = None
    with contextlib.ExitStack() as stack:
        if backend.distribution is not None:  # the tool's process has the memory to itself
            description = stack.enter_context(in_files(description))
        if ranks_per_node is not None and mapping == NODES_FIRST and backend.balanced:
            parts = partition_nodes_first(description, k, ranks_per_node, solve, imbalance)
        if parts is None:
            parts = solve(description, k, imbalance)
        del description
    if len(constraints) > 1:
        neighbours = graph_model(graph, direction)
        parts = repair(parts, k, weights, imbalance, neighbours.indptr, neighbours.indices)
    if MODELS[model].exchange == "mixed" and reassign:
        working("refining")
        # The assignment that the tool was shown is not the best one for what it made of it.
        parts = refined(
            graph, parts, k, OBJECTIVES["mixed"], imbalance=imbalance, seed=seed,
            direction=direction, balance=balance, effort=REASSIGNED,
        )  # fmt: skip
    share_of = MODELS[model].share
    if share_of is not None:
        left = None if deadline is None else max(0.0, deadline - time.perf_counter())
        wanted: dict[str, Any] = {"imbalance": imbalance, "seed": seed}
        further: dict[str, Any] = wanted | {
            "direction": direction, "balance": balance, "ranks_per_node": ranks_per_node,
            "mapping": mapping, "timeout": left, "working": working,
        }  # fmt: skip
        rows, share = make_parts(graph, "hp", k, **further), share_of(graph.n, settings)
        if share is None:
            # By batches that neither of them has seen.
            other = key(seed, UNSEEN)
            judge = describe(graph, model, k, seed=other, direction=direction, **settings)
            parts = min(parts, rows, key=lambda parts: connectivity(judge, parts, k))
        else:
            # For large batches rows matter, for small ones arcs.
            tools = ("metis",) if graph.nnz > HUGE else ("metis", "mtkahypar")
            cuts = [make_parts(graph, "gp", k, tool=tool, **further) for tool in tools]
            starts = parts, rows, *cuts
            parts = _for_batches(graph, starts, k, direction, weights, share, wanted)
    return parts


def _for_batches(
    graph: Graph,
    starts: Sequence[np.ndarray],
    k: int,
    direction: str,
    weights: np.ndarray,
    share: float,
    wanted: Mapping[str, Any],
) -> np.ndarray:
    """Some partitions, refined for batches with that share of the vertices: the best, once more."""
    # The compiler behind it takes a second to import.
    from partition.refinement.batches import refine_for_batches

    model = replace(hypergraph_model(graph, direction), weights=weights[0])
    extra = weights[1:].T if len(weights) > 1 else None
    wanted = {**wanted, "extra_weights": extra}
    found = [refine_for_batches(model, parts, k, share, **wanted) for parts in starts]
    best = min(found, key=lambda result: result[1])[0]
    return refine_for_batches(model, best, k, share, effort=LONGER, **wanted)[0]


def _run_here(name: str, tool: Tool, model: Any, k: int, arguments: dict[str, Any]) -> np.ndarray:
    """Call a tool in this process: what it raises becomes one line that says where."""
    try:
        return tool.partition(model, k, **arguments)
    except UserError:
        raise
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(at.filename).name}, line {at.lineno}"
        raise UserError(
            f"the tool {name!r} failed: {type(error).__name__}: {error} ({place})",
            "try another tool or other options",
        ) from error


def refined(
    graph: Graph,
    parts: np.ndarray,
    k: int,
    objective: Objective,
    *,
    imbalance: float = 0.01,
    seed: int = 0,
    direction: str = "in",
    balance: str = DEFAULT_BALANCE,
    effort: float = 1.0,
    time_limit: float | None = None,
) -> np.ndarray:
    """The parts after a refinement for the exchange that the objective names: (n,) int32.

    Parameters are those of :func:`partition.pipeline.adding.add_partition`; ``effort`` and
    ``time_limit`` those of :func:`~partition.refinement.search.refine`.
    """
    # The compiler behind them takes a second to import.
    from partition.refinement.mixed import refine_mixed
    from partition.refinement.search import refine

    if k == 1:
        return parts
    names = parse_balance(balance)
    wanted: dict[str, Any] = {
        "imbalance": imbalance, "objective": objective, "seed": seed, "effort": effort,
        "time_limit": time_limit,
    }  # fmt: skip
    if objective.exchange == "mixed":
        fixed = fixed_weights(graph, direction, names).T
        counted = tuple(name in ENTRIES for name in names)
        return refine_mixed(
            graph, parts, k, direction=direction, fixed=fixed, counted=counted, **wanted
        )
    weights = constraint_weights(graph, direction, names)
    extra = weights[1:].T if len(weights) > 1 else None
    # No name for the model: it goes as soon as its nets are those of the finest level.
    return refine(
        replace(hypergraph_model(graph, direction), weights=weights[0]),
        parts, k, extra_weights=extra, **wanted,
    )  # fmt: skip


def mapped(
    graph: Graph, parts: np.ndarray, k: int, ranks_per_node: int, direction: str, seed: int
) -> np.ndarray:
    """The same parts, numbered so that those of one node exchange much with each other."""
    exchange = exchange_matrix(graph, parts, k, direction)
    return map_to_nodes(exchange, ranks_per_node, seed)[parts]


def choose_tool(model: str, tool: str | None) -> tuple[str, Tool]:
    """A tool that takes the model, by name or the default; a UserError for anything else."""
    if model not in MODELS:
        raise unknown_model(model)
    tools = MODELS[model].tools
    chosen = tool or tools[0]
    if chosen in TOOLS and chosen not in tools:
        raise UserError(
            f"the tool {chosen!r} does not take the model {model!r}",
            f"tools for {model}: {', '.join(tools)}",
        )
    return chosen, TOOLS.get(chosen)


def check_balance(balance: str, chosen: str, backend: Tool) -> tuple[str, ...]:
    """The constraints named in ``balance``; a UserError unless the tool balances."""
    names = parse_balance(balance)
    if balance != DEFAULT_BALANCE and not backend.balanced:
        raise UserError(f"balance = {balance}: the tool {chosen!r} does not balance anything")
    return names


def _checked(tool: str, parts: np.ndarray, k: int, weights: np.ndarray) -> np.ndarray:
    """What a tool returned, if it is a partition; a few parts that it left empty are filled."""
    parts = np.asarray(parts)
    if parts.shape != weights.shape or parts.dtype.kind not in "iu":
        raise UserError(f"{tool} returned {parts.dtype} {parts.shape} for {len(weights)} vertices")
    if parts.min() < 0 or parts.max() >= k:
        raise UserError(f"{tool} returned part numbers outside 0..{k - 1}")
    empty = k - len(np.unique(parts))
    # With fewer than two rows a part, tools leave many parts empty, and there is little to lose.
    if 2 * empty > k and len(parts) >= 2 * k:
        raise UserError(
            f"{tool} returned only {k - empty} of {k} parts",
            "choose a smaller k or another tool",
        )
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
