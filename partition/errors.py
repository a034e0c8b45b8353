"""The one exception for mistakes a user can correct."""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator

EXIT_USER_ERROR = 2


class UserError(Exception):
    """A mistake of the user's: one clear line, a hint where there is one, exit code 2.

    Parameters
    ----------
    message : str
        What is wrong, naming the file, key or value.
    hint : str, optional
        What to do about it.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        message = shown(message)
        super().__init__(message)
        self.message = message
        self.hint = hint and "\n".join(shown(line) for line in hint.split("\n"))

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple:
        return type(self), (self.message, self.hint)


def shown(text: str) -> str:
    r"""A text that may come from a file, with all that could steer a terminal written out.

    >>> print(shown("a" + chr(27) + "[2Jb"))
    a\x1b[2Jb
    """
    if text.isprintable():
        return text
    # Spaces other than the usual one count as not printable, and do no harm.
    return "".join(
        c if c.isprintable() or unicodedata.category(c) == "Zs" else repr(c)[1:-1] for c in text
    )


def shortened(text: str, most: int = 60) -> str:
    """A text that may be long, for a message: the first ``most`` characters of it.

    >>> shortened("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


@contextlib.contextmanager
def memory_errors() -> Iterator[None]:
    """Make a MemoryError in this block a UserError, whatever asked for the memory."""
    try:
        yield
    except MemoryError as error:
        reason = shortened(" ".join(str(error).split()), 200)
        raise UserError(
            "not enough memory" + (f": {reason[0].lower()}{reason[1:]}" if reason else ""),
            "free some, or raise the limit of this job or of its processes (ulimit -v); "
            "gcnmpi takes less on each of more ranks, gcn-partition import and add with --memory",
        ) from error


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Write what is printed in this block to the standard output before leaving it.

    Raises
    ------
    UserError
        If it cannot be written, as to a full disk.
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        # The rest of it is for nobody: it would fail once more when the program ends.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise UserError(f"cannot write the output: {error.strerror}") from error


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not in a table, with the nearest one that is.

    Parameters
    ----------
    kind : str
        What the name is of: "kernel", "config key" …
    name : str
        The name that was given.
    known : iterable of str
        The names there are.
    """
    names = sorted(known)
    near = nearest(name, names)
    hint = f"did you mean {near!r}?" if near else f"known: {', '.join(names)}"
    return UserError(f"unknown {kind} {name!r}", hint)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name that differs from ``name`` in a letter or two, whatever the case; None without one.

    >>> nearest("graphblast", ["graphblas", "scipy"]), nearest("gp", ["hp", "rp"])
    ('graphblas', None)
    """
    lower = {other.lower(): other for other in known}
    found = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.66)
    return lower[found[0]] if found else None
