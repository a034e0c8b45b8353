"""How the checks of a run are shown: a table on the standard output, or one JSON object."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from gcnmpi.proof.checks import Verified
from partition.errors import shown
from partition.terminal import console


def print_checks(found: Verified, as_json: bool = False) -> None:
    """Print what was run and a line for every check, or one JSON object of it all."""
    (_print_json if as_json else _print_table)(found)


def _print_table(found: Verified) -> None:
    facts, checks, out = found.facts, found.checks, console()
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


def _print_json(found: Verified) -> None:
    lines = [asdict(check) | {"ok": check.ok} for check in found.checks]
    for line in lines:
        if not math.isfinite(line["measured"]):
            line["measured"] = None  # JSON has no infinity
    print(json.dumps({**found.facts, "checks": lines, "ok": found.ok}))


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
