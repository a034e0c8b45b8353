"""What parts are balanced by: entries of M, rows, training vertices, or several of them at once.

The tools here take one weight per vertex (METIS takes several, its Python wrapper does not). For
several constraints they get the sum of the weights, each relative to its mean, and what is still
out of balance afterwards is repaired by moving vertices. ``export-model`` writes all weights for
tools that take several.
"""

from __future__ import annotations

import numpy as np

from partition.errors import UserError, unknown_name
from partition.graph import Graph, row_sizes, training_vertices
from partition.sampling import segments

CONSTRAINTS = {
    "nnz": "the entries of a part's rows of M: its arithmetic",
    "rows": "its rows: its memory, and the dense products",
    "train": "its training vertices: what it computes of a mini-batch",
}
DEFAULT = "nnz"
MAX_ROUNDS = 100
# Moves looked at in one round; bounds its time and memory.
MAX_CANDIDATES = 1 << 20
MAX_WALKED = 1 << 17
# Of the sum of several weights: tools count in 32 bits.
WEIGHT_LIMIT = 2**31 - 1


def parse_balance(text: str) -> tuple[str, ...]:
    """Names of constraints from "nnz,rows".

    Raises
    ------
    UserError
        If one is unknown or there is none.
    """
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for name in names:
        if name not in CONSTRAINTS:
            raise unknown_name("constraint of the balance", name, CONSTRAINTS)
    return names


def constraint_weights(graph: Graph, direction: str, names: tuple[str, ...]) -> np.ndarray:
    """What each vertex weighs under each constraint: (constraints, n) int64.

    Raises
    ------
    UserError
        For "train", if the graph has no training vertices.
    """
    weights = np.ones((len(names), graph.n), np.int64)
    for i, name in enumerate(names):
        if name == "nnz":
            weights[i] = row_sizes(graph, direction)
        elif name == "train":
            train = training_vertices(graph)
            if train is None or not train.any():
                raise UserError(
                    "balance by training vertices: the graph has none",
                    "import it with --labels, and with --train-mask where not all train",
                )
            weights[i] = train
    return weights


def single_weight(weights: np.ndarray) -> np.ndarray:
    """One weight per vertex for tools that take one, (n,) int64: the sum, each over its mean."""
    if len(weights) == 1:
        return weights[0]
    n = weights.shape[1]
    means = np.maximum(weights.mean(axis=1), 1 / max(n, 1))
    scale = max(1.0, min(1000.0, WEIGHT_LIMIT / (4 * len(weights) * max(n, 1))))
    total = np.round((weights / means[:, np.newaxis]).sum(axis=0) * scale).astype(np.int64)
    return np.maximum(total, 1)


def limits(weights: np.ndarray, k: int, imbalance: float) -> np.ndarray:
    """What a part may weigh under each constraint, (constraints,): never less than one vertex."""
    average = weights.sum(axis=1) / k
    return np.maximum(
        np.maximum(np.floor((1 + imbalance) * average), np.ceil(average)), weights.max(axis=1)
    )


def repair(
    parts: np.ndarray,
    k: int,
    weights: np.ndarray,
    imbalance: float,
    indptr: np.ndarray,
    indices: np.ndarray,
) -> np.ndarray:
    """Move vertices out of parts that weigh too much, at little loss: greedy, in rounds.

    The excess is what parts weigh above :func:`limits`, relative to the average part, summed over
    parts and constraints. In a round every vertex of a part in excess may go to a part of a
    neighbour, or to one with room; moves are tried in the order of neighbours lost per excess
    relieved, and made if the excess falls. So it never rises, and it ends; where moves of single
    vertices cannot reach the limits, what remains is in the metrics.

    Parameters
    ----------
    parts : (n,) int32
    weights : (constraints, n) int64
    indptr, indices
        Neighbours of each vertex: a symmetrised graph, as of ``partition.models.graph_model``.

    Returns
    -------
    (n,) int32
        No part is emptied.
    """
    parts = parts.copy()
    limit = limits(weights, k, imbalance)
    average = np.maximum(weights.sum(axis=1) / k, 1.0)
    loads = np.array([np.bincount(parts, weights=row, minlength=k) for row in weights])
    for _ in range(MAX_ROUNDS):
        over = loads > limit[:, np.newaxis]
        if not over.any():
            break
        vertices, targets = _candidates(parts, k, weights, loads, limit, average, indptr, indices)
        if not _walk(vertices, targets, parts, weights, loads, limit, average):
            break
    return parts


def _candidates(
    parts: np.ndarray, k: int, weights: np.ndarray, loads: np.ndarray, limit: np.ndarray,
    average: np.ndarray, indptr: np.ndarray, indices: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Moves (vertex, part) that lower the excess as the loads are, the cheapest first."""
    over = loads > limit[:, np.newaxis]
    vertices = np.flatnonzero(over.any(axis=0)[parts])
    if len(vertices) > MAX_CANDIDATES:
        vertices = vertices[:: -(-len(vertices) // MAX_CANDIDATES)]
    # Neighbours in every part that has one; and one part with room for each vertex, in turn.
    place, counts = segments(indptr, vertices)
    number = np.repeat(np.arange(len(vertices)), counts)
    keys, common = np.unique(number * k + parts[indices[place]], return_counts=True)
    number, target = np.divmod(keys, k)
    mine = target == parts[vertices[number]]
    own = np.bincount(number[mine], weights=common[mine], minlength=len(vertices))
    room = ((limit[:, np.newaxis] - loads) / average[:, np.newaxis]).min(axis=0)
    roomy = np.argsort(-room, kind="stable")[: max(1, np.count_nonzero(room > 0))]
    number = np.concatenate([number[~mine], np.arange(len(vertices))])
    target = np.concatenate([target[~mine], np.resize(roomy, len(vertices))])
    gain = np.concatenate([common[~mine], np.zeros(len(vertices))]) - own[number]
    vertex = vertices[number]

    relief = -_change(vertex, target, parts, weights, loads, limit, average)
    useful = np.flatnonzero((relief > 1e-12) & (target != parts[vertex]))
    order = useful[np.argsort(-gain[useful] / relief[useful], kind="stable")][:MAX_WALKED]
    return vertex[order], target[order]


def _walk(
    vertices: np.ndarray, targets: np.ndarray, parts: np.ndarray, weights: np.ndarray,
    loads: np.ndarray, limit: np.ndarray, average: np.ndarray,
) -> int:  # fmt: skip
    """Make those of the moves that still lower the excess; how many."""
    made = 0
    bounds, scales = limit.tolist(), average.tolist()
    now = loads.tolist()
    columns = weights[:, vertices].T.tolist()
    sources = parts[vertices].tolist()
    moved = set()
    for v, source, target, weight in zip(
        vertices.tolist(), sources, targets.tolist(), columns, strict=True
    ):
        if v in moved:
            continue
        change = 0.0
        for c, w in enumerate(weight):
            a, b, most = now[c][source], now[c][target], bounds[c]
            before = max(a - most, 0.0) + max(b - most, 0.0)
            after = max(a - w - most, 0.0) + max(b + w - most, 0.0)
            change += (after - before) / scales[c]
        if change < -1e-12:
            for c, w in enumerate(weight):
                now[c][source] -= w
                now[c][target] += w
            parts[v] = target
            moved.add(v)
            made += 1
    loads[:] = now
    return made


def _change(
    vertex: np.ndarray, target: np.ndarray, parts: np.ndarray, weights: np.ndarray,
    loads: np.ndarray, limit: np.ndarray, average: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """What each move alone would add to the excess."""
    change = np.zeros(len(vertex))
    for row, load, most, scale in zip(weights, loads, limit, average, strict=True):
        w, source = row[vertex], load[parts[vertex]]
        fall = np.maximum(source - most, 0) - np.maximum(source - w - most, 0)
        rise = np.maximum(load[target] + w - most, 0) - np.maximum(load[target] - most, 0)
        change += (rise - fall) / scale
    return change
