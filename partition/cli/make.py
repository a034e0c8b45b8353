"""``gcn-partition add`` and ``refine``, and what other partitioners read and write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from partition.backends import TOOLS
from partition.backends.catalogue import AUTO, MODELS
from partition.cli import common
from partition.cli.common import option
from partition.commands import Assignments, parse_bytes
from partition.errors import UserError, unknown_name
from partition.graph.manifest import read_manifest
from partition.graph.store import EXCHANGES, Partition
from partition.pipeline import adding, balance, tool_files
from partition.pipeline.balance import MAPPINGS, NODES_FIRST
from partition.pipeline.memory import MODELS_KNOWN
from partition.pipeline.portfolio import AIMS, LONGEST, SHORTEST, Network, add_best, usual_limit
from partition.pipeline.solving import choose_tool, deadline_with_refinement
from partition.refinement.objective import OBJECTIVES, WEIGHTS, Objective

weigh_option = option(
    "--weigh",
    "Weight of a term of the objective of refinement; terms and default weights: "
    + ", ".join(f"{name} ({getattr(Objective, name):g})" for name in WEIGHTS)
    + f"; max_send ({OBJECTIVES['mixed'].max_send:g}) in a mixed exchange. "
    "May be repeated; add then also refines.",
    metavar="NAME=WEIGHT",
    cls=Assignments,
    keys=lambda: WEIGHTS,
)


def _options() -> list[str]:
    """The options of all models, and of the tools that are installed."""
    missing = TOOLS.available()
    tools = [TOOLS.get(name) for name in TOOLS if missing[name] is None]
    return list(dict.fromkeys(key for each in (*MODELS.values(), *tools) for key in each.options))


@click.command(
    epilog="""\b
Examples:
  gcn-partition add G.graph --model hp -k 16
  gcn-partition add G.graph --model gp --objective vol -k 16 --imbalance 0.03
  gcn-partition add G.graph --model hp -k 16 --set preset=quality --name best-16
  gcn-partition add G.graph --model hp -k 16 --balance nnz,rows --imbalance 0.03
  gcn-partition add G.graph --model gp -k 64 --refine --ranks-per-node 8
  gcn-partition add G.graph --model mg -k 64 --refine
  gcn-partition add G.graph --model gp -k 64 --memory 8GB
  gcn-partition add G.graph --model auto -k 64 --time-limit 120
  gcn-partition add G.graph --model auto --exchange rows -k 64
  gcn-partition add G.graph --model shp -k 8 --set batch=20000 --set theta=0.01
`gcn-partition models` lists models, tools and their options."""
)
@common.graph_argument
@option(
    "--model",
    "; ".join(f"{name}: {model.help}" for name, model in MODELS.items())
    + f"; {AUTO}: several of these, refined, within --time-limit; the best one for each exchange "
    "is kept.",
    metavar="|".join([*MODELS, AUTO]),
    required=True,
)
@option("-k --parts k", "Number of parts: one per rank.", type=int, required=True)
@option(
    "--imbalance",
    "Largest weight of a part, relative to the average, minus 1; 0.01 is one percent.",
    0.01,
)
@common.balance_option(
    "Weights that are balanced: "
    + "; ".join(f"{name}: {text}" for name, text in balance.CONSTRAINTS.items())
    + ". Several may be given, such as nnz,rows: the tool then balances their sum, and vertices "
    "are moved afterwards until each is balanced.",
)
@option("--seed", "Seed of the tool.", 0)
@option(
    "--name",
    "Name of the partition.  [default: MODEL-K, such as hp-16, with seed and imbalance if "
    "they are not the default ones, such as hp-16-s1-e0.03]",
)
@option("--tool", "Tool.  [default: the model's first]", metavar="|".join(TOOLS))
@option("--objective", "What METIS minimises.  [default: cut]", metavar="cut|vol")
@common.settings_option("Option of model or tool.", _options)
@option(
    "--refine",
    "Refine the result: fewer rows sent in total, and by the busiest rank; in a mixed "
    "exchange for --model mg.",
    is_flag=True,
)
@weigh_option
@option(
    "--ranks-per-node",
    "Number the parts so that little is sent between nodes of R ranks each.",
    type=int,
    metavar="R",
)
@option(
    "--mapping",
    "With --ranks-per-node: partition into nodes first and then each node into parts, or "
    "into all parts at once. Both then renumber the parts.",
    NODES_FIRST,
    metavar="|".join(MAPPINGS),
)
@common.direction_option()
@option(
    "--time-limit",
    "Time for all of it: tools are stopped, searches end with what they have.  "
    f"[default: none; for {AUTO}: {SHORTEST:g} to {LONGEST:g}, by the size of the graph]",
    type=float,
    metavar="SECONDS",
)
@option("--alpha", "For auto: seconds per message.  [default: 5e-7]", type=float)
@option("--beta", "For auto: seconds per byte.  [default: 1e-10]", type=float)
@option("--width", "For auto: float32 columns of a row.  [default: 64]", type=int)
@option(
    "--exchange",
    "For auto: the exchange that a partition is for; auto: one for each, NAME-rows and "
    "NAME-mixed.  [default: auto]",
    metavar="|".join(AIMS),
)
@option(
    "--memory",
    "Take at most so much memory, such as 8GB, the tool included. What will be taken is shown "
    "first; where needed, a tool that takes less is chosen, and rows that very many need are left "
    f"out of its model. For {', '.join(MODELS_KNOWN)}.  [default: no limit]",
    metavar="SIZE",
)
@option("--if-missing", "Do nothing if the partition --name into K parts exists.", is_flag=True)
@common.force_option
@common.json_option
def add(
    graph: Path, model: str, k: int, tool: str | None, objective: str | None,
    settings: tuple[str, ...], refine: bool, weigh: tuple[str, ...], time_limit: float | None,
    alpha: float | None, beta: float | None, width: int | None, exchange: str | None,
    memory: str | None, if_missing: bool, force: bool, as_json: bool, **arguments: Any,
) -> None:  # fmt: skip
    """Partition a graph and store the result in its folder."""
    if if_missing:
        there = adding.existing_partitions(graph, arguments["name"], k, force)
        if there:
            _show(there, as_json, [])
            return
    options = common.parse_settings(settings)
    if objective is not None:
        if "objective" in options:
            raise UserError("--objective and --set objective=… say the same: give one of them")
        options["objective"] = objective
    of_model = MODELS[model].exchange if model in MODELS else "rows"
    wanted = parse_objective(weigh, of_model) if refine or weigh else None
    _refuse_unused(model, tool, wanted is not None)
    limit = None if memory is None else parse_bytes(memory)
    network = {"alpha": alpha, "beta": beta, "width": width}
    given: dict[str, Any] = {key: value for key, value in network.items() if value is not None}
    if model == AUTO and time_limit is None:
        time_limit = usual_limit(read_manifest(graph).nnz)
    arguments["time_limit"] = time_limit
    if model == AUTO:
        if tool or options:
            raise UserError(f"--model {AUTO} chooses tools and their options itself")
        if limit is not None:
            raise UserError(
                f"--memory: it is not known how much --model {AUTO} takes",
                f"models with a forecast: {', '.join(MODELS_KNOWN)}",
            )
    elif given or exchange is not None:
        raise UserError("--alpha, --beta, --width and --exchange are options of --model auto")
    _prepare(time_limit, AIMS[1:] if model == AUTO else [wanted.exchange] if wanted else [])
    shown = common.working("partitioning", time_limit)
    with common.collected_warnings() as messages, shown as report:
        if model == AUTO:
            made = add_best(
                graph, k, network=Network(**given), exchange=exchange or "auto", objective=wanted,
                overwrite=force, report=report, **arguments,
            )  # fmt: skip
        else:
            made = [
                adding.add_partition(
                    graph, model, k, tool=tool, refine=wanted, overwrite=force, memory=limit,
                    report=common.note, working=report, **arguments, **options,
                )
            ]  # fmt: skip
    _show(made, as_json, messages)


def _prepare(time_limit: float | None, exchanges: Sequence[str]) -> None:
    """Compile what refines for some exchanges, before the clock starts."""
    if exchanges:
        with common.working("preparing the refinement, which is compiled the first time"):
            deadline_with_refinement(time_limit, exchanges)


def _show(made: Sequence[Partition], as_json: bool, messages: list[str]) -> None:
    common.emit_each(made, as_json, common.show_added, warnings=messages)


def _refuse_unused(model: str, tool: str | None, refine: bool) -> None:
    """Refuse an option that was given and that nothing here would look at."""
    context = click.get_current_context()

    def given(name: str) -> bool:
        return context.get_parameter_source(name) is ParameterSource.COMMANDLINE

    if given("mapping") and not given("ranks_per_node"):
        raise UserError("--mapping needs --ranks-per-node")
    if model == AUTO or refine:
        return
    chosen, backend = choose_tool(model, tool)
    if given("imbalance") and not backend.balanced:
        raise UserError(
            f"--imbalance: the tool {chosen!r} does not balance parts", "leave it out, or --refine"
        )
    if given("seed") and not backend.seeded and not MODELS[model].random:
        raise UserError(f"--seed: nothing is random in the tool {chosen!r}", "leave it out")


@click.command(
    epilog="""\b
Examples:
  gcn-partition refine G.graph gp-64
  gcn-partition refine G.graph theirs --name ours --weigh max_recv=1 --weigh total=0.5
  gcn-partition refine G.graph gp-64 --objective mixed --name mixed-64
  gcn-partition refine G.graph hp-64 --effort 4 --time-limit 600
  gcn-partition refine G.graph hp-64 -k 16"""
)
@common.graph_argument
@click.argument("start", metavar="NAME")
@option(
    "-k --parts k",
    "Join the parts of NAME into K first, the same number into each, for fewer ranks; an --effort "
    "of 0.1 is enough then.",
    type=int,
    metavar="K",
)
@option("--name", "Name of the result.  [default: NAME+refined or NAME+mixed, NAME-in-K+…]")
@option(
    "--objective exchange",
    "The exchange that is to take less: of rows alone, or mixed with partial sums.",
    "rows",
    type=click.Choice(EXCHANGES),
)
@weigh_option
@option("--imbalance", "As for add.  [default: that of NAME, or 0.01]", type=float)
@option("--seed", default=0)
@option("--effort", "Factor of the work done.", 1.0)
@option(
    "--time-limit",
    "Stop after this time; the result then depends on the machine.  [default: no limit]",
    type=float,
    metavar="SECONDS",
)
@common.direction_option("Direction of the aggregation.  [default: that of NAME]")
@common.force_option
@common.json_option
def refine(
    graph: Path, start: str, exchange: str, weigh: tuple[str, ...], force: bool, as_json: bool,
    **arguments: Any,
) -> None:  # fmt: skip
    """Refine the partition NAME: move vertices so that fewer rows are sent.

    The rows of the busiest rank are reduced most. The balance is kept. NAME may be any partition,
    also one of another tool. The result is never worse.
    """
    objective = parse_objective(weigh, exchange)
    _prepare(arguments["time_limit"], [objective.exchange])
    working = common.working("refining", arguments["time_limit"])
    with common.collected_warnings() as messages, working:
        made = adding.refine_partition(
            graph, start, objective=objective, overwrite=force, **arguments
        )
    _show([made], as_json, messages)


def parse_objective(pairs: tuple[str, ...], exchange: str) -> Objective:
    """An objective from ``--weigh NAME=WEIGHT``; what is not named keeps its default weight."""
    weights: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if equals and name not in WEIGHTS:
            raise unknown_name("weight of the objective", name, WEIGHTS)
        if name in weights:
            raise UserError(f"--weigh {pair}: {name} is given twice")
        try:
            weights[name] = float(text)
        except ValueError:
            raise UserError(
                f"--weigh {pair!r} is not of the form NAME=WEIGHT", f"{WEIGHTS[0]}=1"
            ) from None
        if not 0 <= weights[name] < math.inf:
            raise UserError(f"--weigh {pair}: weights are not negative")
    objective = replace(OBJECTIVES[exchange], **weights)
    if not objective.sum():
        raise UserError("all weights of the objective are 0")
    return objective


@click.command(
    "import-parts",
    epilog="""\b
Examples:
  gcn-partition import-parts G.graph G.metis.part.16 --name metis-16
  gcn-partition import-parts G.graph G.u.part.64 --name patoh-64 -k 64""",
)
@common.graph_argument
@click.argument("file", type=common.FILE)
@option("--name", "Name of the partition.", required=True)
@option("-k --parts k", "Number of parts.  [default: the largest + 1]", type=int)
@option("--first", "Number of the first part in FILE: 0 or 1.", 0, type=click.IntRange(0, 1))
@common.direction_option("Direction it was made for.  [default: the graph's]")
@common.force_option
@common.json_option
def import_parts(graph: Path, file: Path, force: bool, as_json: bool, **options: Any) -> None:
    """Store a partition of another program: FILE has a part number per vertex.

    One number per line (METIS, hMETIS, KaHyPar, KaHIP, Zoltan) or several (PaToH),
    or a mapping of Scotch.
    """
    made = adding.import_parts(graph, file, overwrite=force, **options)
    common.emit_each([made], as_json, common.show_added, warnings=[])


@click.command(
    "export-model",
    epilog="""\b
Examples:
  gcn-partition export-model G.graph G.metis --format metis
  gcn-partition export-model G.graph G.hgr --format hmetis --model hp
  gcn-partition export-model G.graph G.u --format patoh --balance nnz,rows
  gcn-partition export-model G.graph S.hgr --format hmetis --model shp -k 8 --set batch=20000
The tool's part file comes back with gcn-partition import-parts.""",
)
@common.graph_argument
@click.argument("file", metavar="OUT", type=common.FILE)
@option(
    "--format",
    "; ".join(f"{name}: {text}" for name, text in tool_files.FORMATS.items()) + ".",
    metavar="|".join(tool_files.FORMATS),
    required=True,
)
@option("--model", "Model.  [default: gp for metis, else hp]", metavar="gp|hp|mg|shp")
@option("-k --parts k", "Number of parts, needed for shp.", type=int)
@option("--seed", "Seed of shp's mini-batches.", 0)
@common.settings_option(
    "Option of the model.",
    lambda: dict.fromkeys(key for model in MODELS.values() for key in model.options),
)
@common.balance_option("Weights of the vertices; several, such as nnz,rows, for metis and patoh.")
@common.direction_option()
@common.force_option
@common.json_option
def export_model(
    graph: Path, file: Path, settings: tuple[str, ...], force: bool, as_json: bool, **arguments: Any
) -> None:
    """Write the model of a graph to the file OUT, for a partitioner that is not built in."""
    options = common.parse_settings(settings)
    model, context = arguments["model"], click.get_current_context()
    given = context.get_parameter_source("seed") is ParameterSource.COMMANDLINE
    if given and not (model in MODELS and MODELS[model].random):
        raise UserError("--seed: nothing is random but the model shp", "leave it out")
    with common.working("writing"):
        facts = tool_files.export_model(graph, file, overwrite=force, **arguments, **options)
    common.emit(facts, as_json, lambda: _show_exported(facts))


def _show_exported(facts: dict[str, Any]) -> None:
    kinds = ("edges",) if "edges" in facts else ("nets", "pins")
    size = ", ".join(f"{facts[kind]:,} {kind}" for kind in kinds)
    click.echo(
        f"{facts['file']}: {facts['model']}, {facts['vertices']:,} vertices, {size}, "
        f"weights: {', '.join(facts['constraints'])}, {facts['bytes'] / 1e6:.1f} MB"
    )
