"""Whether a terminal of the user's shows what is printed, and consoles that print accordingly.

Nothing else here asks whether a stream is a terminal: under mpirun every rank's output seems to be.
"""

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from rich.box import Box
from rich.console import Console
from rich.table import Table

# Open MPI gives its ranks a pseudo-terminal, wherever its own output goes. Other launchers give
# them pipes, or a terminal that the user has asked for.
_RANK = "OMPI_COMM_WORLD_RANK"


def on_terminal(stream: TextIO) -> bool:
    """Whether a terminal of the user's shows a standard stream, so that lines can change."""
    try:
        number = stream.fileno()
    except (AttributeError, OSError, ValueError):  # a notebook's, or one that is closed
        return False
    if not os.isatty(number) or os.environ.get("TERM") in ("dumb", "unknown"):
        return False
    return _RANK not in os.environ or _launcher_shows(number)


def console(stream: TextIO | None = None, **options: Any) -> Console:
    """A console for tables and progress: it writes codes only where a terminal shows them.

    NO_COLOR leaves out colours and other styles, FORCE_COLOR writes them into files, too. The
    stream is the standard output by default, the options are for :class:`rich.console.Console`.
    """
    stream = stream or sys.stdout
    shown = on_terminal(stream)
    forced = bool(os.environ.get("FORCE_COLOR"))
    plain = bool(os.environ.get("NO_COLOR")) or not (shown or forced)
    return Console(
        file=stream,
        force_terminal=shown,
        color_system=None if plain else "auto" if shown else "standard",
        highlight=False,
        emoji=False,
        **options,
    )


def print_wide(table: Table) -> None:
    """Print a table on the standard output; long lines are better than columns cut off."""
    console(width=1000, markup=False).print(table)


def table_of(texts: Iterable[str], numbers: Iterable[str] = (), box: Box | None = None) -> Table:
    """A table with the titles of columns of texts, and of numbers, none of which is cut off."""
    table = Table(box=box, pad_edge=False)
    for title in texts:
        table.add_column(title, no_wrap=True)
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def duration(seconds: float) -> str:
    """Hours, minutes and seconds: "1:02:03"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def pauses() -> Iterator[float]:
    """Seconds between two lines of a log: five at first, then more."""
    pause = 5.0
    while True:
        yield pause
        pause = min(1.3 * pause, 300.0)


def _launcher_shows(number: int) -> bool:
    """Whether the launcher of this rank, on this host, has a terminal as the same stream."""
    try:
        path = f"/proc/{_launcher()}/fd/{number}"
        if not stat.S_ISCHR(os.stat(path).st_mode):
            return False
        its = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except (OSError, ValueError):  # not Linux, or not ours to see
        return False
    try:
        return os.isatty(its)
    finally:
        os.close(its)


def _launcher() -> int:
    """The nearest process above this one that is no rank: between them may be a shell."""
    process = os.getppid()
    while f"\0{_RANK}=".encode() in b"\0" + Path(f"/proc/{process}/environ").read_bytes():
        _, _, facts = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")
        process = int(facts.split()[1])
    return process
