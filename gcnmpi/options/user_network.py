"""Networks of one's own: functions in a Python file, or handed over by a program.

``model.name`` is then ``FILE.py:NAME``. Reading the configuration adds ``@`` and the beginning of
a hash of the function's source: records, checkpoints and files of weights say which network it
was, and ranks that have another one are found. Nothing that only names a file has it run: the user
does, on the command line, in a configuration or from Python.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from gcnmpi.options.source import check_is_function, source_of
from partition.errors import UserError, unknown_name

T = TypeVar("T")

_FORM = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)(@(?P<digest>[0-9a-f]{16}))?")
_DIGITS = 16
# The functions that programs have handed over, while they use them: name → function.
_HANDED_OVER: dict[str, Callable] = {}


def is_user_network(name: object) -> bool:
    """Whether a name is that of a network in a file, well-formed or not."""
    return isinstance(name, str) and re.fullmatch(r".+\.py(:.*)?", name) is not None


def same_network(name: object, other: object) -> bool:
    """Whether two names, with hashes, stand for the same network, wherever its file is."""
    ends = [
        str(one).rpartition(":")[2]
        for one in (name, other)
        if is_user_network(one) and "@" in str(one)
    ]
    return len(ends) == 2 and ends[0] == ends[1]


def pinned(name: str) -> str:
    """The name with the hash of the function that it stands for now.

    A UserError as :func:`load_network`.
    """
    builder = load_network(name)
    return name if "@" in name else f"{name}@{_digest(builder)}"


def load_network(name: str) -> Callable:
    """The function ``build(model, features, classes)`` that a name stands for.

    Raises
    ------
    UserError
        If the file cannot be read or run, has no such function, or it is another one than the hash
        in the name says.
    """
    if name in _HANDED_OVER:
        return _HANDED_OVER[name]
    found = _FORM.fullmatch(name)
    if found is None:
        raise UserError(
            f"model.name = {name} does not say which function of the file is the network",
            f"such as {name.partition('.py')[0]}.py:build",
        )
    builder = load_function(found["file"], found["name"])
    if found["digest"] and found["digest"] != _digest(builder):
        raise UserError(
            f"{found['file']} has changed: the network {found['name']} has the hash "
            f"{_digest(builder)} now, not {found['digest']}"
        )
    return builder


def load_function(file: str, name: str) -> Callable:
    """A function of a Python file, which is run once.

    A UserError if the file cannot be read or run, or has no such function.
    """
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}", f"for its {name}") from error
    module = _load_file(os.path.abspath(file), data)
    functions = {key: one for key, one in vars(module).items() if inspect.isfunction(one)}
    if name not in functions:
        own = [key for key, one in functions.items() if one.__module__ == module.__name__]
        raise unknown_name(f"function of {file}", name, own)
    return functions[name]


@contextlib.contextmanager
def handed_over(builder: Any) -> Iterator[str]:
    """A name for a function of this program, which stands for it in this block.

    Raises
    ------
    UserError
        If it is no function, or :func:`gcnmpi.options.source.source_of` finds no text for it.
    """
    check_is_function(builder)
    file = Path(inspect.getsourcefile(builder) or "")
    # A notebook has none that its cells are in.
    stem = file.name if file.suffix == ".py" and file.is_file() else "notebook.py"
    name = f"{stem}:{builder.__name__}@{_digest(builder)}"
    _HANDED_OVER[name] = builder
    try:
        yield name
    finally:
        _HANDED_OVER.pop(name, None)


def called(name: str, call: Callable[[], T]) -> T:
    """The result of ``call`` of a user's function; an error in it becomes one line.

    Raises
    ------
    UserError
        With the kind of the error, and the file and line where it is.
    """
    try:
        return call()
    except UserError:
        raise
    except Exception as error:
        raise _of_user(name, error) from error


def keys_read(name: str, model: object) -> set[str] | None:
    """The keys of the configuration that a network reads, full names; None if it cannot be told.

    It is built for widths that hardly matter to what it reads. How M is made is its own matter
    only if it has an attribute ``matrix``.
    """
    builder = load_network(name)
    seen: set[str] = set()

    class Watched:
        def __getattr__(self, key: str) -> Any:
            seen.add(f"model.{key}")
            return getattr(model, key)

    try:
        builder(Watched(), 16, 16)
    except Exception:  # such as a network for other widths: it says so when it gets its own
        return None
    layers = {"model.layers"} if "model.hidden" in seen else set()
    matrix = set() if hasattr(builder, "matrix") else {"graph.normalize", "graph.self_loops"}
    return seen | layers | matrix


def _digest(builder: Callable) -> str:
    return hashlib.sha256(source_of(builder).encode()).hexdigest()[:_DIGITS]


@functools.lru_cache(maxsize=16)
def _load_file(path: str, data: bytes) -> ModuleType:
    """A module of its own out of the bytes of a file; nothing else is found through its folder."""
    name = f"_own_{hashlib.sha256(path.encode() + data).hexdigest()[:_DIGITS]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look theirs up there
    try:
        exec(compile(data, path, "exec"), vars(module))
    except Exception as error:
        del sys.modules[name]
        raise _of_user(path, error) from error
    return module


def _of_user(name: str, error: Exception) -> UserError:
    *_, last = traceback.extract_tb(error.__traceback__)
    line = error.lineno if isinstance(error, SyntaxError) else last.lineno
    place = error.filename if isinstance(error, SyntaxError) else last.filename
    text = " ".join(str(error).split())
    return UserError(f"{name}: {type(error).__name__}: {text} ({place}, line {line})")
