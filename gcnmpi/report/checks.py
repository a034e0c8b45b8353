"""Tables of checks: of verify, and of the doctor."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table

from gcnmpi.report.progress import print_rows
from partition.errors import shown
from partition.terminal import console

if TYPE_CHECKING:  # neither command needs what the other does
    from gcnmpi.cluster.doctor import Diagnosis
    from gcnmpi.proof.verify import Verified


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


def print_diagnosis(found: Diagnosis) -> None:
    """Print the ranks, the links, and the findings."""
    first = found.ranks[0]
    print(f"{len(found.ranks)} ranks, {first.mpi}, gcnmpi {first.gcnmpi}")
    print_rows(("rank", "host", "cores", "GPUs", "free memory"), (), (
        (str(seat.rank), seat.host, _ranges(seat.cores), ", ".join(seat.gpus) or "-",
         f"{seat.free_memory / 2**30:.1f} GiB")
        for seat in found.ranks
    ))  # fmt: skip
    if found.links:
        print_rows(("from", "to", "one way", "MB/s"), (), (
            (*(f"{host} (rank {rank})" for host, rank in zip(link.hosts, link.ranks, strict=True)),
             f"{link.seconds * 1e6:.1f} µs", f"{link.rate / 1e6:.0f}")
            for link in found.links
        ))  # fmt: skip
    for finding in found.findings:
        print(f"{'PROBLEM' if finding.problem else 'advice'}: {finding.text}")
        print(f"  hint: {finding.advice}")
    problems = sum(finding.problem for finding in found.findings)
    print(f"{problems} problem{'s' * (problems != 1)}" if problems else "no problems")


def _ranges(numbers: Sequence[int]) -> str:
    """Increasing numbers in short: "0-3,8"."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
