"""The demands on a partition: what weighs, how evenly, for which nodes; and repair of the balance.

The tools here take one weight per vertex (METIS takes several, its Python wrapper does not). For
several constraints they get the sum of the weights, each relative to its mean, and what is still
out of balance afterwards is repaired by moving vertices. ``export-model`` writes all weights for
tools that take several.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from partition.errors import UserError, check_name, require
from partition.graph.graph import Graph, row_sizes, training_rows
from partition.graph.metrics import Metrics
from partition.graph.sampling import segments
from partition.graph.store import Manifest, StoredGraph

CONSTRAINTS = {
    "nnz": "entries of M in the rows of a part, for sparse products",
    "rows": "rows of a part, for memory and dense products",
    "work": "entries plus 32 per row, for the time of an epoch",
    "train": "training vertices of a part, for mini-batches",
    "types": "vertices of each type in a part, each for itself, for the memory of their features",
}
_OF_TYPE = "type:"  # begins the name of the constraint of one type
DEFAULT_BALANCE = "nnz"
ENTRIES = ("nnz", "work")  # those that entries are part of
# What dense products, loss and element-wise work cost a row of M, counted in entries that are
# multiplied: 13 to 36 at three layers of 16, more where layers are wide (one core with AVX2).
ROW_WORK = 32
_MAX_ROUNDS, _MAX_SWAP_ROUNDS = 100, 20
# Moves looked at in one round; bounds its time and memory.
_MAX_CANDIDATES = 1 << 20
_MAX_WALKED = 1 << 17
# Swaps: how many parts are tried for a partner, and how many vertices of each part.
_MAX_PARTNERS, _MAX_PAIRED = 4, 256
# Of the sum of several weights: tools count in 32 bits.
_WEIGHT_LIMIT = 2**31 - 1
USUAL_IMBALANCE = 0.01
NODES_FIRST = "nodes-first"
MAPPINGS = (NODES_FIRST, "flat")
SEED_LIMIT = 2**31


@dataclass(frozen=True)
class Recipe:
    """The demands on a partition, whatever makes it.

    Attributes
    ----------
    imbalance : float
        What the heaviest part may weigh above the average one, as a fraction of it. Ignored by
        models that do not balance.
    seed : int
    direction : {"in", "out"}
        The direction of M.
    balance : str
        What weighs: names in ``CONSTRAINTS``, separated by commas; the default is the entries of
        M. Several are met at once as far as vertices can be moved to do so.
    ranks_per_node : int, optional
        R: parts b·R … b·R+R−1 will share node b, and little is to travel between nodes. Traffic
        between nodes is measured too.
    mapping : {"nodes-first", "flat"}
        With ``ranks_per_node``: partition into nodes first, then each node into its parts; or
        into parts at once. In both cases, and where nodes-first is not possible because R does
        not divide k, parts are then renumbered so that those that exchange most share a node.
    """

    imbalance: float = USUAL_IMBALANCE
    seed: int = 0
    direction: str = "in"
    balance: str = DEFAULT_BALANCE
    ranks_per_node: int | None = None
    mapping: str = NODES_FIRST

    @property
    def constraints(self) -> tuple[str, ...]:
        """The names in ``balance``; a UserError if one is unknown."""
        return parse_balance(self.balance)

    @property
    def ending(self) -> str:
        """The ending of default names of partitions, where not all of it is as usual."""
        of_nodes = "" if self.ranks_per_node is None else f"-{self.ranks_per_node}pernode"
        return name_of_numbers(self.imbalance, self.seed) + of_nodes

    def check(self, stored: StoredGraph, k: int) -> None:
        """A UserError unless the graph can have such a partition into k parts."""
        check_parts_wanted(k, stored.manifest)
        check_imbalance(self.imbalance, stored.merged, k, self.direction)
        check_seed(self.seed)
        if self.ranks_per_node is not None and self.ranks_per_node < 1:
            raise UserError(f"ranks per node = {self.ranks_per_node}: a node runs at least one")
        check_name("mapping", self.mapping, MAPPINGS)

    def record(self) -> dict[str, object]:
        """The demands that the options of a stored partition keep."""
        facts: dict[str, object] = {}
        if self.balance != DEFAULT_BALANCE:
            facts["balance"] = self.balance
        if self.ranks_per_node is not None:
            facts |= {"ranks_per_node": self.ranks_per_node, "mapping": self.mapping}
        return facts


def recipe_of(stored: StoredGraph, options: dict[str, Any]) -> Recipe:
    """The recipe among options, which are taken out of them; the direction is the graph's own."""
    names = [entry.name for entry in fields(Recipe)]
    given = {name: options.pop(name) for name in names if name in options}
    given["direction"] = stored.direction(given.get("direction"))
    return Recipe(**given)


def name_of_numbers(imbalance: float, seed: int) -> str:
    """The ending of default names for a seed and an imbalance that are not the usual ones.

    >>> name_of_numbers(0.01, 0), name_of_numbers(0.03, 1)
    ('', '-s1-e0.03')
    """
    of_imbalance = "" if imbalance == USUAL_IMBALANCE else f"-e{imbalance:g}"
    return (f"-s{seed}" if seed else "") + of_imbalance


def check_parts_wanted(k: int, manifest: Manifest) -> None:
    """A UserError unless 1 ≤ k ≤ n."""
    require(k >= 1, f"k = {k}: a partition has at least one part")
    if k > max(manifest.n, 1):
        what = f"k = {k} parts, but {manifest.name} has {manifest.n} vertices"
        raise UserError(what, "a part has at least one vertex: choose a smaller k")


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
        what = f"imbalance = {imbalance:g}: a part could weigh {1 + imbalance:g} times the average"
        raise UserError(what, f"it is a fraction: {imbalance / 100:g} for {imbalance:g} percent")


def check_seed(seed: int) -> None:
    """A UserError unless it is in range."""
    require(0 <= seed < SEED_LIMIT, f"seed = {seed} is not in 0..{SEED_LIMIT - 1}")


def parse_balance(text: str) -> tuple[str, ...]:
    """Names of constraints from "nnz,rows", all known."""
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for name in names:
        check_name("constraint of the balance", name, CONSTRAINTS)
    return names


def single_constraints(graph: Graph, names: tuple[str, ...]) -> tuple[str, ...]:
    """The constraints of one weight each: "types" is one for each type that has vertices.

    A UserError if there are no types.
    """
    types = [] if graph.vertex_types is None else graph.vertex_types.counts.items()
    require("types" not in names or bool(types), "balance by types: the graph has no vertex types")
    every = [_OF_TYPE + name for name, n in types if n]
    return tuple(each for name in names for each in (every if name == "types" else [name]))


def constraint_weights(graph: Graph, direction: str, names: tuple[str, ...]) -> np.ndarray:
    """The weight of each vertex under each constraint: (constraints, n) int64.

    A row for each of :func:`single_constraints`.
    """
    names = single_constraints(graph, names)
    weights = np.ones((len(names), graph.n), np.int64)
    for i, name in enumerate(names):
        if name == "nnz":
            weights[i] = row_sizes(graph, direction)
        elif name == "work":
            weights[i] = row_sizes(graph, direction) + ROW_WORK
        elif name == "train":
            train = training_rows(graph)
            if train is None or not train.any():
                hint = "import it with --labels, and with --train-mask where not all train"
                raise UserError("balance by training vertices: the graph has none", hint)
            weights[i] = train
        elif graph.vertex_types is not None and name.startswith(_OF_TYPE):
            own = graph.vertex_types.range(name.removeprefix(_OF_TYPE))
            weights[i] = 0
            weights[i, own.start : own.stop] = 1
    return weights


def part_loads(metrics: Metrics, name: str) -> list[int]:
    """The weight of each part under a constraint; empty for "train" without such vertices."""
    both = zip(metrics.work, metrics.rows, strict=True)
    loads = {"nnz": metrics.work, "rows": metrics.rows, "train": metrics.train or []}
    loads["work"] = [nnz + ROW_WORK * rows for nnz, rows in both]
    loads |= {_OF_TYPE + kind: counts for kind, counts in (metrics.types or {}).items()}
    return loads.get(name, [])


def single_weight(weights: np.ndarray) -> np.ndarray:
    """One weight per vertex for tools that take one, (n,) int64: the sum, each over its mean."""
    if len(weights) == 1:
        return weights[0]
    n = weights.shape[1]
    means = np.maximum(weights.mean(axis=1), 1 / max(n, 1))
    scale = max(1.0, min(1000.0, _WEIGHT_LIMIT / (4 * len(weights) * max(n, 1))))
    total = np.round((weights / means[:, np.newaxis]).sum(axis=0) * scale).astype(np.int64)
    return np.maximum(total, 1)


def limits(weights: np.ndarray, k: int, imbalance: float) -> np.ndarray:
    """The most that a part may weigh under each constraint: never less than one vertex."""
    average = weights.sum(axis=1) / k
    aim = np.maximum(np.floor((1 + imbalance) * average), np.ceil(average))
    return np.maximum(aim, weights.max(axis=1))


def repair(
    parts: np.ndarray, k: int, weights: np.ndarray, imbalance: float, *pattern: np.ndarray
) -> np.ndarray:
    """Move vertices out of parts that weigh too much, at little loss: greedy, in rounds.

    The excess is what parts weigh above :func:`limits`, relative to the average part, summed over
    parts and constraints. In a round every vertex of a part in excess may go to a part of a
    neighbour, or to one with room; moves are tried in the order of neighbours lost per excess
    relieved, and made if the excess falls. Where none helps, a vertex of a part in excess and one
    of another part change places. So the excess never rises, and it ends; where that does not
    reach the limits, the rest is in the metrics. The ``pattern``, indptr and indices, is the
    symmetrised graph of :func:`partition.models.descriptions.graph_model`. No part is emptied.
    """
    average = np.maximum(weights.sum(axis=1) / k, 1.0)
    loads = np.array([np.bincount(parts, weights=row, minlength=k) for row in weights])
    limit = limits(weights, k, imbalance)
    state, swaps, rounds = _State(parts.copy(), weights, loads, limit, average, *pattern), 0, 0
    while state.over.any() and rounds < _MAX_ROUNDS:
        rounds += 1
        if not state.walk(*state.candidates()):
            swaps += 1
            if swaps > _MAX_SWAP_ROUNDS or not state.swap():
                break
    return state.parts


@dataclass(frozen=True)
class _State:
    """A partition that is repaired: the arrays of :func:`repair`, and loads of the parts."""

    parts: np.ndarray
    weights: np.ndarray
    loads: np.ndarray
    limit: np.ndarray
    average: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray

    @property
    def over(self) -> np.ndarray:
        """Which parts weigh too much, under which constraint."""
        return self.loads > self.limit[:, np.newaxis]

    def _excesses(
        self, here: np.ndarray | int, there: np.ndarray | int, shifts: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
        """The excess of two parts before weights, ``shifts``, go from one to the other, and after.

        Of each constraint, with the average part.
        """
        of_each = zip(self.loads, self.limit, self.average, shifts, strict=True)
        for load, most, scale, shift in of_each:
            a, b = load[here], load[there]
            before = np.maximum(a - most, 0) + np.maximum(b - most, 0)
            after = np.maximum(a - shift - most, 0) + np.maximum(b + shift - most, 0)
            yield before, after, scale

    def candidates(self) -> tuple[np.ndarray, np.ndarray]:
        """Moves (vertex, part) that lower the excess as the loads are, the cheapest first."""
        parts, k = self.parts, self.loads.shape[1]
        vertices = np.flatnonzero(np.asarray(self.over.any(axis=0))[parts])
        if len(vertices) > _MAX_CANDIDATES:
            vertices = vertices[:: -(-len(vertices) // _MAX_CANDIDATES)]
        # Neighbours in every part that has one; and one part with room for each vertex, in turn.
        place, counts = segments(self.indptr, vertices)
        number = np.repeat(np.arange(len(vertices)), counts)
        keys, common = np.unique(number * k + parts[self.indices[place]], return_counts=True)
        number, target = np.divmod(keys, k)
        mine = target == parts[vertices[number]]
        own = np.bincount(number[mine], weights=common[mine], minlength=len(vertices))
        room = ((self.limit[:, np.newaxis] - self.loads) / self.average[:, np.newaxis]).min(axis=0)
        roomy = np.argsort(-room, kind="stable")[: max(1, np.count_nonzero(room > 0))]
        number = np.concatenate([number[~mine], np.arange(len(vertices))])
        target = np.concatenate([target[~mine], np.resize(roomy, len(vertices))])
        gain = np.concatenate([common[~mine], np.zeros(len(vertices))]) - own[number]
        vertex = vertices[number]

        excesses = self._excesses(parts[vertex], target, self.weights[:, vertex])
        relief = sum(((before - after) / scale for before, after, scale in excesses), np.zeros(1))
        useful = np.flatnonzero((relief > 1e-12) & (target != parts[vertex]))
        order = useful[np.argsort(-gain[useful] / relief[useful], kind="stable")][:_MAX_WALKED]
        return vertex[order], target[order]

    def walk(self, vertices: np.ndarray, targets: np.ndarray) -> int:
        """Make those of the moves that still lower the excess; how many."""
        made = 0
        bounds, scales = self.limit.tolist(), self.average.tolist()
        now = self.loads.tolist()
        columns = self.weights[:, vertices].T.tolist()
        sources = self.parts[vertices].tolist()
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
                self.parts[v] = target
                moved.add(v)
                made += 1
        self.loads[:] = now
        return made

    def swap(self) -> int:
        """Let pairs of vertices change places where the excess falls by it; how many pairs."""
        made, parts, k = 0, self.parts, self.loads.shape[1]
        order = np.argsort(parts, kind="stable")
        starts = np.searchsorted(parts[order], np.arange(k + 1))

        def members(part: int) -> np.ndarray:
            found = order[starts[part] : starts[part + 1]]
            return found[parts[found] == part]  # without those that left meanwhile

        for c, source in np.argwhere(self.over):
            for target in np.argsort(self.loads[c], kind="stable")[:_MAX_PARTNERS]:
                if target == source or self.loads[c, source] <= self.limit[c]:
                    continue
                ours = _spread_by(self.weights[c], members(source))
                theirs = _spread_by(self.weights[c], members(target))
                if not len(ours) or not len(theirs):  # all of them have changed places already
                    continue
                shifts = self.weights[:, ours, np.newaxis] - self.weights[:, np.newaxis, theirs]
                relief = np.zeros((len(ours), len(theirs)))
                for before, after, scale in self._excesses(source, target, shifts):
                    relief += before / scale
                    relief -= after / scale
                lost = [
                    self._neighbours_in(v, here) - self._neighbours_in(v, there)
                    for v, here, there in ((ours, source, target), (theirs, target, source))
                ]
                loss = lost[0][:, np.newaxis] + lost[1]
                price = (loss - loss.min() + 1) / np.maximum(relief, 1e-12)
                price[relief <= 1e-12] = np.inf
                i, j = np.unravel_index(int(price.argmin()), price.shape)
                if price[i, j] == np.inf:
                    continue
                v, u = ours[i], theirs[j]
                self.loads[:, source] -= shifts[:, i, j]
                self.loads[:, target] += shifts[:, i, j]
                parts[v], parts[u] = target, source
                made += 1
        return made

    def _neighbours_in(self, vertices: np.ndarray, part: int) -> np.ndarray:
        place, counts = segments(self.indptr, vertices)
        there = self.parts[self.indices[place]] == part
        number = np.repeat(np.arange(len(vertices)), counts)
        return np.bincount(number[there], minlength=len(vertices))


def _spread_by(weight: np.ndarray, vertices: np.ndarray) -> np.ndarray:
    """Some of the vertices, of all weights."""
    order = vertices[np.argsort(weight[vertices], kind="stable")]
    count = min(len(order), _MAX_PAIRED)
    return order[np.linspace(0, len(order) - 1, count).astype(np.int64)]
