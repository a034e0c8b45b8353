"""The rules of the architecture: who imports whom, what a module must have."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("partition", "gcnmpi")
FILES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
SOURCES = sorted((ROOT / "src").iterdir())
IDS = [str(path.relative_to(ROOT)) for path in FILES]
MAX_LINES = 450

# A module imports only from groups above its own, or from its own: the table in
# docs/architecture.md. The longest prefix of a module's name decides.
LAYERS = {
    "partition": [
        ["partition.commands", "partition.errors", "partition.figures", "partition.registry",
         "partition.locks", "partition.records", "partition.startup"],
        ["partition.graph", "partition.hashing"],
        ["partition.metrics"],
        ["partition.manifest"],
        ["partition.store"],
        [
            "partition.readers", "partition.vertex_data", "partition.assemble",
            "partition.synthetic", "partition.models", "partition.partfile",
            "partition.sampling", "partition.mapping", "partition.hierarchy", "partition.refine",
            "partition.refine_core", "partition.refine_levels", "partition.refine_moves",
        ],
        ["partition.stochastic", "partition.balance"],
        ["partition.backends"],
        ["partition.catalogue"],
        ["partition.solving"],
        ["partition.pipeline", "partition.tool_files", "partition.simulate"],
        ["partition.refining"],
        ["partition.portfolio"],
        ["partition.comparison"],
        ["partition.study", "partition.plots"],
        ["partition.describe", "partition.tables"],
        ["partition.cli_common"],
        [
            "partition.cli_import", "partition.cli_make", "partition.cli_minibatches",
            "partition.cli_study", "partition.cli_tools",
        ],
        ["partition.cli"],
        ["partition.__main__"],
    ],
    "gcnmpi": [
        ["gcnmpi.kernels.registry", "gcnmpi.schemes.registry", "gcnmpi.rng", "gcnmpi.volume",
         "gcnmpi.record", "gcnmpi.watch", "gcnmpi.jobs", "gcnmpi.settings",
         "gcnmpi.nn.registry"],
        ["gcnmpi.timing", "gcnmpi.model_config"],
        ["gcnmpi.launch"],
        ["gcnmpi.config", "gcnmpi.outputs", "gcnmpi.comm", "gcnmpi.hosts", "gcnmpi.plan",
         "gcnmpi.row_order"],
        ["gcnmpi.kernels", "gcnmpi.exchange", "gcnmpi.transports", "gcnmpi.node_memory",
         "gcnmpi.one_sided", "gcnmpi.collectives", "gcnmpi.loading", "gcnmpi.reduction"],
        ["gcnmpi.schemes.interface"],
        ["gcnmpi.blocks", "gcnmpi.schemes.whole_rows", "gcnmpi.schemes.outline",
         "gcnmpi.schemes.grid", "gcnmpi.schemes.needed_rows"],
        ["gcnmpi.schemes"],
        ["gcnmpi.nn.operators"],
        ["gcnmpi.nn.network", "gcnmpi.nn.initial"],
        ["gcnmpi.nn.networks.stack"],
        ["gcnmpi.nn.networks"],
        ["gcnmpi.nn.describe"],
        ["gcnmpi.layers", "gcnmpi.optim", "gcnmpi.loss"],
        ["gcnmpi.models"],
        ["gcnmpi.machine", "gcnmpi.resident"],
        ["gcnmpi.costmodel"],
        ["gcnmpi.ranking"],
        ["gcnmpi.comparison"],
        ["gcnmpi.problem"],
        ["gcnmpi.checkpoint_files", "gcnmpi.claims", "gcnmpi.weights"],
        ["gcnmpi.checkpoint"],
        ["gcnmpi.preflight"],
        ["gcnmpi.trainer", "gcnmpi.inference", "gcnmpi.serial"],
        ["gcnmpi.calibrate", "gcnmpi.bench", "gcnmpi.doctor", "gcnmpi.submit"],
        ["gcnmpi.report", "gcnmpi.verify_steps", "gcnmpi.verify"],
        ["gcnmpi.cli_common"],
        ["gcnmpi.cli_schemes", "gcnmpi.cli_cluster"],
        ["gcnmpi.cli_bench"],
        ["gcnmpi.cli"],
        ["gcnmpi.__main__"],
    ],
}  # fmt: skip

OF_PARTITION = {
    "commands",
    "errors",
    "figures",
    "registry",
    "locks",
    "records",
    "graph",
    "store",
    "metrics",
    "sampling",
    "synthetic",
    "startup",
    "catalogue",
}


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


def layer(name: str) -> int:
    """The group of a module; the tables in the ``__init__`` of kernels and schemes are low."""
    if name in ("gcnmpi.kernels", "gcnmpi.schemes"):
        name += ".registry"
    if name in ("gcnmpi.nn", "gcnmpi.nn.networks"):
        name = "gcnmpi.nn.registry"
    groups = LAYERS[name.split(".")[0]]
    places = {prefix: number for number, group in enumerate(groups) for prefix in group}
    fitting = [prefix for prefix in places if name == prefix or name.startswith(prefix + ".")]
    assert fitting, f"{name} is in no layer: see LAYERS, and docs/architecture.md"
    return places[max(fitting, key=len)]


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_modules_import_only_what_they_may(path):
    name = module_name(path)
    package = name.split(".")[0]
    for other in imported(path):
        top, *rest = other.split(".")
        if top == "mpi4py":
            assert name == "gcnmpi.comm", "gcnmpi.comm is the only importer of mpi4py"
        if top in PACKAGES and top != package:
            assert package == "gcnmpi", "partition never imports gcnmpi"
            assert rest[0] in OF_PARTITION, f"gcnmpi does not use {other}"
        if top == package and {name, other}.isdisjoint(PACKAGES):
            assert layer(other) <= layer(name), f"{name} imports {other}, which is above it"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_modules_are_short_and_say_what_they_are(path):
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
                    assert ast.get_docstring(member) or overrides, f"{node.name}.{member.name}"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_only_the_command_line_and_reports_print(path):
    name = module_name(path)
    if name.endswith(".cli") or name.startswith("gcnmpi.report"):
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            errors = [word for word in node.keywords if word.arg == "file"]
            assert node.func.id != "print" or errors, f"line {node.lineno} prints"


def registries():
    from gcnmpi.config import MODELS, OPTIMIZERS
    from gcnmpi.kernels import KERNELS
    from gcnmpi.schemes import SCHEMES, TRANSPORTS
    from partition.backends import TOOLS
    from partition.readers import READERS

    return [KERNELS, SCHEMES, TRANSPORTS, MODELS, OPTIMIZERS, TOOLS, READERS]


def test_every_entry_of_a_registry_resolves_or_names_its_extra():
    extras = pyproject()["project"]["optional-dependencies"]
    for registry in registries():
        for name, missing in registry.available().items():
            # What is compiled here needs no extra, but a compiler when it is installed.
            if missing is not None and not missing.startswith("was not built"):
                assert registry.extras[name] in extras, (registry.kind, name)


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
