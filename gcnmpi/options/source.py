"""A function as a script of its own: its source, after all of its module that it uses."""

from __future__ import annotations

import ast
import dis
import inspect
import sys
import textwrap
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from partition.errors import UserError


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
