"""Uses of weights beside inference: ``gcnmpi score`` and ``gcnmpi evaluate``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gcnmpi.cli import common
from gcnmpi.options.outputs import (
    RESULTS,
    TABLES,
    Inferring,
    Scoring,
    check_distinct,
    check_suffix,
    features_path,
)
from gcnmpi.options.task import LINKS
from partition.commands import option, path_option
from partition.errors import UserError

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm
    from gcnmpi.run.claims import Claims


@click.command(short_help="Scores of pairs of vertices, or the best partners of vertices.")
@common.on_graph
@path_option(
    "--weights", "W", "Weights of a network that was trained for links: .npz.", required=True
)
@common.network_option
@option(
    "--pairs",
    "Score these: a table or .npy of two vertices a row; or a set of pairs in the folder.",
    metavar="FILE|NAME",
)
@option(
    "--columns",
    "Columns of FILE in their order: source, target, relation, and - for one not read.",
    metavar="NAMES",
)
@click.option("--of", default="", metavar="train|val|test", help="Of the set: those.  [test]")
@option("--top", "Write the K best partners of each vertex instead.", type=int, metavar="K")
@option(
    "--vertices",
    "The vertices that get partners: a file with one a line, some of them, or all.  [all]",
    metavar="FILE|0,5,9|all",
)
@option("--with-arcs", "Partners may be vertices that there is an arc with.", is_flag=True)
@option(
    "--relation",
    "Partners by this relation of the graph: of the type of vertices that it leads to.",
    metavar="NAME",
)
@path_option(
    "--out",
    "FILE",
    "File to write: a score for each pair, .npy, .npz, .csv or .parquet; of partners a table of "
    "vertex, partner and score, .npz, .csv or .parquet.",
    required=True,
)
@common.force_option
def score(
    given: common.Given,
    weights: Path,
    network_file: Path | None,
    pairs: str | None,
    columns: str | None,
    of: str,
    top: int | None,
    vertices: str | None,
    with_arcs: bool,
    relation: str | None,
    out: Path,
    force: bool,
) -> common.Job:
    """Score pairs of vertices of GRAPH, or find the best partners of vertices among all others.

    Both are exact, and the same for any number of ranks. Scores are in the order of the pairs. A
    vertex is no partner of itself, nor of one that it has an arc with. Memory does not grow with
    the number of scores; rank 0 holds the table of partners.

    \b
      gcnmpi score G.graph --weights W.npz --pairs pairs.csv --out scores.npy
      gcnmpi score kg.graph --weights W.npz --pairs asked.tsv --columns source,relation,target
          --out scores.npy
      gcnmpi score G.graph --weights W.npz --top 10 --vertices 0,5,9 --out partners.csv
      gcnmpi score kg.graph --weights W.npz --top 10 --relation likes --out partners.csv
    """
    if (pairs is None) == (top is None):
        told = "say what is scored" if pairs is None else "--pairs and --top exclude each other"
        raise UserError(told, "--pairs FILE scores pairs, --top K finds partners")
    of_partners = [("--vertices", vertices is not None), ("--with-arcs", with_arcs),
                   ("--relation", relation is not None)]  # fmt: skip
    of_pairs = [("--of", bool(of)), ("--columns", columns is not None)]
    for name, there in of_partners if top is None else of_pairs:
        if there:
            raise UserError(f"{name} is for --{'top' if top is None else 'pairs'}")
    config, keys = common.config_of_weights(given, network_file, weights, {"task.name": LINKS})
    check_suffix("--out", out, RESULTS if top is None else TABLES)
    inputs = {
        "GRAPH": given.graph, "--weights": weights, "--config": given.file,
        "--network": network_file, "--pairs": None if pairs is None else Path(pairs),
        "--vertices": None if vertices is None else Path(vertices),
    }  # fmt: skip
    check_distinct({**inputs, "the features of --weights": features_path(weights), "--out": out})
    inferring = Inferring(given.graph, given.partition, config, weights, out, keys, force=force)
    some = vertices or "all"
    asked = Scoring(inferring, pairs, of, top or 0, some, with_arcs, columns, relation)

    def job(comm: Comm, claims: Claims) -> Callable[[], None]:
        from gcnmpi.report.outcome import print_inference
        from gcnmpi.run.links.asked import score_pairs, top_partners

        if top is None:
            done = score_pairs(comm, asked, common.telling(comm))
        else:
            done, _ = top_partners(comm, asked, common.telling(comm))
        return lambda: print_inference(out, done)

    return common.claimed(config, given.graph, given.partition, job)


@click.command(short_help="Metrics of trained weights.")
@common.on_graph
@common.weights_option
@common.network_option
@common.split_option
@common.json_option
@common.force_option
def evaluate(
    given: common.Given,
    weights: Path,
    network_file: Path | None,
    split: int | None,
    as_json: bool,
    force: bool,
) -> common.Job:
    """Metrics of trained weights on GRAPH: of its masks, or of the pairs that were held out.

    The task is that of the weights; --set task.metrics=… asks for other metrics than its first one.
    """
    given = dataclasses.replace(given, settings=(*given.settings, *common.of_split(split)))
    config, keys = common.config_of_weights(given, network_file, weights)
    asked = Inferring(given.graph, given.partition, config, weights, given=keys, force=force)

    def job(comm: Comm, claims: Claims) -> Callable[[], None]:
        from gcnmpi.report.outcome import print_metrics
        from gcnmpi.run.inference import evaluate_weights

        found, told = evaluate_weights(comm, asked)
        return lambda: print_metrics(found, told, as_json)

    return common.claimed(config, given.graph, given.partition, job)
