"""Parts of every command of ``gcn-partition``: options, settings, warnings, output."""

import contextlib
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import click

from partition.commands import Result
from partition.errors import shown
from partition.graph.graph import DIRECTIONS
from partition.graph.store import Partition
from partition.reporting import tables
from partition.terminal import console, duration, on_terminal, pauses

# Parameters that many commands have, for :func:`partition.commands.command`.
GraphFolder = Annotated[Path, {"metavar": "G.graph"}]
NewGraph = Annotated[Path, {"metavar": "OUT.graph"}]
Names = Annotated[tuple[str, ...], {"metavar": "NAME..."}]
Force = Annotated[bool, {"names": ["--force"], "help": "Replace existing output."}]
Direction = Annotated[
    str | None,
    click.Choice(DIRECTIONS),
    {"help": "Direction of the aggregation.  [default: the graph's]"},
]


def result_of(
    found: Sequence[Partition], show: Callable[[Partition], None], **common: object
) -> Result:
    """The result of one partition, or of the two of a pair: as JSON, an object with ``partitions``.

    ``common`` holds for all of them together.
    """
    facts = [tables.describe_partition(partition) for partition in found]
    together = facts[0] if len(facts) == 1 else {"partitions": facts}

    def show_all(_: object) -> None:
        for partition in found:
            show(partition)

    return Result(together | common, show_all)


def is_given(name: str) -> bool:
    """Whether an option stands on the command line."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def note(line: str) -> None:
    """Something the user should know, on standard error."""
    click.echo(f"note: {shown(line)}", err=True)


@contextlib.contextmanager
def shown_warnings(category: type[Warning], word: str) -> Iterator[list[str]]:
    """The warnings of the body, each once; they are shown on standard error at its end."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", category)
        yield messages
    messages += dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, category))
    for message in messages:
        click.echo(f"{word}: {shown(message)}", err=True)


@contextlib.contextmanager
def working(what: str = "", limit: float | None = None) -> Iterator[Callable[..., None]]:
    """A sign of life on standard error; in a log, lines by time.

    It is told what is being done and, of what is counted, how much is done, and of what. The
    seconds that it may take, ``limit``, are shown beside those that it has taken.
    """
    began, now = time.monotonic(), what
    most = "" if limit is None else f" of {duration(limit)} at most"

    def text_of(line: str) -> str:
        return f"{what}: {line}" if what else line

    if on_terminal(sys.stderr):
        from rich import progress

        columns = (
            progress.SpinnerColumn(), progress.TextColumn("{task.description}"),
            progress.BarColumn(20), progress.TimeRemainingColumn(), progress.TimeElapsedColumn(),
            progress.TextColumn(most),
        )  # fmt: skip
        out = console(sys.stderr)
        with progress.Progress(*columns, console=out, transient=True) as display:
            out.show_cursor()  # a signal may end the program at once, and would leave it hidden
            task = display.add_task(what, total=None)
            yield lambda line, done=0, total=None: display.update(
                task, description=text_of(line), completed=done, total=total
            )
        return
    ended = threading.Event()

    def note_down(line: str, done: float = 0, total: float = 0) -> None:
        nonlocal now
        now = text_of(line) + (f": {done / total:.0%}" if total else "")

    def print_lines() -> None:
        for pause in pauses():
            if ended.wait(pause):
                return
            click.echo(f"{now}, {duration(time.monotonic() - began)}{most}", err=True)

    printer = threading.Thread(target=print_lines, daemon=True)
    printer.start()
    try:
        yield note_down
    finally:
        ended.set()
        printer.join()
