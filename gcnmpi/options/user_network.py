"""Networks of one's own: functions in a Python file, or handed over by a program.

``model.name`` is then ``FILE.py:NAME``. Reading the configuration adds ``@`` and the beginning of
a hash of the function's source: records, checkpoints and files of weights say which network it
was, and ranks that have another one are found. Nothing that only names a file has it run: the user
does, on the command line, in a configuration or from Python.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import hashlib
import importlib.util
import inspect
import os
import re
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

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
        If it is no function, or :func:`source_of` finds no text for it.
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


def source_of(function: Any) -> str:
    """The text of a script that defines a function and what it uses of its module.

    Imports, plain values and functions are written in an order that depends on the function alone:
    of a function that was loaded from such a text, the text is the same. An attribute ``matrix``
    of the function is part of it.

    Parameters
    ----------
    function : function
        Defined at the top level of a file or of a notebook.

    Raises
    ------
    UserError
        If it is none, its source is not known, or it uses a global value that no text stands for.
    """
    check_is_function(function)
    script = _Script(function.__module__)
    script.add(function.__name__, function)
    head = ["from __future__ import annotations", *sorted(script.imports)]
    return "\n\n\n".join(["\n".join(head), *script.pieces]) + "\n"


def check_is_function(function: object) -> None:
    """A UserError unless it is a function that a name at the top level of its module stands for."""
    if not isinstance(function, FunctionType):
        raise UserError(f"{function!r} is no function", "a def at the top level of a file")
    if function.__code__.co_freevars or function.__qualname__ != function.__name__:
        raise UserError(
            f"{function.__qualname__} is defined within another function",
            "define it at the top level of a file or a notebook",
        )
    if not function.__name__.isidentifier():
        raise UserError("a lambda has no name", "define a function with def")


class _Script:
    """Pieces of source, each after what it uses."""

    def __init__(self, module: str) -> None:
        self.imports: set[str] = set()
        self.pieces: list[str] = []
        self._module = module
        self._begun: set[str] = set()

    def add(self, name: str, value: object) -> None:
        """Whatever makes ``name`` stand for ``value``."""
        if name in self._begun:
            return
        self._begun.add(name)
        if isinstance(value, ModuleType):
            self._add_import(f"import {value.__name__}", name, value.__name__)
        elif _is_of(value, self._module):
            self._add_definition(name, value)
        elif isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
            known = value.__qualname__
            self._add_import(f"from {value.__module__} import {known}", name, known)
        else:
            self.pieces.append(f"{name} = {_literal(name, value)}")

    def _add_import(self, line: str, name: str, known: str) -> None:
        self.imports.add(line if name == known else f"{line} as {name}")

    def _add_definition(self, name: str, value: Any) -> None:
        if value.__name__ != name:
            raise UserError(f"{name} is another name of {value.__qualname__}", "use the first one")
        try:
            text = textwrap.dedent(inspect.getsource(value))
        except (OSError, TypeError) as error:
            raise UserError(
                f"the source of {name} is not known: {error}", "define it in a file or a notebook"
            ) from error
        known = vars(sys.modules[self._module]) if isinstance(value, type) else value.__globals__
        for used in sorted(_names(value, text)):
            if used in known:
                self.add(used, known[used])
        self.pieces.append("\n".join(line.rstrip() for line in text.strip().splitlines()))
        matrix = getattr(value, "matrix", None) if isinstance(value, FunctionType) else None
        if matrix is not None:
            check_is_function(matrix)
            self.add(matrix.__name__, matrix)
            self.pieces.append(f"{name}.matrix = {matrix.__name__}")


def _is_of(value: object, module: str) -> bool:
    """Whether a function or a class is defined in a module."""
    return isinstance(value, FunctionType | type) and value.__module__ == module


def _names(value: Any, text: str) -> set[str]:
    """Global names that a function uses when it runs or is defined; of a class, all names in it."""
    tree = ast.parse(text)
    if isinstance(value, type):
        return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    (definition,) = tree.body
    assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)
    defaults = [default for default in definition.args.kw_defaults if default is not None]
    early = [*definition.decorator_list, *definition.args.defaults, *defaults]
    found = {node.id for one in early for node in ast.walk(one) if isinstance(node, ast.Name)}
    return found | set(_globals(value.__code__))


def _globals(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals(constant)


def _literal(name: str, value: object) -> str:
    try:
        if ast.literal_eval(repr(value)) == value:
            return repr(value)
    except (ValueError, SyntaxError):
        pass
    raise UserError(
        f"{name} is a {type(value).__name__}, for which no text stands",
        "make it within the function, or give it to the function as an argument",
    )


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
