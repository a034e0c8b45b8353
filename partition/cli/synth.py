"""``gcn-partition synth``: synthetic graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from partition.cli.common import GRAPH, emit, force_option, json_option, note, working
from partition.commands import Commands
from partition.errors import UserError
from partition.graph import store
from partition.importing import synthetic
from partition.importing.bter import bter as make_bter
from partition.importing.profiles import power_law, profile_of, resized

OF_POWER_LAW = ("exponent", "min_degree", "max_degree", "clustering", "decay")


@click.group(cls=Commands)
def synth() -> None:
    """Make a synthetic graph.

    sbm has communities and labels; rmat has very unequal degrees; bter has the degrees and the
    clustering of another graph, or of a power law.
    """


@synth.command()
@click.argument("out", metavar="OUT.graph", type=GRAPH)
@click.option("-n", "--vertices", "n", type=int, default=20000, show_default=True)
@click.option("-c", "--classes", type=int, default=8, show_default=True, help="Communities.")
@click.option("--degree", type=float, default=10, show_default=True, help="Mean degree.")
@click.option(
    "--intra", type=float, default=0.8, show_default=True, help="Share of edges in a community."
)
@click.option("--features", type=int, default=32, show_default=True, help="Columns of features.")
@click.option("--noise", type=float, default=1.0, show_default=True, help="Standard deviation.")
@click.option("--train", type=float, default=0.1, show_default=True, help="Share to train on.")
@click.option("--val", type=float, default=0.1, show_default=True, help="Share to validate on.")
@click.option("--seed", type=int, default=0, show_default=True)
@force_option
@json_option
def sbm(out: Path, force: bool, as_json: bool, **options: Any) -> None:
    """A stochastic block model: planted communities, with features that depend on them."""
    graph = synthetic.sbm(**options)
    _write_synthetic(out, "sbm", graph, options, force, as_json)


@synth.command()
@click.argument("out", metavar="OUT.graph", type=GRAPH)
@click.option("--scale", type=int, default=14, show_default=True, help="2**SCALE vertices.")
@click.option("--arcs", type=int, help="Arcs to draw.  [default: 16 per vertex]")
@click.option("-a", type=float, default=0.57, show_default=True, help="Upper left probability.")
@click.option("-b", type=float, default=0.19, show_default=True, help="Upper right probability.")
@click.option("-c", type=float, default=0.19, show_default=True, help="Lower left probability.")
@click.option("--undirected", is_flag=True, help="Add the reverse of every arc.")
@click.option(
    "--shuffle/--no-shuffle", default=True, show_default=True, help="Number vertices at random."
)
@click.option("--features", type=int, help="Columns of random features.  [default: none]")
@click.option("--classes", type=int, help="Random classes.  [default: none]")
@click.option("--seed", type=int, default=0, show_default=True)
@force_option
@json_option
def rmat(out: Path, force: bool, as_json: bool, **options: Any) -> None:
    """An R-MAT graph, with very unequal degrees: few vertices have very many arcs."""
    if options["arcs"] is None:
        options["arcs"] = 16 << max(0, options["scale"])
    graph = synthetic.rmat(**options)
    _write_synthetic(out, "rmat", graph, options, force, as_json)


@synth.command(
    epilog="""\b
Examples:
  gcn-partition synth bter twin.graph --like G.graph
  gcn-partition synth bter dense.graph --like G.graph --factor 8 --features 512 --classes 40
  gcn-partition synth bter law.graph --vertices 100000 --exponent 2.5 --clustering 0.3"""
)
@click.argument("out", metavar="OUT.graph", type=GRAPH)
@click.option("--like", metavar="G.graph", type=GRAPH, help="Degrees and clustering of this graph.")
@click.option(
    "-n", "--vertices", "n", type=int, help="Vertices.  [default: those of --like, or 20000]"
)
@click.option(
    "--factor", type=float, default=1.0, show_default=True, help="Multiply every degree by this."
)
@click.option(
    "--exponent", type=float, default=2.2, show_default=True, help="Exponent of the power law."
)
@click.option("--min-degree", type=int, default=2, show_default=True, help="Least degree.")
@click.option("--max-degree", type=int, help="Largest degree.  [default: √vertices]")
@click.option(
    "--clustering", type=float, default=0.5, show_default=True, help="Clustering of degree 1."
)
@click.option(
    "--decay",
    type=float,
    default=0.02,
    show_default=True,
    help="Clustering of degree d is that of degree 1 times exp(-DECAY (d - 1)).",
)
@click.option(
    "--shuffle/--no-shuffle", default=True, show_default=True, help="Number vertices at random."
)
@click.option("--features", type=int, help="Columns of random features.  [default: none]")
@click.option("--classes", type=int, help="Random classes.  [default: none]")
@click.option("--seed", type=int, default=0, show_default=True)
@force_option
@json_option
def bter(
    out: Path, like: Path | None, n: int | None, factor: float, force: bool, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """A BTER graph: given degrees, and given clustering by degree.

    Degrees and clustering are those of --like, or of a power law. Arcs of a directed graph count
    as undirected edges.
    """
    store.check_target(out, force)
    law = {name: options.pop(name) for name in OF_POWER_LAW}
    facts = {"vertices": n, "factor": factor} | options
    with working("making"):
        if like is None:
            profile = resized(power_law(20000 if n is None else n, **law), factor=factor)
            facts |= law
        else:
            _refuse_power_law()
            stored = store.open_graph(like)
            profile = resized(
                profile_of(stored.graph, seed=options["seed"]), vertices=n, factor=factor
            )
            facts |= {"like": stored.manifest.name, "like_id": stored.manifest.id}
        graph = make_bter(profile, **options)
    _write_synthetic(out, "bter", graph, facts, force, as_json)


def _refuse_power_law() -> None:
    context = click.get_current_context()
    for name in OF_POWER_LAW:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = "--" + name.replace("_", "-")
            raise UserError(f"{option} is of a power law, and --like takes a graph's degrees")


def _show_written(path: Path, manifest: store.Manifest, as_json: bool) -> None:
    def show(facts: dict[str, Any]) -> None:
        kind = "directed" if manifest.directed else "undirected"
        click.echo(
            f"{path}: {manifest.n:,} vertices, {manifest.nnz:,} arcs, {kind}, "
            f"{manifest.features} features, {manifest.classes} classes"
        )

    emit({"path": str(path), "manifest": manifest}, as_json, show)


def _write_synthetic(
    out: Path, kind: str, graph: Any, options: dict[str, Any], force: bool, as_json: bool
) -> None:
    source = {"synthetic": kind} | {key: v for key, v in options.items() if v is not None}
    manifest = store.write_graph(out, graph, source=source, overwrite=force, report=note)
    _show_written(out, manifest, as_json)
