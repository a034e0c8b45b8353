"""Checks of a run against one serial process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """One check: it passes if ``measured`` ≤ ``tolerance``, so never as NaN."""

    name: str
    measured: float
    tolerance: float
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether the check passes."""
        return bool(self.measured <= self.tolerance)


@dataclass(frozen=True)
class Verified:
    """The facts of a run, as ``gcnmpi verify --json`` gives them, and its checks.

    On other ranks than 0 the facts are empty.
    """

    facts: Mapping[str, Any]
    checks: list[Check]

    @property
    def ok(self) -> bool:
        """Whether every check passes."""
        return all(check.ok for check in self.checks)
