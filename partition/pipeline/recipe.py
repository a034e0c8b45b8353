"""The demands on a partition, whatever makes it, and whether they can be met."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from partition.errors import UserError, check_name
from partition.graph.graph import Graph, row_sizes
from partition.graph.store import Manifest, StoredGraph
from partition.pipeline.balance import DEFAULT as DEFAULT_BALANCE
from partition.pipeline.balance import parse_balance

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
        What weighs: names in ``partition.pipeline.balance.CONSTRAINTS``, separated by commas; the
        default is the entries of M. Several are met at once as far as vertices can be moved to do
        so.
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
    if k < 1:
        raise UserError(f"k = {k}: a partition has at least one part")
    if k > max(manifest.n, 1):
        raise UserError(
            f"k = {k} parts, but {manifest.name} has {manifest.n} vertices",
            "a part has at least one vertex: choose a smaller k",
        )


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
    if not 0 <= seed < SEED_LIMIT:
        raise UserError(f"seed = {seed} is not in 0..{SEED_LIMIT - 1}")
