"""The key ``train.memory``: where a program's values are until the backward pass reads them.

A **residence** is one of three: a value is kept in memory, made again, or written to a file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace

KEPT, STATES, LEAST = "all", "states:", "least"
"""Words of ``train.memory``; a number follows the second one."""
ALAYER = re.compile(r"states:([1-9]\d*)")
FIRST = re.compile(r"first:([1-9]\d*)")
LISTED = {name: re.compile(rf"{name}:(\d+(?:,\d+)*)") for name in ("again", "written")}


@dataclass(frozen=True)
class Residences:
    """The values of a program that are not kept, by their numbers in ``gcnmpi info --program``.

    Attributes
    ----------
    every : int
        Rows of arcs are made again, and states of arcs kept after so many layers each; 0: kept.
    again : frozenset of int
        Values that are made again.
    written : frozenset of int
        Values that are written to a file.
    first : int
        Rows of a rank that are kept nevertheless, the first ones, of values that are made again
        block by block.
    """

    every: int = 0
    again: frozenset[int] = frozenset()
    written: frozenset[int] = frozenset()
    first: int = 0

    @classmethod
    def told(cls, memory: str) -> Residences | None:
        """The residences that a value of ``train.memory`` says; None: it needs a forecast.

        >>> Residences.told("least again:4,7 written:1").written
        frozenset({1})
        >>> Residences.told("8GB") is None
        True
        """
        found = cls()
        for word in memory.split():
            lists = {name: match for name in LISTED if (match := LISTED[name].fullmatch(word))}
            if layers := ALAYER.fullmatch(word):
                found = replace(found, every=int(layers[1]))
            elif word == LEAST:
                found = replace(found, every=sys.maxsize)
            elif rows := FIRST.fullmatch(word):
                found = replace(found, first=int(rows[1]))
            elif "again" in lists:
                found = replace(found, again=_numbers(lists["again"][1]))
            elif "written" in lists:
                found = replace(found, written=_numbers(lists["written"][1]))
            elif word != KEPT:
                return None
        return found if memory.split() else None

    def __str__(self) -> str:
        """The same as a value of ``train.memory``.

        >>> str(Residences(2, frozenset({7, 4}), first=65536))
        'states:2 again:4,7 first:65536'
        """
        words = []
        if self.every:
            words.append(LEAST if self.every == sys.maxsize else f"{STATES}{self.every}")
        for name in LISTED:
            if values := getattr(self, name):
                words.append(f"{name}:{_joined(values)}")
        words += [f"first:{self.first}"] if self.first else []
        return " ".join(words) or KEPT


def _numbers(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split(",")))


def _joined(values: Iterable[int]) -> str:
    return ",".join(map(str, sorted(values)))
