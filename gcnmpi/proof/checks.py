"""Checks of a run against one serial process, and those of the bytes that it counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


# Each predicted number, and the field of the record that counts it.
_COUNTED = {
    "bytes": "bytes_sent",
    "received": "bytes_received",
    "messages": "messages_sent",
    "shared": "shared_bytes",
}


def traffic_checks(end: Mapping[str, Any], run: str = "") -> Iterator[Check]:
    """Counted against predicted: the largest difference of a rank, from a run's last record.

    ``run`` is the name of the run in those of the checks.
    """
    for purpose, prefix in (("training", ""), ("evaluation", "eval_")):
        for what, counted in _COUNTED.items():
            sent, predicted = end[f"{prefix}{counted}"], end[f"{prefix}{what}_predicted"]
            errors = [abs(s - p) for s, p in zip(sent, predicted, strict=True)]
            yield Check(f"{run}{purpose} {what}", max(errors), 0, f"{sum(sent):,} by all ranks")
