"""The command line ``gcn-partition``."""

import itertools
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import click

from partition.backends import TOOLS
from partition.cli import common
from partition.commands import Commands, Result, command
from partition.deadline import end_in_order
from partition.errors import UserError, unknown_name
from partition.graph import store
from partition.graph.graph import Graph
from partition.graph.samples import list_samples, read_samples, remove_samples
from partition.graph.vertex_pairs import list_pairs, read_pairs, remove_pairs
from partition.pipeline import adding
from partition.pipeline.checking import check_folder
from partition.reporting import tables

# Commands of modules that are imported once one of theirs is asked for.
_MODULES = {
    "importing": ("import_", "attach", "export", "synth"),
    "partitions": (
        "add", "refine", "export_model", "import_parts", "compare", "simulate_", "study_",
    ),
    "sets": ("pairs", "samples", "negatives"),
}  # fmt: skip
ELSEWHERE = {
    name.strip("_").replace("_", "-"): f"partition.cli.{module}:{name}"
    for module, names in _MODULES.items()
    for name in names
}


@command
def info(graph: common.GraphFolder, name: str | None = None) -> Result:
    """Describe a graph folder (size, degrees, changes by the import), or what it has by a name.

    NAME is a partition, or a set of pairs or of samples.
    """
    if name is None:
        stored = store.open_graph(graph)
        partitions, pairs, samples = _contents(graph, stored.graph)
        facts = {"path": str(graph), "manifest": stored.manifest}
        facts |= {"degrees": tables.degrees(stored.merged), "partitions": _facts(partitions)}
        more = {"pairs": pairs, "samples": samples, "schema": tables.describe_schema(stored.graph)}
        facts |= {key: found for key, found in more.items() if found}
        return Result(facts, partial(tables.show_graph, stored, partitions))
    kind = _kind_of(graph, name)
    if kind == "samples":
        return Result(tables.describe_samples(read_samples(graph, name)), tables.show_set)
    if kind == "pairs":
        described = tables.describe_pairs(read_pairs(graph, name), store.open_graph(graph).graph)
        return Result(described, tables.show_set)
    found = [store.read_partition(graph, each) for each in store.members(graph, name)]
    return common.result_of(found, tables.show_partition)


def _contents(
    path: Path, graph: Graph | None = None
) -> tuple[list[store.Partition], list[dict[str, object]], list[dict[str, object]]]:
    """All partitions of a folder, without their parts, and facts of its sets: pairs, samples."""
    names = store.list_partitions(path)
    pairs = [read_pairs(path, name, check=False) for name in list_pairs(path)]
    return (
        [store.read_partition(path, name, parts=False) for name in names],
        [tables.describe_pairs(each, graph) for each in pairs],
        [tables.describe_samples(read_samples(path, name)) for name in list_samples(path)],
    )


def _facts(partitions: Iterable[store.Partition]) -> list[dict[str, object]]:
    return [tables.describe_partition(partition, lists=False) for partition in partitions]


def _kind_of(graph: Path, name: str) -> str:
    """Of which kind a name is: "partition", "pairs" or "samples"; a UserError if of none."""
    partitions = store.list_partitions(graph)
    sets = {"pairs": list_pairs(graph), "samples": list_samples(graph)}
    if {name, *store.members(graph, name)} & {*partitions} or not any(sets.values()):
        return "partition"
    found = next((kind for kind, names in sets.items() if name in names), None)
    if found is None:
        of_sets = [one for names in sets.values() for one in names]
        what = " or ".join(("partition", *(kind for kind, names in sets.items() if names)))
        raise unknown_name(f"{what} of {graph}", name, [*partitions, *of_sets])
    return found


@command
def check(graph: common.GraphFolder) -> Result:
    """Read all of a graph folder, and compare it with what it says of itself.

    Its partitions, pairs and samples are read too.
    """
    found = list(check_folder(graph))
    wrong = [finding for finding in found if finding.wrong is not None]
    if not wrong:
        return Result(found, tables.show_checks)
    more = f" (and {len(wrong) - 1} more)" if wrong[1:] else ""
    hint = (
        "import the graph again, or make the partition again with gcn-partition add --force, "
        "pairs with gcn-partition pairs --force, samples with gcn-partition samples --force"
    )
    error = UserError(f"{graph}: {wrong[0].what}: {wrong[0].wrong}{more}", hint)
    return Result(found, tables.show_checks, error)


@command
def list_(graph: common.GraphFolder) -> Result:
    """List the partitions of a graph, and its sets of pairs and of samples."""
    store.open_graph(graph, check=False)
    partitions, *sets = _contents(graph)
    facts = [*_facts(partitions), *itertools.chain(*sets)]
    return Result(facts, lambda _: tables.show_list(partitions, *sets))


@command
def remove(graph: common.GraphFolder, names: common.Names) -> Result:
    """Delete partitions, and sets of pairs and of samples: of two of one name both."""
    store.open_graph(graph, check=False)
    kinds = {name: _kind_of(graph, name) for name in names}
    removed = [
        each
        for name, kind in kinds.items()
        if kind == "partition"
        for each in store.members(graph, name)
    ]
    store.remove_partition(graph, *removed)
    removing = {"pairs": remove_pairs, "samples": remove_samples}
    for name, kind in kinds.items():
        if kind in removing:
            removing[kind](graph, name)
            removed.append(name)
    return Result({"removed": removed}, f"removed {', '.join(removed)}")


@command
def models() -> Result:
    """List the models, the tools that take them, and the tools' options."""
    missing = TOOLS.available()
    rows = []
    for name, model in adding.MODELS.items():
        for tool in model.tools:
            options = {**model.options, **({} if missing[tool] else TOOLS.get(tool).options)}
            shown = ("default", "help", "choices")
            table = {
                name: {key: getattr(one, key) for key in shown} for name, one in options.items()
            }
            facts = {"model": name, "help": model.help, "tool": tool, "missing": missing[tool]}
            rows.append(facts | {"options": table})
    return Result(rows, tables.show_models)


def main() -> None:
    """Entry point of ``gcn-partition`` and of ``python -m partition``."""
    end_in_order()
    cli.main(prog_name="gcn-partition")


@click.group(
    cls=Commands,
    commands=[info, check, list_, remove, models],
    elsewhere=ELSEWHERE,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
A first session:
  gcn-partition synth sbm demo.graph --vertices 20000 --classes 8
  gcn-partition add demo.graph --model rp -k 4
  gcn-partition add demo.graph --model hp -k 4
  gcn-partition compare demo.graph
  mpirun -n 4 gcnmpi train demo.graph --partition hp-4""",
)
@click.version_option(package_name="gcnmpi")
def cli() -> None:
    """Make graph folders, and partition their rows over the ranks of a run.

    A graph folder NAME.graph holds one graph and any number of named partitions. The trainer,
    gcnmpi, reads both. The partition determines how much it sends.
    """
