"""Tables of the cost model's predictions, and of measurements compared with them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from gcnmpi.options.config import Config
from gcnmpi.options.kernel import resolve
from gcnmpi.planner.groups import Division
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.ranking import Ranked, Setting, Skipped
from gcnmpi.report.progress import print_rows
from partition.errors import shown
from partition.terminal import console, print_wide

WIDTH = 80


def print_plan(
    setting: Setting,
    ranks: int,
    machine: Mapping[str, object],
    ranked: Sequence[Ranked],
    skipped: Sequence[Skipped],
    *,
    as_json: bool,
    top: int | None = None,
) -> None:
    """Print one line a candidate, the fastest first and at most ``top``, or one JSON object.

    ``machine`` holds the contents of the machine's file; empty for the default constants.
    """
    facts = _facts(setting, ranks, machine)
    if as_json:
        plans = [_plan_line(line) for line in ranked[:top]]
        print(json.dumps({**facts, "plans": plans, "skipped": [asdict(s) for s in skipped]}))
        return
    _print_facts(setting, ranks, machine, facts)
    drawn = facts["batches"]
    seconds = ("s/epoch", "of it\ndrawing", "s/eval.") if drawn else ("s/epoch",)
    advice: dict[str, list[str]] = {}
    rows = []
    for line in ranked[:top]:
        cost, candidate = line.cost, line.candidate
        what = _short(candidate.scheme.name, candidate.options)
        partition = candidate.partition.name if candidate.partition else "-"
        times = (cost.seconds, cost.phases.get("sample", 0.0), cost.evaluation)
        rows.append((
            what, f"({partition}, {candidate.parts})" if candidate.estimated else partition,
            *(f"{time:.3g}" for time in times[: len(seconds)]),
            f"{cost.received / 1e6:.3g}", f"{cost.messages:,}",
            f"{cost.memory / 1e9:.3g}" + ("!" if line.advice else ""),
        ))  # fmt: skip
        if line.advice:
            advice.setdefault(line.advice, []).append(what)
    heads = (*seconds, "MB\nreceived", "messages", "GB a\nrank")
    _print_narrow({"scheme": "fold", "partition": "fold"}, heads, rows)
    for text, variants in advice.items():
        print(textwrap.fill(f"! {text}: {', '.join(dict.fromkeys(variants))}", WIDTH))
    if any(line.candidate.estimated for line in ranked[:top]):
        text = "(random rows, k): no partition into k parts in the folder; others send less"
        print(textwrap.fill(text, WIDTH))
    for skip in skipped:
        text = f"not {_variant(skip.scheme, skip.options)}: {skip.reason}"
        print(textwrap.fill(text, WIDTH, break_long_words=False, subsequent_indent="  "))


def print_groups(
    setting: Setting,
    ranks: int,
    machine: Mapping[str, object],
    divisions: Sequence[Division],
    *,
    as_json: bool,
    top: int | None = None,
) -> None:
    """Print one line a division into groups, the fastest first, or one JSON object."""
    facts = _facts(setting, ranks, machine)
    if as_json:
        print(json.dumps({**facts, "groups": [one.record() for one in divisions[:top]]}))
        return
    _print_facts(setting, ranks, machine, facts)
    heads = ("ms a\nbatch", "ms a sum\nof all", "updates", "s/epoch", "GB a\nrank")
    rows = [
        (
            _short(one.group.candidate.scheme.name, one.group.candidate.options),
            f"{one.groups:,}", f"{one.group.size:,}",
            f"{1e3 * one.group.batch:.3g}", f"{1e3 * one.reduce:.3g}", f"{one.updates:,}",
            f"{one.seconds:.3g}", f"{one.group.memory / 1e9:.3g}",
        )
        for one in divisions[:top]
    ]  # fmt: skip
    _print_narrow({"scheme": "ellipsis"}, ("groups", "ranks\nof one", *heads), rows)


def _print_narrow(
    texts: Mapping[str, Any], numbers: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Print a table of columns of texts, with what happens to long ones, and of numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for title, overflow in texts.items():
        table.add_column(title, overflow=overflow, no_wrap=overflow != "fold")
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console(width=WIDTH, markup=False).print(table)


def _plan_line(line: Ranked) -> dict[str, object]:
    """A candidate and its cost as JSON has them."""
    candidate = line.candidate
    return {
        "scheme": candidate.scheme.name,
        "options": candidate.options,
        "partition": candidate.partition.name if candidate.partition else None,
        "parts": candidate.parts,
        "estimate": candidate.estimated,
        **asdict(line.cost),
        "advice": line.advice or None,
    }


def print_machine(machine: Machine, facts: Mapping[str, Any], path: Path) -> None:
    """Print the constants that were measured, and where they are."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in asdict(machine).items():
        table.add_row(name, f"{value:.3g}", "" if name in facts["measured"] else "not measured")
    print(
        f"{', '.join(facts['hosts'])}: ranks {facts['ranks']}, "
        f"threads per rank {facts['threads']}, {facts['kernel']}, {facts['dtype']}; "
        "units: seconds and bytes"
    )
    print_wide(table)
    print(path)


def print_line(line: Mapping[str, object]) -> None:
    """Print a variant that was measured, or skipped, as one JSON object."""
    print(json.dumps(line), flush=True)


def print_bench(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print measured beside predicted, the fastest first, and what was skipped."""
    titles = ("s/epoch", "predicted", "ratio", "MB received", "predicted", "GB a rank", "predicted")
    measured = [line for line in lines if "skipped" not in line]
    print_rows(("scheme", "partition"), titles, (
        (
            _variant(line["scheme"], line["options"]), line["partition"] or "-",
            f"{line['seconds']:.4g}", f"{line['predicted_seconds']:.4g}", f"{line['ratio']:.2f}",
            f"{line['received'] / 1e6:.4g}", f"{line['predicted_received'] / 1e6:.4g}",
            f"{line['memory'] / 1e9:.3g}", f"{line['predicted_memory'] / 1e9:.3g}",
        )
        for line in sorted(measured, key=lambda line: line["seconds"])
    ), box.SIMPLE_HEAD)  # fmt: skip
    for line in lines:
        if "skipped" in line:
            print(f"not {_variant(line['scheme'], line['options'])}: {line['skipped']}")


def _facts(setting: Setting, ranks: int, machine: Mapping[str, object]) -> dict[str, object]:
    """The facts of a prediction, as JSON has them."""
    manifest, config = setting.stored.manifest, setting.config
    return {
        "graph": manifest.name,
        "graph_id": manifest.id,
        "ranks": ranks,
        "ranks_per_node": setting.ranks_per_node,
        "direction": setting.direction,
        "widths": list(setting.work.network.widths),
        "kernel": resolve(config.kernel)[0],
        "dtype": config.dtype,
        "machine": machine.get("file"),
        "batches": _batches(setting),
    }


def _print_facts(
    setting: Setting, ranks: int, machine: Mapping[str, Any], facts: Mapping[str, Any]
) -> None:
    """The same in words, above a table."""
    print(
        f"{shown(facts['graph'])}: {ranks} ranks, {setting.ranks_per_node} per node, direction "
        f"{setting.direction}, widths {', '.join(map(str, setting.work.network.widths))}, "
        f"{facts['kernel']}, {setting.config.dtype}"
    )
    print(_machine_line(machine, setting.config))
    if facts["batches"]:
        print(_batches_line(setting.config, facts["batches"]))


def _batches(setting: Setting) -> dict[str, int] | None:
    """How many mini-batches an epoch has, and how many were drawn; None of full batches."""
    if setting.batches is None:
        return None
    return {"an_epoch": setting.batches.sampler.batches, "drawn": len(setting.batches.drawn)}


def _batches_line(config: Config, drawn: Mapping[str, int]) -> str:
    """From how many mini-batches the figures are predicted, and when there is an evaluation."""
    batches, some = drawn["an_epoch"], drawn["drawn"]
    of = f"{batches} times the mean of {some} that were drawn"
    if some == batches:
        of = "the only one" if batches == 1 else f"all {batches} of the first"
    every = config.train.eval_every
    when = f"one every {every} epochs" if every > 1 else "one an epoch" if every else "none"
    text = f"train.batches = {config.train.batches}: an epoch is {of}; evaluations: {when}"
    return textwrap.fill(text, WIDTH)


def _machine_line(machine: Mapping[str, Any], config: Config) -> str:
    if not machine:
        return "default constants: order of magnitude; to measure: mpirun gcnmpi calibrate"
    if "sources" in machine:
        return f"machine {machine['file']}: published figures, nothing measured"
    text = (
        f"machine {machine['file']}: {', '.join(machine['hosts'])}, {machine['date']}, "
        f"{machine['threads']} threads per rank"
    )
    here = {"kernel": resolve(config.kernel)[0], "dtype": config.dtype}
    different = [name for name, value in here.items() if machine[name] != value]
    if different:
        text += f"; measured with another {' and '.join(different)}"
    return text


def _variant(scheme: str, options: Mapping[str, object]) -> str:
    """A scheme with what tells its variants apart."""
    return " ".join([scheme, *(f"{name} {value}" for name, value in options.items())])


def _short(scheme: str, options: Mapping[str, object]) -> str:
    """A variant in few letters: "tensor3d 4x2x2", "replicated 4 not sparse"."""
    words = []
    for name, value in options.items():
        yes_or_no = name if value else f"not {name}"
        said = f"{value} groups" if name == "groups" else str(value)
        words.append(yes_or_no if isinstance(value, bool) else said)
    return f"{scheme} {' '.join(words)}".rstrip()
