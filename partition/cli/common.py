"""Parts of every command of ``gcn-partition``: options, settings, warnings, output."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import click

from partition.commands import Assignments, Result
from partition.errors import DataWarning, UserError, shown
from partition.graph.graph import DIRECTIONS
from partition.graph.store import Partition
from partition.pipeline import adding, balance
from partition.reporting import tables
from partition.reporting.describe import describe_partition
from partition.terminal import console, duration, on_terminal, pauses

# Parameters that many commands have, for :func:`partition.commands.command`.
GraphFolder = Annotated[Path, {"metavar": "G.graph"}]
NewGraph = Annotated[Path, {"metavar": "OUT.graph"}]
Names = Annotated[tuple[str, ...], {"metavar": "NAME..."}]
Force = Annotated[bool, {"help": "Replace existing output."}]
Direction = Annotated[
    str | None,
    click.Choice(DIRECTIONS),
    {"help": "Direction of the aggregation.  [default: the graph's]"},
]
Constraints = Annotated[
    str,
    {
        "metavar": "|".join(balance.CONSTRAINTS),
        "also": "; ".join(f"{name}: {text}" for name, text in balance.CONSTRAINTS.items()) + ".",
    },
]
Settings = Annotated[
    tuple[str, ...], {"names": ["--set"], "metavar": "OPTION=VALUE", "cls": Assignments}
]


def result_of(
    found: Sequence[Partition], show: Callable[[Partition], None], **common: object
) -> Result:
    """The result of one partition, or of the two of a pair: as JSON, an object with ``partitions``.

    ``common`` holds for all of them together.
    """
    facts = [describe_partition(partition) for partition in found]
    together = facts[0] if len(facts) == 1 else {"partitions": facts}

    def show_all(_: object) -> None:
        for partition in found:
            show(partition)

    return Result(together | common, show_all)


def show_added(partition: Partition) -> None:
    """One line of a new partition, after a table of the steps that led to it, or were tried."""
    if partition.history:
        tables.show_history(partition.history)
    direction = partition.direction
    rows = partition.metrics[direction]
    click.echo(
        f"{partition.name}: {partition.k} parts, volume {rows.volume:,} rows, "
        f"max send {max(rows.send_rows):,}, imbalance {rows.imbalance:.4f}, "
        f"{partition.seconds:.1f} s"
    )
    kinds = ("mixed exchange", partition.mixed), ("of means by relation", partition.by_relation)
    for title, found in kinds:
        if not found:
            continue
        mixed = found[direction]
        click.echo(
            f"  {title}: volume {mixed.volume:,} rows, {sum(mixed.send_sums or ()):,} of "
            f"them partial sums, max send {max(mixed.send_rows):,}, imbalance {mixed.imbalance:.4f}"
        )
    if partition.nodes:
        traffic = partition.nodes[direction]
        click.echo(
            f"  {traffic.ranks_per_node} ranks per node: {sum(traffic.send_rows):,} rows between "
            f"nodes, {sum(traffic.inside_rows):,} inside, a node sends {max(traffic.send_rows):,} "
            "at most"
        )


def parse_settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """The options of ``--set OPTION=VALUE``."""
    options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key.isidentifier() or not equals:
            form = f"--set {pair!r} is not of the form OPTION=VALUE"
            raise UserError(form, "gcn-partition models lists options")
        if key in RESERVED:
            own = f"--{key.replace('_', '-')}"
            raise UserError(f"--set {pair}: {key} has an option of its own, {own}")
        if key in options:
            raise UserError(f"--set {pair}: {key} is given twice")
        options[key] = value
    return options


RESERVED = {
    "model", "k", "imbalance", "seed", "name", "tool", "direction", "overwrite", "path", "balance",
    "refine", "ranks_per_node", "mapping", "memory", "time_limit",
}  # fmt: skip


def note(line: str) -> None:
    """Something the user should know, on standard error."""
    click.echo(f"note: {shown(line)}", err=True)


@contextlib.contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """The warnings of the body, as text; they are shown on standard error at its end."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", adding.PartitionWarning)
        yield messages
    for warning in caught:
        if issubclass(warning.category, adding.PartitionWarning):
            messages.append(str(warning.message))
            click.echo(f"warning: {warning.message}", err=True)


@contextlib.contextmanager
def noted_warnings() -> Iterator[None]:
    """The warnings of the body about data become notes, each once, at its end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        yield
    for line in dict.fromkeys(str(w.message) for w in caught if w.category is DataWarning):
        note(line)


@contextlib.contextmanager
def working(what: str, limit: float | None = None) -> Iterator[Callable[[str], None]]:
    """A sign of life on standard error, told what is being done; in a log, lines by time.

    The seconds that it may take, ``limit``, are shown beside those that it has taken.
    """
    began, now = time.monotonic(), [what]
    most = "" if limit is None else f" of {duration(limit)} at most"
    if on_terminal(sys.stderr):
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        shown = console(sys.stderr)
        with Progress(*columns, TextColumn(most), console=shown, transient=True) as display:
            shown.show_cursor()  # a signal may end the program at once, and would leave it hidden
            task = display.add_task(what)
            yield lambda line: display.update(task, description=f"{what}: {line}")
        return
    ended = threading.Event()

    def tell() -> None:
        for pause in pauses():
            if ended.wait(pause):
                return
            click.echo(f"{now[0]}, {duration(time.monotonic() - began)}{most}", err=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield lambda line: now.__setitem__(0, f"{what}: {line}")
    finally:
        ended.set()
        teller.join()


@contextlib.contextmanager
def advancing(
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Callable[[str, float, float], None]]:
    """A bar on standard error, told the stage, what is done, and of what; in a log, lines by time.

    ``clock`` gives the time in seconds.
    """
    if not on_terminal(sys.stderr):
        began, wait = clock(), pauses()
        due = began + next(wait)

        def line(stage: str, done: float, total: float) -> None:
            nonlocal due
            now = clock()
            if now >= due:
                share = f"{done / total:.0%}" if total else "0%"
                click.echo(f"{stage}: {share}, {duration(now - began)}", err=True)
                due = now + next(wait)

        yield line
        return
    from rich.progress import Progress, TaskID, TimeElapsedColumn

    columns = *Progress.get_default_columns(), TimeElapsedColumn()
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def tell(stage: str, done: float, total: float) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage)
            bar.update(tasks[stage], completed=done, total=total)

        yield tell
