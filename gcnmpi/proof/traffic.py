"""Bytes and messages that a run counted against those that were predicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gcnmpi.proof.checks import Check

# Each predicted number, and the field of the record that counts it.
_COUNTED = {
    "bytes": "bytes_sent",
    "received": "bytes_received",
    "messages": "messages_sent",
    "shared": "shared_bytes",
}


def traffic_checks(end: Mapping[str, Any], run: str = "") -> Iterator[Check]:
    """The largest difference of a rank, from the last record of a run; ``run`` is its name."""
    for purpose, prefix in (("training", ""), ("evaluation", "eval_")):
        for what, counted in _COUNTED.items():
            sent, predicted = end[f"{prefix}{counted}"], end[f"{prefix}{what}_predicted"]
            errors = [abs(s - p) for s, p in zip(sent, predicted, strict=True)]
            yield Check(f"{run}{purpose} {what}", max(errors), 0, f"{sum(sent):,} by all ranks")
