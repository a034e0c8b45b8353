"""``gcn-partition synth``: synthetic graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from partition.cli.common import (
    emit,
    force_option,
    json_option,
    note,
    option,
    out_argument,
)
from partition.commands import Commands
from partition.graph import store
from partition.graph.graph import Graph
from partition.importing import synthetic

seed_option = option("--seed", default=0)
random_features = option("--features", "Columns of random features.  [default: none]", type=int)
random_classes = option("--classes", "Random classes.  [default: none]", type=int)
shuffle_option = option("--shuffle/--no-shuffle", "Number vertices at random.", True)


@click.group(cls=Commands)
def synth() -> None:
    """Make a synthetic graph.

    sbm has communities and labels; rmat has very unequal degrees; hetero has types of vertices and
    relations.
    """


@synth.command()
@out_argument
@option("-n --vertices n", default=20000)
@option("-c --classes", "Communities.", 8)
@option("--degree", "Mean degree.", 10, type=float)
@option("--intra", "Share of edges in a community.", 0.8)
@option("--features", "Columns of features.", 32)
@option("--noise", "Standard deviation.", 1.0)
@option("--train", "Share to train on.", 0.1)
@option("--val", "Share to validate on.", 0.1)
@seed_option
@force_option
@json_option
def sbm(out: Path, force: bool, as_json: bool, **options: Any) -> None:
    """A stochastic block model: planted communities, with features that depend on them."""
    graph = synthetic.sbm(**options)
    write_synthetic(out, "sbm", graph, options, force, as_json)


@synth.command()
@out_argument
@option("--scale", "2**SCALE vertices.", 14)
@option("--arcs", "Arcs to draw.  [default: 16 per vertex]", type=int)
@option("-a", "Upper left probability.", 0.57)
@option("-b", "Upper right probability.", 0.19)
@option("-c", "Lower left probability.", 0.19)
@option("--undirected", "Add the reverse of every arc.", is_flag=True)
@shuffle_option
@random_features
@random_classes
@seed_option
@force_option
@json_option
def rmat(out: Path, force: bool, as_json: bool, **options: Any) -> None:
    """An R-MAT graph, with very unequal degrees: few vertices have very many arcs."""
    if options["arcs"] is None:
        options["arcs"] = 16 << max(0, options["scale"])
    graph = synthetic.rmat(**options)
    write_synthetic(out, "rmat", graph, options, force, as_json)


@synth.command(
    epilog="""\b
Examples:
  gcn-partition synth hetero g.graph --reverse
  gcn-partition synth hetero g.graph --types paper:4000,author:6000:8,venue:50:0 \\
      --relations author-writes-paper:20000,paper-cites-paper:8000,paper-at-venue:4000"""
)
@out_argument
@option(
    "--types",
    "Vertices of each type, and columns of features where it is not --features. The first has "
    "labels.",
    synthetic.TYPES,
    metavar="TYPE:N[:D],…",
)
@option("--relations", "Arcs of each relation.", synthetic.RELATIONS, metavar="A-NAME-B:N,…")
@option("-c --classes", "Communities.", 4)
@option("--intra", "Share of arcs that follow the shift of their relation.", 0.8)
@option("--features", "Columns of features.", 16)
@option("--noise", "Standard deviation.", 1.0)
@option("--train", "Share to train on.", 0.1)
@option("--val", "Share to validate on.", 0.1)
@option("--reverse", "Add the reverse of each relation.", is_flag=True)
@seed_option
@force_option
@json_option
def hetero(
    out: Path, types: str, relations: str, features: int, force: bool, as_json: bool, **options: Any
) -> None:
    """A graph of several types and relations: labels that relations tell.

    Each vertex has a community, and an arc of the r-th relation joins community c to c + r.
    """
    store.check_target(out, force)
    graph = synthetic.hetero(
        synthetic.parse_types(types, features),
        synthetic.parse_relations(relations),
        **options,
    )
    facts = {"types": types, "relations": relations, "features": features} | options
    write_synthetic(out, "hetero", graph, facts, force, as_json)


def write_synthetic(
    out: Path, kind: str, graph: Graph, options: dict[str, object], force: bool, as_json: bool
) -> None:
    """Write a graph of a generator, whose arguments the manifest gets, and say what it has."""
    source = {"synthetic": kind} | {key: v for key, v in options.items() if v is not None}
    manifest = store.write_graph(out, graph, source=source, overwrite=force, report=note)
    direction = "directed" if manifest.directed else "undirected"
    line = (
        f"{out}: {manifest.n:,} vertices, {manifest.nnz:,} arcs, {direction}, "
        f"{manifest.features} features, {manifest.classes} classes"
    )
    emit({"path": str(out), "manifest": manifest}, as_json, lambda: click.echo(line))
