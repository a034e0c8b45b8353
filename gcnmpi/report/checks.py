"""Checks and how they are shown: a table on the standard output, or one JSON object."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from partition.errors import shown
from partition.terminal import console


@dataclass(frozen=True)
class Check:
    """One line of the table: it passes if ``measured`` ≤ ``tolerance``, so never as NaN."""

    name: str
    measured: float
    tolerance: float
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether the check passes."""
        return bool(self.measured <= self.tolerance)


def print_table(facts: Mapping[str, Any], checks: list[Check]) -> None:
    """Print what was run and a line for every check.

    Parameters
    ----------
    facts : mapping
        As ``gcnmpi verify --json`` gives them.
    """
    out = console()
    for line in _heading(facts):
        out.print(shown(line), markup=False, soft_wrap=True)
    table = Table("check", "measured", "at most", "", "", box=box.SIMPLE_HEAD)
    for check in checks:
        figures = (f"{check.measured:.3g}", f"{check.tolerance:.3g}")
        table.add_row(check.name, *figures, "ok" if check.ok else "MISS", escape(check.note))
    out.print(table)
    missed = sum(not check.ok for check in checks)
    print(f"{missed} of {len(checks)} checks MISSED" if missed else f"{len(checks)} checks passed")
    for warning in facts["machine"]:
        out.print(f"warning: {shown(warning)}", markup=False, soft_wrap=True)


def print_json(facts: Mapping[str, Any], checks: list[Check]) -> None:
    """Print one JSON object: the facts, ``checks`` and whether all are ``ok``."""
    lines = [asdict(check) | {"ok": check.ok} for check in checks]
    for line in lines:
        if not math.isfinite(line["measured"]):
            line["measured"] = None  # JSON has no infinity
    print(json.dumps({**facts, "checks": lines, "ok": all(check.ok for check in checks)}))


def _heading(facts: Mapping[str, Any]) -> list[str]:
    graph, model, train = (facts["config"][table] for table in ("graph", "model", "train"))
    partition = f"partition {facts['partition']}, " if facts["partition"] else ""
    options = ", ".join(f"{k} {v}" for k, v in facts["scheme"].items() if k != "name")
    return [
        f"{facts['graph']}: {partition}ranks {facts['ranks']}, direction {facts['direction']}, "
        f"normalize {graph['normalize']}",
        f"scheme {facts['scheme']['name']} ({options}), kernel {facts['kernel']}, "
        f"{facts['dtype']}, products {', '.join(facts['orders'])}",
        f"hidden {list(model['hidden'])}, dropout {model['dropout']}, input dropout "
        f"{model['input_dropout']}, {train['optimizer']}, {train['epochs']} epochs",
        *(f"warning: {warning}" for warning in facts["warnings"]),
    ]
