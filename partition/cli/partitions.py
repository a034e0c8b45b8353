"""Commands of ``gcn-partition`` that make partitions, and that hold them against each other."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import click

from partition import commands
from partition.backends import TOOLS
from partition.backends.catalogue import AUTO, MODELS
from partition.charts.figures import check_figure, save_figures
from partition.cli import common
from partition.commands import Assignments, Result, command, like, parse_bytes
from partition.errors import UserError, check_name
from partition.graph import store
from partition.pipeline import adding, balance, tool_files
from partition.pipeline.adding import choose_tool, deadline_with_refinement
from partition.pipeline.memory import MODELS_KNOWN
from partition.pipeline.portfolio import AIMS, LONGEST, SHORTEST, Network, add_best, usual_limit
from partition.records import make_room_for
from partition.refinement.objective import OBJECTIVES, WEIGHTS, Objective
from partition.reporting import comparison, tables

_CONSTRAINTS = Annotated[
    str,
    {
        "metavar": "|".join(balance.CONSTRAINTS),
        "also": "; ".join(f"{name}: {text}" for name, text in balance.CONSTRAINTS.items()) + ".",
    },
]
_SETTINGS = {"names": ["--set"], "metavar": "OPTION=VALUE", "cls": Assignments}
_SHARED = {"direction": common.Direction, "overwrite": common.Force}
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
    tools = [TOOLS.get(name) for name, missing in TOOLS.available().items() if missing is None]
    of_tools = [key for tool in tools for key in tool.options]
    return list(dict.fromkeys([*_options_of_models(), *of_tools]))


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
@like(
    balance.Recipe, balance=_CONSTRAINTS,
    mapping=Annotated[str, {"metavar": "|".join(balance.MAPPINGS)}],
)  # fmt: skip
@like(add_best, overwrite=common.Force)
def add(
    graph: common.GraphFolder,
    *,
    model: Annotated[str, {"metavar": "|".join([*MODELS, AUTO]), "also": f"{_MODELS}."}],
    k: int,
    tool: Annotated[str | None, {"metavar": "|".join(TOOLS)}] = None,
    objective: str | None = None,
    settings: Annotated[tuple[str, ...], _SETTINGS | {"keys": _options}] = (),
    refine: bool = False,
    weigh: _Weights = (),
    time_limit: Annotated[float | None, {"also": f"[default: none; {_USUAL}]"}] = None,
    network: _Network,
    exchange: Annotated[str | None, {"metavar": "|".join(AIMS)}] = None,
    memory: Annotated[str | None, {"also": f"For {', '.join(MODELS_KNOWN)}."}] = None,
    direction: common.Direction = None,
    if_missing: bool = False,
    **demands: Any,
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
    name, force = demands["name"], demands["overwrite"]
    if if_missing and (there := adding.existing_partitions(graph, name, k, force)):
        return common.result_of(there, _show_added, warnings=[])
    options = _parse_settings(settings)
    if objective is not None:
        if "objective" in options:
            raise UserError("--objective and --set objective=… say the same: give one of them")
        options["objective"] = objective
    of_model = MODELS[model].exchange if model in MODELS else "rows"
    aim = _objective(weigh, of_model) if refine or weigh else None
    _refuse_unused(model, tool, aim is not None)
    if model == AUTO:
        if tool or options:
            raise UserError(f"--model {AUTO} chooses tools and their options itself")
        if memory is not None:
            raise UserError(
                f"--memory: it is not known how much --model {AUTO} takes",
                f"models with a forecast: {', '.join(MODELS_KNOWN)}",
            )
        if time_limit is None:
            time_limit = usual_limit(store.open_graph(graph, check=False).manifest.nnz)
    elif network != _Network() or exchange is not None:
        raise UserError("--alpha, --beta, --width and --exchange are options of --model auto")
    _prepare(time_limit, AIMS[1:] if model == AUTO else [aim.exchange] if aim else [])
    shown = common.working("partitioning", time_limit)
    demands |= {"direction": direction, "time_limit": time_limit}
    with common.shown_warnings(adding.PartitionWarning, "warning") as messages, shown as report:
        if model == AUTO:
            made = add_best(
                graph, k, network=network, exchange=exchange or "auto", objective=aim,
                report=report, **demands,
            )  # fmt: skip
        else:
            limit = None if memory is None else parse_bytes(memory)
            one = adding.add_partition(
                graph, model, k, tool=tool, refine=aim, memory=limit, report=common.note,
                working=report, **demands, **options,
            )  # fmt: skip
            made = [one]
    return common.result_of(made, _show_added, warnings=messages)


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
@like(adding.refine_partition, **_SHARED)
def refine(
    graph: common.GraphFolder,
    start: str,
    *,
    exchange: Annotated[str, click.Choice(store.EXCHANGES)] = "rows",
    weigh: _Weights = (),
    **options: Any,
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
    objective, time_limit = _objective(weigh, exchange), options["time_limit"]
    _prepare(time_limit, [objective.exchange])
    shown = common.working("refining", time_limit)
    with common.shown_warnings(adding.PartitionWarning, "warning") as messages, shown:
        made = adding.refine_partition(graph, start, objective=objective, **options)
    return common.result_of([made], _show_added, warnings=messages)


def _objective(pairs: Sequence[str], exchange: str) -> Objective:
    """An objective from ``--weigh NAME=WEIGHT``; what is not named keeps its default weight."""
    form, hint = "NAME=WEIGHT", f"{WEIGHTS[0]}=1"
    weights = _parse_pairs("--weigh", form, pairs, hint)
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
@like(adding.import_parts, **_SHARED)
def import_parts(
    graph: common.GraphFolder,
    file: Path,
    *,
    name: str,
    first: Annotated[int, click.IntRange(0, 1)] = 0,
    **options: Any,
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
    made = adding.import_parts(graph, file, name, first=first, **options)
    return common.result_of([made], _show_added, warnings=[])


@command
@like(tool_files.export_model, **_SHARED)
def export_model(
    graph: common.GraphFolder,
    file: Path,
    *,
    seed: int = 0,
    direction: common.Direction = None,
    balance: _CONSTRAINTS = balance.DEFAULT_BALANCE,
    format: Annotated[str, {"metavar": "|".join(tool_files.FORMATS), "also": f"{_FORMATS}."}],
    model: str | None = None,
    settings: Annotated[tuple[str, ...], _SETTINGS | {"keys": _options_of_models}] = (),
    **options: Any,
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
    options |= _parse_settings(settings)
    with common.working("writing"):
        options |= {"seed": seed, "direction": direction, "balance": balance}
        facts: dict[str, Any] = tool_files.export_model(graph, file, format, model, **options)
    size = ", ".join(
        f"{facts[kind]:,} {kind}" for kind in ("edges", "nets", "pins") if kind in facts
    )
    line = (
        f"{facts['file']}: {facts['model']}, {facts['vertices']:,} vertices, {size}, "
        f"weights: {', '.join(facts['constraints'])}, {facts['bytes'] / 1e6:.1f} MB"
    )
    return Result(facts, line)


def _show_added(partition: store.Partition) -> None:
    """One line of a new partition, after a table of the steps that led to it, or were tried."""
    if partition.history:
        tables.show_history(partition.history)
    direction = partition.direction
    rows = partition.metrics[direction]
    click.echo(
        f"{partition.name}: {partition.k} parts, volume {rows.volume:,} rows, max send "
        f"{max(rows.send_rows):,}, imbalance {rows.imbalance:.4f}, {partition.seconds:.1f} s"
    )
    kinds = {"mixed exchange": partition.mixed, "of means by relation": partition.by_relation}
    for title, found in kinds.items():
        if mixed := found.get(direction):
            click.echo(
                f"  {title}: volume {mixed.volume:,} rows, {sum(mixed.send_sums or ()):,} of them "
                f"partial sums, max send {max(mixed.send_rows):,}, imbalance {mixed.imbalance:.4f}"
            )
    if partition.nodes:
        traffic = partition.nodes[direction]
        click.echo(
            f"  {traffic.ranks_per_node} ranks per node: {sum(traffic.send_rows):,} rows between "
            f"nodes, {sum(traffic.inside_rows):,} inside, a node sends {max(traffic.send_rows):,} "
            "at most"
        )


def _parse_pairs(option: str, form: str, pairs: Sequence[str], hint: str) -> dict[str, Any]:
    """The keys and values of an option KEY=VALUE that is repeated."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key.isidentifier() or not equals:
            raise UserError(f"{option} {pair!r} is not of the form {form}", hint)
        if key in found:
            raise UserError(f"{option} {pair}: {key} is given twice")
        found[key] = value
    return found


def _parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """The options of ``--set OPTION=VALUE``."""
    hint = "gcn-partition models lists options"
    options = _parse_pairs("--set", "OPTION=VALUE", pairs, hint)
    own = {param.name for param in click.get_current_context().command.params} - {"objective"}
    for key in options.keys() & {"path", "report", "working", *own}:
        given = f"--{key.replace('_', '-')}"
        raise UserError(f"--set {key}=…: {key} has an option of its own, {given}")
    return options


@command
@commands.page_option("Write a page with volume, busiest parts, messages and balance, also over k.")
@commands.figures_option
def compare(
    graph: common.GraphFolder,
    names: Annotated[tuple[str, ...], {"metavar": "[NAME]..."}] = (),
    *,
    direction: common.Direction = None,
    page: Path | None,
    figures: Path | None,
) -> Result:
    """Compare partitions (all, or those named) with each other and with random rows.

    Volume: rows sent by all ranks in one exchange. Max send, max receive: rows of the busiest rank,
    for which the others wait. Messages: ordered pairs of ranks of which one sends to the other.
    Imbalance: weight of the heaviest part divided by the average, minus 1. Seconds: time of
    partitioning. In brackets are ratios to random rows.
    """
    if figures is not None:
        check_figure(figures / "figure.pdf")
    if page is not None:
        make_room_for(page)
    rows = comparison.compare(graph, names, direction)
    if rows and page is not None:
        comparison.write_comparison(page, graph, rows)
    if rows and figures is not None:
        save_figures(itertools.chain(*comparison.comparison_figures(graph, rows)), figures)

    def show(rows: list[dict[str, Any]]) -> None:
        if not rows:
            raise UserError(f"{graph} has no partitions", "make one: gcn-partition add")
        tables.show_comparison(rows)

    return Result(rows, show)


@command
def simulate_(
    graph: common.GraphFolder,
    names: common.Names,
    batches: comparison.MiniBatches,
    *,
    direction: common.Direction = None,
) -> Result:
    """Simulate the communication of random mini-batches; ratios are to the first partition named.

    Rows and messages of one expand for each of them: mean, standard deviation and quantiles.

    Examples
    --------
    gcn-partition simulate G.graph hp-8 --sampler vertex --batch 20000 --batches 1000
    gcn-partition simulate G.graph hp-8 shp-8 gp-8 --batch 6%
    gcn-partition simulate G.graph hp-8 shp-8 --sampler neighbor --batch 1024 --fanouts 10,5
    gcn-partition simulate G.graph hp-8 --sampler neighbor --relations --fanouts-of writes=15,10
    """
    with common.working("drawing mini-batches"):
        facts = comparison.simulate(graph, names, direction=direction, **vars(batches))
    return Result(facts, tables.show_simulation)


@command
@like(comparison.study, direction=common.Direction)
def study_(
    graphs: tuple[Path, ...],
    *,
    models: tuple[str, ...] = ("hp", "gp"),
    ks: tuple[int, ...] = (16,),
    out: Path = Path("runs/partitions"),
    **options: Any,
) -> None:
    """Partition graphs by several models, and compare them with random rows.

    The partitions stay in the graph folders; what is there already is not made again.

    Parameters
    ----------
    graphs : G.graph...
    models : --model RECIPE
        MODEL or MODEL:OPTION=VALUE,…, with +refined at the end to refine it, or
        auto:time_limit=60. May be repeated; the first is compared with the others.
    ks : -k --parts
        Numbers of parts; may be repeated.
    direction
        Direction of the aggregation.  [default: each graph's own]
    out : FOLDER
        Folder for comparison.csv and comparison.md.

    Examples
    --------
    gcn-partition study a.graph b.graph --model gp+refined --model gp -k 16 -k 64
    """
    recipes = [comparison.parse_recipe(text) for text in models]
    files = {ending: out / f"comparison.{ending}" for ending in ("csv", "md")}
    make_room_for(files["csv"])
    with common.shown_warnings(adding.PartitionWarning, "warning"):
        report = partial(click.echo, err=True)
        rows = comparison.study(graphs, recipes, ks, report=report, **options)
    comparison.write_csv(rows, files["csv"])
    text = comparison.table(rows)
    files["md"].write_text(text, encoding="utf-8")
    click.echo(text)
