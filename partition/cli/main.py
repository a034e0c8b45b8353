"""The command line ``gcn-partition``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from partition.backends import TOOLS
from partition.cli import common
from partition.commands import Commands, command
from partition.errors import UserError, unknown_name
from partition.graph import store
from partition.graph.links import PairSet, list_pairs, read_pairs, remove_pairs
from partition.graph.samples import list_samples, read_samples, remove_samples
from partition.graph.store import Partition, members
from partition.pipeline import adding
from partition.pipeline.checking import check_folder
from partition.reporting import tables
from partition.reporting.describe import (
    degrees,
    describe_pairs,
    describe_partition,
    describe_samples,
    describe_schema,
)
from partition.signals import end_in_order

ELSEWHERE = {
    "import": "partition.cli.importing:import_",
    "attach": "partition.cli.importing:attach",
    "add": "partition.cli.make:add",
    "refine": "partition.cli.make:refine",
    "export": "partition.cli.importing:export",
    "export-model": "partition.cli.make:export_model",
    "import-parts": "partition.cli.make:import_parts",
    "compare": "partition.cli.comparing:compare",
    "simulate": "partition.cli.comparing:simulate_",
    "study": "partition.cli.comparing:study_",
    "synth": "partition.cli.synth:synth",
    "pairs": "partition.cli.links:pairs",
    "samples": "partition.cli.samples:samples",
    "negatives": "partition.cli.links:negatives",
}


@command
def info(
    graph: common.GraphFolder, name: str | None = None, *, as_json: common.Json = False
) -> None:
    """Describe a graph folder (size, degrees, changes by the import), or what it has by a name.

    NAME is a partition, or a set of pairs or of samples.
    """
    if name is None:
        stored = store.open_graph(graph)
        spread, partitions = degrees(stored.merged), _described(graph)
        facts = {"path": str(graph), "manifest": stored.manifest, "degrees": spread}
        facts |= {"partitions": [describe_partition(each, lists=False) for each in partitions]}
        sets = [describe_pairs(each, stored.graph) for each in _pair_sets(graph)]
        facts |= {"pairs": sets} if sets else {}
        samples = _sample_sets(graph)
        facts |= {"samples": samples} if samples else {}
        schema = describe_schema(stored.graph)
        facts |= {"schema": schema} if schema else {}
        common.emit(
            facts,
            as_json,
            lambda: tables.show_graph(stored, spread, partitions, sets, schema, samples),
        )
    elif _kind_of(graph, name) == "samples":
        one = describe_samples(read_samples(graph, name))
        common.emit(one, as_json, lambda: tables.show_samples(one))
    elif _kind_of(graph, name) == "pairs":
        described = describe_pairs(read_pairs(graph, name), store.open_graph(graph).graph)
        common.emit(described, as_json, lambda: tables.show_pairs(described))
    else:
        found = [store.read_partition(graph, each) for each in members(graph, name)]
        common.emit_each(found, as_json, tables.show_partition)


def _described(graph: Path) -> list[Partition]:
    """All partitions of a folder, without their part vectors."""
    names = store.list_partitions(graph)
    return [store.read_partition(graph, name, parts=False) for name in names]


def _pair_sets(graph: Path) -> list[PairSet]:
    """All sets of pairs of a folder, whose arrays are not looked at."""
    return [read_pairs(graph, name, check=False) for name in list_pairs(graph)]


def _sample_sets(graph: Path) -> list[dict[str, object]]:
    """The facts of all sets of samples of a folder."""
    return [describe_samples(read_samples(graph, name)) for name in list_samples(graph)]


def _kind_of(graph: Path, name: str) -> str:
    """Of which kind a name is: "partition", "pairs" or "samples"; a UserError if of none."""
    partitions = store.list_partitions(graph)
    sets = {"pairs": list_pairs(graph), "samples": list_samples(graph)}
    if name in partitions or set(members(graph, name)) & set(partitions) or not any(sets.values()):
        return "partition"
    found = next((kind for kind, names in sets.items() if name in names), None)
    if found is None:
        of_sets = [one for names in sets.values() for one in names]
        what = " or ".join(("partition", *(kind for kind, names in sets.items() if names)))
        raise unknown_name(f"{what} of {graph}", name, [*partitions, *of_sets])
    return found


@command
def check(graph: common.GraphFolder, *, as_json: common.Json = False) -> None:
    """Read all of a graph folder, and compare it with what it says of itself.

    Its partitions, pairs and samples are read too.
    """
    found = list(check_folder(graph))
    common.emit(found, as_json, lambda: tables.show_checks(found))
    wrong = [finding for finding in found if finding.wrong is not None]
    if wrong:
        first, *others = wrong
        more = f" (and {len(others)} more)" if others else ""
        hint = (
            "import the graph again, or make the partition again with gcn-partition add --force, "
            "pairs with gcn-partition pairs --force, samples with gcn-partition samples --force"
        )
        raise UserError(f"{graph}: {first.what}: {first.wrong}{more}", hint)


@command
def list_(graph: common.GraphFolder, *, as_json: common.Json = False) -> None:
    """List the partitions of a graph, and its sets of pairs and of samples."""
    store.open_graph(graph, check=False)
    partitions, sets = _described(graph), [describe_pairs(each) for each in _pair_sets(graph)]
    facts = [describe_partition(partition, lists=False) for partition in partitions]
    samples = _sample_sets(graph)
    every = [*facts, *sets, *samples]
    common.emit(every, as_json, lambda: tables.show_list(partitions, sets, samples))


@command
def remove(graph: common.GraphFolder, names: common.Names, *, as_json: common.Json = False) -> None:
    """Delete partitions, and sets of pairs and of samples: of two of one name both."""
    store.open_graph(graph, check=False)
    kinds = {name: _kind_of(graph, name) for name in names}
    of = [name for name, kind in kinds.items() if kind == "partition"]
    partitions = [each for name in of for each in members(graph, name)]
    store.remove_partition(graph, *partitions)
    removing = {"pairs": remove_pairs, "samples": remove_samples}
    for name, kind in kinds.items():
        if kind in removing:
            removing[kind](graph, name)
    removed = [*partitions, *(name for name in kinds if name not in of)]
    line = f"removed {', '.join(removed)}"
    common.emit({"removed": removed}, as_json, lambda: click.echo(line))


@command
def models(*, as_json: common.Json = False) -> None:
    """List the models, the tools that take them, and the tools' options."""
    missing = TOOLS.available()
    rows = []
    for name, model in adding.MODELS.items():
        for tool in model.tools:
            options = {**model.options, **({} if missing[tool] else TOOLS.get(tool).options)}
            table = {key: asdict(option) for key, option in options.items()}
            facts = {"model": name, "help": model.help, "tool": tool, "missing": missing[tool]}
            rows.append(facts | {"options": table})
    common.emit(rows, as_json, lambda: tables.show_models(rows))


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
