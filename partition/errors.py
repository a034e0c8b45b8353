"""The one exception for mistakes a user can correct."""

import contextlib
import difflib
import errno
import io
import os
import shlex
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator

EXIT_USER_ERROR = 2


class DataWarning(UserWarning):
    """Something about imported data that the user should know."""


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

    def __reduce__(self) -> tuple[type, tuple[str, str | None]]:
        return type(self), (self.message, self.hint)


def require(condition: bool, message: str) -> None:
    """A UserError unless a condition holds."""
    if not condition:
        raise UserError(message)


@contextlib.contextmanager
def system_errors(what: str, hint: str | None = None) -> Iterator[None]:
    """Make what the system refuses in this block a UserError: "cannot write FILE", and why."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{what}: {error.strerror or error}", hint) from error


@contextlib.contextmanager
def report_as(temporary: os.PathLike[str], path: os.PathLike[str]) -> Iterator[None]:
    """In error messages, replace a temporary name by the path that the file will get."""
    try:
        yield
    except UserError as error:
        names = shown(str(temporary)), shown(str(path))
        error.message = error.message.replace(*names)
        error.hint = error.hint and error.hint.replace(*names)
        error.args = (error.message,)
        raise


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


def replace_signs() -> None:
    """Have the standard streams write "?" for signs that their encoding lacks.

    A result is not lost for a sign in its last line.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Write what this block prints to the standard output; refuse a full disk or a closed pipe."""
    replace_signs()
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in _NOT_WRITABLE or error.filename is not None:
            raise
        # The rest of it is for nobody: it would fail once more when the program ends.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise UserError(f"cannot write the output: {error.strerror}") from error


# Or closed: head has read enough.
_NOT_WRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EPIPE}


def installing(extra: str, *others: str) -> str:
    """How what an extra of this distribution needs is installed, for hints.

    The distribution is on no package index, so a checkout of it is named.

    >>> print(installing("torch", "torch_geometric"))
    pip install '.[torch]' torch_geometric in a checkout
    """
    return f"pip install {shlex.join([f'.[{extra}]', *others])} in a checkout"


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not in a table, with the nearest one that is.

    ``kind`` says of what it is a name: "kernel", "config key" …
    """
    names = sorted(known)
    near = nearest(name, names)
    hint = f"did you mean {near!r}?" if near else f"known: {', '.join(names) or 'none'}"
    return UserError(f"unknown {kind} {name!r}", hint)


def check_name(kind: str, name: str, known: Collection[str]) -> str:
    """The name, if it is in a table; otherwise the error of :func:`unknown_name`."""
    if name not in known:
        raise unknown_name(kind, name, known)
    return name


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name that differs from ``name`` in a letter or two, whatever the case; None without one.

    Of equally near ones, that of the same letters.

    >>> nearest("graphblast", ["graphblas", "scipy"]), nearest("gp", ["hp", "rp"])
    ('graphblas', None)
    >>> nearest("gta", ["gat", "hgt"])
    'gat'
    """
    lower = {other.lower(): other for other in known}
    found = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.66)
    turned = [other for other in found if sorted(other) == sorted(name.lower())]
    return lower[(turned or found)[0]] if found else None


def meant_keys(name: str, known: Iterable[str]) -> list[str]:
    """The keys ``section.key`` that a name may stand for: of the same ending, or else the nearest.

    >>> known = ["dtype", "model.name", "train.epochs", "train.lr"]
    >>> meant_keys("lr", known), meant_keys("model", known), meant_keys("train.epoch", known)
    (['train.lr'], ['model.name'], ['train.epochs'])
    """
    known = list(known)
    if name in known:
        return [name]
    section, _, last = name.rpartition(".")
    here = {key.rpartition(".")[2]: key for key in known if key.rpartition(".")[0] == section}
    if last and (same := [key for key in known if key.rpartition(".")[2] == last]):
        return same
    if near := nearest(last, here):
        return [here[near]]
    if section or f"{name}.name" in known:  # train.lr.x, model
        return [key for key in (section, f"{name}.name") if key in known][:1]
    # A key of some section, or a section.
    lasts = {key.rpartition(".")[2]: key for key in known}
    lasts |= {part: part for part in (key.partition(".")[0] for key in known)}
    return [lasts[close] for close in difflib.get_close_matches(last, lasts, 1, 0.75)]
