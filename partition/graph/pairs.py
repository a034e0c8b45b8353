"""Two partitions with one name: NAME-rows is for the exchange of rows, NAME-mixed for mixed ones.

``--model auto`` makes both. Commands take NAME for either: each uses the one that suits its work.
If a partition is called NAME itself, NAME stands for it.
"""

from __future__ import annotations

import os

from partition.graph.manifest import EXCHANGES
from partition.graph.store import has_partition, list_partitions


def pair_names(name: str) -> dict[str, str]:
    """The names of the two partitions of a pair, by exchange.

    >>> pair_names("auto-4")
    {'rows': 'auto-4-rows', 'mixed': 'auto-4-mixed'}
    """
    return {exchange: f"{name}-{exchange}" for exchange in EXCHANGES}


def members(path: str | os.PathLike[str], name: str) -> list[str]:
    """The partitions of a graph folder that a name stands for: one, or those of a pair, rows first.

    The name itself where it stands for none: who reads it says so.
    """
    if has_partition(path, name):
        return [name]
    there = set(list_partitions(path))
    return [member for member in pair_names(name).values() if member in there] or [name]


def member(path: str | os.PathLike[str], name: str, exchange: str = "rows") -> str:
    """The partition that a name stands for in an exchange; the other one if it is the only one."""
    found = members(path, name)
    wanted = pair_names(name)[exchange]
    return wanted if wanted in found else found[0]
