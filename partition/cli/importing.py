"""``gcn-partition import`` and ``attach``: files to graph folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from partition.cli import common, import_options
from partition.cli.common import FILE, note, option
from partition.commands import parse_bytes
from partition.errors import UserError
from partition.graph import store
from partition.graph.graph import MASKS
from partition.importing import assemble
from partition.importing.arc_data import ArcFiles
from partition.importing.readers import STREAMS
from partition.reporting import tables
from partition.reporting.describe import describe_data

# The folder does not say it; its loader adds the reverses for these two.
ONE_WAY = (
    "OGB lists an undirected edge once: for ogbn-products and ogbn-proteins, import with "
    "--undirected"
)


DIRECTED = (
    "the graph is directed, and a vertex sums over the arcs that enter it; --undirected adds the "
    "reverse of every arc, as is usual for citations and links"
)


ONE_WAY_RELATIONS = (
    "a vertex sums over the arcs that enter it; --reverse adds the reverse of each relation, so "
    "that the types at their sources sum too"
)


@click.command(
    "import",
    epilog="""\b
Examples:
  gcn-partition import soc-Slashdot0902.mtx.gz slashdot.graph --features random:16
  gcn-partition import planetoid/ind.cora cora.graph
  gcn-partition import ogbn_products products.graph --undirected
  gcn-partition import pyg:Planetoid/Cora cora.graph
  gcn-partition import ogb:ogbn-arxiv arxiv.graph --undirected
  gcn-partition import links.txt links.graph --undirected --features x.npy --labels y.csv
  gcn-partition import links.csv links.graph --features people.csv --label-column kind
  gcn-partition import calls.csv calls.graph --columns source,target,-,weight --ids people.txt
  gcn-partition import train.tsv kg.graph --columns source,relation,target --reverse
  gcn-partition import ogbn_mag mag.graph --reverse
  gcn-partition import DIR g.graph --relation author,writes,paper=w.csv --nodes paper=p.parquet""",
)
@click.argument("source", type=FILE)
@common.out_argument
@import_options.list_options
@option(
    "--relation",
    "Table of the arcs of a relation, in the folder SOURCE; once for each.",
    metavar="A,NAME,B=FILE",
    multiple=True,
)
@option(
    "--nodes",
    "Table of the vertices of a type, with ids, features, label and split; or how many there are. "
    "Without it, they are those of the arcs.",
    metavar="TYPE=FILE|N",
    multiple=True,
)
@option(
    "--reverse",
    "Add the reverse of each relation, rev_NAME, unless it is there or the relation is symmetric.",
    is_flag=True,
)
@import_options.rule_options
@option(
    "--memory",
    "Take at most so much memory, such as 3GB, and sort the arcs in files beside OUT.graph, "
    f"with the same result: for {', '.join(STREAMS)}.  [default: sort in memory]",
    metavar="SIZE",
)
@import_options.arc_data_options
@import_options.vertex_data_options
@common.force_option
@common.json_option
def import_(
    source: Path,
    out: Path,
    direction: str | None,
    memory: str | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Read the graph in the file or folder SOURCE and write it to the folder OUT.graph.

    SOURCE may also be a data set that PyTorch Geometric, OGB or DGL downloads, if it is installed:
    pyg:CLASS/NAME, ogb:NAME, dgl:CLASS.
    """
    import_options.taken(options)
    limit = None if memory is None else parse_bytes(memory)
    with common.noted_warnings(), common.advancing() as tell:
        manifest = assemble.import_graph(
            source,
            out,
            direction=direction or "in",
            overwrite=force,
            memory=limit,
            report=note,
            tell=tell,
            **options,
        )
    if manifest.source["format"] == "ogb" and manifest.directed and not options["undirected"]:
        note(ONE_WAY)
    elif manifest.vertex_types:
        if not options["reverse"]:
            note(ONE_WAY_RELATIONS)
    elif manifest.directed and direction is None and not options["undirected"]:
        note(DIRECTED)
    _show_data(out, manifest, as_json)


@click.command(
    epilog="""\b
Examples:
  gcn-partition attach links.graph --features x.npy --labels y.csv --train-mask train.npy
  gcn-partition attach calls.graph --features x.csv --ids people.txt
  gcn-partition attach links.graph --split random:0.6,0.2,0.2 --splits 10
  gcn-partition attach links.graph --arc-features random:16 --arc-labels y.npy
  gcn-partition attach mag.graph --features author=a.npy --features institution=i.npy""",
)
@common.graph_argument
@import_options.vertex_data_options
@option(
    "--arc-features",
    "Features of the arcs in their order in the folder: a file with a row for each, or D random "
    "columns.",
    metavar="FILE.npy|random:D",
)
@option(
    "--arc-labels",
    "Labels of the arcs likewise: classes, or numbers with NaN where unknown; or C random classes.",
    metavar="FILE.npy|random:C",
)
@option("--arc-train-mask", "Arcs to train on: true or false for each.", metavar="FILE.npy")
@option("--arc-val-mask", "Arcs to validate on.", metavar="FILE.npy")
@option("--arc-test-mask", "Arcs to test on.", metavar="FILE.npy")
@common.json_option
def attach(graph: Path, as_json: bool, **options: Any) -> None:
    """Add data of vertices and arcs to a graph folder, or replace those that it has.

    Arcs and partitions stay as they are.
    """
    masks, split, type_features = (
        import_options.masks(options),
        import_options.split(options),
        import_options.type_features(options),
    )
    of_arcs = {name: options.pop(f"arc_{name}_mask") for name in MASKS}
    options["missing_labels"] = options.pop("missing_label")
    arc_files = ArcFiles(
        options.pop("arc_features"),
        options.pop("arc_labels"),
        {name: file for name, file in of_arcs.items() if file is not None},
        options["seed"],
    )
    named = ("features", "labels", "targets", "label_column")
    given = arc_files.given() or type_features or any(options[name] is not None for name in named)
    if (
        not masks
        and split is None
        and not given
        and options["keep_features"] == import_options.AUTOMATIC
    ):
        hint = "give --features, --labels, --targets, a mask, --split, or --arc-features"
        raise UserError("there is nothing to attach", hint)
    with common.noted_warnings():
        manifest = assemble.attach_files(
            graph, masks=masks, split=split, arc_files=arc_files, type_features=type_features,
            report=note, **options,
        )  # fmt: skip
    _show_data(graph, manifest, as_json)


@click.command(
    epilog="""\b
Example:
  gcn-partition export mag.graph tables
  gcn-partition import tables again.graph
  gcn-partition export mag.graph cites.graph --relation cites --relation rev_cites"""
)
@common.graph_argument
@click.argument("out", metavar="DIR", type=FILE)
@option(
    "--relation",
    "Write a graph folder DIR with the arcs of this relation only, and all vertices; "
    "SOURCE,NAME,TARGET where several have a name. May be repeated.",
    metavar="NAME",
    multiple=True,
)
@common.force_option
@common.json_option
def export(graph: Path, out: Path, relation: tuple[str, ...], force: bool, as_json: bool) -> None:
    """Write the relations and types of a heterogeneous graph as tables into the folder DIR.

    A csv for each relation, Parquet for each type, and graph.toml, which import reads.
    """
    from partition.importing.typed_export import export_relations, export_tables

    if relation:
        manifest = export_relations(store.open_graph(graph), out, relation, force, note)
        _show_data(out, manifest, as_json)
        return
    facts = export_tables(store.open_graph(graph), out, force)
    line = f"{out}: {len(facts['relations']):,} relations, {len(facts['nodes']):,} types"
    common.emit(facts, as_json, lambda: click.echo(line))


def _show_data(path: Path, manifest: store.Manifest, as_json: bool) -> None:
    summary = describe_data(store.open_graph(path))
    facts = {"path": str(path), "manifest": manifest, "summary": summary}
    common.emit(facts, as_json, lambda: tables.show_data(path, manifest, summary))
