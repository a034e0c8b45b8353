"""The stand-in for CuPy under tests/fake beside the CuPy that is installed: a line a difference.

A run of check_cuda.py calls it in a process of its own. Names are those that gcnmpi uses: each has
to exist; a function or method has to take the parameters that the stand-in's has, and keywords
that gcnmpi gives; a constant has to have the stand-in's value. Arguments are options with which
CuPy has to compile. No GPU is needed.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FAKE = ROOT / "tests" / "fake"
MODULES = (
    "cupy",
    "cupyx",
    "cupy.cuda",
    "cupy.cuda.device",
    "cupy.cuda.nccl",
    "cupy.cuda.runtime",
    "cupy_backends.cuda.libs.cublas",
    "cupy_backends.cuda.libs.cusparse",
)
# Of the stand-in's own, and what a subclass has of another name in CuPy.
OWN = ("Memory", "CUDARuntimeError", "NcclError")
ELSEWHERE = {"nccl": "cupy_backends.cuda.libs.nccl"}


@dataclass(frozen=True)
class Parameters:
    """Of a function: names by position, how many have no default, whether it takes any name."""

    names: tuple[str, ...]
    required: int
    any_name: bool = False

    def takes(self, other: Parameters) -> bool:
        """Whether whoever calls a function with the parameters ``other`` may call this one."""
        most = len(self.names)
        return self.any_name or (self.required <= other.required and len(other.names) <= most)


def main() -> int:
    """Print what differs, then how many names were compared."""
    # Modules are linked to libraries of CUDA, in whose place there are empty ones: what is missing
    # there is looked up when it is called, which nothing here does.
    sys.setdlopenflags(os.RTLD_LAZY)
    warnings.simplefilter("ignore")
    import cupy

    differences, compared = [], 0
    for name, keywords in sorted(used_names().items()):
        compared += 1
        try:
            found = resolved(name)
        except (ImportError, AttributeError, RuntimeError) as error:
            differences.append(f"no {name}: {error}")
            continue
        if unknown := keywords - set(parameters_of(found).names) if keywords else ():
            differences.append(f"{name} takes no {', '.join(sorted(unknown))}")
    for name, stand_in in defined():
        try:
            found = resolved(name)
        except (ImportError, AttributeError, RuntimeError) as error:
            differences.append(f"no {name}: {error}")
            continue
        compared += 1
        if isinstance(stand_in, Parameters):
            real = parameters_of(found)
            if not real.takes(stand_in):
                differences.append(f"{name} takes {real}, not {stand_in}")
        elif found != stand_in:
            differences.append(f"{name} is {found}, not {stand_in}")
    text = inspect.getsource(importlib.import_module("cupy.cuda.compiler"))
    differences += [f"it compiles without {word}" for word in sys.argv[1:] if word not in text]
    print("\n".join([*differences, f"CuPy {cupy.__version__}: {compared} names compared"]))
    return 1 if differences else 0


def used_names() -> dict[str, set[str]]:
    """Full names that gcnmpi uses of CuPy's modules, with the keywords that it gives."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "gcnmpi").rglob("*.py")):
        text = path.read_text()
        if "import cupy" not in text and "from cupy" not in text:
            continue
        tree = ast.parse(text)
        aliases = dict(imports(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and (name := dotted(node, aliases)):
                found.setdefault(name, set())
            if isinstance(node, ast.Call) and (name := dotted(node.func, aliases)):
                keywords = {word.arg for word in node.keywords if word.arg}
                found.setdefault(name, set()).update(keywords)
    return found


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The module or function of CuPy behind each imported name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for word in node.names:
                if word.name.startswith("cupy"):
                    yield word.asname or word.name, word.name
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cupy"):
            for word in node.names:
                yield word.asname or word.name, f"{node.module}.{word.name}"


def dotted(node: ast.AST, aliases: dict[str, str]) -> str | None:
    """The full name of an attribute of an imported module."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id)
    if isinstance(node, ast.Attribute) and (first := dotted(node.value, aliases)):
        return f"{first}.{node.attr}"
    return None


def resolved(name: str) -> Any:
    """The object of a full name."""
    first, *rest = name.split(".")
    found = importlib.import_module(first)
    path = first
    for word in rest:
        path = f"{path}.{word}"
        try:
            found = getattr(found, word)
        except AttributeError:
            try:
                found = importlib.import_module(path)
            except ModuleNotFoundError:
                raise AttributeError(f"{path} does not exist") from None
    return found


def defined() -> Iterator[tuple[str, Parameters | int]]:
    """Functions, methods and constants of the stand-in that have a public name."""
    for module in MODULES:
        path = FAKE.joinpath(*module.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        for node in ast.parse(path.read_text()).body:
            yield from of_statement(node, module)


def of_statement(node: ast.stmt, inside: str) -> Iterator[tuple[str, Parameters | int]]:
    """The same of a statement of a module."""
    name = getattr(node, "name", "_")
    if name in OWN or name.startswith("_"):
        if isinstance(node, ast.Assign):
            yield from constants(node, inside)
    elif isinstance(node, ast.FunctionDef):
        yield f"{inside}.{name}", of_definition(node)
    elif isinstance(node, ast.ClassDef):
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                yield f"{inside}.{name}.{method.name}", of_definition(method, skip=1)


def constants(node: ast.Assign, inside: str) -> Iterator[tuple[str, int]]:
    """Numbers with names of CuPy's libraries."""
    names = [n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    for name, value in zip(names, values, strict=False):
        if name.startswith(("CUBLAS_", "CUSPARSE_", "CUDA_", "NCCL_")):
            yield f"{inside}.{name}", ast.literal_eval(value)


def of_definition(node: ast.FunctionDef, skip: int = 0) -> Parameters:
    """Of a function's source, without its first ``skip`` parameters."""
    names = tuple(argument.arg for argument in node.args.args)[skip:]
    return Parameters(names, len(names) - len(node.args.defaults), node.args.vararg is not None)


def parameters_of(function: Any) -> Parameters:
    """Of a function of CuPy: of its signature, or of the one in the text that Cython leaves."""
    text = getattr(function, "__doc__", None) or ""
    first = text.strip().split("\n")[0]
    found = re.match(r"[\w.]+\((.*)\)", first)
    if isinstance(function, type) and found is None:
        text = getattr(function.__init__, "__doc__", None) or ""
        found = re.match(r"[\w.]+\((.*)\)", text.strip().split("\n")[0])
    if not inspect.isfunction(function) and found is not None:
        return of_text(found[1])
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return Parameters((), 0, any_name=True)
    if parameters and parameters[0].name == "self":
        parameters = parameters[1:]
    named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    required = sum(p.default is p.empty for p in named)
    return Parameters(tuple(p.name for p in named), required, len(named) < len(parameters))


def of_text(text: str) -> Parameters:
    """Of "self, intptr_t handle, int count=1, *, bool last=False"."""
    names, required, any_name = [], 0, False
    depth, words = 0, [""]
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            words.append("")
        else:
            words[-1] += letter
    for word in (word.strip() for word in words):
        if word.startswith("*") or word == "/":
            any_name |= len(word) > 1
        elif word and word != "self":
            names.append(word.split("=")[0].strip().split()[-1].lstrip("*"))
            required += "=" not in word
    return Parameters(tuple(names), required, any_name)


if __name__ == "__main__":
    sys.exit(main())
