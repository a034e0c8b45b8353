"""Links of a network, and how long messages take that share them: a fluid simulation.

All messages of a set begin together. At each moment their rates are max-min fair (Bertsekas and
Gallager 1992, Data Networks, section 6.5.2): no message can be faster without slowing down one that
is not faster itself. There are no packets, queues or latencies; memory is that of the messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

NEAR = 0.05  # links whose fair shares differ by less are filled together
AT_ONCE = 0.1  # the share of messages that end together
Links = np.ndarray
"""Numbers of the links that messages take, (messages, hops); 0: none."""


@dataclass(frozen=True)
class FatTree:
    """Nodes on switches, and these on a core that is never full.

    Attributes
    ----------
    nodes, a_switch : int
        How many there are, and on a switch.
    bandwidth : float
        Bytes per second of a node, in each direction.
    taper : float
        What the nodes of a switch have together, over what the switch has to the core.
    """

    nodes: int
    a_switch: int
    bandwidth: float
    taper: float = 1.0

    @cached_property
    def capacities(self) -> np.ndarray:
        """Bytes per second of each link: out of nodes, into nodes, out of switches, into these."""
        switches = -(-self.nodes // self.a_switch)
        up = self.a_switch * self.bandwidth / self.taper
        return np.repeat([np.inf, self.bandwidth, up], [1, 2 * self.nodes, 2 * switches])

    def links(self, source: np.ndarray, target: np.ndarray) -> Links:
        """Out of the node and the switch, into the other switch and node."""
        n, first = self.nodes, 1 + 2 * self.nodes
        switches = -(-n // self.a_switch)
        out, into = source // self.a_switch, target // self.a_switch
        away = out != into
        core = np.where(away, first + out, 0), np.where(away, first + switches + into, 0)
        return np.stack([1 + source, *core, 1 + n + target], axis=1)


@dataclass(frozen=True)
class Dragonfly:
    """Groups of nodes, each connected with each other one; groups themselves are never full.

    Attributes
    ----------
    nodes, a_group, groups : int
        Nodes that the job has, nodes of a group, groups of the whole machine.
    bandwidth : float
        Bytes per second of a node, in each direction.
    outside : float
        What leads out of a group, over what its nodes have together.
    spread : bool
        Whether messages go by a third group, any of the machine (Valiant's routing), or straight.
    """

    nodes: int
    a_group: int
    groups: int
    bandwidth: float
    outside: float
    spread: bool = False

    @cached_property
    def capacities(self) -> np.ndarray:
        """Out of nodes, into nodes; between each two groups, or out of groups and into these."""
        used = -(-self.nodes // self.a_group)
        leaving = self.a_group * self.bandwidth * self.outside
        if self.spread:  # each byte leaves a group twice
            counts, each = 2 * used, leaving / 2
        else:
            counts, each = used**2, leaving / max(1, self.groups - 1)
        return np.repeat([np.inf, self.bandwidth, each], [1, 2 * self.nodes, counts])

    def links(self, source: np.ndarray, target: np.ndarray) -> Links:
        """Out of the node, between groups, into the node."""
        n, used = self.nodes, -(-self.nodes // self.a_group)
        first, out, into = 1 + 2 * n, source // self.a_group, target // self.a_group
        away = out != into
        pair = (first + out, first + used + into) if self.spread else (first + out * used + into,)
        between = [np.where(away, one, 0) for one in pair]
        return np.stack([1 + source, *between, 1 + n + target], axis=1)


Network = FatTree | Dragonfly


def fair_rates(links: Links, capacities: np.ndarray) -> np.ndarray:
    """Bytes per second of each message, max-min fair: link by link, the fullest first.

    >>> fair_rates(np.array([[1, 0], [1, 2], [2, 0]]), np.array([np.inf, 2.0, 4.0])).tolist()
    [1.0, 1.0, 3.0]
    """
    left, rates = capacities.astype(float), np.zeros(len(links))
    open_ = np.arange(len(links))
    while len(open_):
        taken = links[open_]
        count = np.bincount(taken.ravel(), minlength=len(left))
        share = np.full(len(left), np.inf)
        np.divide(left, count, out=share, where=count > 0)
        lowest = share[taken].min(axis=1)
        filled = lowest <= share.min() * (1 + NEAR)
        rates[open_[filled]] = lowest[filled]
        used = np.repeat(lowest[filled], links.shape[1])
        left -= np.bincount(taken[filled].ravel(), weights=used, minlength=len(left))
        left[0], open_ = np.inf, open_[~filled]
    return rates


def fluid_seconds(nbytes: np.ndarray, links: Links, capacities: np.ndarray) -> float:
    """Seconds until all messages have arrived, which begin together.

    Rates are found again when a tenth of the messages has ended, of less than twenty each time.
    """
    some = nbytes > 0
    rest, links, seconds = nbytes[some].astype(float), links[some], 0.0
    while len(rest):
        ends = rest / fair_rates(links, capacities)
        last = max(0, int(AT_ONCE * len(rest)) - 1)
        until = float(np.partition(ends, last)[last])
        rest, going = rest * (1 - until / ends), ends > until
        rest, links, seconds = rest[going], links[going], seconds + until
    return seconds


def networks_of(facts: Mapping[str, Any], nodes: int, bandwidth: float) -> list[Network]:
    """The network that a machine's file describes for so many nodes: a tree, or both routings."""
    if "a_switch" in facts:
        return [FatTree(nodes, int(facts["a_switch"]), bandwidth, facts["taper"])]
    group, groups = int(facts["a_group"]), int(facts["groups"])
    return [
        Dragonfly(nodes, group, groups, bandwidth, facts["outside"], spread)
        for spread in (False, True)
    ]
