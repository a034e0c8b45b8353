"""From a graph in memory to part numbers: graph → model → tool → parts."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from partition.backends import TOOLS, Tool
from partition.backends.process import run_apart
from partition.balance import DEFAULT as DEFAULT_BALANCE
from partition.balance import constraint_weights, parse_balance, repair, single_weight
from partition.catalogue import MODELS, all_options, describe, unknown_model
from partition.errors import UserError
from partition.graph import Graph
from partition.hierarchy import partition_nodes_first
from partition.mapping import map_to_nodes
from partition.metrics import exchange_matrix
from partition.models import graph_model, hypergraph_model

if TYPE_CHECKING:
    from partition.refine import Objective

NODES_FIRST = "nodes-first"
MAPPINGS = (NODES_FIRST, "flat")


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
    **options: Any,
) -> np.ndarray:
    """Partition a graph in memory: (n,) int32 part numbers, no part empty.

    Parameters are those of :func:`partition.pipeline.add_partition`; and

    Parameters
    ----------
    timeout : float, optional
        Seconds after which the tool is stopped.

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

    description = describe(graph, model, k, seed=seed, direction=direction, **settings)
    weights = constraint_weights(graph, direction, constraints)
    if balance != DEFAULT_BALANCE:
        description = replace(description, weights=single_weight(weights))
    deadline = None if timeout is None else time.perf_counter() + timeout

    def solve(piece: Any, parts_wanted: int, imbalance: float) -> np.ndarray:
        # No part can weigh less than the heaviest row: a tool asked for less may give up.
        weight = piece.weights
        heaviest = float(weight.max() * parts_wanted / weight.sum()) - 1 + 1e-6
        arguments = {"imbalance": max(imbalance, heaviest), "seed": seed}
        arguments |= {key: settings[key] for key in backend.options}
        if backend.distribution is None:
            parts = backend.partition(piece, parts_wanted, **arguments)
        else:
            left = None if deadline is None else max(0.0, deadline - time.perf_counter())
            entry = TOOLS.entries[chosen]
            parts = run_apart(entry, piece, parts_wanted, timeout=left, **arguments)
        return _checked(chosen, parts, parts_wanted, weight)

    parts = None
    if ranks_per_node is not None and mapping == NODES_FIRST and backend.balanced:
        parts = partition_nodes_first(description, k, ranks_per_node, solve, imbalance)
    if parts is None:
        parts = solve(description, k, imbalance)
    if len(constraints) > 1:
        neighbours = graph_model(graph, direction)
        parts = repair(parts, k, weights, imbalance, neighbours.indptr, neighbours.indices)
    return parts


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
    """The parts after :func:`partition.refine.refine` on the hypergraph of M: (n,) int32.

    Parameters are those of :func:`partition.pipeline.add_partition`; ``effort`` and
    ``time_limit`` those of the refinement.
    """
    from partition.refine import refine  # the compiler behind it takes a second to import

    if k == 1:
        return parts
    model = hypergraph_model(graph, direction)
    weights = constraint_weights(graph, direction, parse_balance(balance))
    return refine(
        replace(model, weights=weights[0]),
        parts,
        k,
        imbalance=imbalance,
        objective=objective,
        seed=seed,
        effort=effort,
        time_limit=time_limit,
        extra_weights=weights[1:].T if len(weights) > 1 else None,
    )


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
    parts = parts.astype(np.int32)
    rows = np.bincount(parts, minlength=k)
    empty = np.flatnonzero(rows == 0)
    if 2 * len(empty) > k:
        raise UserError(
            f"{tool} returned only {k - len(empty)} of {k} parts",
            "choose a smaller k or another tool",
        )
    for part in empty:
        # The lightest vertex of the fullest part.
        donors = np.flatnonzero(parts == rows.argmax())
        parts[donors[weights[donors].argmin()]] = part
        rows = np.bincount(parts, minlength=k)
    return parts
