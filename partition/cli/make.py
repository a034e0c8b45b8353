"""``gcn-partition add`` and ``refine``, and what other partitioners read and write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import click

from partition.backends import TOOLS
from partition.backends.catalogue import AUTO, MODELS
from partition.cli import common
from partition.commands import Assignments, Result, command, parse_bytes
from partition.errors import UserError, check_name
from partition.graph.manifest import read_manifest
from partition.graph.store import EXCHANGES
from partition.pipeline import adding, tool_files
from partition.pipeline.adding import MODELS_KNOWN, choose_tool, deadline_with_refinement
from partition.pipeline.balance import DEFAULT_BALANCE, MAPPINGS, NODES_FIRST
from partition.pipeline.portfolio import AIMS, LONGEST, SHORTEST, Network, add_best, usual_limit
from partition.refinement.objective import OBJECTIVES, WEIGHTS, Objective

_DEFAULTS = ", ".join(f"{name} ({getattr(Objective, name):g})" for name in WEIGHTS)
_Weights = Annotated[
    tuple[str, ...],
    {"names": ["--weigh"], "metavar": "NAME=WEIGHT", "cls": Assignments, "keys": lambda: WEIGHTS},
    {
        "help": "Weight of a term of the objective of refinement. May be repeated; add then also "
        f"refines. Terms and default weights: {_DEFAULTS}; max_send "
        f"({OBJECTIVES['mixed'].max_send:g}) in a mixed exchange."
    },
]
_MODELS = "; ".join(f"{name}: {model.help}" for name, model in MODELS.items())
_USUAL = f"for auto: {SHORTEST:g} to {LONGEST:g}, by the size of the graph"
_FORMATS = "; ".join(f"{name}: {text}" for name, text in tool_files.FORMATS.items())


def _options_of_models() -> list[str]:
    """The options of all models."""
    return list(dict.fromkeys(key for model in MODELS.values() for key in model.options))


def _options() -> list[str]:
    """The options of all models, and of the tools that are installed."""
    missing = TOOLS.available()
    tools = [TOOLS.get(name) for name in TOOLS if missing[name] is None]
    return list(
        dict.fromkeys([*_options_of_models(), *(key for one in tools for key in one.options)])
    )


@dataclass(frozen=True)
class _Wanted:
    """Options of a partition, whatever makes it.

    Attributes
    ----------
    imbalance
        Largest weight of a part, relative to the average, minus 1; 0.01 is one percent.
    balance
        Weights that are balanced. Several may be given, such as nnz,rows: the tool then balances
        their sum, and vertices are moved afterwards until each is balanced.
    seed
        Seed of the tool.
    name
        Name of the partition.  [default: MODEL-K, such as hp-16, with seed and imbalance if
        they are not the default ones, such as hp-16-s1-e0.03]
    ranks_per_node : R
        Number the parts so that little is sent between nodes of R ranks each.
    mapping
        With --ranks-per-node: partition into nodes first and then each node into parts, or into all
        parts at once. Both then renumber the parts.
    """

    imbalance: float = 0.01
    balance: common.Constraints = DEFAULT_BALANCE
    seed: int = 0
    name: str | None = None
    ranks_per_node: int | None = None
    mapping: Annotated[str, {"metavar": "|".join(MAPPINGS)}] = NODES_FIRST
    direction: common.Direction = None


class _Network(Network):
    """Options for the cost of a message.

    Attributes
    ----------
    alpha
        For auto: seconds per message.
    beta
        For auto: seconds per byte.
    width
        For auto: float32 columns of a row.
    """


@command
def add(
    graph: common.GraphFolder,
    *,
    model: Annotated[str, {"metavar": "|".join([*MODELS, AUTO]), "also": f"{_MODELS}."}],
    k: int,
    wanted: _Wanted,
    tool: Annotated[str | None, {"metavar": "|".join(TOOLS)}] = None,
    objective: str | None = None,
    settings: Annotated[common.Settings, {"keys": _options}] = (),
    refine: bool = False,
    weigh: _Weights = (),
    time_limit: Annotated[float | None, {"also": f"[default: none; {_USUAL}]"}] = None,
    network: _Network,
    exchange: Annotated[str | None, {"metavar": "|".join(AIMS)}] = None,
    memory: Annotated[str | None, {"also": f"For {', '.join(MODELS_KNOWN)}."}] = None,
    if_missing: bool = False,
    force: common.Force = False,
) -> Result:
    """Partition a graph and store the result in its folder.

    `gcn-partition models` lists models, tools and their options.

    Parameters
    ----------
    model
        auto: several of the others, refined, within --time-limit; the best one for each exchange is
        kept.
    k : -k --parts
        Number of parts: one per rank.
    tool
        Tool.  [default: the model's first]
    objective : cut|vol
        What METIS minimises.  [default: cut]
    settings
        Option of model or tool.
    refine
        Refine the result: fewer rows sent in total, and by the busiest rank; in a mixed
        exchange for --model mg.
    time_limit : SECONDS
        Time for all of it: tools are stopped, searches end with what they have.
    exchange
        For auto: the exchange that a partition is for; auto: one for each, NAME-rows and
        NAME-mixed.  [default: auto]
    memory : SIZE
        Take at most so much memory, such as 8GB, the tool included. The forecast is shown
        first; where needed, a tool that takes less is chosen, and rows that very many need are left
        out of its model.
    if_missing
        Do nothing if the partition --name into K parts exists.

    Examples
    --------
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
    """
    if if_missing and (there := adding.existing_partitions(graph, wanted.name, k, force)):
        return common.result_of(there, common.show_added, warnings=[])
    options = common.parse_settings(settings)
    if objective is not None:
        if "objective" in options:
            raise UserError("--objective and --set objective=… say the same: give one of them")
        options["objective"] = objective
    of_model = MODELS[model].exchange if model in MODELS else "rows"
    aim = _objective(weigh, of_model) if refine or weigh else None
    _refuse_unused(model, tool, aim is not None)
    common_options: dict[str, Any] = {"overwrite": force, **vars(wanted)}
    if model == AUTO:
        if tool or options:
            raise UserError(f"--model {AUTO} chooses tools and their options itself")
        if memory is not None:
            raise UserError(
                f"--memory: it is not known how much --model {AUTO} takes",
                f"models with a forecast: {', '.join(MODELS_KNOWN)}",
            )
        if time_limit is None:
            time_limit = usual_limit(read_manifest(graph).nnz)
    elif network != _Network() or exchange is not None:
        raise UserError("--alpha, --beta, --width and --exchange are options of --model auto")
    _prepare(time_limit, AIMS[1:] if model == AUTO else [aim.exchange] if aim else [])
    shown = common.working("partitioning", time_limit)
    with common.shown_warnings(adding.PartitionWarning, "warning") as messages, shown as report:
        if model == AUTO:
            made = add_best(
                graph, k, network=network, exchange=exchange or "auto", objective=aim,
                time_limit=time_limit, report=report, **common_options,
            )  # fmt: skip
        else:
            made = [
                adding.add_partition(
                    graph, model, k, tool=tool, refine=aim, time_limit=time_limit,
                    memory=None if memory is None else parse_bytes(memory),
                    report=common.note, working=report, **common_options, **options,
                )
            ]  # fmt: skip
    return common.result_of(made, common.show_added, warnings=messages)


def _prepare(time_limit: float | None, exchanges: Sequence[str]) -> None:
    """Compile what refines for some exchanges, before the clock starts."""
    if exchanges:
        with common.working("preparing the refinement, which is compiled the first time"):
            deadline_with_refinement(time_limit, exchanges)


def _refuse_unused(model: str, tool: str | None, refine: bool) -> None:
    """Refuse an option that was given and that nothing here would look at."""
    if common.is_given("mapping") and not common.is_given("ranks_per_node"):
        raise UserError("--mapping needs --ranks-per-node")
    if model == AUTO or refine:
        return
    chosen, backend = choose_tool(model, tool)
    if common.is_given("imbalance") and not backend.balanced:
        raise UserError(
            f"--imbalance: the tool {chosen!r} does not balance parts", "leave it out, or --refine"
        )
    if common.is_given("seed") and not backend.seeded and not MODELS[model].random:
        raise UserError(f"--seed: nothing is random in the tool {chosen!r}", "leave it out")


@command
def refine(
    graph: common.GraphFolder,
    start: str,
    *,
    k: int | None = None,
    name: str | None = None,
    exchange: Annotated[str, click.Choice(EXCHANGES)] = "rows",
    weigh: _Weights = (),
    imbalance: float | None = None,
    seed: int = 0,
    effort: float = 1.0,
    time_limit: float | None = None,
    direction: common.Direction = None,
    force: common.Force = False,
) -> Result:
    """Refine the partition NAME: move vertices so that fewer rows are sent.

    The rows of the busiest rank are reduced most. The balance is kept. NAME may be any partition,
    also one of another tool. The result is never worse.

    Parameters
    ----------
    start : NAME
    k : -k --parts K
        Join the parts of NAME into K first, the same number into each, for fewer ranks; an --effort
        of 0.1 is enough then.
    name
        Name of the result.  [default: NAME+refined or NAME+mixed, NAME-in-K+…]
    exchange : --objective
        The exchange that is to take less: of rows alone, or mixed with partial sums.
    imbalance
        As for add.  [default: that of NAME, or 0.01]
    effort
        Factor of the work done.
    time_limit : SECONDS
        Stop after this time; the result then depends on the machine.  [default: no limit]
    direction
        Direction of the aggregation.  [default: that of NAME]

    Examples
    --------
    gcn-partition refine G.graph gp-64
    gcn-partition refine G.graph theirs --name ours --weigh max_recv=1 --weigh total=0.5
    gcn-partition refine G.graph gp-64 --objective mixed --name mixed-64
    gcn-partition refine G.graph hp-64 --effort 4 --time-limit 600
    gcn-partition refine G.graph hp-64 -k 16
    """
    objective = _objective(weigh, exchange)
    _prepare(time_limit, [objective.exchange])
    with (
        common.shown_warnings(adding.PartitionWarning, "warning") as messages,
        common.working("refining", time_limit),
    ):
        made = adding.refine_partition(
            graph, start, k=k, name=name, objective=objective, imbalance=imbalance, seed=seed,
            effort=effort, time_limit=time_limit, direction=direction, overwrite=force,
        )  # fmt: skip
    return common.result_of([made], common.show_added, warnings=messages)


def _objective(pairs: Sequence[str], exchange: str) -> Objective:
    """An objective from ``--weigh NAME=WEIGHT``; what is not named keeps its default weight."""
    form, hint = "NAME=WEIGHT", f"{WEIGHTS[0]}=1"
    weights = common.parse_pairs("--weigh", form, pairs, hint)
    for name, text in weights.items():
        check_name("weight of the objective", name, WEIGHTS)
        try:
            weights[name] = float(text)
        except ValueError:
            wrong = f"--weigh {name}={text} is not of the form {form}"
            raise UserError(wrong, hint) from None
        if not 0 <= weights[name] < math.inf:
            raise UserError(f"--weigh {name}={text}: weights are not negative")
    objective = replace(OBJECTIVES[exchange], **weights)
    if not objective.sum():
        raise UserError("all weights of the objective are 0")
    return objective


@command
def import_parts(
    graph: common.GraphFolder,
    file: Path,
    *,
    name: str,
    k: int | None = None,
    first: Annotated[int, click.IntRange(0, 1)] = 0,
    direction: common.Direction = None,
    force: common.Force = False,
) -> Result:
    """Store a partition of another program: FILE has a part number per vertex.

    One number per line (METIS, hMETIS, KaHyPar, KaHIP, Zoltan) or several (PaToH),
    or a mapping of Scotch.

    Parameters
    ----------
    name
        Name of the partition.
    k : -k --parts
        Number of parts.  [default: the largest + 1]
    first
        Number of the first part in FILE: 0 or 1.
    direction
        Direction it was made for.  [default: the graph's]

    Examples
    --------
    gcn-partition import-parts G.graph G.metis.part.16 --name metis-16
    gcn-partition import-parts G.graph G.u.part.64 --name patoh-64 -k 64
    """
    made = adding.import_parts(
        graph, file, name, k, first=first, direction=direction, overwrite=force
    )
    return common.result_of([made], common.show_added, warnings=[])


@command
def export_model(
    graph: common.GraphFolder,
    file: Path,
    *,
    format: Annotated[str, {"metavar": "|".join(tool_files.FORMATS), "also": f"{_FORMATS}."}],
    model: str | None = None,
    k: int | None = None,
    seed: int = 0,
    settings: Annotated[common.Settings, {"keys": _options_of_models}] = (),
    balance: common.Constraints = DEFAULT_BALANCE,
    direction: common.Direction = None,
    force: common.Force = False,
) -> Result:
    """Write the model of a graph to the file OUT, for a partitioner that is not built in.

    The tool's part file comes back with gcn-partition import-parts.

    Parameters
    ----------
    file : OUT
    model : gp|hp|mg|shp
        Model.  [default: gp for metis, else hp]
    k : -k --parts
        Number of parts, needed for shp.
    seed
        Seed of shp's mini-batches.
    settings
        Option of the model.
    balance
        Weights of the vertices; several, such as nnz,rows, for metis and patoh.

    Examples
    --------
    gcn-partition export-model G.graph G.metis --format metis
    gcn-partition export-model G.graph G.hgr --format hmetis --model hp
    gcn-partition export-model G.graph G.u --format patoh --balance nnz,rows
    gcn-partition export-model G.graph S.hgr --format hmetis --model shp -k 8 --set batch=20000
    """
    if common.is_given("seed") and not (model in MODELS and MODELS[model].random):
        raise UserError("--seed: nothing is random but the model shp", "leave it out")
    with common.working("writing"):
        facts = tool_files.export_model(
            graph, file, format=format, model=model, k=k, seed=seed, balance=balance,
            direction=direction, overwrite=force, **common.parse_settings(settings),
        )  # fmt: skip
    return Result(facts, _exported(facts))


def _exported(facts: dict[str, Any]) -> str:
    kinds = ("edges",) if "edges" in facts else ("nets", "pins")
    size = ", ".join(f"{facts[kind]:,} {kind}" for kind in kinds)
    return (
        f"{facts['file']}: {facts['model']}, {facts['vertices']:,} vertices, {size}, "
        f"weights: {', '.join(facts['constraints'])}, {facts['bytes'] / 1e6:.1f} MB"
    )
