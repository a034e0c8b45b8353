"""Parts of every function that all ranks call: from arguments to a request."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gcnmpi.api.graph import Graph
from gcnmpi.api.record import Run
from gcnmpi.mpi.comm import Comm, agreed
from gcnmpi.mpi.process import world
from gcnmpi.options.config import keys
from gcnmpi.options.requests import Request
from gcnmpi.options.user_network import handed_over
from gcnmpi.run.checkpoint import flat
from gcnmpi.run.claims import Claims, session
from gcnmpi.run.weights_file import task_of
from partition.errors import UserError, meant_keys

Settings = str | os.PathLike | Mapping[str, object] | None
Network = str | Callable | None
R = TypeVar("R", bound=Request)


@contextlib.contextmanager
def requested(
    kind: type[R],
    comm: Comm | None,
    config: Settings,
    model: Network,
    keywords: Mapping[str, object],
    **options: Any,
) -> Iterator[tuple[Comm, R]]:
    """The ranks, and what they are asked for.

    It holds in this block: a network that is a function has a name in it. ``config``, ``model`` and
    the keywords are those of :func:`gcnmpi.train`, ``options`` fields of the request. On all ranks
    a UserError if something is wrong.
    """
    comm = world() if comm is None else comm
    with contextlib.ExitStack() as stack:
        with agreed(comm):
            file = config if isinstance(config, str | os.PathLike) else None
            table = config if isinstance(config, Mapping) else {}
            values = dict(flat(table)) | _named(keywords, kind.own_settings)
            if model is not None:
                if "model.name" in values:
                    raise UserError("model and model.name say the same: give one of them")
                is_name = isinstance(model, str)
                values["model.name"] = model if is_name else stack.enter_context(handed_over(model))
            options = {name: _plain(name, value) for name, value in options.items()}
            under = task_of(options["weights"]) if "weights" in options else {}
            request = kind.read(file, values=values, under=under, **options)
        yield comm, request


@contextlib.contextmanager
def in_session(purpose: str, *arguments: Any, **options: Any) -> Iterator[tuple[Comm, Any, Claims]]:
    """The same with the graph locked, and ranks that call with other arguments refused."""
    with requested(*arguments, **options) as (comm, request):
        where = request.graph, request.partition
        with session(comm, purpose, request.config, request.words, *where) as claims:
            yield comm, request, claims


def warn(comm: Comm, texts: Iterable[str], level: int = 3) -> None:
    """Say on rank 0 what the user should know, as of the line that called the API."""
    for text in texts if comm.rank == 0 else ():
        warnings.warn(text, stacklevel=level)


def _plain(name: str, value: Any) -> Any:
    """An argument as the request has it."""
    if isinstance(value, Graph):
        return value.path
    if isinstance(value, Run):
        return value.weights_file()
    if isinstance(value, str | os.PathLike):
        return Path(value) if name in ("graph", "out", "weights", "rows") else value
    return (
        np.asarray(value) if name in ("rows", "pairs", "vertices") and value is not None else value
    )


def _named(keywords: Mapping[str, object], others: bool) -> dict[str, object]:
    """Values by full names of keys; ``others`` may be among them, too."""
    names = {name.replace(".", "_"): name for name in keys()}
    for word, value in keywords.items():
        if word not in names and not others:
            raise _unknown_keyword(word, value, names)
    return {names.get(word, word): value for word, value in keywords.items()}


def _unknown_keyword(word: str, value: object, names: Mapping[str, str]) -> UserError:
    """The error for a keyword that is no key of the configuration, with those that may be meant."""
    spelled = {name: keyword for keyword, name in names.items()}
    section, _, last = word.partition("_")
    dotted = f"{section}.{last}" if any(k.startswith(f"{section}.") for k in spelled) else word
    meant = [spelled[key] for key in meant_keys(dotted, spelled) if key in spelled]
    hint = "keys of the configuration with a _ for the dot: 'gcnmpi info' lists them"
    if isinstance(value, Mapping):
        hint = f"config={{{word!r}: {value!r}}}"
    elif meant:
        shown = value if isinstance(value, str | int | float | list | tuple) else "…"
        words = [f"{keyword}={shown!r}" for keyword in meant]
        hint = f"did you mean {' or '.join(words)}?"
    return UserError(f"unknown keyword {word!r}", hint)
