"""``gcn-partition pairs``: sets of pairs of vertices for link prediction."""

from __future__ import annotations

from pathlib import Path

import click

from partition.cli import common
from partition.cli.common import option
from partition.errors import UserError
from partition.graph import store
from partition.graph.links import has_pairs, parsed_shares, split_pairs, write_pairs
from partition.reporting import tables
from partition.reporting.describe import describe_pairs


@click.command(
    epilog="""\b
Examples:
  gcn-partition pairs G.graph --split 0.85,0.05,0.10
  gcn-partition pairs G.graph --split 0.7,0.1,0.2 --seed 1 --name links-1 --negatives 0
  gcn-partition info G.graph links"""
)
@common.graph_argument
@option(
    "--split",
    "Shares of the pairs that train, validate and test: they are drawn at random.",
    "0.85,0.05,0.10",
)
@option("--seed", "Seed of all that is drawn.", 0)
@option("--name", "Name of the set.", "links")
@click.option(
    "--directed/--undirected",
    default=None,
    help="Whether an arc and its reverse are two pairs.  [default: as the graph]",
)
@option(
    "--negatives",
    "Pairs without an arc that are drawn for each pair to validate or test on; all pairs are "
    "ranked against all of them.",
    1,
)
@option(
    "--candidates",
    "Vertices in place of the second one that each pair to validate or test on is ranked against; "
    "they are drawn when they are needed.",
    0,
)
@common.force_option
@common.json_option
def pairs(
    graph: Path,
    split: str,
    seed: int,
    name: str,
    directed: bool | None,
    negatives: int,
    candidates: int,
    force: bool,
    as_json: bool,
) -> None:
    """Split the arcs of a graph into pairs to train on, validate on and test on.

    The graph keeps all arcs: gcnmpi leaves those to validate and test on out of M, both ways.
    """
    shares = parsed_shares(split.split(","))
    check_is_free(graph, name, force)
    stored = store.open_graph(graph)
    with common.working("drawing"):
        made = split_pairs(
            stored.graph,
            shares,
            seed,
            stored.manifest.directed if directed is None else directed,
            negatives,
            candidates=candidates,
            name=name,
            graph_id=stored.manifest.id,
        )
        made = write_pairs(graph, made, force)
    facts = describe_pairs(made, stored.graph)
    common.emit(facts, as_json, lambda: tables.show_pair_sets([facts]))


def check_is_free(graph: Path, name: str, force: bool) -> None:
    """Refuse a name that is taken before anything is drawn or read."""
    if store.has_partition(graph, name):
        raise UserError(f"{graph} has a partition {name!r}", "give another --name")
    if has_pairs(graph, name) and not force:
        hint = "give --name or --force, or remove them first"
        raise UserError(f"{graph} has pairs {name!r} already", hint)
